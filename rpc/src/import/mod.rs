//! Imports: a new data directory from the files of another store.
//!
//! - `source` is the file as a whole, with its hash; `bolt` reads the pages, whatever they hold.
//! - `buckets` knows what etcd keeps beside the keys, `record` how it keeps a change.
//! - What was imported is what etcd itself would show after its next start on the same file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use storage::fs::RealFs;
use storage::{Environment, Import, ImportReport, Options, Revision, SystemClock, SystemEntropy};

mod bolt;
mod buckets;
mod record;
mod source;
#[cfg(test)]
mod tests;

use bolt::Bolt;
use buckets::Facts;
use source::Source;

/// Memory for changes on their way to base, of which half is used, and for base's pages. An import has the machine to itself for a while, and
/// large parts write fewer pages.
const RECENT_BYTES: usize = 192 << 20;
const RECENT_CHANGES: usize = 800_000;
const CACHE_BYTES: usize = 192 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The snapshot or database file.
    pub(crate) file: PathBuf,
    /// The data directory to make.
    pub(crate) data_dir: PathBuf,
    /// Do not compare the file with its hash.
    pub(crate) skip_hash_check: bool,
    /// Leave users and roles behind although they are in force.
    pub(crate) without_auth: bool,
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// What an operator should know.
    pub(crate) warnings: Vec<String>,
    revision: Revision,
    revisions: u64,
    compacted: Revision,
    leases: usize,
    imported: ImportReport,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { revision, revisions, compacted, leases, imported, .. } = self;
        let ImportReport { versions, keys, size_bytes, .. } = imported;
        write!(f, "imported revision={revision} compacted={compacted} revisions={revisions} keys={keys} ")?;
        write!(f, "versions={versions} leases={leases} bytes={size_bytes}")
    }
}

/// Imports an etcd; the error is one line.
pub(crate) fn etcd(request: &Request) -> Result<Report, String> {
    let environment =
        Environment { fs: Arc::new(RealFs), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) };
    let options = Options {
        recent_bytes: RECENT_BYTES,
        recent_changes: RECENT_CHANGES,
        cache_bytes: CACHE_BYTES,
        ..Options::for_directory(&RealFs, &request.data_dir)
    };
    etcd_into(request, &options, &environment)
}

fn etcd_into(request: &Request, options: &Options, environment: &Environment) -> Result<Report, String> {
    let source = source::open(environment.fs.as_ref(), &request.file, request.skip_hash_check)?;
    let of_file = |error: String| format!("{}: {error}", request.file.display());
    let bolt = Bolt::open(source.file.clone(), source.len).map_err(of_file)?;
    let (records, facts) = buckets::read(&bolt).map_err(of_file)?;
    refuse(&facts, request.without_auth).map_err(of_file)?;
    let import = Import::begin(&request.data_dir, facts.compacted, options, environment);
    let mut import = import.map_err(|error| error.to_string())?;
    let mut revision = facts.compacted.max(Revision::FIRST);
    let mut revisions = 0;
    let mut last = Revision(0);
    let mut entries = bolt.entries(&records);
    while let Some(entry) = entries.next().map_err(of_file)? {
        let change = record::read(&entry).map_err(of_file)?;
        revisions += u64::from(change.at.main != last);
        last = change.at.main;
        import.add(change).map_err(|error| error.to_string())?;
    }
    revision = revision.max(last);
    let imported = import.finish(revision, &facts.leases).map_err(|error| error.to_string())?;
    let warnings = warnings(&source, &facts, &imported, options);
    let (compacted, leases) = (facts.compacted, facts.leases.len());
    Ok(Report { warnings, revision, revisions, compacted, leases, imported })
}

/// What must not be imported as if nothing were.
fn refuse(facts: &Facts, without_auth: bool) -> Result<(), String> {
    if facts.corrupt {
        return Err("a CORRUPT alarm is raised: its members disagree, and this may be the wrong one".to_owned());
    }
    if facts.auth && !without_auth {
        let (users, roles) = (facts.users, facts.roles);
        return Err(format!(
            "authentication is enabled, with {users} users and {roles} roles, which cannot come along: everyone could do everything; \
             --without-auth leaves them behind"
        ));
    }
    Ok(())
}

fn warnings(source: &Source, facts: &Facts, imported: &ImportReport, options: &Options) -> Vec<String> {
    let mut warnings = Vec::new();
    if !source.snapshot {
        warnings.push(
            "the file ends without a SHA-256: taken for the database file of an etcd that was stopped in order"
                .to_owned(),
        );
    }
    if facts.users + facts.roles > 0 {
        warnings.push(format!("{} users and {} roles are left behind", facts.users, facts.roles));
    }
    if facts.no_space {
        warnings.push("the NOSPACE alarm is left behind".to_owned());
    }
    if imported.orphans > 0 {
        warnings
            .push(format!("{} keys name a lease that does not exist: they stay, without a lease", imported.orphans));
    }
    if let Some(quota) = options.quota_bytes.filter(|quota| imported.used_bytes >= *quota) {
        let used = imported.used_bytes;
        warnings.push(format!("{used} bytes of data, the quota is {quota}: start with a larger --quota-backend-bytes"));
    }
    warnings
}
