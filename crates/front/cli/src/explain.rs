//! `atoll explain`: where a file or directory is, and why there.

use std::path::PathBuf;

use anyhow::{Result, bail};
use atoll_volume::explain::{Explanation, explain, paths_of};
use serde_json::{Value, json};

use crate::say;

/// Arguments of `atoll explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// A file or directory in a mounted volume
    path: PathBuf,
    /// Explain the file or directory with this id, below the path: all directories there are read to find it
    #[arg(long, value_name = "ID")]
    id: Option<u64>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let Some(id) = self.id else {
            let report = explain(&self.path)?;
            match self.json {
                true => say::json(&Value::Object(report.json)),
                false => show(&report),
            }
            return Ok(());
        };
        let (found, unread) = paths_of(&self.path, id);
        let reports = found.iter().map(|path| explain(path)).collect::<Result<Vec<_>>>()?;
        let count = reports.len();
        if self.json {
            say::json(&json!(reports.into_iter().map(|report| report.json).collect::<Vec<_>>()));
        } else {
            reports.iter().for_each(show);
        }
        match (count, unread) {
            (0, 0) => bail!(
                "Nothing below {} has the id {id}.\nIt may be gone, or only open: \"atoll check\" tells more.",
                self.path.display()
            ),
            (_, 0) => Ok(()),
            (n, unread) => bail!(
                "{n} paths of id {id} were found, but {unread} directories could not be read.\n\
                \"atoll status\" shows which nodes are down."
            ),
        }
    }
}

fn show(report: &Explanation) {
    for (what, value) in &report.rows {
        say::line(format_args!("{what:<9}{value}"));
    }
}
