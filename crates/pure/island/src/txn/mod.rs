//! Transactions among islands, and what they lock.

pub(crate) mod coordinator;
pub(crate) mod locks;
pub(crate) mod participant;

use crate::txn::locks::Holds;
use atoll_core::map::{IdMap, IdSet};
use atoll_core::{IslandId, Stamp, TxnId};
use coordinator::Begun;
use std::collections::BTreeMap;

/// Transactions under way, as far as memory is enough.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txns {
    pub(crate) locks: Holds,
    /// Moves that are known to have happened, and wait for the journal.
    pub(crate) decided_early: IdSet<TxnId>,
    /// What this island coordinates and has not decided, by its first transaction.
    begun: BTreeMap<TxnId, Begun>,
    /// The first transaction of what another one belongs to.
    first: IdMap<TxnId, TxnId>,
    /// Outcomes recorded here, with the record's position and the commit's moment, of which the partner
    /// was not told that they are synced.
    unconfirmed: Vec<(u64, IslandId, TxnId, Stamp)>,
    retell_ms: u64,
    /// Up to which stamp of each coordinator transactions were there when they were told last.
    told_before: BTreeMap<IslandId, Stamp>,
}
