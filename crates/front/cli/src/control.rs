//! `atoll control`: where the records of groups are.

use std::path::Path;

use anyhow::{Result, bail};
use atoll_proto::ControlPlace;
use atoll_rpc::Address;
use atoll_volume::control::{Told, status};
use atoll_volume::control_move::{Moved, move_groups};
use atoll_volume::control_rebuild::{Anew, rebuild};
use atoll_volume::machines::LISTEN;
use atoll_volume::members::Members;
use atoll_volume::status::first_line;
use serde_json::json;

use crate::machines::place;
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
    /// Move the records from a node's own store into an etcd. The node is stopped, and all others run
    Move(Move),
    /// Make the records in etcd anew from what copies remember, after etcd has lost them. All nodes run
    Rebuild(OfData),
}

#[derive(Debug, clap::Args)]
struct Move {
    /// Where to: "own" runs an etcd of the cluster's own, etcd://HOST:PORT,... is one that is there
    #[arg(value_name = "PLACE", value_parser = place)]
    to: ControlPlace,
    /// Where the node listens, if its member of the cluster's own etcd shall listen elsewhere than at all addresses
    #[arg(long, value_name = "HOST:PORT", default_value = LISTEN)]
    listen: Address,
    #[command(flatten)]
    of: OfData,
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
            Command::Status(Status { of, .. }) | Command::Move(Move { of, .. }) | Command::Rebuild(of) => {
                &of.data
            }
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Status(status) => status.run(),
            Command::Move(moved) => moved.run(),
            Command::Rebuild(of) => {
                let Anew { place, groups } = rebuild(&of.data)?;
                say::line(format_args!("rebuilt  {groups} records in {place}"));
                Ok(())
            }
        }
    }
}

impl Move {
    fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let Address::Tcp { host, .. } = &self.listen else {
            bail!("{} reaches no other machine.\nName HOST:PORT.", self.listen);
        };
        let Moved { place, groups, others } = move_groups(&self.of.data, &self.to, host)?;
        say::line(format_args!("moved    {groups} records to {place}"));
        say::line("next     start this node again");
        if !others.is_empty() {
            say::line(format_args!(
                "         then stop and start one after the other: {}. Until then each asks this node for the records",
                others.join(", ")
            ));
        }
        Ok(())
    }
}

impl Status {
    fn run(self) -> Result<()> {
        let list = Members::of_data(&self.of.data)?.list(Some(&self.of.data))?;
        let Some(Told { place, members, .. }) = status(&self.of.data, &list.cluster)? else {
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
