//! Entries of one island's journal that are kept for a while, in the order of their stamps. Most go
//! again before a checkpoint: those never reach the snapshot.

use std::collections::VecDeque;

use atoll_core::Stamp;
use atoll_proto::JournalEntry;

/// Entries come at the end, and go from the beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    entries: VecDeque<(Stamp, JournalEntry)>,
    /// The snapshot has, or is about to have, what is here up to this.
    frozen: Stamp,
    /// It has these, and they are gone.
    gone: Vec<Stamp>,
}

impl Journal {
    pub(crate) fn push(&mut self, stamp: Stamp, entry: JournalEntry) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < stamp), "out of order");
        self.entries.push_back((stamp, entry));
    }

    /// Takes in a row of the snapshot, in any order.
    pub(crate) fn open(&mut self, stamp: Stamp, entry: JournalEntry) {
        let at = self.entries.partition_point(|(s, _)| *s < stamp);
        self.entries.insert(at, (stamp, entry));
        self.frozen = self.frozen.max(stamp);
    }

    pub(crate) fn drop_upto(&mut self, upto: Stamp) {
        while self.entries.front().is_some_and(|(stamp, _)| *stamp <= upto) {
            let (stamp, _) = self.entries.pop_front().expect("looked at");
            if stamp <= self.frozen {
                self.gone.push(stamp);
            }
        }
    }

    pub(crate) fn after(&self, stamp: Stamp) -> impl ExactSizeIterator<Item = (Stamp, &JournalEntry)> {
        let from = self.entries.partition_point(|(s, _)| *s <= stamp);
        self.entries.range(from..).map(|(stamp, entry)| (*stamp, entry))
    }

    pub(crate) fn first(&self) -> Option<Stamp> {
        self.entries.front().map(|(stamp, _)| *stamp)
    }

    /// What the snapshot lacks, and what it has too much.
    pub(crate) fn freeze(&mut self, mut put: impl FnMut(Stamp, Option<&JournalEntry>)) {
        self.gone.drain(..).for_each(|stamp| put(stamp, None));
        for (stamp, entry) in self.after(self.frozen) {
            put(stamp, Some(entry));
        }
        self.frozen = self.entries.back().map_or(self.frozen, |(last, _)| self.frozen.max(*last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::{Ino, Name, Time};
    use atoll_proto::{Chain, Place, PlaceVersion, Spot};

    fn entry() -> JournalEntry {
        let name = Name::new(b"n").unwrap();
        let place = Place { version: PlaceVersion::default(), parent: Ino::ROOT, name: Some(name.clone()) };
        let (from, chain) = (Spot { dir: Ino::ROOT, name }, Chain::default());
        JournalEntry::Place { ino: Ino(7), place, from, replaced: None, chain, time: Time::default() }
    }

    fn frozen(journal: &mut Journal) -> Vec<(u64, bool)> {
        let mut rows = Vec::new();
        journal.freeze(|stamp, entry| rows.push((stamp.0, entry.is_some())));
        rows
    }

    #[test]
    fn the_snapshot_hears_only_of_what_outlives_a_checkpoint() {
        let mut journal = Journal::default();
        (1..=4).for_each(|n| journal.push(Stamp(n), entry()));
        journal.drop_upto(Stamp(2));
        assert_eq!(journal.after(Stamp(3)).map(|(s, _)| s.0).collect::<Vec<_>>(), [4]);
        assert_eq!(frozen(&mut journal), [(3, true), (4, true)]);
        journal.push(Stamp(5), entry());
        journal.drop_upto(Stamp(5));
        assert_eq!(journal.first(), None);
        assert_eq!(frozen(&mut journal), [(3, false), (4, false)]);
        assert_eq!(frozen(&mut journal), []);
    }

    #[test]
    fn what_the_snapshot_had_is_removed_from_it() {
        let mut journal = Journal::default();
        [9, 3, 6].into_iter().for_each(|n| journal.open(Stamp(n), entry()));
        assert_eq!(journal.after(Stamp(0)).map(|(s, _)| s.0).collect::<Vec<_>>(), [3, 6, 9]);
        journal.drop_upto(Stamp(6));
        journal.push(Stamp(10), entry());
        assert_eq!(frozen(&mut journal), [(3, false), (6, false), (10, true)]);
    }
}
