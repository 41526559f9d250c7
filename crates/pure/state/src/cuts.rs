//! Rows as they were at a cut, for listings of a whole tree at one moment. If a row changes after the cut,
//! its old value is kept here. A row that has not changed since is read from memory or the snapshot, so
//! checkpoints and sweeps need not know of cuts.
//!
//! Invariant: for each cut, every row that has changed since is here, as of the cut.

use atoll_core::map::IdMap;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use atoll_core::{Ino, Name, SessionId};
use atoll_proto::{CutLost, Dir, Entry, Inode, RowChange};

use crate::load::RowLoad;
use crate::state::{NotInMemory, State};

/// Cuts that are kept at a time.
pub const CUTS_MAX: usize = 4;
/// Rows that all cuts of an island keep together: some tens of megabytes.
pub const CUT_ROWS_MAX: usize = 100_000;

/// A cut: the client that made it, and its number there.
pub type CutId = (SessionId, u64);

/// What a row was; none if memory did not know it when it changed. Of what exists at a cut it does: nothing
/// is decided about a name or file that was not read.
type Was<V> = Option<Option<V>>;
/// Names of one directory, in the order of their cookies.
type NamesWere = BTreeMap<(u64, Name), Was<Entry>>;

/// Why a row as of a cut cannot be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CutRowError {
    /// It is not in memory.
    Miss(NotInMemory),
    /// The cut is gone.
    Lost(CutLost),
}

impl From<NotInMemory> for CutRowError {
    fn from(miss: NotInMemory) -> Self {
        Self::Miss(miss)
    }
}

/// Names as of a cut, in the order of their cookies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesAt {
    /// They.
    pub names: Vec<(u64, Name, Entry)>,
    /// More come after this cookie.
    pub next: Option<u64>,
}

/// What has changed since one cut.
#[derive(Debug, Clone, Default)]
struct Cut {
    inodes: IdMap<Ino, Was<Inode>>,
    dirs: IdMap<Ino, Was<Dir>>,
    names: IdMap<Ino, NamesWere>,
    rows: usize,
}

/// All cuts of an island.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cuts {
    /// None if more has changed since than may be kept.
    cuts: BTreeMap<CutId, Option<Cut>>,
    rows: usize,
}

impl Cuts {
    pub(crate) fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    fn get(&self, id: CutId) -> Result<&Cut, CutRowError> {
        match self.cuts.get(&id) {
            Some(Some(cut)) => Ok(cut),
            Some(None) => Err(CutRowError::Lost(CutLost::TooMuchChanged)),
            None => Err(CutRowError::Lost(CutLost::Unknown)),
        }
    }

    /// A row changes: every cut that has not kept it keeps it as it `was`.
    fn keep<V: Clone>(&mut self, was: Was<&V>, mut put: impl FnMut(&mut Cut, Was<V>) -> bool) {
        for cut in self.cuts.values_mut() {
            let Some(kept) = cut else { continue };
            if put(kept, was.map(|row| row.cloned())) {
                kept.rows += 1;
                self.rows += 1;
            }
            if self.rows > CUT_ROWS_MAX {
                // This one goes, and the others may stay.
                self.rows -= kept.rows;
                *cut = None;
            }
        }
    }
}

/// Puts what was there, unless something is known already. True if it was put.
fn put_once<K: Eq + std::hash::Hash, V>(rows: &mut IdMap<K, V>, key: K, was: V) -> bool {
    match rows.entry(key) {
        std::collections::hash_map::Entry::Occupied(_) => false,
        std::collections::hash_map::Entry::Vacant(vacant) => {
            vacant.insert(was);
            true
        }
    }
}

impl State {
    /// From here on everything is kept as it is now, until [`State::end_cut`]. False if there are as many
    /// cuts as there may be.
    pub fn begin_cut(&mut self, id: CutId) -> bool {
        if self.cuts.cuts.len() >= CUTS_MAX {
            return false;
        }
        self.cuts.cuts.insert(id, Some(Cut::default()));
        true
    }

    /// What was kept for a cut goes.
    pub fn end_cut(&mut self, id: CutId) {
        if let Some(Some(cut)) = self.cuts.cuts.remove(&id) {
            self.cuts.rows -= cut.rows;
        }
    }

    /// Whether this cut was made and not ended.
    pub fn has_cut(&self, id: CutId) -> bool {
        self.cuts.cuts.contains_key(&id)
    }

    /// Rows that are kept for all cuts.
    pub const fn cut_rows(&self) -> usize {
        self.cuts.rows
    }

    /// Keeps what `change` is about to change.
    pub(crate) fn keep_for_cuts(&mut self, change: &RowChange) {
        let unseen = Cell::new(0);
        match change {
            RowChange::Inode { ino, .. } => {
                let was = self.inodes.get(*ino, &unseen);
                self.cuts.keep(was, |cut, was| put_once(&mut cut.inodes, *ino, was));
            }
            RowChange::Dir { ino, .. } => {
                let was = self.dirs.get(*ino, &unseen);
                self.cuts.keep(was, |cut, was| put_once(&mut cut.dirs, *ino, was));
            }
            RowChange::Entry { dir, name, .. } => {
                let cookie = self.cookie(name.as_bytes());
                let was = self.names.get(dir).and_then(|n| n.get(cookie, name.as_bytes(), &unseen));
                self.cuts.keep(was, |cut, was| {
                    let names = cut.names.entry(*dir).or_default();
                    let news = !names.contains_key(&(cookie, name.clone()));
                    if news {
                        names.insert((cookie, name.clone()), was);
                    }
                    news
                });
            }
            _ => {}
        }
    }

    /// A file as of a cut.
    pub fn inode_at(&self, id: CutId, ino: Ino) -> Result<Option<&Inode>, CutRowError> {
        match self.cuts.get(id)?.inodes.get(&ino) {
            Some(Some(was)) => Ok(was.as_ref()),
            Some(None) => Err(CutRowError::Lost(CutLost::Unseen)),
            None => Ok(self.inode(ino)?),
        }
    }

    /// A directory as of a cut.
    pub fn dir_at(&self, id: CutId, ino: Ino) -> Result<Option<&Dir>, CutRowError> {
        match self.cuts.get(id)?.dirs.get(&ino) {
            Some(Some(was)) => Ok(was.as_ref()),
            Some(None) => Err(CutRowError::Lost(CutLost::Unseen)),
            None => Ok(self.dir(ino)?),
        }
    }

    /// A name as of a cut.
    pub fn entry_at(&self, id: CutId, dir: Ino, name: &Name) -> Result<Option<&Entry>, CutRowError> {
        let cookie = self.cookie(name.as_bytes());
        let names = self.cuts.get(id)?.names.get(&dir);
        match names.and_then(|names| names.get(&(cookie, name.clone()))) {
            Some(Some(was)) => Ok(was.as_ref()),
            Some(None) => Err(CutRowError::Lost(CutLost::Unseen)),
            None => Ok(self.entry(dir, name)?),
        }
    }

    /// About `max` names of a directory after the cookie `after`, as of a cut. Names that share a cookie
    /// are told together.
    pub fn names_at(&self, id: CutId, dir: Ino, after: u64, max: usize) -> Result<NamesAt, CutRowError> {
        let nothing = NamesWere::new();
        let were = self.cuts.get(id)?.names.get(&dir).unwrap_or(&nothing);
        let (rows, whole) = self.entries_after(dir, after)?;
        let mut names: Vec<(u64, Name, Entry)> = Vec::new();
        // Up to this cookie everything is known.
        let mut upto = if whole { u64::MAX } else { self.known_to(dir).saturating_sub(1) };
        for (cookie, name, entry) in rows {
            if let Some((last, ..)) = names.last().filter(|(last, ..)| names.len() >= max && *last != cookie)
            {
                upto = *last;
                break;
            }
            if !were.contains_key(&(cookie, name.clone())) {
                names.push((cookie, name.clone(), entry.clone()));
            }
        }
        let first = Name::new(b"\x01").expect("a name");
        let from = Bound::Included((after.saturating_add(1), first));
        for ((cookie, name), was) in were.range((from, Bound::Unbounded)).take_while(|((c, _), _)| *c <= upto)
        {
            match was {
                Some(Some(entry)) => names.push((*cookie, name.clone(), entry.clone())),
                Some(None) => {}
                None => return Err(CutRowError::Lost(CutLost::Unseen)),
            }
        }
        names.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        if let Some(last) = names.get(max.max(1) - 1).map(|(cookie, ..)| *cookie)
            && let Some(end) = names.iter().position(|(cookie, ..)| *cookie > last)
        {
            names.truncate(end);
            upto = last;
        }
        if !whole && upto <= after {
            return Err(CutRowError::Miss(NotInMemory(RowLoad::Names { dir, from: self.known_to(dir) })));
        }
        Ok(NamesAt { names, next: (upto != u64::MAX).then_some(upto) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadedRows;
    use atoll_core::{IslandId, Stamp};
    use atoll_posix::Kind;
    use atoll_proto::{DirPlace, OwnedDir, PlaceVersion, StaticAttrs};

    const CUT: CutId = (SessionId(1), 1);
    const DIR: Ino = Ino(77);

    fn name(n: u32) -> Name {
        Name::new(format!("n{n}").as_bytes()).unwrap()
    }

    fn entry(n: u32) -> Entry {
        Entry { ino: Ino(1000 + u64::from(n)), kind: Kind::Regular, home: IslandId(0), stub: None }
    }

    fn set(state: &mut State, n: u32, row: Option<Entry>) {
        let seq = state.seq() + 1;
        state.apply(seq, &RowChange::Entry { dir: DIR, name: name(n), row });
    }

    /// A directory with the names 0 to 40, all in memory.
    fn state() -> State {
        let mut state = State::new(7);
        let version = Stamp::default();
        let owned = OwnedDir::empty(atoll_core::Time::default());
        let row = Dir {
            key: atoll_core::Key(0),
            birth_bytes: 0,
            place: DirPlace { version: PlaceVersion::default(), parent: DIR, name: None },
            fixed: StaticAttrs { version, mode: 0o755, uid: 0, gid: 0 },
            has_xattrs: false,
            has_acl: false,
            children: 0,
            foreign_names: 0,
            owned: Some(owned),
            beside: None,
        };
        state.apply(1, &RowChange::Dir { ino: DIR, row: Some(Box::new(row)) });
        (0..40).for_each(|n| set(&mut state, n, Some(entry(n))));
        state
    }

    fn listed(state: &State, page: usize) -> Vec<(Name, Ino)> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = state.names_at(CUT, DIR, after, page).unwrap();
            all.extend(page.names.into_iter().map(|(_, name, entry)| (name, entry.ino)));
            match page.next {
                Some(next) => after = next,
                None => return all,
            }
        }
    }

    #[test]
    fn what_changes_after_a_cut_is_listed_as_it_was() {
        let mut state = state();
        assert!(state.begin_cut(CUT));
        let before = listed(&state, 1000);
        assert_eq!(before.len(), 40);
        (0..20).for_each(|n| set(&mut state, n, None));
        (40..80).for_each(|n| set(&mut state, n, Some(entry(n))));
        (20..30).for_each(|n| set(&mut state, n, Some(entry(n + 500))));
        set(&mut state, 3, Some(entry(999)));
        state.apply(state.seq() + 1, &RowChange::Dir { ino: DIR, row: None });
        for page in [1, 3, 7, 1000] {
            assert_eq!(listed(&state, page), before);
        }
        assert_eq!(state.entry_at(CUT, DIR, &name(3)).unwrap(), Some(&entry(3)));
        assert_eq!(state.entry_at(CUT, DIR, &name(50)).unwrap(), None);
        assert!(state.dir_at(CUT, DIR).unwrap().is_some(), "it was there");
        assert!(state.cut_rows() > 60);
        state.end_cut(CUT);
        assert_eq!(state.cut_rows(), 0);
        assert_eq!(state.names_at(CUT, DIR, 0, 9), Err(CutRowError::Lost(CutLost::Unknown)));
    }

    #[test]
    fn a_checkpoint_and_a_sweep_take_nothing_from_a_cut() {
        let mut state = state();
        assert!(state.begin_cut(CUT));
        let before = listed(&state, 5);
        set(&mut state, 1, None);
        set(&mut state, 2, Some(entry(200)));
        set(&mut state, 41, Some(entry(41)));
        let rows = state.freeze().rows;
        state.thaw();
        (0..3).for_each(|_| state.sweep(0));
        let (mut all, mut after) = (Vec::new(), 0);
        let mut misses = 0;
        loop {
            match state.names_at(CUT, DIR, after, 5) {
                Ok(page) => {
                    all.extend(page.names.into_iter().map(|(_, name, entry)| (name, entry.ino)));
                    let Some(next) = page.next else { break };
                    after = next;
                }
                Err(CutRowError::Miss(NotInMemory(RowLoad::Names { dir, from }))) => {
                    misses += 1;
                    let mut found: Vec<(u64, Name, Vec<u8>)> = rows
                        .iter()
                        .filter_map(|(key, row)| match crate::RowKey::from_bytes(key) {
                            Some(crate::RowKey::Entry(_, cookie, name)) if cookie >= from => {
                                Some((cookie, name, row.clone()?))
                            }
                            _ => None,
                        })
                        .collect();
                    found.sort();
                    let to = found.get(6).map_or(u64::MAX, |(cookie, ..)| *cookie);
                    found.truncate(6);
                    state.load(RowLoad::Names { dir, from }, LoadedRows::Names { names: found, to }).unwrap();
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(misses > 3, "memory had let go of them");
        assert_eq!(all, before);
    }

    #[test]
    fn a_cut_ends_when_more_changes_than_may_be_kept() {
        let mut state = state();
        assert!(state.begin_cut(CUT));
        for n in 0..CUT_ROWS_MAX as u32 {
            set(&mut state, n + 100, Some(entry(n)));
        }
        assert_eq!(listed(&state, 1000).len(), 40);
        set(&mut state, 0, None);
        assert_eq!(state.names_at(CUT, DIR, 0, 9), Err(CutRowError::Lost(CutLost::TooMuchChanged)));
        assert_eq!(state.cut_rows(), 0);
    }

    #[test]
    fn a_row_that_memory_did_not_know_is_never_taken_for_one_that_was_not_there() {
        let mut state = State::new(7);
        assert!(state.begin_cut(CUT));
        set(&mut state, 1, None);
        assert_eq!(state.entry_at(CUT, DIR, &name(1)), Err(CutRowError::Lost(CutLost::Unseen)));
        assert!((2..5).all(|n| state.begin_cut((SessionId(1), n))) && !state.begin_cut((SessionId(1), 9)));
    }
}
