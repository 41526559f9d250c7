//! Takes a node out of the volumes of its cluster: in order (`atoll node drain`), or when it is lost for good
//! (`atoll node remove --lost`). `docs/design/020-filling.md` says what nodes do then.
//!
//! All volumes are looked at before one is changed: what cannot end is not begun.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use atoll_core::placement::NoPlace;
use atoll_core::{IslandId, NodeId};
use atoll_proto::cluster::{Cluster, ClusterNode};
use atoll_proto::group::GroupRecord;
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::Address;

use crate::ask::{QUESTION, ask, ask_all};
use crate::change::{Changer, answering, no_place, with_node};
use crate::members::Members;
use crate::order::{check_force, copies, force_island};

/// How long a removed node may take to hear that a volume goes on without it.
const LEAVE_MAX: Duration = Duration::from_secs(8);

/// A copy may take so long to notice that the lost one leads no more.
const FORGET_MAX: Duration = Duration::from_secs(5);

/// How often it is asked.
const LOOK: Duration = Duration::from_millis(200);

/// A volume of which a node keeps a part.
pub struct Part {
    /// By which it is changed.
    changer: Changer,
    /// The volume.
    pub config: VolumeConfig,
    /// The node's number in it.
    pub node: NodeId,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("volume", &self.config.name)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Part {
    /// The islands of which the node has a copy, or shall have one.
    pub fn islands(&self) -> Vec<IslandId> {
        self.config.islands_at(self.node)
    }

    /// How it is now.
    fn again(&mut self) -> Result<()> {
        self.config = self.changer.config(&self.config.name)?;
        Ok(())
    }

    /// An error if the volume cannot be without the node.
    fn check_store(&self, node: &str) -> Result<()> {
        if !self.changer.is_for_all() && self.config.store_node() == self.node {
            bail!(
                "{node} has the control store of volume {}: no copy of it could begin to lead without {node}.\n\
                Bring the records of the cluster into an etcd first: atoll control move. Nothing was changed.",
                self.config.name
            );
        }
        Ok(())
    }
}

/// An island of which only the leaving node had everything, and the nodes that have an older copy.
type Only = (IslandId, Vec<NodeId>);

/// The volumes of nodes that others reach, each with the first of the nodes that has told of it.
fn volumes(nodes: &[&ClusterNode]) -> Vec<(Address, String)> {
    let addresses: Vec<Address> = nodes.iter().filter_map(|node| node.address.parse().ok()).collect();
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for (address, answer) in addresses.iter().zip(ask_all(&addresses, &Control::Describe, QUESTION)) {
        let Ok(ControlReply::Described { volumes, .. }) = answer else { continue };
        for volume in volumes.into_iter().filter(|volume| !volume.nodes.iter().all(String::is_empty)) {
            if seen.insert(volume.id.0) {
                all.push((address.clone(), volume.name));
            }
        }
    }
    all
}

/// The volumes that are to have no copies on a node, by the nodes' daemons. Of volumes whose nodes do not answer nothing is known.
pub fn drained(cluster: &Cluster) -> BTreeMap<u64, Vec<String>> {
    let mut all: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (address, name) in volumes(&cluster.nodes.iter().collect::<Vec<_>>()) {
        let order = Control::Volume { name };
        let Ok(ControlReply::Volume { config, .. }) = ask(&address, order, QUESTION) else { continue };
        let drained = config.copies.iter().flat_map(|copies| &copies.drained);
        for daemon in drained.filter_map(|node| config.daemon_of(*node)) {
            all.entry(daemon).or_default().push(config.name.clone());
        }
    }
    all
}

/// A node of a cluster, and the volumes of which it keeps a part, as far as nodes answer.
#[derive(Debug)]
pub struct Leaving {
    /// The node.
    pub node: ClusterNode,
    cluster: Cluster,
    /// The volumes.
    pub parts: Vec<Part>,
}

impl Leaving {
    /// Looks for a node's volumes.
    pub fn find(members: &Members, node: &str) -> Result<Self> {
        let cluster = members.list(None)?.cluster;
        let node = cluster
            .node_named(node)
            .ok_or_else(|| {
                anyhow!("There is no node {node}.\n\"atoll node list\" shows those that there are.")
            })?
            .clone();
        // Those that stay tell the same, and go on telling it.
        let mut nodes: Vec<&ClusterNode> = cluster.nodes.iter().collect();
        nodes.sort_by_key(|other| other.daemon == node.daemon);
        let mut parts = Vec::new();
        for (address, name) in volumes(&nodes) {
            let changer = Changer::at(address)?;
            let config = changer.config(&name)?;
            let number = config.nodes.iter().find(|n| n.daemon == node.daemon).map(|n| n.node);
            if let Some(node) = number {
                parts.push(Part { changer, config, node });
            }
        }
        parts.sort_by(|a, b| a.config.name.cmp(&b.config.name));
        Ok(Self { node, cluster, parts })
    }

    /// The addresses of nodes of the cluster that a volume has not, and that answer.
    fn others(&self, config: &VolumeConfig) -> Vec<Address> {
        let is_new = |node: &&ClusterNode| {
            node.daemon != self.node.daemon && config.nodes.iter().all(|n| n.daemon != node.daemon)
        };
        let new = self.cluster.nodes.iter().filter(is_new);
        let addresses: Vec<Address> = new.filter_map(|node| node.address.parse().ok()).collect();
        let answers = ask_all(&addresses, &Control::Describe, QUESTION);
        let alive = addresses.into_iter().zip(answers).filter(|(_, answer)| answer.is_ok());
        alive.map(|(address, _)| address).collect()
    }

    /// The next configuration of a volume, in which other nodes keep what this one does. If its own do not suffice, nodes of the
    /// cluster come to it. `drained`: it shall get no copy any more, and keeps what it has until the others have it.
    fn without_copies(&self, config: &VolumeConfig, node: NodeId, is_for_all: bool) -> Result<VolumeConfig> {
        let mut next = config.with_groups();
        if let Some(copies) = &mut next.copies
            && !copies.drained.contains(&node)
        {
            copies.drained.push(node);
        }
        // The node with the control store gets a copy only if no other one of the cluster can.
        let (store, mut spares_store) = (config.store_node(), !is_for_all);
        let mut more = None;
        loop {
            let alive = answering(&next);
            let wanted = next.copies.as_ref().map_or(1, |copies| copies.wanted);
            let may_get = |_, other| alive.contains(&other) && !(spares_store && other == store);
            let why = match next.with_wanted(wanted, is_for_all, &|other| other == node, &may_get) {
                Ok(next) => return Ok(next),
                Err(why) => why,
            };
            let others = more.get_or_insert_with(|| self.others(config));
            match others.pop().filter(|_| matches!(why, NoPlace::Nodes { .. })) {
                Some(other) => next = with_node(&next, &other)?,
                None if spares_store => spares_store = false,
                None => return Err(no_place(&next, &alive, &why)),
            }
        }
    }

    /// All copies of the node's shall be elsewhere, and it gets none any more. Fine if that is so already.
    pub fn drain(&mut self) -> Result<()> {
        for part in &self.parts {
            part.check_store(&self.node.name)?;
            self.without_copies(&part.config, part.node, part.changer.is_for_all())?;
        }
        for part in &self.parts {
            part.changer.change(&part.config.name, |config, is_for_all| {
                let next = self.without_copies(config, part.node, is_for_all)?;
                Ok((next.copies != config.copies).then_some(next))
            })?;
        }
        self.again()
    }

    /// The node may get copies again, and keeps those of which the new ones are not in sync.
    pub fn undrain(&mut self) -> Result<()> {
        for part in &self.parts {
            part.changer.change(&part.config.name, |config, _| {
                let is_drained =
                    config.copies.as_ref().is_some_and(|copies| copies.drained.contains(&part.node));
                if !is_drained {
                    return Ok(None);
                }
                let records = part.changer.records(config)?;
                let has_seat = |island, node| {
                    records.get(&island).is_some_and(|record: &GroupRecord| record.seat_of(node).is_some())
                };
                Ok(Some(config.undrained(part.node, has_seat)))
            })?;
        }
        self.again()
    }

    /// How it is now.
    pub fn again(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(Part::again)
    }

    /// The volumes of which the node still has copies, and how many.
    pub fn left(&self) -> Vec<(String, usize)> {
        let left = self.parts.iter().map(|part| (part.config.name.clone(), part.islands().len()));
        left.filter(|(_, islands)| *islands > 0).collect()
    }

    /// Takes the node, which keeps no copy any more, out of its volumes.
    pub(crate) fn leave(&self) -> Result<()> {
        let name = &self.node.name;
        if let Some((volume, islands)) = self.left().first() {
            bail!(
                "{name} keeps copies of {islands} islands of volume {volume}: without it they would have one copy less, or none.\n\
                Move them to other nodes first: atoll node drain {name}. If its machine is gone for good: atoll node remove --lost {name}"
            );
        }
        self.parts.iter().try_for_each(|part| part.check_store(name))?;
        for part in &self.parts {
            part.changer.change(&part.config.name, |config, _| {
                if !config.islands_at(part.node).is_empty() {
                    bail!("{name} has got a copy of volume {} meanwhile.\nDrain it first.", config.name);
                }
                let is_there = config.daemon_of(part.node).is_some();
                Ok(is_there.then(|| config.without_node(part.node)))
            })?;
        }
        self.wait_until_it_knows();
        Ok(())
    }

    /// A node that lives forgets its volumes before nobody speaks to it any more.
    fn wait_until_it_knows(&self) {
        let Ok(address) = self.node.address.parse::<Address>() else { return };
        let until = Instant::now() + LEAVE_MAX;
        let keeps = |volume: &str| self.parts.iter().any(|part| part.config.name == volume);
        while Instant::now() < until {
            let answer = ask_all(std::slice::from_ref(&address), &Control::Describe, QUESTION).pop();
            match answer {
                Some(Ok(ControlReply::Described { volumes, .. }))
                    if volumes.iter().any(|v| keeps(&v.name)) => {}
                _ => return,
            }
            std::thread::sleep(LOOK);
        }
    }

    // ------------------------------------------------------------------------- lost

    /// What only the node had: the islands of each volume.
    fn only_there(&self) -> Result<BTreeMap<String, Vec<Only>>> {
        let mut lost = BTreeMap::new();
        for part in &self.parts {
            let records = match &part.config.copies {
                Some(_) => part.changer.records(&part.config)?,
                None => BTreeMap::new(),
            };
            let has_others = |island: &IslandId| {
                let record = records.get(island);
                record.is_some_and(|record| record.in_sync.iter().any(|seat| seat.node != part.node))
            };
            let only: Vec<Only> = part
                .islands()
                .into_iter()
                .filter(|island| !has_others(island))
                .map(|island| {
                    let group = part.config.group_of(island);
                    (island, group.into_iter().filter(|node| *node != part.node).collect())
                })
                .collect();
            if !only.is_empty() {
                lost.insert(part.config.name.clone(), only);
            }
        }
        Ok(lost)
    }

    /// Takes the node, which never comes back, out of all rings and volumes: others get copies in its place. `yes`: also if only it had
    /// everything of an island, of which an older copy leads then.
    pub(crate) fn give_up(&self, yes: bool) -> Result<()> {
        let name = &self.node.name;
        if let Ok(address) = self.node.address.parse::<Address>()
            && ask_all(&[address], &Control::Describe, QUESTION).iter().all(Result::is_ok)
        {
            bail!(
                "{name} answers: it is not lost.\nMove what it keeps to other nodes: atoll node drain {name}. Nothing was changed."
            );
        }
        self.parts.iter().try_for_each(|part| part.check_store(name))?;
        let only = self.only_there()?;
        for (volume, islands) in &only {
            let all = |islands: &mut dyn Iterator<Item = &IslandId>| {
                islands.map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let alone: Vec<&IslandId> =
                islands.iter().filter(|(_, others)| others.is_empty()).map(|(island, _)| island).collect();
            if !alone.is_empty() {
                bail!(
                    "The only copies of islands {} of volume {volume} were on {name}: all their directories and files are lost with it.\n\
                    Put its data directory back from a backup, and start it. Nothing was changed.",
                    all(&mut alone.into_iter())
                );
            }
            if !yes {
                bail!(
                    "Of islands {} of volume {volume} only {name} had everything: what the other copies lack is lost with it.\n\
                    \"atoll island force\" shows what they have. To go on with them: atoll node remove --lost --yes {name}. \
                    Nothing was changed.",
                    all(&mut islands.iter().map(|(island, _)| island))
                );
            }
        }
        for part in &self.parts {
            self.without_copies(&part.config, part.node, part.changer.is_for_all())?;
        }
        for part in &self.parts {
            for (island, others) in only.get(&part.config.name).into_iter().flatten() {
                self.force(part, *island, others)?;
            }
            part.changer.change(&part.config.name, |config, is_for_all| {
                if config.daemon_of(part.node).is_none() {
                    return Ok(None);
                }
                Ok(Some(
                    self.without_copies(config, part.node, is_for_all)?.without_node_of(part.node, config),
                ))
            })?;
        }
        Ok(())
    }

    /// The best of the other copies of an island leads.
    fn force(&self, part: &Part, island: IslandId, others: &[NodeId]) -> Result<()> {
        // It may have heard the lost one a moment ago.
        let until = Instant::now() + FORGET_MAX;
        loop {
            match self.try_force(part, island, others) {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() > until => return Err(why),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    fn try_force(&self, part: &Part, island: IslandId, others: &[NodeId]) -> Result<()> {
        let told = copies(&part.config, island);
        let mut refused = anyhow!(
            "No node with a copy of island {island} of volume {} answers.\nStart one of nodes {}.",
            part.config.name,
            others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        );
        for to in
            others.iter().filter(|node| told.iter().any(|told| told.node == **node && told.copy.is_ok()))
        {
            match check_force(&told, island, *to).and_then(|()| force_island(&part.config, island, *to)) {
                Ok(_) => return Ok(()),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }
}
