//! Changes through this mount that no `fsync` has covered. If an island may have lost one of them in a power
//! cut, an `fsync` says so (`docs/design/009-fsync.md`).

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{IdMap, Ino, IslandId};
use atoll_posix::{Answer, Errno, Op};

use crate::call::{CallKind, Stage};
use crate::out::RouteOut;
use crate::peer::Peer;
use crate::route::Route;

/// Files and directories with changes that no `fsync` has covered. The frontend bounds their number.
#[derive(Debug, Default)]
pub(crate) struct UnsyncedChanges {
    known: IdMap<Ino, Changes>,
}

/// The changes of one file or directory.
#[derive(Debug, Default)]
struct Changes {
    /// Islands that may lose the changes, each with its `power` when it answered the first of them.
    islands: Vec<(IslandId, u32)>,
    /// Calls from this number on were begun after the last of them was answered.
    last: u64,
}

impl UnsyncedChanges {
    pub(crate) fn forget(&mut self, ino: Ino) {
        self.known.remove(&ino);
    }
}

impl<T> Route<T> {
    /// The owner has answered an `fsync`. Each other island that may have lost a part of the changes is asked
    /// whether it has kept its power.
    pub(crate) fn synced(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        let (CallKind::Op(Op::Fsync { ino } | Op::FsyncDir { dir: ino }), owner) = (&call.what, call.island)
        else {
            return;
        };
        let mut changes = self.unsynced.known.get_mut(ino);
        let islands = changes.as_ref().map_or(&[][..], |changes| &changes.islands);
        if !call.is_confirming() {
            let others = islands.iter().map(|(island, _)| *island).filter(|island| *island != owner);
            call.stage = Stage::Confirming { left: others.collect() };
        }
        if let Stage::Confirming { left } = &mut call.stage
            && let Some(next) = left.pop()
        {
            call.island = next;
            return self.ask(id, out);
        }
        let is_lost = islands.iter().any(|(island, power)| power_of(&self.peers, *island) > *power);
        match &mut changes {
            // What was answered while it was under way it may not have covered.
            Some(changes) if changes.last > id => {
                changes.islands.iter_mut().for_each(|(island, power)| *power = power_of(&self.peers, *island))
            }
            _ => self.unsynced.forget(*ino),
        }
        let is_told = is_lost && !planted(Bug::LossForgotten);
        let call = self.take(id);
        Self::end(call, if is_told { Err(Errno::EIO) } else { Ok(Answer::Done) }, None, None, out);
    }

    /// An island has answered a call: its changes are not synced.
    pub(crate) fn note(&mut self, op: &Op, by: IslandId, answer: &Answer) {
        match op {
            Op::Create { dir, .. }
            | Op::Mkdir { dir, .. }
            | Op::Unlink { dir, .. }
            | Op::Rmdir { dir, .. } => {
                self.changed(*dir, by);
                if let Answer::Found { found } = answer {
                    self.changed(found.attr.ino, by);
                }
            }
            Op::Rename { dir, new_dir, .. } => {
                [*dir, *new_dir].into_iter().for_each(|dir| self.changed(dir, by))
            }
            Op::Link { dir, ino, .. } => [*dir, *ino].into_iter().for_each(|ino| self.changed(ino, by)),
            Op::SetLock { .. } => {}
            op if op.changes() => op.file().into_iter().for_each(|ino| self.changed(ino, by)),
            _ => {}
        }
    }

    /// A change is kept by the owner and by the island that has answered: that one may lose that the change
    /// has happened.
    fn changed(&mut self, ino: Ino, by: IslandId) {
        let owner = match self.dirs.get(ino) {
            Some(dir) => self.config.owner(dir.key),
            None => self.homes.of(ino),
        };
        let powers = [owner, by].map(|island| (island, power_of(&self.peers, island)));
        let changes = self.unsynced.known.entry(ino).or_default();
        changes.last = self.next_id;
        for (island, power) in powers {
            if changes.islands.iter().all(|(of, _)| *of != island) {
                changes.islands.push((island, power));
            }
        }
    }

    /// An island tells its `power`: the incarnation that began with its last power cut.
    pub(crate) fn lived(&mut self, island: IslandId, power: u32) {
        if let Some(peer) = self.peers.get_mut(&island) {
            peer.power = peer.power.max(power);
        }
    }
}

fn power_of(peers: &BTreeMap<IslandId, Peer>, island: IslandId) -> u32 {
    peers.get(&island).map_or(0, |peer| peer.power)
}

/// Whether a call changes something, so that its result must be remembered.
pub(crate) const fn changes(what: &CallKind) -> bool {
    match what {
        CallKind::Op(op) => op.changes(),
        CallKind::Walk(_) => false,
        // Releasing twice does no harm.
        CallKind::Own(_) => false,
        CallKind::Island(_) => false,
    }
}
