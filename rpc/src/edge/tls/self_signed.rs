//! A certificate of our own making, kept in two files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use tracing::info;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::files::Named;
use super::settings::SelfSigned;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes certificate and key unless both are there and the certificate is still good. The error is one line.
pub(super) fn prepare(cert_file: &Path, key_file: &Path, wanted: &SelfSigned) -> Result<(), String> {
    if cert_file.exists() && key_file.exists() && !has_expired(cert_file)? {
        return Ok(());
    }
    let (cert, key) = make(wanted).map_err(|error| format!("cannot make a certificate: {error}"))?;
    // The key comes first: a certificate that is there has one.
    for (path, text) in [(key_file, key), (cert_file, cert)] {
        write(path, &text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    info!(path = %cert_file.display(), validity_days = wanted.validity_days, "certificate made");
    Ok(())
}

fn has_expired(cert_file: &Path) -> Result<bool, String> {
    let certificates = Named { flag: "auto-tls", path: cert_file }.certificates()?;
    Ok(certificates
        .first()
        .is_some_and(|certificate| matches!(verify(certificate), Err(webpki::Error::CertExpired { .. }))))
}

/// What a client that trusts this certificate would find.
fn verify(certificate: &CertificateDer<'_>) -> Result<(), webpki::Error> {
    let parsed = EndEntityCert::try_from(certificate)?;
    let anchors = [anchor_from_trusted_cert(certificate)?];
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let usage = KeyUsage::server_auth();
    parsed.verify_for_usage(algorithms, &anchors, &[], UnixTime::now(), usage, None, None).map(drop)
}

fn make(wanted: &SelfSigned) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(wanted.hosts.clone())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "sternpost");
    let now = SystemTime::now();
    params.not_before = now.into();
    params.not_after = (now + DAY * wanted.validity_days).into();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// A file that is either as it was or complete, for our eyes only.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let part = path.with_extension("part");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, path)
}
