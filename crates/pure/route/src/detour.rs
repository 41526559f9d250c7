//! Detours around islands that are away: other islands can answer a lookup or a stat of a directory, and the
//! free space is summed over the islands that can be reached.

use std::collections::VecDeque;

use atoll_core::{Ino, IslandId, Key, Name};
use atoll_posix::{Answer, Errno, Op};
use atoll_proto::{ClientOp, reserve_bytes};

use crate::call::{Call, CallKind, Followed, Sending, Stage};
use crate::dirs::Dirs;
use crate::homes::Homes;
use crate::out::RouteOut;
use crate::route::{Config, Route};

impl<T> Route<T> {
    /// Asks another island for one that is away, if the call allows it. True if it did.
    pub(crate) fn detour(&mut self, id: u64, out: &mut RouteOut<T>) -> bool {
        let Some(call) = self.calls.get_mut(&id) else { return false };
        if call.options.unchecked || matches!(call.stage, Stage::Searching { .. }) {
            // A skeleton judges no permission, and knows no files.
            return false;
        }
        if call.followed().is_some_and(|followed| !self.links.contains(followed.file)) {
            // Only a file's home knows it; of links to directories others do too.
            return false;
        }
        if let Stage::Gathering(gathering) = &mut call.stage {
            // The space of an island that is away is unknown: the sum over the others is shown.
            gathering.left.remove(&call.island);
            match gathering.left.first().copied() {
                Some(next) => {
                    call.island = next;
                    self.ask(id, out);
                }
                None => self.gathered(id, out),
            }
            return true;
        }
        let first = match &call.what {
            _ if call.followed().is_some() => None,
            CallKind::Op(Op::Lookup { dir, name }) => {
                self.dirs.key_by_path(&self.h3, *dir, name).map(|key| self.config.owner(key))
            }
            CallKind::Op(Op::GetAttr { ino }) if self.dirs.get(*ino).is_some() => {
                stub_of(&self.dirs, &self.config, *ino).map(|(owner, ..)| owner)
            }
            CallKind::Op(Op::GetAttr { ino }) if self.links.contains(*ino) => None,
            CallKind::Op(Op::Readlink { .. }) | CallKind::Walk(_) => None,
            _ => return false,
        };
        if !call.falls_back() {
            let away = call.island;
            let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.up).map(|(i, _)| *i).collect();
            let mut others: VecDeque<IslandId> = up.into_iter().filter(|i| *i != away).collect();
            if let Some(first) = first
                && let Some(at) = others.iter().position(|i| *i == first)
            {
                others.swap(0, at);
            }
            let of = call.take_followed();
            call.stage = Stage::Fallback { rest: others, of };
        }
        self.next_detour(id, out);
        true
    }

    /// An island is back: calls that wait for another one that is away ask again whether anybody knows the answer. When they began
    /// to wait, nobody was there who did.
    pub(crate) fn detour_again(&mut self, out: &mut RouteOut<T>) {
        let is_away = |island: &IslandId| self.peers.get(island).is_some_and(|peer| !peer.up);
        let waits = |call: &Call<T>| matches!(call.sending, Sending::Waiting) && is_away(&call.island);
        let mut waiting: Vec<u64> = self.calls.iter().filter(|(_, c)| waits(c)).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        for id in waiting {
            let Some(away) = self.calls.get(&id).map(|call| call.island) else { continue };
            let peer = self.peers.get_mut(&away).expect("it was looked at");
            peer.waiting.retain(|of| *of != id);
            if !self.detour(id, out) {
                self.wait(id, out);
            }
        }
    }

    pub(crate) fn next_detour(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match call.next_fallback() {
            Some(next) => {
                call.island = next;
                self.ask(id, out);
            }
            None => self.await_return(id, out),
        }
    }

    /// No reachable island knows the name or file. That does not prove that it is absent, so the call waits
    /// for the island that would know, for as long as the mount has patience.
    fn await_return(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        call.end_fallback();
        let call = self.calls.get(&id).expect("looked at by the caller");
        let island = match &call.what {
            // A walk may have come to an island that only its steps have named.
            CallKind::Walk(_) => None,
            _ => self.route(call).ok(),
        };
        match island.and_then(|island| Some((island, self.peers.get(&island)?))) {
            Some((island, peer)) => {
                let is_back = peer.up && peer.attached;
                self.calls.get_mut(&id).expect("looked at").island = island;
                if is_back {
                    self.ask(id, out);
                } else {
                    self.wait(id, out);
                }
            }
            None => {
                let call = self.calls.remove(&id).expect("looked at");
                Self::end(call, Err(Errno::EIO), None, None, out);
            }
        }
    }

    pub(crate) fn gather(&mut self, id: u64, answer: &Answer, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        let Stage::Gathering(gather) = &mut call.stage else { return };
        if let Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, fs_id } = answer {
            // What islands keep for themselves is available to nobody; the native file system's own
            // reserve, if it has one, comes on top of it.
            let available = bytes_available.saturating_sub(reserve_bytes(*bytes));
            // Islands that share a native file system share its space.
            let row = [*bytes, *bytes_free, available, *inodes, *inodes_free];
            gather.sums.insert(*fs_id, row);
        }
        gather.left.remove(&call.island);
        match gather.left.first().copied() {
            Some(next) => {
                call.island = next;
                self.ask(id, out);
            }
            None => self.gathered(id, out),
        }
    }

    pub(crate) fn gathered(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if let Stage::Gathering(gathering) = &mut call.stage
            && gathering.sums.is_empty()
        {
            // All were away. Whoever is back first is asked.
            gathering.left = self.peers.keys().copied().collect();
            let back = self.peers.iter().find(|(_, peer)| peer.up).map(|(island, _)| *island);
            let Some(first) = back.or(gathering.left.first().copied()) else { return };
            call.island = first;
            return if back.is_some() { self.ask(id, out) } else { self.wait(id, out) };
        }
        let call = self.calls.remove(&id).expect("looked at");
        let Stage::Gathering(gather) = &call.stage else {
            return Self::end(call, Err(Errno::EIO), None, None, out);
        };
        let mut sum = [0u64; 5];
        for row in gather.sums.values() {
            sum.iter_mut().zip(row).for_each(|(s, r)| *s = s.saturating_add(*r));
        }
        let [bytes, bytes_free, bytes_available, inodes, inodes_free] = sum;
        let answer = Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, fs_id: 0 };
        Self::end(call, Ok(answer), None, None, out);
    }
}

/// The request to an island that a call needs now.
pub(crate) fn client_op<T>(call: &Call<T>, dirs: &Dirs, homes: &Homes, config: &Config) -> ClientOp {
    if call.is_confirming() {
        return ClientOp::Renew;
    }
    if let Some(Followed { file: ino, .. }) = call.followed() {
        if call.falls_back() {
            return ClientOp::SkeletonAttr { ino };
        }
        return ClientOp::Fs { op: Op::GetAttr { ino } };
    }
    match &call.what {
        CallKind::Own(op) | CallKind::Island(op) => op.clone(),
        CallKind::Walk(path) => ClientOp::Resolve { path: path.clone() },
        CallKind::Op(op) => match (op, call.falls_back()) {
            (Op::Lookup { dir, name }, true) => ClientOp::Skeleton { parent: *dir, name: name.clone() },
            (Op::GetAttr { ino }, true) => match stub_of(dirs, config, *ino) {
                // The parent owner has a stub of it, whether or not its skeleton has it.
                Some((owner, dir, name)) if owner == call.island => {
                    ClientOp::Fs { op: Op::Lookup { dir, name } }
                }
                _ => ClientOp::SkeletonAttr { ino: *ino },
            },
            (Op::Readlink { ino }, true) => ClientOp::SkeletonTarget { ino: *ino },
            (Op::Rename { dir, new_dir, .. }, _) if dir != new_dir && dirs.get(*new_dir).is_some() => {
                let key = dirs.get(*new_dir).map_or(Key(0), |known| known.key);
                ClientOp::Rename { op: (*op).clone(), key }
            }
            (Op::Link { ino, .. }, _) if homes.of(*ino) != ino.minted_by() => {
                ClientOp::Link { op: (*op).clone(), home: homes.of(*ino) }
            }
            (op, _) => ClientOp::Fs { op: op.clone() },
        },
    }
}

/// Whether a name tells of something else than the directory that was asked for by it: it is another one's by now. What it leads to
/// is not looked at, because the answer would be no answer to this call.
pub(crate) fn is_of_another<T>(call: &Call<T>, found: Ino) -> bool {
    matches!(&call.what, CallKind::Op(Op::GetAttr { ino }) if *ino != found)
}

/// The island that has the stub of a directory, with the parent and the name under which it has it.
fn stub_of(dirs: &Dirs, config: &Config, ino: Ino) -> Option<(IslandId, Ino, Name)> {
    let known = dirs.get(ino)?;
    let parent = dirs.get(known.parent)?;
    Some((config.owner(parent.key), known.parent, known.name.clone()?))
}
