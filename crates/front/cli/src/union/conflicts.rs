//! `atoll union conflicts`, `resolve` and `undelete`: names that several members have, and files that were deleted by mistake.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use atoll_core::Time;
use atoll_proto::union::{HomeTold, NameTold, RoleTold};
use atoll_volume::places::absolute;
use atoll_volume::reach::InMount;
use atoll_volume::union::ask::ShownUnion;
use atoll_volume::union::name_json;
use serde_json::{Value, json};

use crate::say;

/// Directories that are asked for at once.
const BATCH: usize = 64;

/// Arguments of `atoll union conflicts`.
#[derive(Debug, clap::Args)]
pub(super) struct Conflicts {
    /// The union's name, or its mount point
    #[arg(value_name = "NAME|MOUNT")]
    which: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Conflicts {
    pub(super) fn run(self, state: Option<&Path>) -> Result<()> {
        let union = ShownUnion::named(state, &self.which)?;
        let point = union.mount.path.clone();
        let device =
            std::fs::metadata(&point).with_context(|| format!("{} cannot be read", point.display()))?.dev();
        let (mut left, mut unread, mut found) = (VecDeque::from([point]), Vec::new(), Vec::new());
        while !left.is_empty() {
            let dirs: Vec<PathBuf> = left.drain(..left.len().min(BATCH)).collect();
            for dir in &dirs {
                match below(dir, device) {
                    Ok(more) => left.extend(more),
                    Err(why) => unread.push(format!("{}: {why}", dir.display())),
                }
            }
            for (dir, told) in union.conflicts(&dirs, &mut unread)? {
                let path = told
                    .name
                    .as_ref()
                    .map_or(dir.clone(), |name| dir.join(OsStr::from_bytes(name.as_bytes())));
                match self.json {
                    true => found.push(to_json(&path, &told)),
                    false => show(&path, &told),
                }
            }
        }
        if self.json {
            say::json(&Value::Array(found));
        }
        unread.dedup();
        match unread.first() {
            None => Ok(()),
            Some(first) => bail!(
                "{} directories could not be read whole, so conflicts may be missing. The first: {first}.\n\
                \"atoll union status\" shows which members answer.",
                unread.len()
            ),
        }
    }
}

/// The directories in a directory of this file system.
fn below(dir: &Path, device: u64) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    match std::fs::symlink_metadata(dir) {
        Ok(meta) if meta.dev() == device => {}
        // Something else is mounted there, or it has gone.
        _ => return Ok(found),
    }
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn to_json(path: &Path, told: &NameTold) -> Value {
    let mut value = name_json(told);
    value["path"] = json!(path.display().to_string());
    value
}

fn show(path: &Path, told: &NameTold) {
    say::line(path.display());
    for home in &told.homes {
        let word = match &home.role {
            RoleTold::Shown => "shown",
            RoleTold::Part => "directory",
            RoleTold::Beside { .. } => "beside",
            RoleTold::Behind => "behind",
            RoleTold::Twin => "copy",
        };
        let why = if home.role == RoleTold::Shown { told.why.as_str() } else { "" };
        say::line(
            format_args!("  {word:<9}  {}  {}  {why}", home.member, about(home)).to_string().trim_end(),
        );
    }
    for (member, why) in &told.unasked {
        say::line(format_args!("  unknown    {member}  {why}"));
    }
}

fn about(home: &HomeTold) -> String {
    let Time { secs, .. } = home.mtime;
    format!("{}  changed {}", say::bytes(home.size), crate::ls::time(Time { secs, nanos: 0 }))
}

/// Arguments of `atoll union resolve`.
#[derive(Debug, clap::Args)]
pub(super) struct Resolve {
    /// A file in a mounted union
    path: PathBuf,
    /// The member whose file stays; the files of this name in the others are removed
    #[arg(long, value_name = "DIR")]
    keep: PathBuf,
}

impl Resolve {
    pub(super) fn run(self) -> Result<()> {
        let place = InMount::of(&self.path)?;
        let union = ShownUnion::of(&place.mount.path)?;
        let removed = union.resolve(place.names, &absolute(&self.keep)?)?;
        removed.iter().for_each(|member| say::line(format_args!("removed from {member}")));
        if removed.is_empty() {
            say::line(format_args!("only {} has it", self.keep.display()));
        }
        Ok(())
    }
}

/// Arguments of `atoll union undelete`.
#[derive(Debug, clap::Args)]
pub(super) struct Undelete {
    /// Where the file was in the mounted union
    path: PathBuf,
}

impl Undelete {
    pub(super) fn run(self) -> Result<()> {
        let place = InMount::of(&self.path)?;
        ShownUnion::of(&place.mount.path)?.undelete(place.names)
    }
}
