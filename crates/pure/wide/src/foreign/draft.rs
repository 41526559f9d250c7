//! Rows of one record while they are put together. Owns their order in the record, and the counts that follow from entries. Never decides
//! what is shown.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, Name, Time};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Inode, Record, RowChange, Xattrs};

use crate::held::SiteRows;

/// See the module.
pub(super) struct RowDraft<'a> {
    rows: &'a SiteRows<'a>,
    /// When it happens here.
    pub(super) now: Time,
    /// Directories that are made, without names.
    made: Vec<(Ino, Dir)>,
    dirs: BTreeMap<Ino, Dir>,
    renamed: BTreeSet<Ino>,
    entries: BTreeMap<(Ino, Name), Option<Entry>>,
    /// By how much the links of files change, of all whose names do.
    links: BTreeMap<Ino, i64>,
    inodes: BTreeMap<Ino, Option<Inode>>,
    xattrs: BTreeMap<Ino, Option<Xattrs>>,
    /// Directories that go.
    gone: BTreeSet<Ino>,
    /// Rows of this machine.
    pub(super) sides: Vec<RowChange>,
}

impl<'a> RowDraft<'a> {
    pub(super) const fn new(rows: &'a SiteRows<'a>, now: Time) -> Self {
        Self {
            rows,
            now,
            made: Vec::new(),
            dirs: BTreeMap::new(),
            renamed: BTreeSet::new(),
            entries: BTreeMap::new(),
            links: BTreeMap::new(),
            inodes: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            gone: BTreeSet::new(),
            sides: Vec::new(),
        }
    }

    // -------------------------------------------------------------- directories

    pub(super) fn make_dir(&mut self, ino: Ino, row: Dir) {
        self.below(row.place.parent, 1);
        self.made.push((ino, row.clone()));
        self.dirs.insert(ino, row);
    }

    /// The row of a directory; none if it is not in memory.
    pub(super) fn dir(&mut self, ino: Ino) -> Option<&mut Dir> {
        if !self.dirs.contains_key(&ino) {
            self.dirs.insert(ino, self.rows.dir_row(ino)?.clone());
        }
        self.dirs.get_mut(&ino)
    }

    /// A directory is at another place.
    pub(super) fn move_dir(&mut self, ino: Ino, parent: Ino, name: &Name) {
        let now = self.now;
        let Some(row) = self.dir(ino) else { return };
        if row.place.parent == parent && row.place.name.as_ref() == Some(name) {
            return;
        }
        let old = std::mem::replace(&mut row.place.parent, parent);
        row.place.name = Some(name.clone());
        row.place.version.moves = row.place.version.moves.saturating_add(1);
        if let Some(owned) = &mut row.owned {
            owned.ctime = owned.ctime.max(now);
        }
        self.renamed.insert(ino);
        self.below(old, -1);
        self.below(parent, 1);
    }

    /// A directory goes. Its names go by themselves.
    pub(super) fn drop_dir(&mut self, ino: Ino) {
        let Some(row) = self.rows.dir_row(ino) else { return };
        self.below(row.place.parent, -1);
        self.gone.insert(ino);
    }

    /// A directory has more or fewer directories.
    fn below(&mut self, ino: Ino, by: i32) {
        if let Some(row) = self.dir(ino) {
            row.children = row.children.checked_add_signed(by).expect("directories below are counted");
        }
    }

    // ------------------------------------------------------------------ entries

    /// What a name of a directory leads to from here on; `is_new`: the directory is.
    pub(super) fn entry(&self, dir: Ino, name: &Name, is_new: bool) -> Option<&Entry> {
        match self.entries.get(&(dir, name.clone())) {
            Some(row) => row.as_ref(),
            None if is_new => None,
            None => self.rows.entry(dir, name),
        }
    }

    /// A name leads to something else, or to nothing; `is_same`: to another body of the same file.
    pub(super) fn set_entry(
        &mut self,
        dir: Ino,
        name: &Name,
        have: Option<&Entry>,
        want: Option<Entry>,
        is_same: bool,
    ) {
        let is_dir =
            |entry: Option<&Entry>| i32::from(entry.is_some_and(|entry| entry.kind == Kind::Directory));
        let (had, has) = (have.map(|entry| entry.ino), want.as_ref().map(|entry| entry.ino));
        if had != has {
            let subdirs = is_dir(want.as_ref()) - is_dir(have);
            let entries = i64::from(has.is_some()) - i64::from(had.is_some());
            for (entry, by) in [(have, -1), (want.as_ref(), 1)] {
                if let Some(entry) = entry.filter(|entry| entry.kind != Kind::Directory) {
                    *self.links.entry(entry.ino).or_default() += by;
                }
            }
            let now = self.now;
            let owned = if is_same { None } else { self.dir(dir).and_then(|row| row.owned.as_mut()) };
            if let Some(owned) = owned {
                owned.entries = owned.entries.checked_add_signed(entries).expect("names are counted");
                owned.subdirs = owned.subdirs.checked_add_signed(subdirs).expect("directories are counted");
                owned.mtime = owned.mtime.max(now);
                owned.ctime = owned.ctime.max(now);
            }
        }
        self.entries.insert((dir, name.clone()), want);
    }

    // -------------------------------------------------------------------- files

    /// By how much the number of a file's links changes; none if its names stay.
    pub(super) fn links(&self, ino: Ino) -> Option<i64> {
        self.links.get(&ino).copied()
    }

    pub(super) fn set_inode(&mut self, row: Inode) {
        self.inodes.insert(row.attr.ino, Some(row));
    }

    /// A file goes.
    pub(super) fn drop_file(&mut self, ino: Ino) {
        self.inodes.insert(ino, None);
    }

    /// The extended attributes of something, if they are others; `had`: it has some. Whether it has some from here on, and an ACL.
    pub(super) fn set_xattrs(&mut self, ino: Ino, had: bool, xattrs: Xattrs) -> (bool, bool) {
        let flags = (!xattrs.0.is_empty(), xattrs.has_acls());
        let is_same = if had { self.rows.xattrs(ino) == Some(&xattrs) } else { xattrs.0.is_empty() };
        if !is_same {
            self.xattrs.insert(ino, flags.0.then_some(xattrs));
        }
        flags
    }

    // ------------------------------------------------------------------- record

    /// The record: a directory is made before it has names, and goes when it has none.
    pub(super) fn finish(mut self) -> Record {
        let gone = std::mem::take(&mut self.gone);
        for ino in &gone {
            let left = self.dirs.get(ino).and_then(|row| row.owned.as_ref()).map_or(0, |owned| owned.entries);
            let had =
                self.rows.dir_row(*ino).and_then(|row| row.owned.as_ref()).map_or(0, |owned| owned.entries);
            assert!(left == 0 && (had == 0 || self.dirs.contains_key(ino)), "{ino} goes, and has names");
        }
        let dir = |(ino, row): (Ino, Dir)| RowChange::Dir { ino, row: Some(Box::new(row)) };
        let rows = self.rows;
        let is_other = |ino: &Ino, row: &Dir| rows.dir_row(*ino) != Some(row);
        let made: BTreeSet<Ino> = self.made.iter().map(|(ino, _)| *ino).collect();
        let mut changes: Vec<RowChange> = self.made.into_iter().map(dir).collect();
        let entry = |((dir, name), row)| RowChange::Entry { dir, name, row };
        changes.extend(self.entries.into_iter().map(entry));
        self.dirs.retain(|ino, row| !gone.contains(ino) && (made.contains(ino) || is_other(ino, row)));
        changes.extend(self.dirs.into_iter().map(dir));
        changes.extend(self.renamed.into_iter().map(|ino| RowChange::Renamed { ino }));
        let inode = |(ino, row): (Ino, Option<Inode>)| RowChange::Inode { ino, row: row.map(Box::new) };
        changes.extend(self.inodes.into_iter().map(inode));
        changes.extend(self.xattrs.into_iter().map(|(ino, row)| RowChange::Xattrs { ino, row }));
        changes.extend(gone.into_iter().map(|ino| RowChange::Dir { ino, row: None }));
        changes.extend(self.sides);
        Record { changes, bodies: Vec::new() }
    }
}
