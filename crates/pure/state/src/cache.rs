//! Rows in memory: those that are newer than the snapshot, and those that were read from it lately.

use atoll_core::map::IdMap;
use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Bound;

use atoll_core::Name;
use atoll_proto::Entry;

/// A table that has room for so many times the rows that it may hold is made smaller.
const SPARE_MAX: usize = 3;

/// How a row in memory relates to the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// The snapshot has the same.
    Clean,
    /// Newer than the snapshot.
    Dirty,
    /// Part of the checkpoint that is being written.
    Frozen,
}

/// A row in memory; `None` says that it does not exist.
#[derive(Debug, Clone)]
pub struct Slot<V> {
    value: Option<V>,
    /// Log position of its last change: who shows it waits until that is committed.
    seq: u64,
    age: Age,
    /// Used since the last sweep.
    hot: Cell<bool>,
}

impl<V> Slot<V> {
    pub(crate) fn clean(value: Option<V>) -> Self {
        Self { value, seq: 0, age: Age::Clean, hot: Cell::new(true) }
    }

    /// As the record at `seq` sets it.
    pub(crate) fn dirty(value: Option<V>, seq: u64) -> Self {
        Self { value, seq, age: Age::Dirty, hot: Cell::new(true) }
    }

    /// Its value, without a use of it.
    pub(crate) const fn value(&self) -> Option<&V> {
        self.value.as_ref()
    }

    /// Changes the row; true if it was not dirty before.
    pub(crate) fn set(&mut self, value: Option<V>, seq: u64) -> bool {
        let news = self.age != Age::Dirty;
        *self = Self::dirty(value, seq);
        news
    }

    pub(crate) fn freeze(&mut self) {
        self.age = Age::Frozen;
    }

    /// The checkpoint is written. True if the row may leave memory at once: it does not exist.
    pub(crate) fn thaw(&mut self) -> bool {
        if self.age == Age::Frozen {
            self.age = Age::Clean;
            return self.value.is_none();
        }
        false
    }

    /// A sweep passes: true if the row may leave memory.
    pub(crate) fn cold(&self) -> bool {
        !self.hot.replace(false) && self.age == Age::Clean
    }

    pub(crate) fn see(&self, seen: &Cell<u64>) -> Option<&V> {
        self.hot.set(true);
        seen.set(seen.get().max(self.seq));
        self.value.as_ref()
    }
}

/// Rows of one kind by key.
#[derive(Debug, Clone)]
pub struct Cached<K, V> {
    rows: IdMap<K, Slot<V>>,
    dirty: Vec<K>,
    frozen: Vec<K>,
}

impl<K, V> Default for Cached<K, V> {
    fn default() -> Self {
        Self { rows: IdMap::default(), dirty: Vec::new(), frozen: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash, V> Cached<K, V> {
    /// The row: `None` if memory does not know, `Some(None)` if it does not exist. Notes in `seen`
    /// the log position of its last change.
    pub fn get(&self, key: K, seen: &Cell<u64>) -> Option<Option<&V>> {
        self.rows.get(&key).map(|slot| slot.see(seen))
    }

    /// The rows that memory has.
    pub fn in_memory(&self) -> impl Iterator<Item = (K, &V)> {
        self.rows.iter().filter_map(|(key, slot)| slot.value.as_ref().map(|value| (*key, value)))
    }

    /// Sets or removes a row by the record at `seq`.
    pub fn set(&mut self, key: K, value: Option<V>, seq: u64) {
        let news = match self.rows.get_mut(&key) {
            Some(slot) => slot.set(value, seq),
            None => {
                self.rows.insert(key, Slot::dirty(value, seq));
                true
            }
        };
        if news {
            self.dirty.push(key);
        }
    }

    /// Changes a row in place by the record at `seq`, if memory has it.
    pub fn modify(&mut self, key: K, seq: u64, change: impl FnOnce(&mut V)) -> bool {
        let Some(slot) = self.rows.get_mut(&key) else { return false };
        let Some(value) = slot.value.as_mut() else { return false };
        change(value);
        slot.seq = seq;
        slot.hot.set(true);
        if slot.age != Age::Dirty {
            slot.age = Age::Dirty;
            self.dirty.push(key);
        }
        true
    }

    /// Takes in a row as the snapshot has it, unless memory knows better.
    pub fn load(&mut self, key: K, value: Option<V>) {
        self.rows.entry(key).or_insert_with(|| Slot::clean(value));
    }

    /// Hands every changed row to `write`, as part of the checkpoint that begins now.
    pub fn freeze(&mut self, mut write: impl FnMut(K, Option<&V>)) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.dirty);
        for &key in &self.frozen {
            let slot = self.rows.get_mut(&key).expect("a dirty row is in memory");
            slot.freeze();
            write(key, slot.value.as_ref());
        }
    }

    /// The checkpoint is written.
    pub fn thaw(&mut self) {
        for key in std::mem::take(&mut self.frozen) {
            if self.rows.get_mut(&key).is_some_and(Slot::thaw) {
                self.rows.remove(&key);
            }
        }
    }

    /// Lets go of clean rows that nobody used since the last sweep, if there are more than `max`.
    pub fn sweep(&mut self, max: usize) {
        if self.rows.len() > max {
            self.rows.retain(|_, slot| !slot.cold());
        }
        // Also when others have made room before: a table does not become smaller by itself.
        if self.rows.capacity() > SPARE_MAX * self.rows.len().max(max) {
            self.rows.shrink_to(max);
        }
    }

    /// Rows in memory.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No row is in memory.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows that differ from the snapshot.
    pub fn dirty_len(&self) -> usize {
        self.dirty.len()
    }
}

/// A name's place in its directory's order, borrowed or owned.
trait Position {
    fn position(&self) -> (u64, &[u8]);
}

impl Position for (u64, Name) {
    fn position(&self) -> (u64, &[u8]) {
        (self.0, self.1.as_bytes())
    }
}

impl Position for (u64, &[u8]) {
    fn position(&self) -> (u64, &[u8]) {
        *self
    }
}

impl<'a> Borrow<dyn Position + 'a> for (u64, Name) {
    fn borrow(&self) -> &(dyn Position + 'a) {
        self
    }
}

impl PartialEq for dyn Position + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}
impl Eq for dyn Position + '_ {}
impl PartialOrd for dyn Position + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for dyn Position + '_ {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position().cmp(&other.position())
    }
}

/// Names of one directory in the order of their cookies.
#[derive(Debug, Clone)]
pub struct Names {
    rows: BTreeMap<(u64, Name), Slot<Entry>>,
    dirty: Vec<(u64, Name)>,
    frozen: Vec<(u64, Name)>,
    /// Of the cookies from the first to below the second, every name is in memory.
    known: (u64, u64),
    hot: Cell<bool>,
}

impl Names {
    /// Of a directory that is made now: all its names are known.
    pub fn of_new() -> Self {
        Self { known: (0, u64::MAX), ..Self::unknown() }
    }

    /// Of a directory that the snapshot may know more of.
    pub fn unknown() -> Self {
        Self {
            rows: BTreeMap::new(),
            dirty: Vec::new(),
            frozen: Vec::new(),
            known: (0, 0),
            hot: Cell::new(true),
        }
    }

    /// True if every name with this cookie is in memory.
    pub const fn knows(&self, cookie: u64) -> bool {
        self.known.0 <= cookie && cookie < self.known.1
    }

    /// The first cookie above those of which every name is in memory.
    pub const fn known_to(&self) -> u64 {
        self.known.1
    }

    /// The row: `None` if memory does not know.
    pub fn get(&self, cookie: u64, name: &[u8], seen: &Cell<u64>) -> Option<Option<&Entry>> {
        self.hot.set(true);
        match self.rows.get(&(cookie, name) as &dyn Position) {
            Some(slot) => Some(slot.see(seen)),
            None if self.knows(cookie) => Some(None),
            None => None,
        }
    }

    /// Sets or removes a name by the record at `seq`.
    pub fn set(&mut self, cookie: u64, name: &Name, value: Option<Entry>, seq: u64) {
        let news = match self.rows.get_mut(&(cookie, name.as_bytes()) as &dyn Position) {
            Some(slot) => slot.set(value, seq),
            None => {
                let slot = Slot { value, seq, age: Age::Dirty, hot: Cell::new(true) };
                self.rows.insert((cookie, name.clone()), slot);
                true
            }
        };
        if news {
            self.dirty.push((cookie, name.clone()));
        }
    }

    /// Takes in a name as the snapshot has it, unless memory knows better.
    pub fn load(&mut self, cookie: u64, name: Name, value: Option<Entry>) {
        self.rows.entry((cookie, name)).or_insert_with(|| Slot::clean(value));
    }

    /// A page was loaded: every name from cookie `from` to below `to` is in memory now. Extends
    /// what was known before where the two touch.
    pub fn loaded(&mut self, from: u64, to: u64) {
        self.hot.set(true);
        self.known = if from <= self.known.1 && self.known.0 <= to {
            (from.min(self.known.0), to.max(self.known.1))
        } else {
            (from, to)
        };
    }

    /// Names above cookie `after` in order, as far as all are in memory, with whether the list
    /// ends there because the directory does. `None` if the next one may not be in memory.
    pub fn after<'a>(
        &'a self,
        after: u64,
        seen: &'a Cell<u64>,
    ) -> Option<(impl Iterator<Item = (u64, &'a Name, &'a Entry)>, bool)> {
        let from = after.saturating_add(1);
        // What is known may begin behind `from`: a listing that went on in the middle brought it.
        let to_the_end = self.known.0 <= from && self.known.1 == u64::MAX;
        if !self.knows(from) && !to_the_end {
            return None;
        }
        self.hot.set(true);
        let to = self.known.1;
        let rows = self
            .rows
            .range::<dyn Position, _>((Bound::Included(&(from, &[][..]) as &dyn Position), Bound::Unbounded))
            .take_while(move |((cookie, _), _)| *cookie < to)
            .filter_map(|((cookie, name), slot)| slot.see(seen).map(|entry| (*cookie, name, entry)));
        Some((rows, to == u64::MAX))
    }

    /// See [`Cached::freeze`].
    pub fn freeze(&mut self, mut write: impl FnMut(u64, &Name, Option<&Entry>)) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.dirty);
        for key in &self.frozen {
            let slot = self.rows.get_mut(key).expect("a dirty row is in memory");
            slot.freeze();
            write(key.0, &key.1, slot.value.as_ref());
        }
    }

    /// See [`Cached::thaw`].
    pub fn thaw(&mut self) {
        for key in std::mem::take(&mut self.frozen) {
            if self.rows.get_mut(&key).is_some_and(Slot::thaw) {
                self.rows.remove(&key);
            }
        }
    }

    /// A sweep passes: lets go of what is clean and unused; true if nothing is left. A directory that
    /// was used itself stays as it is, up to `whole_max` names.
    pub fn sweep(&mut self, whole_max: usize) -> bool {
        if !self.hot.replace(false) || self.rows.len() > whole_max {
            let before = self.rows.len();
            self.rows.retain(|_, slot| !slot.cold());
            if self.rows.len() != before || self.rows.is_empty() {
                self.known = (0, 0);
            }
        }
        self.rows.is_empty() && self.known == (0, 0)
    }

    /// Names in memory.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No name is in memory.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Names that differ from the snapshot.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::{Ino, IslandId};
    use atoll_posix::Kind;

    fn entry() -> Entry {
        Entry { ino: Ino(20), kind: Kind::Regular, home: IslandId(0), stub: None }
    }

    #[test]
    fn a_listing_that_went_on_in_the_middle_does_not_hide_what_comes_before() {
        let mut names = Names::unknown();
        let seen = Cell::new(0);
        names.load(700, Name::new(b"last").unwrap(), Some(entry()));
        names.loaded(501, u64::MAX);
        assert_eq!(names.after(500, &seen).map(|(rows, eof)| (rows.count(), eof)), Some((1, true)));
        assert!(names.after(499, &seen).is_none(), "the name at 500 may be in the snapshot");
        assert!(names.after(0, &seen).is_none(), "a short list");
    }

    #[test]
    fn a_large_directory_does_not_stay_in_memory_because_it_is_used() {
        let (mut names, seen) = (Names::of_new(), Cell::new(0));
        for n in 0..100 {
            names.load(n, Name::new(format!("n{n}").as_bytes()).unwrap(), Some(entry()));
        }
        for _ in 0..3 {
            assert!(names.get(7, b"n7", &seen).is_some());
            assert!(!names.sweep(100));
        }
        assert_eq!(names.len(), 100);
        for _ in 0..3 {
            assert!(names.get(7, b"n7", &seen).is_some());
            assert!(!names.sweep(99));
        }
        assert_eq!(names.len(), 1);
        assert!(names.get(8, b"n8", &seen).is_none(), "it is in the snapshot, and not absent");
    }

    #[test]
    fn nothing_is_behind_the_last_cookie() {
        let seen = Cell::new(0);
        let mut names = Names::unknown();
        assert!(names.after(u64::MAX, &seen).is_none());
        names.loaded(u64::MAX, u64::MAX);
        assert_eq!(names.after(u64::MAX, &seen).map(|(rows, eof)| (rows.count(), eof)), Some((0, true)));
        assert!(names.after(0, &seen).is_none());
        let of_new = Names::of_new();
        assert_eq!(of_new.after(u64::MAX, &seen).map(|(rows, eof)| (rows.count(), eof)), Some((0, true)));
    }
}
