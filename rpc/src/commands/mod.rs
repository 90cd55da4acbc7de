//! The commands beside the server: the first word of a command line may name one.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use crate::flags::Stop;

mod import;
mod snapshot;
mod verify;

/// A command.
struct Entry {
    /// Its name, arguments and help.
    arguments: fn() -> Command,
    /// Carries it out. Answers what is printed at the end, or one line that says why not (exit code 1).
    run: fn(&ArgMatches) -> Result<String, String>,
}

/// Every command, in the order of the help.
const COMMANDS: &[Entry] = &[
    Entry { arguments: snapshot::arguments, run: snapshot::run },
    Entry { arguments: import::arguments, run: import::run },
    Entry { arguments: verify::arguments, run: verify::run },
];

/// Carries out the command that a command line, without the program's name, begins with. `None` if it names none: then it is the
/// server's.
pub(crate) fn run(arguments: &[String]) -> Option<ExitCode> {
    let name = arguments.first()?;
    let entry = COMMANDS.iter().find(|entry| (entry.arguments)().get_name() == name)?;
    let outcome = parse(entry, arguments).and_then(|matches| (entry.run)(&matches).map_err(Stop::refused));
    Some(outcome.map_or_else(Stop::report, |text| Stop::Print(text).report()))
}

fn parse(entry: &Entry, arguments: &[String]) -> Result<ArgMatches, Stop> {
    let command = (entry.arguments)();
    let bin_name = format!("sternpost {}", command.get_name());
    command.bin_name(bin_name).try_get_matches_from(arguments).map_err(Stop::from)
}

/// What the server's help says of the commands.
pub(crate) fn summary() -> String {
    let line = |entry: &Entry| {
        let command = (entry.arguments)();
        format!(
            "  sternpost {:<10} {}\n",
            command.get_name(),
            command.get_about().map(ToString::to_string).unwrap_or_default()
        )
    };
    format!("Commands (each has its --help):\n{}", COMMANDS.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<ArgMatches, Stop> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let entry =
            COMMANDS.iter().find(|entry| words.first().is_some_and(|word| (entry.arguments)().get_name() == word));
        parse(entry.expect("a command"), &words)
    }

    #[test]
    fn arguments_are_sound_and_help_names_every_command() {
        for entry in COMMANDS {
            let command = (entry.arguments)();
            let name = command.get_name().to_owned();
            command.debug_assert();
            assert!(summary().contains(&format!("  sternpost {name} ")), "{}", summary());
            match parsed(&format!("{name} --help")) {
                Err(Stop::Print(text)) => assert!(text.contains(&format!("sternpost {name}")), "{text}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_understood_ends_with_a_usage_text() {
        for (line, part) in [
            ("import", "etcd"),
            ("import consul", "consul"),
            ("import etcd --data-dir=d", "<FILE>"),
            ("import etcd f", "--data-dir"),
            ("import etcd f g --data-dir=d", "'g'"),
            ("import etcd f --data-dir=d --nonsense", "--nonsense"),
            ("snapshot", "save"),
            ("snapshot take f", "take"),
            ("snapshot save", "<FILE>"),
            ("snapshot status f -w yaml", "yaml"),
            ("snapshot restore f", "--data-dir"),
            ("snapshot restore f --data-dir d --bump-revision 0", "0"),
            ("snapshot restore f --data-dir d --bump-revision 5 --no-bump", "cannot be used with"),
        ] {
            match parsed(line) {
                Err(Stop::Usage(text)) => assert!(text.contains(part), "{line}: {text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert!(
            run(&[]).is_none() && run(&["--name=import".to_owned()]).is_none() && run(&["serve".to_owned()]).is_none()
        );
    }
}
