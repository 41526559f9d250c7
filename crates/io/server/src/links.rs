//! Frames of clients and of other nodes, taken to the islands that they are for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use atoll_core::{IslandId, Malformed, NodeId};
use atoll_disk::Disk;
use atoll_island::{Event, LinkId};
use atoll_links::BothWays;
use atoll_proto::{PeerMessage, Request};
use atoll_rpc::{Closed, Frame, Handler, Kind, Link, Remote, Role};

use crate::switch::End;
use crate::volume::Volume;

impl<D: Disk> Volume<D> {
    /// A client's or node's link to this volume is up.
    pub fn opened(&self, link: &Arc<Link>) {
        self.switch().connect(LinkId(link.id()), End::Remote(Arc::clone(link)));
        for island in self.switch().halted_islands().into_keys() {
            let _ = link.gone(island);
        }
        if let Some(node) = self.node_of(link) {
            // Whoever connects can be connected to.
            self.knock(node);
            if let Some(other) = self.other(node) {
                other.change(self, |both| both.accepted(link.id()));
            }
        }
    }

    /// A client's or node's link to this volume is down.
    pub fn closed(&self, link: &Arc<Link>, why: &Closed) {
        let ended = match why {
            Closed::Theirs(_) => true,
            // What the other side's system closes is over there for good; silence is not. A relay may have ended
            // what the other side still has.
            Closed::Ended | Closed::CutShort => !link.is_relayed(),
            _ => false,
        };
        if let Some(other) = self.node_of(link).and_then(|node| self.other(node)) {
            other.change(self, |both| both.ended(link.id()));
        }
        self.link_closed(LinkId(link.id()), ended);
    }

    /// The node that has opened a link, if a node has.
    fn node_of(&self, link: &Link) -> Option<NodeId> {
        let Remote::Accepted(hello) = link.remote() else { return None };
        let Role::Node { members, .. } = &hello.role else { return None };
        members.iter().find(|(volume, _)| *volume == self.config().id).map(|(_, node)| *node)
    }

    /// Whether an island is on that node, which is another one than this.
    fn is_of(&self, island: IslandId, node: NodeId) -> bool {
        let nodes = &self.config().nodes;
        node != self.node() && nodes.iter().any(|n| n.node == node && n.islands.contains(&island))
    }

    /// A frame has come on a link to this volume.
    pub fn frame(&self, link: &Arc<Link>, frame: Frame) {
        if let Err(what) = self.take_frame(link, frame) {
            link.malformed(what);
        }
    }

    fn take_frame(&self, link: &Arc<Link>, frame: Frame) -> Result<(), Malformed> {
        if !self.holds(frame.island) {
            return Err(Malformed::new("an island that is not this node's"));
        }
        let Remote::Accepted(hello) = link.remote() else {
            return Err(Malformed::new("a request on a link of this side"));
        };
        match (frame.kind, &hello.role) {
            (Kind::Request, Role::Client { session, .. }) => {
                let request = frame.decode::<Request>()?;
                // A client speaks for its own session only.
                if request.session != *session {
                    return Err(Malformed::new("a session of another client"));
                }
                self.request(frame.island, LinkId(link.id()), frame.id, request, frame.payload);
            }
            (Kind::Peer, Role::Node { .. }) => {
                let message = frame.decode::<PeerMessage>()?;
                // A node speaks for its own islands only, also where another one passes its frames on: who said
                // something decides who is believed, asked again, and told of the end.
                let node = self.node_of(link);
                if !node.is_some_and(|node| self.is_of(message.from, node)) {
                    return Err(Malformed::new("an island of another node"));
                }
                self.enter(frame.island, Event::Peer(message));
            }
            _ => return Err(Malformed::new("kind of frame for this role")),
        }
        Ok(())
    }
}

/// Another node, as this one's islands see it.
#[derive(Debug)]
pub(crate) struct OtherNode {
    node: NodeId,
    islands: Vec<IslandId>,
    state: Mutex<OtherState>,
}

#[derive(Debug, Default)]
struct OtherState {
    both: BothWays,
    /// Islands that have stopped serving, although their node goes on.
    gone: BTreeSet<IslandId>,
}

impl OtherNode {
    pub(crate) fn new(node: NodeId, islands: Vec<IslandId>) -> Arc<Self> {
        Arc::new(Self { node, islands, state: Mutex::default() })
    }

    /// A link to the node, or from it, has come up or has gone down: the islands here are told what that changes.
    fn change<D: Disk>(&self, volume: &Volume<D>, change: impl FnOnce(&mut BothWays) -> Option<bool>) {
        // Held while they are told, so that they hear of what follows later.
        let mut state = self.state.lock().expect("no panic while it is held");
        let Some(up) = change(&mut state.both) else { return };
        for island in self.islands.iter().filter(|island| !up || !state.gone.contains(island)) {
            volume.peer_reachable(*island, up);
        }
    }
}

/// What comes back on this node's own links to others: their end, and that of single islands.
pub(crate) struct Peers<D: Disk> {
    pub(crate) volume: Weak<Volume<D>>,
    /// Who is at the other end.
    pub(crate) other: Arc<OtherNode>,
}

impl<D: Disk> Handler for Peers<D> {
    fn opened(&self, link: &Arc<Link>) {
        let Some(volume) = self.volume.upgrade() else { return };
        if link.is_relayed() {
            volume.tell_relayed(self.other.node);
        }
        self.other.state.lock().expect("no panic while it is held").gone.clear();
        self.other.change(&volume, |both| both.outgoing(true));
    }

    fn replaced(&self, _link: &Arc<Link>, _old: &Arc<Link>) {
        let Some(volume) = self.volume.upgrade() else { return };
        self.other.state.lock().expect("no panic while it is held").gone.clear();
        self.other.change(&volume, |both| both.replaced());
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        match frame.kind {
            Kind::Gone if self.other.islands.contains(&frame.island) => {
                if let Some(volume) = self.volume.upgrade() {
                    let mut state = self.other.state.lock().expect("no panic while it is held");
                    state.gone.insert(frame.island);
                    volume.peer_reachable(frame.island, false);
                }
            }
            _ => link.malformed(Malformed::new("kind of frame for a node")),
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {
        if let Some(volume) = self.volume.upgrade() {
            self.other.change(&volume, |both| both.outgoing(false));
        }
    }
}
