//! What is asked for: files, whom to let in, versions and cipher suites.

use std::path::PathBuf;

use rustls::SupportedCipherSuite;
use rustls::pki_types::ServerName;

/// What the TLS flags ask for.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    /// The server's certificate, and what links it to an authority.
    pub(crate) cert_file: PathBuf,
    /// Its private key.
    pub(crate) key_file: PathBuf,
    /// If set, both files are made when they are missing.
    pub(crate) self_signed: Option<SelfSigned>,
    /// Which clients are let in; none: no certificate is asked for.
    pub(crate) clients: Option<ClientCertificates>,
    /// What is spoken.
    pub(crate) versions: Versions,
    /// What may encrypt a connection.
    pub(crate) suites: Vec<SupportedCipherSuite>,
}

/// A certificate of our own making.
#[derive(Clone, Debug)]
pub(crate) struct SelfSigned {
    /// The names and addresses that it is for.
    pub(crate) hosts: Vec<String>,
    /// How long it is good.
    pub(crate) validity_days: u32,
}

/// Which clients are let in: those with a certificate that passes all of this.
#[derive(Clone, Debug)]
pub(crate) struct ClientCertificates {
    /// Certificates of the authorities that may have issued it.
    pub(crate) trusted_ca_file: PathBuf,
    /// A list of those that were revoked.
    pub(crate) crl_file: Option<PathBuf>,
    /// Whom it must be for.
    pub(crate) allowed: Allowed,
    /// True if its common name says who the client is.
    pub(crate) names_the_user: bool,
}

/// Whom a client's certificate must be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Anyone.
    Anyone,
    /// One of these common names.
    Names(Vec<String>),
    /// One of these hosts, among its subject alternative names.
    Hosts(Vec<ServerName<'static>>),
}

/// The versions of TLS that are spoken; one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    /// 1.2.
    pub(crate) tls12: bool,
    /// 1.3.
    pub(crate) tls13: bool,
}
