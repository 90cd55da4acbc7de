//! `ETCD_` variables: each flag's twin, never set together with it.

use super::grammar::{Given, lookup};
use super::stop::Stop;

const PREFIX: &str = "ETCD_";
const CONFIG_FILE: &str = "config-file";

/// Adds what the environment sets to what the command line gave; answers with a line about `ETCD_` variables that name no flag.
/// An empty variable counts as unset.
pub(super) fn merge(given: &mut Given, variables: &[(String, String)]) -> Result<Option<String>, Stop> {
    let mut unknown = Vec::new();
    let mut found = Given::new();
    for (variable, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        let Some(flag) = flag_of(variable) else { continue };
        match lookup(&flag) {
            Some((name, _)) if name != "version" && given.contains_key(name) => return Err(conflict(variable, name)),
            Some((name, _)) if name != "version" => drop(found.insert(name.to_owned(), value.clone())),
            _ => unknown.push(variable.clone()),
        }
    }
    given.append(&mut found);
    unknown.sort();
    Ok((!unknown.is_empty()).then(|| format!("environment variables that name no flag: {}", unknown.join(", "))))
}

/// The configuration file that is named, by the flag or else by its variable.
pub(super) fn configuration_file(given: &Given, variables: &[(String, String)]) -> Option<String> {
    let variable = || variables.iter().find(|(name, _)| name == "ETCD_CONFIG_FILE").map(|(_, value)| value);
    let named = given.get(CONFIG_FILE).filter(|path| !path.is_empty()).or_else(variable);
    named.filter(|path| !path.is_empty()).cloned()
}

/// A line about the flags and variables that do not count beside a configuration file.
pub(super) fn ignored(given: &Given, variables: &[(String, String)], file: &str) -> Option<String> {
    let flags = given.keys().filter(|name| *name != CONFIG_FILE).map(|name| format!("--{name}"));
    let set = variables.iter().filter(|(name, value)| name != "ETCD_CONFIG_FILE" && !value.is_empty());
    let set = set.filter(|(name, _)| flag_of(name).is_some_and(|flag| lookup(&flag).is_some()));
    let all: Vec<String> = flags.chain(set.map(|(name, _)| name.clone())).collect();
    (!all.is_empty()).then(|| format!("ignored beside the configuration file {file}: {}", all.join(", ")))
}

/// The flag that a variable stands for, if it is one of ours.
fn flag_of(variable: &str) -> Option<String> {
    variable.strip_prefix(PREFIX).map(|suffix| suffix.replace('_', "-").to_ascii_lowercase())
}

fn conflict(variable: &str, flag: &str) -> Stop {
    Stop::refused(format_args!(
        "conflicting environment variable {variable} is shadowed by the flag --{flag}: set one of the two"
    ))
}
