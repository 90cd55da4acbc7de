//! TLS: certificates from files, loaded again when they change, and one way to verify clients for every endpoint.

mod accept;
mod config;
mod files;
mod name;
mod refusals;
mod reload;
mod self_signed;
mod settings;
pub(crate) mod suites;
#[cfg(test)]
pub(super) mod tests;
mod verifier;

pub(crate) use files::Named;
pub(crate) use name::ClientName;
pub(super) use refusals::tell;
pub(crate) use reload::Tls;
pub(crate) use settings::{Allowed, ClientCertificates, SelfSigned, TlsSettings, Versions};
