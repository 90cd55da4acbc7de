//! The signals that ask the server to end.

use std::fmt;
use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{self, SignalKind};

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// What supervisors send.
    Terminate,
}

impl Signal {
    /// The exit code of a process that the signal ended at once: 128 and the signal's number.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        })
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
        })
    }
}

/// The signals of this process, from the moment they are installed.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Takes the signals over. Needs a runtime.
    pub(crate) fn install() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
    }
}
