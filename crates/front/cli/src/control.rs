//! `atoll control`: where the records of groups are.

use std::path::Path;

use anyhow::Result;
use atoll_volume::control::{Told, status};
use atoll_volume::members::Members;
use atoll_volume::status::first_line;
use serde_json::json;

use crate::node::OfData;
use crate::say;

/// Arguments of `atoll control`.
#[derive(Debug, clap::Args)]
pub(crate) struct Control {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show where the records are of which copy leads, and how that etcd is
    Status(Status),
}

#[derive(Debug, clap::Args)]
struct Status {
    #[command(flatten)]
    of: OfData,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Control {
    /// The data directory of the node that is asked.
    pub(crate) fn data(&self) -> &Path {
        match &self.command {
            Command::Status(Status { of, .. }) => &of.data,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Status(status) => status.run(),
        }
    }
}

impl Status {
    fn run(self) -> Result<()> {
        let list = Members::of_data(&self.of.data)?.list(Some(&self.of.data))?;
        let Some(Told { place, members }) = status(&self.of.data, &list.cluster)? else {
            if self.json {
                say::json(&json!({ "groups_in": null, "members": [] }));
            } else {
                say::line("groups   in the node that each volume names: \"atoll status\" shows it");
            }
            return Ok(());
        };
        if self.json {
            let members = members.iter().map(|(host, told)| match told {
                Ok(told) => json!({
                    "address": host.to_string(), "version": told.version, "leads": told.leader == Some(told.id),
                    "has_leader": told.leader.is_some(), "votes": !told.is_learner, "bytes": told.db_bytes, "problem": null,
                }),
                Err(why) => json!({ "address": host.to_string(), "problem": why.to_string() }),
            });
            say::json(&json!({ "groups_in": place, "members": members.collect::<Vec<_>>() }));
            return Ok(());
        }
        say::line(format_args!("groups   in {place}"));
        for (host, told) in &members {
            match told {
                Ok(told) => {
                    let does = match (told.is_learner, told.leader) {
                        (true, _) => "catches up, and has no vote yet",
                        (false, None) => "KNOWS NO LEADER: too many members are away",
                        (false, Some(leader)) if leader == told.id => "leads",
                        (false, Some(_)) => "follows",
                    };
                    let size = say::bytes(told.db_bytes);
                    say::line(format_args!("member   {host}  etcd {}  {size}  {does}", told.version));
                }
                Err(why) => say::line(format_args!(
                    "member   {host}  DOES NOT ANSWER: {}",
                    first_line(&why.to_string())
                )),
            }
        }
        Ok(())
    }
}
