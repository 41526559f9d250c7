//! What a daemon tells of itself while it runs: lines on standard error, each with its time unless
//! somebody reads it at once or a journal notes the time itself. Never fails: nobody may be there.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_control::rfc3339;
use atoll_core::IslandId;

/// Tells one thing; further lines are indented, so that a line without an indent begins another.
pub fn tell(what: impl fmt::Display) {
    let mut err = std::io::stderr().lock();
    let is_timed = !err.is_terminal() && std::env::var_os("JOURNAL_STREAM").is_none();
    let time = is_timed.then(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let _ = err.write_all(lines(time, &what.to_string()).as_bytes());
}

/// Tells something of an island.
pub(crate) fn tell_of(volume: &str, island: IslandId, what: impl fmt::Display) {
    tell(format_args!("volume {volume} island {island}: {what}"));
}

fn lines(time: Option<u64>, what: &str) -> String {
    let time = time.map(|seconds| rfc3339(seconds) + " ").unwrap_or_default();
    format!("{time}atoll: {}\n", what.trim_end().replace('\n', "\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_time_where_nobody_else_notes_it() {
        assert_eq!(lines(Some(1_795_253_400), "one\ntwo\n"), "2026-11-21T09:30:00Z atoll: one\n  two\n");
        assert_eq!(lines(None, "one"), "atoll: one\n");
    }
}
