//! `atoll doctor`: what is wrong with this machine, its node and the others, and what to do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use atoll_volume::doctor::{Diagnosis, Level, examine, worst};
use atoll_volume::machines::DATA;
use serde_json::Value;

use crate::say;

/// Arguments of `atoll doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The data directory of this machine's node. Without a node there, only the machine is examined
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// The data directory of the node that is asked, if one is there.
    pub(crate) fn data(&self) -> Option<&Path> {
        Some(&self.data)
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut all = examine(&self.data)?;
        // The worst comes last, where people look.
        all.sort_by_key(|one| one.level);
        if self.json {
            say::json(&all.iter().map(Diagnosis::json).collect::<Value>());
        } else {
            show(&all);
        }
        Ok(if worst(&all) == Level::Wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Tells people.
fn show(all: &[Diagnosis]) {
    for one in all {
        let level = match one.level {
            Level::Good => "good",
            Level::Advice => "advice",
            Level::Wrong => "WRONG",
        };
        say::line(format_args!("{level:<7} {:<12} {}", one.about, one.what));
        if !one.next.is_empty() {
            say::line(format_args!("{:<20} {}", "", one.next));
        }
    }
    let count = |level| all.iter().filter(|one| one.level == level).count();
    let advice = match count(Level::Advice) {
        0 => String::new(),
        n => format!(" {n} could be better."),
    };
    match count(Level::Wrong) {
        0 => say::line(format_args!("Nothing must be mended.{advice}")),
        n => say::line(format_args!("To be mended: {n}.{advice}")),
    }
}
