//! What the plain trees could not be given, as far as it was told: each once. Decides only whether something is new.
//!
//! A file is laid again whenever it changes, so a native file system that cannot hold its attributes refuses them
//! each time.

use std::collections::HashMap;

use atoll_core::IslandId;
use atoll_view::{Conflict, Subject, Why};

/// Most files, directories and names that are remembered. Of more than that each is told again.
const TOLD_MAX: usize = 4096;

/// Most files and directories of an island that a status tells by path or id.
pub(crate) const SPILLED_TOLD_MAX: usize = 16;

/// What the native file system holds no extended attributes of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spilled {
    /// How many files and directories.
    pub(crate) count: usize,
    /// Some of them, [`SPILLED_TOLD_MAX`] at most: paths, or ids.
    pub(crate) some: Vec<String>,
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told: HashMap<(IslandId, Subject), Why>,
}

impl Refusals {
    /// Whether a conflict is to be told: not what was told of the same thing before. What happened once, such as a change by
    /// hand, is always told.
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
