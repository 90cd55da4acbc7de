//! `ETCD_` variables: each flag's twin, never set together with it.

use super::grammar::{Given, lookup};
use super::stop::Stop;

const PREFIX: &str = "ETCD_";

/// Adds what the environment sets to what the command line gave; answers the `ETCD_` variables that name no flag.
/// An empty variable counts as unset.
pub(super) fn merge(given: &mut Given, variables: &[(String, String)]) -> Result<Vec<String>, Stop> {
    let mut unknown = Vec::new();
    let mut found = Given::new();
    for (variable, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        let Some(suffix) = variable.strip_prefix(PREFIX) else { continue };
        match lookup(&suffix.replace('_', "-").to_ascii_lowercase()) {
            Some((name, _)) if name != "version" && given.contains_key(name) => return Err(conflict(variable, name)),
            Some((name, _)) if name != "version" => drop(found.insert(name.to_owned(), value.clone())),
            _ => unknown.push(variable.clone()),
        }
    }
    given.append(&mut found);
    unknown.sort();
    Ok(unknown)
}

fn conflict(variable: &str, flag: &str) -> Stop {
    Stop::refused(format_args!(
        "conflicting environment variable {variable} is shadowed by the flag --{flag}: set one of the two"
    ))
}
