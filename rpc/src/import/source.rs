//! The file to import: a snapshot, which ends with its SHA-256, or a database file, which does not.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use storage::fs::{File, FileSystem, OpenMode};

const HASH_LEN: usize = 32;
/// Database files are whole pages, and pages are whole sectors.
const SECTOR: u64 = 512;
/// Read at once while the hash is computed, in bytes.
const STEP: usize = 1 << 20;

/// A file, checked as a whole as far as it can be.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: Arc<dyn File>,
    /// The bytes that are the database.
    pub(super) len: u64,
    /// It ends with a hash.
    pub(super) snapshot: bool,
}

/// Opens the file and compares it with its hash. Errors: one line that begins with the path.
pub(super) fn open(fs: &dyn FileSystem, path: &Path, skip_hash_check: bool) -> Result<Source, String> {
    let fail = |error: String| format!("{}: {error}", path.display());
    let file = fs.open(path, OpenMode::Read).map_err(|error| fail(error.to_string()))?;
    let len = file.len().map_err(|error| fail(error.to_string()))?;
    let hash_len = HASH_LEN as u64;
    match len % SECTOR {
        0 if len > 0 => Ok(Source { file, len, snapshot: false }),
        rest if rest == hash_len && len > SECTOR => {
            let len = len - hash_len;
            if !skip_hash_check {
                check_hash(file.as_ref(), len).map_err(fail)?;
            }
            Ok(Source { file, len, snapshot: true })
        }
        _ => Err(fail(format!("{len} bytes: neither a snapshot nor a database file of etcd, or it is cut short"))),
    }
}

fn check_hash(file: &dyn File, len: u64) -> Result<(), String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while at < len {
        let step = usize::try_from(len - at).unwrap_or(STEP).min(STEP);
        let part = buffer.get_mut(..step).unwrap_or_default();
        file.read_at(at, part).map_err(|error| error.to_string())?;
        hasher.update(&*part);
        at += step as u64;
    }
    let mut stored = [0; HASH_LEN];
    file.read_at(len, &mut stored).map_err(|error| error.to_string())?;
    if hasher.finalize().as_slice() != stored {
        return Err("it does not match the SHA-256 at its end (see --skip-hash-check)".to_owned());
    }
    Ok(())
}
