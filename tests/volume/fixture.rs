//! A volume of its own for a server: a tmpfs, or whatever kind is named.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;

use storage::fs::{FileSystem, RealFs};
use tempfile::TempDir;

use crate::model::rng::setting;
use crate::support::server::Server;

/// Names a directory on a volume to use instead.
const NAMED: &str = "STERNPOST_TEST_VOLUME";

/// A mounted volume; dropping it unmounts it.
pub struct Volume {
    path: PathBuf,
    /// What it is mounted on, if it is ours.
    mount: Option<TempDir>,
}

impl Volume {
    /// True if this process may mount one, or one is named.
    pub fn can_be_made() -> bool {
        rustix::process::geteuid().is_root() || std::env::var_os(NAMED).is_some()
    }

    pub fn new() -> Volume {
        if let Ok(named) = std::env::var(NAMED) {
            let volume = Volume { path: PathBuf::from(named), mount: None };
            volume.empty();
            return volume;
        }
        let mib = setting("STERNPOST_TEST_VOLUME_MIB", 64);
        let mount = TempDir::new().expect("a directory");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "sternpost-test"]).arg(mount.path());
        let status = command.status().expect("mount is there");
        assert!(status.success(), "a tmpfs of {mib} MiB cannot be mounted");
        Volume { path: mount.path().to_owned(), mount: Some(mount) }
    }

    fn empty(&self) {
        for entry in std::fs::read_dir(&self.path).expect("the volume is there") {
            let entry = entry.expect("a name");
            if entry.file_name() == "data" {
                std::fs::remove_dir_all(entry.path()).expect("an old data directory goes");
            } else if entry.file_name() == "others" {
                std::fs::remove_file(entry.path()).expect("an old file goes");
            }
        }
    }

    /// A server with its data on the volume; dropped before the volume is.
    pub async fn server(&self, extra: &[&str]) -> Server {
        let mut server = Server::prepare(extra).on(self.path.join("data"));
        server.start_again().await;
        server
    }

    pub fn free(&self) -> u64 {
        RealFs.volume(&self.path).expect("the volume is there").free
    }

    pub fn total(&self) -> u64 {
        RealFs.volume(&self.path).expect("the volume is there").total
    }

    /// Somebody else takes all that is free, for good, but not what a file system keeps for root.
    pub fn fill(&self) {
        let path = self.path.join("others");
        let mut others: File = OpenOptions::new().append(true).create(true).open(path).expect("a file");
        for piece in [256 << 10, 4096] {
            let filler = vec![1; piece];
            while self.free() >= piece as u64 {
                match others.write_all(&filler).and_then(|()| others.sync_data()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(mount) = &self.mount {
            // Lazily: the server may be on its way out.
            let unmounted = Command::new("umount").arg("-l").arg(mount.path()).status();
            assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
    }
}
