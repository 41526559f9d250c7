//! The log of a daemon or mount: every crate writes events with `tracing`, and this crate brings them to
//! standard error or to the journal of systemd.
//!
//! If one place in the code writes too often, its further lines are left out for a while, and their number is
//! logged. Writing never fails and never ends the process: perhaps nobody reads the log.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod limit;
mod lines;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use limit::Limit;
use lines::Lines;

/// The environment variable with the level, where no option says it.
pub const LEVEL: &str = "ATOLL_LOG";

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines for people on standard error.
    Text,
    /// One JSON object a line on standard error.
    Json,
    /// Entries of the journal of systemd, with fields.
    Journald,
}

impl FromStr for Format {
    type Err = NoFormat;

    fn from_str(text: &str) -> Result<Self, NoFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "journald" => Ok(Self::Journald),
            _ => Err(NoFormat),
        }
    }
}

/// A word that names no format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write text, json or journald")]
pub struct NoFormat;

/// The least severe events that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(LevelFilter);

impl Default for Level {
    fn default() -> Self {
        Self(LevelFilter::INFO)
    }
}

impl FromStr for Level {
    type Err = NoLevel;

    fn from_str(text: &str) -> Result<Self, NoLevel> {
        Ok(Self(match text {
            "off" => LevelFilter::OFF,
            "error" => LevelFilter::ERROR,
            "warn" => LevelFilter::WARN,
            "info" => LevelFilter::INFO,
            "debug" => LevelFilter::DEBUG,
            "trace" => LevelFilter::TRACE,
            _ => return Err(NoLevel),
        }))
    }
}

/// A word that names no level of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write off, error, warn, info, debug or trace")]
pub struct NoLevel;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The journal was asked for and is not there.
    #[error(
        "the journal of systemd cannot be reached: {0}.\nUse --log text or --log json, which write to standard error."
    )]
    NoJournal(std::io::Error),
    /// A second log in one process.
    #[error("the log of this process has been started already")]
    Twice,
}

/// The limits of this process's log, with the counts of lines that were left out.
static LIMIT: OnceLock<Arc<Limit>> = OnceLock::new();

/// Starts the log of this process. Events before that are lost.
///
/// # Errors
///
/// [`StartError`]: nothing is written then.
pub fn start(format: Format, level: Level) -> Result<(), StartError> {
    let output = match format {
        Format::Text => Lines::text().boxed(),
        Format::Json => Lines::json().boxed(),
        Format::Journald => journal().map_err(StartError::NoJournal)?.boxed(),
    };
    let limit = Arc::new(Limit::default());
    let subscriber =
        tracing_subscriber::registry().with(output).with(limit::Layer(Arc::clone(&limit))).with(level.0);
    subscriber.try_init().map_err(|_| StartError::Twice)?;
    let _ = LIMIT.set(limit); // A second log was refused above.
    Ok(())
}

/// Whether the journal of systemd is there.
pub fn has_journal() -> bool {
    journal().is_ok()
}

fn journal() -> std::io::Result<tracing_journald::Layer> {
    let layer = tracing_journald::layer()?;
    Ok(layer.with_field_prefix(Some("ATOLL".into())).with_syslog_identifier("atoll".into()))
}

/// Whether [`start`] has been called, so that events are written.
pub fn is_started() -> bool {
    LIMIT.get().is_some()
}

/// Logs how many lines were left out until now. For the end of the process.
pub fn finish() {
    if let Some(limit) = LIMIT.get() {
        limit.tell();
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Journald => "journald",
        })
    }
}
