//! Where the other islands of a volume are: its configuration, and this node's links to the other nodes. Both may change
//! while the node serves. Never changes which islands are here.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use atoll_core::{IslandId, NodeId};
use atoll_disk::Disk;
use atoll_island::Event;
use atoll_proto::control::Connection;
use atoll_proto::group::Host;
use atoll_proto::{NodeConfig, VolumeConfig};
use atoll_rpc::{Address, DaemonId, Hello, Options, Outgoing, Relays, Role};

use crate::links::{OtherNode, Peers};
use crate::volume::{Volume, VolumeError, tell};

/// A volume as this node knows it.
pub(crate) struct Map {
    config: Arc<VolumeConfig>,
    others: BTreeMap<NodeId, Other>,
    /// The highest epoch of each island with copies of which another node has said that it leads.
    led: BTreeMap<IslandId, u32>,
}

/// Another node.
#[derive(Clone)]
struct Other {
    /// As the islands here see it.
    seen: Arc<OtherNode>,
    /// This node's own link to it.
    outgoing: Arc<Outgoing>,
}

impl Map {
    /// Without a link to anybody.
    pub(crate) fn new(config: VolumeConfig) -> Self {
        Self { config: Arc::new(config), others: BTreeMap::new(), led: BTreeMap::new() }
    }
}

impl<D: Disk> Volume<D> {
    /// The volume.
    pub fn config(&self) -> Arc<VolumeConfig> {
        Arc::clone(&self.map.read().expect("no panic while it is held").config)
    }

    /// Whether `next` is a newer configuration that this node can serve by without being started again.
    pub fn may_take(&self, next: &VolumeConfig) -> Result<bool, VolumeError> {
        let is_newer = self.config().is_replaced_by(next).map_err(VolumeError::Fixed)?;
        let volume = || next.name.clone();
        if next.nodes.iter().all(|n| n.node != self.node()) {
            return Err(VolumeError::NotAMember { volume: volume(), node: self.node() });
        }
        // Copies come and go; an island that is alone cannot.
        let islands = self.config().islands_at(self.node());
        if next.copies.is_none() && next.islands_at(self.node()) != islands {
            return Err(VolumeError::OwnIslands { volume: volume(), node: self.node() });
        }
        addresses(next, self.node())?;
        Ok(is_newer)
    }

    /// Serves by this configuration from now on, if it is newer: other islands may be at other nodes, and nodes at other
    /// addresses. What was under way with an island that has moved is as after a lost link. True if it was newer.
    pub fn take_config(self: &Arc<Self>, next: &VolumeConfig) -> Result<bool, VolumeError> {
        let one = self.changing();
        if !self.may_take(next)? || self.stopping.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.set_nodes(&one, next.clone())?;
        self.switch().tell_config(next.table.version());
        for engine in self.engines() {
            tell(&engine, Event::Table(next.table.clone()));
        }
        Ok(true)
    }

    pub(crate) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().expect("no panic while it is held")
    }

    /// Connects to the nodes of the configuration that the volume was opened with.
    pub(crate) fn connect_nodes(self: &Arc<Self>) -> Result<(), VolumeError> {
        let one = self.changing();
        let config = self.config();
        self.set_nodes(&one, VolumeConfig::clone(&config))
    }

    /// The other nodes are those of `config` from now on. Links to nodes whose address stays are kept.
    fn set_nodes(
        self: &Arc<Self>,
        _one: &MutexGuard<'_, ()>,
        config: VolumeConfig,
    ) -> Result<(), VolumeError> {
        let addresses = addresses(&config, self.node())?;
        let old = self.map.read().expect("no panic while it is held").others.clone();
        let (mut others, mut by_island, mut ended) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for node in config.nodes.iter().filter(|n| n.node != self.node()) {
            let address = &addresses[&node.node];
            let relays = addresses.iter().filter(|(other, _)| **other != node.node);
            let relays: Vec<(NodeId, Address)> = relays.map(|(n, a)| (*n, a.clone())).collect();
            let other = match old.get(&node.node) {
                Some(other) if other.outgoing.address() == address => {
                    other.outgoing.set_relays(relays);
                    other.clone()
                }
                other => {
                    ended.extend(other.map(|other| Arc::clone(&other.outgoing)));
                    let seen =
                        other.map_or_else(|| OtherNode::new(node.node), |other| Arc::clone(&other.seen));
                    let outgoing = self.link_to(&seen, address.clone(), relays);
                    Other { seen, outgoing }
                }
            };
            by_island.extend(node.islands.iter().map(|island| (*island, Arc::clone(&other.outgoing))));
            others.insert(node.node, other);
        }
        let new = others.clone();
        let nodes: Vec<NodeConfig> = config.nodes.clone();
        let has_copies = config.copies.is_some();
        {
            let mut map = self.map.write().expect("no panic while it is held");
            (map.config, map.others) = (Arc::new(config), others);
        }
        if !has_copies {
            self.switch().set_nodes(by_island);
        }
        // Where an island with copies is, its primary says.
        let islands_of = |node: NodeId| -> &[IslandId] {
            nodes.iter().find(|n| n.node == node && !has_copies).map_or(&[], |n| &n.islands)
        };
        // First all that leave: an island is told of by one node at a time.
        for (node, other) in &old {
            if !has_copies {
                other.seen.leave(self, islands_of(*node));
            }
            if !new.contains_key(node) {
                ended.push(Arc::clone(&other.outgoing));
            }
        }
        ended.iter().for_each(|outgoing| outgoing.stop());
        for (node, other) in &new {
            other.seen.take(self, islands_of(*node));
            other.outgoing.keep(true);
        }
        Ok(())
    }

    /// A link of this node's own to another one; until it is up, the node cannot be reached.
    fn link_to(
        self: &Arc<Self>,
        to: &Arc<OtherNode>,
        address: Address,
        relays: Vec<(NodeId, Address)>,
    ) -> Arc<Outgoing> {
        let (volume, me, (daemon, incarnation)) = (self.id(), self.node(), self.daemon);
        let Host { boot, inode: directory } = self.host;
        let greeting = Box::new(move || {
            let members = vec![(volume, me)];
            Hello::new(Role::Node { daemon, incarnation, boot, directory, members }, None)
        });
        let relays = Relays { volume, to: to.node(), others: relays };
        let number = to.begin_link(self);
        let peers = Arc::new(Peers { volume: Arc::downgrade(self), other: Arc::clone(to), number });
        let expects = self.config().daemon_of(to.node()).and_then(DaemonId::named);
        let options = Options { expects, ..Options::default() };
        Arc::new(Outgoing::with_relays(address, greeting, peers, options, relays))
    }

    /// Another node says that it leads an island. Of two the one with the higher epoch is right.
    pub(crate) fn heard_primary(self: &Arc<Self>, island: IslandId, node: NodeId, epoch: u32) {
        let _one = self.changing();
        let others = {
            let mut map = self.map.write().expect("no panic while it is held");
            let known = map.led.entry(island).or_default();
            if epoch < *known {
                return;
            }
            *known = epoch;
            map.others.clone()
        };
        for (_, other) in others.iter().filter(|(at, _)| **at != node) {
            other.seen.leave_one(island);
        }
        if let Some(other) = others.get(&node) {
            self.switch().set_node(island, Arc::clone(&other.outgoing));
            // It may be another life of the island: it is told of again.
            other.seen.leave_one(island);
            other.seen.take(self, &[island]);
        }
    }

    /// Whether another node has said that it leads a later epoch of an island.
    pub(crate) fn has_later_epoch(&self, island: IslandId, epoch: u32) -> bool {
        self.map.read().expect("no panic while it is held").led.get(&island).is_some_and(|led| *led > epoch)
    }

    /// This node leads an island: whoever has led an earlier epoch is not heard of it any more.
    pub(crate) fn hear_no_other(&self, island: IslandId) {
        let epoch = self.epoch_of(island);
        {
            let mut map = self.map.write().expect("no panic while it is held");
            let known = map.led.entry(island).or_default();
            *known = epoch.max(*known);
        }
        self.others_seen().iter().for_each(|other| other.leave_one(island));
    }

    /// Ends the links to all other nodes.
    pub(crate) fn disconnect_nodes(&self) {
        let _one = self.changing();
        let others = self.map.read().expect("no panic while it is held").others.clone();
        others.values().for_each(|other| other.outgoing.stop());
    }

    /// The volume's other nodes, and whether they can be reached.
    pub fn others(&self) -> Vec<(NodeId, Connection)> {
        let connection = |outgoing: &Outgoing| match outgoing.link() {
            None => Connection::Down,
            Some(link) if link.is_relayed() => Connection::Relayed,
            Some(_) => Connection::Direct,
        };
        let map = self.map.read().expect("no panic while it is held");
        map.others.iter().map(|(node, other)| (*node, connection(&other.outgoing))).collect()
    }

    /// Whether it is another node of the volume.
    pub(crate) fn has_other(&self, node: NodeId) -> bool {
        self.map.read().expect("no panic while it is held").others.contains_key(&node)
    }

    /// Another node, as the islands here see it.
    pub(crate) fn other(&self, node: NodeId) -> Option<Arc<OtherNode>> {
        let map = self.map.read().expect("no panic while it is held");
        map.others.get(&node).map(|other| Arc::clone(&other.seen))
    }

    /// The other nodes, as the islands here see them.
    pub(crate) fn others_seen(&self) -> Vec<Arc<OtherNode>> {
        let map = self.map.read().expect("no panic while it is held");
        map.others.values().map(|other| Arc::clone(&other.seen)).collect()
    }

    /// The address of another node, if this one reaches it directly.
    pub(crate) fn direct_address(&self, node: NodeId) -> Option<Address> {
        let outgoing = self.outgoing_to(node)?;
        outgoing.is_direct().then(|| outgoing.address().clone())
    }

    pub(crate) fn outgoing_to(&self, node: NodeId) -> Option<Arc<Outgoing>> {
        let map = self.map.read().expect("no panic while it is held");
        map.others.get(&node).map(|other| Arc::clone(&other.outgoing))
    }

    /// Another node was heard of: it is connected to at once.
    pub(crate) fn knock(&self, node: NodeId) {
        if let Some(outgoing) = self.outgoing_to(node) {
            outgoing.knock();
        }
    }
}

/// The addresses of all nodes but this one.
fn addresses(config: &VolumeConfig, me: NodeId) -> Result<BTreeMap<NodeId, Address>, VolumeError> {
    let others = config.nodes.iter().filter(|n| n.node != me);
    others
        .map(|other| {
            let wrong = |why| VolumeError::Address { node: other.node, why };
            Ok((other.node, other.address.parse().map_err(wrong)?))
        })
        .collect()
}
