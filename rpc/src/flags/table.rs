//! The flags that have an effect: name, kind, default and what to read in `--help`.

/// What a flag's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything.
    Text,
    /// True or false; the name alone means true.
    Switch,
    /// A whole number, with a sign where that means something.
    Integer,
    /// A whole number that is not negative.
    Count,
    /// A duration in Go's notation.
    Duration,
    /// One of a few words.
    Choice(&'static [&'static str]),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    /// The name, without dashes.
    pub(super) name: &'static str,
    /// What its value looks like.
    pub(super) kind: Kind,
    /// What counts when neither the flag nor its variable is set; empty if it depends on other flags.
    pub(super) default: &'static str,
    /// What stands for the value in `--help`.
    pub(super) value: &'static str,
    /// One sentence.
    pub(super) help: &'static str,
    /// The heading in `--help`.
    pub(super) heading: &'static str,
}

const MEMBER: &str = "Member";
const LIMITS: &str = "Limits";
const SECURITY: &str = "TLS";
const LOGGING: &str = "Logging";
const MEMORY: &str = "Memory and files (Sternpost's own)";

const fn flag(
    heading: &'static str,
    name: &'static str,
    kind: Kind,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Flag {
    Flag { name, kind, default, value, help, heading }
}

/// Every flag with an effect, in the order of `--help`.
#[rustfmt::skip]
pub(super) const EFFECTIVE: &[Flag] = &[
    flag(MEMBER, "name", Kind::Text, "NAME", "default", "Name of this member"),
    flag(MEMBER, "data-dir", Kind::Text, "DIR", "", "Data directory [default: ${name}.sternpost]"),
    flag(MEMBER, "listen-client-urls", Kind::Text, "URLS", "http://localhost:2379",
        "Where to listen, comma-separated: http://IP:PORT, http://[IP6]:PORT, unix://PATH; with TLS: https:// and unixs://"),
    flag(MEMBER, "listen-client-http-urls", Kind::Text, "URLS", "",
        "Where to serve the HTTP pages, which the client URLs then do not"),
    flag(MEMBER, "listen-metrics-urls", Kind::Text, "URLS", "", "Where to serve health and metrics, and nothing else"),
    flag(MEMBER, "advertise-client-urls", Kind::Text, "URLS", "",
        "What MemberList shows as client URLs [default: as listen-client-urls]"),
    flag(MEMBER, "initial-advertise-peer-urls", Kind::Text, "URLS", "http://localhost:2380",
        "What MemberList shows as peer URLs"),
    flag(MEMBER, "heartbeat-interval", Kind::Count, "MS", "100",
        "Heartbeat in milliseconds; at most a fifth of the election timeout"),
    flag(MEMBER, "election-timeout", Kind::Count, "MS", "1000",
        "Election timeout in milliseconds; one and a half times it, in whole seconds, is the shortest lease TTL"),
    flag(LIMITS, "quota-backend-bytes", Kind::Integer, "BYTES", "0",
        "Pages in use at which puts are refused; 0 means 2 GiB, a negative number no quota"),
    flag(LIMITS, "sticky-nospace-alarm", Kind::Switch, "BOOL", "false",
        "Leave it to an operator to clear the NOSPACE alarm, as etcd does"),
    flag(LIMITS, "max-request-bytes", Kind::Count, "BYTES", "1572864", "Largest request that changes something"),
    flag(LIMITS, "max-txn-ops", Kind::Count, "N", "128", "Operations allowed in each list of a transaction"),
    flag(LIMITS, "max-concurrent-streams", Kind::Count, "N", "4294967295", "HTTP/2 streams allowed on a connection"),
    flag(LIMITS, "grpc-keepalive-interval", Kind::Duration, "DURATION", "2h",
        "Silence after which a client is pinged; 0 means the default"),
    flag(LIMITS, "grpc-keepalive-timeout", Kind::Duration, "DURATION", "20s",
        "How long a ping may stay unanswered; 0 means the default"),
    flag(LIMITS, "watch-progress-notify-interval", Kind::Duration, "DURATION", "0",
        "How often an idle watch is told its progress; 0 means 10m, the minimum is 100ms"),
    flag(LIMITS, "auto-compaction-mode", Kind::Choice(&["periodic", "revision"]), "MODE", "periodic",
        "What --auto-compaction-retention counts: time or revisions"),
    flag(LIMITS, "auto-compaction-retention", Kind::Text, "KEEP", "0",
        "History to keep: hours or a duration such as 30m, or a number of revisions; 0 keeps everything"),
    flag(SECURITY, "cert-file", Kind::Text, "FILE", "", "The server's certificate, with what links it to an authority, in PEM"),
    flag(SECURITY, "key-file", Kind::Text, "FILE", "", "The private key of the certificate, in PEM"),
    flag(SECURITY, "trusted-ca-file", Kind::Text, "FILE", "",
        "Authorities, in PEM; clients must have a certificate that one of them issued"),
    flag(SECURITY, "client-cert-auth", Kind::Switch, "BOOL", "false",
        "Clients must have a certificate, and its common name says who they are"),
    flag(SECURITY, "client-crl-file", Kind::Text, "FILE", "", "List of revoked certificates, in DER or PEM"),
    flag(SECURITY, "client-cert-allowed-cn", Kind::Text, "NAMES", "",
        "Only clients whose certificate has one of these common names, comma-separated"),
    flag(SECURITY, "client-cert-allowed-hostname", Kind::Text, "HOSTS", "",
        "Only clients whose certificate is for one of these host names or IP addresses, comma-separated"),
    flag(SECURITY, "auto-tls", Kind::Switch, "BOOL", "false",
        "Without --cert-file: make a certificate, and keep it in fixtures/client in the data directory"),
    flag(SECURITY, "self-signed-cert-validity", Kind::Count, "YEARS", "1", "How long that certificate is good, in years"),
    flag(SECURITY, "tls-min-version", Kind::Text, "VERSION", "TLS1.2", "The oldest version that is spoken: TLS1.2 or TLS1.3"),
    flag(SECURITY, "tls-max-version", Kind::Text, "VERSION", "", "The newest version that is spoken [default: TLS1.3]"),
    flag(SECURITY, "cipher-suites", Kind::Text, "NAMES", "",
        "Cipher suites for TLS 1.2, comma-separated, by Go's names [default: all that are offered]"),
    flag(LOGGING, "log-level", Kind::Choice(&["debug", "info", "warn", "error", "dpanic", "panic", "fatal"]), "LEVEL", "info",
        "The least severe level that is logged"),
    flag(LOGGING, "log-format", Kind::Choice(&["console", "json"]), "FORMAT", "console", "How a log line looks"),
    flag(LOGGING, "log-outputs", Kind::Text, "OUTPUTS", "default", "Where logs go, comma-separated: default (stderr), stderr, stdout"),
    flag(MEMORY, "cache-bytes", Kind::Count, "BYTES", "", "Page cache of the database file [default: 64 MiB]"),
    flag(MEMORY, "recent-bytes", Kind::Count, "BYTES", "", "Memory for changes that are not yet in the database file [default: 64 MiB, or 1/32 of the volume]"),
    flag(MEMORY, "recent-changes", Kind::Count, "N", "", "How many such changes there may be [default: 400000, or one per 32 KiB of the volume]"),
    flag(MEMORY, "segment-bytes", Kind::Count, "BYTES", "", "Size of a log segment [default: 4 MiB, or 1/64 of the volume]"),
    flag(MEMORY, "ballast-bytes", Kind::Count, "BYTES", "", "Disk held back for what makes room [default: 64 MiB, or half of the volume]"),
    flag(MEMORY, "shrink-interval", Kind::Duration, "DURATION", "10s",
        "How often to see whether rewriting the database file is worth it, or releasing the log; 0 means only when asked"),
    flag(MEMORY, "scrub-interval", Kind::Duration, "DURATION", "24h",
        "How often everything on the disk is read again, slowly, to find damage; 0 means never"),
];

/// Older names under which etcd knew a flag that has an effect.
pub(super) const ALIASES: &[(&str, &str)] =
    &[("experimental-watch-progress-notify-interval", "watch-progress-notify-interval")];
