//! A site whose island is idle and which takes what others have made; and the same objects as plain states, for comparison.

#![allow(dead_code, reason = "each test uses a part")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{Context, DirHead, DotFun, EntryKey, EntryWord, FileId, FileState, Writer};
use atoll_core::{Decode, Encode, Ino, IslandId, Name, Table, Time};
use atoll_posix::Kind;
use atoll_proto::{Record, RowChange, Xattrs};
use atoll_shown::{DirGroup, Life, Objects, ShownObject, listing, places};
use atoll_spine::Spine;
use atoll_state::{NotInMemory, RowLoad, State};
use atoll_wide::author::BundleChange;
use atoll_wide::foreign::{ForeignDecision, Here, Waits, decide};
use atoll_wide::rows::{
    BEHIND, COPIES, CopiesRow, DIRS, DirBeside, DirRow, FEED, FILES, FeedPlace, FeedRow, FileBeside, FileRow,
    LIVES, MOVES, MoveRow, NEAR, NearRow, PEERS, PIECES, SETTLED, SettledRow, TRASH, TrashRow, UNCUT,
    WRITERS, near_key, root_head, trash_of,
};
use bytes::Bytes;

use crate::site::{Memory, Site, loaded, opened, site_name};

/// Numbers that are given here begin with this, above those of any island.
const FIRST: u64 = 1 << 30;
/// Attempts of one decision: each loads what the one before needed.
const ATTEMPTS_MAX: usize = 10_000;

/// What is at a path: which object, and what users see of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) id: FileId,
    pub(crate) kind: Kind,
    /// Mode, owner, group.
    pub(crate) attrs: (u32, u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// All paths.
pub(crate) type Tree = BTreeMap<String, At>;

/// See the module.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) state: State,
    /// The same rows, for the rules of islands.
    checked: atoll_check::Rows,
    pub(crate) sides: BTreeMap<(u8, u128), Bytes>,
    snapshot: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Rows leave memory behind each record.
    is_swept: bool,
    pub(crate) spine: Spine,
    next: u64,
    pub(crate) loads: u64,
    pub(crate) refused: usize,
}

impl Receiver {
    /// A site with nothing but the root.
    pub(crate) fn new(is_swept: bool) -> Self {
        let author = opened(Writer(1), []).expect("no rows");
        let mut site = Site::new(Memory::Whole, &[], false, Some(Box::new(author)));
        let mut receiver = Self {
            state: State::new(1),
            checked: atoll_check::Rows::new(IslandId(0)),
            sides: BTreeMap::new(),
            snapshot: BTreeMap::new(),
            is_swept,
            spine: Spine::default(),
            next: FIRST,
            loads: 0,
            refused: 0,
        };
        for (_, record) in site.take_records() {
            receiver.apply(&record, &[]);
        }
        let limit = RowChange::MintLimit { limit: FIRST << 10 };
        receiver.apply(&Record { changes: vec![limit], bodies: Vec::new() }, &[]);
        receiver
    }

    /// What an island removes with what goes. No file has bytes here.
    fn remove_rest(&mut self, record: &mut Record) {
        let gone = record.changes.iter().filter_map(|change| match change {
            RowChange::Inode { ino, row: None } | RowChange::Dir { ino, row: None } => Some(*ino),
            _ => None,
        });
        let gone: Vec<Ino> = gone.filter(|ino| self.checked.xattrs.contains_key(ino)).collect();
        record.changes.extend(gone.into_iter().map(|ino| RowChange::Xattrs { ino, row: None }));
    }

    /// A site of which all records are still to come.
    pub(crate) fn shadow() -> Self {
        Self {
            state: State::new(1),
            checked: atoll_check::Rows::new(IslandId(0)),
            sides: BTreeMap::new(),
            snapshot: BTreeMap::new(),
            is_swept: false,
            spine: Spine::default(),
            next: FIRST,
            loads: 0,
            refused: 0,
        }
    }

    /// Follows a site.
    pub(crate) fn follow(&mut self, record: &Record, spine: &Spine) {
        let files = record.changes.iter().filter_map(|change| match change {
            RowChange::Inode { ino, row: Some(_) } => Some(*ino),
            _ => None,
        });
        let new: Vec<Ino> = files.filter(|ino| !self.checked.inodes.contains_key(ino)).collect();
        self.apply(record, &new);
        self.spine = spine.clone();
    }

    pub(crate) fn apply(&mut self, record: &Record, files: &[Ino]) {
        let seq = self.state.seq() + 1;
        files.iter().for_each(|ino| self.state.new_file(*ino));
        for change in &record.changes {
            while let Some(load) = self.state.needs(change) {
                self.load(load);
            }
            self.state.apply(seq, change);
            self.checked.apply(1, change);
            if let RowChange::Side { table, id, row } = change {
                match row {
                    Some(row) => drop(self.sides.insert((*table, *id), row.clone())),
                    None => assert!(self.sides.remove(&(*table, *id)).is_some(), "{change:?} was not there"),
                }
            }
        }
        if self.is_swept {
            for (key, row) in self.state.freeze().rows {
                match row {
                    Some(row) => drop(self.snapshot.insert(key, row)),
                    None => drop(self.snapshot.remove(&key)),
                }
            }
            self.state.thaw();
            self.state.sweep(0);
            self.state.sweep(0);
        }
    }

    pub(crate) fn load(&mut self, load: RowLoad) {
        self.loads += 1;
        let loaded = loaded(&self.snapshot, &load);
        self.state.load(load, loaded).expect("it was written by this code");
    }

    /// Takes changes in. What is to be asked for.
    pub(crate) fn take(&mut self, changes: &[BundleChange]) -> Vec<FeedRow> {
        self.take_with(changes, |_, decision| assert!(!decision.is_busy)).wants
    }

    /// As [`Self::take`]. `add` may add rows to the record, which gets this position.
    pub(crate) fn take_with(
        &mut self,
        changes: &[BundleChange],
        mut add: impl FnMut(u64, &mut ForeignDecision),
    ) -> Took {
        let changes: Vec<BundleChange> = changes
            .iter()
            .map(|change| BundleChange::from_slice(&change.to_vec()).expect("it is read again"))
            .collect();
        for _ in 0..ATTEMPTS_MAX {
            let position = self.state.seq() + 1;
            let here = Here {
                state: &self.state,
                spine: &self.spine,
                site: &site_name,
                island: IslandId(0),
                position,
                now: Time::from_nanos(2_000_000_000_000 + self.state.seq() * 1_000),
            };
            let next = &mut self.next;
            let mut mint = || {
                *next += 1;
                Some(Ino(*next))
            };
            match decide(here, &changes, &mut mint) {
                Ok(mut decision) => {
                    add(position, &mut decision);
                    let ForeignDecision { mut record, changed, files, spine, wants, refused, .. } = decision;
                    self.refused += refused;
                    spine.tell(&mut self.spine);
                    self.remove_rest(&mut record);
                    if !record.changes.is_empty() {
                        let bytes = record.changes.to_vec();
                        assert_eq!(Vec::<RowChange>::from_slice(&bytes).as_ref(), Ok(&record.changes));
                        self.apply(&record, &files);
                    }
                    return Took { position, changed, wants: wants.into_keys().collect() };
                }
                Err(Waits::Rows(loads)) => {
                    assert!(!loads.is_empty());
                    loads.into_iter().for_each(|load| self.load(load));
                }
                Err(waits) => panic!("{waits:?}"),
            }
        }
        panic!("no end of loads");
    }

    /// Takes changes in, and the states that are asked for because of them.
    pub(crate) fn take_all(
        &mut self,
        changes: &[BundleChange],
        state: &dyn Fn(FeedRow) -> BundleChange,
    ) -> u64 {
        let mut wants = self.take(changes);
        let mut asked = 0;
        while let Some(want) = wants.pop() {
            asked += 1;
            assert!(asked < 10_000, "no end of questions: {want:?}");
            let more = self.take(&[state(want)]);
            if !more.is_empty() {
                // What it needs comes first.
                wants.insert(0, want);
                wants.extend(more.into_iter().filter(|more| *more != want));
            }
        }
        asked
    }

    fn row<T>(&mut self, read: impl Fn(&State) -> Result<T, NotInMemory>) -> T {
        loop {
            match read(&self.state) {
                Ok(row) => return row,
                Err(NotInMemory(load)) => self.load(load),
            }
        }
    }

    /// The rows hold together: by the rules of islands, and those of this machine.
    pub(crate) fn check(&mut self) {
        let volume = atoll_check::Volume { table: Table::new(1), seed: 1 };
        let findings = atoll_check::check_at_rest(&volume, std::slice::from_ref(&self.checked));
        assert!(findings.is_empty(), "{findings:#?}");
        self.spine.check();
        let plain = self.plain();
        let mut feed = BTreeMap::new();
        let mut moves = BTreeSet::new();
        for ((table, id), row) in self.sides.clone() {
            match table {
                FEED => match FeedRow::from_slice(&row).unwrap() {
                    FeedRow::Move { stamp } => assert!(moves.insert(stamp), "{stamp:?} is told twice"),
                    object => drop(feed.insert(id, object)),
                },
                NEAR => {
                    let NearRow::Near { ids } = NearRow::from_slice(&row).unwrap();
                    assert!(!ids.is_empty() && ids.is_sorted_by(|a, b| a < b), "{ids:?}");
                    for near in ids {
                        let names = plain.names_of(near);
                        let is_near = names.iter().any(|(dir, name)| near_key(*dir, name) == id);
                        assert!(is_near, "{near:?} is near a name that it has not: {names:?}");
                    }
                }
                COPIES => {
                    let CopiesRow::Copies { ids } = CopiesRow::from_slice(&row).unwrap();
                    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
                    let of = |copy| plain.files.get(copy).and_then(|state| state.birth.copy_of);
                    assert!(ids.iter().all(|copy| of(copy) == Some(FileId(id))), "{ids:?} of {id:x}");
                }
                TRASH => {
                    let TrashRow::Rests { rested } = TrashRow::from_slice(&row).unwrap();
                    let body = &self.checked.inodes[&trash_of(id).1];
                    assert_eq!((body.attr.nlink, body.is_absent), (0, false), "{rested:?}");
                    assert!(body.beside.is_some() && !rested.path.is_empty(), "{rested:?}");
                }
                SETTLED => {
                    let SettledRow::Settled { settled } = SettledRow::from_slice(&row).unwrap();
                    assert!(!settled.path.is_empty(), "{settled:?}");
                }
                BEHIND | DIRS | UNCUT | FILES | LIVES | MOVES | PEERS | PIECES | WRITERS => {}
                other => panic!("table {other}"),
            }
        }
        let expected: BTreeMap<u128, FeedRow> =
            plain.at.iter().map(|(object, at)| (at.key(), *object)).collect();
        assert_eq!(feed, expected, "the feed");
        assert!(moves.into_iter().eq(self.spine.records().map(|record| record.stamp())), "moves in the feed");
        self.check_near(&plain);
    }

    /// What has a name and is not dead is found at that name: by its entry, or by the row of what is near.
    fn check_near(&mut self, plain: &Plain) {
        for id in plain.files.keys().chain(plain.dirs.keys()).copied().collect::<Vec<_>>() {
            for (dir, name) in plain.names_of(id) {
                let number = plain.numbers.get(&dir).copied();
                let entry = number
                    .and_then(|number| self.row(|rows| rows.entry(number, &name).map(Option::<&_>::cloned)));
                let by_entry = entry.is_some_and(|entry| plain.beside.get(&entry.ino) == Some(&id));
                let row = self.sides.get(&(NEAR, near_key(dir, &name)));
                let by_row = row.is_some_and(|row| {
                    let NearRow::Near { ids } = NearRow::from_slice(row).unwrap();
                    ids.contains(&id)
                });
                assert!(by_entry ^ by_row, "{id:?} at {name} in {dir:?}: entry {by_entry}, row {by_row}");
            }
        }
    }

    /// The tree that users see.
    pub(crate) fn tree(&mut self) -> Tree {
        let mut tree = Tree::new();
        let mut dirs = vec![(Ino::ROOT, String::new())];
        while let Some((dir, path)) = dirs.pop() {
            let names: Vec<_> = self.checked.names_of(dir).to_vec();
            for (_, name, entry) in names {
                let path = format!("{path}/{name}");
                let ino = entry.ino;
                let at = if entry.kind == Kind::Directory {
                    let row = self.checked.dirs[&ino].clone();
                    let fixed = row.fixed;
                    assert_eq!(entry.stub.as_ref().unwrap().fixed, fixed, "the stub of {path}");
                    dirs.push((ino, path.clone()));
                    let id = DirBeside::read(&row.beside.unwrap()).unwrap().id;
                    (id, Kind::Directory, (fixed.mode, fixed.uid, fixed.gid))
                } else {
                    let row = self.checked.inodes[&ino].clone();
                    let beside = FileBeside::read(&row.beside.unwrap()).unwrap();
                    let birth = &beside.state.birth;
                    assert_eq!(
                        (row.attr.kind, row.target.unwrap_or_default()),
                        (birth.kind, birth.target.clone())
                    );
                    (beside.id, row.attr.kind, (row.attr.mode, row.attr.uid, row.attr.gid))
                };
                let xattrs = self.checked.xattrs.get(&ino).cloned().unwrap_or_default();
                let (id, kind, attrs) = at;
                assert!(tree.insert(path, At { id, kind, attrs, xattrs: plain_xattrs(&xattrs) }).is_none());
            }
        }
        tree
    }

    /// What the rows say of objects.
    pub(crate) fn plain(&mut self) -> Plain {
        let mut plain = Plain::new(&self.spine);
        let root = self.checked.dirs[&Ino::ROOT].clone();
        let head = match &root.beside {
            Some(beside) => {
                let DirBeside { head, at, .. } = DirBeside::read(beside).unwrap();
                plain.at.insert(FeedRow::Dir { id: FileId::ROOT }, at);
                head
            }
            None => root_head(root.fixed.mode, root.fixed.uid, root.fixed.gid),
        };
        plain.dirs.insert(FileId::ROOT, head);
        plain.numbers.insert(FileId::ROOT, Ino::ROOT);
        plain.beside.insert(Ino::ROOT, FileId::ROOT);
        for ((table, id), row) in &self.sides {
            let id = FileId(*id);
            match *table {
                FILES => {
                    let (state, at) = match FileRow::from_slice(row).unwrap() {
                        FileRow::Shown { ino } => {
                            let row = self.checked.inodes.get(&ino).expect("a file that is shown");
                            let beside = FileBeside::read(row.beside.as_ref().unwrap()).unwrap();
                            assert_eq!(beside.id, id);
                            plain.beside.insert(ino, id);
                            (beside.state, beside.at)
                        }
                        FileRow::Hidden { state, at, .. } => (*state, at),
                    };
                    plain.files.insert(id, state);
                    plain.at.insert(FeedRow::File { id }, at);
                }
                DIRS => {
                    let (head, at, base) = match DirRow::from_slice(row).unwrap() {
                        DirRow::Shown { ino, base } => {
                            let row = self.checked.dirs.get(&ino).expect("a directory that is shown");
                            let beside = DirBeside::read(row.beside.as_ref().unwrap()).unwrap();
                            assert_eq!(beside.id, id);
                            plain.beside.insert(ino, id);
                            plain.numbers.insert(id, ino);
                            (beside.head, beside.at, base)
                        }
                        DirRow::Hidden { head, base, at, within } => {
                            plain.numbers.extend(within.map(|ino| (id, ino)));
                            (*head, at, base)
                        }
                    };
                    assert_eq!(self.spine.base(id), Some(&base), "the base of {id:?}");
                    plain.dirs.insert(id, head);
                    plain.at.insert(FeedRow::Dir { id }, at);
                }
                MOVES => {
                    let MoveRow::Logged { record } = MoveRow::from_slice(row).unwrap();
                    assert_eq!(self.spine.record(record.stamp()), Some(&record));
                }
                _ => {}
            }
        }
        plain.index();
        plain
    }
}

/// What became of changes.
pub(crate) struct Took {
    /// Of the record, if there is one.
    pub(crate) position: u64,
    pub(crate) changed: Vec<FeedRow>,
    /// What is to be asked for.
    pub(crate) wants: Vec<FeedRow>,
}

/// Why changes cannot be taken at a site that has all its rows in memory.
pub(crate) fn waits(state: &State, spine: &Spine, changes: &[BundleChange]) -> Waits {
    let mut state = state.clone();
    loop {
        let (island, position, now) = (IslandId(0), state.seq() + 1, Time::default());
        let here = Here { state: &state, spine, site: &site_name, island, position, now };
        let mut next = FIRST;
        let mut mint = || {
            next += 1;
            Some(Ino(next))
        };
        match decide(here, changes, &mut mint).expect_err("it is not decided") {
            // No snapshot has more.
            Waits::Rows(loads) => loads.into_iter().for_each(|load| {
                let nothing = load.nothing();
                state.load(load, nothing).expect("nothing is read");
            }),
            waits => return waits,
        }
    }
}

fn plain_xattrs(xattrs: &Xattrs) -> Vec<(Vec<u8>, Vec<u8>)> {
    xattrs.0.iter().map(|(name, value)| (name[..].to_vec(), value[..].to_vec())).collect()
}

/// Objects as plain states.
#[derive(Default)]
pub(crate) struct Plain {
    pub(crate) files: BTreeMap<FileId, FileState>,
    pub(crate) dirs: BTreeMap<FileId, DirHead>,
    pub(crate) spine: Spine,
    at: BTreeMap<FeedRow, FeedPlace>,
    /// The number under which a directory is shown.
    numbers: BTreeMap<FileId, Ino>,
    /// The object beside a row.
    beside: BTreeMap<Ino, FileId>,
    near: BTreeMap<FileId, BTreeSet<EntryKey>>,
}

impl Plain {
    /// No objects, with this spine.
    pub(crate) fn new(spine: &Spine) -> Self {
        Self { spine: spine.clone(), ..Self::default() }
    }

    /// What is near each name.
    pub(crate) fn index(&mut self) {
        let mut near: BTreeMap<FileId, BTreeSet<EntryKey>> = BTreeMap::new();
        for (id, state) in &self.files {
            for place in places(*id, state) {
                near.entry(place.dir).or_default().insert(EntryKey { name: place.name, child: *id });
            }
        }
        for id in self.dirs.keys() {
            if let Some((parent, name)) = self.place(*id) {
                near.entry(parent).or_default().insert(EntryKey { name, child: *id });
            }
        }
        self.near = near;
    }

    /// The names of what is not dead.
    fn names_of(&self, id: FileId) -> Vec<(FileId, Name)> {
        match self.files.get(&id) {
            Some(state) => places(id, state).into_iter().map(|place| (place.dir, place.name)).collect(),
            None => self.place(id).filter(|_| self.life(id) != Life::Dead).into_iter().collect(),
        }
    }

    /// What is shown of them.
    pub(crate) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut groups = vec![(DirGroup::root(), String::new())];
        while let Some((group, path)) = groups.pop() {
            for entry in listing(self, &group) {
                let path = format!("{path}/{}", entry.name);
                let (id, kind, attrs) = match entry.object {
                    ShownObject::Dir(below) => {
                        let id = below.first();
                        groups.push((below, path.clone()));
                        (id, Kind::Directory, &self.dirs[&id].attrs)
                    }
                    ShownObject::File(files) => {
                        let state = &self.files[&files[0].file];
                        (files[0].file, state.birth.kind, &state.attrs)
                    }
                    ShownObject::Away { .. } => panic!("all of it is held"),
                };
                let xattrs = attrs.xattrs.iter().map(|(name, values)| {
                    let (_, value) = values.highest().unwrap();
                    (name.as_bytes().to_vec(), value.value.as_bytes()[..].to_vec())
                });
                let xattrs = xattrs.collect();
                let attrs = (attrs.mode.value, attrs.uid.value, attrs.gid.value);
                assert!(tree.insert(path, At { id, kind, attrs, xattrs }).is_none());
            }
        }
        tree
    }

    /// The bytes of all states.
    pub(crate) fn bytes(&self) -> BTreeMap<FileId, Vec<u8>> {
        let files = self.files.iter().map(|(id, state)| (*id, state.to_vec()));
        files.chain(self.dirs.iter().map(|(id, head)| (*id, head.to_vec()))).collect()
    }
}

impl Objects for Plain {
    fn file(&self, id: FileId) -> Option<Cow<'_, FileState>> {
        self.files.get(&id).map(Cow::Borrowed)
    }

    fn dir(&self, id: FileId) -> Option<Cow<'_, DirHead>> {
        self.dirs.get(&id).map(Cow::Borrowed)
    }

    fn place(&self, dir: FileId) -> Option<(FileId, Name)> {
        let (head, place) = (self.dirs.get(&dir)?, self.spine.place(dir)?);
        let by_move = place.since > head.name.stamp;
        Some((place.parent, if by_move { place.name.clone() } else { head.name.value.clone() }))
    }

    fn entry(&self, _: FileId, _: &EntryKey) -> Option<Cow<'_, DotFun<EntryWord>>> {
        None
    }

    fn based(&self, _: FileId, _: FileId) -> Option<Cow<'_, Context>> {
        None
    }

    fn are_all_held(&self) -> bool {
        true
    }

    fn near(&self, dir: FileId, name: Option<&Name>) -> Vec<EntryKey> {
        let near = self.near.get(&dir).into_iter().flatten();
        near.filter(|key| name.is_none_or(|name| key.name == *name)).cloned().collect()
    }

    fn site(&self, writer: Writer) -> Cow<'_, str> {
        Cow::Owned(site_name(writer))
    }
}
