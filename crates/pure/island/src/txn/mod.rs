//! Transactions among islands, and what they lock.

pub(crate) mod coordinator;
mod delivery;
pub(crate) mod participant;

use std::collections::BTreeMap;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::{IslandId, Stamp, TxnId};
use atoll_proto::{Renaming, Spot, Work};

use crate::ctx::Ctx;
use crate::locks::names::NameLocks;
use coordinator::Coordinated;

/// Transactions under way, as far as memory is enough.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txns {
    locks: NameLocks,
    /// Moves that are known to have happened, and wait for the journal.
    decided_early: IdSet<TxnId>,
    /// What this island coordinates and has not decided, by its first transaction.
    begun: BTreeMap<TxnId, Coordinated>,
    /// The first transaction of what another one belongs to.
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

    /// A move is known to have happened, and waits for the journal.
    pub(crate) fn is_decided_early(&self, txn: TxnId) -> bool {
        self.decided_early.contains(&txn)
    }

    /// What was prepared in an earlier life is locked again.
    pub(crate) fn lock_again(&mut self, ctx: &Ctx, txn: TxnId, work: &Work) {
        self.locks.hold(ctx, txn, work, 0);
    }

    /// A transaction that is prepared here has happened.
    pub(crate) fn on_happened(&mut self, ctx: &mut Ctx, from: IslandId, txn: TxnId) {
        self.locks.on_happened(ctx, from, txn);
    }

    /// Locks what a rename moves, for what this island coordinates.
    pub(crate) fn lock_moves(&mut self, first: TxnId, renaming: &Renaming) {
        self.locks.lock_moves(first, renaming);
    }

    /// Locks the name to which a file comes.
    pub(crate) fn lock_name(&mut self, txn: TxnId, at: Spot) {
        self.locks.lock_names(txn, &[at]);
    }
}
