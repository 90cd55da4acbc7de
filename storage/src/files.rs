//! The data directory: its lock, its identity, and what may be opened.
//!
//! ```text
//! lock        held while a keyspace is open; names the process that holds it
//! identity    who this is: format, cluster, member, log id
//! base.redb   the store of record
//! base.new    its successor while it is being written; means nothing to a start, which removes it
//! log/        the write-ahead log
//!
//! offset  size  identity
//!      0     8  magic "STERNPST"
//!      8     4  format, little-endian as every number here
//!     12     4  state: 1 while the directory is being created, 3 while it is being filled from elsewhere, 2 once it is complete
//!     16     8  cluster id
//!     24     8  member id
//!     32     8  log id
//!     40     4  CRC-32 of everything before it
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base;
use crate::env::Entropy;
use crate::error::Error;
use crate::fs::{FileSystem, HeldLock, OpenMode};
use crate::log::Log;
use crate::sort;
use crate::types::{LogId, MemberId};

/// The format of data directories that this version writes; it reads no other.
pub(crate) const FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"STERNPST";
const IDENTITY_LEN: usize = 44;
const CREATING: u32 = 1;
const COMPLETE: u32 = 2;
const FILLING: u32 = 3;

/// Who a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: u64,
    pub(crate) member: MemberId,
    pub(crate) log: LogId,
}

/// A data directory that this process holds.
#[derive(Debug)]
pub(crate) struct Directory {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    pub(crate) identity: Identity,
    /// It has yet to be filled and completed.
    pub(crate) fresh: bool,
    lock: Option<Box<dyn HeldLock>>,
}

impl Directory {
    /// Takes hold of a directory, starting it if it is missing or empty. Nothing is touched if it is held, foreign, damaged, too new, or was
    /// not filled to the end.
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, path: &Path, entropy: &dyn Entropy) -> Result<Directory, Error> {
        Directory::take(fs, path, entropy, CREATING)
    }

    /// Takes hold of a directory that is to be filled from elsewhere: missing, empty, or left by a filling that did not end, of which nothing
    /// stays. Until it is completed a start refuses it. Nothing is touched if it is held or holds anything else.
    pub(crate) fn fill(fs: &Arc<dyn FileSystem>, path: &Path, entropy: &dyn Entropy) -> Result<Directory, Error> {
        Directory::take(fs, path, entropy, FILLING)
    }

    fn take(fs: &Arc<dyn FileSystem>, path: &Path, entropy: &dyn Entropy, unfinished: u32) -> Result<Directory, Error> {
        let names = names(fs, path)?;
        let known = read_identity(fs, path, &names)?;
        if known.is_none() && !names.iter().all(|name| name == LOCK) {
            return Err(refuse(path, "it holds other files and no identity: not a data directory"));
        }
        check_state(path, known, unfinished)?;
        fs.create_dir(path).map_err(|error| Error::io(format!("create {}", path.display()), &error))?;
        let lock = take_lock(fs, path)?;
        // What was read before the lock was held may have changed since.
        let known = read_identity(fs, path, &names_again(fs, path)?)?;
        check_state(path, known, unfinished)?;
        let (identity, fresh) = match known {
            Some((identity, state)) => (identity, state != COMPLETE),
            None => (invent(entropy), true),
        };
        let directory = Directory { fs: fs.clone(), path: path.to_owned(), identity, fresh, lock: Some(lock) };
        if fresh {
            directory.write_identity(unfinished)?;
            directory.clear()?;
        }
        Ok(directory)
    }

    /// Takes hold of a complete directory to look at it; only the note in its lock changes. Errors: `Io`, also if it is held or not complete;
    /// `Corrupt`.
    pub(crate) fn look(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Directory, Error> {
        let complete = || match read_identity(fs, path, &names(fs, path)?)? {
            Some((identity, COMPLETE)) => Ok(identity),
            Some(_) => Err(refuse(path, "it was never completed")),
            None => Err(refuse(path, "it is not a data directory")),
        };
        complete()?;
        let lock = take_lock(fs, path)?;
        Ok(Directory { fs: fs.clone(), path: path.to_owned(), identity: complete()?, fresh: false, lock: Some(lock) })
    }

    /// Ties the directory to a log that is elsewhere; from then on it goes with no other. Errors: `LogMismatch` if it is tied to another.
    pub(crate) fn tie(&mut self, log: &dyn Log) -> Result<(), Error> {
        if self.fresh {
            self.identity.log = log.id();
        }
        if self.identity.log == log.id() {
            return Ok(());
        }
        let reason = format!("{} belongs to log {}, this is log {}", self.path.display(), self.identity.log, log.id());
        Err(Error::LogMismatch { position: log.first(), reason })
    }

    /// Says that base and log exist: from now on they must be there.
    pub(crate) fn complete(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.write_identity(COMPLETE)?;
        self.fresh = false;
        Ok(())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where base is.
    pub(crate) fn base(&self) -> PathBuf {
        self.path.join(BASE)
    }

    /// Where the log is.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Where the ballast is.
    pub(crate) fn ballast(&self) -> PathBuf {
        self.path.join(BALLAST)
    }

    /// Removes what a rewrite of base left behind, and makes the names durable that were found: the process before may have been killed between
    /// a rename and its sync, and the log is trimmed by what is under the new name.
    pub(crate) fn remove_leftovers(&self) -> Result<(), Error> {
        let path = base::unfinished(&self.base());
        let fail = |error| Error::io(format!("remove {}", path.display()), &error);
        if self.fs.metadata(&path).map_err(fail)?.is_some() {
            self.fs.remove(&path).map_err(fail)?;
        }
        self.sync()
    }

    /// Lets go of the directory.
    pub(crate) fn release(&mut self) {
        self.lock = None;
    }

    /// Removes what an unfinished creation or filling left behind.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let fail = |error| Error::io(format!("clear {}", self.path.display()), &error);
        let log = self.log();
        if self.fs.metadata(&log).map_err(fail)?.is_some() {
            for name in self.fs.list(&log).map_err(fail)? {
                self.fs.remove(&log.join(name)).map_err(fail)?;
            }
            self.fs.sync_dir(&log).map_err(fail)?;
        }
        if self.fs.metadata(&self.base()).map_err(fail)?.is_some() {
            self.fs.remove(&self.base()).map_err(fail)?;
        }
        for run in names_again(&self.fs, &self.path)?.iter().filter(|name| name.starts_with(sort::RUN_PREFIX)) {
            self.fs.remove(&self.path.join(run)).map_err(fail)?;
        }
        self.sync()
    }

    fn write_identity(&self, state: u32) -> Result<(), Error> {
        let (temporary, path) = (self.path.join(IDENTITY_NEW), self.path.join(IDENTITY));
        let write = || {
            if self.fs.metadata(&temporary)?.is_some() {
                self.fs.remove(&temporary)?;
            }
            let file = self.fs.open(&temporary, OpenMode::CreateNew)?;
            file.write_at(0, &encode(&self.identity, state))?;
            file.sync()?;
            self.fs.rename(&temporary, &path)?;
            self.fs.sync_dir(&self.path)
        };
        write().map_err(|error| Error::io(format!("write {}", path.display()), &error))
    }

    fn sync(&self) -> Result<(), Error> {
        self.fs.sync_dir(&self.path).map_err(|error| Error::io(format!("sync {}", self.path.display()), &error))
    }
}

const LOCK: &str = "lock";
const IDENTITY: &str = "identity";
const IDENTITY_NEW: &str = "identity.new";
const BASE: &str = "base.redb";
const LOG: &str = "log";
const BALLAST: &str = "ballast";

fn names(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Vec<String>, Error> {
    match fs.metadata(path) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(metadata)) if !metadata.is_dir => Err(refuse(path, "it is a file, not a directory")),
        Ok(Some(_)) => names_again(fs, path),
        Err(error) => Err(Error::io(format!("look at {}", path.display()), &error)),
    }
}

/// A start goes on with what a start began, a filling with what a filling began.
fn check_state(path: &Path, known: Option<(Identity, u32)>, unfinished: u32) -> Result<(), Error> {
    match known {
        Some((_, FILLING)) if unfinished != FILLING => {
            Err(refuse(path, "an import into it did not end, or a restore: do it again, or remove the directory"))
        }
        Some((_, COMPLETE | CREATING)) if unfinished == FILLING => Err(refuse(path, "it holds a keyspace already")),
        _ => Ok(()),
    }
}

fn names_again(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Vec<String>, Error> {
    let mut names = fs.list(path).map_err(|error| Error::io(format!("read {}", path.display()), &error))?;
    // A half-written identity means nothing, and what file systems put into an empty volume is nobody's data.
    names.retain(|name| name != IDENTITY_NEW && name != "lost+found");
    Ok(names)
}

fn take_lock(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Box<dyn HeldLock>, Error> {
    let note = format!("{} is held by process {}\n", path.display(), std::process::id());
    fs.lock(&path.join(LOCK), &note).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => refuse(path, &format!("another process holds it ({})", error.to_string().trim())),
        _ => Error::io(format!("lock {}", path.display()), &error),
    })
}

fn read_identity(fs: &Arc<dyn FileSystem>, path: &Path, names: &[String]) -> Result<Option<(Identity, u32)>, Error> {
    if !names.iter().any(|name| name == IDENTITY) {
        return Ok(None);
    }
    let file = path.join(IDENTITY);
    let fail = |error| Error::io(format!("read {}", file.display()), &error);
    let open = fs.open(&file, OpenMode::Read).map_err(fail)?;
    let len = usize::try_from(open.len().map_err(fail)?).unwrap_or(usize::MAX).min(IDENTITY_LEN);
    let mut bytes = vec![0; len];
    open.read_at(0, &mut bytes).map_err(fail)?;
    decode(&bytes, &file).map(Some)
}

fn encode(identity: &Identity, state: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(IDENTITY_LEN);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&state.to_le_bytes());
    bytes.extend_from_slice(&identity.cluster.to_le_bytes());
    bytes.extend_from_slice(&identity.member.0.to_le_bytes());
    bytes.extend_from_slice(&identity.log.0.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], file: &Path) -> Result<(Identity, u32), Error> {
    let place = || file.display().to_string();
    let number = |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_le_bytes);
    let long = |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_le_bytes);
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(Error::corrupt(place(), "it is not the identity of a data directory"));
    }
    match number(8) {
        Some(FORMAT) => {}
        Some(found) => {
            let reason = format!("format {found}; this version knows format {FORMAT}");
            return Err(Error::Io { doing: format!("open {}", place()), reason });
        }
        None => return Err(Error::corrupt(place(), format!("{} of {IDENTITY_LEN} bytes", bytes.len()))),
    }
    let sum = bytes.get(..IDENTITY_LEN - 4).map(crc32fast::hash);
    let fields = (number(12), long(16), long(24), long(32));
    match fields {
        (Some(state @ (CREATING | COMPLETE | FILLING)), Some(cluster), Some(member), Some(log))
            if sum == number(40) =>
        {
            Ok((Identity { cluster, member: MemberId(member), log: LogId(log) }, state))
        }
        _ => Err(Error::corrupt(place(), "its checksum does not fit")),
    }
}

fn invent(entropy: &dyn Entropy) -> Identity {
    let number = || loop {
        let number = entropy.next_u64();
        if number != 0 {
            return number;
        }
    };
    Identity { cluster: number(), member: MemberId(number()), log: LogId(number()) }
}

fn refuse(path: &Path, reason: &str) -> Error {
    Error::Io { doing: format!("open data directory {}", path.display()), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { cluster: 0x0102, member: MemberId(0x0304), log: LogId(0x0506) }
    }

    #[test]
    fn the_bytes_of_an_identity_are_fixed() {
        let bytes = encode(&identity(), COMPLETE);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let body = "535445524e505354010000000200000002010000000000000403000000000000060500000000000";
        assert!(text.starts_with(body), "{text}");
        assert_eq!(bytes.len(), IDENTITY_LEN);
        assert_eq!(decode(&bytes, Path::new("identity")), Ok((identity(), COMPLETE)));
    }

    #[test]
    fn no_shorter_prefix_and_no_flipped_bit_passes_for_an_identity() {
        let bytes = encode(&identity(), COMPLETE);
        for len in 0..bytes.len() {
            assert!(decode(bytes.get(..len).unwrap_or_default(), Path::new("identity")).is_err(), "{len} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            if let Some(byte) = flipped.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            assert!(decode(&flipped, Path::new("identity")).is_err(), "bit {bit}");
        }
    }
}
