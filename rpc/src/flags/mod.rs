//! The command line and the environment become one `Settings`, under etcd's names.

mod duration;
mod environment;
mod file;
mod foreign;
mod grammar;
mod log;
mod settings;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(test)]
mod tls_tests;
mod url;

use std::path::Path;

use grammar::Given;
pub(crate) use log::{LogFormat, LogSettings};
pub(crate) use settings::Settings;
pub(crate) use stop::Stop;

/// The version of the etcd API that is spoken.
pub(crate) const API_VERSION: &str = "3.7.3";
/// The version of the storage format that clients are told, as etcd 3.7 names its own.
pub(crate) const STORAGE_VERSION: &str = "3.7.0";

const ABOUT: &str = "A durable, versioned keyspace that speaks the etcd v3 API.";
const AFTER_HELP: &str = "Every flag may start with one dash or two and has a variable: --data-dir is ETCD_DATA_DIR; setting both is an error.
--config-file names a file of YAML with the same names as keys; flags and variables beside it are ignored.
The other flags of etcd 3.7 are accepted: those without effect here are named once in the log, those that ask for
something that is missing (a second member) are refused.";

/// The command line of this process, without the program's name.
pub(crate) fn arguments() -> Result<Vec<String>, Stop> {
    std::env::args_os().skip(1).map(|argument| text("argument", argument)).collect()
}

/// Reads the settings of this process from its command line and its environment.
pub(crate) fn from_process(arguments: &[String]) -> Result<Settings, Stop> {
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_"));
    let pair = |(name, value)| Ok::<_, Stop>((text("variable", name)?, text("variable", value)?));
    let variables = ours.map(pair).collect::<Result<Vec<_>, _>>()?;
    let own = |dir: &Path| storage::Options::for_directory(&storage::fs::RealFs, dir);
    parse(arguments, &variables, crate::edge::connections_max, &own)
}

/// Reads settings from a command line without the program's name, and from variables. What no flag says of the keyspace in a data directory
/// follows from `own`.
fn parse(
    arguments: &[String],
    variables: &[(String, String)],
    connections_max: impl FnOnce() -> Result<usize, String>,
    own: &dyn Fn(&Path) -> storage::Options,
) -> Result<Settings, Stop> {
    let mut given = grammar::split(arguments)?;
    if let Some(asked) = given.remove("version")
        && grammar::switch(&asked).map_err(Stop::usage)?
    {
        return Err(Stop::Print(format!("sternpost {}\netcd API: {API_VERSION}", env!("CARGO_PKG_VERSION"))));
    }
    let file = environment::configuration_file(&given, variables);
    let mut notes = Vec::new();
    if let Some(file) = &file {
        // What is ignored must make sense all the same.
        grammar::check(&given)?;
        notes.extend(environment::ignored(&given, variables, file));
        given = read_file(file)?;
    } else {
        notes.extend(environment::merge(&mut given, variables)?);
    }
    let matches = grammar::check(&given).map_err(|stop| stop.within(file.as_deref()))?;
    let without_effect = without_effect(&given)?;
    let connections_max = connections_max().map_err(Stop::refused)?;
    settings::build(&matches, connections_max, without_effect, notes, own).map_err(Stop::refused)
}

fn read_file(path: &str) -> Result<Given, Stop> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Stop::refused(format_args!("cannot read the configuration file {path}: {error}")))?;
    file::parse(&text).map_err(|why| Stop::refused(format_args!("configuration file {path}: {why}")))
}

/// The flags given that mean nothing here; refuses those that must not be ignored.
fn without_effect(given: &Given) -> Result<Vec<String>, Stop> {
    let mut inert = Vec::new();
    for (name, value) in given {
        if let Some(refusal) = foreign::REFUSED.iter().find(|refusal| refusal.name == name) {
            let asks_for_nothing = match refusal.harmless {
                Some(harmless) => harmless(value),
                None => !grammar::switch(value).map_err(|why| Stop::usage(format!("--{name}: {why}")))?,
            };
            if !asks_for_nothing {
                return Err(Stop::refused(format_args!("--{name}={value}: {}", refusal.why)));
            }
        } else if foreign::INERT.contains(&name.as_str()) || foreign::INERT_SWITCHES.contains(&name.as_str()) {
            inert.push(format!("--{name}"));
        }
    }
    Ok(inert)
}

fn text(what: &str, value: std::ffi::OsString) -> Result<String, Stop> {
    value.into_string().map_err(|value| Stop::usage(format!("the {what} {value:?} is not UTF-8")))
}
