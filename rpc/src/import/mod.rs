//! Imports: a new data directory from the files of another store.

use std::fmt;
use std::path::PathBuf;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The snapshot or database file.
    pub(crate) file: PathBuf,
    /// The data directory to make.
    pub(crate) data_dir: PathBuf,
    /// Do not compare the file with its checksum.
    pub(crate) skip_hash_check: bool,
    /// Leave users and roles behind although they are in force.
    pub(crate) without_auth: bool,
}

/// What was imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// What an operator should know.
    pub(crate) warnings: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imported")
    }
}

/// Imports an etcd; the error is one line.
pub(crate) fn etcd(request: &Request) -> Result<Report, String> {
    Err(format!("{} cannot be imported yet", request.file.display()))
}
