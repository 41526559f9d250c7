//! The session at each island: attaching, leases, recalls, and orphans that are released.
//!
//! A mount drops everything that it has kept when a link breaks, before it attaches again. So an island that
//! has started anew can take the attaching as the answer to its recall.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId};
use atoll_posix::{Caller, Errno};
use atoll_proto::{ClientOp, Lease, Notice};
use bytes::Bytes;

use crate::call::{Call, CallKind, Sending};
use crate::lease::renewed_before;
use crate::out::{RecallOf, RouteOut};
use crate::route::{RELEASE_BATCH, Route};
use crate::synced::changes;

/// Most recalls of an island that are answered one by one. The answer to a later one stands for those before.
const RECALLS_OF_MAX: usize = 1024;

impl<T> Route<T> {
    /// The link to an island has come up or gone down.
    pub fn reachable(&mut self, island: IslandId, up: bool, out: &mut RouteOut<T>) {
        let now_ms = self.now_ms;
        if up {
            self.may_return(island);
        }
        let Some(peer) = self.peers.get_mut(&island) else { return };
        if up {
            peer.up = true;
            peer.heard_ms = now_ms;
            if !peer.attaching && self.recalls == 0 {
                self.attach(island, out);
            }
            return;
        }
        if std::mem::take(&mut peer.up) {
            peer.down_ms = now_ms;
        }
        self.link_lost(island, out);
    }

    /// A node is connected that may lead an island soon. Calls wait for the island again, also if others have waited for it in
    /// vain.
    pub fn may_return(&mut self, island: IslandId) {
        let now_ms = self.now_ms;
        if let Some(peer) = self.peers.get_mut(&island) {
            peer.given_up = false;
            peer.back_ms = now_ms;
        }
    }

    /// A new link to an island's node has replaced the old one, and the island was never away. Calls under
    /// way wait until the session is attached again, and no other island is asked.
    pub fn replaced(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        if self.peers.get(&island).is_some_and(|peer| peer.up) {
            self.link_lost(island, out);
        }
        self.reachable(island, true, out);
    }

    /// A link has broken: the requests on it may or may not have arrived.
    fn link_lost(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        if self.lease.take() {
            // The lease there runs out unseen.
            self.recall(out);
        }
        let Some(peer) = self.peers.get_mut(&island) else { return };
        // It is asked again, with its number.
        peer.attached = false;
        peer.attaching = false;
        peer.lease = Lease::No;
        peer.recalling = false;
        peer.recalls_of.clear();
        peer.told_version = 0;
        let mut lost: Vec<u64> =
            self.calls.iter().filter(|(_, c)| c.island == island).map(|(id, _)| *id).collect();
        lost.sort_unstable();
        self.peers.get_mut(&island).expect("looked at").waiting.clear();
        self.retry.retain(|(_, id)| lost.binary_search(id).is_err());
        for id in lost {
            let call = self.calls.get_mut(&id).expect("just listed");
            if matches!(call.what, CallKind::Own(_)) {
                self.calls.remove(&id);
            } else {
                call.doubtful |= call.is_in_flight();
                call.sending = Sending::Waiting;
                if planted(Bug::AskedAsNew) {
                    call.seq = 0;
                }
                self.ask(id, out);
            }
        }
        self.undo_unwanted(island, out);
    }

    /// Attaches the session, again or for the first time. An island that has forgotten the session must say
    /// so, because requests that it had been sent may otherwise be done twice.
    pub(crate) fn attach(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        let mount = self.config.mount;
        let peer = self.peers.get_mut(&island).expect("known to the caller");
        peer.attaching = true;
        peer.recalling = false;
        peer.recalls_of.clear();
        peer.told_from = self.next_id;
        let op = match self.config.scope {
            _ if peer.known => ClientOp::Dropped,
            Some((scope, _)) => ClientOp::AttachWithin { mount, scope },
            None => ClientOp::Attach { mount },
        };
        self.own(island, op, out);
    }

    /// An island does not know the session, or no longer: locks and results are gone with it.
    pub(crate) fn on_no_session(&mut self, id: u64, island: IslandId, out: &mut RouteOut<T>) {
        let peer = self.peers.get_mut(&island).expect("a reply of a known island");
        peer.attached = false;
        if std::mem::take(&mut peer.known) {
            // Asked again, these could be carried out twice.
            let doubtful = |c: &Call<T>| c.island == island && c.doubtful && changes(&c.what);
            let mut lost: Vec<u64> =
                self.calls.iter().filter(|(_, c)| doubtful(c)).map(|(id, _)| *id).collect();
            lost.sort_unstable();
            for id in lost {
                self.give_up(id, Errno::EIO, out);
            }
        }
        match self.calls.get(&id).map(|c| &c.what) {
            Some(CallKind::Own(op)) => {
                let ends_attaching = *op == ClientOp::Dropped;
                self.calls.remove(&id);
                self.peers.get_mut(&island).expect("looked at").attaching &= !ends_attaching;
            }
            Some(_) => self.wait(id, out),
            None => {}
        }
        // What is kept goes first; then it is attached to, like all that are back.
        if !self.peers.get(&island).expect("looked at").attaching && self.recalls == 0 {
            self.attach(island, out);
        }
    }

    pub(crate) fn own(&mut self, island: IslandId, op: ClientOp, out: &mut RouteOut<T>) {
        let id = self.next_id;
        self.next_id += 1;
        let call = Call::new(None, Caller::ROOT, CallKind::Own(op), Bytes::new(), island);
        self.calls.insert(id, call);
        self.ask(id, out);
    }

    pub(crate) fn on_attached(
        &mut self,
        now_ms: u64,
        id: u64,
        island: IslandId,
        lease: Lease,
        power: u32,
        out: &mut RouteOut<T>,
    ) {
        self.lived(island, power);
        if self.calls.get(&id).is_some_and(Call::is_confirming) {
            return self.synced(id, out);
        }
        let call = self.calls.remove(&id);
        let is = |op: ClientOp| {
            call.as_ref().is_some_and(|call| matches!(&call.what, CallKind::Own(of) if *of == op))
        };
        let (is_lease, is_dropped) = (is(ClientOp::Lease), is(ClientOp::Dropped));
        let asked_ms = call.map_or(0, |call| call.asked_ms);
        let peer = self.peers.get_mut(&island).expect("a reply of a known island");
        peer.attaching = false;
        peer.known = true;
        // Told before a recall, and come after it, it says nothing of the time since.
        let lease = if id >= peer.told_from { lease } else { Lease::No };
        let before = std::mem::replace(&mut peer.lease, lease);
        // Not when its answer is read: it may have been written long ago, before the machine was suspended.
        peer.renewed_ms = asked_ms;
        if lease != Lease::No && before == Lease::No && !planted(Bug::KeptOvertaken) {
            // What is under way may have been answered before, and changed since.
            self.calls.values_mut().for_each(|call| call.may_keep = false);
        }
        peer.is_asked |= is_lease;
        if is_dropped && self.config.keeps {
            self.renew_ms = self.renew_ms.min(renewed_before(self.now_ms));
        }
        if !peer.attached {
            peer.attached = true;
            peer.is_asked = false;
            if self.config.keeps {
                // The next tick asks whether answers may be kept.
                self.renew_ms = 0;
            }
            for id in std::mem::take(&mut peer.waiting) {
                self.ask(id, out);
            }
            self.detour_again(out);
            if !self.config.mount {
                // Kernels walk by ids; everybody else has paths.
                self.own(island, ClientOp::Hints { after: Ino(0) }, out);
            }
        }
        if self.recalls == 0 && self.peers.get(&island).expect("looked at").recalling {
            // The recall has overtaken the answer.
            self.dropped(island, out);
        }
        self.lease_goes_on(now_ms);
    }

    /// Has the frontend drop everything that it has kept.
    pub(crate) fn recall(&mut self, out: &mut RouteOut<T>) {
        self.lease.take();
        if !std::mem::replace(&mut out.recall, true) {
            self.recalls += 1;
        }
    }

    /// An island has sent a notice.
    pub fn on_notice(&mut self, island: IslandId, notice: Notice, out: &mut RouteOut<T>) {
        match notice {
            Notice::Recall => {
                if let Some(peer) = self.peers.get_mut(&island) {
                    // From here on no answer is kept; what was kept goes.
                    peer.lease = Lease::No;
                    peer.told_from = self.next_id;
                    peer.recalling = true;
                }
                if planted(Bug::DroppedTooSoon) {
                    self.dropped(island, out);
                }
                self.recall(out);
            }
            Notice::RecallOf { recall, inos } => {
                let Some(peer) = self.peers.get_mut(&island) else { return };
                // What is under way may have been answered before. It is kept by nobody; what is asked from now on may be.
                self.calls.values_mut().for_each(|call| call.may_keep = false);
                self.last_recall_of += 1;
                let number = self.last_recall_of;
                // Who has dropped what a later one names has dropped this too.
                peer.recalls_of.truncate(RECALLS_OF_MAX - 1);
                peer.recalls_of.push((number, recall));
                if planted(Bug::DroppedTooSoon) {
                    self.dropped_of(number, out);
                }
                out.recall_of = Some(RecallOf { number, inos });
            }
            Notice::Orphan { ino } => {
                self.orphans.insert(ino, island);
                out.orphans.push(ino);
            }
            Notice::Moved { ino, to, moves } => {
                self.homes.moved(ino, to, moves, self.next_id);
                self.release(self.now_ms, island, ino, out);
                out.moved.push(ino);
            }
            Notice::Changed { inos, names } => {
                // What is asked from now on is answered by rows that have the changes. What is under way may have been answered
                // before, although the notice is here first: several threads perform an island's effects.
                self.calls.values_mut().for_each(|call| call.may_keep = false);
                out.changed.0.extend(inos);
                out.changed.1.extend(names);
            }
        }
    }

    /// The frontend has dropped everything that it kept. Call this once for each [`RouteOut::recall`].
    pub fn recalled(&mut self, out: &mut RouteOut<T>) {
        self.recalls = self.recalls.saturating_sub(1);
        if self.recalls > 0 {
            return;
        }
        let islands: Vec<IslandId> = self.peers.keys().copied().collect();
        for island in islands {
            let peer = self.peers.get(&island).expect("just listed");
            if peer.attached {
                self.dropped(island, out);
            } else if peer.up && !peer.attaching {
                self.attach(island, out);
            }
        }
    }

    /// The frontend has dropped what the recalls up to this one have named ([`RouteOut::recall_of`]).
    pub fn dropped_of(&mut self, number: u64, out: &mut RouteOut<T>) {
        let mut answers = Vec::new();
        for (island, peer) in &mut self.peers {
            let upto = peer.recalls_of.partition_point(|(of, _)| *of <= number);
            answers.extend(peer.recalls_of.drain(..upto).next_back().map(|(_, recall)| (*island, recall)));
        }
        for (island, recall) in answers {
            self.own(island, ClientOp::DroppedOf { recall }, out);
        }
        self.lease_goes_on(self.now_ms);
    }

    /// Tells an island that nothing is kept, and keeps nothing until it answers. The island may take this as
    /// the answer to a recall that has not arrived yet.
    fn dropped(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        let peer = self.peers.get_mut(&island).expect("known to the caller");
        peer.lease = Lease::No;
        peer.told_from = self.next_id;
        peer.recalling = false;
        self.own(island, ClientOp::Dropped, out);
    }

    /// Gives every island a sign of life.
    pub(crate) fn renew(&mut self, out: &mut RouteOut<T>) {
        let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.attached).map(|(i, _)| *i).collect();
        for island in up {
            self.own(island, self.sign_of_life(), out);
        }
    }

    /// Ends the session everywhere.
    pub fn detach(&mut self, out: &mut RouteOut<T>) {
        let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.attached).map(|(i, _)| *i).collect();
        for island in up {
            self.own(island, ClientOp::Detach, out);
        }
    }

    /// Whether an island has yet to answer that the session has ended.
    pub fn is_detaching(&self) -> bool {
        self.calls.values().any(|call| matches!(call.what, CallKind::Own(ClientOp::Detach)))
    }

    /// The frontend no longer knows these ids.
    pub fn forget(&mut self, now_ms: u64, inos: &[Ino], out: &mut RouteOut<T>) {
        for ino in inos {
            self.dirs.forget(*ino);
            self.links.forget(*ino);
            self.unsynced.forget(*ino);
            if !self.orphans.is_empty()
                && let Some(island) = self.orphans.remove(ino)
            {
                self.release(now_ms, island, *ino, out);
            }
            self.homes.forget(*ino);
            self.names.forget(*ino);
        }
    }

    /// An orphan is released, or a file has moved: what islands have told, if the frontend does not know the
    /// file any more.
    fn release(&mut self, now_ms: u64, island: IslandId, ino: Ino, out: &mut RouteOut<T>) {
        if self.released.is_empty() {
            self.released_ms = now_ms;
        }
        let list = self.released.entry(island).or_default();
        list.push(ino);
        if list.len() >= RELEASE_BATCH {
            let inos = std::mem::take(list);
            self.own(island, ClientOp::Release { inos }, out);
        }
    }
}
