//! Islands on other nodes: one managed connection a node.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use atoll_core::{IslandId, NodeId, SessionId};
use atoll_posix::Errno;
use atoll_proto::control::Connection;
use atoll_proto::{Notice, Outcome, Reply, Request};
use atoll_rpc::{
    Address, Closed, ConnectError, DaemonId, Frame, FrameKind, Handler, Hello, Link, Options, Outgoing,
    Relays, Role, SendError,
};
use bytes::Bytes;

use crate::client::{Client, Sink, Wire};
use crate::nodes::{NodePlace, Nodes};

/// The errno of a request that is longer than a message may be.
const E2BIG: Errno = Errno(7);

/// The connection to the islands of one node.
pub struct Remote {
    outgoing: Outgoing,
    /// The daemon that is meant; none: any.
    daemon: Option<DaemonId>,
    incoming: Arc<Incoming>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.outgoing.address())
    }
}

/// The receiver of the node's frames, for a client that is set when it is made.
struct Incoming {
    node: Mutex<NodeState>,
    /// Whose requests these are.
    client: Arc<OnceLock<Weak<Client>>>,
    /// All nodes, and the number of this one.
    nodes: Weak<Nodes>,
    number: NodeId,
}

/// A node, as its connection knows it.
#[derive(Default)]
struct NodeState {
    is_up: bool,
    islands: Vec<IslandId>,
    /// Those of them that cannot be asked there, as the node has said on the link that is up.
    gone: BTreeSet<IslandId>,
    /// Islands with several copies of which it has one.
    copies: Vec<IslandId>,
    /// Islands with several copies that it leads, as it has said on the link that is up. They are among those that it holds.
    led: BTreeSet<IslandId>,
}

impl Remote {
    /// Keeps a connection to a node, which holds no islands yet; through another node of `relays` where it cannot be reached
    /// directly. `client` is set later, when the client that has this wire is made.
    pub(crate) fn new(
        place: &NodePlace,
        relays: Relays,
        session: SessionId,
        client: Arc<OnceLock<Weak<Client>>>,
        nodes: Weak<Nodes>,
    ) -> Arc<Self> {
        let (volume, number) = (relays.volume, relays.to);
        let greeting = Box::new(move || Hello::new(Role::Client { volume, session }, None));
        let incoming = Arc::new(Incoming { node: Mutex::default(), client, nodes, number });
        let handler = Arc::clone(&incoming);
        let daemon = DaemonId::named(place.daemon);
        let options = Options { expects: daemon, ..Options::default() };
        let outgoing = Outgoing::with_relays(place.address.clone(), greeting, handler, options, relays);
        Arc::new(Self { outgoing, daemon, incoming })
    }

    /// Whether it is the connection to this node.
    pub(crate) fn is_at(&self, place: &NodePlace) -> bool {
        self.outgoing.address() == &place.address && self.daemon == DaemonId::named(place.daemon)
    }

    /// Where the node is reached.
    pub fn address(&self) -> &Address {
        self.outgoing.address()
    }

    /// The islands that the node holds.
    pub(crate) fn islands(&self) -> Vec<IslandId> {
        self.incoming.node().islands.clone()
    }

    /// The node holds these islands too.
    pub(crate) fn take_islands(&self, islands: &[IslandId]) {
        let mut node = self.incoming.node();
        node.islands.extend(islands);
        // While it is held, so that the end of the link comes later.
        if node.is_up {
            self.incoming.tell(islands, true);
        }
    }

    /// The node has copies of these islands.
    pub(crate) fn set_copies(&self, islands: &[IslandId]) {
        self.incoming.node().copies = islands.to_vec();
    }

    /// The node leads an island with several copies, or another one does.
    pub(crate) fn set_led(&self, island: IslandId, leads: bool) {
        let mut node = self.incoming.node();
        node.islands.retain(|at| *at != island);
        node.gone.remove(&island);
        node.led.remove(&island);
        if leads {
            node.islands.push(island);
            node.led.insert(island);
        }
    }

    /// The node holds no islands but `stay` any more, and those that it leads as it has said. Nothing is heard from here of those that
    /// it has lost: they are returned.
    pub(crate) fn leave_islands(&self, stay: &[IslandId]) -> Vec<IslandId> {
        let mut node = self.incoming.node();
        let all = std::mem::take(&mut node.islands).into_iter();
        let (stay, left) = all.partition(|i| stay.contains(i) || node.led.contains(i));
        node.islands = stay;
        left.iter().for_each(|island| _ = node.gone.remove(island));
        left
    }

    /// The node is none of the volume any more. The islands that it held are returned.
    pub(crate) fn leave_all(&self) -> Vec<IslandId> {
        self.incoming.node().led.clear();
        self.leave_islands(&[])
    }

    /// From now on these nodes pass on what is sent, where this one cannot be reached directly.
    pub(crate) fn set_relays(&self, others: Vec<(NodeId, Address)>) {
        self.outgoing.set_relays(others);
    }

    /// Connects, and stays connected. Waits for the first attempt to succeed, or for the time.
    pub fn connect(&self, time_max: Duration) -> Result<(), ConnectError> {
        self.outgoing.keep(true);
        self.outgoing.connect(time_max).map(|_| ())
    }

    /// Whether the connection is up.
    pub fn is_up(&self) -> bool {
        self.outgoing.link().is_some()
    }

    /// The connection, and whether another node passes it on.
    pub fn connection(&self) -> Connection {
        match self.outgoing.link() {
            None => Connection::Down,
            Some(link) if link.is_relayed() => Connection::Relayed,
            Some(_) => Connection::Direct,
        }
    }

    /// Ends the connection.
    pub fn stop(&self) {
        self.outgoing.stop();
    }
}

impl Wire for Remote {
    fn send(&self, island: IslandId, id: u64, request: Request, data: Bytes) {
        match self.outgoing.send(FrameKind::Request, island, id, &request, &data) {
            // A link that is down tells so itself, and the machine asks again.
            Ok(()) | Err(SendError::NotConnected) => {}
            // The island has not heard of it: nothing was done, and the caller is told.
            Err(SendError::TooLong(_)) => {
                if let Some(client) = self.incoming.client() {
                    let outcome = Outcome::Failed { errno: E2BIG };
                    client.reply(island, id, Reply::bare(outcome), &[]);
                }
            }
        }
    }
}

impl Incoming {
    fn client(&self) -> Option<Arc<Client>> {
        self.client.get()?.upgrade()
    }

    fn node(&self) -> MutexGuard<'_, NodeState> {
        self.node.lock().expect("no panic while it is held")
    }

    fn tell(&self, islands: &[IslandId], up: bool) {
        if let Some(client) = self.client() {
            islands.iter().for_each(|island| client.reachable(*island, up));
        }
    }

    /// The link is up, or down. The islands are told while it is held: what follows is told later.
    fn changed(&self, up: bool) {
        let mut node = self.node();
        node.is_up = up;
        node.gone.clear();
        if let Some(client) = self.client().filter(|_| up) {
            client.may_return(&node.copies);
        }
        self.tell(&node.islands, up);
        // Which islands with several copies it leads it says anew on each link.
        let led = std::mem::take(&mut node.led);
        node.islands.retain(|island| !led.contains(island));
    }
}

impl Handler for Incoming {
    fn opened(&self, _link: &Arc<Link>) {
        self.changed(true);
    }

    fn replaced(&self, _link: &Arc<Link>, _old: &Arc<Link>) {
        let Some(client) = self.client() else { return };
        let mut node = self.node();
        node.gone.clear();
        node.islands.iter().for_each(|island| client.replaced(*island));
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let Some(client) = self.client() else { return };
        if frame.kind == FrameKind::Config {
            match (frame.decode::<u64>(), self.nodes.upgrade()) {
                (Ok(version), Some(nodes)) => nodes.config(version),
                (Ok(_), None) => {}
                (Err(what), _) => link.malformed(what),
            }
            return;
        }
        if frame.kind == FrameKind::Primary {
            match frame.decode::<u32>() {
                Ok(0) => {}
                Ok(epoch) => {
                    if let Some(nodes) = self.nodes.upgrade() {
                        nodes.leads(self.number, frame.island, epoch);
                    }
                    return;
                }
                Err(what) => return link.malformed(what),
            }
        }
        let mut node = self.node();
        if !node.islands.contains(&frame.island) {
            // It is at another node, as far as is known here, and is asked there: it may have left this one while this
            // frame was on its way, or this client may not have heard yet that it has come.
            return;
        }
        match frame.kind {
            // Told while the node is held, so that what follows is told later.
            FrameKind::Gone => {
                node.gone.insert(frame.island);
                return client.reachable(frame.island, false);
            }
            FrameKind::Primary => {
                if node.gone.remove(&frame.island) {
                    client.reachable(frame.island, true);
                }
                return;
            }
            _ => drop(node),
        }
        match frame.kind {
            FrameKind::Reply => match frame.decode::<Reply>() {
                Ok(reply) => client.reply(frame.island, frame.id, reply, &frame.payload),
                Err(what) => link.malformed(what),
            },
            FrameKind::Notice => match frame.decode::<Notice>() {
                Ok(notice) => client.notice(frame.island, notice),
                Err(what) => link.malformed(what),
            },
            _ => link.malformed(atoll_core::Malformed::new("kind of frame for a client")),
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {
        self.changed(false);
    }
}
