//! `atoll ls --atomic`: every name of a tree as of one moment, over all islands. It prints the whole list, or
//! an error.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use atoll_core::{Time, VolumePath};
use atoll_posix::{Attr, Kind};
use atoll_route::ListedFile;
use atoll_volume::kind::{Manner, attach};
use atoll_volume::reach::InMount;
use atoll_volume::source::Source;
use serde_json::{Value, json};

use crate::say;

/// Milliseconds until the islands must have been quiet at once.
const PATIENCE_MS: u64 = 10_000;

/// Arguments of `atoll ls`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "atoll ls --atomic PATH [--json]\n       \
    atoll ls --atomic HOST:PORT[,HOST:PORT...]:/VOLUME[/PATH] [--json]")]
pub(crate) struct Ls {
    /// A file or directory in a mounted volume, or in a volume of other machines. Everything below it is
    /// listed
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// List the tree as of one moment, while it may be changed. For anything else use ls(1)
    #[arg(long, required = true)]
    atomic: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(crate) fn run(self) -> Result<()> {
        let (volume, names) = match elsewhere(&self.path) {
            Some((source, path)) => {
                let names = VolumePath::parse(path.as_bytes());
                let names = names.map_err(|e| anyhow!("{path} cannot be a path: {e}."))?;
                (source.parse::<Source>()?.find()?.reach(None)?, names)
            }
            None => {
                let place = InMount::of(&self.path)?;
                (place.reach()?, place.names)
            }
        };
        let attached = attach(volume, Manner::tool(PATIENCE_MS))?;
        let listed = attached.list(names, &self.path);
        attached.stop();
        let listed = listed?;
        let shown = self.path.as_os_str().as_bytes();
        if self.json {
            let names: Vec<Value> = listed.iter().map(|row| to_json(shown, row)).collect();
            say::json(&json!({ "path": self.path.display().to_string(), "names": names }));
            return Ok(());
        }
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for row in &listed {
            // Nobody may be there to read it.
            if writeln!(out, "{}", line(shown, row)).is_err() {
                break;
            }
        }
        let _ = out.flush();
        Ok(())
    }
}

/// A volume that is named by its nodes, and a path in it.
fn elsewhere(named: &Path) -> Option<(String, String)> {
    let text = named.to_str().filter(|_| std::fs::symlink_metadata(named).is_err())?;
    let (host, rest) = match text.strip_prefix("unix:") {
        Some(socket) => {
            let (_, rest) = socket.rsplit_once(":/")?;
            (&text[..text.len() - rest.len() - 2], rest)
        }
        None => text.split_once(":/")?,
    };
    let (volume, path) = rest.split_once('/').unwrap_or((rest, ""));
    Some((format!("{host}:/{volume}"), format!("/{path}")))
}

const fn letter(kind: Kind) -> char {
    match kind {
        Kind::Regular => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    }
}

/// Type and permissions, as ls(1) shows them.
fn mode(attr: &Attr) -> String {
    let mut out = String::from(letter(attr.kind));
    for (shift, special, on, off) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = attr.mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (true, true) => on,
            (true, false) => off,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// UTC, to the second: listings of several machines can be compared.
pub(crate) fn time(time: Time) -> String {
    let (days, secs) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    // Days since 0000-03-01, so that a leap day is a year's last.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

/// The path as it was asked for, and below it.
fn path_of(shown: &[u8], row: &ListedFile) -> Vec<u8> {
    if row.path.is_empty() {
        return shown.to_vec();
    }
    let slash: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
    [shown, slash, &row.path].concat()
}

/// Names may hold newlines; a line is a line.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                c.to_string().bytes().for_each(|b| write!(out, "\\{b:03o}").expect("a string takes all"));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|b| write!(out, "\\{b:03o}").expect("a string takes all"));
    }
    out
}

fn line(shown: &[u8], row: &ListedFile) -> String {
    let attr = &row.attr;
    let size = match attr.kind {
        Kind::CharDevice | Kind::BlockDevice => {
            format!("{},{}", rustix::fs::major(attr.rdev.into()), rustix::fs::minor(attr.rdev.into()))
        }
        _ => attr.size.to_string(),
    };
    let target = row.target.as_ref().map(|to| format!(" -> {}", printable(to))).unwrap_or_default();
    format!(
        "{} {:>3} {:>5} {:>5} {size:>10} {} {}{target}",
        mode(attr),
        attr.nlink,
        attr.uid,
        attr.gid,
        time(attr.mtime),
        printable(&path_of(shown, row)),
    )
}

fn to_json(shown: &[u8], row: &ListedFile) -> Value {
    let attr = &row.attr;
    let at = |time: Time| format!("{}.{:09}", time.secs, time.nanos);
    json!({
        "path": String::from_utf8_lossy(&path_of(shown, row)),
        "printable": printable(&path_of(shown, row)),
        "id": attr.ino.0,
        "kind": format!("{:?}", attr.kind).to_lowercase(),
        "mode": format!("{:04o}", attr.mode),
        "links": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "size": attr.size,
        "atime": at(attr.atime),
        "mtime": at(attr.mtime),
        "ctime": at(attr.ctime),
        "target": row.target.as_ref().map(|to| String::from_utf8_lossy(to)),
        "island": row.island.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let at = |secs| time(Time { secs, nanos: 0 });
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn a_volume_of_other_machines_is_told_from_a_path() {
        let of = |text: &str| elsewhere(Path::new(text)).map(|(s, p)| format!("{s} {p}"));
        assert_eq!(of("a:1,b:2:/home"), Some("a:1,b:2:/home /".into()));
        assert_eq!(of("a:1:/home/x/y"), Some("a:1:/home /x/y".into()));
        assert_eq!(of("unix:/run/s.sock:/home/x"), Some("unix:/run/s.sock:/home /x".into()));
        assert_eq!(of("/nowhere/at/all"), None);
        assert_eq!(of("/"), None);
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(printable(b"a\nb\\\xff\xc3\xa9"), "a\\012b\\134\\377\u{e9}");
    }
}
