//! Command lines and environments, and the settings or refusals that come of them.

use std::path::Path;
use std::time::Duration;

use compaction::Policy;
use tracing::level_filters::LevelFilter;

use super::*;
use crate::edge::{Address, Endpoint, Serves};

const CONNECTIONS: usize = 100;

pub(super) fn read(line: &str, variables: &[(&str, &str)]) -> Result<Settings, Stop> {
    let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(&arguments, &variables, || Ok(CONNECTIONS), &|_| storage::Options::standard())
}

#[track_caller]
pub(super) fn accepted(line: &str) -> Settings {
    read(line, &[]).unwrap_or_else(|stop| panic!("{line}: {stop:?}"))
}

/// Expects exit code 1 and `part` in its one line.
#[track_caller]
fn check_refused(line: &str, variables: &[(&str, &str)], part: &str) {
    match read(line, variables) {
        Err(Stop::Refused(text)) => {
            assert!(text.contains(part), "{line}: {text}");
            assert_eq!(text.lines().count(), 1, "{line}: {text}");
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// Expects exit code 2 and `part` in the text.
#[track_caller]
fn check_usage(line: &str, part: &str) {
    match read(line, &[]) {
        Err(Stop::Usage(text)) => assert!(text.contains(part), "{line}: {text}"),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn without_flags_every_option_has_its_default() {
    let settings = accepted("");
    assert_eq!(settings.name, "default");
    assert_eq!(settings.data_dir, Path::new("default.sternpost"));
    let address = Address::Tcp("127.0.0.1:2379".parse().expect("an address"));
    assert_eq!(settings.listen, [Endpoint { address, tls: false, serves: Serves::Everything }]);
    assert!(settings.tls.is_none());
    assert_eq!(settings.advertise_client_urls, ["http://localhost:2379"]);
    assert_eq!(settings.advertise_peer_urls, ["http://localhost:2380"]);
    assert_eq!(format!("{:?}", settings.storage), format!("{:?}", storage::Options::standard()));
    assert_eq!((settings.max_request_bytes, settings.max_txn_ops), (1_572_864, 128));
    assert_eq!(settings.min_lease_ttl_seconds, 2);
    assert_eq!(settings.progress_interval, Duration::from_secs(600));
    assert_eq!(settings.limits.message_bytes_max, 2_097_152);
    assert_eq!(settings.limits.streams_max, u32::MAX);
    assert_eq!(settings.limits.keepalive_interval, Duration::from_secs(7_200));
    assert_eq!(settings.limits.keepalive_timeout, Duration::from_secs(20));
    assert_eq!(settings.limits.connections_max, CONNECTIONS);
    let logging =
        LogSettings { level: LevelFilter::INFO, format: LogFormat::Console, to_stderr: true, to_stdout: false };
    assert_eq!(settings.logging, logging);
    assert_eq!((settings.without_effect_line(), settings.warnings.len()), (None, 0));
}

/// One line per flag that has an effect: what is given, and what must be found in the settings as they print.
const EFFECTS: &[(&str, &str)] = &[
    ("--name=a", "name: \"a\", data_dir: \"a.sternpost\""),
    ("--data-dir=/d", "data_dir: \"/d\""),
    ("--listen-client-urls=http://127.0.0.1:1", "advertise_client_urls: [\"http://127.0.0.1:1\"]"),
    ("--advertise-client-urls=http://a:1,https://b:2", "advertise_client_urls: [\"http://a:1\", \"https://b:2\"]"),
    ("--initial-advertise-peer-urls=http://c:3", "advertise_peer_urls: [\"http://c:3\"]"),
    ("--heartbeat-interval=10 --election-timeout=50", "min_lease_ttl_seconds: 1"),
    ("--election-timeout=5000", "min_lease_ttl_seconds: 8"),
    ("--quota-backend-bytes=8589934592", "quota_bytes: Some(8589934592)"),
    ("--quota-backend-bytes=0", "quota_bytes: Some(2147483648)"),
    ("--quota-backend-bytes -1", "quota_bytes: None"),
    ("--max-request-bytes=1000", "message_bytes_max: 525288"),
    ("--max-txn-ops=7", "max_txn_ops: 7"),
    ("--max-concurrent-streams=9", "streams_max: 9"),
    ("--max-concurrent-streams=0", "streams_max: 4294967295"),
    ("--grpc-keepalive-interval=1h2m", "keepalive_interval: 3720s"),
    ("--grpc-keepalive-timeout=3s", "keepalive_timeout: 3s"),
    ("--watch-progress-notify-interval=5s", "progress_interval: 5s"),
    ("--watch-progress-notify-interval=0", "progress_interval: 600s"),
    ("--watch-progress-notify-interval=1ms", "progress_interval: 100ms"),
    ("--experimental-watch-progress-notify-interval=6s", "progress_interval: 6s"),
    ("--auto-compaction-mode=revision --auto-compaction-retention=5", "retention: Revisions(5)"),
    ("--auto-compaction-mode=periodic --auto-compaction-retention=5", "retention: Age(18000s)"),
    ("--log-level=debug", "level: LevelFilter::DEBUG"),
    ("--log-level=fatal", "level: LevelFilter::ERROR"),
    ("--log-format=json", "format: Json"),
    ("--log-outputs=stdout", "to_stderr: false, to_stdout: true"),
    ("--log-outputs=default,stdout", "to_stderr: true, to_stdout: true"),
    ("--cache-bytes=11", "cache_bytes: 11"),
    ("--recent-bytes=12", "recent_bytes: 12"),
    ("--recent-changes=13", "recent_changes: 13"),
    ("--segment-bytes=14", "segment_bytes: 14"),
    ("--ballast-bytes=15", "ballast_bytes: 15"),
    ("--sticky-nospace-alarm", "sticky_no_space: true"),
    ("--sticky-nospace-alarm=false", "sticky_no_space: false"),
    ("--shrink-interval=1m", "shrink_interval: Some(60s)"),
    ("--shrink-interval=0", "shrink_interval: None"),
    ("--scrub-interval=1m", "scrub_interval: Some(60s)"),
    ("--scrub-interval=0", "scrub_interval: None"),
];

#[test]
fn every_flag_with_an_effect_takes_effect() {
    let effects = || EFFECTS.iter().chain(tls_tests::EFFECTS).map(|(line, part)| (tls_tests::in_full(line), part));
    for (line, part) in effects() {
        let found = format!("{:?}", accepted(&line));
        assert!(found.contains(part), "{line}: {part} is not in {found}");
    }
    for flag in table::EFFECTIVE {
        assert!(effects().any(|(line, _)| line.contains(&format!("--{}", flag.name))), "--{} is not tested", flag.name);
    }
}

#[test]
fn dashes_and_values_follow_gos_grammar() {
    for line in ["--name a", "-name a", "-name=a", "--name=a", "--name=b -name a", "--name=b --pre-vote --name=a"] {
        assert_eq!(accepted(line).name, "a", "{line}");
    }
    // A switch never takes the next argument.
    check_usage("--pre-vote false", "\"false\" is not a flag");
    check_usage("--name=a stray", "\"stray\" is not a flag");
    check_usage("--name=a -- stray", "\"stray\" is not a flag");
    check_usage("---name=a", "is not a flag");
    check_usage("--=a", "is not a flag");
    check_usage("-", "is not a flag");
    check_usage("--name", "--name needs a value");
}

#[test]
fn an_unknown_flag_is_answered_with_the_nearest_one() {
    check_usage("--listen-client-url=http://localhost:1", "--listen-client-urls");
    check_usage("-data-dirr /d", "--data-dir");
    check_usage("--nothing-like-it", "--nothing-like-it");
}

#[test]
fn a_value_of_the_wrong_kind_is_a_usage_error() {
    check_usage("--max-txn-ops=many", "many");
    check_usage("--max-txn-ops=-1", "-1");
    check_usage("--log-level=loud", "loud");
    check_usage("--grpc-keepalive-timeout=5", "is not a duration");
    check_usage("--auto-tls=perhaps", "perhaps");
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    check_refused("--election-timeout=400", &[], "five times");
    check_refused("--election-timeout=50001", &[], "50000");
    check_refused("--heartbeat-interval=0", &[], "above 0");
    check_refused("--max-concurrent-streams=4294967296", &[], "too large");
    check_refused("--advertise-client-urls=localhost", &[], "is not a URL");
    check_refused("--log-outputs=/var/log/x", &[], "/var/log/x");
}

#[test]
fn flags_of_etcd_without_effect_are_accepted_and_named() {
    for name in foreign::INERT {
        assert_eq!(accepted(&format!("--{name}=x")).without_effect, [format!("--{name}")]);
    }
    for name in foreign::INERT_SWITCHES {
        assert_eq!(accepted(&format!("-{name}")).without_effect, [format!("--{name}")]);
    }
    let line = accepted("--snapshot-count=10000 --pre-vote=false").without_effect_line();
    assert_eq!(line.as_deref(), Some("accepted, without effect: --pre-vote, --snapshot-count"));
}

#[test]
fn what_must_not_be_ignored_is_refused() {
    for name in ["discovery-endpoints", "discovery-token"] {
        check_refused(&format!("--{name}=x"), &[], &format!("--{name}=x: "));
    }
    check_refused("--force-new-cluster", &[], "--force-new-cluster=true: ");
    assert!(accepted("--force-new-cluster=false").without_effect.is_empty());
    check_refused("--auth-token=jwt,sign-method=RS256", &[], "only simple tokens");
    check_refused("--auto-compaction-mode=revision --auto-compaction-retention=30m", &[], "not what");
    check_refused("--auto-compaction-retention=soon", &[], "not what");
    check_refused("--initial-cluster=a=http://a:1,b=http://b:1", &[], "one member");
    let harmless =
        "--auth-token=simple --auto-compaction-retention=0 --initial-cluster=a=http://a:1,a=http://b:1 --config-file=";
    assert!(accepted(harmless).warnings.is_empty());
}

#[test]
fn retention_counts_hours_durations_or_revisions() {
    let check = |line: &str, expected: Policy| assert_eq!(accepted(line).retention, expected, "{line}");
    check("", Policy::KeepAll);
    check("--auto-compaction-retention=0s", Policy::KeepAll);
    check("--auto-compaction-retention=2", Policy::Age(Duration::from_secs(7200)));
    check("--auto-compaction-retention=30m", Policy::Age(Duration::from_secs(1800)));
    check("--auto-compaction-mode=revision --auto-compaction-retention=1000", Policy::Revisions(1000));
}

#[test]
fn variables_count_like_flags() {
    let settings =
        read("--data-dir=/d", &[("ETCD_NAME", "a"), ("ETCD_QUOTA_BACKEND_BYTES", "-1"), ("ETCD_PRE_VOTE", "true")]);
    let settings = settings.expect("known variables");
    assert_eq!((settings.name.as_str(), settings.storage.quota_bytes), ("a", None));
    assert_eq!(settings.without_effect, ["--pre-vote"]);
    assert_eq!(read("", &[("ETCD_NAME", "")]).expect("an empty variable is unset").name, "default");
}

#[test]
fn a_flag_and_its_variable_together_are_refused() {
    check_refused(
        "--name=a",
        &[("ETCD_NAME", "a")],
        "conflicting environment variable ETCD_NAME is shadowed by the flag --name",
    );
    assert_eq!(read("--name=a", &[("ETCD_NAME", "")]).expect("an empty variable is unset").name, "a");
}

/// A file with this content, and its path.
fn file(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("a temporary file");
    let path = file.path().display().to_string();
    (file, path)
}

#[test]
fn a_configuration_file_counts_alone() {
    let (_file, path) = file("name: a\nwatch-progress-notify-interval: 5000000000\nsnapshot-count: 10000\n");
    let settings = accepted(&format!("--config-file={path}"));
    assert_eq!((settings.name.as_str(), settings.progress_interval), ("a", Duration::from_secs(5)));
    assert_eq!(settings.without_effect, ["--snapshot-count"]);
    assert!(settings.warnings.is_empty());
    let variables =
        [("ETCD_CONFIG_FILE", path.as_str()), ("ETCD_NAME", "c"), ("ETCD_OTHER", "d"), ("ETCD_DATA_DIR", "")];
    let settings = read("--name=b --max-txn-ops 7", &variables).expect("what does not count cannot contradict");
    assert_eq!((settings.name.as_str(), settings.max_txn_ops), ("a", 128));
    let ignored = format!("ignored beside the configuration file {path}: --max-txn-ops, --name, ETCD_NAME");
    assert_eq!(settings.warnings, [ignored]);
    let (_other, other) = file("name: o\n");
    let both = read(&format!("--config-file={other}"), &[("ETCD_CONFIG_FILE", path.as_str())]);
    assert_eq!(both.expect("the flag goes first").name, "o");
    assert_eq!(read("--config-file=", &[("ETCD_CONFIG_FILE", "")]).expect("not set").name, "default");
}

#[test]
fn a_configuration_file_that_cannot_be_carried_out_is_refused_by_name() {
    check_refused("--config-file=/no/such/file", &[], "cannot read the configuration file /no/such/file");
    for (text, part) in [
        ("nam: a\n", "unknown key nam; --name is a similar one"),
        ("max-txn-ops: many\n", "invalid value 'many' for '--max-txn-ops <N>'"),
        ("pre-vote: perhaps\nname: [\n", ""),
        ("force-new-cluster: true\n", "--force-new-cluster=true: "),
        ("initial-cluster: a=http://a:1,b=http://b:1\n", "one member"),
    ] {
        let (_file, path) = file(text);
        check_refused(&format!("--config-file={path}"), &[], part);
    }
    let (_file, path) = file("name: a\n");
    check_usage(&format!("--config-file={path} --max-txn-ops=many"), "many");
}

#[test]
fn unknown_variables_are_one_warning() {
    let settings = read("", &[("ETCD_VERSION", "3"), ("ETCD_NAMES", "a"), ("PATH", "/bin")]).expect("only a warning");
    assert_eq!(settings.warnings, ["environment variables that name no flag: ETCD_NAMES, ETCD_VERSION"]);
}

#[test]
fn version_and_help_are_printed() {
    let Err(Stop::Print(version)) = read("--version", &[]) else { panic!("no version") };
    assert_eq!(version, format!("sternpost {}\netcd API: 3.7.3", env!("CARGO_PKG_VERSION")));
    for line in ["--help", "-h", "-help"] {
        let Err(Stop::Print(help)) = read(line, &[]) else { panic!("no help") };
        for flag in table::EFFECTIVE {
            assert!(help.contains(&format!("--{}", flag.name)), "{} is not in the help", flag.name);
        }
        assert!(!help.contains("--snapshot-count"), "flags without effect are not in the help");
    }
    assert_eq!(accepted("--version=false").name, "default");
}
