//! `atoll node`: the nodes of a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use atoll_control::rfc3339;
use atoll_proto::cluster::ClusterNode;
use atoll_rpc::Address;
use atoll_volume::drain::{Leaving, drained};
use atoll_volume::machines::{DATA, LINE_HOURS};
use atoll_volume::members::Members;
use serde_json::json;

use crate::say;

/// How often it is looked how many copies are left on a node that is drained.
const LOOK: Duration = Duration::from_millis(500);

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
    /// Tell all nodes where a node is that was started at another address. Its volumes, their mounts and etcd follow
    SetAddress(SetAddress),
    /// Move all copies off a node, of all volumes: shows how many are left until none is. If the command ends, the nodes go on
    Drain(Drain),
    /// Take a node out of the cluster, when no volume has a copy there: nobody lets it in any more
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
struct SetAddress {
    /// The node, by its name or id
    node: String,
    /// Where others reach it from now on. It must run there already
    #[arg(value_name = "HOST:PORT")]
    address: Address,
    #[command(flatten)]
    of: OfData,
}

#[derive(Debug, clap::Args)]
struct Drain {
    /// The node, by its name or id
    node: String,
    /// The node may have copies again, and keeps those that are not elsewhere yet
    #[arg(long)]
    undo: bool,
    /// Return at once: the nodes go on
    #[arg(long, conflicts_with = "undo")]
    no_wait: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: OfData,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The node, by its name or id
    node: String,
    /// The node never comes back: other nodes get its copies from those that are left
    #[arg(long)]
    lost: bool,
    /// Carry it out although only the lost node had everything of some islands
    #[arg(long, requires = "lost")]
    yes: bool,
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
            | Command::SetAddress(SetAddress { of, .. })
            | Command::Drain(Drain { of, .. })
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
            Command::SetAddress(SetAddress { node, address, of }) => {
                Members::of_data(&of.data)?.set_address(&node, &address)?;
                say::line(format_args!("{node} is reached at {address}; its volumes follow within seconds"));
                Ok(())
            }
            Command::Drain(drain) => drain.run(),
            Command::Remove(Remove { node, lost: false, of, .. }) => {
                Members::of_data(&of.data)?.remove(&node)
            }
            Command::Remove(Remove { node, yes, of, .. }) => {
                Members::of_data(&of.data)?.remove_lost(&node, yes)
            }
        }
    }
}

impl Drain {
    fn run(self) -> Result<()> {
        let members = Members::of_data(&self.of.data)?;
        let mut leaving = Leaving::find(&members, &self.node)?;
        if self.undo {
            leaving.undrain()?;
            self.tell(&leaving);
            return Ok(());
        }
        leaving.drain()?;
        let mut told = None;
        loop {
            let left = leaving.left();
            if told.as_ref() != Some(&left) {
                self.tell(&leaving);
                if left.is_empty() && !self.json {
                    say::line(format_args!("next     atoll node remove {}", leaving.node.name));
                }
                told = Some(left.clone());
            }
            if left.is_empty() || self.no_wait {
                return Ok(());
            }
            std::thread::sleep(LOOK);
            // Whoever tells it may be away for a while: the nodes go on.
            if let Err(why) = leaving.again() {
                tracing::debug!("{why:#}");
            }
        }
    }

    /// What the node keeps.
    fn tell(&self, leaving: &Leaving) {
        let (node, left) = (&leaving.node.name, leaving.left());
        if self.json {
            let left = left.iter().map(|(volume, copies)| json!({ "volume": volume, "copies": copies }));
            say::line(json!({ "node": node, "left": left.collect::<Vec<_>>() }));
            return;
        }
        if left.is_empty() {
            say::line(format_args!("{node} keeps no copies"));
        }
        for (volume, copies) in left {
            say::line(format_args!("{node} keeps copies of {copies} islands of volume {volume}"));
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let list = Members::of_data(&self.of.data)?.list(Some(&self.of.data))?;
        let cluster = &list.cluster;
        let drained = drained(cluster);
        let drained = |node: &ClusterNode| drained.get(&node.daemon).cloned().unwrap_or_default();
        if self.json {
            let nodes = cluster.nodes.iter().map(|node| {
                json!({
                    "name": node.name,
                    "id": format!("{:016x}", node.daemon),
                    "address": node.address,
                    "joined": rfc3339(node.joined),
                    "keeps_list": node.daemon == cluster.store,
                    "keeps_ca_key": node.has_ca_key,
                    "drained": drained(node),
                })
            });
            say::json(&json!(nodes.collect::<Vec<_>>()));
            return Ok(());
        }
        for node in &cluster.nodes {
            let list = if node.daemon == cluster.store { "  keeps the list" } else { "" };
            let drained = match &drained(node)[..] {
                [] => String::new(),
                volumes => format!("  DRAINED of {}", volumes.join(", ")),
            };
            let key = if node.has_ca_key { "  keeps the CA's key" } else { "" };
            say::line(format_args!(
                "{:<20} {:016x}  {:<24} joined {}{list}{key}{drained}",
                node.name,
                node.daemon,
                node.address,
                rfc3339(node.joined)
            ));
        }
        Ok(())
    }
}
