//! `atoll node`: the nodes of a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use atoll_control::rfc3339;
use atoll_volume::machines::{DATA, LINE_HOURS};
use atoll_volume::members::Members;
use serde_json::json;

use crate::say;

/// Arguments of `atoll node`.
#[derive(Debug, clap::Args)]
pub(crate) struct Node {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the nodes of the cluster
    List(List),
    /// Print a line by which one more machine may join
    Invite(Invite),
    /// Give a node another name
    Rename(Rename),
    /// Take a node out of the cluster: nobody lets it in any more
    Remove(Remove),
}

/// Which node of this machine is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct OfData {
    /// The data directory of a node of this machine, which is asked
    #[arg(long, value_name = "DIR", default_value = DATA)]
    pub(crate) data: PathBuf,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    of: OfData,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Invite {
    #[command(flatten)]
    of: OfData,
    /// How many hours the line holds
    #[arg(long, value_name = "N", default_value_t = LINE_HOURS, value_parser = clap::value_parser!(u64).range(1..=8760))]
    hours: u64,
}

#[derive(Debug, clap::Args)]
struct Rename {
    /// The node, by its name or id
    node: String,
    /// Its new name
    name: String,
    #[command(flatten)]
    of: OfData,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The node, by its name or id
    node: String,
    #[command(flatten)]
    of: OfData,
}

impl Node {
    /// The data directory of the node that is asked.
    pub(crate) fn data(&self) -> &Path {
        match &self.command {
            Command::List(List { of, .. })
            | Command::Invite(Invite { of, .. })
            | Command::Rename(Rename { of, .. })
            | Command::Remove(Remove { of, .. }) => &of.data,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Invite(Invite { of, hours }) => {
                let valid = Duration::from_secs(hours * 60 * 60);
                let line = Members::of_data(&of.data)?.invite(&of.data, valid)?;
                say::line(format_args!("atoll join {line}"));
                Ok(())
            }
            Command::Rename(Rename { node, name, of }) => Members::of_data(&of.data)?.rename(&node, &name),
            Command::Remove(Remove { node, of }) => Members::of_data(&of.data)?.remove(&node),
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let list = Members::of_data(&self.of.data)?.list(Some(&self.of.data))?;
        let cluster = &list.cluster;
        if self.json {
            let nodes = cluster.nodes.iter().map(|node| {
                json!({
                    "name": node.name,
                    "id": format!("{:016x}", node.daemon),
                    "address": node.address,
                    "joined": rfc3339(node.joined),
                    "keeps_list": node.daemon == cluster.store,
                    "keeps_ca_key": node.has_ca_key,
                })
            });
            say::json(&json!(nodes.collect::<Vec<_>>()));
            return Ok(());
        }
        for node in &cluster.nodes {
            let list = if node.daemon == cluster.store { "  keeps the list" } else { "" };
            let key = if node.has_ca_key { "  keeps the CA's key" } else { "" };
            say::line(format_args!(
                "{:<20} {:016x}  {:<24} joined {}{list}{key}",
                node.name,
                node.daemon,
                node.address,
                rfc3339(node.joined)
            ));
        }
        Ok(())
    }
}
