//! What bundles alone make of objects; what the rows of a site say of them; and their comparison with each other and with the model.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{Context, DirHead, FileId, FileState, Taken, Writer};
use atoll_core::{Decode, Encode, Ino, Name};
use atoll_island::{Beside, BesideStep, BesideView, Now};
use atoll_model::{Model, Rng};
use atoll_posix::{Attr, Kind, Op};
use atoll_proto::{EntryRef, Record, RowChange};
use atoll_spine::{Spine, SpinePlace};
use atoll_state::{NotInMemory, State};
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::contents::pieces::{PIECE_BYTES, hash, root};
use atoll_wide::peers::Window;
use atoll_wide::rows::{
    BEHIND, BehindRow, BesideRow, DIRS, DirBeside, DirRow, FEED, FILES, FeedPlace, FeedRow, FileBeside,
    FileBytes, FileRow, LIVES, LifeRow, MEMBERS, MOVES, MoveRow, PIECES, PiecesRow, UNCUT, UncutRow, WRITERS,
    WriterRow, root_head,
};
use atoll_wide::site::Site as Machine;
use atoll_wide::watch::{AttrValue, Happened};
use bytes::Bytes;

use crate::site::{Site, opened, opened_at};

/// The writer of the site.
pub(crate) const WRITER: Writer = Writer(7);
/// One operation may give several times, a nanosecond apart each.
const APART_NS: u64 = 100;

/// Two machines that see the same: one that was begun anew from rows must write what the other one writes.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) machine: Machine,
    pub(crate) again: Machine,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let machine = opened(WRITER, []).unwrap();
        Self { again: machine.clone(), machine }
    }
}

impl Beside for Pair {
    fn witness(&mut self, state: &State, now: Now, seq: u64, record: &mut Record) {
        let mut same = record.clone();
        self.machine.witness(state, now, seq, record);
        self.again.witness(state, now, seq, &mut same);
        assert_eq!(
            but_lives(record),
            but_lives(&same),
            "a machine that was begun anew writes something else"
        );
    }

    fn allows_moves(&self, state: &State, now: Now, moves: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        let is_allowed = self.machine.allows_moves(state, now, moves);
        assert_eq!(is_allowed, self.again.allows_moves(state, now, moves));
        is_allowed
    }

    fn prepare(
        &mut self,
        view: BesideView<'_>,
        op: &Op,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> BesideStep {
        let step = self.machine.prepare(view, op, mint);
        assert_eq!(format!("{step:?}"), format!("{:?}", self.again.prepare(view, op, mint)));
        step
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

/// A record without the life that begins with it: each machine has one of its own.
fn but_lives(record: &Record) -> Record {
    let is_life = |change: &&RowChange| matches!(change, RowChange::Side { table: LIVES, .. });
    let changes = record.changes.iter().filter(|change| !is_life(change)).cloned().collect();
    Record { changes, ..record.clone() }
}

/// A machine begun from the rows of a site.
pub(crate) fn reopened(site: &Site) -> Machine {
    let rows = site.sides().iter().map(|((table, id), row)| (*table, *id, row.clone()));
    opened_at(WRITER, site.state().seq(), Window::MOST, rows).expect("the site has written them")
}

// ---------------------------------------------------------------------- bundles

/// A site that only takes bundles in.
pub(crate) struct Replica {
    pub(crate) files: BTreeMap<FileId, FileState>,
    pub(crate) dirs: BTreeMap<FileId, DirHead>,
    pub(crate) spine: Spine,
    /// The last change of each object.
    pub(crate) last: BTreeMap<FeedRow, FeedPlace>,
    /// The number of the last dot.
    n: u64,
    /// The position of the last bundle.
    pub(crate) position: u64,
}

impl Replica {
    pub(crate) fn new(mode: u32) -> Self {
        let dirs = BTreeMap::from([(FileId::ROOT, root_head(mode, 0, 0))]);
        let (files, spine, last) = (BTreeMap::new(), Spine::default(), BTreeMap::new());
        Self { files, dirs, spine, last, n: 0, position: 0 }
    }

    pub(crate) fn take(&mut self, bundle: &Bundle) {
        let bytes = bundle.to_vec();
        assert_eq!(Bundle::from_slice(&bytes).as_ref(), Ok(bundle));
        assert_eq!(bytes.len(), bundle.encoded_len());
        assert!(bundle.position > self.position && !bundle.changes.is_empty(), "{bundle:?}");
        self.position = bundle.position;
        let mut changed = BTreeSet::new();
        for change in &bundle.changes {
            let (object, n) = match change {
                BundleChange::FileBorn { id, state } => {
                    assert!(self.files.insert(*id, (**state).clone()).is_none(), "{id:?} is born twice");
                    (FeedRow::File { id: *id }, born(*id, &state.context))
                }
                BundleChange::DirBorn { id, head } => {
                    assert!(self.dirs.insert(*id, (**head).clone()).is_none(), "{id:?} is born twice");
                    let (parent, name) = (head.birth.parent, head.name.value.clone());
                    self.spine.born(*id, SpinePlace { parent, name, since: head.birth.stamp });
                    (FeedRow::Dir { id: *id }, born(*id, &head.context))
                }
                BundleChange::FileChanged { id, change } => {
                    let file = self.files.get_mut(id).expect("it was born");
                    assert_eq!(file.apply(change), Taken::Applied, "{change:?}");
                    assert_eq!(change.dot.writer, WRITER);
                    (FeedRow::File { id: *id }, change.dot.n)
                }
                BundleChange::DirChanged { id, change } => {
                    let head = self.dirs.get_mut(id).expect("it was born");
                    assert_eq!(head.apply(change), Taken::Applied, "{change:?}");
                    assert_eq!(change.dot.writer, WRITER);
                    if head.is_removed() {
                        self.spine.release(*id);
                    }
                    (FeedRow::Dir { id: *id }, change.dot.n)
                }
                BundleChange::DirsMoved { record } => {
                    let moved = self.spine.receive(record.clone()).expect("it is taken");
                    assert_eq!(moved.len(), record.dirs().len(), "all of them have another place");
                    let at = FeedPlace { position: bundle.position, number: changed.len() as u64 };
                    assert_eq!(self.last.insert(FeedRow::Move { stamp: record.stamp() }, at), None);
                    continue;
                }
            };
            self.n += 1;
            assert_eq!(n, self.n, "dots are without gaps: {bundle:?}");
            assert!(changed.insert(object), "{object:?} changes twice in {bundle:?}");
            let number = changed.len() as u64 - 1;
            self.last.insert(object, FeedPlace { position: bundle.position, number });
        }
    }
}

/// The number of the dot with which something was born, which is all that is known of it.
fn born(id: FileId, context: &Context) -> u64 {
    let n = id.0 as u64;
    assert!(context.iter().eq([(WRITER, n)]), "{id:?} is born with {context:?}");
    assert_eq!((id.0 >> 64) as u64, WRITER.0);
    n
}

// ------------------------------------------------------------------------- rows

/// A file by the rows of a site.
pub(crate) struct FileInRows {
    /// None: it is dead.
    pub(crate) ino: Option<Ino>,
    pub(crate) state: FileState,
    at: FeedPlace,
    pub(crate) bytes: FileBytes,
}

/// A directory by the rows of a site.
pub(crate) struct DirInRows {
    /// None: it is dead.
    pub(crate) ino: Option<Ino>,
    pub(crate) head: DirHead,
    at: Option<FeedPlace>,
}

/// What the rows of a site say of objects.
pub(crate) struct Rows {
    pub(crate) files: BTreeMap<FileId, FileInRows>,
    pub(crate) dirs: BTreeMap<FileId, DirInRows>,
    feed: BTreeMap<u128, FeedRow>,
}

impl Rows {
    pub(crate) fn of(site: &Site) -> Self {
        let (mut files, mut dirs, mut feed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let root = site.state().dir(Ino::ROOT).unwrap().unwrap();
        let (head, at) = match &root.beside {
            Some(beside) => {
                let DirBeside { id, head, at } = DirBeside::read(beside).unwrap();
                assert_eq!(id, FileId::ROOT);
                (head, Some(at))
            }
            None => (root_head(root.fixed.mode, root.fixed.uid, root.fixed.gid), None),
        };
        dirs.insert(FileId::ROOT, DirInRows { ino: Some(Ino::ROOT), head, at });
        for ((table, id), row) in site.sides() {
            match *table {
                FILES => drop(files.insert(FileId(*id), file_in_rows(site, FileId(*id), row))),
                DIRS => drop(dirs.insert(FileId(*id), dir_in_rows(site, FileId(*id), row))),
                FEED => drop(feed.insert(*id, FeedRow::from_slice(row).unwrap())),
                _ => assert!([BEHIND, LIVES, MEMBERS, UNCUT, MOVES, PIECES, WRITERS].contains(table)),
            }
        }
        Self { files, dirs, feed }
    }

    /// The states in the rows are, byte by byte, those that bundles alone have made, and the feed has one row of each object that has
    /// changed: that of its last change.
    pub(crate) fn compare(&self, replica: &Replica) {
        assert!(self.files.keys().eq(replica.files.keys()), "files");
        for (id, file) in &self.files {
            assert_eq!(file.state.to_vec(), replica.files[id].to_vec(), "{id:?}: {:?}", file.state);
            assert_eq!(file.ino.is_none(), file.state.links.is_empty(), "{id:?} is dead without a name");
            let is_left = file.state.unburied().next().is_some();
            assert!(file.ino.is_some() || !is_left, "the removal has seen all that {id:?} had");
            for (_, place) in file.state.places() {
                assert!(
                    self.dirs[&place.dir].head.context.covers(place.entry),
                    "{place:?} is not known there"
                );
            }
            assert_eq!(replica.last.get(&FeedRow::File { id: *id }), Some(&file.at));
        }
        assert!(self.dirs.keys().eq(replica.dirs.keys()), "directories");
        for (id, dir) in &self.dirs {
            assert_eq!(dir.head.to_vec(), replica.dirs[id].to_vec(), "{id:?}: {:?}", dir.head);
            assert_eq!(dir.ino.is_none(), dir.head.is_removed(), "{id:?} is dead if it was removed");
            assert_eq!(replica.last.get(&FeedRow::Dir { id: *id }), dir.at.as_ref());
        }
        let expected: BTreeMap<u128, FeedRow> =
            replica.last.iter().map(|(object, at)| (at.key(), *object)).collect();
        assert_eq!(self.feed, expected, "the feed");
    }

    /// The tree that follows from the states alone is that of the model. `exact`: those whose mtime is in their state.
    pub(crate) fn compare_tree(&self, spine: &Spine, site: &Site, model: &Model, exact: &BTreeSet<Ino>) {
        let mut names: BTreeMap<FileId, BTreeMap<Name, Ino>> = BTreeMap::new();
        let mut enter = |dir: FileId, name: &Name, ino: Ino| {
            let is_new = names.entry(dir).or_default().insert(name.clone(), ino).is_none();
            assert!(is_new, "two things have the name {name} in {dir:?}");
        };
        for file in self.files.values() {
            let Some(ino) = file.ino else { continue };
            file.state.places().for_each(|(_, place)| enter(place.dir, &place.name, ino));
        }
        for (id, dir) in self.dirs.iter().filter(|(id, _)| **id != FileId::ROOT) {
            let place = spine.place(*id).expect("every directory is in the spine");
            let Some(ino) = dir.ino else { continue };
            // The later of the rename in place and of the move names it. At the birth both have one stamp.
            let by_move = place.since > dir.head.name.stamp;
            enter(place.parent, if by_move { &place.name } else { &dir.head.name.value }, ino);
        }
        let live: BTreeMap<Ino, &Attr> = model
            .inos()
            .filter_map(|ino| Some((ino, model.attr(ino)?)))
            .filter(|(_, at)| at.nlink > 0)
            .collect();
        let mut found = 0;
        for (id, dir) in &self.dirs {
            let Some(ino) = dir.ino else {
                assert!(!names.contains_key(id), "names are in {id:?}, which was removed");
                continue;
            };
            found += 1;
            let attr = live.get(&ino).unwrap_or_else(|| panic!("{ino} is not there"));
            let is: BTreeMap<Name, Ino> =
                model.children(ino).map(|(name, ino)| (name.clone(), ino)).collect();
            assert_eq!(names.remove(id).unwrap_or_default(), is, "names in {ino}");
            assert_eq!(attr.kind, Kind::Directory);
            compare_attrs(&dir.head.attrs, attr, site, exact);
        }
        assert!(names.is_empty(), "names are in what is no directory: {names:?}");
        for (ino, file) in self.files.values().filter_map(|file| Some((file.ino?, file))) {
            found += 1;
            let attr = live.get(&ino).unwrap_or_else(|| panic!("{ino} is not there"));
            let birth = &file.state.birth;
            assert_eq!((birth.kind, birth.rdev), (attr.kind, attr.rdev), "type and device of {ino}");
            let row = site.state().inode(ino).unwrap().unwrap();
            assert_eq!(birth.target, row.target.clone().unwrap_or_default());
            assert_eq!(file.state.places().count(), attr.nlink as usize, "links of {ino}");
            compare_attrs(&file.state.attrs, attr, site, exact);
            let size = if attr.kind == Kind::Regular { attr.size } else { 0 };
            let FileBytes { has, is_uncut, written, .. } = &file.bytes;
            let has = has.expect("no bytes are on their way");
            if !is_uncut {
                let bytes: Vec<u8> =
                    (0..size).map(|at| site.body(ino).get(at as usize).copied().unwrap_or(0)).collect();
                let hashes: Vec<u128> = bytes.chunks(PIECE_BYTES as usize).map(hash).collect();
                assert_eq!((has.size, has.root), (size, root(&hashes)), "the version of {ino}");
                assert!(written.is_empty());
            } else if has.size == 0 {
                let all = (size > 0).then_some(0..size);
                assert!(written.iter().eq(all.iter()), "{written:?} of {size} bytes of {ino}");
            }
        }
        assert_eq!(found, live.len(), "objects");
    }

    /// What has no name has nothing beside its row.
    pub(crate) fn compare_orphans(&self, site: &Site, model: &Model) -> usize {
        let is_orphan = |ino: &Ino| model.attr(*ino).is_some_and(|attr| attr.nlink == 0);
        let orphans = model.inos().filter(is_orphan).filter_map(|ino| site.state().inode(ino).unwrap());
        orphans.map(|row| assert_eq!(row.beside, None, "beside {}, which has no name", row.attr.ino)).count()
    }
}

fn file_in_rows(site: &Site, id: FileId, row: &Bytes) -> FileInRows {
    match FileRow::from_slice(row).unwrap() {
        FileRow::Shown { ino } => {
            let row = site.state().inode(ino).unwrap().unwrap_or_else(|| panic!("{ino} is {id:?}, and gone"));
            let beside = FileBeside::read(row.beside.as_ref().expect("it has a name")).unwrap();
            assert_eq!(beside.id, id);
            FileInRows { ino: Some(ino), state: beside.state, at: beside.at, bytes: beside.bytes }
        }
        FileRow::Hidden { state, at, .. } => {
            FileInRows { ino: None, state: *state, at, bytes: FileBytes::default() }
        }
    }
}

fn dir_in_rows(site: &Site, id: FileId, row: &Bytes) -> DirInRows {
    match DirRow::from_slice(row).unwrap() {
        DirRow::Shown { ino, .. } => {
            let row = site.state().dir(ino).unwrap().unwrap_or_else(|| panic!("{ino} is {id:?}, and gone"));
            let beside = DirBeside::read(row.beside.as_ref().expect("it is there")).unwrap();
            assert_eq!(beside.id, id);
            DirInRows { ino: Some(ino), head: beside.head, at: Some(beside.at) }
        }
        DirRow::Hidden { head, at, .. } => DirInRows { ino: None, head: *head, at: Some(at) },
    }
}

fn compare_attrs(attrs: &atoll_causal::AttrState, is: &Attr, site: &Site, exact: &BTreeSet<Ino>) {
    let ino = is.ino;
    let known = (attrs.mode.value, attrs.uid.value, attrs.gid.value);
    assert_eq!(known, (is.mode, is.uid, is.gid), "mode, owner and group of {ino}");
    if exact.contains(&ino) {
        let known = attrs.mtime.value;
        assert!(known.nanos_from(is.mtime) <= APART_NS, "mtime of {ino}: {known:?} for {:?}", is.mtime);
    }
    let xattrs = attrs.xattrs.iter().map(|(name, values)| {
        assert_eq!(values.len(), 1, "one site makes no conflicts");
        let (_, value) = values.highest().expect("there is one");
        (Bytes::copy_from_slice(name.as_bytes()), value.value.as_bytes().clone())
    });
    let state = site.state();
    let has = match is.kind {
        Kind::Directory => state.dir(ino).unwrap().unwrap().has_xattrs,
        _ => state.inode(ino).unwrap().unwrap().has_xattrs,
    };
    let row = if has { state.xattrs(ino).unwrap().cloned().unwrap_or_default() } else { Default::default() };
    assert_eq!(xattrs.collect::<Vec<_>>(), row.0, "extended attributes of {ino}");
}

/// Follows which objects have their mtime in their state: not those whose bytes or names changed last.
pub(crate) fn note_mtime(exact: &mut BTreeSet<Ino>, happened: &Happened) {
    let mut names = |at: &EntryRef| {
        exact.remove(&at.dir);
    };
    match happened {
        Happened::Removed { at, .. } | Happened::Linked { at, .. } => names(at),
        Happened::Moved { from, to, .. } => [from, to].into_iter().for_each(names),
        Happened::Exchanged { one_from, other_from, .. } => {
            [one_from, other_from].into_iter().for_each(names)
        }
        Happened::Born { object, at, .. } => {
            names(at);
            exact.insert(object.ino());
        }
        Happened::AttrChanged { object, to: AttrValue::Mtime(_) } => {
            exact.insert(object.ino());
        }
        Happened::AttrChanged { .. } => {}
        Happened::Written { ino, .. } => {
            exact.remove(ino);
        }
    }
}

// ----------------------------------------------------------------- hostile bytes

/// Of these bytes, changed a little, none are read that this code would not write. How often they are refused.
pub(crate) fn strict<T: Decode + Encode>(bytes: &[u8], rng: &mut Rng) -> u64 {
    let again = |bytes: &[u8]| T::from_slice(bytes).ok().map(|value| value.to_vec());
    assert_eq!(again(bytes).as_deref(), Some(bytes));
    let mut refused = 0;
    for _ in 0..8 {
        let mut other = bytes.to_vec();
        match rng.index(4) {
            0 => other.truncate(rng.index(bytes.len())),
            1 => other.push(rng.index(256) as u8),
            2 => drop(other.remove(rng.index(bytes.len()))),
            _ => other[rng.index(bytes.len())] = [0, 1, 2, 255, rng.index(256) as u8][rng.index(5)],
        }
        match again(&other) {
            Some(read) => assert_eq!(read, other, "other bytes are read"),
            None => refused += 1,
        }
    }
    refused
}

/// [`strict`] of all rows of a site.
pub(crate) fn strict_rows(site: &Site, rows: &Rows, rng: &mut Rng) -> u64 {
    let mut refused = 0;
    for ((table, _), row) in site.sides() {
        refused += match *table {
            FILES => strict::<FileRow>(row, rng),
            DIRS => strict::<DirRow>(row, rng),
            FEED => strict::<FeedRow>(row, rng),
            WRITERS => strict::<WriterRow>(row, rng),
            LIVES => strict::<LifeRow>(row, rng),
            BEHIND => strict::<BehindRow>(row, rng),
            UNCUT => strict::<UncutRow>(row, rng),
            PIECES => strict::<PiecesRow>(row, rng),
            _ => strict::<MoveRow>(row, rng),
        }
    }
    let files = rows.files.values().filter_map(|file| site.state().inode(file.ino?).unwrap()?.beside.clone());
    let dirs = rows.dirs.values().filter_map(|dir| site.state().dir(dir.ino?).unwrap()?.beside.clone());
    refused + files.chain(dirs).map(|beside| strict::<BesideRow>(&beside, rng)).sum::<u64>()
}
