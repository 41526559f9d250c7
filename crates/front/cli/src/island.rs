//! `atoll island`: orders about single islands.

use anyhow::{Result, bail};
use atoll_core::{IslandId, NodeId};
use atoll_rpc::Address;
use atoll_volume::source::{Source, mount_point, of_mount};

use crate::say;

/// Arguments of `atoll island`.
#[derive(Debug, clap::Args)]
pub(crate) struct Island {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Have another copy of an island lead
    Move(Move),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "EXAMPLES:\n  atoll island move /mnt/home 3 2\n          Node 2 leads island 3 from now on. It must be in sync: \"atoll status\" shows who is."
)]
struct Move {
    /// A mount point, or HOST:PORT[,HOST:PORT...]:/VOLUME
    #[arg(value_name = "DIR|SOURCE")]
    volume: String,
    /// The island
    island: u16,
    /// The node that shall lead it
    node: u16,
}

impl Island {
    pub(crate) fn run(self) -> Result<()> {
        let Command::Move(order) = self.command;
        order.run()
    }
}

impl Move {
    fn run(self) -> Result<()> {
        let Self { volume, island, node } = self;
        let config = match volume.contains(":/") {
            true => volume.parse::<Source>()?.find()?.config,
            false => of_mount(&mount_point(&volume)?)?.0,
        };
        let (island, to) = (IslandId(island), NodeId(node));
        let group = config.group_of(island);
        if config.copies.is_none() {
            bail!(
                "The islands of volume {} have one copy each: there is no other node to lead them.",
                config.name
            );
        }
        if group.is_empty() {
            let all: Vec<String> = config.islands().iter().map(ToString::to_string).collect();
            bail!("Volume {} has no island {island}.\nIt has {}.", config.name, all.join(", "));
        }
        if !group.contains(&to) {
            let nodes: Vec<String> = group.iter().map(ToString::to_string).collect();
            bail!(
                "Node {to} keeps no copy of island {island}.\nIts copies are on nodes {}.",
                nodes.join(", ")
            );
        }
        let address = |node: &NodeId| config.nodes.iter().find(|n| n.node == *node)?.address.parse().ok();
        let addresses: Vec<Address> = group.iter().filter_map(address).collect();
        atoll_volume::order::move_island(&addresses, &config, island, to)?;
        say::line(format_args!("island {island} is led by node {to}"));
        Ok(())
    }
}
