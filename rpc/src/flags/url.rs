//! URL lists: what to listen on, and what to tell clients.

use std::net::SocketAddr;

use crate::edge::Address;

/// Reads a comma-separated list of addresses to listen on; a repeated one counts once.
pub(super) fn listen(list: &str) -> Result<Vec<Address>, String> {
    let mut addresses = Vec::new();
    for url in parts(list) {
        let address = listen_one(url).map_err(|why| format!("cannot listen on {url:?}: {why}"))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("no address to listen on".to_owned()) } else { Ok(addresses) }
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

fn listen_one(url: &str) -> Result<Address, String> {
    let (scheme, rest) = url.split_once("://").ok_or("a URL such as http://127.0.0.1:2379 is needed")?;
    match scheme {
        "http" => tcp(rest).map(Address::Tcp),
        "unix" if !rest.is_empty() => Ok(Address::Unix(rest.into())),
        "unix" => Err("the path is missing".to_owned()),
        "https" | "unixs" => Err(format!("{scheme} is not supported yet")),
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
        let shown: Vec<String> = listen(list).expect(list).iter().map(Address::to_string).collect();
        assert_eq!(shown, expected, "{list}");
    }

    #[test]
    fn tcp_and_unix_addresses_are_listened_on() {
        check("http://localhost:2379", &["http://127.0.0.1:2379"]);
        check("http://[::1]:2379,unix:///run/a.sock", &["http://[::1]:2379", "unix:///run/a.sock"]);
        check(" http://0.0.0.0:0 , unix://relative.sock:0", &["http://0.0.0.0:0", "unix://relative.sock:0"]);
        check("http://localhost:1,http://127.0.0.1:1", &["http://127.0.0.1:1"]);
    }

    #[test]
    fn what_cannot_be_listened_on_is_refused_with_the_url_and_the_reason() {
        for (list, why) in [
            ("", "no address"),
            ("https://127.0.0.1:2379", "https is not supported yet"),
            ("unixs:///run/a.sock", "unixs is not supported yet"),
            ("127.0.0.1:2379", "a URL such as"),
            ("ftp://127.0.0.1:2379", "unknown scheme"),
            ("http://127.0.0.1", "and a port"),
            ("http://127.0.0.1:99999", "and a port"),
            ("http://example.org:2379", "an IP address"),
            ("http://127.0.0.1:2379/", "a path is not allowed"),
            ("unix://", "the path is missing"),
        ] {
            let refusal = listen(list).expect_err(list);
            assert!(refusal.contains(why), "{list}: {refusal}");
        }
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
