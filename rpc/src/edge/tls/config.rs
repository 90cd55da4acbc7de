//! Settings and the files that they name become what rustls needs for a handshake.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::files::Named;
use super::settings::{ClientCertificates, TlsSettings};
use super::verifier::Verifier;

/// What a client may ask to speak after the handshake.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

impl TlsSettings {
    /// Every file that is read.
    pub(super) fn files(&self) -> Vec<&Path> {
        let clients = self.clients.as_ref();
        let clients =
            clients.into_iter().flat_map(|clients| [Some(&clients.trusted_ca_file), clients.crl_file.as_ref()]);
        [Some(&self.cert_file), Some(&self.key_file)].into_iter().chain(clients).flatten().map(|path| &**path).collect()
    }

    /// Reads what must be there before the start; the error is one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.self_signed.is_none() {
            return self.build().map(drop);
        }
        let provider = Arc::new(self.provider());
        self.clients.as_ref().map_or(Ok(()), |clients| verifier(clients, &provider).map(drop))
    }

    /// Reads every file; the error is one line.
    pub(super) fn build(&self) -> Result<ServerConfig, String> {
        let provider = Arc::new(self.provider());
        let versions: Vec<&SupportedProtocolVersion> = [(self.versions.tls12, &TLS12), (self.versions.tls13, &TLS13)]
            .into_iter()
            .filter(|v| v.0)
            .map(|v| v.1)
            .collect();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("--cipher-suites and the versions of TLS do not fit together: {error}"))?;
        let builder = match &self.clients {
            Some(clients) => builder.with_client_cert_verifier(verifier(clients, &provider)?),
            None => builder.with_no_client_auth(),
        };
        let own = SingleCertAndKey::from(self.certified_key(&provider)?);
        let mut config = builder.with_cert_resolver(Arc::new(own));
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        // A session that is resumed would pass a certificate that was revoked meanwhile; connections are few and long.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    fn provider(&self) -> CryptoProvider {
        CryptoProvider { cipher_suites: self.suites.clone(), ..ring::default_provider() }
    }

    fn certified_key(&self, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
        let cert = Named { flag: "cert-file", path: &self.cert_file };
        let key = Named { flag: "key-file", path: &self.key_file };
        CertifiedKey::from_der(cert.certificates()?, key.private_key()?, provider).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => key
                .refuse(format_args!("the private key is not that of the certificate in {}", self.cert_file.display())),
            Error::InvalidCertificate(error) => cert.refuse(format_args!("the certificate cannot be read: {error}")),
            _ => key.refuse(
                "the private key is damaged or of a kind that is not supported: RSA, ECDSA on P-256 or P-384, Ed25519",
            ),
        })
    }
}

fn verifier(
    clients: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let ca = Named { flag: "trusted-ca-file", path: &clients.trusted_ca_file };
    let roots = Arc::new(roots(&ca, ca.certificates()?)?);
    let chain = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let chain = chain.build().map_err(|error| ca.refuse(error))?;
    let revoked = match &clients.crl_file {
        Some(path) => Named { flag: "client-crl-file", path }.revocation_lists()?,
        None => Vec::new(),
    };
    Ok(Arc::new(Verifier { chain, revoked, allowed: clients.allowed.clone() }))
}

fn roots(ca: &Named<'_>, certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| ca.refuse(format_args!("a certificate cannot be read: {error}")))?;
    }
    Ok(roots)
}
