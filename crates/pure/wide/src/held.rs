//! The objects of a site, read from the rows of its island and from its side rows: for what is shown of them. Owns where a state lies and
//! how what is near a name is found. Changes nothing.
//!
//! Rows may not be in memory. Such a row is noted, and the answer is wrong then: whoever asks looks at [`SiteRows::missing`] before he
//! believes anything, lets these rows be loaded, and asks anew.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use atoll_causal::{Context, DirHead, DotFun, EntryKey, EntryWord, FileId, FileState, Writer};
use atoll_core::{Decode, Ino, Name};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Inode, Xattrs};
use atoll_shown::{Life, Objects, places};
use atoll_spine::{Spine, SpinePlace};
use atoll_state::{NotInMemory, RowLoad, State};
use bytes::Bytes;

use crate::rows::{
    BEHIND, BehindRow, COPIES, CopiesRow, DIRS, DirBeside, DirRow, FILES, FeedPlace, FileBeside, FileBytes,
    FileRow, NEAR, NearRow, PIECES, PiecesRow, Rested, SETTLED, Settled, SettledRow, SiteDir, TRASH,
    TrashRow, first_near_key, near_key, near_keys, pieces_key,
};

/// A file that a site holds.
#[derive(Debug)]
pub struct HeldFile {
    /// Its number at this site; none if it is hidden.
    pub ino: Option<Ino>,
    /// All that is known of it.
    pub state: FileState,
    /// Its last change at this site.
    pub at: FeedPlace,
    /// Its body, also if it is hidden; none if it has none.
    pub body: Option<Ino>,
    /// What is in it.
    pub bytes: FileBytes,
}

/// A directory that a site holds.
#[derive(Debug)]
pub struct HeldDir {
    /// The number as which it is shown at this site; none if it is not shown.
    pub number: Option<Ino>,
    /// Its state is beside the row of that number: it is the first of those that are shown as one.
    pub is_first: bool,
    /// All that is known of it.
    pub head: DirHead,
    /// Its last change at this site; none of a root that nobody has changed.
    pub at: Option<FeedPlace>,
    /// Its base in the spine; the root has none.
    pub base: Option<SpinePlace>,
}

/// The rows of a site, by objects.
pub struct SiteRows<'a> {
    state: &'a State,
    files: RefCell<BTreeMap<FileId, Option<Rc<HeldFile>>>>,
    dirs: RefCell<BTreeMap<FileId, Option<Rc<HeldDir>>>>,
    missing: RefCell<Vec<RowLoad>>,
    looked_up: Cell<u64>,
}

impl<'a> SiteRows<'a> {
    /// Those of this state.
    pub const fn new(state: &'a State) -> Self {
        Self {
            state,
            files: RefCell::new(BTreeMap::new()),
            dirs: RefCell::new(BTreeMap::new()),
            missing: RefCell::new(Vec::new()),
            looked_up: Cell::new(0),
        }
    }

    /// How often a name was looked up: by its entry, or by its row of [`NEAR`].
    pub fn looked_up(&self) -> u64 {
        self.looked_up.get()
    }

    /// The rows that were needed and are not in memory. If there are some, what was answered is wrong.
    pub fn missing(&self) -> Vec<RowLoad> {
        self.missing.borrow().clone()
    }

    /// Whether some of the rows that were needed are not in memory.
    pub(crate) fn lack_some(&self) -> bool {
        !self.missing.borrow().is_empty()
    }

    /// Whether all rows that were needed are in memory; else those that are not.
    pub(crate) fn loaded(&self) -> Result<(), Vec<RowLoad>> {
        match self.missing() {
            missing if missing.is_empty() => Ok(()),
            missing => Err(missing),
        }
    }

    fn note(&self, load: RowLoad) {
        let mut missing = self.missing.borrow_mut();
        if !missing.contains(&load) {
            missing.push(load);
        }
    }

    fn ask<T>(&self, answer: Result<Option<T>, NotInMemory>) -> Option<T> {
        answer.unwrap_or_else(|NotInMemory(load)| {
            self.note(load);
            None
        })
    }

    /// A file; none if it is not held.
    pub fn file(&self, id: FileId) -> Option<Rc<HeldFile>> {
        if let Some(known) = self.files.borrow().get(&id) {
            return known.clone();
        }
        let file = self.read_file(id).map(Rc::new);
        self.files.borrow_mut().insert(id, file.clone());
        file
    }

    fn read_file(&self, id: FileId) -> Option<HeldFile> {
        let row = self.ask(self.state.side(FILES, id.0))?;
        Some(match FileRow::from_slice(row).expect("this site has written it") {
            FileRow::Shown { ino } => {
                let beside = self.inode(ino)?.beside.as_ref().expect("a file that has a name");
                let beside = FileBeside::read(beside).expect("this site has written it");
                let FileBeside { state, at, bytes, .. } = beside;
                HeldFile { ino: Some(ino), state, at, body: Some(ino), bytes }
            }
            FileRow::Hidden { state, at, kept } => {
                let (body, bytes) = kept.map_or_else(Default::default, |kept| (Some(kept.ino), kept.bytes));
                HeldFile { ino: None, state: *state, at, body, bytes }
            }
        })
    }

    /// A directory; none if it is not held.
    pub fn dir(&self, id: FileId) -> Option<Rc<HeldDir>> {
        if let Some(known) = self.dirs.borrow().get(&id) {
            return known.clone();
        }
        let dir = self.read_dir(id).map(Rc::new);
        self.dirs.borrow_mut().insert(id, dir.clone());
        dir
    }

    fn read_dir(&self, id: FileId) -> Option<HeldDir> {
        let (ino, base) = if id == FileId::ROOT {
            (Ino::ROOT, None)
        } else {
            let row = self.ask(self.state.side(DIRS, id.0))?;
            match DirRow::from_slice(row).expect("this site has written it") {
                DirRow::Shown { ino, base } => (ino, Some(base)),
                DirRow::Hidden { head, base, at, within } => {
                    let (at, base) = (Some(at), Some(base));
                    return Some(HeldDir { number: within, is_first: false, head: *head, at, base });
                }
            }
        };
        let row = self.dir_row(ino)?;
        let SiteDir { head, at, .. } = SiteDir::of(ino, row);
        Some(HeldDir { number: Some(ino), is_first: true, head, at, base })
    }

    /// Whether the bytes of a file's latest version are said not to be here, and in which body they are gathered.
    pub(crate) fn behind(&self, id: FileId) -> Option<BehindRow> {
        let row = self.ask(self.state.side(BEHIND, id.0))?;
        Some(BehindRow::from_slice(row).expect("this site has written it"))
    }

    /// The body in which the bytes of a file's latest version are gathered, if there is one beside its own.
    pub(crate) fn staged(&self, id: FileId) -> Option<Ino> {
        let BehindRow::Behind { staged, .. } = self.behind(id)?;
        staged
    }

    /// The `nth` row of hashes of a file's pieces.
    pub(crate) fn pieces(&self, ino: Ino, nth: u64) -> Option<Vec<u128>> {
        let row = self.ask(self.state.side(PIECES, pieces_key(ino, nth)))?;
        let PiecesRow::Pieces { hashes } = PiecesRow::from_slice(row).expect("this site has written it");
        Some(hashes)
    }

    /// The copies of a file that conflicts have made, and those among them that are gone or used.
    pub(crate) fn copies(&self, of: FileId) -> Vec<FileId> {
        let Some(row) = self.ask(self.state.side(COPIES, of.0)) else { return Vec::new() };
        let CopiesRow::Copies { ids } = CopiesRow::from_slice(row).expect("this site has written it");
        ids
    }

    /// A body that rests in the trash.
    pub(crate) fn rested(&self, key: u128) -> Option<Rested> {
        let row = self.ask(self.state.side(TRASH, key))?;
        let TrashRow::Rests { rested } = TrashRow::from_slice(row).expect("this site has written it");
        Some(*rested)
    }

    /// A conflict that was settled.
    pub(crate) fn settled(&self, key: u128) -> Option<Settled> {
        let row = self.ask(self.state.side(SETTLED, key))?;
        let SettledRow::Settled { settled } = SettledRow::from_slice(row).expect("this site has written it");
        Some(*settled)
    }

    /// The row of a file.
    pub fn inode(&self, ino: Ino) -> Option<&'a Inode> {
        self.ask(self.state.inode(ino))
    }

    /// Whether memory has the row of a file with this number. Asks for nothing.
    pub(crate) fn is_known_file(&self, ino: Ino) -> bool {
        matches!(self.state.inode(ino), Ok(Some(_)))
    }

    /// The locks of a file are to be in memory.
    pub(crate) fn lock_row(&self, ino: Ino) {
        self.ask(self.state.locks(ino));
    }

    /// The row of a directory.
    pub fn dir_row(&self, ino: Ino) -> Option<&'a Dir> {
        self.ask(self.state.dir(ino))
    }

    /// An entry.
    pub fn entry(&self, dir: Ino, name: &Name) -> Option<&'a Entry> {
        self.looked_up.set(self.looked_up.get() + 1);
        self.ask(self.state.entry(dir, name))
    }

    /// The extended attributes of what has some.
    pub fn xattrs(&self, ino: Ino) -> Option<&'a Xattrs> {
        self.ask(self.state.xattrs(ino))
    }

    /// The objects of the row of [`NEAR`] with this key.
    pub fn near_row(&self, key: u128) -> Vec<FileId> {
        self.looked_up.set(self.looked_up.get() + 1);
        match self.state.side(NEAR, key) {
            Ok(row) => row.map_or_else(Vec::new, |row| ids_of(row)),
            Err(NotInMemory(load)) => {
                // Few names have a row: with a page of them it is known of many others that they have none.
                let from = first_near_key(key);
                let is_beyond = self.state.sides_from(NEAR, from).is_ok();
                self.note(if is_beyond { load } else { RowLoad::Sides { table: NEAR, from } });
                Vec::new()
            }
        }
    }

    /// The keys of the rows of [`NEAR`] of a directory: of the names that more than one object has, or one that is shown elsewhere.
    pub(crate) fn near_names(&self, dir: FileId) -> BTreeSet<u128> {
        self.near_table(dir).into_iter().map(|(key, _)| key).collect()
    }

    /// The placement key of a directory that is made as `name` in one with the key `above`. It is no path's: no client computes it.
    pub(crate) fn key_below(&self, above: atoll_core::Key, name: &Name) -> atoll_core::Key {
        atoll_core::Key(above.0.rotate_left(7) ^ (self.state.cookie(name.as_bytes()) as u32))
    }

    /// What an entry leads to: its own state says where it is.
    pub(crate) fn entered(&self, entry: &Entry) -> Option<FileId> {
        if entry.kind == Kind::Directory {
            let beside = self.dir_row(entry.ino)?.beside.as_ref()?;
            return Some(DirBeside::read(beside).expect("this site has written it").id);
        }
        self.inode(entry.ino)?.beside.as_ref().map(Self::file_beside)
    }

    /// The file whose row has this beside it.
    pub(crate) fn file_beside(beside: &Bytes) -> FileId {
        FileBeside::read(beside).expect("this site has written it").id
    }

    /// What entries and rows of [`NEAR`] have of a directory, or of one name in it. Others may be among it.
    fn near(&self, dir: FileId, name: Option<&Name>) -> (Vec<EntryKey>, Vec<FileId>) {
        let number = self.dir(dir).and_then(|dir| dir.number);
        match name {
            Some(name) => {
                let entry = number.and_then(|number| self.entry(number, name));
                let child = entry.and_then(|entry| self.entered(entry));
                let key = child.map(|child| EntryKey { name: name.clone(), child });
                (key.into_iter().collect(), self.near_row(near_key(dir, name)))
            }
            None => (number.map_or_else(Vec::new, |number| self.entries(number)), self.near_rows(dir)),
        }
    }

    fn entries(&self, number: Ino) -> Vec<EntryKey> {
        let (names, is_all) = match self.state.entries_after(number, 0) {
            Ok(names) => names,
            Err(NotInMemory(load)) => {
                self.note(load);
                return Vec::new();
            }
        };
        if !is_all {
            self.note(RowLoad::Names { dir: number, from: self.state.known_to(number) });
        }
        let key = |(_, name, entry): (u64, &Name, &Entry)| {
            Some(EntryKey { name: name.clone(), child: self.entered(entry)? })
        };
        names.filter_map(key).collect()
    }

    fn near_rows(&self, dir: FileId) -> Vec<FileId> {
        self.near_table(dir).into_iter().flat_map(|(_, row)| ids_of(row)).collect()
    }

    fn near_table(&self, dir: FileId) -> Vec<(u128, &'a Bytes)> {
        let (mut from, last) = near_keys(dir);
        let mut table = Vec::new();
        loop {
            match self.state.sides_from(NEAR, from) {
                Ok((rows, to)) => {
                    table.extend(rows.take_while(|(key, _)| *key <= last));
                    if to >= last {
                        return table;
                    }
                    from = to + 1;
                }
                Err(NotInMemory(load)) => {
                    self.note(load);
                    return table;
                }
            }
        }
    }
}

fn ids_of(row: &[u8]) -> Vec<FileId> {
    let NearRow::Near { ids } = NearRow::from_slice(row).expect("this site has written it");
    ids
}

/// What differs from the rows of a site: states that are about to be written.
#[derive(Debug, Default)]
pub struct HeldChanges {
    /// Files.
    pub files: BTreeMap<FileId, FileState>,
    /// Directories.
    pub dirs: BTreeMap<FileId, DirHead>,
    /// Directories whose place in the spine is another one, or which were not in it.
    pub places: BTreeMap<FileId, SpinePlace>,
    /// By directory, what may be shown there and is not found by rows.
    pub near: BTreeMap<FileId, BTreeSet<EntryKey>>,
}

/// The objects of a site: what its rows say, and what differs from that. See the module for what it answers when rows are not in memory.
pub struct HeldObjects<'a> {
    rows: &'a SiteRows<'a>,
    spine: &'a Spine,
    changes: &'a HeldChanges,
    site: &'a dyn Fn(Writer) -> String,
    lives: RefCell<BTreeMap<FileId, Life>>,
}

impl<'a> HeldObjects<'a> {
    /// The objects by these rows, with these changes. `spine` says where directories are of which the changes do not tell; `site` names
    /// the site of a writer.
    pub const fn new(
        rows: &'a SiteRows<'a>,
        spine: &'a Spine,
        changes: &'a HeldChanges,
        site: &'a dyn Fn(Writer) -> String,
    ) -> Self {
        Self { rows, spine, changes, site, lives: RefCell::new(BTreeMap::new()) }
    }

    /// The names that an object has in a directory by its own word.
    pub(crate) fn names_in(&self, dir: FileId, child: FileId) -> Vec<Name> {
        if let Some(state) = self.file(child) {
            let here = places(child, &state).into_iter().filter(|place| place.dir == dir);
            return here.map(|place| place.name).collect();
        }
        self.place(child).filter(|(parent, _)| *parent == dir).map(|(_, name)| name).into_iter().collect()
    }
}

impl Objects for HeldObjects<'_> {
    fn file(&self, id: FileId) -> Option<Cow<'_, FileState>> {
        match self.changes.files.get(&id) {
            Some(state) => Some(Cow::Borrowed(state)),
            None => self.rows.file(id).map(|file| Cow::Owned(file.state.clone())),
        }
    }

    fn dir(&self, id: FileId) -> Option<Cow<'_, DirHead>> {
        match self.changes.dirs.get(&id) {
            Some(head) => Some(Cow::Borrowed(head)),
            None => self.rows.dir(id).map(|dir| Cow::Owned(dir.head.clone())),
        }
    }

    fn place(&self, dir: FileId) -> Option<(FileId, Name)> {
        if dir == FileId::ROOT {
            return None;
        }
        let head = self.dir(dir)?;
        let place = self.changes.places.get(&dir).or_else(|| self.spine.place(dir))?;
        // The later of the rename in place and of the move names it. At the birth both have one stamp.
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
        let (keys, ids) = self.rows.near(dir, name);
        let mut near: BTreeSet<EntryKey> = keys.into_iter().collect();
        for child in ids {
            let names = self.names_in(dir, child).into_iter();
            near.extend(names.map(|name| EntryKey { name, child }));
        }
        match (self.changes.near.get(&dir), name) {
            (Some(changed), Some(name)) => {
                // Each change of a record may ask for its name: to look at all of them each time would take the square of that.
                let key = |child| EntryKey { name: name.clone(), child: FileId(child) };
                near.extend(changed.range(key(0)..=key(u128::MAX)).cloned());
            }
            (Some(changed), None) => near.extend(changed.iter().cloned()),
            (None, _) => {}
        }
        near.into_iter().filter(|key| name.is_none_or(|name| key.name == *name)).collect()
    }

    fn site(&self, writer: Writer) -> Cow<'_, str> {
        Cow::Owned((self.site)(writer))
    }

    fn life(&self, dir: FileId) -> Life {
        if let Some(life) = self.lives.borrow().get(&dir) {
            return *life;
        }
        let life = atoll_shown::life(self, dir);
        self.lives.borrow_mut().insert(dir, life);
        life
    }
}
