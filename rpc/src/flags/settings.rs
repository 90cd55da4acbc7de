//! `Settings`: every option of the server, with its unit, built here and nowhere else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use compaction::Policy;

use super::log::{self, LogSettings};
use super::{tls, url};
use crate::edge::{Endpoint, Limits, Serves, TlsSettings};

/// What a receive limit adds to `--max-request-bytes`: room for the envelope of a message.
const ENVELOPE_BYTES: u64 = 512 << 10;
/// A request goes into one frame of the log, where it may take a little more than on the wire.
const REQUEST_BYTES_MAX: u64 = (storage::COMMAND_BYTES_MAX / 4 * 3) as u64;
const ELECTION_TIMEOUT_MS_MAX: u64 = 50_000;
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);
const PROGRESS_INTERVAL_STANDARD: Duration = Duration::from_secs(600);
const QUOTA_BYTES_STANDARD: u64 = 2 << 30;

/// Every option of the server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The member's name.
    pub(crate) name: String,
    /// Where the keyspace lives.
    pub(crate) data_dir: PathBuf,
    /// What to listen on, and what to serve there.
    pub(crate) listen: Vec<Endpoint>,
    /// What endpoints with TLS need; none if there are none.
    pub(crate) tls: Option<TlsSettings>,
    /// The client URLs that MemberList shows.
    pub(crate) advertise_client_urls: Vec<String>,
    /// The peer URLs that MemberList shows.
    pub(crate) advertise_peer_urls: Vec<String>,
    /// The limits of the keyspace.
    pub(crate) storage: storage::Options,
    /// The limits of connections.
    pub(crate) limits: Limits,
    /// The largest request that changes something, in bytes.
    pub(crate) max_request_bytes: usize,
    /// Operations allowed in each list of a transaction.
    pub(crate) max_txn_ops: usize,
    /// The shortest TTL of a lease.
    pub(crate) min_lease_ttl_seconds: i64,
    /// How often an idle watch is told its progress.
    pub(crate) progress_interval: Duration,
    /// What history is kept.
    pub(crate) retention: Policy,
    /// How often to see whether rewriting the database file is worth it; none: only when asked.
    pub(crate) shrink_interval: Option<Duration>,
    /// How often what lies on the disk is read again; none: never.
    pub(crate) scrub_interval: Option<Duration>,
    /// How and where to log.
    pub(crate) logging: LogSettings,
    /// Flags given that mean nothing here.
    pub(crate) without_effect: Vec<String>,
    /// What an operator should know about the values chosen.
    pub(crate) warnings: Vec<String>,
}

/// Builds the settings from checked values; the error is one line.
pub(super) fn build(
    matches: &ArgMatches,
    connections_max: usize,
    without_effect: Vec<String>,
    mut warnings: Vec<String>,
    own: &dyn Fn(&Path) -> storage::Options,
) -> Result<Settings, String> {
    let name = text(matches, "name").to_owned();
    // Whoever says only where to listen means to be found there.
    let advertise = matches.get_one::<String>("advertise-client-urls").map(String::as_str);
    let advertise_client_urls = url::advertised(advertise.unwrap_or_else(|| text(matches, "listen-client-urls")))?;
    let (data_dir, listen) = (data_dir(matches, &name), endpoints(matches)?);
    Ok(Settings {
        storage: storage_options(matches, own(&data_dir))?,
        tls: tls::build(matches, &data_dir, &listen, &advertise_client_urls, &mut warnings)?,
        data_dir,
        name,
        listen,
        advertise_client_urls,
        advertise_peer_urls: url::advertised(text(matches, "initial-advertise-peer-urls"))?,
        limits: limits(matches, connections_max)?,
        max_request_bytes: max_request_bytes(matches)?,
        max_txn_ops: size(matches, "max-txn-ops")?,
        min_lease_ttl_seconds: min_lease_ttl_seconds(matches)?,
        progress_interval: progress_interval(matches, &mut warnings),
        retention: retention(matches)?,
        shrink_interval: Some(duration(matches, "shrink-interval")).filter(|interval| !interval.is_zero()),
        scrub_interval: Some(duration(matches, "scrub-interval")).filter(|interval| !interval.is_zero()),
        logging: log::build(text(matches, "log-level"), text(matches, "log-format"), text(matches, "log-outputs"))?,
        without_effect,
        warnings,
    })
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_one::<String>(name).expect("the table gives this flag a default")
}

fn count(matches: &ArgMatches, name: &str) -> u64 {
    *matches.get_one(name).expect("the table gives this flag a default")
}

fn duration(matches: &ArgMatches, name: &str) -> Duration {
    *matches.get_one(name).expect("the table gives this flag a default")
}

fn size(matches: &ArgMatches, name: &str) -> Result<usize, String> {
    narrow(name, count(matches, name))
}

fn narrow<N: TryFrom<u64>>(name: &str, value: u64) -> Result<N, String> {
    N::try_from(value).map_err(|_| format!("--{name}={value} is too large"))
}

fn data_dir(matches: &ArgMatches, name: &str) -> PathBuf {
    matches.get_one::<String>("data-dir").map_or_else(|| format!("{name}.sternpost"), String::clone).into()
}

/// With URLs of their own for HTTP, the client URLs serve gRPC alone.
fn endpoints(matches: &ArgMatches) -> Result<Vec<Endpoint>, String> {
    let list = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let pages = url::listen(list("listen-client-http-urls"), Serves::Pages)?;
    let serves = if pages.is_empty() { Serves::Everything } else { Serves::Grpc };
    let mut endpoints = url::listen(list("listen-client-urls"), serves)?;
    if endpoints.is_empty() {
        return Err("--listen-client-urls names no address to listen on".to_owned());
    }
    endpoints.extend(pages);
    endpoints.extend(url::listen(list("listen-metrics-urls"), Serves::Probes)?);
    url::check_apart(&endpoints)?;
    Ok(endpoints)
}

fn storage_options(matches: &ArgMatches, mut options: storage::Options) -> Result<storage::Options, String> {
    let own = |name: &str| matches.get_one::<u64>(name).copied();
    if let Some(bytes) = own("cache-bytes") {
        options.cache_bytes = narrow("cache-bytes", bytes)?;
    }
    if let Some(bytes) = own("recent-bytes") {
        options.recent_bytes = narrow("recent-bytes", bytes)?;
    }
    if let Some(changes) = own("recent-changes") {
        options.recent_changes = narrow("recent-changes", changes)?;
    }
    if let Some(bytes) = own("segment-bytes") {
        options.segment_bytes = bytes;
    }
    if let Some(bytes) = own("ballast-bytes") {
        options.ballast_bytes = bytes;
    }
    options.sticky_no_space = *matches.get_one("sticky-nospace-alarm").expect("the table gives this flag a default");
    options.quota_bytes =
        match *matches.get_one::<i64>("quota-backend-bytes").expect("the table gives this flag a default") {
            0 => Some(QUOTA_BYTES_STANDARD),
            bytes => u64::try_from(bytes).ok(),
        };
    Ok(options)
}

fn limits(matches: &ArgMatches, connections_max: usize) -> Result<Limits, String> {
    let message_bytes = count(matches, "max-request-bytes").saturating_add(ENVELOPE_BYTES);
    Ok(Limits {
        connections_max,
        handshake_timeout: Duration::from_secs(10),
        head_timeout: Duration::from_secs(300),
        header_bytes_max: 64 << 10,
        streams_max: streams_max(matches)?,
        // A burst of requests that time out together must not cost a client its connection, and all its watches.
        pending_resets_max: 16_384,
        local_resets_max: 1_024,
        stream_window_bytes: 1 << 20,
        connection_window_bytes: 8 << 20,
        send_buffer_bytes: 1 << 20,
        keepalive_interval: positive(duration(matches, "grpc-keepalive-interval"), Duration::from_secs(2 * 3600)),
        keepalive_timeout: positive(duration(matches, "grpc-keepalive-timeout"), Duration::from_secs(20)),
        message_bytes_max: narrow("max-request-bytes", message_bytes)?,
    })
}

/// 0 means no limit, as in etcd.
fn streams_max(matches: &ArgMatches) -> Result<u32, String> {
    match narrow("max-concurrent-streams", count(matches, "max-concurrent-streams"))? {
        0 => Ok(u32::MAX),
        limit => Ok(limit),
    }
}

fn positive(duration: Duration, standard: Duration) -> Duration {
    if duration.is_zero() { standard } else { duration }
}

fn max_request_bytes(matches: &ArgMatches) -> Result<usize, String> {
    let bytes = count(matches, "max-request-bytes");
    if bytes > REQUEST_BYTES_MAX {
        return Err(format!("--max-request-bytes={bytes} must not be above {REQUEST_BYTES_MAX}"));
    }
    narrow("max-request-bytes", bytes)
}

/// A lease must outlive an election, so etcd takes the shortest TTL from its timeout: half as much again, in whole seconds.
fn min_lease_ttl_seconds(matches: &ArgMatches) -> Result<i64, String> {
    let (heartbeat_ms, election_ms) = (count(matches, "heartbeat-interval"), count(matches, "election-timeout"));
    if heartbeat_ms == 0 {
        return Err("--heartbeat-interval must be above 0".to_owned());
    }
    if election_ms < heartbeat_ms.saturating_mul(5) {
        return Err(format!(
            "--election-timeout={election_ms} must be at least five times --heartbeat-interval={heartbeat_ms}"
        ));
    }
    if election_ms > ELECTION_TIMEOUT_MS_MAX {
        return Err(format!("--election-timeout={election_ms} must not be above {ELECTION_TIMEOUT_MS_MAX}"));
    }
    narrow("election-timeout", (election_ms * 3).div_ceil(2_000))
}

/// A plain number is hours, or revisions in that mode.
fn retention(matches: &ArgMatches) -> Result<Policy, String> {
    let (mode, keep) = (text(matches, "auto-compaction-mode"), text(matches, "auto-compaction-retention"));
    let refused = || format!("--auto-compaction-retention={keep}: not what --auto-compaction-mode={mode} counts");
    let number = keep.parse::<u32>().ok();
    if number == Some(0) || keep.is_empty() {
        return Ok(Policy::KeepAll);
    }
    if mode == "revision" {
        return number.map(|revisions| Policy::Revisions(revisions.into())).ok_or_else(refused);
    }
    let period = match number {
        Some(hours) => Duration::from_secs(3600 * u64::from(hours)),
        None => super::duration::parse(keep).map_err(|_| refused())?,
    };
    Ok(if period.is_zero() { Policy::KeepAll } else { Policy::Age(period) })
}

fn progress_interval(matches: &ArgMatches, warnings: &mut Vec<String>) -> Duration {
    let asked = positive(duration(matches, "watch-progress-notify-interval"), PROGRESS_INTERVAL_STANDARD);
    if asked < PROGRESS_INTERVAL_MIN {
        warnings.push(format!("--watch-progress-notify-interval={asked:?} is raised to {PROGRESS_INTERVAL_MIN:?}"));
    }
    asked.max(PROGRESS_INTERVAL_MIN)
}

impl Settings {
    /// The options that decide how the server behaves, for the one line that is logged at the start.
    pub(crate) fn summary(&self) -> String {
        format!(
            "advertise_client_urls={:?} advertise_peer_urls={:?} max_request_bytes={} max_txn_ops={} min_lease_ttl_seconds={} \
             progress_interval={:?} retention={:?} shrink_interval={:?} scrub_interval={:?} {:?} {:?} tls={:?}",
            self.advertise_client_urls,
            self.advertise_peer_urls,
            self.max_request_bytes,
            self.max_txn_ops,
            self.min_lease_ttl_seconds,
            self.progress_interval,
            self.retention,
            self.shrink_interval,
            self.scrub_interval,
            self.storage,
            self.limits,
            self.tls
        )
    }

    /// What was accepted and has no effect, as one line; `None` if there is nothing.
    pub(crate) fn without_effect_line(&self) -> Option<String> {
        (!self.without_effect.is_empty())
            .then(|| format!("accepted, without effect: {}", self.without_effect.join(", ")))
    }
}
