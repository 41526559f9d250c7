//! `node.toml`: the daemon to which a data directory belongs, as text that people can read.
//!
//! Only text: [`crate::data_dir`] reads and writes the file.

use std::time::{Duration, SystemTime};

use atoll_rpc::{ClusterId, DaemonId};

/// Newest format of `node.toml` that this program reads, and the one it writes.
pub const NODE_FORMAT: u64 = 2;

/// That of nodes that are in no cluster with certificates, which older programs read too.
const FORMAT_WITHOUT_CA: u64 = 1;

/// The identity of a data directory's daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The daemon, drawn at random when the directory was made.
    pub node: DaemonId,
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// When the directory was made, in seconds since 1970.
    pub created: u64,
    /// How often a daemon has started on it.
    pub incarnation: u32,
    /// SHA-256 of the certificate of its cluster's CA. None: its links are not encrypted. So a directory that has lost its
    /// credentials is not taken for one that needs none.
    pub ca: Option<[u8; 32]>,
}

/// Why the text is no `node.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadNodeFile {
    /// A newer program wrote it.
    Newer { theirs: u64 },
    /// It is not the text of any version, or it is damaged.
    Damaged(String),
}

impl Identity {
    pub(crate) fn to_text(self) -> String {
        let format = if self.ca.is_some() { NODE_FORMAT } else { FORMAT_WITHOUT_CA };
        let ca = self.ca.map_or_else(String::new, |ca| format!("ca = \"{}\"\n", hex(&ca)));
        format!(
            "# Which daemon this folder belongs to. Written by atoll. Do not edit it, and do not\n\
             # use a copy of this folder on another machine while this one is in use.\n\
             format = {format}\n\
             node = \"{}\"\n\
             cluster = \"{}\"\n\
             created = \"{}\"\n\
             incarnation = {}\n{ca}",
            self.node,
            self.cluster,
            rfc3339(self.created),
            self.incarnation,
        )
    }

    pub(crate) fn from_text(text: &str) -> Result<Self, BadNodeFile> {
        let damaged = |why: &str| BadNodeFile::Damaged(why.to_owned());
        let table: toml::Table =
            text.parse().map_err(|e: toml::de::Error| BadNodeFile::Damaged(e.message().to_owned()))?;
        let number = |key: &str| table.get(key).and_then(toml::Value::as_integer);
        // First of all: nothing else of a newer file need be what it is here.
        match number("format").map(u64::try_from) {
            Some(Ok(FORMAT_WITHOUT_CA | NODE_FORMAT)) => {}
            Some(Ok(theirs)) if theirs > NODE_FORMAT => return Err(BadNodeFile::Newer { theirs }),
            _ => return Err(damaged("\"format\" is missing or no format")),
        }
        let known = ["format", "node", "cluster", "created", "incarnation", "ca"];
        if let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(BadNodeFile::Damaged(format!("\"{}\" means nothing", unknown.escape_debug())));
        }
        let text = |key: &str| table.get(key).and_then(toml::Value::as_str);
        let node = text("node").and_then(id).ok_or_else(|| damaged("\"node\" is missing or no id"))?;
        let cluster =
            text("cluster").and_then(id).ok_or_else(|| damaged("\"cluster\" is missing or no id"))?;
        let created =
            text("created").and_then(seconds).ok_or_else(|| damaged("\"created\" is missing or no time"))?;
        let incarnation = number("incarnation")
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| damaged("\"incarnation\" is missing or no count"))?;
        let ca = table
            .get("ca")
            .map(|ca| ca.as_str().and_then(digest).ok_or_else(|| damaged("\"ca\" is no digest")));
        let (node, cluster, ca) = (DaemonId(node), ClusterId(cluster), ca.transpose()?);
        Ok(Self { node, cluster, created, incarnation, ca })
    }
}

/// An id as it is shown: 16 hexadecimal digits, not all 0.
fn id(text: &str) -> Option<u64> {
    let is_digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten().filter(|id| *id != 0)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 64 hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let bytes = (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// Seconds since 1970 on this machine's clock.
pub fn seconds_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

const DAY: u64 = 86_400;
/// Days of 400 years, after which the calendar repeats.
const ERA: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01. Years that begin in March end with the leap day.
const DAYS_TO_1970: u64 = 719_468;

/// A time, in seconds since 1970, as in "2026-11-21T09:30:00Z".
pub fn rfc3339(seconds: u64) -> String {
    let days = seconds / DAY + DAYS_TO_1970;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on: 153 days every five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    let time = seconds % DAY;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

/// The inverse of [`rfc3339`], for exactly its output.
fn seconds(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let time = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    if year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let days =
        era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day.checked_sub(1)?;
    let seconds = (days - DAYS_TO_1970) * DAY + time;
    // Also refuses the 31st of February.
    (rfc3339(seconds) == text).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDENTITY: Identity = Identity {
        node: DaemonId(0xab),
        cluster: ClusterId(u64::MAX),
        created: 1_795_253_400,
        incarnation: 7,
        ca: None,
    };

    #[test]
    fn the_file_has_the_text_that_the_format_says() {
        let text = IDENTITY.to_text();
        let lines: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let golden = [
            "format = 1",
            "node = \"00000000000000ab\"",
            "cluster = \"ffffffffffffffff\"",
            "created = \"2026-11-21T09:30:00Z\"",
            "incarnation = 7",
        ];
        assert_eq!(lines, golden);
        assert_eq!(Identity::from_text(&text), Ok(IDENTITY));
    }

    #[test]
    fn a_node_with_a_ca_has_a_format_that_older_programs_refuse() {
        let secured = Identity { ca: Some([0xa5; 32]), ..IDENTITY };
        let text = secured.to_text();
        assert!(text.contains("format = 2\n") && text.ends_with(&format!("ca = \"{}\"\n", "a5".repeat(32))));
        assert_eq!(Identity::from_text(&text), Ok(secured));
        let cut = text.replace("a5\"", "\"");
        assert!(matches!(Identity::from_text(&cut), Err(BadNodeFile::Damaged(why)) if why.contains("ca")));
    }

    #[test]
    fn a_newer_file_is_known_as_one_although_nothing_else_in_it_is() {
        let newer = "format = 12\nnode = { uuid = 1 }\n[more]\nx = 1\n";
        assert_eq!(Identity::from_text(newer), Err(BadNodeFile::Newer { theirs: 12 }));
    }

    #[test]
    fn a_damaged_file_says_what_is_wrong_with_it() {
        let good = IDENTITY.to_text();
        for (from, to, word) in [
            ("format = 1", "format = 0", "format"),
            ("format = 1", "", "format"),
            ("00000000000000ab", "ab", "node"),
            ("00000000000000ab", "0000000000000000", "node"),
            ("ffffffffffffffff", "+fffffffffffffff", "cluster"),
            ("11-21", "02-30", "created"),
            ("11-21", "13-21", "created"),
            ("incarnation = 7", "incarnation = -7", "incarnation"),
            ("incarnation = 7", "incarnation = 4294967296", "incarnation"),
            ("incarnation = 7", "incarnation = 7\nextra = 1", "extra"),
            ("node = ", "node ", "="),
        ] {
            let Err(BadNodeFile::Damaged(why)) = Identity::from_text(&good.replace(from, to)) else {
                panic!("{to} was let through");
            };
            assert!(why.contains(word), "{to}: {why}");
        }
    }

    proptest! {
        #[test]
        fn times_come_back_as_they_were_written(seconds_in in 0u64..200_000_000_000) {
            prop_assert_eq!(seconds(&rfc3339(seconds_in)), Some(seconds_in));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = Identity::from_text(&text);
            let _ = seconds(&text);
        }
    }
}
