//! How records of moves, and evidence from other sites, are taken in.
//!
//! A record that is later than all in the log is tried at once, by a walk up from each new parent. One that comes
//! late is put in its place of the order: later moves are undone, and done again behind it (Kleppmann et al. 2021,
//! 3.2).

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{FileId, HybridStamp};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, Malformed};

use crate::evidence::Evidence;
use crate::lost::LostMove;
use crate::record::SpineMove;
use crate::spine::{Logged, MoveOutcome, Share, Spine};
use crate::tree::{SpinePlace, SpineTree};

/// Why a record or evidence is not taken. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It was made at or before the cut of this site. A record is known and folded then: drop it. Evidence may be
    /// wrong by now: ask again.
    #[error("it was made before this site's cut")]
    BelowCut,
    /// Another record has the same stamp: one of them was not made by the writer whose name it has.
    #[error("another move has its stamp")]
    Differs,
    /// The log would have more than [`Spine::LOG_BYTES_MAX`] of its writer. A site that keeps the rules has folded
    /// further than this one then: take the record after the next cut.
    #[error("its writer has too many moves in the log")]
    TooMany,
    /// No site that keeps the rules sends it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Spine {
    /// Takes in a record of a move, from here or from another site, in any order and any number of times. Gives the
    /// directories that have another place now.
    pub fn receive(&mut self, record: SpineMove) -> Result<Vec<FileId>, NotTaken> {
        let stamp = record.stamp();
        let is_new = self.admit(record)?;
        Ok(if is_new { self.redo(stamp) } else { Vec::new() })
    }

    /// Takes in many records, and does later moves again only once: for what has gathered while a site was away. Gives
    /// the directories that have another place now, and the records that were not taken.
    pub fn receive_all(&mut self, records: Vec<SpineMove>) -> (Vec<FileId>, Vec<(HybridStamp, NotTaken)>) {
        let mut first: Option<HybridStamp> = None;
        let mut refused = Vec::new();
        for record in records {
            let stamp = record.stamp();
            match self.admit(record) {
                Ok(true) => first = Some(first.map_or(stamp, |first| first.min(stamp))),
                Ok(false) => {}
                Err(why) => refused.push((stamp, why)),
            }
        }
        (first.map_or_else(Vec::new, |first| self.redo(first)), refused)
    }

    /// Puts a record into the log, untried. False if it is there already.
    fn admit(&mut self, record: SpineMove) -> Result<bool, NotTaken> {
        let stamp = record.stamp();
        if stamp <= self.cut.upto {
            return Err(NotTaken::BelowCut);
        }
        if let Some(logged) = self.log.get(&stamp) {
            return if logged.record == record { Ok(false) } else { Err(NotTaken::Differs) };
        }
        let bytes = record.encoded_len();
        let share = self.shares.get(&stamp.writer).copied().unwrap_or(Share { bytes: 0, last: stamp });
        let share = Share { bytes: share.bytes + bytes, last: share.last.max(stamp) };
        if share.bytes > Self::LOG_BYTES_MAX {
            return Err(NotTaken::TooMany);
        }
        // As of a birth or a cut that its site does not know: then it could not know the directory.
        let is_before_base = |dir| self.tree.get(dir).is_some_and(|known| known.places[0].since >= stamp);
        if record.dirs().iter().any(|moved| is_before_base(moved.dir)) {
            return Err(Malformed::new("move").into());
        }
        self.take(record.evidence())?;
        self.shares.insert(stamp.writer, share);
        for moved in record.dirs() {
            self.tree.name(moved.parent);
            let moves = &mut self.tree.get_mut(moved.dir).moves;
            let at = moves.partition_point(|(other, _)| *other < stamp);
            moves.insert(at, (stamp, moved.parent));
        }
        self.log.insert(stamp, Logged { record, outcome: MoveOutcome::Untried });
        Ok(true)
    }

    /// Takes in evidence that a site has sent with directories, made with the stamp `made` of its clock. What it
    /// tells of is known then; the directories that the site is to hold must be [held](Self::hold) before the next
    /// fold.
    pub fn learn(&mut self, made: HybridStamp, evidence: &Evidence) -> Result<(), NotTaken> {
        // The bases of directories are kept for those who made something before they knew all that was folded, until
        // a cut has passed these stamps. So what was made before a cut is too old.
        if made <= self.cut.upto {
            return Err(NotTaken::BelowCut);
        }
        Ok(self.take(evidence)?)
    }

    /// Takes from evidence what is not known here. What is known is as of this site's own cut, and right.
    fn take(&mut self, evidence: &Evidence) -> Result<(), Malformed> {
        let unknown = evidence.dirs().iter().filter(|(dir, _)| !self.tree.has(*dir));
        let bases: Vec<(FileId, SpinePlace)> =
            unknown.map(|(dir, places)| (*dir, base(places, self.cut.upto).clone())).collect();
        if has_circle(&bases) {
            return Err(Malformed::new("evidence"));
        }
        self.tree.add(bases, false);
        Ok(())
    }

    /// Tries moves from a stamp on, those that were tried before once more. Gives the directories that have another place
    /// then.
    fn redo(&mut self, from: HybridStamp) -> Vec<FileId> {
        let Self { log, tree, .. } = self;
        let mut before = BTreeMap::new();
        for (_, logged) in log.range(from..) {
            for moved in logged.record.dirs() {
                before.entry(moved.dir).or_insert_with(|| tree.get_mut(moved.dir).place().clone());
            }
        }
        for (_, done) in log.range(from..).rev().filter(|(_, logged)| logged.outcome == MoveOutcome::Done) {
            done.record.dirs().iter().for_each(|moved| drop(tree.get_mut(moved.dir).places.pop()));
        }
        log.range_mut(from..).for_each(|(_, logged)| apply(logged, tree));
        let has_moved = |(dir, place): &(FileId, SpinePlace)| tree.get_mut(*dir).place() != place;
        before.into_iter().filter(has_moved).map(|(dir, _)| dir).collect()
    }
}

/// Tries a move on the tree that all before it have made.
pub(crate) fn apply(logged: &mut Logged, tree: &mut SpineTree) {
    let record = &logged.record;
    let circle = tree.circle(record.dirs()).filter(|_| !planted(Bug::NoCycleCheck));
    if let Some(circle) = circle {
        logged.outcome = MoveOutcome::Lost(LostMove::new(record, &circle, tree));
        return;
    }
    for moved in record.dirs() {
        let place = SpinePlace { parent: moved.parent, name: moved.name.clone(), since: record.stamp() };
        tree.get_mut(moved.dir).places.push(place);
    }
    logged.outcome = MoveOutcome::Done;
}

/// The place as of a cut, or of the birth, or as of its sender's cut if that one has folded further. Then no move
/// between the two cuts was one of this directory: such a move would be in the log here, and the directory known.
fn base(places: &[SpinePlace], upto: HybridStamp) -> &SpinePlace {
    let after = places.partition_point(|place| place.since <= upto);
    &places[after.saturating_sub(1)]
}

/// Whether following the parents of some of these directories leads round a circle.
fn has_circle(bases: &[(FileId, SpinePlace)]) -> bool {
    let parents: BTreeMap<FileId, FileId> = bases.iter().map(|(dir, base)| (*dir, base.parent)).collect();
    let mut ends = BTreeSet::new();
    for dir in parents.keys() {
        let mut way = BTreeSet::new();
        let mut at = *dir;
        while !ends.contains(&at) {
            if !way.insert(at) {
                return true;
            }
            let Some(parent) = parents.get(&at) else { break };
            at = *parent;
        }
        ends.append(&mut way);
    }
    false
}
