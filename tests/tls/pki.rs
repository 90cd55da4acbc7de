//! Certificates for tests, made on the spot: an authority, whom it vouches for, and whom it takes that back from.

#![allow(dead_code, reason = "shared by test binaries that each use a part")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ALL_VERSIONS, ClientConfig, RootCertStore, SupportedProtocolVersion as Version};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Who issues certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, in PEM.
    pub(crate) pem: String,
}

/// A certificate and its private key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    /// A new one.
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.extended_key_usages = Vec::new();
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a server on this machine.
    pub(crate) fn server(&self) -> Pair {
        self.issue("server", &["localhost", "127.0.0.1"], |_| {})
    }

    /// A certificate for a client with this common name.
    pub(crate) fn client(&self, name: &str) -> Pair {
        self.issue(name, &[], |_| {})
    }

    /// A certificate that vouches for itself alone, altered in some way.
    pub(crate) fn self_signed(alter: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = params("", &["localhost"]);
        alter(&mut params);
        let key = KeyPair::generate().expect("a key");
        Pair { cert: params.self_signed(&key).expect("a certificate").pem(), key: key.serialize_pem() }
    }

    /// A certificate with a common name, for hosts, and altered in some way.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str], alter: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = params(name, hosts);
        alter(&mut params);
        let key = KeyPair::generate().expect("a key");
        Pair { cert: params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key: key.serialize_pem() }
    }

    /// A client's certificate with a serial number.
    pub(crate) fn numbered(&self, name: &str, serial: u64) -> Pair {
        self.issue(name, &[], |params| params.serial_number = Some(serial.into()))
    }

    /// A list in PEM that revokes these serial numbers.
    pub(crate) fn revoke(&self, serials: &[u64]) -> String {
        let revoke = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: SystemTime::now().into(),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: SystemTime::now().into(),
            next_update: (SystemTime::now() + DAY).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoke).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").pem().expect("PEM")
    }

    /// What a client needs that trusts this authority, and has a certificate or none.
    pub(crate) fn client_config(&self, own: Option<&Pair>) -> ClientConfig {
        self.client_config_of(own, ALL_VERSIONS)
    }

    /// The same for a client that speaks certain versions.
    pub(crate) fn client_config_of(&self, own: Option<&Pair>, versions: &[&'static Version]) -> ClientConfig {
        trusting(&self.pem, own, versions)
    }
}

impl Pair {
    /// The certificate in DER.
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        der(&self.cert)
    }
}

/// The first certificate of a text in PEM.
pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate in PEM")
}

/// What a client needs that trusts this certificate, in PEM.
pub(crate) fn trusting(pem: &str, own: Option<&Pair>, versions: &[&'static Version]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(der(pem)).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key in PEM");
            builder.with_client_auth_cert(vec![pair.der()], key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// The parameters of a certificate that is good for a day, for servers and for clients.
fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("names and addresses");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "a test");
    if !name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Makes a certificate one that was good until yesterday.
pub(crate) fn expired(params: &mut CertificateParams) {
    params.not_before = (SystemTime::now() - 2 * DAY).into();
    params.not_after = (SystemTime::now() - DAY).into();
}
