//! Output for people and programs on standard output. A reader that has gone is no reason to fail.

use std::io::Write;

use atoll_volume::group::span;

/// Writes a line. It is no error if the reader has gone.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Writes a JSON value, readable.
pub(crate) fn json(value: &serde_json::Value) {
    line(format_args!("{value:#}"));
}

/// Writes what `walk` finds: each in a line as it comes, or all in one JSON list.
pub(crate) fn list<T>(
    json_list: bool,
    walk: impl FnOnce(&mut dyn FnMut(T)) -> anyhow::Result<()>,
    for_programs: impl Fn(&T) -> serde_json::Value,
    for_people: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    walk(&mut |found| match json_list {
        true => all.push(for_programs(&found)),
        false => line(for_people(&found)),
    })?;
    if json_list {
        json(&all.into());
    }
    Ok(())
}

/// Bytes with a unit, three digits or so.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// How long ago a time was, in milliseconds since 1970.
pub(crate) fn ago(since_ms: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    span((now.as_millis() as u64).saturating_sub(since_ms))
}

/// A share in per cent; none of nothing.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_short() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(700 << 30), "700 GiB");
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(0, 0), "-");
    }
}
