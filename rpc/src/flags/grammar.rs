//! Go's flag grammar on top of clap: one dash or two, `=` or a separate value, switches without a value.

use std::collections::BTreeMap;

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::foreign::{INERT, INERT_SWITCHES, REFUSED};
use super::stop::Stop;
use super::table::{ALIASES, EFFECTIVE, Flag, Kind};
use super::{ABOUT, AFTER_HELP, duration};
use crate::commands;

/// The values given, by flag name.
pub(super) type Given = BTreeMap<String, String>;

/// The kind of a known flag, under its present name.
pub(super) fn lookup(name: &str) -> Option<(&str, Kind)> {
    let name = ALIASES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new);
    let kind = if let Some(flag) = EFFECTIVE.iter().find(|flag| flag.name == name) {
        flag.kind
    } else if let Some(refusal) = REFUSED.iter().find(|refusal| refusal.name == name) {
        if refusal.harmless.is_none() { Kind::Switch } else { Kind::Text }
    } else if INERT_SWITCHES.contains(&name) || name == "version" {
        Kind::Switch
    } else if INERT.contains(&name) || name == "config-file" {
        Kind::Text
    } else {
        return None;
    };
    Some((name, kind))
}

/// Splits a command line into flags and values; of a flag given twice the last counts.
pub(super) fn split(arguments: &[String]) -> Result<Given, Stop> {
    let mut given = Given::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            return arguments.next().map_or(Ok(given), |stray| Err(not_a_flag(stray)));
        }
        let (name, value) = name_and_value(argument)?;
        if name == "help" || name == "h" {
            return Err(Stop::clap(parse_one("--help")));
        }
        let Some((name, kind)) = lookup(name) else { return Err(Stop::clap(parse_one(&format!("--{name}")))) };
        let value = match (value, kind) {
            (Some(value), _) => value.to_owned(),
            (None, Kind::Switch) => "true".to_owned(),
            (None, _) => arguments.next().cloned().ok_or_else(|| Stop::usage(format!("--{name} needs a value")))?,
        };
        given.insert(name.to_owned(), value);
    }
    Ok(given)
}

fn name_and_value(argument: &str) -> Result<(&str, Option<&str>), Stop> {
    let bare = argument.strip_prefix('-').ok_or_else(|| not_a_flag(argument))?;
    let bare = bare.strip_prefix('-').unwrap_or(bare);
    let (name, value) = bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(value)));
    if name.is_empty() || name.starts_with('-') { Err(not_a_flag(argument)) } else { Ok((name, value)) }
}

fn not_a_flag(argument: &str) -> Stop {
    Stop::usage(format!("{argument:?} is not a flag, and no command at this place"))
}

/// Checks every value against its flag's kind and fills in the defaults.
pub(super) fn check(given: &Given) -> Result<ArgMatches, Stop> {
    let arguments = given.iter().map(|(name, value)| format!("--{name}={value}"));
    command().try_get_matches_from(arguments).map_err(Stop::from)
}

fn parse_one(argument: &str) -> Result<ArgMatches, clap::Error> {
    command().try_get_matches_from([argument])
}

/// The flag that an unknown name was perhaps meant to be, with its dashes.
pub(super) fn nearest(name: &str) -> Option<String> {
    let unknown = parse_one(&format!("--{name}")).err()?;
    match unknown.get(ContextKind::SuggestedArg)? {
        ContextValue::String(flag) => Some(flag.split('=').next().unwrap_or(flag).to_owned()),
        _ => None,
    }
}

fn command() -> Command {
    let foreign = INERT.iter().chain(INERT_SWITCHES).copied().chain(REFUSED.iter().map(|refusal| refusal.name));
    Command::new("sternpost")
        .no_binary_name(true)
        .disable_version_flag(true)
        .about(ABOUT)
        .after_help(format!("{}\n{AFTER_HELP}", commands::summary()))
        .override_usage("sternpost [--flag=value]...\n       sternpost COMMAND ...")
        .args(EFFECTIVE.iter().map(effective))
        .arg(
            Arg::new("version")
                .long("version")
                .action(ArgAction::SetTrue)
                .help("Print the versions of the program and of the API"),
        )
        .arg(
            Arg::new("config-file")
                .long("config-file")
                .value_name("FILE")
                .help("Read all settings from this file of YAML; other flags and variables are ignored then"),
        )
        .args(foreign.map(|name| Arg::new(name).long(name).hide(true).action(ArgAction::Set)))
}

fn effective(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).value_name(flag.value).help(flag.help).help_heading(flag.heading);
    let arg = arg.action(ArgAction::Set).value_parser(parser(flag.kind)).hide_possible_values(false);
    if flag.default.is_empty() { arg } else { arg.default_value(flag.default) }
}

fn parser(kind: Kind) -> ValueParser {
    match kind {
        Kind::Text => ValueParser::string(),
        Kind::Switch => ValueParser::new(switch),
        Kind::Integer => value_parser!(i64).into(),
        Kind::Count => value_parser!(u64).into(),
        Kind::Duration => ValueParser::new(duration::parse),
        Kind::Choice(words) => PossibleValuesParser::new(words).into(),
    }
}

/// Reads a truth value in any of the spellings that Go takes.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}
