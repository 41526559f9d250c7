//! What could not be reached if some nodes were down, and what would be left in one copy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use atoll_core::{IslandId, NodeId};
use atoll_proto::control::{CopyRole, IslandWeight, VolumeStatus};
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::Address;

use crate::ask::{ORDER, QUESTION, ask_all};

/// What becomes of an island.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// No copy is left that has everything.
    Lost,
    /// A copy is left, but nobody can say that it may lead: the node with the control store is down, and so is the one that leads.
    Waits,
    /// One copy is left.
    LastCopy,
    /// Two or more are left.
    Fine,
}

/// An island if some nodes are down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The island.
    pub island: IslandId,
    /// What becomes of it.
    pub fate: Fate,
    /// The nodes whose copies are left.
    pub left: Vec<NodeId>,
    /// How many copies it had before that.
    pub copies: usize,
    /// Its part of the table: buckets.
    pub buckets: usize,
    /// What it has; none if nobody could be asked.
    pub weight: Option<IslandWeight>,
}

/// The copies of an island that have everything, and the node that leads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Copies {
    in_sync: Vec<NodeId>,
    primary: Option<NodeId>,
    epoch: u32,
}

/// What would be, as far as the nodes that answer know.
#[derive(Debug)]
pub struct WhatIf {
    /// The volume.
    pub config: VolumeConfig,
    /// The nodes that are thought to be down.
    pub down: Vec<NodeId>,
    /// Nodes that do not answer now: they count as down, too.
    pub silent: Vec<NodeId>,
    /// All islands, in their order.
    pub islands: Vec<Judged>,
}

/// Judges every island. `down`: nodes, each by its number in the volume, its address, its name or its id in the cluster.
pub fn whatif(config: VolumeConfig, down: &[String]) -> Result<WhatIf> {
    let reached: Vec<(NodeId, Address)> =
        config.nodes.iter().filter_map(|node| Some((node.node, node.address.parse().ok()?))).collect();
    let addresses: Vec<Address> = reached.iter().map(|(_, address)| address.clone()).collect();
    let names = names(&addresses);
    let down = down.iter().map(|text| named(&config, &names, text)).collect::<Result<Vec<NodeId>>>()?;
    let (mut known, mut silent): (BTreeMap<IslandId, Copies>, Vec<NodeId>) = Default::default();
    for ((node, _), answer) in reached.iter().zip(ask_all(&addresses, &Control::Status, QUESTION)) {
        match answer {
            Ok(ControlReply::Status { volumes, .. }) => {
                let of_volume = volumes.into_iter().find(|volume| volume.volume.id == config.id);
                of_volume.iter().for_each(|volume| note(&mut known, *node, volume));
            }
            _ => silent.push(*node),
        }
    }
    let mut weights: BTreeMap<IslandId, IslandWeight> = BTreeMap::new();
    for answer in ask_all(&addresses, &Control::Weigh { volume: config.id }, ORDER) {
        let Ok(ControlReply::Weights { weights: told }) = answer else { continue };
        for weight in told {
            // Of several copies the one that has come furthest.
            let most = weights.entry(weight.island).or_insert_with(|| weight.clone());
            if weight.dirs + weight.files > most.dirs + most.files {
                *most = weight;
            }
        }
    }
    let all_down: BTreeSet<NodeId> = down.iter().chain(&silent).copied().collect();
    let islands = config.islands().into_iter().map(|island| {
        let copies = known.remove(&island).unwrap_or_else(|| unheard(&config, island));
        judge(&config, island, &copies, &all_down, weights.remove(&island))
    });
    Ok(WhatIf { islands: islands.collect(), down, silent, config })
}

/// Names and ids of the cluster's nodes, with their addresses. None without certificates.
fn names(addresses: &[Address]) -> Vec<(String, String, String)> {
    let answers = ask_all(addresses, &Control::Cluster, QUESTION).into_iter();
    let list = answers.flatten().find_map(|reply| match reply {
        ControlReply::Cluster { cluster } => cluster,
        _ => None,
    });
    let nodes = list.into_iter().flat_map(|list| list.cluster.nodes);
    nodes.map(|node| (node.name, format!("{:016x}", node.daemon), node.address)).collect()
}

fn named(config: &VolumeConfig, names: &[(String, String, String)], text: &str) -> Result<NodeId> {
    let of_cluster = names.iter().find(|(name, id, _)| name == text || id == text);
    let address = of_cluster.map_or(text, |(_, _, address)| address.as_str());
    let by_number = || text.parse().ok().map(NodeId);
    let found = config.nodes.iter().find(|node| node.address == address);
    let found = found.or_else(|| config.nodes.iter().find(|node| Some(node.node) == by_number()));
    let Some(node) = found else {
        let all: Vec<&str> = config.nodes.iter().map(|node| node.address.as_str()).collect();
        bail!(
            "Volume {} has no node \"{}\".\nName nodes by name, number or address; its nodes are {}.",
            config.name,
            text.escape_debug(),
            all.join(", ")
        );
    };
    Ok(node.node)
}

/// Takes what a node says of its copies. The latest epoch is right, and in it whoever leads.
fn note(known: &mut BTreeMap<IslandId, Copies>, node: NodeId, volume: &VolumeStatus) {
    for island in &volume.islands {
        let told = match &island.group {
            Some(group) => {
                Copies { in_sync: group.in_sync.clone(), primary: group.primary, epoch: group.epoch }
            }
            None if island.halted.is_none() => Copies { in_sync: vec![node], primary: Some(node), epoch: 0 },
            None => Copies::default(),
        };
        let leads = island.group.as_ref().is_none_or(|group| group.role == CopyRole::Leads);
        let before = known.entry(island.island).or_insert_with(|| told.clone());
        if told.epoch > before.epoch || (told.epoch == before.epoch && leads) {
            *before = told;
        }
    }
}

/// An island of which no node has told: nobody knows of a copy that has everything.
fn unheard(config: &VolumeConfig, island: IslandId) -> Copies {
    match config.copies {
        Some(_) => Copies::default(),
        None => {
            let node = config.node_of(island).map(|node| node.node);
            Copies { in_sync: node.into_iter().collect(), primary: node, epoch: 0 }
        }
    }
}

fn judge(
    config: &VolumeConfig,
    island: IslandId,
    copies: &Copies,
    down: &BTreeSet<NodeId>,
    weight: Option<IslandWeight>,
) -> Judged {
    let left: Vec<NodeId> = copies.in_sync.iter().filter(|node| !down.contains(node)).copied().collect();
    let leads_on = copies.primary.is_some_and(|primary| left.contains(&primary));
    let store_is_down = config.copies.as_ref().is_some_and(|of| down.contains(&of.store));
    let lacks_one = left.len() < copies.in_sync.len();
    let fate = match left.len() {
        0 => Fate::Lost,
        // Whoever leads drops a copy that is gone, and another one leads, only by the control store.
        _ if store_is_down && (!leads_on || lacks_one) => Fate::Waits,
        1 => Fate::LastCopy,
        _ => Fate::Fine,
    };
    let buckets = config.table.owners().iter().filter(|owner| **owner == island).count();
    Judged { island, fate, left, copies: copies.in_sync.len(), buckets, weight }
}

#[cfg(test)]
mod tests {
    use atoll_core::{Table, VolumeId};
    use atoll_proto::{Copies as Wanted, IslandGroup, NodeConfig, VolumeKind};

    use super::*;

    fn config(wanted: u8) -> VolumeConfig {
        let node = |n: u16| NodeConfig {
            daemon: 0,
            node: NodeId(n),
            address: format!("n{n}:1"),
            islands: if n < 2 { vec![IslandId(n)] } else { Vec::new() },
        };
        let group = |island: u16| IslandGroup {
            island: IslandId(island),
            nodes: (0..u16::from(wanted)).map(|at| NodeId((island + at) % 3)).collect(),
        };
        let copies = (wanted > 1).then(|| Wanted {
            wanted,
            store: NodeId(2),
            groups: vec![group(0), group(1)],
            ..Wanted::default()
        });
        VolumeConfig {
            site: None,
            id: VolumeId(1),
            name: "home".to_owned(),
            seed: 1,
            table: Table::new(2),
            nodes: (0..3).map(node).collect(),
            kind: VolumeKind::Cluster,
            copies,
        }
    }

    fn fate(in_sync: &[u16], primary: u16, down: &[u16]) -> Fate {
        let in_sync = in_sync.iter().map(|node| NodeId(*node)).collect();
        let copies = Copies { in_sync, primary: Some(NodeId(primary)), epoch: 4 };
        judge(&config(2), IslandId(0), &copies, &down.iter().map(|node| NodeId(*node)).collect(), None).fate
    }

    #[test]
    fn an_island_is_lost_when_no_copy_with_everything_is_left() {
        assert_eq!(fate(&[0, 1], 0, &[]), Fate::Fine);
        assert_eq!(fate(&[0, 1], 0, &[0]), Fate::LastCopy);
        assert_eq!(fate(&[0, 1], 0, &[0, 1]), Fate::Lost);
        // A copy that comes back has not everything.
        assert_eq!(fate(&[0], 0, &[0]), Fate::Lost);
        assert_eq!(fate(&[0], 0, &[1]), Fate::LastCopy);
        assert_eq!(fate(&[], 0, &[]), Fate::Lost);
    }

    #[test]
    fn without_the_control_store_nobody_takes_over_or_goes_on_with_fewer_copies() {
        assert_eq!(fate(&[0, 1], 0, &[2]), Fate::Fine);
        assert_eq!(fate(&[0, 1], 0, &[2, 0]), Fate::Waits);
        assert_eq!(fate(&[0, 1], 0, &[2, 1]), Fate::Waits);
        assert_eq!(fate(&[0], 0, &[2, 1]), Fate::LastCopy);
    }

    #[test]
    fn nodes_are_named_by_number_address_name_or_id() {
        let names = vec![("store".to_owned(), "00000000000000ab".to_owned(), "n1:1".to_owned())];
        for text in ["1", "n1:1", "store", "00000000000000ab"] {
            assert_eq!(named(&config(1), &names, text).unwrap(), NodeId(1));
        }
        let why = named(&config(1), &names, "n9").unwrap_err().to_string();
        assert!(why.contains("has no node \"n9\""), "{why}");
    }
}
