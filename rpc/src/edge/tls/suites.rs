//! Cipher suites under the names that etcd gives them.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::ALL_CIPHER_SUITES;

/// What etcd knows and this server does not offer: no forward secrecy, or no authenticated encryption.
const NOT_OFFERED: &[&str] = &[
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// What a list of names comes to.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// What is offered. The suites of TLS 1.3 cannot be chosen from: all of them are in it.
    pub(crate) suites: Vec<SupportedCipherSuite>,
    /// Names of the list that stand for nothing offered.
    pub(crate) left_out: Vec<String>,
}

impl Chosen {
    /// True if TLS 1.2 can be spoken with it.
    pub(crate) fn has_tls12(&self) -> bool {
        self.suites.iter().any(|suite| suite.tls13().is_none())
    }
}

/// Everything there is.
pub(crate) fn all() -> Chosen {
    Chosen { suites: ALL_CIPHER_SUITES.to_vec(), left_out: Vec::new() }
}

/// The suites with these names; the error names the first that nobody knows.
pub(crate) fn choose(names: &[&str]) -> Result<Chosen, String> {
    let mut chosen = Chosen { suites: Vec::new(), left_out: Vec::new() };
    chosen.suites.extend(ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_some()));
    for name in names {
        match ALL_CIPHER_SUITES.iter().find(|suite| goes_by(suite, name)) {
            Some(suite) if chosen.suites.contains(suite) => {}
            Some(suite) => chosen.suites.push(*suite),
            None if NOT_OFFERED.contains(name) => chosen.left_out.push((*name).to_owned()),
            None => return Err(format!("there is no cipher suite {name:?}")),
        }
    }
    Ok(chosen)
}

fn goes_by(suite: &SupportedCipherSuite, name: &str) -> bool {
    let own = suite.suite().as_str().unwrap_or_default();
    // etcd has no number in the names of TLS 1.3's, and knows two by a shorter name as well.
    own.replacen("TLS13_", "TLS_", 1) == name
        || own.strip_suffix("_SHA256").is_some_and(|short| short == name && short.ends_with("CHACHA20_POLY1305"))
}
