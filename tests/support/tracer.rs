//! A process whose system calls on files are watched one by one, and which is killed at the one that was asked for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Before the system call has any effect, or after it had it and before the process hears of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    Entry,
    Exit,
}

/// A system call that changes something below the watched directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub call: &'static str,
    /// Below the directory; of a rename the new name.
    pub path: String,
}

impl fmt::Display for Site {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {:?}", self.call, self.path)
    }
}

/// Where the process is killed.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// Counting begins with the first site that fits.
    pub from: fn(&Site) -> bool,
    /// What is counted from there on; everything, if it is `None`.
    pub call: Option<&'static str>,
    /// The first is number 1.
    pub number: u64,
    pub moment: Moment,
}

/// Where the process was killed.
#[derive(Clone, Debug)]
pub struct Death {
    pub site: Site,
    pub moment: Moment,
}

#[derive(Default)]
struct State {
    trap: Option<Trap>,
    /// How many of each call there were since counting began.
    counted: BTreeMap<&'static str, u64>,
    death: Option<Death>,
    status: Option<ExitStatus>,
}

/// A running process, watched by a thread of its own.
pub struct Traced {
    pid: Pid,
    state: Arc<Mutex<State>>,
}

impl Traced {
    /// Runs a command, whose files of interest lie below a directory; what it says goes to `output`.
    pub fn spawn(command: &Command, output: File, below: &Path, trap: Option<Trap>) -> Traced {
        let state = Arc::new(Mutex::new(State { trap, ..State::default() }));
        // It stops itself, so that nothing of the program runs unseen.
        let mut shell = Command::new("sh");
        shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        shell.arg(command.get_program()).args(command.get_args());
        shell.stdin(Stdio::null()).stdout(output.try_clone().expect("a second handle")).stderr(output);
        let (send, receive) = channel();
        let tracer = Tracer { state: state.clone(), below: below.to_path_buf(), inside: HashMap::new() };
        // Only the thread that began to trace may go on with it.
        std::thread::spawn(move || tracer.run(shell, &send));
        Traced { pid: receive.recv().expect("the process runs"), state }
    }

    /// Kills the process at a site that is yet to come, or goes no further with that.
    pub fn arm(&self, trap: Option<Trap>) {
        let mut state = self.state.lock().unwrap();
        state.trap = trap;
        state.counted.clear();
    }

    /// How many of each call there were from where the trap began to count; from the start without a trap.
    pub fn counted(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().unwrap().counted.clone()
    }

    /// Where the trap has closed.
    pub fn death(&self) -> Option<Death> {
        self.state.lock().unwrap().death.clone()
    }

    /// The status with which the process ended, if it did.
    pub fn status(&self) -> Option<ExitStatus> {
        self.state.lock().unwrap().status
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.pid.as_raw()).expect("not 0")
    }

    /// Ends the process on the spot.
    pub fn kill(&self) {
        match kill(self.pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("the process cannot be killed: {error}"),
        }
        while self.status().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Tracer {
    state: Arc<Mutex<State>>,
    below: PathBuf,
    /// Threads in a system call: its site, and whether the process dies at its exit.
    inside: HashMap<Pid, Option<(Site, bool)>>,
}

impl Tracer {
    #[expect(clippy::zombie_processes, reason = "it is waited for by `waitpid`, which tells of its threads too")]
    fn run(mut self, mut shell: Command, started: &Sender<Pid>) {
        // Waits for nothing that another thread of this process has started.
        let own = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let child = shell.spawn().expect("a shell");
        let leader = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        let stopped = waitpid(leader, Some(own | WaitPidFlag::WUNTRACED)).expect("a child of this thread");
        assert_eq!(stopped, WaitStatus::Stopped(leader, Signal::SIGSTOP), "the shell stops itself");
        let options = Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(leader, options).expect("a process may trace its children");
        kill(leader, Signal::SIGCONT).expect("it is there");
        started.send(leader).expect("somebody waits for it");
        loop {
            match waitpid(None, Some(own)) {
                Ok(WaitStatus::PtraceSyscall(thread)) => {
                    self.at_a_call(thread, leader);
                    resume(thread, None);
                }
                Ok(WaitStatus::PtraceEvent(thread, ..)) => resume(thread, None),
                Ok(WaitStatus::Stopped(thread, signal)) => resume(thread, Some(signal)),
                Ok(WaitStatus::Exited(thread, code)) => self.ended(thread, leader, code << 8),
                Ok(WaitStatus::Signaled(thread, signal, _)) => self.ended(thread, leader, signal as i32),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return,
                Err(error) => panic!("cannot wait for the process: {error}"),
            }
        }
    }

    fn ended(&mut self, thread: Pid, leader: Pid, status: i32) {
        self.inside.remove(&thread);
        if thread == leader {
            self.state.lock().unwrap().status = Some(ExitStatus::from_raw(status));
        }
    }

    /// A thread is about to enter a system call, or has left one.
    fn at_a_call(&mut self, thread: Pid, leader: Pid) {
        let mut state = self.state.lock().unwrap();
        let dead = match self.inside.remove(&thread) {
            Some(left) => left.and_then(|(site, dies)| dies.then_some(Death { site, moment: Moment::Exit })),
            None => {
                let site = site(thread, &self.below);
                let dies = site.as_ref().and_then(|site| state.count(site));
                let entered = site.clone().map(|site| (site, dies == Some(Moment::Exit)));
                self.inside.insert(thread, entered);
                site.filter(|_| dies == Some(Moment::Entry)).map(|site| Death { site, moment: Moment::Entry })
            }
        };
        if let Some(death) = dead {
            kill(leader, Signal::SIGKILL).expect("it is there");
            state.death = Some(death);
        }
    }
}

impl State {
    /// Counts a site; the moment of it at which the process is to die, if it is the one.
    fn count(&mut self, site: &Site) -> Option<Moment> {
        let waits = self.trap.is_some_and(|trap| !(trap.from)(site));
        if self.counted.is_empty() && waits {
            return None;
        }
        *self.counted.entry(site.call).or_default() += 1;
        let trap = self.trap?;
        let number = match trap.call {
            Some(call) if call == site.call => self.counted.get(call).copied().unwrap_or(0),
            Some(_) => 0,
            None => self.counted.values().sum(),
        };
        (number == trap.number).then_some(trap.moment)
    }
}

fn resume(thread: Pid, signal: Option<Signal>) {
    match ptrace::syscall(thread, signal) {
        // It was killed meanwhile; its end is told by the next wait.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => panic!("the process cannot go on: {error}"),
    }
}

/// Where the arguments name the file.
enum Names {
    Descriptor,
    Path(usize),
    /// Only if the flags, the argument behind the path, make a file.
    Created(usize),
}

const CALLS: &[(i64, &str, Names)] = &[
    (libc::SYS_pwrite64, "pwrite64", Names::Descriptor),
    (libc::SYS_write, "write", Names::Descriptor),
    (libc::SYS_fdatasync, "fdatasync", Names::Descriptor),
    (libc::SYS_fsync, "fsync", Names::Descriptor),
    (libc::SYS_ftruncate, "ftruncate", Names::Descriptor),
    (libc::SYS_fallocate, "fallocate", Names::Descriptor),
    (libc::SYS_openat, "openat", Names::Created(1)),
    (libc::SYS_mkdirat, "mkdir", Names::Path(1)),
    (libc::SYS_unlinkat, "unlink", Names::Path(1)),
    #[cfg(not(target_arch = "riscv64"))]
    (libc::SYS_renameat, "rename", Names::Path(3)),
    (libc::SYS_renameat2, "rename", Names::Path(3)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir", Names::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink", Names::Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename", Names::Path(1)),
];

/// What a thread that has stopped at the entry of a system call is about to do, if that changes a file below the directory.
fn site(thread: Pid, below: &Path) -> Option<Site> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let (_, call, names) = CALLS.iter().find(|(known, ..)| *known == number)?;
    let arguments: Vec<u64> = words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let path = match names {
        Names::Descriptor => std::fs::read_link(format!("/proc/{thread}/fd/{}", arguments.first()?)).ok()?,
        Names::Path(at) => path_at(thread, *arguments.get(*at)?)?,
        Names::Created(at) => {
            let flags = *arguments.get(at + 1)?;
            (flags & libc::O_CREAT as u64 != 0).then_some(())?;
            path_at(thread, *arguments.get(*at)?)?
        }
    };
    let path = path.strip_prefix(below).ok()?.to_string_lossy().into_owned();
    Some(Site { call, path })
}

fn path_at(thread: Pid, address: u64) -> Option<PathBuf> {
    let mut bytes = [0; 4096];
    let read = File::open(format!("/proc/{thread}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    Some(PathBuf::from(std::str::from_utf8(&bytes[..end]).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes three directories under a trap at the second, and says which are there.
    fn made(moment: Moment) -> (Vec<bool>, Death) {
        let scratch = tempfile::TempDir::new().expect("a directory");
        let below = scratch.path().canonicalize().expect("a path");
        let mut command = Command::new("mkdir");
        command.args(["a", "b", "c"].map(|name| below.join(name)));
        let traced = Traced::spawn(
            &command,
            tempfile::tempfile().expect("a file"),
            &below,
            Some(Trap { from: |_| true, call: None, number: 2, moment }),
        );
        while traced.status().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(traced.status().and_then(|status| status.signal()), Some(Signal::SIGKILL as i32));
        (["a", "b", "c"].map(|name| below.join(name).exists()).to_vec(), traced.death().expect("the trap has closed"))
    }

    #[test]
    fn a_kill_at_the_entry_comes_before_the_effect_and_one_at_the_exit_behind_it() {
        let second = Site { call: "mkdir", path: String::from("b") };
        let (there, death) = made(Moment::Entry);
        assert_eq!((there, death.site, death.moment), (vec![true, false, false], second.clone(), Moment::Entry));
        let (there, death) = made(Moment::Exit);
        assert_eq!((there, death.site, death.moment), (vec![true, true, false], second, Moment::Exit));
    }
}
