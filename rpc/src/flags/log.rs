//! What the log flags say: level, format, outputs.

use tracing::level_filters::LevelFilter;

/// How and where to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// The least severe level that is logged.
    pub(crate) level: LevelFilter,
    /// How a line looks.
    pub(crate) format: LogFormat,
    /// True if lines go to stderr.
    pub(crate) to_stderr: bool,
    /// True if lines go to stdout.
    pub(crate) to_stdout: bool,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Console,
    /// One JSON object a line.
    Json,
}

/// Builds the settings from the three flags; the error is one line.
pub(super) fn build(level: &str, format: &str, outputs: &str) -> Result<LogSettings, String> {
    let mut settings =
        LogSettings { level: LevelFilter::INFO, format: LogFormat::Console, to_stderr: false, to_stdout: false };
    settings.level = match level {
        "debug" => LevelFilter::DEBUG,
        "warn" => LevelFilter::WARN,
        // What etcd calls panic and fatal is one line before the end here, at ERROR.
        "error" | "dpanic" | "panic" | "fatal" => LevelFilter::ERROR,
        _ => LevelFilter::INFO,
    };
    if format == "json" {
        settings.format = LogFormat::Json;
    }
    for output in outputs.split(',').map(str::trim) {
        match output {
            "default" | "stderr" => settings.to_stderr = true,
            "stdout" => settings.to_stdout = true,
            _ => return Err(format!("--log-outputs: {output:?} is none of default, stderr, stdout")),
        }
    }
    Ok(settings)
}
