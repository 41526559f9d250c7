//! Transactions among islands, and their locks.

pub(crate) mod coordinator;
mod delivery;
pub(crate) mod participant;

use std::collections::BTreeMap;

use atoll_core::map::IdMap;
use atoll_core::{IslandId, Stamp, TxnId};
use atoll_proto::{EntryRef, ParticipantWork, PeerMessage, PeerOp, RequestId, TxnState, Vote, VoteInfo};

use crate::ctx::request::Next;
use crate::ctx::{Ctx, RECOVERY_SESSION};
use crate::locks::names::NameLocks;
use coordinator::{Coordinated, OwnPart};

/// Transactions under way, as far as memory is enough.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txns {
    locks: NameLocks,
    /// Undecided operations that this island coordinates, by their first transaction.
    begun: BTreeMap<TxnId, Coordinated>,
    /// By transaction: the first transaction of its operation.
    first: IdMap<TxnId, TxnId>,
    /// Outcomes recorded here, with the record's position and the commit's moment, of which the partner
    /// was not told that they are synced.
    unconfirmed: Vec<(u64, IslandId, TxnId, Stamp)>,
    retell_ms: u64,
    /// Up to which stamp of each coordinator transactions were there when they were told last.
    told_before: BTreeMap<IslandId, Stamp>,
}

impl Txns {
    /// What transactions lock.
    pub(crate) const fn locks(&self) -> &NameLocks {
        &self.locks
    }

    /// Begins after a start: locks again what was prepared before it.
    pub(crate) fn resume(&mut self, ctx: &Ctx) {
        for txn in ctx.state.txn_ids() {
            let row = ctx.state.txn(txn).filter(|row| row.state == TxnState::Prepared);
            if let Some(row) = row {
                self.locks.hold(ctx, txn, &row.part.work, 0);
            }
        }
    }

    /// Locks the names and files that are prepared for another island by the record at `seq`.
    pub(crate) fn prepared(&mut self, ctx: &Ctx, txn: TxnId, work: &ParticipantWork, seq: u64) {
        self.locks.hold(ctx, txn, work, seq);
    }

    /// Has a message wait for the end of a transaction that has happened; false if too many do, or if it has not.
    pub(crate) fn wait(&mut self, txn: TxnId, message: &PeerMessage) -> bool {
        self.locks.is_shown(txn) && self.locks.wait(txn, message.clone())
    }

    /// A transaction that is prepared here has happened.
    pub(crate) fn on_happened(&mut self, ctx: &mut Ctx, from: IslandId, txn: TxnId) {
        let row = ctx.state.txn(txn);
        if row.is_some_and(|row| row.partner == from && row.state == TxnState::Prepared) {
            self.locks.happened(txn);
            ctx.next(Next::TxnEnded(txn));
        }
    }

    /// All of a file that comes here is here and safe: this island agrees, unless its name is locked.
    pub(crate) fn vote_arrival(
        &mut self,
        ctx: &mut Ctx,
        to: IslandId,
        txn: TxnId,
        at: EntryRef,
        prepared: Stamp,
    ) {
        if self.locks.holder(at.dir, &at.name).is_some() {
            // Whoever changes the name knows the old home.
            return ctx.send(0, to, PeerOp::Voted { txn, vote: Vote::Busy });
        }
        self.locks.lock_names(txn, &[at]);
        let vote = Vote::Yes { prepared, seen: VoteInfo::Nothing };
        ctx.send_synced(ctx.state.seq(), to, PeerOp::Voted { txn, vote });
    }

    /// A file goes to the island that owns its name. Nobody has asked for it.
    pub(crate) fn ship(&mut self, ctx: &mut Ctx, stamp: Stamp, to: IslandId, work: ParticipantWork) {
        let origin = RequestId { session: RECOVERY_SESSION, seq: 0 };
        self.begin_of(ctx, origin, Some(stamp), Vec::new(), OwnPart::Ship, vec![(to, work)]);
    }
}
