//! `atoll conflicts`: files of wide volumes that are shown beside the name that another one has, and what was settled without one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use atoll_core::Time;
use atoll_proto::{SettledOutcome, SettledTold};
use atoll_volume::wide::{Keep, WideConflict, conflicts, conflicts_of, resolve, settled};
use clap::ValueEnum;
use serde_json::json;

use crate::{ls, say};

/// Arguments of `atoll conflicts`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConflictsCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List conflicts at a path of a mounted wide volume, and below
    List(List),
    /// Show what is known of the conflicts of one file
    Show(Show),
    /// Resolve a conflict: at all sites, as by mv(1) and rm(1)
    Resolve(Resolve),
    /// List what this site has settled without a file beside a name, at a path and below, for 90 days; the oldest first
    Log(Log),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Where to begin
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Log {
    /// Where
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The file, or one that is shown beside it
    path: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Resolve {
    /// The file, or one that is shown beside it
    path: PathBuf,
    /// Which file stays: this one, the other one, or both under names of their own
    #[arg(long, value_enum)]
    keep: Kept,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kept {
    This,
    Other,
    Both,
}

impl ConflictsCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::List(command) => command.run(),
            Command::Show(command) => command.run(),
            Command::Resolve(command) => command.run(),
            Command::Log(command) => command.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let for_people = |one: &WideConflict| one.path.display().to_string();
        say::list(self.json, |visit| conflicts(&self.path, visit), for_programs, for_people)
    }
}

impl Log {
    fn run(self) -> Result<()> {
        say::list(self.json, |visit| settled(&self.path, visit), settled_for_programs, settled_for_people)
    }
}

fn settled_for_people(told: &SettledTold) -> String {
    let time = ls::time(Time { secs: (told.time_ms / 1_000) as i64, nanos: 0 });
    let name = |site: &Option<String>| site.clone().unwrap_or_else(|| "another site".to_owned());
    let (kept, other) = (name(&told.kept), name(&told.other));
    let about = match told.outcome {
        SettledOutcome::Kept => format!("removed at {other}, changed at {kept}: it is there with the change"),
        SettledOutcome::Revived => {
            "removed at one site, and another one put something into it: it is there with that".to_owned()
        }
        SettledOutcome::Renamed => {
            format!("renamed at {other} and at {kept}: it has the name of the later rename")
        }
        SettledOutcome::NotMoved => format!(
            "the move at {other} has no effect: with one at {kept} it would be below itself. Move it again."
        ),
    };
    format!("{time}  {}  {about}", ls::printable(&told.path))
}

fn settled_for_programs(told: &SettledTold) -> serde_json::Value {
    let outcome = match told.outcome {
        SettledOutcome::Kept => "kept",
        SettledOutcome::Revived => "revived",
        SettledOutcome::Renamed => "renamed",
        SettledOutcome::NotMoved => "not-moved",
    };
    json!({
        "time_ms": told.time_ms,
        "path": String::from_utf8_lossy(&told.path),
        "outcome": outcome,
        "kept": told.kept,
        "other": told.other,
    })
}

impl Show {
    fn run(self) -> Result<()> {
        let all = conflicts_of(&self.path)?;
        if self.json {
            say::json(&json!(all.iter().map(for_programs).collect::<Vec<_>>()));
            return Ok(());
        }
        let Some(first) = all.first() else {
            say::line(format_args!("{} has no conflict.", self.path.display()));
            return Ok(());
        };
        say::line(format_args!("{}  {}", first.of.display(), about(&first.of)?));
        for one in &all {
            say::line(format_args!("{}  {}", one.path.display(), about(&one.path)?));
            say::line(format_args!(
                "  changed at {} on {} UTC by somebody who had not seen what has the name now",
                one.mark.site, one.mark.time
            ));
        }
        Ok(())
    }
}

fn about(path: &Path) -> Result<String> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok("a directory".to_owned()),
        Ok(meta) => {
            let changed = ls::time(Time { secs: meta.mtime(), nanos: 0 });
            Ok(format!("{}  changed {changed}", say::bytes(meta.len())))
        }
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok("nothing has this name".to_owned()),
        Err(why) => Err(why).with_context(|| format!("{} cannot be looked at", path.display())),
    }
}

impl Resolve {
    fn run(self) -> Result<()> {
        let keep = match self.keep {
            Kept::This => Keep::This,
            Kept::Other => Keep::Other,
            Kept::Both => Keep::Both,
        };
        resolve(&self.path, keep)?.into_iter().for_each(say::line);
        Ok(())
    }
}

fn for_programs(one: &WideConflict) -> serde_json::Value {
    let size = |path: &Path| std::fs::symlink_metadata(path).ok().map(|meta| meta.len());
    json!({
        "path": one.path.display().to_string(),
        "of": one.of.display().to_string(),
        "site": one.mark.site,
        "time": one.mark.time,
        "size": size(&one.path),
        "size_of": size(&one.of),
    })
}
