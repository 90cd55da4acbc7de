//! A small ext4 in a file, mounted for one test, which can lose its power and fail. Needs root and loop devices.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The size of the file; blocks that nothing was written to take no space.
const BYTES: u64 = 256 << 20;
/// `FS_IOC_SHUTDOWN`: nothing reaches the disk from here on, and every call says so.
const SHUTDOWN: &str = "open my $f, '<', $ARGV[0] or die; ioctl $f, 0x8004587d, my $how = pack 'L', $ARGV[1] or die $!";

/// What the kernel still writes before it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Everything, as if there had been time.
    Everything = 0,
    /// The journal of the file system, without what it did not hold yet.
    Journal = 1,
    /// Nothing: what was not synced is gone.
    Nothing = 2,
}

impl Cut {
    /// The hardest more often than the others.
    pub const ALL: [Cut; 5] = [Cut::Nothing, Cut::Journal, Cut::Nothing, Cut::Everything, Cut::Nothing];
}

/// A mounted file system.
pub struct Volume {
    scratch: TempDir,
}

impl Volume {
    /// A fresh one; the reason why this machine does not allow it otherwise.
    pub fn create() -> Result<Volume, String> {
        let volume = Volume { scratch: scratch()? };
        volume.format()?;
        Ok(volume)
    }

    /// The same on a disk of so many bytes, fewer than the file system believes.
    pub fn create_on_small_disk(bytes: u64) -> Result<Volume, String> {
        let volume = Volume { scratch: scratch()? };
        let mut command = Command::new("mount");
        run(command.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(volume.disk()))?;
        volume.format()?;
        Ok(volume)
    }

    fn format(&self) -> Result<(), String> {
        let file = std::fs::File::create(self.image()).map_err(|error| error.to_string())?;
        file.set_len(BYTES).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(self.image()))?;
        self.mount()
    }

    /// Where the file with the file system lies.
    pub fn disk(&self) -> PathBuf {
        self.scratch.path().join("disk")
    }

    fn image(&self) -> PathBuf {
        self.disk().join("image")
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("volume")
    }

    /// The name of its device, without a directory.
    pub fn device(&self) -> String {
        let device = run(Command::new("findmnt").args(["-n", "-o", "SOURCE", "--mountpoint"]).arg(self.path()))
            .unwrap_or_else(|why| panic!("{why}"));
        device.trim().trim_start_matches("/dev/").to_owned()
    }

    fn mount(&self) -> Result<(), String> {
        let mut command = Command::new("mount");
        // After an error the kernel lets nobody write.
        command.args(["-t", "ext4", "-o", "loop,errors=remount-ro"]).arg(self.image()).arg(self.path());
        run(&mut command).map(drop)
    }

    /// The power goes.
    pub fn cut(&self, cut: Cut) {
        let how = (cut as u8).to_string();
        run(Command::new("perl").args(["-e", SHUTDOWN]).arg(self.path()).arg(how))
            .unwrap_or_else(|why| panic!("{why}"));
    }

    /// The power comes back: what the kernel had in memory is forgotten, the journal is replayed.
    pub fn mount_again(&self) {
        let begun = Instant::now();
        // A process that was killed may still be on its way out of a call.
        while let Err(why) = run(Command::new("umount").arg(self.path())) {
            assert!(why.contains("busy") && begun.elapsed() < Duration::from_secs(30), "{why}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.mount().unwrap_or_else(|why| panic!("{why}"));
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // With `-l`, for a server that fails its test still has files open.
        for mounted in [self.path(), self.disk()] {
            drop(run(Command::new("umount").args(["-q", "-l"]).arg(mounted)));
        }
    }
}

fn scratch() -> Result<TempDir, String> {
    let scratch = TempDir::new().map_err(|error| error.to_string())?;
    for name in ["disk", "volume"] {
        std::fs::create_dir(scratch.path().join(name)).map_err(|error| error.to_string())?;
    }
    Ok(scratch)
}

/// Runs a command; what it printed, or why it did not work.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = Path::new(command.get_program()).display().to_string();
    let Output { status, stdout, stderr } = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&stderr).trim().replace('\n', " ")));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
