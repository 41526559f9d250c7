//! Invariants of an island's memory between two events. The simulator and tests check them after each event.
//! A daemon does not, because some checks take time for each request under way.
//!
//! Each part checks its own fields. This file checks where two parts must agree.

use atoll_proto::TxnState;

use crate::ctx::RECOVERY_SESSION;
use crate::island::Island;

impl Island {
    /// Panics if something does not hold that must hold whatever was asked, told or lost.
    pub fn check(&self) {
        self.ctx.check();
        self.bodies.check(&self.ctx);
        self.check_requests();
        let me = self.ctx.config.id;
        self.journal.check(|island| self.ctx.peers.is_reachable(island));
        self.txns.locks().check(|txn| self.txns.is_begun(txn), |txn| self.ctx.state.txn(txn));
        self.txns.check(|txn| self.ctx.state.txn(txn).is_some());
        self.migration.check(|txn| self.txns.is_begun(txn));
        self.sessions.check(&self.ctx);
        self.quiesce.check();
        self.recovery.check();
        if self.recovery.is_serving() {
            assert!(!self.recovery.waits(), "an island serves and waits for others to tell");
        }
        if self.ctx.state.session(RECOVERY_SESSION).is_none() {
            self.recovery.check_whole();
        }
        for txn in self.ctx.state.txn_ids() {
            let row = self.ctx.state.txn(txn).expect("it was listed");
            let mine = txn.coordinator == me;
            assert!(mine || txn.coordinator == row.partner, "{txn:?} has another partner: {row:?}");
            assert!(!mine || row.state == TxnState::Committed, "{txn:?} is prepared by its coordinator");
        }
    }

    /// Each change that a client waits for has one place where its answer goes, and is in one queue.
    fn check_requests(&self) {
        let calls = || {
            (self.requests.calls())
                .chain(self.file_locks.calls())
                .chain(self.bodies.calls())
                .chain(self.journal.calls())
                .chain(self.txns.calls())
                .chain(self.quiesce.calls())
                .chain(self.ctx.loads.calls())
        };
        self.ctx.replies.check(calls());
        self.ctx
            .keepers
            .check(calls().filter_map(|call| call.writes.as_ref()).chain(self.sessions.write_sets()));
        self.file_locks.check();
    }
}
