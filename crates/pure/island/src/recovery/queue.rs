//! The queue of lost records that were told again, until they are redone: in the order of this island's own
//! clock.

use std::collections::BTreeMap;

use atoll_core::Stamp;
use atoll_proto::JournalEntry;

use crate::ctx::lost::{LostPart, LostRecord};

/// Whether a record can be done again. Ready -> Blocked -> Ready; done: removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ready,
    /// It waits for something: another record that is not told or not done again yet, or a transaction under way.
    Blocked,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Redo {
    /// By the stamp that each had first: it was given once.
    items: BTreeMap<Stamp, (Turn, LostRecord)>,
    /// Nothing that is ready has an earlier stamp.
    first: Stamp,
}

impl Redo {
    /// A record is told. While others may still tell more it waits, for its order.
    pub(super) fn push(&mut self, stamp: Stamp, lost: LostRecord) {
        self.first = self.first.min(stamp);
        self.items.insert(stamp, (Turn::Ready, lost));
    }

    /// Takes out the first that is ready.
    pub(super) fn pop(&mut self) -> Option<(Stamp, LostRecord)> {
        let mut ready = self.items.range(self.first..).filter(|(_, (turn, _))| *turn == Turn::Ready);
        let stamp = *ready.next()?.0;
        self.first = stamp;
        self.items.remove(&stamp).map(|(_, lost)| (stamp, lost))
    }

    /// One that was taken out waits for something, and nobody may forget it.
    pub(super) fn block(&mut self, stamp: Stamp, lost: LostRecord) {
        self.items.insert(stamp, (Turn::Blocked, lost));
    }

    /// Something has come, or has ended, for which those that are blocked may have waited.
    pub(super) fn unblock(&mut self) {
        self.first = Stamp::default();
        self.items.values_mut().for_each(|(turn, _)| *turn = Turn::Ready);
    }

    /// Nothing that was told is left to be done again.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Some can be done again now.
    pub(super) fn has_ready(&self) -> bool {
        self.items.values().any(|(turn, _)| *turn == Turn::Ready)
    }

    /// Some entries of this island's journal are left, or something that can be done again now.
    pub(super) fn has_entries(&self) -> bool {
        let counts =
            |(turn, lost): &(Turn, LostRecord)| *turn == Turn::Ready || matches!(lost, LostRecord::Entry(_));
        self.items.values().any(counts)
    }

    /// Panics if something that is ready would be passed over.
    pub(super) fn check(&self) {
        let mut passed = self.items.range(..self.first);
        let ready = passed.find(|(_, (turn, _))| *turn == Turn::Ready);
        assert!(ready.is_none(), "{ready:?} can be done again, and is passed over");
    }

    /// Parts of others' transactions.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Stamp, &LostPart)> {
        self.items.iter().filter_map(|(stamp, (_, lost))| match lost {
            LostRecord::Part(part) => Some((*stamp, part)),
            _ => None,
        })
    }

    /// Entries of this island's journal.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Stamp, &JournalEntry)> {
        self.items.iter().filter_map(|(stamp, (_, lost))| match lost {
            LostRecord::Entry(entry) => Some((*stamp, entry)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blocked_is_passed_over_until_something_has_come() {
        let mut redo = Redo::default();
        let onward = || LostRecord::Entry(JournalEntry::ClockBump);
        for stamp in [3, 1, 2] {
            redo.push(Stamp(stamp), onward());
        }
        let (first, lost) = redo.pop().expect("three are there");
        assert_eq!(first, Stamp(1));
        redo.block(first, lost);
        assert_eq!(redo.pop().map(|(stamp, _)| stamp), Some(Stamp(2)));
        assert!(redo.has_ready());
        redo.check();
        redo.unblock();
        assert_eq!(redo.pop().map(|(stamp, _)| stamp), Some(Stamp(1)), "it was there first");
        // Told once more while it is blocked: it is tried again.
        let (last, lost) = redo.pop().expect("one is left");
        redo.block(last, lost);
        assert!(!redo.has_ready() && redo.has_entries() && redo.pop().is_none());
        redo.push(last, onward());
        redo.push(Stamp(2), onward());
        assert_eq!(redo.pop().map(|(stamp, _)| stamp), Some(Stamp(2)));
        assert_eq!(redo.pop().map(|(stamp, _)| stamp), Some(Stamp(3)));
        assert!(redo.is_empty() && !redo.has_entries());
    }
}
