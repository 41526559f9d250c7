//! Takes frames of clients and of other nodes to their islands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use atoll_core::{IslandId, Malformed, NodeId};
use atoll_disk::Disk;
use atoll_dispatch::Engine;
use atoll_island::{Event, LinkId};
use atoll_links::BothWays;
use atoll_proto::{Outcome, PeerMessage, Reply, Request};
use atoll_rpc::{Closed, Frame, FrameKind, Handler, Link, Remote, Role};

use crate::limits::limited;
use crate::membership::LetIn;
use crate::switch::End;
use crate::volume::{Volume, tell};

/// The version of a volume that was made just now.
pub(crate) const FIRST_VERSION: u64 = 1;

impl<D: Disk> Volume<D> {
    /// A client's or node's link to this volume is up.
    pub fn opened(&self, link: &Arc<Link>) {
        self.switch().connect(LinkId(link.id()), End::Remote(Arc::clone(link)));
        let version = self.config().table.version();
        if version > FIRST_VERSION {
            // A link that is down has told so.
            let _ = link.config(version);
        }
        for island in self.islands().into_iter().filter(|island| !self.serves(*island)) {
            self.not_here(island, LinkId(link.id()));
        }
        for island in self.islands().into_iter().filter(|island| self.serves(*island) && self.has_copies()) {
            self.switch().primary(island, self.epoch_of(island), LinkId(link.id()));
        }
        if let Some(who) = self.life_of(link) {
            self.link_opened(link.id(), who);
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
        if let Some(node) = self.node_of(link) {
            self.node_links.lock().expect("no panic while it is held").ended(link.id(), node);
            if let Some(other) = self.other(node) {
                other.change(self, |both| both.ended(link.id()));
            }
        }
        self.link_closed(LinkId(link.id()), ended);
    }

    /// The node that has opened a link, if a node has.
    fn node_of(&self, link: &Link) -> Option<NodeId> {
        self.life_of(link).map(|who| who.node)
    }

    /// A frame has come on a link to this volume.
    pub fn frame(&self, link: &Arc<Link>, frame: Frame) {
        if let Err(what) = self.take_frame(link, frame) {
            link.malformed(what);
        }
    }

    fn take_frame(&self, link: &Arc<Link>, frame: Frame) -> Result<(), Malformed> {
        let Remote::Accepted(hello) = link.remote() else {
            return Err(Malformed::new("a request on a link of this side"));
        };
        match (frame.kind, &hello.role) {
            (FrameKind::Request, Role::Client { session, .. }) => {
                let request = frame.decode::<Request>()?;
                // A client speaks for its own session only.
                if request.session != *session {
                    return Err(Malformed::new("a session of another client"));
                }
                let engines = self.engines.now();
                let Some(engine) = engines.get(&frame.island) else {
                    return self.elsewhere(frame.island, link);
                };
                let grant = link.context::<LetIn>().and_then(|let_in| let_in.grant.as_ref());
                let request = match grant {
                    None => request,
                    Some(grant) => match limited(grant, request) {
                        Ok(request) => request,
                        Err(errno) => {
                            let reply = Reply::bare(Outcome::Failed { errno });
                            engine.answer(LinkId(link.id()), frame.id, reply, &[]);
                            return Ok(());
                        }
                    },
                };
                self.ask(engine, LinkId(link.id()), frame.id, request, frame.payload);
            }
            (FrameKind::Peer, Role::Node { .. }) => {
                let message = frame.decode::<PeerMessage>()?;
                // A node speaks for its own islands only, also where another one passes its frames on: who said
                // something decides who is believed, asked again, and told of the end.
                let other = self.node_of(link).and_then(|node| self.other(node));
                if !other.is_some_and(|other| other.hears(message.from, link)) {
                    return self.known(frame.island).and_then(|()| self.known(message.from));
                }
                let engines = self.engines.now();
                match engines.get(&frame.island).filter(|engine| !engine.is_halted()) {
                    Some(engine) => engine.enter(Event::Peer(message)),
                    None => return self.elsewhere(frame.island, link),
                }
            }
            (FrameKind::Group | FrameKind::Beacon | FrameKind::Promised, Role::Node { .. }) => {
                return self.take_group_frame(link, frame);
            }
            _ => return Err(Malformed::new("kind of frame for this role")),
        }
        Ok(())
    }

    /// A frame about an island that cannot be asked here.
    fn elsewhere(&self, island: IslandId, link: &Link) -> Result<(), Malformed> {
        self.known(island)?;
        self.not_here(island, LinkId(link.id()));
        Ok(())
    }

    /// Which islands a volume has never changes: a frame about another one is no frame of this volume. Where they are
    /// changes, and not everybody hears of it at once, so that such a frame breaks nothing.
    fn known(&self, island: IslandId) -> Result<(), Malformed> {
        if self.holds(island) || self.config().node_of(island).is_some() {
            return Ok(());
        }
        Err(Malformed::new("an island that the volume has not"))
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
    /// Islands that said something by way of this node while they were not at it, as far as was known here, and the link
    /// on which it was dropped.
    unheard: BTreeMap<IslandId, Weak<Link>>,
    both: BothWays,
    /// Islands that have stopped serving, although their node goes on.
    gone: BTreeSet<IslandId>,
    /// Which of this node's own links to it counts: another address makes another one.
    link: u64,
    /// The id of the connection that this link uses. A frame on an earlier one may come late, and tell what was true before.
    used: u64,
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
            if !state.gone.remove(&island) && state.both.is_reachable() {
                volume.peer_reachable(island, false);
            }
        }
    }

    /// Another node leads the island: nothing more is heard of it by way of this one.
    pub(crate) fn leave_one(&self, island: IslandId) {
        let mut state = self.state();
        state.islands.retain(|at| *at != island);
        state.gone.remove(&island);
    }

    /// Whether an island is at this node and can be reached there.
    pub(crate) fn reaches(&self, island: IslandId) -> bool {
        let state = self.state();
        state.both.is_reachable() && state.islands.contains(&island) && !state.gone.contains(&island)
    }

    /// The node holds these islands: the islands here are told of those that are new, if it can be reached.
    pub(crate) fn take<D: Disk>(&self, volume: &Volume<D>, islands: &[IslandId]) {
        let mut state = self.state();
        for island in islands {
            if state.islands.contains(island) {
                continue;
            }
            state.islands.push(*island);
            if let Some(link) = state.unheard.remove(island).and_then(|link| link.upgrade()) {
                volume.begin_anew(&link);
            }
            if state.both.is_reachable() {
                volume.peer_reachable(*island, true);
            }
        }
    }

    /// An island has come to this node: it is told of those at the other one that can be reached.
    pub(crate) fn tell<D: Disk>(&self, engine: &Engine<D>) {
        let state = self.state();
        if state.both.is_reachable() {
            for island in state.islands.iter().filter(|island| !state.gone.contains(island)) {
                tell(engine, Event::PeerReachable { island: *island, up: true });
            }
        }
    }

    /// Whether an island is at this node, so that it may speak by way of it. Otherwise it has left before this was read,
    /// or this node has not heard yet that it has come. In the second case it says all again when that is heard.
    fn hears(&self, island: IslandId, link: &Arc<Link>) -> bool {
        let mut state = self.state();
        let is_there = state.islands.contains(&island);
        if !is_there {
            state.unheard.insert(island, Arc::downgrade(link));
        }
        is_there
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
        state.used = link.id();
        state.gone.clear();
        state.change(&volume, |both| both.outgoing(true));
    }

    fn replaced(&self, link: &Arc<Link>, _old: &Arc<Link>) {
        let Some(volume) = self.volume.upgrade() else { return };
        let Some(mut state) = self.state() else { return };
        state.used = link.id();
        state.gone.clear();
        state.change(&volume, |both| both.replaced());
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let (Some(volume), Some(mut state)) = (self.volume.upgrade(), self.state()) else { return };
        if state.used != link.id() {
            return;
        }
        match frame.kind {
            FrameKind::Primary if volume.has_copies() => {
                state.gone.remove(&frame.island);
                drop(state);
                match frame.decode::<u32>() {
                    Ok(epoch) => volume.heard_primary(frame.island, self.other.node, epoch),
                    Err(what) => link.malformed(what),
                }
            }
            // A node reads the configuration where all read it.
            FrameKind::Config => {}
            // It is at another node, as far as is known here, and is told of by that one.
            FrameKind::Gone | FrameKind::Primary if !state.islands.contains(&frame.island) => {}
            FrameKind::Gone => {
                state.gone.insert(frame.island);
                volume.peer_reachable(frame.island, false);
            }
            FrameKind::Primary => {
                if state.gone.remove(&frame.island) && state.both.is_reachable() {
                    volume.peer_reachable(frame.island, true);
                }
            }
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
