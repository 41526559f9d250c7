//! What must hold of an island's memory between two events. The simulator and tests ask after each event; a daemon
//! does not, because some of it takes as long as there are requests under way.
//!
//! Each part checks its own fields. What two parts have to agree about stands here.

use std::collections::BTreeMap;

use atoll_core::{Ino, SessionId};
use atoll_proto::TxnState;

use crate::gate::Use;
use crate::machine::{Call, Island, Parked, Phase};
use crate::sessions::WITNESS;

impl Island {
    /// Panics if something does not hold that must hold whatever was asked, told or lost.
    pub fn check(&self) {
        self.check_log();
        self.check_bodies();
        self.check_requests();
        let me = self.config.id;
        self.journal.check(self.state.clocks().get(me), self.synced);
        self.holds.check(|txn| self.txns.is_begun(txn), |txn| self.state.txn(txn));
        self.txns.check(|txn| self.state.txn(txn).is_some());
        self.mover.check(|txn| self.txns.is_begun(txn));
        self.sessions.check();
        self.enumerating.check();
        if self.phase == Phase::Normal {
            assert!(!self.recovery.waits(), "an island serves and waits for others to tell");
        }
        if self.state.session(WITNESS).is_none() {
            assert!(!self.has_witnesses(), "others are to tell what was lost, and no session says so");
            self.recovery.check_whole();
        }
        for txn in self.state.txn_ids() {
            let row = self.state.txn(txn).expect("it was listed");
            let mine = txn.coordinator == me;
            assert!(mine || txn.coordinator == row.partner, "{txn:?} has another partner: {row:?}");
            assert!(!mine || row.state == TxnState::Committed, "{txn:?} is prepared by its coordinator");
        }
    }

    /// Positions in the log, and what waits for them.
    fn check_log(&self) {
        let seq = self.state.seq();
        assert!(self.committed <= seq && self.synced <= seq, "something is safe that is not decided");
        assert!(self.sync_wanted <= seq, "a sync is wanted of what is not decided");
        let mut last = self.committed;
        for (need, effect) in &self.gated {
            assert!(*need > self.committed, "{effect:?} waits for {need}, which is committed");
            assert!(*need >= last && *need <= seq, "{effect:?} waits for {need} behind {last}, of {seq}");
            last = *need;
        }
        assert!(self.mint_limit <= self.state.meta().mint_limit, "more ids may be given than are reserved");
        assert!(self.out.is_empty(), "effects stay behind");
    }

    /// Who is inside of a body is exactly what is being done in it.
    fn check_bodies(&self) {
        let mut inside: BTreeMap<Ino, (u32, u32, u32)> = BTreeMap::new();
        for body in self.in_body.values() {
            for (ino, how) in body.inside() {
                let of = inside.entry(ino).or_default();
                match how {
                    Use::Shared => of.0 += 1,
                    Use::Exclusive => of.1 += 1,
                    Use::Beside => of.2 += 1,
                }
            }
        }
        self.gates.check(&inside);
        if self.checkpoint.is_none() {
            assert!(self.syncing_bodies.is_empty(), "bodies are left of a checkpoint that is over");
            assert!(self.syncing_carried.is_empty(), "carried bytes are left of a checkpoint that is over");
        }
        for (seq, ticket, _) in &self.after_sync {
            assert!(*seq > self.synced, "{ticket:?} waits for {seq}, which is synced");
            assert!(self.in_body.contains_key(ticket), "{ticket:?} is not under way");
        }
    }

    /// Each change that a client waits for has one place where its answer goes, and is in one queue.
    fn check_requests(&self) {
        let mut found: BTreeMap<(SessionId, u64), u32> = BTreeMap::new();
        let mut count = |call: &Call| {
            if call.request.seq != 0 && !call.again {
                *found.entry((call.session(), call.request.seq)).or_default() += 1;
            }
        };
        let parked = |parked: &Parked| match parked {
            Parked::Call(call) => Some(call.clone()),
            _ => None,
        };
        self.sync_waiting.iter().for_each(|(_, call)| count(call));
        self.lock_waiting.values().flatten().for_each(&mut count);
        self.txn_waiting.values().flatten().for_each(&mut count);
        self.retry_at.iter().for_each(|(_, call)| count(call));
        self.gates.all_waiting().for_each(&mut count);
        self.in_body.values().filter_map(|body| body.call()).for_each(&mut count);
        self.journal.calls().for_each(&mut count);
        self.txns.calls().for_each(&mut count);
        self.enumerating.calls().for_each(&mut count);
        for call in self.loading.values().flatten().filter_map(parked) {
            count(&call);
        }
        for (key, times) in &found {
            assert!(*times == 1, "{key:?} is under way {times} times");
            assert!(self.active.contains_key(key), "nobody knows where the answer to {key:?} goes");
        }
        for key in self.active.keys() {
            assert!(found.contains_key(key), "{key:?} is under way and in no queue: it is never answered");
        }
        for waiting in self.lock_waiting.values() {
            assert!(!waiting.is_empty(), "nobody waits for a lock that is waited for");
        }
    }
}
