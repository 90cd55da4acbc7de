//! `--config-file`: YAML, or JSON, whose keys are the names of flags. It counts alone.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::grammar::{Given, lookup, nearest};
use super::table::Kind;

/// A value, as it is written.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Nothing,
    Truth(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Block(BTreeMap<String, Value>),
}

/// The blocks that etcd has, with the flags that their keys stand for.
const BLOCKS: &[(&str, &[(&str, &str)])] = &[
    (
        "client-transport-security",
        &[
            ("cert-file", "cert-file"),
            ("key-file", "key-file"),
            ("client-cert-file", "client-cert-file"),
            ("client-key-file", "client-key-file"),
            ("client-cert-auth", "client-cert-auth"),
            ("trusted-ca-file", "trusted-ca-file"),
            ("auto-tls", "auto-tls"),
            ("allowed-cn", "client-cert-allowed-cn"),
            ("allowed-hostname", "client-cert-allowed-hostname"),
            ("skip-client-san-verification", "peer-skip-client-san-verification"),
        ],
    ),
    (
        "peer-transport-security",
        &[
            ("cert-file", "peer-cert-file"),
            ("key-file", "peer-key-file"),
            ("client-cert-file", "peer-client-cert-file"),
            ("client-key-file", "peer-client-key-file"),
            ("client-cert-auth", "peer-client-cert-auth"),
            ("trusted-ca-file", "peer-trusted-ca-file"),
            ("auto-tls", "peer-auto-tls"),
            ("allowed-cn", "peer-cert-allowed-cn"),
            ("allowed-hostname", "peer-cert-allowed-hostname"),
            ("skip-client-san-verification", "peer-skip-client-san-verification"),
        ],
    ),
    ("socket-options", &[("reuse-port", "socket-reuse-port"), ("reuse-address", "socket-reuse-address")]),
];

/// Reads a file. The error is one line without the file's name.
pub(super) fn parse(text: &str) -> Result<Given, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let top: Option<BTreeMap<String, Value>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string().replace('\n', " "))?;
    let mut given = Given::new();
    for (key, value) in top.unwrap_or_default() {
        match (BLOCKS.iter().find(|(block, _)| *block == key), value) {
            (_, Value::Nothing) => {}
            (Some((_, flags)), Value::Block(entries)) => block(&key, flags, entries, &mut given)?,
            (Some(_), _) => return Err(format!("{key}: keys and values are expected below it")),
            (None, value) => set(&key, &key, value, &mut given)?,
        }
    }
    Ok(given)
}

fn block(
    name: &str,
    flags: &[(&str, &str)],
    entries: BTreeMap<String, Value>,
    given: &mut Given,
) -> Result<(), String> {
    for (key, value) in entries {
        let flag = flags.iter().find(|(known, _)| *known == key).map(|(_, flag)| *flag);
        let flag = flag.ok_or_else(|| {
            let known: Vec<&str> = flags.iter().map(|(known, _)| *known).collect();
            format!("{name}: unknown key {key}; known are {}", known.join(", "))
        })?;
        set(&format!("{name}: {key}"), flag, value, given)?;
    }
    Ok(())
}

/// Notes the value of a flag; nothing and the empty text count as not set.
fn set(shown: &str, flag: &str, value: Value, given: &mut Given) -> Result<(), String> {
    let Some((name, kind)) = lookup(flag).filter(|(name, _)| !["version", "config-file"].contains(name)) else {
        let hint = nearest(flag).map_or_else(String::new, |nearest| format!("; {nearest} is a similar one"));
        return Err(format!("unknown key {shown}{hint}"));
    };
    let text = written(value, kind).ok_or_else(|| format!("{shown}: one value, or a list of values, is expected"))?;
    if !text.is_empty() && given.insert(name.to_owned(), text).is_some() {
        return Err(format!("{shown}: set twice, under two names of --{name}"));
    }
    Ok(())
}

/// The value as a command line would have it; `None` if none could.
fn written(value: Value, kind: Kind) -> Option<String> {
    match value {
        Value::Nothing => Some(String::new()),
        Value::Truth(truth) => Some(truth.to_string()),
        // A duration without a unit is in nanoseconds.
        Value::Integer(number) if kind == Kind::Duration => Some(format!("{number}ns")),
        Value::Integer(number) => Some(number.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        Value::List(values) => {
            let parts: Option<Vec<String>> = values.into_iter().map(|value| written(value, kind)).collect();
            parts.map(|parts| parts.join(","))
        }
        Value::Block(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Given = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse(text), Ok(expected), "{text}");
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let refusal = parse(text).expect_err(text);
        assert!(refusal.contains(part) && !refusal.contains('\n'), "{text}: {refusal}");
    }

    #[test]
    fn keys_are_flags_and_values_are_written_as_on_a_command_line() {
        check("", &[]);
        check("# nothing\n", &[]);
        check(
            "name: a\nmax-txn-ops: 7\nquota-backend-bytes: -1\n",
            &[("name", "a"), ("max-txn-ops", "7"), ("quota-backend-bytes", "-1")],
        );
        check(r#"{"name": "a", "pre-vote": true}"#, &[("name", "a"), ("pre-vote", "true")]);
        check("name: 5\nauto-compaction-retention: 1\n", &[("name", "5"), ("auto-compaction-retention", "1")]);
        check("log-outputs: [stderr, stdout]\n", &[("log-outputs", "stderr,stdout")]);
        check("name: 'a: b # c'\ndata-dir: \"/d\\u0020e\"\n", &[("name", "a: b # c"), ("data-dir", "/d e")]);
        check("discovery-srv:\nname: ''\nwal-dir: ~\n", &[]);
    }

    #[test]
    fn a_duration_is_a_number_of_nanoseconds_or_written_out() {
        check("grpc-keepalive-timeout: 20000000000\n", &[("grpc-keepalive-timeout", "20000000000ns")]);
        check("grpc-keepalive-timeout: 20s\n", &[("grpc-keepalive-timeout", "20s")]);
        check(
            "experimental-watch-progress-notify-interval: 5000000000\n",
            &[("watch-progress-notify-interval", "5000000000ns")],
        );
    }

    #[test]
    fn blocks_stand_for_the_flags_of_the_same_meaning() {
        let text = "client-transport-security:\n  cert-file: /c\n  client-cert-auth: true\n  allowed-hostname: [a, b]\n\
                    peer-transport-security:\n  cert-file: /p\n  allowed-cn: [c]\n  client-cert-auth: false\n\
                    socket-options: {reuse-port: true}\n";
        check(
            text,
            &[
                ("cert-file", "/c"),
                ("client-cert-auth", "true"),
                ("client-cert-allowed-hostname", "a,b"),
                ("peer-cert-file", "/p"),
                ("peer-cert-allowed-cn", "c"),
                ("peer-client-cert-auth", "false"),
                ("socket-reuse-port", "true"),
            ],
        );
        check("client-transport-security:\n", &[]);
        check_refused("client-transport-security: true\n", "keys and values");
        check_refused(
            "client-transport-security: {certfile: /c}\n",
            "unknown key certfile; known are cert-file, key-file",
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_key() {
        check_refused("listen-client-url: http://a:1\n", "unknown key listen-client-url; --listen-client-urls");
        check_refused("nothing-like-it: 1\n", "unknown key nothing-like-it");
        check_refused("config-file: /x\n", "unknown key config-file");
        check_refused("version: true\n", "unknown key version");
        check_refused("name: {a: b}\n", "name: one value");
        check_refused("name: a\nname: b\n", "name");
        let twice = "watch-progress-notify-interval: 1\nexperimental-watch-progress-notify-interval: 2\n";
        check_refused(twice, "set twice");
        check_refused("- name\n", "");
        check_refused("name: [a\n", "");
        check_refused("just text\n", "");
    }

    #[test]
    fn no_text_ends_the_process() {
        // Every shorter beginning of a file, and each of its bytes replaced.
        let text = "name: &a x\nlog-outputs: [*a, 'b']\nclient-transport-security: {cert-file: \"\\x41\"}\n# c\n";
        for end in 0..text.len() {
            drop(parse(text.get(..end).unwrap_or_default()));
            for byte in [b'\t', b'*', b'{', b'\n', b'!', 0] {
                let mut bytes = text.as_bytes().to_vec();
                bytes.splice(end..=end, [byte]);
                drop(parse(&String::from_utf8_lossy(&bytes)));
            }
        }
        let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nlog-outputs: [*c,*c]\n";
        check_refused(bomb, "unknown key");
    }
}
