//! Certificates made on the spot, and what comes of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::DnType;
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use super::*;
use crate::edge::pki::{Authority, Pair, der, expired};

/// Settings that let any client in, with the files of a directory.
pub(in crate::edge) fn settings(dir: &Path) -> TlsSettings {
    TlsSettings {
        cert_file: dir.join("cert"),
        key_file: dir.join("key"),
        self_signed: None,
        clients: None,
        versions: Versions { tls12: true, tls13: true },
        suites: suites::all().suites,
    }
}

pub(in crate::edge) fn write(dir: &Path, pair: &Pair) {
    fs::write(dir.join("cert"), &pair.cert).expect("a file");
    fs::write(dir.join("key"), &pair.key).expect("a file");
}

#[test]
fn the_common_name_of_a_certificate_is_found() {
    let authority = Authority::new("authority");
    let name_of = |pair: Pair| name::common_name(&pair.der());
    assert_eq!(name_of(authority.client("kube-apiserver")).as_deref(), Some("kube-apiserver"));
    assert_eq!(name_of(authority.client("Łódź")).as_deref(), Some("Łódź"));
    assert_eq!(name_of(authority.client("")), None);
    let odd = authority.issue("first", &[], |params| params.distinguished_name.push(DnType::OrganizationName, "other"));
    assert_eq!(name_of(odd).as_deref(), Some("first"));
    assert_eq!(name::common_name(&CertificateDer::from_slice(b"no certificate")), None);
}

#[test]
fn files_are_read_again_only_when_they_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    write(dir.path(), &authority.server());
    let tls = Tls::load(settings(dir.path())).expect("a right pair");
    let first = tls.current();
    assert!(Arc::ptr_eq(&first, &tls.current()), "nothing changed");
    fs::write(dir.path().join("cert"), "damaged").expect("a file");
    assert!(Arc::ptr_eq(&first, &tls.current()), "what cannot be read changes nothing");
    fs::remove_file(dir.path().join("key")).expect("it is there");
    assert!(Arc::ptr_eq(&first, &tls.current()), "nor does what is missing");
    write(dir.path(), &authority.server());
    let second = tls.current();
    assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &tls.current()), "loaded once more, and once");
}

#[test]
fn a_certificate_of_our_own_is_kept_until_it_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let below = dir.path().join("a/b");
    let hosts = ["localhost", "::1", "etcd.example"].map(str::to_owned).to_vec();
    let own = TlsSettings { self_signed: Some(SelfSigned { hosts, validity_days: 365 }), ..settings(&below) };
    let read = || fs::read_to_string(below.join("cert")).expect("it was made");
    Tls::load(own.clone()).expect("a new one");
    let first = read();
    for host in ["localhost", "::1", "etcd.example"] {
        let name = ServerName::try_from(host).expect("a name");
        let certificate = der(&first);
        EndEntityCert::try_from(&certificate)
            .expect("a certificate")
            .verify_is_valid_for_subject_name(&name)
            .expect(host);
    }
    let mode = |name: &str| fs::metadata(below.join(name)).expect("it was made").permissions().mode() & 0o777;
    assert_eq!((mode("key"), mode("")), (0o600, 0o700));
    Tls::load(own.clone()).expect("the same one");
    assert_eq!(read(), first);
    fs::remove_file(below.join("key")).expect("it was made");
    Tls::load(own.clone()).expect("a new one");
    let second = read();
    assert_ne!(second, first);
    write(&below, &Authority::new("authority").issue("server", &["localhost"], |_| {}));
    let foreign = read();
    Tls::load(own.clone()).expect("whoever issued it");
    assert_eq!(read(), foreign);
    write(&below, &Authority::self_signed(expired));
    let old = read();
    Tls::load(own).expect("a new one");
    assert_ne!(read(), old);
    assert_eq!(fs::read_dir(&below).expect("a directory").count(), 2, "nothing else is left behind");
}

#[test]
fn cipher_suites_go_by_gos_names() {
    let names = |list: &[&str]| {
        let chosen = suites::choose(list).expect("known names");
        let twelve = chosen.suites.iter().filter(|suite| suite.tls13().is_none());
        (twelve.map(|suite| format!("{:?}", suite.suite())).collect::<Vec<_>>(), chosen.left_out)
    };
    let (ecdsa, short) = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305");
    let full = format!("{short}_SHA256");
    assert_eq!(names(&[ecdsa, short, &full, ecdsa]), (vec![ecdsa.to_owned(), full], vec![]));
    assert_eq!(names(&["TLS_AES_256_GCM_SHA384"]), (vec![], vec![]));
    let weak = "TLS_RSA_WITH_AES_128_GCM_SHA256";
    assert_eq!(names(&[weak]), (vec![], vec![weak.to_owned()]));
    for unknown in ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM", "TLS13_AES_256_GCM_SHA384", ""] {
        suites::choose(&[unknown]).expect_err(unknown);
    }
    assert_eq!(suites::all().suites.iter().filter(|suite| suite.tls13().is_some()).count(), 3);
}
