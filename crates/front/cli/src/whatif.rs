//! `atoll whatif`: what could not be reached if some nodes were down.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use atoll_proto::control::IslandWeight;
use atoll_volume::places::data_socket;
use atoll_volume::source::{Source, WHOM, mount_point, of_mount};
use atoll_volume::status::explain_down;
use atoll_volume::whatif::{Fate, Judged, WhatIf, whatif};
use serde_json::json;

use crate::say;

/// Arguments of `atoll whatif`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhatIfCommand {
    /// The nodes that are thought to be down: by name, number or address
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    down: Vec<String>,
    /// A mount point, or a node to ask
    #[arg(value_name = "DIR|HOST:PORT", conflicts_with = "data")]
    whom: Option<String>,
    /// Ask the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// The volume, if the node has several
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl WhatIfCommand {
    /// The data directory of the node that is asked, if one is named.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    pub(crate) fn run(self) -> Result<()> {
        let socket = self.data.as_deref().map(data_socket).transpose()?;
        let config = match (&self.whom, &socket) {
            (_, Some(socket)) => {
                let found = Source::of_socket(socket, self.volume.clone()).find();
                found.map_err(|why| explain_down(why, self.data.as_deref()))?.config
            }
            (Some(whom), None) if whom.contains(':') => {
                Source::of_daemon(whom.parse()?, self.volume.clone()).find()?.config
            }
            (Some(point), None) => of_mount(&mount_point(point)?)?.config,
            (None, None) => bail!("Whom to ask?\n{WHOM}"),
        };
        let told = whatif(config, &self.down)?;
        if self.json {
            say::json(&to_json(&told))
        } else {
            show(&told)
        }
        Ok(())
    }
}

const fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Lost => "unreachable",
        Fate::Waits => "waits",
        Fate::LastCopy => "last copy",
        Fate::Fine => "fine",
    }
}

/// The sum of what islands have; none if one of them could not be asked.
fn sum<'a>(islands: impl Iterator<Item = &'a Judged>) -> Option<(u64, u64)> {
    islands.map(|judged| judged.weight.as_ref()).try_fold((0, 0), |(dirs, bytes), weight| {
        weight.map(|IslandWeight { dirs: d, bytes: b, .. }| (dirs + d, bytes + b))
    })
}

fn show(told: &WhatIf) {
    let nodes =
        |all: &[atoll_core::NodeId]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    say::line(format_args!("volume {}", told.config.name));
    if !told.down.is_empty() {
        say::line(format_args!("down   nodes {}", nodes(&told.down)));
    }
    if !told.silent.is_empty() {
        say::line(format_args!("away   nodes {} do not answer now, and count as down", nodes(&told.silent)));
    }
    let buckets: usize = told.islands.iter().map(|judged| judged.buckets).sum();
    let whole = sum(told.islands.iter());
    for fate in [Fate::Lost, Fate::Waits, Fate::LastCopy, Fate::Fine] {
        let of_fate: Vec<&Judged> = told.islands.iter().filter(|judged| judged.fate == fate).collect();
        if of_fate.is_empty() {
            continue;
        }
        let what = match fate {
            Fate::Lost => "UNREACHABLE: no copy that has everything is left",
            Fate::Waits => "WAITS: a copy is left, but the node with the control store is down",
            Fate::LastCopy => "ONE COPY LEFT",
            Fate::Fine => "fine",
        };
        let islands: Vec<String> = of_fate.iter().map(|judged| judged.island.to_string()).collect();
        say::line(format_args!("{what}"));
        say::line(format_args!("  islands      {}", islands.join(", ")));
        let part: usize = of_fate.iter().map(|judged| judged.buckets).sum();
        match (sum(of_fate.iter().copied()), whole) {
            (Some((dirs, bytes)), Some((all_dirs, all_bytes))) => {
                say::line(format_args!(
                    "  directories  {dirs} of {all_dirs}, {}",
                    say::share(dirs, all_dirs.max(1))
                ));
                say::line(format_args!("  bytes        {} of {}", say::bytes(bytes), say::bytes(all_bytes)));
            }
            _ => say::line(format_args!("  directories  about {}", say::share(part as u64, buckets as u64))),
        }
    }
}

fn to_json(told: &WhatIf) -> serde_json::Value {
    let islands = told.islands.iter().map(|judged| {
        let weight = judged.weight.as_ref();
        json!({
            "island": judged.island.0,
            "fate": word(judged.fate),
            "copies": judged.copies,
            "left": judged.left.iter().map(|node| node.0).collect::<Vec<_>>(),
            "buckets": judged.buckets,
            "directories": weight.map(|weight| weight.dirs),
            "files": weight.map(|weight| weight.files),
            "bytes": weight.map(|weight| weight.bytes),
        })
    });
    json!({
        "volume": told.config.name,
        "down": told.down.iter().map(|node| node.0).collect::<Vec<_>>(),
        "away": told.silent.iter().map(|node| node.0).collect::<Vec<_>>(),
        "islands": islands.collect::<Vec<_>>(),
    })
}
