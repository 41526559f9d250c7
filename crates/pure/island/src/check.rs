//! What must hold of an island's memory between two events. The simulator and tests ask after each event; a daemon
//! does not, because some of it takes as long as there are requests under way.
//!
//! Each part checks its own fields. What two parts have to agree about stands here.

use std::collections::BTreeMap;

use atoll_core::Ino;
use atoll_proto::TxnState;

use crate::bodies::Bodies;
use crate::bodies::gate::Use;
use crate::client::sessions::WITNESS;
use crate::ctx::Ctx;
use crate::island::Island;
use crate::recovery::start::Phase;

impl Island {
    /// Panics if something does not hold that must hold whatever was asked, told or lost.
    pub fn check(&self) {
        self.ctx.check();
        self.bodies.check_bodies(&self.ctx);
        self.check_requests();
        let me = self.ctx.config.id;
        self.journal.check(|island| self.ctx.peers.is_reachable(island));
        self.txns.locks.check(|txn| self.txns.is_begun(txn), |txn| self.ctx.state.txn(txn));
        self.txns.check(|txn| self.ctx.state.txn(txn).is_some());
        self.mover.check(|txn| self.txns.is_begun(txn));
        self.sessions.check();
        self.enumerating.check();
        if self.recovery.phase == Phase::Normal {
            assert!(!self.recovery.waits(), "an island serves and waits for others to tell");
        }
        if self.ctx.state.session(WITNESS).is_none() {
            assert!(
                !self.recovery.has_witnesses(),
                "others are to tell what was lost, and no session says so"
            );
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
        let calls = (self.requests.sync_waiting.iter().map(|(_, call)| call))
            .chain(self.file_locks.waiting.values().flatten())
            .chain(self.requests.txn_waiting.values().flatten())
            .chain(self.requests.retry_at.iter().map(|(_, call)| call))
            .chain(self.bodies.gates.all_waiting())
            .chain(self.bodies.in_body.values().filter_map(|body| body.call()))
            .chain(self.journal.calls())
            .chain(self.txns.calls())
            .chain(self.enumerating.calls())
            .chain(self.ctx.loads.calls());
        self.ctx.replies.check(calls);
        for waiting in self.file_locks.waiting.values() {
            assert!(!waiting.is_empty(), "nobody waits for a lock that is waited for");
        }
    }
}

impl Bodies {
    /// Who is inside of a body is exactly what is being done in it.
    fn check_bodies(&self, ctx: &Ctx) {
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
            assert!(!ctx.durability.is_synced(*seq), "{ticket:?} waits for {seq}, which is synced");
            assert!(self.in_body.contains_key(ticket), "{ticket:?} is not under way");
        }
    }
}
