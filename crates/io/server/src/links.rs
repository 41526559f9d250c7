//! Takes frames of clients and of other nodes to their islands.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

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
        members.iter().find(|(volume, _)| *volume == self.id()).map(|(_, node)| *node)
    }

    /// Whether an island is on that node, which is another one than this.
    fn is_of(&self, island: IslandId, node: NodeId) -> bool {
        let config = self.config();
        node != self.node() && config.nodes.iter().any(|n| n.node == node && n.islands.contains(&island))
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
                if node.and_then(|node| self.other(node)).is_some_and(|node| node.has_lost(message.from)) {
                    // Said before its node heard, or here before this node heard, that it is at another one now.
                    return Ok(());
                }
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
    state: Mutex<OtherState>,
}

#[derive(Debug, Default)]
struct OtherState {
    islands: Vec<IslandId>,
    /// Islands that were at this node: what comes of them may have been on its way when they left.
    left: BTreeSet<IslandId>,
    both: BothWays,
    /// Islands that have stopped serving, although their node goes on.
    gone: BTreeSet<IslandId>,
    /// Which of this node's own links to it counts: another address makes another one.
    link: u64,
}

impl OtherState {
    /// A link has come up or has gone down: the islands here are told what that changes.
    fn change<D: Disk>(&mut self, volume: &Volume<D>, change: impl FnOnce(&mut BothWays) -> Option<bool>) {
        let Some(up) = change(&mut self.both) else { return };
        for island in self.islands.iter().filter(|island| !up || !self.gone.contains(island)) {
            volume.peer_reachable(*island, up);
        }
    }
}

impl OtherNode {
    /// Without an island yet.
    pub(crate) fn new(node: NodeId) -> Arc<Self> {
        Arc::new(Self { node, state: Mutex::default() })
    }

    /// Its number.
    pub(crate) const fn node(&self) -> NodeId {
        self.node
    }

    /// Held while the islands here are told, so that they hear of what follows later.
    fn state(&self) -> MutexGuard<'_, OtherState> {
        self.state.lock().expect("no panic while it is held")
    }

    /// A link from the node has come up or has gone down.
    fn change<D: Disk>(&self, volume: &Volume<D>, change: impl FnOnce(&mut BothWays) -> Option<bool>) {
        self.state().change(volume, change);
    }

    /// This node's own link to it is another one from now on, and not up yet. Its number: nothing that is heard of the one
    /// before it counts any more.
    pub(crate) fn begin_link<D: Disk>(&self, volume: &Volume<D>) -> u64 {
        let mut state = self.state();
        state.link += 1;
        state.gone.clear();
        state.change(volume, |both| both.outgoing(false));
        state.link
    }

    /// The node holds no islands but `stay` any more: the islands here are told that the others cannot be reached.
    pub(crate) fn leave<D: Disk>(&self, volume: &Volume<D>, stay: &[IslandId]) {
        let mut state = self.state();
        let (stay, left) = std::mem::take(&mut state.islands).into_iter().partition(|i| stay.contains(i));
        state.islands = stay;
        for island in left {
            state.left.insert(island);
            if !state.gone.remove(&island) && state.both.is_reachable() {
                volume.peer_reachable(island, false);
            }
        }
    }

    /// The node holds these islands: the islands here are told of those that are new, if it can be reached.
    pub(crate) fn take<D: Disk>(&self, volume: &Volume<D>, islands: &[IslandId]) {
        let mut state = self.state();
        for island in islands {
            if state.islands.contains(island) {
                continue;
            }
            state.left.remove(island);
            state.islands.push(*island);
            if state.both.is_reachable() {
                volume.peer_reachable(*island, true);
            }
        }
    }

    /// Whether an island was at this node, and is not any more.
    fn has_lost(&self, island: IslandId) -> bool {
        self.state().left.contains(&island)
    }
}

/// Events on this node's own links to others: their end, and the end of single islands.
pub(crate) struct Peers<D: Disk> {
    pub(crate) volume: Weak<Volume<D>>,
    /// The node at the other end.
    pub(crate) other: Arc<OtherNode>,
    /// See [`OtherNode::begin_link`].
    pub(crate) number: u64,
}

impl<D: Disk> Peers<D> {
    /// The other end's state, unless another link has taken this one's place.
    fn state(&self) -> Option<MutexGuard<'_, OtherState>> {
        Some(self.other.state()).filter(|state| state.link == self.number)
    }
}

impl<D: Disk> Handler for Peers<D> {
    fn opened(&self, link: &Arc<Link>) {
        let Some(volume) = self.volume.upgrade() else { return };
        if link.is_relayed() {
            volume.tell_relayed(self.other.node);
        }
        let Some(mut state) = self.state() else { return };
        state.gone.clear();
        state.change(&volume, |both| both.outgoing(true));
    }

    fn replaced(&self, _link: &Arc<Link>, _old: &Arc<Link>) {
        let Some(volume) = self.volume.upgrade() else { return };
        let Some(mut state) = self.state() else { return };
        state.gone.clear();
        state.change(&volume, |both| both.replaced());
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let Some(mut state) = self.state() else { return };
        match frame.kind {
            Kind::Gone if state.islands.contains(&frame.island) => {
                if let Some(volume) = self.volume.upgrade() {
                    state.gone.insert(frame.island);
                    volume.peer_reachable(frame.island, false);
                }
            }
            Kind::Gone if state.left.contains(&frame.island) => {}
            _ => {
                drop(state);
                link.malformed(Malformed::new("kind of frame for a node"));
            }
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {
        let (Some(volume), Some(mut state)) = (self.volume.upgrade(), self.state()) else { return };
        state.change(&volume, |both| both.outgoing(false));
    }
}
