//! The TLS flags: what takes effect, and one line for everything that cannot be carried out.

use std::path::Path;

use super::Stop;
use super::tests::{accepted, read};
use crate::edge::pki::Authority;

/// What is given, and what must be found in the settings as they print.
pub(super) const EFFECTS: &[(&str, &str)] = &[
    ("--listen-client-http-urls=http://127.0.0.1:1", "127.0.0.1:1), tls: false, serves: Pages"),
    ("--listen-client-http-urls=http://127.0.0.1:1", "127.0.0.1:2379), tls: false, serves: Grpc"),
    ("--listen-metrics-urls=http://127.0.0.1:1", "127.0.0.1:1), tls: false, serves: Probes"),
    ("SECURE", "127.0.0.1:1), tls: true, serves: Everything"),
    ("SECURE --cert-file=/a", "cert_file: \"/a\", key_file: \"/k\", self_signed: None, clients: None"),
    ("SECURE --key-file=/a", "key_file: \"/a\""),
    ("SECURE --trusted-ca-file=/a", "trusted_ca_file: \"/a\", crl_file: None, allowed: Anyone, names_the_user: false"),
    ("SECURE --trusted-ca-file=/a --client-cert-auth", "names_the_user: true"),
    ("SECURE --trusted-ca-file=/a --client-crl-file=/l", "crl_file: Some(\"/l\")"),
    ("SECURE --trusted-ca-file=/a --client-cert-allowed-cn=b,c", "allowed: Names([\"b\", \"c\"])"),
    ("SECURE --trusted-ca-file=/a --client-cert-allowed-hostname=b,[::1]", "Hosts([DnsName(\"b\"), IpAddress("),
    ("--auto-tls --listen-client-urls=https://10.0.0.1:1", "\"default.sternpost/fixtures/client/cert.pem\""),
    ("--auto-tls --listen-client-urls=https://10.0.0.1:1", "\"10.0.0.1\"], validity_days: 365"),
    ("--auto-tls --self-signed-cert-validity=3 --listen-client-urls=https://10.0.0.1:1", "validity_days: 1095"),
    ("SECURE", "tls12: true, tls13: true"),
    ("SECURE --tls-min-version=TLS1.3", "tls12: false, tls13: true"),
    ("SECURE --tls-max-version=TLS1.2", "tls12: true, tls13: false"),
    (
        "SECURE --cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]",
    ),
    ("SECURE --cipher-suites=TLS_AES_128_GCM_SHA256", "tls12: false, tls13: true"),
];

/// Writes out what rows abbreviate.
pub(super) fn in_full(line: &str) -> String {
    line.replace("SECURE", "--listen-client-urls=https://127.0.0.1:1 --cert-file=/k --key-file=/k")
}

/// A pair that is right, at an address with TLS.
const PAIR: &str = "--listen-client-urls=https://127.0.0.1:1 --cert-file=PKI/cert --key-file=PKI/key";

/// What is given, and what the one line must say. Rows that begin with a blank begin with a right pair.
const REFUSALS: &[(&str, &str)] = &[
    ("--listen-client-urls=https://127.0.0.1:1", "https://127.0.0.1:1 needs --cert-file and --key-file, or --auto-tls"),
    ("--listen-client-urls=unixs:///s", "unixs:///s needs --cert-file"),
    ("--listen-client-http-urls=https://127.0.0.1:1", "https://127.0.0.1:1 needs --cert-file"),
    ("--listen-metrics-urls=https://127.0.0.1:1", "https://127.0.0.1:1 needs --cert-file"),
    ("--listen-client-urls=https://127.0.0.1:1 --cert-file=PKI/cert", "--cert-file is given without --key-file"),
    ("--listen-client-urls=https://127.0.0.1:1 --key-file=PKI/key", "--key-file is given without --cert-file"),
    (
        "--listen-client-urls=https://127.0.0.1:1 --auto-tls --key-file=PKI/key",
        "--key-file is given without --cert-file",
    ),
    ("--cert-file=PKI/cert --key-file=PKI/key", "--cert-file is given, but no URL to listen on begins with https://"),
    ("--auto-tls", "--auto-tls is given, but no URL"),
    ("--client-cert-auth", "--client-cert-auth is given, but no URL"),
    ("--trusted-ca-file=PKI/ca", "--trusted-ca-file is given, but no URL"),
    (" --cert-file=PKI/missing", "--cert-file=PKI/missing: No such file"),
    (" --cert-file=PKI", "--cert-file=PKI: Is a directory"),
    (" --cert-file=PKI/empty", "--cert-file=PKI/empty: no certificate in PEM is in it"),
    (" --cert-file=PKI/key", "--cert-file=PKI/key: no certificate in PEM is in it"),
    (" --cert-file=PKI/cut", "--cert-file=PKI/cut: it is damaged: "),
    (" --cert-file=PKI/noise", "--cert-file=PKI/noise: the certificate cannot be read"),
    (" --cert-file=PKI/huge", "--cert-file=PKI/huge: above 16777216 bytes"),
    (" --key-file=PKI/missing", "--key-file=PKI/missing: No such file"),
    (" --key-file=PKI/cert", "--key-file=PKI/cert: no private key in PEM is in it"),
    (" --key-file=PKI/locked", "--key-file=PKI/locked: the private key is encrypted"),
    (
        " --key-file=PKI/noise",
        "--key-file=PKI/noise: the private key is damaged or of a kind that is not supported: RSA, ",
    ),
    (" --key-file=PKI/other", "--key-file=PKI/other: the private key is not that of the certificate in PKI/cert"),
    (" --trusted-ca-file=PKI/missing", "--trusted-ca-file=PKI/missing: No such file"),
    (" --trusted-ca-file=PKI/empty", "--trusted-ca-file=PKI/empty: no certificate in PEM is in it"),
    (" --trusted-ca-file=PKI/noise", "--trusted-ca-file=PKI/noise: a certificate cannot be read"),
    (" --client-cert-auth", "--client-cert-auth needs --trusted-ca-file"),
    (" --client-crl-file=PKI/list", "--client-crl-file needs --trusted-ca-file"),
    (" --client-cert-allowed-cn=a", "--client-cert-allowed-cn needs --trusted-ca-file"),
    (" --client-cert-allowed-hostname=a", "--client-cert-allowed-hostname needs --trusted-ca-file"),
    (" --trusted-ca-file=PKI/ca --client-crl-file=PKI/missing", "--client-crl-file=PKI/missing: No such file"),
    (" --trusted-ca-file=PKI/ca --client-crl-file=PKI/cert", "--client-crl-file=PKI/cert: not a list of revoked"),
    (" --trusted-ca-file=PKI/ca --client-cert-allowed-cn=,", "--client-cert-allowed-cn names nobody"),
    (" --trusted-ca-file=PKI/ca --client-cert-allowed-hostname=,", "--client-cert-allowed-hostname names nobody"),
    (
        " --trusted-ca-file=PKI/ca --client-cert-allowed-hostname=a:b",
        "\"a:b\" is neither a host name nor an IP address",
    ),
    (" --trusted-ca-file=PKI/ca --client-cert-allowed-cn=a --client-cert-allowed-hostname=a", "exclude each other"),
    (" --tls-min-version=TLS1.1", "--tls-min-version=TLS1.1 is neither TLS1.2 nor TLS1.3"),
    (" --tls-max-version=1.3", "--tls-max-version=1.3 is neither TLS1.2 nor TLS1.3"),
    (
        " --tls-min-version=TLS1.3 --tls-max-version=TLS1.2",
        "--tls-min-version=TLS1.3 is above --tls-max-version=TLS1.2",
    ),
    (" --cipher-suites=TLS_NONE", "--cipher-suites: there is no cipher suite \"TLS_NONE\""),
    (" --cipher-suites=TLS_AES_128_GCM_SHA256 --tls-min-version=TLS1.3", "--cipher-suites cannot be given with"),
    (" --cipher-suites=TLS_AES_128_GCM_SHA256 --tls-max-version=TLS1.2", "none of them is offered here for TLS 1.2"),
    (" --listen-metrics-urls=http://127.0.0.1:1", "one address cannot be listened on twice: https://127.0.0.1:1"),
    (" --listen-client-http-urls=https://127.0.0.1:1", "https://127.0.0.1:1 (grpc) and https://127.0.0.1:1 (http)"),
    (
        "--listen-client-urls=https://127.0.0.1:1 --auto-tls --self-signed-cert-validity=0",
        "=0 is not a number of years",
    ),
    ("--listen-client-urls=https://127.0.0.1:1 --auto-tls --self-signed-cert-validity=101", "=101 is not a number"),
    (
        "--listen-client-urls=https://127.0.0.1:1 --auto-tls --trusted-ca-file=PKI/empty",
        "--trusted-ca-file=PKI/empty: no",
    ),
];

/// Files that are right, and files that are not.
fn write_files(dir: &Path) {
    let authority = Authority::new("authority");
    let pair = authority.server();
    let noise = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\
                 -----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let huge = "x".repeat((16 << 20) + 1);
    let (half, _) = pair.cert.split_at(pair.cert.len() / 2);
    for (name, content) in [
        ("cert", pair.cert.as_str()),
        ("key", &pair.key),
        ("other", &authority.server().key),
        ("ca", &authority.pem),
        ("list", &authority.revoke(&[1])),
        ("empty", ""),
        ("cut", half),
        ("noise", noise),
        ("locked", locked),
        ("huge", &huge),
    ] {
        std::fs::write(dir.join(name), content).expect("a file");
    }
}

/// The one line with which a start ends that these flags ask for; none if it would go on.
fn refusal(line: &str) -> Option<String> {
    match read(line, &[]) {
        Err(Stop::Refused(text)) => Some(text),
        Err(other) => panic!("{line}: {other:?}"),
        Ok(settings) => settings.tls.expect("TLS").check().err(),
    }
}

#[test]
fn every_misconfiguration_is_one_line_that_names_it() {
    let dir = tempfile::tempdir().expect("a directory");
    write_files(dir.path());
    let path = dir.path().to_str().expect("text");
    assert_eq!(refusal(&PAIR.replace("PKI", path)), None, "the pair is right");
    let everything =
        " --trusted-ca-file=PKI/ca --client-crl-file=PKI/list --client-cert-auth --client-cert-allowed-cn=a,b";
    assert_eq!(refusal(&format!("{PAIR}{everything}").replace("PKI", path)), None, "and so is this");
    for (line, part) in REFUSALS {
        let line = if line.starts_with(' ') { format!("{PAIR}{line}") } else { (*line).to_owned() };
        let said = refusal(&line.replace("PKI", path)).unwrap_or_else(|| panic!("{line}: accepted"));
        assert!(said.contains(&part.replace("PKI", path)), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
    }
}

#[test]
fn what_is_weaker_than_it_looks_is_warned_of() {
    let check = |line: &str, part: &str| {
        let warnings = accepted(&in_full(line)).warnings;
        assert!(matches!(warnings.as_slice(), [only] if only.contains(part)), "{line}: {warnings:?}");
    };
    check("SECURE --listen-client-http-urls=http://127.0.0.1:2", "http://127.0.0.1:2 are in the clear");
    check("SECURE --auto-tls", "--auto-tls is ignored");
    let strong = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    check(
        &format!("SECURE --cipher-suites=TLS_RSA_WITH_RC4_128_SHA,{strong}"),
        "not offered here: TLS_RSA_WITH_RC4_128_SHA",
    );
    check("SECURE --cipher-suites=TLS_AES_128_GCM_SHA256", "so TLS 1.3 alone is spoken");
    let silent = accepted(&in_full("SECURE --listen-metrics-urls=http://127.0.0.1:2")).warnings;
    assert!(silent.is_empty(), "{silent:?}");
}
