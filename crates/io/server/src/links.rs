//! Frames of clients and of other nodes, taken to the islands that they are for.

use std::sync::{Arc, Weak};

use atoll_core::{IslandId, Malformed};
use atoll_disk::Disk;
use atoll_island::{Event, LinkId};
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
        // Whoever connects can be connected to.
        if let Remote::Accepted(hello) = link.remote()
            && let Role::Node { members, .. } = &hello.role
            && let Some((_, node)) = members.iter().find(|(volume, _)| *volume == self.config().id)
        {
            self.knock(*node);
        }
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
                if self.holds(message.from) {
                    return Err(Malformed::new("an island of this node"));
                }
                self.enter(frame.island, Event::Peer(message));
            }
            _ => return Err(Malformed::new("kind of frame for this role")),
        }
        Ok(())
    }
}

/// What comes back on this node's own links to others: their end, and that of single islands.
pub(crate) struct Peers<D: Disk> {
    pub(crate) volume: Weak<Volume<D>>,
    /// Islands at the other end.
    pub(crate) islands: Vec<IslandId>,
}

impl<D: Disk> Peers<D> {
    fn reachable(&self, up: bool) {
        if let Some(volume) = self.volume.upgrade() {
            for island in &self.islands {
                volume.peer_reachable(*island, up);
            }
        }
    }
}

impl<D: Disk> Handler for Peers<D> {
    fn opened(&self, _link: &Arc<Link>) {
        self.reachable(true);
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        match frame.kind {
            Kind::Gone if self.islands.contains(&frame.island) => {
                if let Some(volume) = self.volume.upgrade() {
                    volume.peer_reachable(frame.island, false);
                }
            }
            _ => link.malformed(Malformed::new("kind of frame for a node")),
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {
        self.reachable(false);
    }
}
