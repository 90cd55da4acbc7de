//! Reads a file of redb beside whoever has it open, or after a crash, without writing to it.
//!
//! redb lets readers share a file with one writer, if locks tell them that there is one: otherwise it takes a file that was not closed for one
//! that has to be repaired. Here nobody else needs to be told. The caller sees to it that no commit is made while it reads: either it is the
//! one who commits, or it holds the data directory, which no process has open. And every commit of ours leaves a file that needs no repair.

use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use redb::{BackendError, ConcurrencyMode, Database, ReadOnlyDatabase};

use super::Snapshot;
use super::backend::Backend;
use super::fault::At;
use super::open::file_of_redb;
use crate::error::Error;
use crate::fs::{File, FileSystem, OpenMode};
use crate::log::Held;
use crate::tables::Applied;

/// Base as the file holds it at this moment: nothing of it is in memory. Answers also what counts the bytes read. Errors: `Corrupt`, `Io`.
pub(super) fn beside(fs: &Arc<dyn FileSystem>, path: &Path, cache_bytes: usize) -> Result<(Snapshot, Backend), Error> {
    let (database, backend) = database(file_of_redb(fs, path, OpenMode::Read)?, path, cache_bytes)?;
    Ok((Snapshot::new(&database)?, backend))
}

/// The database in an open file, and what counts the bytes read.
pub(super) fn database(
    file: Arc<dyn File>,
    path: &Path,
    cache_bytes: usize,
) -> Result<(Arc<ReadOnlyDatabase>, Backend), Error> {
    let doing = format!("reading {}", path.display());
    let backend = Backend::new(file).map_err(|error| Error::io(&doing, &error))?;
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes).set_concurrency_mode(ConcurrencyMode::SingleWriter);
    let database = builder.open_read_only_with_backend(Beside(backend.clone())).at(&doing)?;
    Ok((Arc::new(database), backend))
}

/// What base in a file holds of the log, if nobody has it open. Errors: `Corrupt`, `Io`.
pub(crate) fn reached(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Held, Error> {
    let Applied { position, digest, .. } = beside(fs, path, 1 << 20)?.0.applied();
    Ok(Held { position, digest })
}

/// A file that is read, and on which every lock is to be had.
#[derive(Debug)]
struct Beside(Backend);

fn refused() -> io::Error {
    io::Error::other("the file is only read")
}

impl redb::StorageBackend for Beside {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(refused())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(refused())
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    /// redb asks for one byte to learn whether a writer keeps the file sound, which is so, and for a range of them to learn whether somebody
    /// follows other rules.
    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(start == end)
    }
}
