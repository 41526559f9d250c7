//! The session at each island: attaching, leases, recalls, orphans that are let go.

use atoll_core::{Ino, IslandId};
use atoll_posix::Caller;
use atoll_proto::{ClientOp, Notice};
use bytes::Bytes;

use crate::route::{Call, RELEASE_BATCH, Route, RouteOut, What};

impl<T> Route<T> {
    /// An island can be reached, or not.
    pub fn reachable(&mut self, island: IslandId, up: bool, out: &mut RouteOut<T>) {
        let Some(peer) = self.peers.get_mut(&island) else { return };
        peer.up = up;
        if up {
            if !peer.attaching {
                self.attach(island, out);
            }
            return;
        }
        // What was on the way may or may not have arrived: it is asked again, with its number.
        peer.attached = false;
        peer.attaching = false;
        peer.sole = false;
        peer.told_version = 0;
        let mut lost: Vec<u64> =
            self.calls.iter().filter(|(_, c)| c.island == island).map(|(id, _)| *id).collect();
        lost.sort_unstable();
        self.peers.get_mut(&island).expect("looked at").waiting.clear();
        for id in lost {
            if matches!(self.calls.get(&id).map(|c| &c.what), Some(What::Own(_))) {
                self.calls.remove(&id);
            } else {
                self.ask(id, out);
            }
        }
    }

    pub(crate) fn attach(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        let mount = self.config.mount;
        let peer = self.peers.get_mut(&island).expect("known to the caller");
        peer.attaching = true;
        self.own(island, ClientOp::Attach { mount }, out);
    }

    pub(crate) fn own(&mut self, island: IslandId, op: ClientOp, out: &mut RouteOut<T>) {
        let id = self.next_id;
        self.next_id += 1;
        let call = Call {
            token: None,
            caller: Caller::ROOT,
            what: What::Own(op),
            data: Bytes::new(),
            since_ms: u64::MAX,
            island,
            seq: 0,
            requests: 0,
            detour: None,
            gather: None,
        };
        self.calls.insert(id, call);
        self.ask(id, out);
    }

    pub(crate) fn on_attached(
        &mut self,
        now_ms: u64,
        id: u64,
        island: IslandId,
        sole: bool,
        out: &mut RouteOut<T>,
    ) {
        self.calls.remove(&id);
        let peer = self.peers.get_mut(&island).expect("a reply of a known island");
        peer.attaching = false;
        peer.sole = sole;
        peer.renewed_ms = now_ms;
        if !peer.attached {
            peer.attached = true;
            for id in std::mem::take(&mut peer.waiting) {
                self.ask(id, out);
            }
        }
    }

    /// An island tells something unasked.
    pub fn on_notice(&mut self, island: IslandId, notice: Notice, out: &mut RouteOut<T>) {
        match notice {
            Notice::Recall => {
                if let Some(peer) = self.peers.get_mut(&island) {
                    // From here on no answer is kept; what was kept goes.
                    peer.sole = false;
                }
                out.recall = true;
            }
            Notice::Orphan { ino } => {
                self.orphans.insert(ino);
                out.orphans.push(ino);
            }
        }
    }

    /// Everything that was kept is gone.
    pub fn recalled(&mut self, out: &mut RouteOut<T>) {
        let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.attached).map(|(i, _)| *i).collect();
        for island in up {
            self.own(island, ClientOp::Renew, out);
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
        self.calls.values().any(|call| matches!(call.what, What::Own(ClientOp::Detach)))
    }

    /// The frontend no longer knows these ids.
    pub fn forget(&mut self, now_ms: u64, inos: &[Ino], out: &mut RouteOut<T>) {
        for ino in inos {
            self.dirs.forget(*ino);
            if !self.orphans.is_empty() && self.orphans.remove(ino) {
                if self.released.is_empty() {
                    self.released_ms = now_ms;
                }
                let home = ino.minted_by();
                let list = self.released.entry(home).or_default();
                list.push(*ino);
                if list.len() >= RELEASE_BATCH {
                    let inos = std::mem::take(list);
                    self.own(home, ClientOp::Release { inos }, out);
                }
            }
        }
    }
}
