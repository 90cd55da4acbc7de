//! The TLS flags: what takes effect, and one line for everything that cannot be carried out.

use std::path::Path;

use super::tests::{accepted, read};
use super::{Settings, Stop};
use crate::edge::pki::{Authority, Pair};

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
