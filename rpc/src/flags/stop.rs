//! The reasons to end before the server starts, each with its output and exit code.

use std::process::ExitCode;

/// Why the process ends at once.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something was asked for that is printed: help or the version.
    Print(String),
    /// The command line cannot be understood; exit code 2.
    Usage(String),
    /// The settings are understood and cannot be carried out; exit code 1.
    Refused(String),
}

impl Stop {
    /// The command line cannot be understood.
    pub(super) fn usage(line: String) -> Stop {
        Stop::Usage(format!("sternpost: {line}; see --help"))
    }

    /// The settings cannot be carried out.
    pub(crate) fn refused(line: impl std::fmt::Display) -> Stop {
        Stop::Refused(format!("sternpost: {line}"))
    }

    /// The same, when what cannot be understood is a value in this file.
    pub(super) fn within(self, file: Option<&str>) -> Stop {
        match (self, file) {
            (Stop::Usage(text), Some(file)) => {
                let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                Stop::refused(format_args!("configuration file {file}: {line}"))
            }
            (stop, _) => stop,
        }
    }

    /// What clap says to an argument that cannot pass.
    pub(super) fn clap(outcome: Result<clap::ArgMatches, clap::Error>) -> Stop {
        outcome.map_or_else(Stop::from, |_| Stop::usage("unexpected flag".to_owned()))
    }

    /// Prints the reason and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Stop::Print(text) => {
                println!("{}", text.trim_end());
                ExitCode::SUCCESS
            }
            Stop::Usage(text) => {
                eprintln!("{}", text.trim_end());
                ExitCode::from(2)
            }
            Stop::Refused(text) => {
                eprintln!("{}", text.trim_end());
                ExitCode::FAILURE
            }
        }
    }
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Stop {
        let text = error.render().to_string();
        if error.use_stderr() { Stop::Usage(text) } else { Stop::Print(text) }
    }
}
