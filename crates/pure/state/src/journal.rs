//! Entries of one island's journal that are kept for a while, in the order of their stamps. Most are removed
//! again before a checkpoint, and never reach the snapshot.

use std::collections::VecDeque;

use atoll_core::{Encode, IslandId, Stamp};
use atoll_proto::JournalEntry;

use crate::state::State;

/// Entries come at the end, and go from the beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct JournalRows {
    entries: VecDeque<Kept>,
    /// The snapshot has, or is about to have, what is here up to this.
    frozen: Stamp,
    /// It has these, and they are gone.
    gone: Vec<Stamp>,
}

#[derive(Debug, Clone)]
struct Kept {
    stamp: Stamp,
    entry: JournalEntry,
    /// Encoded bytes of the entries that have come up to this one, those that have gone too.
    bytes_upto: u64,
}

impl JournalRows {
    pub(crate) fn push(&mut self, stamp: Stamp, mut entry: JournalEntry) {
        debug_assert!(self.entries.back().is_none_or(|last| last.stamp < stamp), "out of order");
        entry.shed();
        let before = self.entries.back().map_or(0, |last| last.bytes_upto);
        let bytes_upto = before + entry.encoded_len() as u64;
        self.entries.push_back(Kept { stamp, entry, bytes_upto });
    }

    /// Takes in a row of the snapshot, in any order.
    pub(crate) fn open(&mut self, stamp: Stamp, mut entry: JournalEntry) {
        entry.shed();
        let at = self.entries.partition_point(|kept| kept.stamp < stamp);
        let mut bytes = if at == 0 { 0 } else { self.entries[at - 1].bytes_upto };
        self.entries.insert(at, Kept { stamp, entry, bytes_upto: 0 });
        for kept in self.entries.range_mut(at..) {
            bytes += kept.entry.encoded_len() as u64;
            kept.bytes_upto = bytes;
        }
        self.frozen = self.frozen.max(stamp);
    }

    pub(crate) fn drop_upto(&mut self, upto: Stamp) {
        while self.entries.front().is_some_and(|kept| kept.stamp <= upto) {
            let Kept { stamp, .. } = self.entries.pop_front().expect("looked at");
            if stamp <= self.frozen {
                self.gone.push(stamp);
            }
        }
    }

    pub(crate) fn after(&self, stamp: Stamp) -> impl ExactSizeIterator<Item = (Stamp, &JournalEntry)> {
        self.entries.range(self.index_after(stamp)..).map(|kept| (kept.stamp, &kept.entry))
    }

    /// Encoded bytes of the entries behind `stamp`.
    pub(crate) fn bytes_after(&self, stamp: Stamp) -> u64 {
        let Some(first) = self.entries.get(self.index_after(stamp)) else { return 0 };
        let last = self.entries.back().map_or(0, |last| last.bytes_upto);
        last - first.bytes_upto + first.entry.encoded_len() as u64
    }

    fn index_after(&self, stamp: Stamp) -> usize {
        self.entries.partition_point(|kept| kept.stamp <= stamp)
    }

    pub(crate) fn first(&self) -> Option<Stamp> {
        self.entries.front().map(|kept| kept.stamp)
    }

    /// What the snapshot lacks, and what it has too much.
    pub(crate) fn freeze(&mut self, mut put: impl FnMut(Stamp, Option<&JournalEntry>)) {
        self.gone.drain(..).for_each(|stamp| put(stamp, None));
        for (stamp, entry) in self.after(self.frozen) {
            put(stamp, Some(entry));
        }
        self.frozen = self.entries.back().map_or(self.frozen, |last| self.frozen.max(last.stamp));
    }
}

impl State {
    /// Encoded bytes of [`State::outbox`].
    pub fn outbox_bytes(&self, island: IslandId) -> u64 {
        self.outbox.bytes_after(self.delivered(island).max(self.skipped(island)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowKey;
    use atoll_core::{Ino, Key, Name, SessionId, Time, TxnId};
    use atoll_proto::{
        Ancestor, Chain, DirPlace, EntryRef, ParticipantWork, PlaceVersion, RequestId, RowChange,
        StaticAttrs, Txn, TxnPart, TxnStamps, TxnState, Xattrs,
    };

    fn entry() -> JournalEntry {
        let name = Name::new(b"n").unwrap();
        let place =
            DirPlace { version: PlaceVersion::default(), parent: Ino::ROOT, name: Some(name.clone()) };
        let (from, chain) = (EntryRef { dir: Ino::ROOT, name }, Chain::default());
        JournalEntry::Place { ino: Ino(7), place, from, replaced: None, chain, time: Time::default() }
    }

    fn frozen(journal: &mut JournalRows) -> Vec<(u64, bool)> {
        let mut rows = Vec::new();
        journal.freeze(|stamp, entry| rows.push((stamp.0, entry.is_some())));
        rows
    }

    #[test]
    fn the_snapshot_hears_only_of_what_outlives_a_checkpoint() {
        let mut journal = JournalRows::default();
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
    fn bytes_are_those_of_the_entries_that_are_there() {
        let mut journal = JournalRows::default();
        let bytes = entry().encoded_len() as u64;
        [9, 3, 6].into_iter().for_each(|n| journal.open(Stamp(n), entry()));
        (10..=12).for_each(|n| journal.push(Stamp(n), entry()));
        assert_eq!([0, 3, 8, 12].map(|n| journal.bytes_after(Stamp(n)) / bytes), [6, 5, 4, 0]);
        journal.drop_upto(Stamp(10));
        assert_eq!([0, 11, 12].map(|n| journal.bytes_after(Stamp(n)) / bytes), [2, 1, 0]);
        journal.drop_upto(Stamp(12));
        journal.push(Stamp(13), entry());
        assert_eq!(journal.bytes_after(Stamp(0)), bytes);
    }

    #[test]
    fn what_an_older_version_has_told_of_directories_goes_when_it_is_read() {
        let xattrs = |names: &[&'static str]| {
            Xattrs(names.iter().map(|name| ((*name).into(), vec![7; 60_000].into())).collect())
        };
        let (ino, place) = (Ino(7), entry().about().unwrap().1.clone());
        let (key, fixed) = (Key(1), StaticAttrs { version: Stamp(1), mode: 0o755, uid: 0, gid: 0 });
        let all = ["system.posix_acl_access", "system.posix_acl_default", "trusted.x", "user.x"];
        let above = Ancestor {
            ino,
            key,
            birth_bytes: 0,
            place: place.clone(),
            fixed,
            xattrs: xattrs(&all),
            suspected: false,
        };
        let JournalEntry::Place { from, time, .. } = entry() else { unreachable!("just made") };
        let chain = Chain { vector: Vec::new(), dirs: vec![above.clone()] };
        let moved = JournalEntry::Place { ino, place: place.clone(), from, replaced: None, chain, time };
        let mut journal = JournalRows::default();
        journal.open(Stamp(1), moved);
        journal.push(Stamp(2), JournalEntry::StaticAttrs { ino, place, fixed, xattrs: xattrs(&all) });
        for (_, entry) in journal.after(Stamp(0)) {
            let kept = match entry {
                JournalEntry::Place { chain, .. } => &chain.dirs[0].xattrs,
                JournalEntry::StaticAttrs { xattrs, .. } => xattrs,
                JournalEntry::ClockBump => unreachable!("not put in"),
            };
            assert_eq!(kept, &xattrs(&all[..2]));
        }
        let part = TxnPart {
            request: RequestId { session: SessionId(1), seq: 1 },
            work: ParticipantWork::Adopt { dir: above.clone(), time, chain: vec![above] },
        };
        let (state, partner, stamps) = (TxnState::Committed, IslandId(1), TxnStamps::default());
        let txn = TxnId { coordinator: partner, stamp: Stamp(3) };
        let row = Txn { state, partner, stamps, part };
        let mut opened = State::new(1);
        opened.open_row(&RowKey::Txn(txn), &row.to_vec()).unwrap();
        let mut replayed = State::new(1);
        replayed.apply(1, &RowChange::Txn { txn, row: Some(Box::new(row)) });
        for state in [opened, replayed] {
            let ParticipantWork::Adopt { dir, chain, .. } = &state.txn(txn).unwrap().part.work else {
                unreachable!()
            };
            assert_eq!((&dir.xattrs, &chain[0].xattrs), (&xattrs(&all[..2]), &xattrs(&all[..2])));
        }
    }

    #[test]
    fn what_the_snapshot_had_is_removed_from_it() {
        let mut journal = JournalRows::default();
        [9, 3, 6].into_iter().for_each(|n| journal.open(Stamp(n), entry()));
        assert_eq!(journal.after(Stamp(0)).map(|(s, _)| s.0).collect::<Vec<_>>(), [3, 6, 9]);
        journal.drop_upto(Stamp(6));
        journal.push(Stamp(10), entry());
        assert_eq!(frozen(&mut journal), [(3, false), (6, false), (10, true)]);
    }
}
