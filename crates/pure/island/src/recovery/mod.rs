//! A start: what others know of this island's lost records, and doing those again.

pub(crate) mod redo;
pub(crate) mod start;

use crate::ctx::Bounded;
use crate::recovery::redo::{Lost, LostPart};
use atoll_core::map::IdSet;
use atoll_core::{Ino, IslandId, Stamp, TxnId};
use atoll_proto::{JournalEntry, PeerMessage};
use start::{Phase, Replaced, Told};
use std::collections::BTreeMap;

/// What a starting island waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// Islands that have not answered `Hello` yet.
    waiting: IdSet<IslandId>,
    since_ms: u64,
    /// The end before was not orderly, and the clock has not been moved on since.
    pub(crate) goes_onward: bool,
    /// Directories that were made since, while something was missing.
    adopted: IdSet<Ino>,
    /// Islands that may know of something that this one has lost in a power cut.
    witnesses: IdSet<IslandId>,
    /// Those, and those that have told but whose news is not synced: until that is they bring it back again.
    unkept: BTreeMap<IslandId, Told>,
    /// What others have brought back of this island's lost records, by its own clock.
    pub(crate) lost: BTreeMap<Stamp, Lost>,
    /// Transactions that were not lost, or whose parts were done again. Who has told one may have done so twice, and
    /// the second time may arrive when nothing else is left of it.
    pub(crate) redone: IdSet<TxnId>,
    /// Parts of others' transactions that could not be done again yet: they wait for something. When each was prepared
    /// first, and what it is.
    pub(crate) unfinished: BTreeMap<TxnId, (Stamp, LostPart)>,
    /// Entries of my own journal that could not be done again yet: a rename of a directory that has not come to where it was
    /// renamed, or any other that waits for something. They are done again, or told again, first.
    pub(crate) places: BTreeMap<Stamp, JournalEntry>,
    /// What replaced a file and was done again. What had brought that file is known by its coordinator alone, and may
    /// be told later, also in another life: until all have told, the rows stay.
    pub(crate) replaced: BTreeMap<TxnId, Replaced>,
    /// Others' journals and prepares, which may be about directories that are brought back.
    pub(crate) journals: Bounded<PeerMessage>,
}
