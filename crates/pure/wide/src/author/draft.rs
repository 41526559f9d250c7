//! The changes of one record while they are put together: one of each object, and then the rows for them. Never asks what happened
//! anywhere but in what it is told.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{
    AttrPart, AttrState, DirBirth, DirHead, DirPart, DirState, Dot, FileBirth, FileId, FilePart, FileState,
    FileVersion, HybridClock, HybridStamp, LinkPlace, Lww, Taken, Writer, XattrName, XattrValue,
};
use atoll_core::{Decode, Ino, Name};
use atoll_proto::{EntryRef, Inode, Record, RowChange};
use atoll_spine::{Spine, SpinePlace};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

use super::made::BundleChange;
use crate::contents::pieces::{NO_BYTES, no_rows};
use crate::held::SiteRows;
use crate::rows::{
    BodyVersion, DIRS, DirBeside, DirRow, FILES, FeedPlace, FeedRow, FileBeside, FileBytes, FileRow, NEAR,
    NearRow, SiteDir, UNCUT, UncutRow, fed, near_key, remove, set,
};
use crate::watch::{AttrValue, Birth, Happened, LocalObject};

/// Of directories by their numbers the others that are shown as one with them, each with the directory in which it is.
pub(super) type OtherDirs = BTreeMap<Ino, Vec<(FileId, FileId)>>;

/// A file or a directory that the record is about.
struct Drafted<S, P> {
    id: FileId,
    /// Its state before; of one that is born after.
    state: S,
    /// The last change of it before this record.
    before: Option<FeedPlace>,
    is_born: bool,
    /// It has no name after this.
    is_dead: bool,
    /// Its change, if it has one.
    dot: Option<Dot>,
    stamp: HybridStamp,
    parts: Vec<P>,
}

type DraftedFile = Drafted<FileState, FilePart>;
type DraftedDir = Drafted<DirHead, DirPart>;

impl<S, P> Drafted<S, P> {
    fn new(id: FileId, state: S, before: Option<FeedPlace>) -> Self {
        let (is_born, is_dead, dot, stamp) = (false, false, None, HybridStamp::ZERO);
        Self { id, state, before, is_born, is_dead, dot, stamp, parts: Vec::new() }
    }

    fn born(id: FileId, state: S, dot: Dot, stamp: HybridStamp) -> Self {
        Self { is_born: true, dot: Some(dot), stamp, ..Self::new(id, state, None) }
    }
}

/// See the module.
pub(super) struct Draft<'a> {
    state: &'a State,
    writer: Writer,
    /// The number of the last dot.
    n: &'a mut u64,
    clock: &'a mut HybridClock,
    now_us: u64,
    spine: &'a mut Spine,
    /// Of each directory that gets another name or other attributes the others that are shown as one with it, which get these too, and where
    /// they were.
    others: OtherDirs,
    /// The place of its first change in the feed.
    from: FeedPlace,
    files: BTreeMap<Ino, DraftedFile>,
    /// What is in their bodies.
    bytes: BTreeMap<Ino, FileBytes>,
    /// Files of this record that have become uncut.
    uncut: BTreeSet<Ino>,
    dirs: BTreeMap<Ino, DraftedDir>,
    /// Those of them that change, with the number as which they are shown.
    changed_others: Vec<(Ino, DraftedDir)>,
    /// Rows of what is near a name that change.
    near: BTreeMap<u128, BTreeSet<FileId>>,
    /// Those that change, in the order of their dots.
    order: Vec<LocalObject>,
}

impl<'a> Draft<'a> {
    /// A draft for a record whose changes begin at this place in the feed, by a writer who has given that many dots. `state` has the rows of before; `spine` has the
    /// moves of the record already.
    pub(super) fn new(
        state: &'a State,
        (writer, n): (Writer, &'a mut u64),
        (clock, now_us): (&'a mut HybridClock, u64),
        (spine, others): (&'a mut Spine, OtherDirs),
        from: FeedPlace,
    ) -> Self {
        Self {
            state,
            writer,
            n,
            clock,
            now_us,
            spine,
            others,
            from,
            files: BTreeMap::new(),
            bytes: BTreeMap::new(),
            uncut: BTreeSet::new(),
            dirs: BTreeMap::new(),
            changed_others: Vec::new(),
            near: BTreeMap::new(),
            order: Vec::new(),
        }
    }

    /// One thing that the record does.
    pub(super) fn add(&mut self, happened: &Happened) {
        match happened {
            Happened::Born { object: LocalObject::File(ino), at, birth } => self.file_born(*ino, at, birth),
            Happened::Born { object: LocalObject::Dir(ino), at, birth } => self.dir_born(*ino, at, birth),
            Happened::Linked { ino, at } => {
                let place = self.place_for(*ino, at);
                let (file, dot) = self.change_file(*ino);
                file.parts.push(FileState::link(dot, place));
            }
            Happened::Moved { object, from, to } => self.moved(*object, from, to),
            Happened::Exchanged { one, one_from, other, other_from } => {
                self.moved(*one, one_from, other_from);
                self.moved(*other, other_from, one_from);
            }
            Happened::Removed { object: LocalObject::File(ino), at, is_last } => {
                self.enter(at.dir);
                let above = self.dir_latest(at.dir);
                let stamp = self.stamp_of_file(*ino, above);
                let state = self.state;
                let (file, dot) = self.change_file(*ino);
                let (link, dir) = link_at(state, &file.state, at);
                let parts = [file.state.unlink(link), file.state.bury(dot, stamp, dir, at.name.clone())];
                file.parts.extend(parts);
                file.is_dead = *is_last;
            }
            Happened::Removed { object: LocalObject::Dir(ino), at, .. } => {
                self.enter(at.dir);
                let (dir, dot) = self.change_dir(*ino);
                dir.parts.extend(dir.state.remove(dot));
                dir.is_dead = true;
            }
            Happened::AttrChanged { object: LocalObject::File(ino), to } => {
                let stamp = self.stamp_of_file(*ino, HybridStamp::ZERO);
                let (file, dot) = self.change_file(*ino);
                if file.is_born {
                    born_with(&mut file.state.attrs, dot, stamp, to);
                } else {
                    file.parts.push(FilePart::Attr { part: attr_part(&file.state.attrs, stamp, to) });
                }
            }
            Happened::AttrChanged { object: LocalObject::Dir(ino), to } => {
                let stamp = self.stamp_of_dir(*ino, HybridStamp::ZERO);
                let (dir, dot) = self.change_dir(*ino);
                if dir.is_born {
                    born_with(&mut dir.state.attrs, dot, stamp, to);
                } else {
                    dir.parts.push(DirPart::Attr { part: attr_part(&dir.state.attrs, stamp, to) });
                    self.others_changed(*ino, to);
                }
            }
            Happened::Written { ino, size, ranges, .. } => {
                self.file(*ino);
                let bytes = self.bytes.get_mut(ino).expect("a file that is known has this");
                bytes.written.cut(*size);
                ranges.iter().for_each(|range| bytes.written.add(range.clone()));
                bytes.written.join_nearest();
                if !bytes.is_uncut {
                    bytes.is_uncut = true;
                    self.uncut.insert(*ino);
                }
            }
        }
    }

    // -------------------------------------------------------------------- names

    fn file_born(&mut self, ino: Ino, at: &EntryRef, birth: &Birth) {
        let (dir, entry) = self.enter(at.dir);
        let (dot, stamp) = (self.give_dot(), self.give_stamp(self.dir_latest(at.dir)));
        let Birth { kind, mode, uid, gid, mtime, rdev, ref target } = *birth;
        let birth = FileBirth { kind, rdev, target: target.clone(), copy_of: None };
        let attrs = AttrState::new(stamp, mode, uid, gid, mtime);
        let place = LinkPlace { stamp, dir, name: at.name.clone(), entry };
        let version = FileVersion { stamp, size: 0, mtime, root: NO_BYTES };
        let state = FileState::new(birth, dot, attrs, place, version);
        self.files.insert(ino, Drafted::born(FileId::born(dot), state, dot, stamp));
        let has = Some(BodyVersion::of(dot, &version));
        self.bytes.insert(ino, FileBytes { has, ..FileBytes::default() });
        self.order.push(LocalObject::File(ino));
    }

    fn dir_born(&mut self, ino: Ino, at: &EntryRef, birth: &Birth) {
        let (parent, _) = self.enter(at.dir);
        let (dot, stamp) = (self.give_dot(), self.give_stamp(self.dir_latest(at.dir)));
        let Birth { mode, uid, gid, mtime, .. } = *birth;
        let attrs = AttrState::new(stamp, mode, uid, gid, mtime);
        let state = DirState::new(DirBirth { stamp, parent }, dot, attrs, at.name.clone()).head;
        let id = FileId::born(dot);
        self.spine.born(id, SpinePlace { parent, name: at.name.clone(), since: stamp });
        self.dirs.insert(ino, Drafted::born(id, state, dot, stamp));
        self.order.push(LocalObject::Dir(ino));
    }

    /// Something has another name.
    fn moved(&mut self, object: LocalObject, from: &EntryRef, to: &EntryRef) {
        self.enter(from.dir);
        if let LocalObject::Dir(ino) = object {
            let others = self.others.remove(&ino).unwrap_or_default();
            others.into_iter().for_each(|other| self.other_moved(ino, other, from, to));
        }
        match object {
            LocalObject::File(ino) => {
                let place = self.place_for(ino, to);
                let state = self.state;
                let (file, _) = self.change_file(ino);
                let (link, _) = link_at(state, &file.state, from);
                file.parts.push(file.state.relink(link, place));
            }
            LocalObject::Dir(ino) if from.dir == to.dir => {
                let above = self.dir_latest(to.dir);
                let stamp = self.stamp_of_dir(ino, above);
                let (dir, _) = self.change_dir(ino);
                dir.parts.extend(dir.state.rename(stamp, to.name.clone()));
            }
            LocalObject::Dir(ino) => {
                self.enter(to.dir);
                let (dir, _) = self.change_dir(ino);
                dir.parts.push(dir.state.keep());
            }
        }
    }

    /// A directory gets another name that is shown as one with the directory `ino`. It was in `left`.
    fn other_moved(&mut self, ino: Ino, (id, left): (FileId, FileId), from: &EntryRef, to: &EntryRef) {
        let mut other = self.take_other(id);
        let mut entered = left;
        if from.dir == to.dir {
            let moved = self.spine.place(id).map_or(HybridStamp::ZERO, |place| place.since);
            let above = self.dir_latest(to.dir).max(other.state.latest()).max(moved);
            other.stamp = self.give_stamp(above);
            other.parts.extend(other.state.rename(other.stamp, to.name.clone()));
        } else {
            entered = self.enter(to.dir).0;
            other.parts.push(other.state.keep());
        }
        self.near(left, &from.name).remove(&id);
        self.near(entered, &to.name).insert(id);
        self.changed_others.push((ino, other));
    }

    /// The directories that are shown as one with the directory `ino` get this attribute too: else they would show others when they part.
    fn others_changed(&mut self, ino: Ino, to: &AttrValue) {
        let others = self.others.get(&ino).cloned().unwrap_or_default();
        for (id, _) in others {
            let mut other = self.take_other(id);
            if other.stamp == HybridStamp::ZERO {
                other.stamp = self.give_stamp(other.state.latest());
            }
            other.parts.push(DirPart::Attr { part: attr_part(&other.state.attrs, other.stamp, to) });
            self.changed_others.push((ino, other));
        }
    }

    /// One of them, with what the draft has changed of it so far.
    fn take_other(&mut self, id: FileId) -> DraftedDir {
        if let Some(at) = self.changed_others.iter().position(|(_, other)| other.id == id) {
            return self.changed_others.remove(at).1;
        }
        let held =
            SiteRows::new(self.state).dir(id).expect("what comes before an operation has looked at it");
        let mut other = Drafted::new(id, held.head.clone(), held.at);
        other.dot = Some(self.give_dot());
        other
    }

    /// What is near a name.
    fn near(&mut self, dir: FileId, name: &Name) -> &mut BTreeSet<FileId> {
        let (key, state) = (near_key(dir, name), self.state);
        self.near.entry(key).or_insert_with(|| SiteRows::new(state).near_row(key).into_iter().collect())
    }

    /// A place for a link of a file, which the directory enters.
    fn place_for(&mut self, ino: Ino, at: &EntryRef) -> LinkPlace {
        let (dir, entry) = self.enter(at.dir);
        let above = self.dir_latest(at.dir);
        LinkPlace { stamp: self.stamp_of_file(ino, above), dir, name: at.name.clone(), entry }
    }

    /// The names of a directory change: its id, and its change.
    fn enter(&mut self, dir: Ino) -> (FileId, Dot) {
        let (drafted, dot) = self.change_dir(dir);
        (drafted.id, dot)
    }

    // ------------------------------------------------------------------ objects

    fn file(&mut self, ino: Ino) -> &mut DraftedFile {
        if !self.files.contains_key(&ino) {
            let FileBeside { id, state, at, bytes } = file_of(self.state, ino);
            self.files.insert(ino, Drafted::new(id, state, Some(at)));
            self.bytes.insert(ino, bytes);
        }
        self.files.get_mut(&ino).expect("it is there now")
    }

    fn dir(&mut self, ino: Ino) -> &mut DraftedDir {
        let state = self.state;
        self.dirs.entry(ino).or_insert_with(|| {
            let SiteDir { id, head, at } = dir_of(state, ino).expect("the island has read what it changes");
            Drafted::new(id, head, at)
        })
    }

    /// A file, and its change.
    fn change_file(&mut self, ino: Ino) -> (&mut DraftedFile, Dot) {
        let dot = match self.file(ino).dot {
            Some(dot) => dot,
            None => {
                self.order.push(LocalObject::File(ino));
                self.give_dot()
            }
        };
        let file = self.file(ino);
        file.dot = Some(dot);
        (file, dot)
    }

    /// A directory, and its change.
    fn change_dir(&mut self, ino: Ino) -> (&mut DraftedDir, Dot) {
        let dot = match self.dir(ino).dot {
            Some(dot) => dot,
            None => {
                self.order.push(LocalObject::Dir(ino));
                self.give_dot()
            }
        };
        let dir = self.dir(ino);
        dir.dot = Some(dot);
        (dir, dot)
    }

    const fn give_dot(&mut self) -> Dot {
        *self.n += 1;
        Dot { writer: self.writer, n: *self.n }
    }

    fn give_stamp(&mut self, above: HybridStamp) -> HybridStamp {
        self.clock.give(self.now_us, self.writer, above)
    }

    /// The latest stamp of a directory of the draft, and of its moves.
    fn dir_latest(&self, ino: Ino) -> HybridStamp {
        let dir = self.dirs.get(&ino).expect("it is in the draft");
        let moved = self.spine.place(dir.id).map_or(HybridStamp::ZERO, |place| place.since);
        dir.state.latest().max(moved)
    }

    /// The stamp of a file's change: later than all of the file, and than `above`.
    fn stamp_of_file(&mut self, ino: Ino, above: HybridStamp) -> HybridStamp {
        let file = self.file(ino);
        if file.stamp <= above {
            let above = file.state.latest().max(above);
            let stamp = self.give_stamp(above);
            self.file(ino).stamp = stamp;
        }
        self.file(ino).stamp
    }

    /// As [`Self::stamp_of_file`], of a directory.
    fn stamp_of_dir(&mut self, ino: Ino, above: HybridStamp) -> HybridStamp {
        if self.dir(ino).stamp <= above {
            let above = self.dir_latest(ino).max(above);
            let stamp = self.give_stamp(above);
            self.dir(ino).stamp = stamp;
        }
        self.dir(ino).stamp
    }

    // --------------------------------------------------------------------- rows

    /// Adds the rows to the record. What the changes are, in the order of their dots.
    pub(super) fn finish(mut self, record: &mut Record) -> Vec<BundleChange> {
        let mut changes = Vec::new();
        for (object, number) in std::mem::take(&mut self.order).into_iter().zip(self.from.number..) {
            let at = FeedPlace { number, ..self.from };
            changes.push(match object {
                LocalObject::File(ino) => self.finish_file(ino, at, record),
                LocalObject::Dir(ino) => self.finish_dir(ino, at, record),
            });
        }
        let others = std::mem::take(&mut self.changed_others).into_iter();
        let others = others.zip(self.from.number + changes.len() as u64..);
        for ((ino, other), number) in others {
            let at = FeedPlace { number, ..self.from };
            changes.push(self.finish_other(ino, other, at, record));
        }
        for (key, ids) in std::mem::take(&mut self.near) {
            let before = SiteRows::new(self.state).near_row(key);
            let ids: Vec<FileId> = ids.into_iter().collect();
            if ids.is_empty() && !before.is_empty() {
                record.changes.push(remove(NEAR, key));
            } else if ids != before {
                record.changes.push(set(NEAR, key, &NearRow::Near { ids }));
            }
        }
        // Of those that are left only bytes have changed.
        for (ino, file) in std::mem::take(&mut self.files) {
            let bytes = self.bytes.remove(&ino).expect("a file that is known has this");
            let at = file.before.expect("a file that is born changes");
            let beside = FileBeside { id: file.id, state: file.state, at, bytes };
            self.put_beside_file(ino, Some(beside.into_bytes()), record);
        }
        record
            .changes
            .extend(self.uncut.into_iter().map(|ino| set(UNCUT, ino.0.into(), &UncutRow::Uncut {})));
        changes
    }

    fn finish_file(&mut self, ino: Ino, at: FeedPlace, record: &mut Record) -> BundleChange {
        let mut file = self.files.remove(&ino).expect("it is in the draft");
        let bytes = self.bytes.remove(&ino).expect("a file that is known has this");
        let id = file.id;
        let change = if file.is_born {
            BundleChange::FileBorn { id, state: Box::new(file.state.clone()) }
        } else {
            let change = file.state.change(file.dot.expect("it changes"), file.parts);
            assert_eq!(file.state.apply(&change), Taken::Applied, "{change:?} of {id:?}");
            BundleChange::FileChanged { id, change }
        };
        record.changes.extend(fed(file.before, at, FeedRow::File { id }));
        if file.is_dead {
            self.put_beside_file(ino, None, record);
            if !self.uncut.remove(&ino) && bytes.is_uncut {
                record.changes.push(remove(UNCUT, ino.0.into()));
            }
            record.changes.extend(no_rows(ino, bytes.has));
            let row = FileRow::Hidden { state: Box::new(file.state), at, kept: None };
            record.changes.push(set(FILES, id.0, &row));
            return change;
        }
        let beside = FileBeside { id, state: file.state, at, bytes };
        self.put_beside_file(ino, Some(beside.into_bytes()), record);
        if file.is_born {
            record.changes.push(set(FILES, id.0, &FileRow::Shown { ino }));
        }
        change
    }

    /// A directory that is shown as one with the directory `ino`.
    fn finish_other(
        &self,
        ino: Ino,
        mut other: DraftedDir,
        at: FeedPlace,
        record: &mut Record,
    ) -> BundleChange {
        let id = other.id;
        let change = other.state.change(other.dot.expect("it changes"), other.parts);
        assert_eq!(other.state.apply(&change), Taken::Applied, "{change:?} of {id:?}");
        record.changes.extend(fed(other.before, at, FeedRow::Dir { id }));
        let base = self.spine.base(id).expect("a directory of this site is in the spine").clone();
        let row = DirRow::Hidden { head: Box::new(other.state), base, at, within: Some(ino) };
        record.changes.push(set(DIRS, id.0, &row));
        BundleChange::DirChanged { id, change }
    }

    fn finish_dir(&mut self, ino: Ino, at: FeedPlace, record: &mut Record) -> BundleChange {
        let mut dir = self.dirs.remove(&ino).expect("it is in the draft");
        let id = dir.id;
        let change = if dir.is_born {
            BundleChange::DirBorn { id, head: Box::new(dir.state.clone()) }
        } else {
            let change = dir.state.change(dir.dot.expect("it changes"), dir.parts);
            assert_eq!(dir.state.apply(&change), Taken::Applied, "{change:?} of {id:?}");
            BundleChange::DirChanged { id, change }
        };
        record.changes.extend(fed(dir.before, at, FeedRow::Dir { id }));
        let base = || self.spine.base(id).expect("a directory of this site is in the spine").clone();
        if dir.is_dead {
            let row = DirRow::Hidden { head: Box::new(dir.state), base: base(), at, within: None };
            record.changes.push(set(DIRS, id.0, &row));
            self.spine.release(id);
            return change;
        }
        if dir.is_born {
            record.changes.push(set(DIRS, id.0, &DirRow::Shown { ino, base: base() }));
        }
        let beside = DirBeside { id, head: dir.state, at }.into_bytes();
        let row = record.changes.iter_mut().rev().find_map(|change| match change {
            RowChange::Dir { ino: of, row } if *of == ino => row.as_mut(),
            _ => None,
        });
        row.expect("a directory that changes has its row in the record").beside = Some(beside);
        change
    }

    /// Puts bytes beside the row of a file that the record sets, or takes them away. A row that goes has none. A recovery may change
    /// bytes and no row: then the row is set as it is.
    fn put_beside_file(&self, ino: Ino, beside: Option<Bytes>, record: &mut Record) {
        let last = record.changes.iter_mut().rev().find_map(|change| match change {
            RowChange::Inode { ino: of, row } if *of == ino => Some(row),
            _ => None,
        });
        match last {
            Some(Some(row)) => row.beside = beside,
            Some(None) => assert!(beside.is_none(), "{ino} goes, and has a name"),
            None => {
                let mut row = row_of(self.state, ino).clone();
                row.beside = beside;
                record.changes.push(RowChange::Inode { ino, row: Some(Box::new(row)) });
            }
        }
    }
}

/// The link of a file that has this name, and the directory in which it is: that of the name, or one that is shown as one with it.
fn link_at(state: &State, file: &FileState, at: &EntryRef) -> (Dot, FileId) {
    let number = |dir: FileId| {
        if dir == FileId::ROOT {
            return Some(Ino::ROOT);
        }
        let row = state.side(DIRS, dir.0).ok().flatten()?;
        match DirRow::from_slice(row).expect("this site has written it") {
            DirRow::Shown { ino, .. } => Some(ino),
            DirRow::Hidden { within, .. } => within,
        }
    };
    let is_here = |place: &LinkPlace| place.name == at.name && number(place.dir) == Some(at.dir);
    let mut links = file.places().filter(|(_, place)| is_here(place));
    let (link, place) = links.next().expect("each name of a file has its link");
    (link, place.dir)
}

fn attr_part(attrs: &AttrState, stamp: HybridStamp, to: &AttrValue) -> AttrPart {
    match to {
        AttrValue::Mode(mode) => AttrPart::Mode { to: Lww::new(stamp, *mode) },
        AttrValue::Uid(uid) => AttrPart::Uid { to: Lww::new(stamp, *uid) },
        AttrValue::Gid(gid) => AttrPart::Gid { to: Lww::new(stamp, *gid) },
        AttrValue::Mtime(mtime) => AttrPart::Mtime { to: Lww::new(stamp, *mtime) },
        AttrValue::Xattr { name, value } => {
            let (name, value) = xattr(stamp, name, value.as_ref());
            attrs.set_xattr(name, value)
        }
    }
}

/// What is born has an extended attribute with its birth.
fn born_with(attrs: &mut AttrState, dot: Dot, stamp: HybridStamp, to: &AttrValue) {
    let AttrValue::Xattr { name, value } = to else { unreachable!("its birth tells {to:?}") };
    let (name, value) = xattr(stamp, name, value.as_ref());
    attrs.xattrs.apply(&name, &[], dot, value);
}

fn xattr(stamp: HybridStamp, name: &Bytes, value: Option<&Bytes>) -> (XattrName, Option<Lww<XattrValue>>) {
    let name = XattrName::new(name.clone()).expect("the island refuses other names");
    let checked = |value: &Bytes| XattrValue::new(value.clone()).expect("the island refuses longer values");
    (name, value.map(|value| Lww::new(stamp, checked(value))))
}

/// What is beside the row of a directory.
pub(super) fn dir_of(state: &State, ino: Ino) -> Result<SiteDir, NotInMemory> {
    let row = state.dir(ino)?.expect("a directory that is used is there");
    Ok(SiteDir::of(ino, row))
}

fn row_of(state: &State, ino: Ino) -> &Inode {
    let row = state.inode(ino).expect("the island has read what it changes");
    row.expect("a file that changes is there")
}

/// What is beside the row of a file.
fn file_of(state: &State, ino: Ino) -> FileBeside {
    let beside = row_of(state, ino).beside.as_ref().expect("a file that has a name has its state beside it");
    FileBeside::read(beside).expect("this site has written it")
}
