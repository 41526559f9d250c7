//! `atoll island`: orders about single islands.

use anyhow::{Result, bail};
use atoll_core::{IslandId, NodeId};
use atoll_proto::VolumeConfig;
use atoll_volume::order::{ToldCopy, check_force, copies, force_island, move_island};
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
    /// Have a copy of an island lead although changes are lost by that: the nodes with the other copies are gone for good
    Force(Force),
}

#[derive(Debug, clap::Args)]
struct Move {
    #[command(flatten)]
    copy: Named,
}

#[derive(Debug, clap::Args)]
struct Force {
    #[command(flatten)]
    copy: Named,
    /// Carry it out. Without this option, the command only says what would be lost
    #[arg(long)]
    yes: bool,
}

/// A copy of an island, as it is named.
#[derive(Debug, clap::Args)]
struct Named {
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
        match self.command {
            Command::Move(order) => order.run(),
            Command::Force(order) => order.run(),
        }
    }
}

impl Named {
    /// The volume's configuration, if it has such a copy.
    fn find(&self) -> Result<(VolumeConfig, IslandId, NodeId)> {
        let config = match self.volume.contains(":/") {
            true => self.volume.parse::<Source>()?.find()?.config,
            false => of_mount(&mount_point(&self.volume)?)?.config,
        };
        let (island, to) = (IslandId(self.island), NodeId(self.node));
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
            bail!(
                "Node {to} keeps no copy of island {island}.\nIts copies are on nodes {}.",
                listed(group.iter().copied())
            );
        }
        Ok((config, island, to))
    }
}

fn listed(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes.map(|node| node.to_string()).collect::<Vec<_>>().join(", ")
}

impl Move {
    fn run(self) -> Result<()> {
        let (config, island, to) = self.copy.find()?;
        move_island(&config, island, to)?;
        say::line(format_args!("island {island} is led by node {to}"));
        Ok(())
    }
}

impl Force {
    fn run(self) -> Result<()> {
        let (config, island, to) = self.copy.find()?;
        let told = copies(&config, island);
        told.iter().for_each(say::line);
        check_force(&told, island, to)?;
        let missing = missing(&told, to);
        if !self.yes {
            let Named { volume, island, node } = &self.copy;
            bail!(
                "Changes that only the copies on nodes {missing} have would be lost, synced ones too. Nothing was done.\n\
                 If these nodes can come back, start them instead: then nothing is lost, and nobody types a command.\n\
                 If they are gone for good: atoll island force {volume} {island} {node} --yes"
            );
        }
        say::line(format_args!(
            "Changes that only the copies on nodes {missing} have are lost from here on, synced ones too.\n\
             A copy that comes back later is cut back to what node {to} has, or must be filled anew."
        ));
        let group = force_island(&config, island, to)?;
        say::line(format_args!("island {island} is led by node {to}, in epoch {}", group.epoch));
        if group.wanted > 2 {
            say::line("Files can be read. Changes wait until a second copy is in sync.");
        }
        Ok(())
    }
}

/// The nodes whose copies may have what the one on node `to` has not: those that had everything, as far as it is known.
fn missing(told: &[ToldCopy], to: NodeId) -> String {
    let groups = told.iter().filter_map(|told| told.copy.as_ref().ok());
    let newest = groups.max_by_key(|group| (group.epoch, !group.in_sync.is_empty()));
    let others = told.iter().map(|told| told.node).filter(|node| *node != to);
    let had_all =
        |node: &NodeId| newest.is_none_or(|group| group.in_sync.contains(node) || group.in_sync.is_empty());
    match listed(others.clone().filter(had_all)) {
        none if none.is_empty() => listed(others),
        some => some,
    }
}
