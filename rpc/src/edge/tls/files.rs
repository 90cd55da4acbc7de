//! The files that flags name: read whole, and read right or refused with the flag, the path and the reason.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use webpki::{CertRevocationList, OwnedCertRevocationList};

/// A larger file is not what it is taken for.
const BYTES_MAX: u64 = 16 << 20;

/// One file as a flag names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    /// The flag, without dashes.
    pub(crate) flag: &'a str,
    /// The file.
    pub(crate) path: &'a Path,
}

/// What changes whenever a file does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Result<[i64; 5], io::ErrorKind>);

/// The stamp of a file, which need not be there.
pub(super) fn stamp(path: &Path) -> Stamp {
    // The time of the last change of the inode cannot be set: a copy that keeps the old times is noticed.
    Stamp(fs::metadata(path).map_err(|error| error.kind()).map(|found| {
        let inode = found.ino().cast_signed();
        [inode, found.size().cast_signed(), found.mtime(), found.ctime(), found.ctime_nsec()]
    }))
}

impl Named<'_> {
    /// The refusal of this file.
    pub(crate) fn refuse(&self, why: impl std::fmt::Display) -> String {
        format!("--{}={}: {why}", self.flag, self.path.display())
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let read = || {
            let mut bytes = Vec::new();
            File::open(self.path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error: io::Error| self.refuse(error))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(self.refuse(format_args!("above {BYTES_MAX} bytes")));
        }
        Ok(bytes)
    }

    /// Certificates in PEM; one at least.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let bytes = self.read()?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let found = found.map_err(|error| self.refuse(not_pem(&error)))?;
        if found.is_empty() { Err(self.refuse("no certificate in PEM is in it")) } else { Ok(found) }
    }

    /// A private key in PEM that is not encrypted.
    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let bytes = self.read()?;
        let locked = bytes.windows(9).any(|window| window == b"ENCRYPTED");
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
            Error::NoItemsFound if locked => {
                self.refuse("the private key is encrypted, and there is no way to tell its password")
            }
            Error::NoItemsFound => self.refuse("no private key in PEM is in it"),
            error => self.refuse(not_pem(&error)),
        })
    }

    /// Lists of revoked certificates: one in DER, as etcd takes it, or any number in PEM.
    pub(super) fn revocation_lists(&self) -> Result<Vec<CertRevocationList<'static>>, String> {
        let bytes = self.read()?;
        let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
        let mut found = found.map_err(|error| self.refuse(not_pem(&error)))?;
        if found.is_empty() {
            found.push(bytes.into());
        }
        let parse = |list: CertificateRevocationListDer<'_>| OwnedCertRevocationList::from_der(&list).map(Into::into);
        let lists: Result<Vec<_>, _> = found.into_iter().map(parse).collect();
        lists.map_err(|error| self.refuse(format_args!("not a list of revoked certificates in DER or PEM: {error:?}")))
    }
}

fn not_pem(error: &Error) -> String {
    format!("it is damaged: {error}").replace('\n', " ")
}
