//! Where a server keeps its data: a file system of its own on a loop device, or a directory.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, process};

const MIB: u64 = 1024 * 1024;
/// Room for the journal and inodes of a file system.
const OVERHEAD_MIB: u64 = 256;

/// A directory for one server at a time.
pub(crate) struct Place {
    root: PathBuf,
    loops: bool,
    keep: bool,
    device: Option<String>,
}

impl Place {
    /// Under `root`; with loop devices, so that bytes can be counted on a disk that nobody else writes to, if this is root's process.
    /// The file behind them is left for the next one if `keep`.
    pub(crate) fn new(root: &Path, loops: bool, keep: bool) -> Result<Place, Failure> {
        fs::create_dir_all(root)?;
        let loops = loops && rustix::process::geteuid().is_root();
        Ok(Place { root: root.canonicalize()?, loops, keep, device: None })
    }

    /// How bytes are counted: `diskstats` of the own disk, or `proc`, which counts whole folios of the page cache.
    pub(crate) fn counts_by(&self) -> &'static str {
        if self.loops { "diskstats" } else { "proc" }
    }

    /// The directory, once it was made.
    pub(crate) fn path(&self) -> PathBuf {
        self.root.join("data")
    }

    /// An empty directory with room for `mib`.
    pub(crate) fn make_fresh(&mut self, mib: u64) -> Result<(), Failure> {
        self.clear();
        fs::create_dir_all(self.path())?;
        if !self.loops {
            return Ok(());
        }
        let image = self.root.join("image");
        fill_image(&image, (mib + OVERHEAD_MIB) * MIB)?;
        // Past the page cache of the system, or everything would be held in memory twice.
        let device = output("losetup", &["--find", "--show", "--direct-io=on", text(&image)?])?;
        self.device = Some(device.clone());
        // Nothing that the file system would do later by itself, and no holes in the image: a first write into one costs more than
        // a second.
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        output("mkfs.ext4", &["-q", "-F", "-T", "largefile", "-E", options, &device])?;
        output("mount", &[&device, text(&self.path())?])?;
        Ok(())
    }

    /// Bytes that reached the disk so far, after what was on its way has got there. Without a disk of its own: what the process sent.
    pub(crate) fn written(&self, pid: Option<u32>) -> Result<u64, Failure> {
        let Some(device) = &self.device else {
            return Ok(pid.map(process::Usage::of).unwrap_or_default().written);
        };
        output("sync", &["--file-system", text(&self.path())?])?;
        let name = device.trim_start_matches("/dev/").to_owned();
        Ok(process::sectors_written(&name) * 512)
    }

    /// Bytes that the files with these names take, anywhere in it.
    pub(crate) fn bytes_of(&self, names: &[&str]) -> Result<u64, Failure> {
        let (mut directories, mut bytes) = (vec![self.path()], 0);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let (entry, found) = entry.and_then(|entry| entry.metadata().map(|found| (entry, found)))?;
                if found.is_dir() {
                    directories.push(entry.path());
                } else if names.iter().any(|name| entry.file_name() == *name) {
                    bytes += found.blocks() * 512;
                }
            }
        }
        Ok(bytes)
    }

    fn clear(&mut self) {
        if let Some(device) = self.device.take() {
            for (tool, arguments) in
                [("umount", [text(&self.path()).unwrap_or_default()].as_slice()), ("losetup", &["-d", &device])]
            {
                if let Err(failure) = output(tool, arguments) {
                    eprintln!("load: {failure}");
                }
            }
        }
        if self.path().exists() && fs::remove_dir_all(self.path()).is_err() {
            eprintln!("load: {} cannot be removed", self.path().display());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
        if !self.keep {
            drop(fs::remove_file(self.root.join("image")));
        }
    }
}

/// A file of `bytes` that has all its blocks, written once.
fn fill_image(image: &Path, bytes: u64) -> Result<(), Failure> {
    if fs::metadata(image).is_ok_and(|found| found.len() >= bytes && found.blocks() * 512 >= bytes) {
        return Ok(());
    }
    let zeros = vec![0; 4 << 20];
    let mut file = File::create(image)?;
    let mut left = bytes;
    while left > 0 {
        let step = zeros.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(&zeros);
        file.write_all(step).map_err(|error| format!("{} bytes for a disk: {error}", bytes))?;
        left -= u64::try_from(step.len())?;
    }
    Ok(file.sync_all()?)
}

fn text(path: &Path) -> Result<&str, Failure> {
    Ok(path.to_str().ok_or("the path is not UTF-8")?)
}

/// What a program prints. Errors: it cannot be run, or says that it failed.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let ran = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if !ran.status.success() {
        return Err(
            format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&ran.stderr).trim()).into()
        );
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}
