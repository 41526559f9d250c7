//! The journal (`DESIGN` 5; Archipelago 8): changes to places and static attributes of directories.

mod catch_up;
mod ends;
pub(crate) mod others;
pub(crate) mod outbox;

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{IslandId, Stamp};

use crate::ctx::request::Next;
use crate::ctx::{Bounded, Ctx};
use ends::Ends;
use others::AwaitsApplied;

/// How far the other islands are, and which requests wait for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    /// How far each island has said that it has applied this island's journal.
    applied: BTreeMap<IslandId, Stamp>,
    waiting: Vec<AwaitsApplied>,
    /// Requests and messages that wait until this island has caught up.
    behind: Bounded<Next>,
    /// Journals applied here whose coordinators do not know yet that this is synced.
    to_confirm: BTreeMap<IslandId, (u64, Stamp)>,
    /// How far the others have said that theirs are for all.
    public: BTreeMap<IslandId, Stamp>,
    /// How far the others have said that theirs are synced.
    kept_by: BTreeMap<IslandId, Stamp>,
    /// Coordinators whose next entries wait for something.
    stalled: BTreeSet<IslandId>,
    stalled_ms: u64,
    /// Coordinators whose next entries need a row that is damaged. They are asked again behind the next checkpoint.
    unreadable: BTreeSet<IslandId>,
    ends: Ends,
}

impl Journal {
    /// A life begins.
    pub(crate) fn resume(&mut self, ctx: &Ctx) {
        self.ends.resume(ctx.state.meta().incarnation);
    }

    /// An island is told that its journal is applied up to `stamp` when the record at `seq` is synced.
    pub(crate) fn confirm_later(&mut self, island: IslandId, seq: u64, stamp: Stamp) {
        self.to_confirm.insert(island, (seq, stamp));
    }

    /// The next entries of a coordinator wait for something: they are asked for again.
    pub(crate) fn stall(&mut self, from: IslandId) {
        self.stalled.insert(from);
    }

    /// The next entries of a coordinator need a row that is damaged.
    pub(crate) fn unreadable(&mut self, from: IslandId) {
        self.unreadable.insert(from);
    }

    /// Rows that were damaged may have been replaced.
    pub(crate) fn rows_may_be_whole(&mut self) {
        self.stalled.append(&mut self.unreadable);
    }
}
