//! The nodes of a volume in other processes, as one client reaches them: which islands are where. Both may change while
//! the client works.
//!
//! Invariant: an island is told of by one node's connection at a time, so that what is heard of the node that it has
//! left comes after nothing of the node that it has come to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use atoll_core::{IslandId, NodeId, SessionId, VolumeId};
use atoll_rpc::{Address, Relays};

use crate::client::{Client, Sink, Wire};
use crate::remote::Remote;

/// A node in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    /// Its number in the volume.
    pub node: NodeId,
    /// Its daemon: in a cluster with certificates no other one is asked at its address. 0: none is known.
    pub daemon: u64,
    /// Where it is reached.
    pub address: Address,
    /// The islands that it holds.
    pub islands: Vec<IslandId>,
    /// The islands with several copies of which it has one.
    pub copies: Vec<IslandId>,
}

/// What is done with a version of the volume's configuration that a node has. It must not wait.
pub(crate) type OnConfig = Box<dyn Fn(u64) + Send + Sync>;

/// See the module.
pub struct Nodes {
    volume: VolumeId,
    session: SessionId,
    /// Whose connections these are; set when the client is made.
    client: Arc<OnceLock<Weak<Client>>>,
    remotes: Mutex<BTreeMap<NodeId, Arc<Remote>>>,
    /// Is told each version of the volume's configuration that a node says that it has.
    on_config: OnceLock<OnConfig>,
    /// Which node leads each island with several copies, and since which epoch. None: this process.
    led: Mutex<BTreeMap<IslandId, (u32, Option<NodeId>)>>,
    me: Weak<Self>,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("remotes", &self.lock().values()).finish_non_exhaustive()
    }
}

impl Nodes {
    /// The way to these nodes, for a session. Connects to none before [`Nodes::connect`].
    pub fn new(volume: VolumeId, session: SessionId, places: &[NodePlace]) -> Arc<Self> {
        let nodes = Arc::new_cyclic(|me| Self {
            volume,
            session,
            client: Arc::default(),
            remotes: Mutex::default(),
            on_config: OnceLock::new(),
            led: Mutex::default(),
            me: Weak::clone(me),
        });
        let remotes = places.iter().map(|place| {
            let remote = nodes.remote_to(place, places);
            remote.set_copies(&place.copies);
            remote.take_islands(&place.islands);
            (place.node, remote)
        });
        let remotes = remotes.collect();
        *nodes.lock() = remotes;
        nodes
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Remote>>> {
        self.remotes.lock().expect("no panic while it is held")
    }

    fn remote_to(&self, place: &NodePlace, all: &[NodePlace]) -> Arc<Remote> {
        let relays = Relays { volume: self.volume, to: place.node, others: relays_to(place.node, all) };
        let client = Arc::clone(&self.client);
        Remote::new(place, relays, self.session, client, Weak::clone(&self.me))
    }

    /// From now on `told` is told each version of the volume's configuration that a node says that it has. Set before
    /// [`Nodes::connect`], and once.
    pub fn on_config(&self, told: OnConfig) {
        assert!(self.on_config.set(told).is_ok(), "it is set once");
    }

    /// A node, or this process, has this version of the volume's configuration.
    pub fn config(&self, version: u64) {
        if let Some(told) = self.on_config.get() {
            told(version);
        }
    }

    /// A node says that it leads an island with several copies: what was asked of the one before it is asked again there. Of
    /// two that say so the one with the higher epoch is right.
    pub(crate) fn leads(&self, node: NodeId, island: IslandId, epoch: u32) {
        let Some(remote) = self.get(node) else { return };
        self.move_to(Some(node), island, epoch, remote);
    }

    /// The same of this process, to which `wire` is the way.
    pub fn leads_here(&self, island: IslandId, epoch: u32, wire: Arc<dyn Wire>) {
        self.move_to(None, island, epoch, wire);
    }

    /// The islands with several copies that a node leads, as far as is known here. None: this process.
    pub fn led_by(&self, node: Option<NodeId>) -> Vec<IslandId> {
        self.led().iter().filter(|(_, (_, by))| *by == node).map(|(island, _)| *island).collect()
    }

    fn move_to(&self, to: Option<NodeId>, island: IslandId, epoch: u32, wire: Arc<dyn Wire>) {
        let Some(client) = self.client.get().and_then(Weak::upgrade) else { return };
        let mut led = self.led();
        if led.get(&island).is_some_and(|(known, _)| epoch < *known) {
            return;
        }
        led.insert(island, (epoch, to));
        let remotes: Vec<(NodeId, Arc<Remote>)> =
            self.lock().iter().map(|(node, remote)| (*node, Arc::clone(remote))).collect();
        for (node, remote) in remotes {
            remote.set_led(island, Some(node) == to);
        }
        client.set_wire(island, wire);
        drop(led);
        // Not while that is held: what is asked may be answered, and this process may say that it leads no more, before this
        // returns.
        client.replaced(island);
    }

    fn led(&self) -> MutexGuard<'_, BTreeMap<IslandId, (u32, Option<NodeId>)>> {
        self.led.lock().expect("no panic while it is held")
    }

    /// This process leads an island no more. Nothing is told if another node does already.
    pub fn ceases_here(&self, island: IslandId) {
        let known = |led: &BTreeMap<IslandId, (u32, Option<NodeId>)>| led.get(&island).copied();
        let before = known(&self.led());
        let is_here = matches!(before, Some((_, None)));
        let Some(client) = self.client.get().and_then(Weak::upgrade).filter(|_| is_here) else { return };
        client.reachable(island, false);
        if known(&self.led()) != before {
            // Another one has begun meanwhile, and this came behind it.
            client.replaced(island);
        }
    }

    /// The wire of each island, for the client that is made.
    pub fn wires(&self) -> BTreeMap<IslandId, Arc<dyn Wire>> {
        let remotes = self.lock();
        let wires = remotes.values().flat_map(|remote| {
            remote.islands().into_iter().map(|island| (island, Arc::clone(remote) as Arc<dyn Wire>))
        });
        wires.collect()
    }

    /// Connects to all nodes for the client that has these wires, and stays connected: waits for none.
    pub fn connect(&self, client: &Arc<Client>) {
        assert!(self.client.set(Arc::downgrade(client)).is_ok(), "the nodes are one client's");
        for remote in self.lock().values() {
            start(remote);
        }
    }

    /// The connection to a node.
    pub fn get(&self, node: NodeId) -> Option<Arc<Remote>> {
        self.lock().get(&node).cloned()
    }

    /// From now on the nodes are these. What was asked of an island that is at another node now, or whose node has another
    /// address, is asked again there, as after a lost link.
    pub fn change(&self, places: &[NodePlace]) {
        let client = self.client.get().and_then(Weak::upgrade);
        // Held to the end: of two changes the later one comes later.
        let mut remotes = self.lock();
        let old = std::mem::take(&mut *remotes);
        let mut made = Vec::new();
        for place in places {
            let same = old.get(&place.node).filter(|remote| remote.is_at(place));
            let remote = same.cloned().unwrap_or_else(|| {
                let remote = self.remote_to(place, places);
                made.push(Arc::clone(&remote));
                remote
            });
            remote.set_relays(relays_to(place.node, places));
            remote.set_copies(&place.copies);
            remotes.insert(place.node, remote);
        }
        let mut left = BTreeSet::new();
        for (node, remote) in &old {
            let stays = remotes.get(node).is_some_and(|new| Arc::ptr_eq(new, remote));
            let place = places.iter().find(|place| place.node == *node).filter(|_| stays);
            left.extend(
                place.map_or_else(|| remote.leave_all(), |place| remote.leave_islands(&place.islands)),
            );
            if !stays {
                remote.stop();
            }
        }
        for place in places {
            let remote = &remotes[&place.node];
            let comes = |island: &&IslandId| !remote.islands().contains(*island);
            let coming: Vec<IslandId> = place.islands.iter().filter(comes).copied().collect();
            if let Some(client) = &client {
                for island in &coming {
                    client.set_wire(*island, Arc::clone(remote) as Arc<dyn Wire>);
                    left.remove(island);
                    client.reachable(*island, false);
                }
            }
            remote.take_islands(&coming);
        }
        // At no node that is in another process any more.
        if let Some(client) = &client {
            left.into_iter().for_each(|island| client.reachable(island, false));
        }
        made.iter().for_each(start);
    }

    /// Where the nodes are reached.
    pub fn addresses(&self) -> Vec<Address> {
        self.lock().values().map(|remote| remote.address().clone()).collect()
    }

    /// Ends all connections.
    pub fn stop(&self) {
        self.lock().values().for_each(|remote| remote.stop());
    }
}

/// The nodes that may pass on what is sent to one of them.
fn relays_to(node: NodeId, all: &[NodePlace]) -> Vec<(NodeId, Address)> {
    all.iter().filter(|other| other.node != node).map(|other| (other.node, other.address.clone())).collect()
}

fn start(remote: &Arc<Remote>) {
    // Whether it succeeds at once is of no interest: it goes on trying.
    let _ = remote.connect(Duration::ZERO);
}
