//! Creates and opens base, and looks for room.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex};

use redb::{Database, ReadableDatabase};

use super::backend::Backend;
use super::beside::{self, beside};
use super::fault::At;
use super::meta::Meta;
use super::overlay::Overlay;
use super::rows;
use super::usage::{PAGE_BYTES, Usage};
use super::{Base, Snapshot};
use crate::error::Error;
use crate::fs::{File, FileSystem, OpenMode};

/// What every redb file begins with.
const MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";

/// A new file with an empty database, not yet durable.
pub(super) fn create_file(
    fs: &Arc<dyn FileSystem>,
    path: &Path,
    cache_bytes: usize,
) -> Result<(Database, Backend), Error> {
    let name = path.display();
    let file = fs.open(path, OpenMode::CreateNew).map_err(|error| no_room(format!("creating {name}"), &error))?;
    hand_over(file, path, cache_bytes)
}

/// Makes the name of a file durable.
pub(super) fn sync_directory(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs.sync_dir(directory).map_err(|error| Error::io(format!("syncing {}", directory.display()), &error))
}

/// redb initialises an empty file when it is asked to open it. Lost data must not look like a fresh start, so what is
/// not redb's is refused before redb sees it.
pub(super) fn open(fs: &Arc<dyn FileSystem>, path: &Path, cache_bytes: usize) -> Result<Base, Error> {
    let file = file_of_redb(fs, path, OpenMode::ReadWrite)?;
    check_before_writing(Arc::clone(&file), path)?;
    let (database, backend) = hand_over(file, path, cache_bytes)?;
    base(fs, path, database, backend, cache_bytes)
}

/// Base as the file holds it, without writing anything. A file that redb would have to repair first is repaired in memory.
pub(super) fn read_only(fs: &Arc<dyn FileSystem>, path: &Path, cache_bytes: usize) -> Result<Snapshot, Error> {
    match beside(fs, path, cache_bytes) {
        Ok((snapshot, _)) => Ok(snapshot),
        Err(_) => Snapshot::new(&repaired(fs, path, cache_bytes)?),
    }
}

/// The same of a base that may say nothing true about itself.
pub(super) fn read_tables(fs: &Arc<dyn FileSystem>, path: &Path, cache_bytes: usize) -> Result<Snapshot, Error> {
    let file = file_of_redb(fs, path, OpenMode::Read)?;
    match beside::database(file, path, cache_bytes).and_then(|(database, _)| Snapshot::of_tables(&database)) {
        Ok(snapshot) => Ok(snapshot),
        Err(_) => Snapshot::of_tables(&repaired(fs, path, cache_bytes)?),
    }
}

/// The file as redb would repair it, with everything that it writes kept in memory.
fn repaired(fs: &Arc<dyn FileSystem>, path: &Path, cache_bytes: usize) -> Result<Arc<Database>, Error> {
    let file = file_of_redb(fs, path, OpenMode::Read)?;
    let overlay = Overlay::new(file).map_err(|error| Error::io(format!("reading {}", path.display()), &error))?;
    let (database, _) = hand_over(Arc::new(overlay), path, cache_bytes)?;
    let database = Arc::new(database);
    // Never dropped: redb would make a last commit, over pages that may be damaged.
    std::mem::forget(Arc::clone(&database));
    Ok(database)
}

pub(super) fn file_of_redb(fs: &Arc<dyn FileSystem>, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, Error> {
    let place = path.display().to_string();
    let file = fs.open(path, mode).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corrupt(&place, "the file is missing"),
        _ => Error::io(format!("opening {place}"), &error),
    })?;
    let reading = |error| Error::io(format!("reading {place}"), &error);
    let len = file.len().map_err(reading)?;
    if len < PAGE_BYTES {
        return Err(Error::corrupt(&place, format!("the file has {len} bytes")));
    }
    let mut magic = [0; MAGIC.len()];
    file.read_at(0, &mut magic).map_err(reading)?;
    if magic != MAGIC {
        return Err(Error::corrupt(&place, "not a file of redb"));
    }
    Ok(file)
}

/// redb marks the file when it opens it for writing, and a newer format must not be touched, so the file is looked at
/// first. Quick repair makes that work after a crash too; where it does not, opening for writing says why.
fn check_before_writing(file: Arc<dyn File>, path: &Path) -> Result<(), Error> {
    let backend = Backend::new(file).map_err(|error| Error::io(format!("reading {}", path.display()), &error))?;
    let Ok(database) = Database::builder().set_cache_size(1 << 20).open_read_only_with_backend(backend) else {
        return Ok(());
    };
    let txn = database.begin_read().at("begin")?;
    Meta::read(&txn.open_table(rows::META).at("meta")?).map(drop)
}

fn hand_over(file: Arc<dyn File>, path: &Path, cache_bytes: usize) -> Result<(Database, Backend), Error> {
    let doing = format!("opening {}", path.display());
    let backend = Backend::new(file).map_err(|error| Error::io(&doing, &error))?;
    let database = Database::builder().set_cache_size(cache_bytes).create_with_backend(backend.clone()).at(&doing)?;
    Ok((database, backend))
}

pub(super) fn base(
    fs: &Arc<dyn FileSystem>,
    path: &Path,
    database: Database,
    backend: Backend,
    cache_bytes: usize,
) -> Result<Base, Error> {
    let database = Arc::new(database);
    let opened = Snapshot::new(&database);
    if opened.is_err() {
        // Nothing of a base that is refused is touched, not even by the commit that redb makes when it is dropped.
        backend.halt();
    }
    let meta = Mutex::new(opened?.meta);
    let (fs, file) = (Arc::clone(fs), path.to_owned());
    let (usage, scrub) = (Mutex::new(Usage::default()), Mutex::default());
    let base = Base { database, backend, commits: Mutex::new(()), meta, scrub, usage, fs, file, cache_bytes };
    base.guess_usage();
    Ok(base)
}

/// Makes sure that the volume has so much left. redb takes a file's length for its own, so blocks cannot be obtained beyond it; they follow
/// as redb writes, a step ahead.
pub(super) fn reserve(fs: &Arc<dyn FileSystem>, path: &Path, worst_bytes: u64) -> Result<(), Error> {
    let doing = || format!("looking for room for {}", path.display());
    let free = fs.volume(path).map_err(|error| Error::io(doing(), &error))?.free;
    if free < worst_bytes { Err(Error::NoSpace) } else { Ok(()) }
}

fn no_room(doing: String, error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace,
        _ => Error::io(doing, error),
    }
}
