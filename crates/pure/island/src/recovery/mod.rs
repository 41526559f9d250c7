//! A start: learns from other islands which records this island has lost, and redoes them.

#[cfg(test)]
mod done_again;
mod places;
pub(crate) mod promised;
mod queue;
pub(crate) mod redo;
pub(crate) mod start;

use std::collections::BTreeMap;

use atoll_core::map::IdSet;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Name, TxnId};
use atoll_proto::{Dir, EntryRef, ParticipantWork, PeerMessage};

use crate::ctx::lost::LostPart;
use crate::ctx::request::Blocked;
use crate::ctx::{Bounded, Ctx};
use crate::look::Missing;
use queue::Redo;
use start::{Phase, Superseded, Witness};

/// The islands and answers that a starting island waits for.
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
    /// Others, as long as they may know of something that this one has lost in a power cut, or have told it and that is
    /// not synced here: until it is they bring it back again.
    witnesses: BTreeMap<IslandId, Witness>,
    /// Lost records of this island that others have told again.
    redo: Redo,
    /// Transactions that were not lost, or whose parts were done again. Who has told one may have done so twice, and
    /// the second time may arrive when nothing else is left of it.
    redone: IdSet<TxnId>,
    /// What replaced a file and was done again. What had brought that file is known by its coordinator alone, and may
    /// be told later, also in another life: until all have told, the rows stay.
    replaced: BTreeMap<TxnId, Superseded>,
    /// Others' journals and prepares, which may be about directories that are brought back.
    journals: Bounded<PeerMessage>,
}

impl Recovery {
    /// Whether the island lets requests in.
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// The journal has come as far as others may have seen it, those entries included that this island has lost.
    pub(crate) fn has_moved_on(&self) -> bool {
        self.is_serving() && !self.must_move_on
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
        self.redo.has_ready()
    }

    /// Whether a transaction was not lost, or was done again.
    pub(crate) fn is_known(&self, txn: TxnId) -> bool {
        self.redone.contains(&txn)
    }

    /// Whether the row of a transaction says something that must not be redone.
    pub(crate) fn supersedes(&self, txn: TxnId) -> bool {
        self.replaced.contains_key(&txn)
    }
}

impl Missing for Recovery {
    fn is_incomplete(&self) -> bool {
        self.has_witnesses() || !self.redo.is_empty()
    }

    fn may_have_lost(&self, by: IslandId) -> bool {
        !self.told_of_lost(by) || !self.redo.is_empty()
    }

    fn may_have_moved(&self, by: IslandId) -> bool {
        let is_permit = |lost: &LostPart| matches!(lost.part.work, ParticipantWork::PermitMove { .. });
        !self.told_of_lost(by) || self.redo.parts().any(|(_, lost)| lost.from == by && is_permit(lost))
    }

    fn witnesses(&self) -> Vec<IslandId> {
        self.silent().collect()
    }

    fn comes_to(&self, dir: Ino, name: Option<&Name>) -> Option<&EntryRef> {
        let is_here = |at: &&EntryRef| at.dir == dir && name.is_none_or(|name| at.name == *name);
        self.redo.parts().find_map(|(_, lost)| match &lost.part.work {
            ParticipantWork::BorrowName { renaming, .. } => Some(&renaming.to).filter(is_here),
            _ => None,
        })
    }

    fn is_not_removed(&self, ctx: &Ctx, ino: Ino, dir: &Dir) -> Result<(), Blocked> {
        let is_empty = dir.owned.as_ref().is_some_and(|owned| owned.entries == 0) && ino != Ino::ROOT;
        let is_new = self.adopted.contains(&ino);
        if is_empty && self.is_incomplete() && !is_new && !planted(Bug::LostRemovalIgnored) {
            return Err(ctx.retry_or_fail(self.silent()));
        }
        Ok(())
    }
}
