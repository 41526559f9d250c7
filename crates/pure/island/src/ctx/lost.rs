//! Records of this island that a power cut has taken and that other islands have told again.

use atoll_core::{IslandId, Stamp, TxnId};
use atoll_proto::{JournalEntry, TxnPart, TxnStamps};

/// A record of this island that is gone.
#[derive(Debug, Clone)]
pub(crate) enum LostRecord {
    /// The commit of a transaction that it coordinated.
    Commit { from: IslandId, txn: TxnId, prepared: Stamp, part: TxnPart },
    /// Its own part of another's transaction.
    Part(LostPart),
    /// An entry of its journal.
    Entry(JournalEntry),
}

/// See [`LostRecord::Part`].
#[derive(Debug, Clone)]
pub(crate) struct LostPart {
    pub(crate) from: IslandId,
    pub(crate) txn: TxnId,
    pub(crate) stamps: TxnStamps,
    pub(crate) part: TxnPart,
}
