//! `atoll trash`: what other sites of a wide volume have removed or replaced here.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use atoll_core::Time;
use atoll_proto::TrashTold;
use atoll_volume::wide::WideTrash;
use serde_json::json;

use crate::{ls, say};

/// Arguments of `atoll trash`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrashCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List what other sites have removed or replaced at this one, the oldest first
    List(List),
    /// Give something a name again, as a new file that all sites get
    Restore(Restore),
    /// Remove all of it from this site for good
    Empty(Empty),
}

#[derive(Debug, clap::Args)]
struct List {
    /// A path in a mounted wide volume
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Restore {
    /// What, as "atoll trash list" names it
    #[arg(value_name = "ID")]
    id: String,
    /// Its new path in the mounted volume, or a directory there in which it gets the name that it had
    #[arg(default_value = ".")]
    to: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Empty {
    /// A path in a mounted wide volume
    #[arg(default_value = ".")]
    path: PathBuf,
}

impl TrashCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::List(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Empty(command) => command.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let trash = WideTrash::of(&self.path)?;
        say::list(self.json, |visit| trash.list(visit), for_programs, for_people)
    }
}

impl Restore {
    fn run(self) -> Result<()> {
        let key = key(&self.id).ok_or_else(|| {
            anyhow!("{} is no id of something in the trash.\n\"atoll trash list\" shows them.", self.id)
        })?;
        let to = WideTrash::restore(key, &self.to)?;
        say::line(format_args!("{} is there again", to.display()));
        Ok(())
    }
}

impl Empty {
    fn run(self) -> Result<()> {
        let gone = WideTrash::of(&self.path)?.empty()?;
        let files =
            if gone.bodies == 1 { "1 file is".to_owned() } else { format!("{} files are", gone.bodies) };
        say::line(format_args!("{files} gone from this site, with {}", say::bytes(gone.bytes)));
        Ok(())
    }
}

fn for_people(told: &TrashTold) -> String {
    let time = ls::time(Time { secs: (told.since_ms / 1_000) as i64, nanos: 0 });
    let (id, why, by, size) = (id(told.key), why(told), &told.by, say::bytes(told.size));
    format!("{id}  {time}  {size:>10}  {why:<8} by {by:<12}  {}", ls::printable(&told.path))
}

fn for_programs(told: &TrashTold) -> serde_json::Value {
    json!({
        "id": id(told.key),
        "path": String::from_utf8_lossy(&told.path),
        "kind": if told.is_link { "link" } else { "file" },
        "why": why(told),
        "site": told.by,
        "since_ms": told.since_ms,
        "size": told.size,
        "disk_bytes": told.takes,
    })
}

const fn why(told: &TrashTold) -> &'static str {
    if told.is_replaced { "replaced" } else { "removed" }
}

/// The time in microseconds, and the number of the body.
fn id(key: u128) -> String {
    format!("{:x}-{:x}", key >> 64, key as u64)
}

fn key(id: &str) -> Option<u128> {
    let (since, ino) = id.split_once('-')?;
    let part = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
    Some(u128::from(part(since)?) << 64 | u128::from(part(ino)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_what_it_was_made_of() {
        for key_of in [0, 1, u128::MAX, 0x64d2_0000_0000_0000_1234_5678] {
            assert_eq!(key(&id(key_of)), Some(key_of));
        }
        for bad in ["", "-", "1", "1-", "g-1", "+1-1", "1-1-1", "1ffffffffffffffff-1"] {
            assert_eq!(key(bad), None, "{bad}");
        }
    }
}
