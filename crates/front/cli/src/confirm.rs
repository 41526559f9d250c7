//! `atoll confirm`: whether every site of a wide volume has something durably, or which have not.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use atoll_core::Ino;
use atoll_proto::{SiteOrder, SiteReply, VolumeKind};
use atoll_volume::places::walk;
use atoll_volume::reach::InMount;
use atoll_volume::wide::SiteAsk;
use serde_json::json;

use crate::say;

/// Objects that are asked about at once.
const AT_ONCE: usize = 256;
/// Pause before it is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// Arguments of `atoll confirm`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfirmCommand {
    /// A file, or a directory with all that is below it, in a mounted wide volume
    path: PathBuf,
    /// For so many seconds it is waited until every site has it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl ConfirmCommand {
    /// Whether every site has it.
    pub(crate) fn run(self) -> Result<bool> {
        let place = InMount::of(&self.path)?;
        let (asked, config) = SiteAsk::of_mount(&place)?;
        if config.kind != VolumeKind::Wide {
            bail!(
                "{} is in volume {}, which is of the kind {}: it has no sites.\nName a path in a wide volume.",
                self.path.display(),
                config.name,
                config.kind
            );
        }
        let until = Instant::now() + Duration::from_secs(self.wait);
        let mut inos = Vec::new();
        walk(&place.path, &mut |_, meta| inos.push(Ino(meta.ino())))?;
        let (mut not_ready, mut lacking) = (0, Vec::new());
        for some in inos.chunks(AT_ONCE) {
            loop {
                let order = SiteOrder::Confirm { volume: config.name.clone(), inos: some.to_vec() };
                let SiteReply::Confirmed { not_ready: early, sites } = asked.order(order)? else {
                    bail!("The node gives another answer than that.")
                };
                let is_there = early == 0 && sites.iter().all(|(_, lacks)| *lacks == Some(0));
                if is_there || Instant::now() >= until {
                    not_ready += early;
                    add(&mut lacking, sites);
                    break;
                }
                std::thread::sleep(AGAIN);
            }
        }
        let is_there = not_ready == 0 && lacking.iter().all(|(_, lacks)| *lacks == Some(0));
        self.tell(inos.len(), not_ready, &lacking, is_there);
        Ok(is_there)
    }

    fn tell(&self, objects: usize, not_ready: u32, sites: &[(String, Option<u64>)], is_there: bool) {
        if self.json {
            let sites: Vec<_> = sites
                .iter()
                .map(|(name, lacks)| json!({ "name": name, "reached": lacks.is_some(), "lacks": lacks }))
                .collect();
            say::json(
                &json!({ "confirmed": is_there, "objects": objects, "not_ready": not_ready, "sites": sites }),
            );
            return;
        }
        let what =
            if objects == 1 { "it".to_owned() } else { format!("all {objects} files and directories") };
        if is_there {
            say::line(format_args!("Every site has {what} durably."));
            return;
        }
        if not_ready > 0 {
            say::line(format_args!(
                "{not_ready} of {objects} have changes here that no other site can have yet: somebody writes to them, or their bytes \
                have not come"
            ));
        }
        for (name, lacks) in sites {
            match lacks {
                None => say::line(format_args!("{name:<16} was not reached")),
                Some(0) => say::line(format_args!("{name:<16} has {what}")),
                Some(lacks) => say::line(format_args!("{name:<16} lacks {lacks} of {objects}")),
            }
        }
    }
}

/// Adds up what sites lack. One that was not reached once was not reached.
fn add(all: &mut Vec<(String, Option<u64>)>, some: Vec<(String, Option<u32>)>) {
    for (name, lacks) in some {
        let lacks = lacks.map(u64::from);
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = known.zip(lacks).map(|(a, b)| a + b),
            None => all.push((name, lacks)),
        }
    }
}
