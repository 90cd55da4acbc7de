//! URL lists: what to listen on, and what to tell clients.

use std::net::SocketAddr;

use crate::edge::{Address, Endpoint, Serves};

/// Reads a comma-separated list of URLs to listen on; a repeated one counts once.
pub(super) fn listen(list: &str, serves: Serves) -> Result<Vec<Endpoint>, String> {
    let mut endpoints = Vec::new();
    for url in parts(list) {
        let (address, tls) = listen_one(url).map_err(|why| format!("cannot listen on {url:?}: {why}"))?;
        let endpoint = Endpoint { address, tls, serves };
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    Ok(endpoints)
}

/// Refuses two URLs that stand for one address.
pub(super) fn check_apart(endpoints: &[Endpoint]) -> Result<(), String> {
    let chosen_by_the_system = |endpoint: &Endpoint| matches!(endpoint.address, Address::Tcp(at) if at.port() == 0);
    for (index, one) in endpoints.iter().enumerate().filter(|(_, one)| !chosen_by_the_system(one)) {
        if let Some(other) = endpoints.iter().skip(index + 1).find(|other| other.address == one.address) {
            let (here, there) = (one.serves, other.serves);
            return Err(format!("one address cannot be listened on twice: {one} ({here}) and {other} ({there})"));
        }
    }
    Ok(())
}

/// The host of a URL that is only shown, without the brackets of an IPv6 address.
pub(super) fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(literal) => literal.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (scheme.starts_with("http") && !host.is_empty()).then(|| host.to_owned())
}

/// Reads a comma-separated list of URLs that are only shown.
pub(super) fn advertised(list: &str) -> Result<Vec<String>, String> {
    parts(list)
        .map(|url| advertised_one(url).ok_or_else(|| format!("{url:?} is not a URL such as http://10.0.0.1:2379")))
        .collect()
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn advertised_one(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    (matches!(scheme, "http" | "https" | "unix" | "unixs") && !rest.is_empty()).then(|| url.to_owned())
}

/// An address, and whether connections to it begin with a TLS handshake.
fn listen_one(url: &str) -> Result<(Address, bool), String> {
    let (scheme, rest) = url.split_once("://").ok_or("a URL such as http://127.0.0.1:2379 is needed")?;
    let tls = matches!(scheme, "https" | "unixs");
    match scheme {
        "http" | "https" => Ok((tcp(rest).map(Address::Tcp)?, tls)),
        "unix" | "unixs" if !rest.is_empty() => Ok((Address::Unix(rest.into()), tls)),
        "unix" | "unixs" => Err("the path is missing".to_owned()),
        _ => Err(format!("unknown scheme {scheme:?}")),
    }
}

/// Only literal addresses and `localhost`, so that what is bound does not depend on a name server.
fn tcp(authority: &str) -> Result<SocketAddr, String> {
    if authority.contains('/') {
        return Err("a path is not allowed".to_owned());
    }
    let literal = match authority.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => authority.to_owned(),
    };
    literal.parse().map_err(|_| "an IP address or localhost is needed, and a port".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, expected: &[&str]) {
        let shown: Vec<String> = listen(list, Serves::Grpc).expect(list).iter().map(Endpoint::to_string).collect();
        assert_eq!(shown, expected, "{list}");
    }

    #[test]
    fn tcp_and_unix_addresses_are_listened_on() {
        check("http://localhost:2379", &["http://127.0.0.1:2379"]);
        check("http://[::1]:2379,unix:///run/a.sock", &["http://[::1]:2379", "unix:///run/a.sock"]);
        check(" http://0.0.0.0:0 , unix://relative.sock:0", &["http://0.0.0.0:0", "unix://relative.sock:0"]);
        check("http://localhost:1,http://127.0.0.1:1", &["http://127.0.0.1:1"]);
        check("https://[::1]:1,unixs:///run/a.sock", &["https://[::1]:1", "unixs:///run/a.sock"]);
        check("", &[]);
    }

    #[test]
    fn what_cannot_be_listened_on_is_refused_with_the_url_and_the_reason() {
        for (list, why) in [
            ("https://127.0.0.1", "and a port"),
            ("unixs://", "the path is missing"),
            ("127.0.0.1:2379", "a URL such as"),
            ("ftp://127.0.0.1:2379", "unknown scheme"),
            ("http://127.0.0.1", "and a port"),
            ("http://127.0.0.1:99999", "and a port"),
            ("http://example.org:2379", "an IP address"),
            ("http://127.0.0.1:2379/", "a path is not allowed"),
            ("unix://", "the path is missing"),
        ] {
            let refusal = listen(list, Serves::Grpc).expect_err(list);
            assert!(refusal.contains(why), "{list}: {refusal}");
        }
    }

    #[test]
    fn one_address_is_listened_on_once() {
        let both = |one: &str, other: &str| {
            let mut endpoints = listen(one, Serves::Everything).expect(one);
            endpoints.extend(listen(other, Serves::Probes).expect(other));
            check_apart(&endpoints)
        };
        assert_eq!(both("http://127.0.0.1:1,unix://a", "http://127.0.0.1:2,unix://b"), Ok(()));
        assert_eq!(both("http://127.0.0.1:0", "http://127.0.0.1:0"), Ok(()));
        let refusal = both("http://127.0.0.1:1", "https://localhost:1").expect_err("one address");
        assert!(
            refusal.ends_with("twice: http://127.0.0.1:1 (everything) and https://127.0.0.1:1 (metrics)"),
            "{refusal}"
        );
        assert!(both("unix://a,unixs://a", "").is_err());
    }

    #[test]
    fn the_host_of_a_url_is_found() {
        let hosts = ["https://a.example:1", "http://[::1]:2", "https://10.0.0.1/", "unix://a", "https://"].map(host);
        let found: Vec<_> = hosts.iter().map(Option::as_deref).collect();
        assert_eq!(found, [Some("a.example"), Some("::1"), Some("10.0.0.1"), None, None]);
    }

    #[test]
    fn advertised_urls_keep_their_spelling() {
        assert_eq!(
            advertised("https://a.example:1,http://b:2"),
            Ok(vec!["https://a.example:1".to_owned(), "http://b:2".to_owned()])
        );
        assert!(advertised("a.example:1").is_err());
    }
}
