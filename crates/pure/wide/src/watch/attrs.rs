//! Changes of attributes, extended attributes and bytes of what has a name before and after a record. Never looks at names.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, Time};
use atoll_posix::Kind;
use atoll_proto::{Dir, Inode, Xattrs};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

use super::names::mtime_of;
use super::rows::LastRows;
use super::{AttrValue, ByteRanges, Happened, LocalObject};

/// The registers of a file or directory that travel, but for its extended attributes.
struct Registers {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: Time,
}

impl Registers {
    const fn of_file(row: &Inode) -> Self {
        Self { mode: row.attr.mode, uid: row.attr.uid, gid: row.attr.gid, mtime: row.attr.mtime }
    }

    fn of_dir(row: &Dir) -> Self {
        Self { mode: row.fixed.mode, uid: row.fixed.uid, gid: row.fixed.gid, mtime: mtime_of(row) }
    }

    /// Those that differ from what they were.
    fn changes_since(&self, before: &Self) -> impl Iterator<Item = AttrValue> {
        let mode = (self.mode != before.mode).then_some(AttrValue::Mode(self.mode));
        let uid = (self.uid != before.uid).then_some(AttrValue::Uid(self.uid));
        let gid = (self.gid != before.gid).then_some(AttrValue::Gid(self.gid));
        let mtime = (self.mtime != before.mtime).then_some(AttrValue::Mtime(self.mtime));
        [mode, uid, gid, mtime].into_iter().flatten()
    }
}

/// What a record does to a directory whose row it sets. `born`: what it makes. `touched`: the directories whose names it changes.
pub(super) fn of_dir(
    state: &State,
    rows: &LastRows<'_>,
    ino: Ino,
    row: &Dir,
    born: &BTreeSet<LocalObject>,
    touched: &BTreeSet<Ino>,
    happened: &mut Vec<Happened>,
) -> Result<(), NotInMemory> {
    let object = LocalObject::Dir(ino);
    let mut had_xattrs = false;
    if !born.contains(&object) {
        let before = state.dir(ino)?.expect("a directory whose row is set is there, or gets a name");
        had_xattrs = before.has_xattrs;
        let (mut now, before) = (Registers::of_dir(row), Registers::of_dir(before));
        if touched.contains(&ino) {
            now.mtime = before.mtime;
        }
        let changes = now.changes_since(&before);
        happened.extend(changes.map(|to| Happened::AttrChanged { object, to }));
    }
    of_xattrs(state, rows, object, had_xattrs, happened)
}

/// What a record does to a file, of which it changes something, or to a removed directory.
pub(super) fn of_file(
    state: &State,
    rows: &LastRows<'_>,
    ino: Ino,
    born: &BTreeSet<LocalObject>,
    happened: &mut Vec<Happened>,
) -> Result<(), NotInMemory> {
    let object = LocalObject::File(ino);
    let row = match rows.inode(ino) {
        Some(row) => row,
        // A recovery has found other bytes in the body, and the length is as it was.
        None => state.inode(ino)?,
    };
    let Some(row) = row.filter(|row| row.attr.nlink > 0 && row.attr.kind != Kind::Directory) else {
        return Ok(());
    };
    if born.contains(&object) {
        return of_xattrs(state, rows, object, false, happened);
    }
    let before = state.inode(ino)?.expect("a file whose row is set is there, or gets its first name");
    let (had_xattrs, was_absent) = (before.has_xattrs, before.is_absent);
    let (size, size_before) = (row.attr.size, before.attr.size);
    let (now, mut before) = (Registers::of_file(row), Registers::of_file(before));
    let ranges = ByteRanges::changed(size_before, size, rows.body(ino), rows.sums(ino));
    // Nobody has seen bytes that are absent. Somebody may have said that there are to be none.
    let is_written = !row.is_absent && (size != size_before || !ranges.is_empty() || was_absent);
    let written = is_written.then(|| {
        before.mtime = now.mtime;
        Happened::Written { ino, size, ranges, mtime: now.mtime }
    });
    let changes = now.changes_since(&before);
    happened.extend(changes.map(|to| Happened::AttrChanged { object, to }));
    of_xattrs(state, rows, object, had_xattrs, happened)?;
    happened.extend(written);
    Ok(())
}

/// What a record does to extended attributes, in the order of their names.
fn of_xattrs(
    state: &State,
    rows: &LastRows<'_>,
    object: LocalObject,
    had_some: bool,
    happened: &mut Vec<Happened>,
) -> Result<(), NotInMemory> {
    let Some(now) = rows.xattrs(object.ino()) else { return Ok(()) };
    let before = if had_some { state.xattrs(object.ino())? } else { None };
    let by_name = |xattrs: Option<&'_ Xattrs>| -> BTreeMap<Bytes, Bytes> {
        xattrs.into_iter().flat_map(|xattrs| xattrs.0.iter().cloned()).collect()
    };
    let (before, now) = (by_name(before), by_name(now));
    let names: BTreeSet<&Bytes> = before.keys().chain(now.keys()).collect();
    for name in names.into_iter().filter(|name| before.get(*name) != now.get(*name)) {
        let to = AttrValue::Xattr { name: name.clone(), value: now.get(name).cloned() };
        happened.push(Happened::AttrChanged { object, to });
    }
    Ok(())
}
