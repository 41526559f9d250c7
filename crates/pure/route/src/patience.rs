//! How long a call waits for an island: the mount's patience, islands that did not come back in time, and
//! callers that die or are interrupted.
//!
//! Time is counted from the beginning of each call by the machine's own time, whatever links say. A change is
//! never sent again after its caller was told that it has failed.

use std::collections::BTreeMap;

use atoll_core::IslandId;
use atoll_posix::{Answer, Caller, Errno, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, Outcome};
use bytes::Bytes;

use crate::call::{Call, CallKind, Sending, Waiter};
use crate::out::{FinishedCall, RouteOut};
use crate::peer::Peer;
use crate::route::Route;
use crate::synced::changes;

/// Milliseconds since its last answer for which an island counts as living. Signs of life are asked
/// for every 3 s, and links whose other side is silent break in 4 s.
const LIVES_MS: u64 = 8_000;
/// Milliseconds that a change may wait at a living island, beyond the mount's patience, until other mounts have dropped what they keep: the
/// lease of one that does not answer.
const RECALL_MS: u64 = 16_000;
/// Milliseconds that a call waits for an island which itself waits for another one that is known to be away.
const PARTNER_MS: u64 = 1_000;
/// Milliseconds that a change of names waits for a second island, whatever patience the mount has: kernels
/// hold locks of other directories meanwhile.
const SPANNING_MS: u64 = 10_000;
/// Milliseconds without any island after which a stat of the root tells what was known last, and there is no free space to be told,
/// whatever patience the mount has: df(1) and umount(8) ask for these. What lies below the root waits as ever.
const ROOT_MS: u64 = 8_000;

impl Peer {
    /// Whether it can be expected to answer.
    const fn lives(&self, now_ms: u64) -> bool {
        self.up && self.attached && self.heard_ms + LIVES_MS > now_ms
    }
}

impl<T> Route<T> {
    /// Has a call wait for its island, unless another call has already waited for it in vain.
    pub(crate) fn wait(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        let peer = self.peers.get_mut(&call.island).expect("looked at by the caller");
        let in_vain = !peer.up && peer.given_up && call.waiter.is_some();
        call.sending = Sending::Waiting;
        peer.waiting.push(id);
        if in_vain {
            self.give_up(id, Errno::EIO, out);
        }
    }

    /// Ends calls that have waited longer than the mount has patience.
    pub(crate) fn end_impatient(&mut self, now_ms: u64, out: &mut RouteOut<T>) {
        let patience_ms = self.config.patience_ms;
        let mut late: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| self.is_late(call, now_ms, patience_ms))
            .map(|(id, _)| *id)
            .collect();
        late.sort_unstable();
        for id in late {
            // One that ended may have ended others of the same island.
            let Some(call) = self.calls.get(&id) else { continue };
            let Some(since_ms) = call.waiter.as_ref().map(|waiter| waiter.since_ms) else { continue };
            let (needs_another, unanswered) = (call.refusals > 0, call.is_in_flight());
            // A mount without a limit has waited in vain for nobody. Nor has one for an island that it expected only later, or when
            // the call has ended sooner.
            let in_vain = patience_ms.is_some_and(|patience_ms| now_ms >= since_ms + patience_ms);
            for (island, peer) in self.peers.iter_mut().filter(|(_, p)| in_vain && p.back_ms <= since_ms) {
                let away = !peer.up && peer.down_ms <= since_ms;
                let its_own = *island == call.island && (!peer.up || unanswered);
                peer.given_up |= its_own || (away && needs_another);
            }
            self.give_up(id, Errno::EIO, out);
        }
    }

    fn is_late(&self, call: &Call<T>, now_ms: u64, patience_ms: Option<u64>) -> bool {
        let Some(waiter) = &call.waiter else { return false };
        let waited_ms = now_ms.saturating_sub(waiter.since_ms);
        let refused = call.refusals > 0 && !call.is_in_flight();
        // One whose link broke meanwhile may have been carried out.
        if refused && !call.doubtful && waited_ms >= SPANNING_MS && changes_file_names(&call.what) {
            return true;
        }
        if self.needs_no_answer(&call.what, waiter.since_ms, now_ms) {
            return true;
        }
        let Some(patience_ms) = patience_ms else { return false };
        let Some(peer) = self.peers.get(&call.island) else { return true };
        if waited_ms >= patience_ms {
            let waits_for_mounts = changes(&call.what) && waited_ms < patience_ms + RECALL_MS;
            let may_wait = may_be_slow(&call.what) || waits_for_mounts;
            return !(may_wait && call.is_in_flight() && peer.lives(now_ms));
        }
        // It was refused because of another island, and one is known to be away for long.
        refused && waited_ms >= PARTNER_MS && self.peers.values().any(|p| p.given_up && !p.up)
    }

    /// Ends a call and tells its caller that it has failed. The request is never sent again. If it is still
    /// on its way to an island, the island knows by the number of the next request that it must not begin it.
    pub(crate) fn give_up(&mut self, id: u64, errno: Errno, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if is_unlock(&call.what) {
            // The lock goes when its island is back, whoever waits for that.
            if let Some(Waiter { token, .. }) = call.waiter.take() {
                out.finished.push(FinishedCall {
                    token,
                    result: Err(errno),
                    data: None,
                    around: Vec::new(),
                    resolved: None,
                    may_keep: false,
                });
            }
            return;
        }
        let call = self.calls.remove(&id).expect("looked at");
        self.retry.retain(|(_, retried)| *retried != id);
        if let Some(peer) = self.peers.get_mut(&call.island) {
            peer.waiting.retain(|waiting| *waiting != id);
            peer.serial.done(call.seq);
        }
        if let CallKind::Op(Op::SetLock { ino, lock, .. }) = &call.what
            && (call.is_in_flight() || call.doubtful)
        {
            let undo = Op::SetLock { ino: *ino, lock: unlocked(*lock), wait: false };
            let number = call.number(id);
            self.unwanted.insert(number, (call.island, undo));
            if call.is_in_flight() {
                self.own(call.island, ClientOp::Cancel { request: number }, out);
            } else {
                self.undo_unwanted(call.island, out);
            }
        }
        let result = match self.root {
            Some(attr)
                if errno == Errno::EIO && self.is_stat_of_root(&call.what) && self.nobody_is_there() =>
            {
                Ok(Answer::Attr { attr })
            }
            _ => Err(errno),
        };
        Self::end(call, result, None, None, out);
    }

    fn is_stat_of_root(&self, what: &CallKind) -> bool {
        matches!(what, CallKind::Op(Op::GetAttr { ino }) if *ino == self.config.root())
    }

    fn nobody_is_there(&self) -> bool {
        self.peers.values().all(|peer| !peer.up)
    }

    /// Whether a question about the whole volume ends although nobody is there to answer it. See [`ROOT_MS`].
    fn needs_no_answer(&self, what: &CallKind, since_ms: u64, now_ms: u64) -> bool {
        let of_root = self.is_stat_of_root(what);
        if !(of_root || matches!(what, CallKind::Op(Op::Statfs))) || !self.nobody_is_there() {
            return false;
        }
        let down_ms = self.peers.values().map(|peer| peer.down_ms).max().unwrap_or(0);
        let is_back = self.peers.values().any(|peer| peer.back_ms > down_ms);
        let is_soft = self.config.patience_ms.is_some();
        // A mount with patience has it for a node that is back, and before it says that there is no root.
        if is_soft && (is_back || (of_root && self.root.is_none())) {
            return false;
        }
        now_ms >= if is_back { since_ms } else { down_ms.min(since_ms) } + ROOT_MS
    }

    /// A reply to request `of` has come. Its call has ended, or was asked again since.
    pub(crate) fn too_late(&mut self, island: IslandId, of: u64, outcome: &Outcome, out: &mut RouteOut<T>) {
        if self.unwanted.get(&of).is_some_and(|(at, _)| *at == island)
            && let Some((_, undo)) = self.unwanted.remove(&of)
            && matches!(outcome, Outcome::Ok { .. })
        {
            self.begin(None, Caller::ROOT, CallKind::Op(undo), Bytes::new(), out);
        }
    }

    /// Requests to an island are lost: an unwanted lock may have been granted.
    pub(crate) fn undo_unwanted(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        let (of_island, others) =
            std::mem::take(&mut self.unwanted).into_iter().partition(|(_, (of, _))| *of == island);
        self.unwanted = others;
        let of_island: BTreeMap<u64, (IslandId, Op)> = of_island;
        for (_, op) in of_island.into_values() {
            self.begin(None, Caller::ROOT, CallKind::Op(op), Bytes::new(), out);
        }
    }

    // ------------------------------------------------------ callers that go on

    /// Ends a call early if it waits for an island to return and has had no effect. If an island runs it, or will, tells
    /// the island.
    pub fn cancel(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.interrupted = true;
        let Some(peer) = self.peers.get(&call.island) else { return };
        // A change that was on its way may have been made; a question has no effect, and a lock can be
        // given back.
        let harmless = call.requests == 0 || !changes(&call.what) || is_lock(&call.what);
        if harmless && !peer.lives(self.now_ms) {
            self.give_up(id, Errno::EINTR, out);
        } else if call.is_in_flight() {
            let (island, request) = (call.island, call.number(id));
            self.own(island, ClientOp::Cancel { request }, out);
        }
    }

    /// The caller is dying, and an island that does not answer must not hold it back. A living island answers
    /// soon, so it is waited for, and nothing happens after the end of a process.
    pub fn abandon(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.interrupted |= changes(&call.what);
        let lives = self.peers.get(&call.island).is_some_and(|peer| peer.lives(self.now_ms));
        if !(lives && call.is_in_flight()) {
            self.give_up(id, Errno::EINTR, out);
        } else if changes(&call.what) {
            // A lock, or a change that waits for other mounts, may be waited for.
            let (island, request) = (call.island, call.number(id));
            self.own(island, ClientOp::Cancel { request }, out);
        }
    }
}

/// Whether a living island may need longer than the mount has patience, because it waits for a disk or for
/// another holder of a lock.
const fn may_be_slow(what: &CallKind) -> bool {
    match what {
        CallKind::Op(op) => matches!(
            op,
            Op::Read { .. }
                | Op::Write { .. }
                | Op::Fallocate { .. }
                | Op::CopyRange { .. }
                | Op::Fsync { .. }
                | Op::FsyncDir { .. }
                | Op::SetLock { wait: true, .. }
        ),
        CallKind::Walk(_) | CallKind::Own(_) | CallKind::Island(_) => false,
    }
}

/// Whether an operation may need the home of a file, or the owner of another directory.
const fn changes_file_names(what: &CallKind) -> bool {
    matches!(what, CallKind::Op(Op::Rename { .. } | Op::Link { .. } | Op::Unlink { .. }))
}

const fn is_lock(what: &CallKind) -> bool {
    matches!(what, CallKind::Op(Op::SetLock { .. }))
}

fn is_unlock(what: &CallKind) -> bool {
    matches!(what, CallKind::Op(Op::SetLock { lock, .. }) if lock.kind == LockKind::Unlock)
}

const fn unlocked(lock: LockRange) -> LockRange {
    LockRange { kind: LockKind::Unlock, ..lock }
}
