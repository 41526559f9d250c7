//! `atoll rebuild`: a volume's state made anew from the plain trees of its islands alone.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use atoll_control::{ControlStore, DataDir, EmbeddedStore};
use atoll_core::IslandId;
use atoll_proto::VolumeConfig;
use atoll_rebuild::{Options, Progress, Summary, rebuild};
use serde_json::json;

use crate::say;
use atoll_volume::node::{open_island, options};

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Arguments of `atoll rebuild`.
#[derive(Debug, clap::Args)]
pub(crate) struct Rebuild {
    /// The data directory; its daemon must not run. All islands of the volume must lie in it. If they have copies: the
    /// data directories of all nodes
    #[arg(long, value_name = "DIR", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    /// Name of the volume
    #[arg(long, default_value = "main")]
    volume: String,
    /// Carry it out. Without this option, the command only says what it would do
    #[arg(long)]
    yes: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Rebuild {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let dirs = self.data.iter().map(|data| DataDir::open(data)).collect::<Result<Vec<_>, _>>()?;
        let (dir, shown_data) = (&dirs[0], self.data[0].display());
        let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
        let volumes = store.volumes()?;
        let Some(config) = volumes.iter().find(|v| v.name == self.volume) else {
            let data = shown_data;
            if atoll_server::volumes_kept(dir.path())?.contains(&self.volume) {
                bail!(
                    "The control store in {data} does not know volume {0}, but its folder is there.\n\
                    Take it up first: atoll volume adopt {0} --data {data}",
                    self.volume
                );
            }
            let names: Vec<_> = volumes.iter().map(|v| v.name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("There is no volume {} in {data}.\nThere is: {there}.", self.volume);
        };
        atoll_volume::kind::of_volume(config)?;
        if config.copies.is_some() {
            return say_steps(&dirs.iter().collect::<Vec<_>>(), config);
        }
        if dirs.len() > 1 {
            bail!(
                "The islands of volume {} have no copies: all must lie in one data directory.\n\
                Bring their folders ({}/{}/ISLAND) into one, and name that.",
                config.name,
                atoll_server::ISLANDS,
                config.name,
            );
        }
        let folder = dir.path().join(atoll_server::ISLANDS).join(&config.name);
        let is_there = |island: &IslandId| folder.join(island.to_string()).is_dir();
        if let Some(island) = config.islands().into_iter().find(|island| !is_there(island)) {
            let place = folder.join(island.to_string());
            bail!(
                "Island {island} of volume {} is not in {}: all are needed at once, those of other nodes too.\n\
                Put its folder there. If it is lost, this keeps what the others have, once you have done:\n\
                mkdir -p {1}/tree {1}/bodies",
                self.volume,
                place.display(),
            );
        }
        if !self.yes {
            bail!(
                "This makes a new state of volume {} from the files in {}/*/tree.\n\
                 The old state and logs are set aside, not removed; ids of directories change.\n\
                 To do it: atoll rebuild --data {} --volume {0} --yes",
                self.volume,
                folder.display(),
                shown_data,
            );
        }
        let mut islands = BTreeMap::new();
        for island in config.islands() {
            islands.insert(island, open_island(&folder, island, false)?);
        }
        let node = options(dir, dir.identity().incarnation);
        let options = Options { root: node.root, devices: node.devices, log: node.log };
        let mut shown = Shown { at: Instant::now(), quiet: self.json || !std::io::stderr().is_terminal() };
        let summary = rebuild(config, &islands, &options, &mut |progress| shown.show(&progress))?;
        shown.end();
        atoll_server::forget_reached(&folder)?;
        if self.json {
            say::json(&as_json(&summary))
        } else {
            show(&summary)
        }
        Ok(())
    }
}

/// Of a volume with copies nothing is made: what can be done instead is said.
fn say_steps(dirs: &[&DataDir], config: &VolumeConfig) -> Result<()> {
    let steps = atoll_volume::lost::steps(dirs, config)?;
    steps.lines.iter().for_each(say::line);
    let name = &config.name;
    if steps.has_state {
        bail!(
            "Volume {name} needs no rebuild: a copy of each island can be opened. Nothing was changed.\n\
            Put these in the place of the others, as is said above, and start the nodes."
        );
    }
    say::line("What is left, as plain files, for a new volume that is mounted at DIR:");
    for tree in &steps.trees {
        say::line(format_args!("  cp -a {}/. DIR", tree.display()));
    }
    bail!(
        "Volume {name} has copies, and is not rebuilt in its place. Nothing was changed.\n\
        First name the data directories of all nodes: another copy may be whole (--data DIR...).\n\
        If none is: atoll volume create NEW --nodes ... --replicas {}, mount it, and copy as is said above.",
        config.copies.as_ref().map_or(1, |copies| copies.wanted),
    )
}

/// A line of progress that is written over.
struct Shown {
    at: Instant,
    quiet: bool,
}

impl Shown {
    fn show(&mut self, progress: &Progress) {
        if self.quiet || self.at.elapsed() < SHOWN_EVERY {
            return;
        }
        self.at = Instant::now();
        let text = match progress {
            Progress::Scanned { dirs, files, .. } => format!("{dirs} directories, {files} files found"),
            Progress::Read { files, of_files, bytes } => {
                format!("{files} of {of_files} files read, {}", say::bytes(*bytes))
            }
            Progress::Laid { island } => format!("island {island} is in place"),
        };
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }

    fn end(&self) {
        if !self.quiet {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn show(summary: &Summary) {
    say::line(format_args!(
        "{} directories, {} files, {} names, {}: rebuilt.",
        summary.dirs,
        summary.files,
        summary.names,
        say::bytes(summary.bytes)
    ));
    say::line(format_args!("The old state is set aside with the ending .old-{}.", summary.set_aside));
    for (count, what) in [
        (summary.adopted, "files that were put there by hand are part of it now"),
        (summary.pointers, "names are of files that lie on another island than their directory"),
        (summary.nameless, "bodies have no name; they stay among the bodies"),
        (summary.left_out_count, "things could not be taken in"),
    ] {
        if count > 0 {
            say::line(format_args!("{count} {what}"));
        }
    }
    for left in &summary.left_out {
        say::line(format_args!("  left out: {left:?}"));
    }
    for why in &summary.not_laid {
        say::line(format_args!("  not laid: {why}"));
    }
}

fn as_json(summary: &Summary) -> serde_json::Value {
    json!({
        "dirs": summary.dirs,
        "files": summary.files,
        "names": summary.names,
        "bytes": summary.bytes,
        "adopted": summary.adopted,
        "pointers": summary.pointers,
        "rescued": summary.rescued,
        "nameless": summary.nameless,
        "left_out": summary.left_out_count,
        "set_aside": summary.set_aside,
    })
}
