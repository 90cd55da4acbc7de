//! The real binary in a process of its own: start, await, stop, kill, start again.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use super::client::unary;
use super::tracer::{Traced, Trap};
use crate::model::wire::{RangeRequest, RangeResponse};

/// How long a start or an end may take.
const PATIENCE: Duration = Duration::from_secs(60);

enum Process {
    Plain(Child),
    Traced(Traced),
}

/// A server with a data directory that lives as long as this value.
pub struct Server {
    process: Option<Process>,
    directory: TempDir,
    data: PathBuf,
    port: u16,
    peer_port: u16,
    extra: Vec<String>,
    /// Client URLs beside the one in the clear.
    more_urls: Vec<String>,
    /// What a shell does before it becomes the process.
    limits: Option<String>,
    starts: usize,
}

impl Server {
    /// Starts a server with further arguments and waits until it answers.
    pub async fn start(extra: &[&str]) -> Server {
        let mut server = Server::prepare(extra);
        server.start_again().await;
        server
    }

    /// A server that is not started yet.
    pub fn prepare(extra: &[&str]) -> Server {
        let extra = extra.iter().map(|argument| argument.to_string()).collect();
        let directory = TempDir::new().expect("a temporary directory");
        let data = directory.path().join("data");
        Server {
            process: None,
            directory,
            data,
            port: free_port(),
            peer_port: free_port(),
            extra,
            more_urls: Vec::new(),
            limits: None,
            starts: 0,
        }
    }

    /// The same server on another data directory.
    pub fn on(mut self, data: PathBuf) -> Server {
        self.data = data;
        self
    }

    /// From the next start on it listens at this client URL too.
    pub fn listen_too(&mut self, url: String) {
        self.more_urls.push(url);
    }

    /// From the next start on it gets these further arguments.
    pub fn give(&mut self, arguments: &[&str]) {
        self.extra.extend(arguments.iter().map(|argument| argument.to_string()));
    }

    /// From the next start on, writes beyond so many blocks of 512 bytes in a file fail; `None` takes that back.
    pub fn limit_files(&mut self, blocks: Option<u64>) {
        // Without the trap the process would be ended by a signal.
        self.limits = blocks.map(|blocks| format!("trap '' XFSZ; ulimit -f {blocks}"));
    }

    /// From the next start on, a limit that the shell sets; `None` takes that back.
    pub fn limit(&mut self, limits: Option<String>) {
        self.limits = limits;
    }

    /// Starts the server on the same directory and waits until it answers; returns how long that took.
    pub async fn start_again(&mut self) -> Duration {
        let begun = Instant::now();
        self.spawn();
        if let Some(status) = self.answers_or_ends().await {
            panic!("the server ended with {status}:\n{}", self.log());
        }
        begun.elapsed()
    }

    /// Waits until the process answers, or ends: then with which status.
    pub async fn answers_or_ends(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                return Some(status);
            }
            if Instant::now() > deadline {
                panic!("the server does not answer:\n{}", self.log());
            }
            if self.answers().await {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Starts the process and returns at once.
    pub fn spawn(&mut self) {
        let (mut command, log) = (self.command(), self.new_log());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.process = Some(Process::Plain(command.spawn().expect("the server's program")));
    }

    /// The same, with its system calls on the data directory counted, and killed at the one that a trap names.
    pub fn spawn_traced(&mut self, trap: Option<Trap>) {
        let (command, log) = (self.command(), self.new_log());
        self.process = Some(Process::Traced(Traced::spawn(&command, log, &self.data, trap)));
    }

    /// The process, which was started with `spawn_traced`.
    pub fn traced(&self) -> &Traced {
        match &self.process {
            Some(Process::Traced(traced)) => traced,
            _ => panic!("no server runs that is traced"),
        }
    }

    fn new_log(&mut self) -> File {
        self.starts += 1;
        File::create(self.log_path()).expect("a log file")
    }

    fn command(&self) -> Command {
        let url = self.url();
        let urls = [std::slice::from_ref(&url), &self.more_urls].concat().join(",");
        let mut command = match reference() {
            Some(program) => {
                let peer = format!("http://127.0.0.1:{}", self.peer_port);
                let mut command = Command::new(program);
                command.args([
                    "--listen-peer-urls",
                    &peer,
                    "--initial-advertise-peer-urls",
                    &peer,
                    "--unsafe-no-fsync",
                ]);
                command.args(["--initial-cluster", &format!("default={peer}")]);
                // What bounds our memory means nothing to it.
                command.args(self.extra.chunks(2).filter(|flag| !flag[0].starts_with("--recent")).flatten());
                command
            }
            None => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_sternpost"));
                command.args(&self.extra);
                command
            }
        };
        command.arg("--data-dir").arg(self.data()).args([
            "--listen-client-urls",
            &urls,
            "--advertise-client-urls",
            &url,
        ]);
        match &self.limits {
            Some(limits) => limited(&command, limits),
            None => command,
        }
    }

    async fn answers(&self) -> bool {
        let probe = async {
            let channel = self.endpoint().connect_timeout(Duration::from_secs(1)).connect().await.ok()?;
            let request = RangeRequest { key: vec![0], ..Default::default() };
            unary::<_, RangeResponse>(&channel, "/etcdserverpb.KV/Range", request).await.ok()
        };
        matches!(tokio::time::timeout(Duration::from_secs(2), probe).await, Ok(Some(_)))
    }

    /// The status with which the process ended, if it did.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        match self.process.as_mut()? {
            Process::Plain(child) => child.try_wait().expect("the process is ours"),
            Process::Traced(traced) => traced.status(),
        }
    }

    /// Waits for the process to end.
    pub async fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                self.process = None;
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends the process on the spot, as a crash would.
    pub fn kill(&mut self) {
        match self.process.take() {
            Some(Process::Plain(mut child)) => {
                child.kill().expect("the process is ours");
                child.wait().expect("the process is ours");
            }
            Some(Process::Traced(traced)) => traced.kill(),
            None => {}
        }
    }

    /// Asks the process to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is ours");
    }

    pub fn pid(&self) -> Pid {
        match self.process.as_ref().expect("the server runs") {
            Process::Plain(child) => Pid::from_child(child),
            Process::Traced(traced) => traced.pid(),
        }
    }

    /// The memory that the process takes, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most memory that it has taken, in bytes, since `forget_peak`.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The peak begins anew with what the process takes now.
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid().as_raw_nonzero()), "5").expect("the server runs");
    }

    fn memory(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid().as_raw_nonzero())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
        kib * 1024
    }

    /// What the process printed since its last start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A number that the process logged as `name=12`, `"name":12` or `"name":"12"`.
    pub fn logged(&self, name: &str) -> Option<u64> {
        let log = self.log();
        let after = log.split(name).nth(1)?.trim_start_matches(['"', ':', '=', ' ']);
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join(format!("server-{}.log", self.starts))
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// A directory beside the data directory.
    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// Where the server listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(self.url()).expect("a URL")
    }

    /// A connection that is made when it is first used, and again after a restart.
    pub fn channel(&self) -> Channel {
        self.endpoint().connect_lazy()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program to test instead of ours, to prove the tests right: an etcd, named by `STERNPOST_TEST_ETCD`.
pub fn reference() -> Option<String> {
    std::env::var("STERNPOST_TEST_ETCD").ok()
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// The same command behind what a shell does first.
fn limited(command: &Command, limits: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}
