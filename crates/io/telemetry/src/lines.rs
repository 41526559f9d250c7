//! Writes each event as one line on standard error: for people, or as JSON.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_control::rfc3339;
use rustix::fs::fstat;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// With its time.
    Time,
    /// With the message, because somebody reads it at once.
    Nothing,
    /// With its severity, as the journal reads it. The journal notes the time itself.
    Severity,
}

/// Events as lines.
pub(crate) struct Lines {
    json: bool,
    begin: Begin,
}

impl Lines {
    /// Lines for people.
    pub(crate) fn text() -> Self {
        let begin = match (is_journal(), std::io::stderr().is_terminal()) {
            (true, _) => Begin::Severity,
            (false, true) => Begin::Nothing,
            (false, false) => Begin::Time,
        };
        Self { json: false, begin }
    }

    /// One JSON object a line.
    pub(crate) const fn json() -> Self {
        Self { json: true, begin: Begin::Time }
    }

    fn line(&self, level: Level, target: &str, said: &Said, since_epoch: Duration) -> String {
        if self.json {
            said.as_json(level, target, since_epoch)
        } else {
            said.as_text(level, self.begin, since_epoch)
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        let about = event.metadata();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = self.line(*about.level(), about.target(), &said, now);
        // One write, so that lines of several threads do not mix. Nobody may be there to read it.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Whether standard error goes to the journal of systemd: it says the file's device and number.
fn is_journal() -> bool {
    let Some(named) = std::env::var_os("JOURNAL_STREAM") else { return false };
    fstat(std::io::stderr()).is_ok_and(|stat| named == *format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The content of an event.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    /// The fields, then the message. Further lines are indented, so that a line without an indent begins
    /// another event.
    fn as_text(&self, level: Level, begin: Begin, since_epoch: Duration) -> String {
        let mut out = match begin {
            Begin::Time => rfc3339(since_epoch.as_secs()) + " ",
            Begin::Nothing => String::new(),
            Begin::Severity => format!("<{}>", severity(level)),
        };
        out.push_str("atoll: ");
        out.push_str(match level {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        });
        for (at, (name, value)) in self.fields.iter().enumerate() {
            let gap = if at == 0 { "" } else { " " };
            let _ = match value {
                Value::String(text) => write!(out, "{gap}{name} {text}"),
                other => write!(out, "{gap}{name} {other}"),
            };
        }
        if !self.fields.is_empty() {
            out.push_str(": ");
        }
        out.push_str(&self.message.trim_end().replace('\n', "\n  "));
        out.push('\n');
        out
    }

    fn as_json(&self, level: Level, target: &str, since_epoch: Duration) -> String {
        let time = rfc3339(since_epoch.as_secs());
        let time = format!("{}.{:03}Z", time.trim_end_matches('Z'), since_epoch.subsec_millis());
        let mut object = Map::new();
        object.insert("time".into(), time.into());
        object.insert("level".into(), level.as_str().to_ascii_lowercase().into());
        object.insert("target".into(), target.into());
        object.insert("message".into(), self.message.trim_end().into());
        for (name, value) in &self.fields {
            object.insert((*name).to_owned(), value.clone());
        }
        format!("{}\n", Value::Object(object))
    }
}

/// The severity as a number of syslog(3).
const fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl Said {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::from_millis(1_795_253_400_250);

    fn said() -> Said {
        let fields = vec![("volume", "main".into()), ("island", 3.into())];
        Said { message: "it \"stopped\"\nfor good\n".into(), fields }
    }

    #[test]
    fn a_line_has_its_time_where_nobody_else_notes_it() {
        let text = |level, begin| said().as_text(level, begin, AT);
        let rest = "volume main island 3: it \"stopped\"\n  for good\n";
        assert_eq!(text(Level::WARN, Begin::Time), format!("2026-11-21T09:30:00Z atoll: warning: {rest}"));
        assert_eq!(text(Level::INFO, Begin::Nothing), format!("atoll: {rest}"));
        assert_eq!(text(Level::ERROR, Begin::Severity), format!("<3>atoll: error: {rest}"));
    }

    #[test]
    fn json_has_each_field_by_its_name() {
        let line = Lines::json().line(Level::WARN, "atoll_server", &said(), AT);
        assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["time"], "2026-11-21T09:30:00.250Z");
        assert_eq!(value["level"], "warn");
        assert_eq!(value["volume"], "main");
        assert_eq!(value["island"], 3);
        assert_eq!(value["message"], "it \"stopped\"\nfor good");
    }
}
