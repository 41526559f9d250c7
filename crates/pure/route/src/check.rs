//! Invariants of a client's calls between two events: each is in a stage of its own kind, and each request is
//! in exactly one place. The simulator checks them after each event.

use atoll_posix::Op;

use crate::call::{Call, CallKind, Sending, Stage};
use crate::route::Route;

impl<T> Route<T> {
    /// Panics if a call is in a stage that it cannot be in, or its request is nowhere or in two places.
    pub fn check(&self) {
        for (id, call) in &self.calls {
            call.check(*id);
            let waits = self.peers.get(&call.island).is_some_and(|peer| peer.waiting.contains(id));
            let pauses = self.retry.iter().filter(|(_, retried)| retried == id).count();
            let is = (waits, pauses);
            let should = match call.sending {
                Sending::Waiting => (true, 0),
                Sending::InFlight => (false, 0),
                Sending::Paused => (false, 1),
            };
            assert_eq!(is, should, "call {id} waits and pauses, but is {:?}: {:?}", call.sending, call.what);
        }
        for (island, peer) in &self.peers {
            for id in &peer.waiting {
                let at = self.calls.get(id).map(|call| call.island);
                assert!(
                    at.is_none_or(|at| at == *island),
                    "call {id} waits for {island}, and is asked of {at:?}"
                );
            }
        }
    }
}

impl<T> Call<T> {
    /// See [`Route::check`].
    fn check(&self, id: u64) {
        let (what, stage) = (&self.what, &self.stage);
        let sums_space = matches!(what, CallKind::Op(Op::Statfs));
        let fits = match stage {
            Stage::Gathering(_) => sums_space,
            Stage::Searching { .. } => matches!(what, CallKind::Op(Op::GetAttr { .. })) && self.seq == 0,
            Stage::Confirming { .. } => matches!(what, CallKind::Op(Op::Fsync { .. } | Op::FsyncDir { .. })),
            // What others are asked, or a file's home after the name's owner, changes nothing.
            Stage::Following(_) | Stage::Fallback { .. } => self.seq == 0,
            Stage::Deciding { .. } => !sums_space,
        };
        assert!(fits, "call {id} of number {} is in a stage of others: {what:?}, {stage:?}", self.seq);
    }
}
