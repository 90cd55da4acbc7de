//! What the TLS flags say, as far as that can be judged without the files that they name.

use std::path::Path;

use clap::ArgMatches;

use super::url;
use crate::edge::{Address, Allowed, ClientCertificates, Endpoint, SelfSigned, Serves, TlsSettings, Versions, suites};

/// Where a certificate of our own making is kept, within the data directory.
const SELF_SIGNED_DIR: &str = "fixtures/client";
const VALIDITY_YEARS_MAX: u64 = 100;
/// Flags that promise something about connections, which would be broken where none is encrypted.
const PROMISES: &[&str] = &[
    "cert-file",
    "key-file",
    "auto-tls",
    "client-cert-auth",
    "trusted-ca-file",
    "client-crl-file",
    "client-cert-allowed-cn",
    "client-cert-allowed-hostname",
];

/// Reads the flags; none: every connection is in the clear. The error is one line.
pub(super) fn build(
    matches: &ArgMatches,
    data_dir: &Path,
    endpoints: &[Endpoint],
    advertised: &[String],
    warnings: &mut Vec<String>,
) -> Result<Option<TlsSettings>, String> {
    let (versions, suites) = versions_and_suites(matches, warnings)?;
    let Some(secure) = endpoints.iter().find(|endpoint| endpoint.tls) else {
        return match PROMISES.iter().find(|flag| is_given(matches, flag)) {
            Some(flag) => Err(format!("--{flag} is given, but no URL to listen on begins with https:// or unixs://")),
            None => Ok(None),
        };
    };
    let self_signed = self_signed(matches, endpoints, advertised)?;
    let auto = is_given(matches, "auto-tls");
    let directory = data_dir.join(SELF_SIGNED_DIR);
    let (cert_file, key_file, self_signed) = match (path(matches, "cert-file"), path(matches, "key-file")) {
        (Some(cert), Some(key)) => {
            if auto {
                warnings.push("--auto-tls is ignored: --cert-file and --key-file are given".to_owned());
            }
            (cert, key, None)
        }
        (None, None) if auto => (directory.join("cert.pem"), directory.join("key.pem"), Some(self_signed)),
        (None, None) => return Err(format!("{secure} needs --cert-file and --key-file, or --auto-tls")),
        (Some(_), None) => return Err("--cert-file is given without --key-file".to_owned()),
        (None, Some(_)) => return Err("--key-file is given without --cert-file".to_owned()),
    };
    let clients = clients(matches)?;
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.tls && endpoint.serves != Serves::Probes) {
        warnings.push(format!("connections to {endpoint} are in the clear, and no certificate is asked for there"));
    }
    Ok(Some(TlsSettings { cert_file, key_file, self_signed, clients, versions, suites }))
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str).filter(|value| !value.is_empty())
}

fn path(matches: &ArgMatches, name: &str) -> Option<std::path::PathBuf> {
    text(matches, name).map(Into::into)
}

fn list<'a>(matches: &'a ArgMatches, name: &str) -> Vec<&'a str> {
    text(matches, name).unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// True for a switch that is on, or a flag with a value.
fn is_given(matches: &ArgMatches, name: &str) -> bool {
    match matches.try_get_one::<bool>(name) {
        Ok(switch) => switch.copied().unwrap_or_default(),
        Err(_) => text(matches, name).is_some(),
    }
}

fn versions_and_suites(
    matches: &ArgMatches,
    warnings: &mut Vec<String>,
) -> Result<(Versions, Vec<rustls::SupportedCipherSuite>), String> {
    let (oldest, newest) = (version(matches, "tls-min-version", 2)?, version(matches, "tls-max-version", 3)?);
    if oldest > newest {
        return Err(format!("--tls-min-version=TLS1.{oldest} is above --tls-max-version=TLS1.{newest}"));
    }
    let names = list(matches, "cipher-suites");
    if names.is_empty() {
        return Ok((Versions { tls12: oldest == 2, tls13: newest == 3 }, suites::all().suites));
    }
    if oldest == 3 {
        return Err(
            "--cipher-suites cannot be given with --tls-min-version=TLS1.3: only those of TLS 1.2 can be chosen".into(),
        );
    }
    let chosen = suites::choose(&names).map_err(|why| format!("--cipher-suites: {why}"))?;
    if !chosen.left_out.is_empty() {
        warnings.push(format!("--cipher-suites: not offered here: {}", chosen.left_out.join(", ")));
    }
    if !chosen.has_tls12() {
        if newest == 2 {
            return Err(
                "--cipher-suites: none of them is offered here for TLS 1.2, and --tls-max-version is TLS1.2".into()
            );
        }
        warnings
            .push("--cipher-suites: none of them is offered here for TLS 1.2, so TLS 1.3 alone is spoken".to_owned());
    }
    Ok((Versions { tls12: chosen.has_tls12(), tls13: newest == 3 }, chosen.suites))
}

/// The minor number of a version of TLS 1.
fn version(matches: &ArgMatches, name: &str, standard: u8) -> Result<u8, String> {
    match text(matches, name) {
        None => Ok(standard),
        Some("TLS1.2") => Ok(2),
        Some("TLS1.3") => Ok(3),
        Some(other) => Err(format!("--{name}={other} is neither TLS1.2 nor TLS1.3")),
    }
}

fn clients(matches: &ArgMatches) -> Result<Option<ClientCertificates>, String> {
    let names_the_user = is_given(matches, "client-cert-auth");
    let crl_file = path(matches, "client-crl-file");
    let allowed = allowed(matches)?;
    let needs_ca = ["client-cert-auth", "client-crl-file", "client-cert-allowed-cn", "client-cert-allowed-hostname"];
    match (path(matches, "trusted-ca-file"), needs_ca.iter().find(|flag| is_given(matches, flag))) {
        (Some(trusted_ca_file), _) => {
            Ok(Some(ClientCertificates { trusted_ca_file, crl_file, allowed, names_the_user }))
        }
        (None, Some(flag)) => {
            Err(format!("--{flag} needs --trusted-ca-file, which says whose certificates are accepted"))
        }
        (None, None) => Ok(None),
    }
}

fn allowed(matches: &ArgMatches) -> Result<Allowed, String> {
    let (names, hosts) = ("client-cert-allowed-cn", "client-cert-allowed-hostname");
    match (is_given(matches, names), is_given(matches, hosts)) {
        (false, false) => Ok(Allowed::Anyone),
        (true, true) => Err(format!("--{names} and --{hosts} exclude each other")),
        (true, false) => match list(matches, names) {
            empty if empty.is_empty() => Err(format!("--{names} names nobody")),
            found => Ok(Allowed::Names(found.into_iter().map(str::to_owned).collect())),
        },
        (false, true) => {
            let parse = |host: &str| {
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                bare.to_owned()
                    .try_into()
                    .map_err(|_| format!("--{hosts}: {host:?} is neither a host name nor an IP address"))
            };
            let found = list(matches, hosts).into_iter().map(parse).collect::<Result<Vec<_>, String>>()?;
            if found.is_empty() { Err(format!("--{hosts} names nobody")) } else { Ok(Allowed::Hosts(found)) }
        }
    }
}

fn self_signed(matches: &ArgMatches, endpoints: &[Endpoint], advertised: &[String]) -> Result<SelfSigned, String> {
    let years = *matches.get_one::<u64>("self-signed-cert-validity").expect("the table gives this flag a default");
    let validity_days = match u32::try_from(years * 365) {
        Ok(days) if (1..=VALIDITY_YEARS_MAX).contains(&years) => days,
        _ => {
            return Err(format!(
                "--self-signed-cert-validity={years} is not a number of years from 1 to {VALIDITY_YEARS_MAX}"
            ));
        }
    };
    let mut hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let listened = endpoints.iter().filter_map(|endpoint| match endpoint.address {
        Address::Tcp(address) if !address.ip().is_unspecified() => Some(address.ip().to_string()),
        _ => None,
    });
    for host in listened.chain(advertised.iter().filter_map(|url| url::host(url))) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok(SelfSigned { hosts, validity_days })
}
