//! Moves without effect, and which other move is to blame: for the list of conflicts.

use atoll_causal::{FileId, HybridStamp};

use crate::record::SpineMove;
use crate::spine::{MoveOutcome, Spine};
use crate::tree::{Circle, SpineTree};

/// A move that has no effect, as far as is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostMove {
    /// Its stamp, which names it and says who made it.
    pub stamp: HybridStamp,
    /// The directory that would have come below itself.
    pub dir: FileId,
    /// The birth or move because of which it would: of those that brought its new parent below it, the last one that
    /// its site did not know of.
    pub because: HybridStamp,
}

impl LostMove {
    /// Why `record` has no effect on `tree`, which is as it was just before.
    pub(crate) fn new(record: &SpineMove, circle: &Circle, tree: &SpineTree) -> Self {
        let between = circle.between.iter();
        let ways = between.filter_map(|dir| Some((dir, tree.get(*dir)?.place().since)));
        let was_seen = |(dir, since): &(&FileId, HybridStamp)| {
            record.evidence().of(**dir).iter().any(|place| place.since == *since)
        };
        let last_of = |seen| ways.clone().filter(|way| was_seen(way) == seen).map(|(_, since)| since).max();
        // Its site may have known all of them, if it also knew a later move that has no effect either.
        let because = last_of(false).or_else(|| last_of(true)).unwrap_or(record.stamp());
        Self { stamp: record.stamp(), dir: circle.dir, because }
    }
}

impl Spine {
    /// The moves later than the cut that have no effect, in their order. No later move brings one of them to life; an
    /// earlier one that is still under way might.
    pub fn lost(&self) -> impl Iterator<Item = LostMove> {
        self.log.values().filter_map(|logged| match logged.outcome {
            MoveOutcome::Lost(lost) => Some(lost),
            MoveOutcome::Done | MoveOutcome::Untried => None,
        })
    }
}
