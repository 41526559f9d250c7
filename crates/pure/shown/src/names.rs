//! Names beside a name that another object keeps: `STEM.~SITE-YYYYMMDD-HHMMSS.EXT`. Owns their form. Never decides who keeps
//! a name.

use atoll_causal::{Dot, FileId, HybridStamp};
use atoll_core::{Name, siphash24};

/// Bytes of a site's name in a name.
const SITE_BYTES_MAX: usize = 32;
/// Bytes of an extension with its dot. What is longer is no extension.
const EXTENSION_BYTES_MAX: usize = 16;
/// Digits of a time of day in a mark.
const TIME_BYTES: usize = 6;
/// Digits of a hash in a mark.
const HASH_BYTES: usize = 32;
const SECONDS_A_DAY: u64 = 86_400;

/// What tells a name beside another one from others beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark<'a> {
    /// The site whose change loses the name.
    pub site: &'a str,
    /// When the change was made.
    pub stamp: HybridStamp,
    /// The file.
    pub file: FileId,
    /// Its link.
    pub link: Option<Dot>,
}

/// Endless names beside `name`: the first without a number, then with `-2`, and so on. A mark that the name has is replaced.
///
/// No two names without a mark have a name beside them in common. A name that had a mark or was cut could, so that it gets a hash
/// of its link into it.
pub(crate) fn beside<'a>(name: &Name, mark: Mark<'a>) -> impl Iterator<Item = Name> + 'a {
    let plain = unmarked(name);
    let bytes = plain.as_ref().unwrap_or(name).as_bytes().to_vec();
    let is_marked = plain.is_some();
    (1..).map(move |nth: u64| {
        let dot = bytes.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0);
        let at = dot.filter(|at| bytes.len() - at <= EXTENSION_BYTES_MAX).unwrap_or(bytes.len());
        let (stem, extension) = bytes.split_at(at);
        let number = if nth == 1 { String::new() } else { format!("-{nth}") };
        let short = format!(".~{}-{}{number}", site_of(mark.site), time_of(mark.stamp));
        let is_cut = stem.len() + short.len() + extension.len() > Name::BYTES_MAX;
        let long = format!(".~{}-{}-{:032x}{number}", site_of(mark.site), time_of(mark.stamp), hash(mark));
        let mark = if is_cut || is_marked { long } else { short };
        marked(stem, &mark, extension)
    })
}

/// The name without its mark; none if it has none.
pub fn unmarked(name: &Name) -> Option<Name> {
    let bytes = name.as_bytes();
    let marks = (1..bytes.len()).rev().filter(|&at| bytes[at..].starts_with(b".~"));
    marks.into_iter().find_map(|at| {
        let extension = after_mark(&bytes[at + 2..])?;
        Name::new(&[&bytes[..at], extension].concat()).ok()
    })
}

/// What the mark of a name says, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameMark {
    /// The site whose change lost the name.
    pub site: String,
    /// When that was made, in UTC: `YYYY-MM-DD HH:MM:SS`.
    pub time: String,
}

/// The mark of a name; none if it has none.
pub fn mark_of(name: &Name) -> Option<NameMark> {
    let bytes = name.as_bytes();
    let marks = (1..bytes.len()).rev().filter(|&at| bytes[at..].starts_with(b".~"));
    marks.into_iter().find_map(|at| {
        let behind = &bytes[at + 2..];
        let extension = after_mark(behind)?;
        let parts: Vec<&str> =
            str::from_utf8(&behind[..behind.len() - extension.len()]).ok()?.split('-').collect();
        let day =
            (1..parts.len() - 1).rev().find(|&at| is_time(parts[at].as_bytes(), parts[at + 1].as_bytes()))?;
        let (date, time) = (parts[day], parts[day + 1]);
        let time = format!(
            "{}-{}-{} {}:{}:{}",
            &date[..4],
            &date[4..6],
            &date[6..],
            &time[..2],
            &time[2..4],
            &time[4..]
        );
        Some(NameMark { site: parts[..day].join("-"), time })
    })
}

/// Whether these are a day and a time of day.
fn is_time(day: &[u8], time: &[u8]) -> bool {
    let is_number = |part: &[u8], len: usize| part.len() == len && part.iter().all(u8::is_ascii_digit);
    is_number(day, 8) && is_number(time, TIME_BYTES)
}

/// Of the names beside one, for one mark, the one that follows this one; none if this one has no mark.
pub fn following(name: &Name) -> Option<Name> {
    let bytes = name.as_bytes();
    let marks = (1..bytes.len()).rev().filter(|&at| bytes[at..].starts_with(b".~"));
    marks.into_iter().find_map(|at| {
        let extension = after_mark(&bytes[at + 2..])?;
        let mark = str::from_utf8(&bytes[at..bytes.len() - extension.len()]).ok()?;
        // Behind the time are a hash and a number, one of them, or nothing.
        let (front, last) = mark.rsplit_once('-')?;
        let number = last.parse::<u64>().ok().filter(|_| ![TIME_BYTES, HASH_BYTES].contains(&last.len()));
        let (front, number) = number.map_or((mark, 1), |number| (front, number));
        let mark = format!("{front}-{}", number.checked_add(1)?);
        // No mark is as long as a name, but users may give any name.
        (mark.len() + extension.len() < Name::BYTES_MAX).then(|| marked(&bytes[..at], &mark, extension))
    })
}

/// A name with a mark. What is too long is cut, but not within a character.
fn marked(stem: &[u8], mark: &str, extension: &[u8]) -> Name {
    let mut kept = stem.len().min(Name::BYTES_MAX - mark.len() - extension.len());
    while kept < stem.len() && kept > 1 && stem[kept] & 0xc0 == 0x80 {
        kept -= 1;
    }
    Name::new(&[&stem[..kept], mark.as_bytes(), extension].concat()).expect("parts of names make a name")
}

/// The extension behind `SITE-YYYYMMDD-HHMMSS` and what tells equal ones apart; none if that is not what `bytes` are.
fn after_mark(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'.').unwrap_or(bytes.len());
    let (mark, extension) = bytes.split_at(end);
    let parts: Vec<&[u8]> = mark.split(|&byte| byte == b'-').collect();
    // A site's name may have hyphens in it, so the time is looked for from the end: a hash and a number may be behind it.
    let has_time = (1..parts.len().saturating_sub(1))
        .any(|at| is_time(parts[at], parts[at + 1]) && parts.len() - at <= 4);
    let is_one =
        extension.len() <= EXTENSION_BYTES_MAX && !extension[extension.len().min(1)..].contains(&b'.');
    (has_time && is_one).then_some(extension)
}

fn site_of(site: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = site.chars().take(SITE_BYTES_MAX).map(plain).collect();
    if name.is_empty() { "site".to_owned() } else { name }
}

/// `YYYYMMDD-HHMMSS` in UTC.
fn time_of(stamp: HybridStamp) -> String {
    let secs = stamp.time_us / 1_000_000;
    let (day, second) = (secs / SECONDS_A_DAY, secs % SECONDS_A_DAY);
    let (year, month, day) = date_of(day);
    format!(
        "{:04}{month:02}{day:02}-{:02}{:02}{:02}",
        year.min(9999),
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The date so many days after 1970-01-01. Years are counted from March on, so that a leap day is the last of its year.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn hash(mark: Mark<'_>) -> u128 {
    let link = mark.link.map_or((0, 0), |link| (link.writer.0, link.n));
    let bytes = [&mark.file.0.to_le_bytes()[..], &link.0.to_le_bytes(), &link.1.to_le_bytes()].concat();
    hash_128(0x6265_7369_6465, &bytes)
}

/// 128 bits by which `bytes` are told from others. Nobody who could profit from two that are equal can choose them.
pub(crate) fn hash_128(key: u64, bytes: &[u8]) -> u128 {
    (u128::from(siphash24(key, 1, bytes)) << 64) | u128::from(siphash24(key, 2, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_causal::Writer;

    fn name(bytes: &[u8]) -> Name {
        Name::new(bytes).unwrap()
    }

    fn mark(site: &str) -> Mark<'_> {
        // 2024-02-29 12:34:56 UTC.
        let stamp = HybridStamp { time_us: 1_709_210_096_000_000, writer: Writer(1) };
        Mark { site, stamp, file: FileId(7), link: None }
    }

    #[test]
    fn a_name_beside_says_who_and_when() {
        let of = |bytes: &[u8]| {
            let names: Vec<String> =
                beside(&name(bytes), mark("ann")).take(2).map(|name| name.to_string()).collect();
            names.join(" ")
        };
        assert_eq!(of(b"a.txt"), "a.~ann-20240229-123456.txt a.~ann-20240229-123456-2.txt");
        assert_eq!(of(b"a"), "a.~ann-20240229-123456 a.~ann-20240229-123456-2");
        assert_eq!(of(b".profile"), ".profile.~ann-20240229-123456 .profile.~ann-20240229-123456-2");
        assert_eq!(of(b"a.tar.gz"), "a.tar.~ann-20240229-123456.gz a.tar.~ann-20240229-123456-2.gz");
    }

    #[test]
    fn a_mark_says_which_site_and_when() {
        for (site, shown) in
            [("ann", "ann"), ("a-b", "a-b"), ("x-20240229-1", "x-20240229-1"), ("n.1", "n_1")]
        {
            for beside_it in beside(&name(b"a.tar.gz"), mark(site)).take(3) {
                let mark = mark_of(&beside_it).unwrap();
                assert_eq!(
                    (mark.site.as_str(), mark.time.as_str()),
                    (shown, "2024-02-29 12:34:56"),
                    "{beside_it}"
                );
            }
        }
        for plain in [&b"a.txt"[..], b"a", b"a.~b", b"a.~-20240229-123456", b"a.20240229-123456"] {
            assert_eq!(mark_of(&name(plain)).is_some(), unmarked(&name(plain)).is_some());
        }
    }

    #[test]
    fn marks_are_not_stacked() {
        for plain in [&b"a.txt"[..], b"a", b".profile", b"a.tar.gz", b"a.~b", b"a.20240229-123456"] {
            for site in ["ann", "a-b", "x-20240229-1", "\u{e9}/"] {
                for beside_it in beside(&name(plain), mark(site)).take(3) {
                    assert_eq!(unmarked(&beside_it), Some(name(plain)), "{beside_it}");
                    let again = beside(&beside_it, mark("bob")).next().unwrap();
                    assert_eq!(unmarked(&again), Some(name(plain)), "{again}");
                }
            }
            assert_eq!(unmarked(&name(plain)), None);
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = |end: u8| name(&[&[b'x'; 240][..], &[end], b".txt"].concat());
        let first = beside(&long(b'a'), mark("ann")).next().unwrap();
        let other = Mark { file: FileId(8), ..mark("ann") };
        let second = beside(&long(b'b'), other).next().unwrap();
        assert_ne!(first, second);
        assert!(first.as_bytes().len() <= Name::BYTES_MAX && first.as_bytes().ends_with(b".txt"));
        let wide = name("\u{e9}".repeat(127).as_bytes());
        assert!(std::str::from_utf8(beside(&wide, mark("ann")).next().unwrap().as_bytes()).is_ok());
        // What is behind the last dot is no extension if it is long.
        let dotted = name(&[&b"a."[..], &[b'y'; 250]].concat());
        assert!(beside(&dotted, mark(&"s".repeat(99))).nth(9).unwrap().as_bytes().starts_with(b"a.yyy"));
    }

    #[test]
    fn names_beside_a_name_follow_each_other() {
        let long = [&b"x"[..], &"\u{e9}".repeat(120).into_bytes(), b".txt"].concat();
        for plain in [&b"a.txt"[..], b"a", b"a.~bob-20240229-123456.txt", b"a.20240229-123456", &long] {
            for site in ["ann", "a-b", "x-20240229-1"] {
                let names: Vec<Name> = beside(&name(plain), mark(site)).take(12).collect();
                for two in names.windows(2) {
                    assert_eq!(following(&two[0]).as_ref(), Some(&two[1]));
                }
            }
        }
        assert_eq!(following(&name(b"a.txt")), None);
        let users = [&b"a.~"[..], &[b's'; 236], b"-20240229-123456"].concat();
        assert_eq!(users.len(), Name::BYTES_MAX);
        assert_eq!(following(&name(&users)), None);
    }

    #[test]
    fn days_are_dates() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_454, (2026, 1, 1)),
        ] {
            assert_eq!(date_of(day), date);
        }
    }
}
