//! Where log lines go and how they look.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::flags::{LogFormat, LogSettings};

/// Starts logging for the whole process; the first call counts.
pub(crate) fn start(settings: &LogSettings) {
    let lines = fmt::layer().with_writer(writer(settings));
    let lines = match settings.format {
        LogFormat::Console => lines.with_ansi(false).with_target(false).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    // A second start means that something else in the process logs already, which is as good.
    let _ = registry().with(lines.with_filter(targets(settings.level))).try_init();
}

/// Libraries speak up only when something is wrong: h2 alone writes several lines per frame at DEBUG.
fn targets(level: LevelFilter) -> Targets {
    Targets::new().with_target("rpc", level).with_target("compaction", level).with_default(level.min(LevelFilter::WARN))
}

fn writer(settings: &LogSettings) -> BoxMakeWriter {
    match (settings.to_stderr, settings.to_stdout) {
        (true, true) => BoxMakeWriter::new(std::io::stderr.and(std::io::stdout)),
        (false, true) => BoxMakeWriter::new(std::io::stdout),
        _ => BoxMakeWriter::new(std::io::stderr),
    }
}
