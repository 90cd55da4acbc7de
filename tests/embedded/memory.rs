//! A file system in memory, of which an image can be taken at any moment, as a kill would leave it.

use std::collections::BTreeMap;
use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use storage::fs::{File, FileSystem, HeldLock, Metadata, OpenMode, Volume};

type Content = Arc<Mutex<Vec<u8>>>;

/// What there is: directories and files. One lock over all, so that an image is of one moment.
#[derive(Debug, Default)]
struct Tree {
    directories: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Content>,
}

/// The file system.
#[derive(Debug, Default)]
pub struct Memory {
    tree: Arc<Mutex<Tree>>,
}

impl Memory {
    /// A file system that holds what this one holds now, and knows nothing of locks.
    pub fn image(&self) -> Memory {
        let tree = lock(&self.tree);
        let copy = |content: &Content| Arc::new(Mutex::new(lock(content).clone()));
        let files = tree.files.iter().map(|(path, content)| (path.clone(), copy(content))).collect();
        Memory { tree: Arc::new(Mutex::new(Tree { directories: tree.directories.clone(), files })) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn missing(path: &Path) -> Error {
    Error::new(ErrorKind::NotFound, path.display().to_string())
}

#[derive(Debug)]
struct Held;

impl HeldLock for Held {}

impl FileSystem for Memory {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let all: Vec<PathBuf> = path.ancestors().map(Path::to_path_buf).collect();
        tree.directories.extend(all);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let tree = lock(&self.tree);
        if !tree.directories.iter().any(|directory| directory == path) {
            return Err(missing(path));
        }
        let all = tree.files.keys().chain(&tree.directories).filter(|entry| entry.parent() == Some(path));
        let mut names: Vec<String> =
            all.filter_map(|entry| Some(entry.file_name()?.to_string_lossy().into_owned())).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let tree = lock(&self.tree);
        if tree.directories.iter().any(|directory| directory == path) {
            return Ok(Some(Metadata { is_dir: true, len: 0, mode: 0o700 }));
        }
        Ok(tree.files.get(path).map(|content| Metadata { is_dir: false, len: lock(content).len() as u64, mode: 0o600 }))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut tree = lock(&self.tree);
        let content = match (tree.files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => {
                return Err(Error::new(ErrorKind::AlreadyExists, path.display().to_string()));
            }
            (Some(content), _) => content.clone(),
            (None, OpenMode::CreateNew) => tree.files.entry(path.to_path_buf()).or_default().clone(),
            (None, _) => return Err(missing(path)),
        };
        Ok(Arc::new(MemoryFile { tree: self.tree.clone(), content }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let content = tree.files.remove(from).ok_or_else(|| missing(from))?;
        tree.files.insert(to.to_path_buf(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.tree).files.remove(path).map(|_| ()).ok_or_else(|| missing(path))
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Box<dyn HeldLock>> {
        let content = Arc::new(Mutex::new(note.as_bytes().to_vec()));
        lock(&self.tree).files.insert(path.to_path_buf(), content);
        Ok(Box::new(Held))
    }

    fn volume(&self, _path: &Path) -> io::Result<Volume> {
        Ok(Volume { total: 1 << 40, free: 1 << 40 })
    }
}

#[derive(Debug)]
struct MemoryFile {
    tree: Arc<Mutex<Tree>>,
    content: Content,
}

impl MemoryFile {
    /// Changes the content while no image can be taken.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let _tree = lock(&self.tree);
        change(&mut lock(&self.content))
    }
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.content).len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let content = lock(&self.content);
        let start = offset as usize;
        let found = content.get(start..start + buffer.len()).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + data.len());
        self.change(|content| {
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(data);
        });
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|content| content.resize(len as usize, 0));
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = (offset + len) as usize;
        self.change(|content| content.resize(content.len().max(end), 0));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
