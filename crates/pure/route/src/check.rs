//! What must hold of a client's calls between two events: which stages of a call exclude each other, and that every
//! call is somewhere. The simulator asks after each event.

use atoll_posix::Op;

use crate::route::{Call, Route, What};

impl<T> Route<T> {
    /// Panics if a call is in no stage that it can be in, or is waited for by nobody and nothing.
    pub fn check(&self) {
        for (id, call) in &self.calls {
            call.check(*id);
            let waits = self.peers.get(&call.island).is_some_and(|peer| peer.waiting.contains(id));
            let pauses = self.retry.iter().filter(|(_, retried)| retried == id).count();
            let places = usize::from(call.in_flight) + usize::from(waits) + pauses;
            assert_eq!(places, 1, "call {id} is sent, waits or pauses: exactly one of them: {:?}", call.what);
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
        let what = &self.what;
        let is_own = self.token.is_none();
        assert_eq!(
            is_own,
            self.since_ms == u64::MAX,
            "call {id}: only what nobody waits for waits for ever: {what:?}"
        );
        let sums_space = matches!(what, What::Op(Op::Statfs));
        assert_eq!(self.gather.is_some(), sums_space, "call {id}: only statfs asks everybody: {what:?}");
        let syncs = matches!(what, What::Op(Op::Fsync { .. } | Op::FsyncDir { .. }));
        assert!(self.confirm.is_none() || syncs, "call {id}: only a sync is confirmed: {what:?}");
        if self.gather.is_some() || self.confirm.is_some() {
            let follows = self.pointer.is_some() || self.detour.is_some();
            assert!(!follows, "call {id}: follows a name and asks several islands: {what:?}");
        }
        if self.seq != 0 {
            assert!(self.pointer.is_none(), "call {id}: what follows a name changes nothing: {what:?}");
            assert!(
                self.detour.is_none(),
                "call {id}: only what changes nothing is asked elsewhere: {what:?}"
            );
        }
        assert!(
            self.done.is_none() || self.pointer.is_some(),
            "call {id}: was done, and asks nobody for it: {what:?}"
        );
    }
}
