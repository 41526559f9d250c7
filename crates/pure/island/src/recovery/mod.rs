//! A start: what others know of this island's lost records, and doing those again.

mod places;
pub(crate) mod promised;
pub(crate) mod redo;
pub(crate) mod start;

use std::collections::BTreeMap;

use atoll_core::map::IdSet;
use atoll_core::{Ino, IslandId, Name, Stamp, TxnId};
use atoll_proto::{Dir, JournalEntry, PeerMessage, Spot, Work};

use crate::ctx::lost::{Lost, LostPart};
use crate::ctx::request::Blocked;
use crate::ctx::{Bounded, Ctx};
use crate::look::Missing;
use start::{Phase, Replaced, Told};

/// What a starting island waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recovery {
    phase: Phase,
    /// Islands that have not answered `Hello` yet.
    waiting: IdSet<IslandId>,
    since_ms: u64,
    /// The end before was not orderly, and the clock has not been moved on since.
    must_move_on: bool,
    /// Directories that were made since, while something was missing.
    adopted: IdSet<Ino>,
    /// Islands that may know of something that this one has lost in a power cut.
    witnesses: IdSet<IslandId>,
    /// Those, and those that have told but whose news is not synced: until that is they bring it back again.
    unkept: BTreeMap<IslandId, Told>,
    /// What others have brought back of this island's lost records, by its own clock.
    lost: BTreeMap<Stamp, Lost>,
    /// Transactions that were not lost, or whose parts were done again. Who has told one may have done so twice, and
    /// the second time may arrive when nothing else is left of it.
    redone: IdSet<TxnId>,
    /// Parts of others' transactions that could not be done again yet: they wait for something. When each was prepared
    /// first, and what it is.
    unfinished: BTreeMap<TxnId, (Stamp, LostPart)>,
    /// Entries of my own journal that could not be done again yet: a rename of a directory that has not come to where it was
    /// renamed, or any other that waits for something. They are done again, or told again, first.
    places: BTreeMap<Stamp, JournalEntry>,
    /// What replaced a file and was done again. What had brought that file is known by its coordinator alone, and may
    /// be told later, also in another life: until all have told, the rows stay.
    replaced: BTreeMap<TxnId, Replaced>,
    /// Others' journals and prepares, which may be about directories that are brought back.
    journals: Bounded<PeerMessage>,
}

impl Recovery {
    /// What the island lets in.
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether requests are let in.
    pub(crate) fn is_serving(&self) -> bool {
        self.phase == Phase::Normal
    }

    /// Requests are let in from here on.
    pub(crate) const fn serve(&mut self) {
        self.phase = Phase::Normal;
    }

    /// Something that was lost, and was told, can be done again now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether a transaction was not lost, or was done again.
    pub(crate) fn is_known(&self, txn: TxnId) -> bool {
        self.redone.contains(&txn)
    }

    /// Whether the row of a transaction says what is not to be done again.
    pub(crate) fn supersedes(&self, txn: TxnId) -> bool {
        self.replaced.contains_key(&txn)
    }
}

impl Missing for Recovery {
    fn is_incomplete(&self) -> bool {
        self.has_witnesses() || self.is_lost_waiting()
    }

    fn may_have_lost(&self, by: IslandId) -> bool {
        !self.told_of_lost(by) || self.is_lost_waiting()
    }

    fn witnesses(&self) -> Vec<IslandId> {
        self.witnesses.iter().copied().collect()
    }

    fn comes_to(&self, dir: Ino, name: Option<&Name>) -> Option<&Spot> {
        let is_here = |at: &&Spot| at.dir == dir && name.is_none_or(|name| at.name == *name);
        self.lost_parts().find_map(|(_, lost)| match &lost.part.work {
            Work::Lend { renaming, .. } => Some(&renaming.to).filter(is_here),
            _ => None,
        })
    }

    fn is_not_removed(&self, ctx: &Ctx, ino: Ino, dir: &Dir) -> Result<(), Blocked> {
        let is_empty = dir.owned.as_ref().is_some_and(|owned| owned.entries == 0) && ino != Ino::ROOT;
        if is_empty && self.is_incomplete() && !self.adopted.contains(&ino) {
            return Err(ctx.untold(self.witnesses.iter().copied()));
        }
        Ok(())
    }
}
