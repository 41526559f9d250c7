//! The log of a daemon or mount: options and environment that say where it goes.

use anyhow::{Result, anyhow};
use atoll_telemetry::{Format, LEVEL, Level};

/// Options of every command that stays.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Log {
    /// The form of the log: text or json on standard error, or journald. The default is text; for a mount in
    /// the background it is journald, if systemd is there
    #[arg(long, value_name = "FORMAT")]
    log: Option<Format>,
    /// The level of the log: off, error, warn, info (the default), debug or trace. Without this option,
    /// ATOLL_LOG sets it
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<Level>,
}

impl Log {
    /// Starts it. A process in the background has no standard error that somebody reads.
    pub(crate) fn start(&self, background: bool) -> Result<()> {
        let format = self.log.unwrap_or_else(|| {
            if background && atoll_telemetry::has_journal() { Format::Journald } else { Format::Text }
        });
        let level = match (self.log_level, std::env::var(LEVEL)) {
            (Some(level), _) => level,
            (None, Ok(text)) if !text.is_empty() => text.parse().map_err(|why| {
                anyhow!("{LEVEL}={} names no level of the log: {why}.", text.escape_debug())
            })?,
            (None, _) => Level::default(),
        };
        Ok(atoll_telemetry::start(format, level)?)
    }
}

/// A panic is a broken invariant, with which no thread may go on; but for those of the database at a
/// damaged page, which stop one island.
pub(crate) fn end_with_a_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if atoll_snapshot::is_contained() {
            return;
        }
        if atoll_telemetry::is_started() {
            let backtrace = std::backtrace::Backtrace::capture();
            let trace = match backtrace.status() {
                std::backtrace::BacktraceStatus::Captured => format!("\n{backtrace}"),
                _ => String::new(),
            };
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or_default();
            tracing::error!(thread, "a broken invariant ends this process: {info}{trace}");
            atoll_telemetry::finish();
        } else {
            tell(info);
        }
        std::process::abort();
    }));
}
