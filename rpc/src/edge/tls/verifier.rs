//! Decides which clients are let in.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};
use webpki::{CertRevocationList, EndEntityCert};

use super::name::common_name;
use super::settings::Allowed;

/// Asks of a client's certificate that an authority issued it, that no list names it, that it is for somebody allowed.
#[derive(Debug)]
pub(super) struct Verifier {
    /// Chain, signatures, times and purpose.
    pub(super) chain: Arc<dyn ClientCertVerifier>,
    /// Serial numbers in it are refused, whoever issued the certificate, as etcd does.
    pub(super) revoked: Vec<CertRevocationList<'static>>,
    pub(super) allowed: Allowed,
}

#[derive(Debug)]
struct NotAllowed(String);

impl std::fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAllowed {}

impl Verifier {
    fn check_revoked(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let parsed = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
        for list in &self.revoked {
            match list.find_serial(parsed.serial()) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(CertificateError::Revoked.into()),
                Err(_) => return Err(CertificateError::UnknownRevocationStatus.into()),
            }
        }
        Ok(())
    }

    fn check_allowed(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let refusal = match &self.allowed {
            Allowed::Anyone => return Ok(()),
            Allowed::Names(names) => {
                let found = common_name(certificate).unwrap_or_default();
                if names.contains(&found) {
                    return Ok(());
                }
                format!("the common name {found:?} is not among those allowed")
            }
            Allowed::Hosts(hosts) => {
                let parsed = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
                if hosts.iter().any(|host| parsed.verify_is_valid_for_subject_name(host).is_ok()) {
                    return Ok(());
                }
                "it is for none of the hosts allowed".to_owned()
            }
        };
        Err(CertificateError::Other(OtherError(Arc::new(NotAllowed(refusal)))).into())
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        self.check_revoked(end_entity)?;
        intermediates.iter().try_for_each(|certificate| self.check_revoked(certificate))?;
        self.check_allowed(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
