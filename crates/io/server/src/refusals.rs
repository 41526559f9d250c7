//! Remembers which refusals of the native file system were logged, so that each is logged once. Decides only
//! whether one is new.
//!
//! A file is laid again whenever it changes. If a native file system cannot hold its attributes, it refuses
//! them each time.

use std::collections::HashMap;

use atoll_core::IslandId;
use atoll_view::{Conflict, Subject, Why};

/// Most files, directories and names that are remembered. Of more than that each is told again.
const TOLD_MAX: usize = 4096;

/// Most files and directories of an island that a status tells by path or id.
pub(crate) const SPILLED_TOLD_MAX: usize = 16;

/// Files whose extended attributes the native file system refuses, and names that it refuses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spilled {
    /// Number of files and directories.
    pub(crate) count: usize,
    /// Some of them, [`SPILLED_TOLD_MAX`] at most: paths, or ids.
    pub(crate) some: Vec<String>,
    /// Names of files and directories that are not in the plain tree.
    pub(crate) names_refused: usize,
}

/// Refusals that were logged.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told: HashMap<(IslandId, Subject), Why>,
}

impl Refusals {
    /// Whether a conflict must be logged: not if it was logged before. Something that happened once, such as
    /// a change by hand, is always logged.
    pub(crate) fn is_new(&mut self, island: IslandId, conflict: &Conflict) -> bool {
        if !matches!(conflict.why, Why::Refused(_) | Why::Spilled(_) | Why::Device) {
            return true;
        }
        let key = (island, conflict.subject.clone());
        if self.told.get(&key) == Some(&conflict.why) {
            return false;
        }
        if self.told.len() == TOLD_MAX {
            self.told.clear();
        }
        self.told.insert(key, conflict.why.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Ino;

    fn conflict(ino: u64, why: Why) -> Conflict {
        Conflict { subject: Subject::Id(Ino(ino)), why }
    }

    #[test]
    fn a_refusal_is_told_once_for_each_file_and_reason() {
        let mut refusals = Refusals::default();
        let [one, two] = [IslandId(1), IslandId(2)];
        let too_big = || conflict(9, Why::Refused(7));
        assert!(refusals.is_new(one, &too_big()) && !refusals.is_new(one, &too_big()));
        assert!(refusals.is_new(two, &too_big()) && refusals.is_new(one, &conflict(10, Why::Refused(7))));
        assert!(refusals.is_new(one, &conflict(9, Why::Refused(28))), "for another reason");
        for _ in 0..2 {
            assert!(refusals.is_new(one, &conflict(9, Why::ChangedByHand)), "each change is one of its own");
        }
    }

    #[test]
    fn no_more_are_remembered_than_the_bound() {
        let mut refusals = Refusals::default();
        for ino in 0..2 * TOLD_MAX as u64 + 5 {
            assert!(refusals.is_new(IslandId(1), &conflict(ino, Why::Refused(7))));
            assert!(refusals.told.len() <= TOLD_MAX);
        }
    }
}
