//! A listening socket file: takes over a stale one, removes its own.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A socket file that listens; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Listens at `path`. A socket file on which nobody listens is replaced; anything else there is an error.
    pub(super) async fn bind(path: &Path) -> io::Result<UnixSocket> {
        remove_stale(path).await?;
        let listener = UnixListener::bind(path)?;
        let inode = fs::symlink_metadata(path)?.ino();
        Ok(UnixSocket { listener, path: path.to_owned(), inode })
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Only our own file: another process may have replaced it in the meantime.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

async fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "the file exists and is not a socket"));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::from(ErrorKind::AddrInUse)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}
