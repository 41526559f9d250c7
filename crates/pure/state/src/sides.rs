//! Rows of machines beside the island, by table and id, in memory as far as they are used. Never reads what is in them.
//!
//! Ids may be chosen at other sites, so the rows are in a tree and not in a hash map. Invariant: a row that is not clean is newer
//! than the snapshot.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::cache::Slot;

/// A table, and the id of a row of it.
type SideKey = (u8, u128);

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct SideRows {
    rows: BTreeMap<SideKey, Slot<Bytes>>,
    dirty: Vec<SideKey>,
    frozen: Vec<SideKey>,
    /// Memory has all rows from the first to the second key of each of these. Who needs several pages at once finds all of them.
    pages: Vec<(SideKey, SideKey)>,
}

impl SideRows {
    /// A row: none if memory does not know.
    pub(crate) fn get(&self, key: SideKey, seen: &Cell<u64>) -> Option<Option<&Bytes>> {
        match self.rows.get(&key) {
            Some(slot) => Some(slot.see(seen)),
            None => self.page_of(key).map(|_| None),
        }
    }

    /// The page in which a row is, or would be: up to where memory has all rows.
    fn page_of(&self, key: SideKey) -> Option<SideKey> {
        let has = |(first, last): &&(SideKey, SideKey)| *first <= key && key <= *last;
        self.pages.iter().find(has).map(|(_, last)| *last)
    }

    /// The rows of a table from this id on, as far as memory has all of them, and the last id of which that is so.
    pub(crate) fn page(&self, table: u8, from: u128) -> Option<(impl Iterator<Item = (u128, &Bytes)>, u128)> {
        let to = self.page_of((table, from))?;
        let rows = self.rows.range((table, from)..=to);
        Some((rows.filter_map(|((_, id), slot)| Some((*id, slot.value()?))), to.1))
    }

    /// Sets or removes a row by the record at `seq`.
    pub(crate) fn set(&mut self, key: SideKey, row: Option<Bytes>, seq: u64) {
        let is_new = match self.rows.get_mut(&key) {
            Some(slot) => slot.set(row, seq),
            None => {
                self.rows.insert(key, Slot::dirty(row, seq));
                true
            }
        };
        if is_new {
            self.dirty.push(key);
        }
    }

    /// Takes in a row as the snapshot has it, unless memory knows better.
    pub(crate) fn load(&mut self, key: SideKey, row: Option<Bytes>) {
        self.rows.entry(key).or_insert_with(|| Slot::clean(row));
    }

    /// Takes in all rows of a table from one id to another one.
    pub(crate) fn load_page(&mut self, table: u8, (from, to): (u128, u128), rows: Vec<(u128, Vec<u8>)>) {
        rows.into_iter().for_each(|(id, row)| self.load((table, id), Some(row.into())));
        let (first, last) = ((table, from), (table, to));
        self.pages.retain(|page| page.0 < first || last < page.1);
        self.pages.push((first, last));
    }

    /// Hands every changed row to `write`, as part of the checkpoint that begins now.
    pub(crate) fn freeze(&mut self, mut write: impl FnMut(SideKey, Option<&Bytes>)) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.dirty);
        for key in &self.frozen {
            let slot = self.rows.get_mut(key).expect("a dirty row is in memory");
            slot.freeze();
            write(*key, slot.value());
        }
    }

    /// The checkpoint is written.
    pub(crate) fn thaw(&mut self) {
        for key in std::mem::take(&mut self.frozen) {
            if self.rows.get_mut(&key).is_some_and(Slot::thaw) {
                self.rows.remove(&key);
            }
        }
    }

    /// Lets go of clean rows that nobody used since the last sweep, if there are more than `max`.
    pub(crate) fn sweep(&mut self, max: usize) {
        if self.rows.len() > max {
            self.rows.retain(|_, slot| !slot.cold());
            self.pages.clear();
        }
    }

    /// Rows that differ from the snapshot.
    pub(crate) fn dirty_len(&self) -> usize {
        self.dirty.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: u8 = b'n';

    fn row(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    fn get(rows: &SideRows, id: u128) -> Option<Option<Bytes>> {
        rows.get((TABLE, id), &Cell::new(0)).map(Option::<&Bytes>::cloned)
    }

    fn page(rows: &SideRows, from: u128) -> Option<(Vec<(u128, Bytes)>, u128)> {
        let (rows, to) = rows.page(TABLE, from)?;
        Some((rows.map(|(id, row)| (id, row.clone())).collect(), to))
    }

    #[test]
    fn a_page_has_what_records_have_changed_in_it() {
        let mut rows = SideRows::default();
        rows.set((TABLE, 3), row("new"), 1);
        rows.set((TABLE, 5), None, 2);
        rows.set((TABLE + 1, 4), row("of another table"), 3);
        assert_eq!(page(&rows, 0), None, "the snapshot was not asked");
        rows.load_page(
            TABLE,
            (2, 9),
            [(3, "old"), (5, "gone"), (9, "last")].map(|(id, row)| (id, row.into())).into(),
        );
        let expected = vec![(3, Bytes::from_static(b"new")), (9, Bytes::from_static(b"last"))];
        assert_eq!(page(&rows, 2), Some((expected.clone(), 9)));
        assert_eq!(page(&rows, 3), Some((expected, 9)));
        rows.set((TABLE, 6), row("later"), 4);
        assert_eq!(page(&rows, 4).map(|(rows, _)| rows.len()), Some(2));
        assert_eq!((page(&rows, 1), page(&rows, 10)), (None, None), "what is not known is asked for");
    }

    #[test]
    fn of_a_row_that_a_page_has_not_memory_knows_that_it_is_not_there() {
        let mut rows = SideRows::default();
        rows.load_page(TABLE, (10, 19), vec![(12, b"one".to_vec())]);
        assert_eq!((get(&rows, 12), get(&rows, 13)), (Some(row("one")), Some(None)));
        assert_eq!((get(&rows, 9), get(&rows, 20)), (None, None), "nobody has asked for them");
        rows.set((TABLE, 12), None, 1);
        rows.freeze(|_, _| {});
        rows.thaw();
        assert_eq!(get(&rows, 12), Some(None), "it is gone");
        rows.sweep(0);
        rows.set((TABLE, 14), row("later"), 2);
        rows.sweep(0);
        assert_eq!((get(&rows, 13), get(&rows, 14)), (None, Some(row("later"))));
    }

    #[test]
    fn who_needs_two_pages_at_once_finds_both() {
        let mut rows = SideRows::default();
        rows.load_page(TABLE, (10, 19), vec![(12, b"one".to_vec())]);
        rows.load_page(TABLE, (30, 39), vec![(33, b"other".to_vec())]);
        assert_eq!(page(&rows, 10), Some((vec![(12, Bytes::from_static(b"one"))], 19)));
        assert_eq!(page(&rows, 31), Some((vec![(33, Bytes::from_static(b"other"))], 39)));
        assert_eq!(page(&rows, 20), None, "nobody has asked for what is between them");
        rows.load_page(TABLE, (0, 50), Vec::new());
        assert_eq!(rows.pages.len(), 1, "what a larger page has is not kept apart");
    }

    #[test]
    fn a_checkpoint_has_each_changed_row_once_and_what_is_gone_leaves_memory_behind_it() {
        let mut rows = SideRows::default();
        rows.set((TABLE, 1), row("a"), 1);
        rows.set((TABLE, 1), row("b"), 2);
        rows.set((TABLE, 2), None, 3);
        let mut written = Vec::new();
        rows.freeze(|key, row| written.push((key, row.cloned())));
        assert_eq!(written, [((TABLE, 1), row("b")), ((TABLE, 2), None)]);
        rows.set((TABLE, 1), row("c"), 4);
        rows.thaw();
        assert_eq!((get(&rows, 1), get(&rows, 2)), (Some(row("c")), None));
        assert_eq!(rows.dirty_len(), 1, "it has changed since");
    }

    #[test]
    fn a_sweep_leaves_what_the_snapshot_has_not_and_asks_for_pages_again() {
        let mut rows = SideRows::default();
        rows.load_page(TABLE, (0, u128::MAX), vec![(1, b"clean".to_vec())]);
        rows.set((TABLE, 2), row("dirty"), 1);
        rows.sweep(0);
        rows.sweep(0);
        assert_eq!((get(&rows, 1), get(&rows, 2), page(&rows, 0)), (None, Some(row("dirty")), None));
    }
}
