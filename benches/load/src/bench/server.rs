//! A server under measurement: started, stopped, killed.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::Failure;
use crate::drive::KvClient;
use crate::pb::etcdserverpb as pb;

/// How long a start or a stop may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks whether it is done.
const LOOK: Duration = Duration::from_millis(2);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Sternpost.
    Sternpost,
    /// etcd, with its defaults.
    Etcd,
    /// A bare tonic server that stores nothing.
    Floor,
    /// No server: a bare append and fdatasync.
    Disk,
}

/// The programs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Binaries {
    /// The server.
    #[arg(long, env = "STERNPOST_BINARY")]
    sternpost: Option<PathBuf>,
    /// The etcd to compare with.
    #[arg(long, env = "ETCD_BINARY")]
    etcd: Option<PathBuf>,
}

/// A process, or nothing for `Kind::Disk`.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) endpoint: String,
    /// What runs the command, without staying between it and this process.
    tracer: Vec<String>,
    command: Vec<String>,
    child: Option<Child>,
    output: PathBuf,
}

impl Kind {
    /// As it is written in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Sternpost => "sternpost",
            Kind::Etcd => "etcd",
            Kind::Floor => "floor",
            Kind::Disk => "disk",
        }
    }
}

impl Binaries {
    /// The program of a kind. Errors: it was not named.
    pub(crate) fn of(&self, kind: Kind) -> Result<PathBuf, Failure> {
        match kind {
            Kind::Sternpost => Ok(self.sternpost.clone().ok_or("STERNPOST_BINARY names no server")?),
            Kind::Etcd => Ok(self.etcd.clone().ok_or("ETCD_BINARY names no etcd")?),
            Kind::Floor | Kind::Disk => Ok(std::env::current_exe()?),
        }
    }
}

impl Server {
    /// Starts one over the data in `data` and waits until it answers. Sternpost gets `flags` besides.
    pub(crate) async fn start(kind: Kind, binaries: &Binaries, data: &Path, flags: &[&str]) -> Result<Server, Failure> {
        let (client, peer) = (free_port()?, free_port()?);
        let endpoint = format!("http://127.0.0.1:{client}");
        let binary = binaries.of(kind)?;
        let path = |path: PathBuf| path.to_str().map(str::to_owned).ok_or("a path is not UTF-8");
        let data = path(data.join("server"))?;
        let peers = format!("http://127.0.0.1:{peer}");
        let own: Vec<&str> = match kind {
            Kind::Sternpost => {
                let own = ["--data-dir", &data, "--listen-client-urls", &endpoint, "--quota-backend-bytes=-1"];
                own.into_iter().chain(flags.iter().copied()).collect()
            }
            #[rustfmt::skip]
            Kind::Etcd => vec![
                "--data-dir", &data, "--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint,
                "--listen-peer-urls", &peers, "--quota-backend-bytes=34359738368", "--log-level", "error",
            ],
            Kind::Floor => vec!["floor", "--listen", endpoint.trim_start_matches("http://")],
            Kind::Disk => vec![],
        };
        let command = [path(binary)?].into_iter().chain(own.into_iter().map(str::to_owned)).collect();
        let output = std::env::temp_dir().join(format!("load-{}-{}.log", std::process::id(), kind.name()));
        let mut server = Server { kind, endpoint, tracer: Vec::new(), command, child: None, output };
        server.run().await?;
        Ok(server)
    }

    /// Starts it again over the same data; says how long it took until it answered a linearizable read.
    pub(crate) async fn run(&mut self) -> Result<Duration, Failure> {
        if self.kind == Kind::Disk {
            return Ok(Duration::ZERO);
        }
        let command: Vec<&String> = self.tracer.iter().chain(&self.command).collect();
        let (program, arguments) = command.split_first().ok_or("no command")?;
        let output = File::create(&self.output)?;
        let began = Instant::now();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.child = Some(command.spawn().map_err(|error| format!("{program}: {error}"))?);
        while !self.answers().await {
            self.still_runs()?;
            if began.elapsed() > PATIENCE {
                return Err(format!("{} is not ready after {PATIENCE:?}", self.kind.name()).into());
            }
            sleep(LOOK).await;
        }
        Ok(began.elapsed())
    }

    /// From the next start on it runs under another program, which must become the server by `exec`.
    pub(crate) fn trace_by(&mut self, tracer: &[&str]) {
        self.tracer = tracer.iter().map(|&part| part.to_owned()).collect();
    }

    /// The process to measure.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Stops it in order, and waits until it has ended.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        self.end(Signal::TERM).await
    }

    /// Ends it the hard way.
    pub(crate) async fn kill(&mut self) -> Result<(), Failure> {
        self.end(Signal::KILL).await
    }

    async fn end(&mut self, signal: Signal) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = Pid::from_raw(i32::try_from(child.id())?).ok_or("no process has the number 0")?;
        kill_process(pid, signal)?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                child.kill()?;
                return Err(format!("{} did not end within {PATIENCE:?}", self.kind.name()).into());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn still_runs(&mut self) -> Result<(), Failure> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait()?,
            None => None,
        };
        let Some(status) = ended else { return Ok(()) };
        let said = std::fs::read_to_string(&self.output).unwrap_or_default();
        let last = said.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
        Err(format!("{} ended, {status}: {last}", self.kind.name()).into())
    }

    async fn answers(&self) -> bool {
        let Ok(endpoint) = Channel::from_shared(self.endpoint.clone()) else { return false };
        let Ok(channel) = endpoint.connect().await else { return false };
        KvClient::new(channel).range(pb::RangeRequest { key: b"ready".to_vec(), ..Default::default() }).await.is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
        drop(std::fs::remove_file(&self.output));
    }
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
