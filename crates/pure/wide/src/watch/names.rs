//! Changes of names: which object has lost or got which name, and what that is. Never looks at attributes.

use std::collections::BTreeSet;

use atoll_core::{Ino, Time};
use atoll_posix::Kind;
use atoll_proto::EntryRef;
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

use super::rows::LastRows;
use super::{Birth, Happened, LocalObject};

/// What a record does to names.
#[derive(Debug, Default)]
pub(super) struct NameChanges {
    removed: Vec<Happened>,
    /// What has another name: before, and now.
    moved: Vec<(LocalObject, EntryRef, EntryRef)>,
    /// What has one name more than before.
    added: Vec<Happened>,
    directories: BTreeSet<Ino>,
}

impl NameChanges {
    pub(super) fn of(state: &State, rows: &LastRows<'_>) -> Result<Self, NotInMemory> {
        let (mut lost, mut got) = (Vec::new(), Vec::new());
        for (dir, name, row) in rows.entries() {
            let before = state.entry(dir, name)?;
            if before.map(|entry| entry.ino) == row.map(|entry| entry.ino) {
                // It tells other attributes of a directory.
                continue;
            }
            let at = || EntryRef { dir, name: name.clone() };
            lost.extend(before.map(|entry| (LocalObject::of(entry), at())));
            got.extend(row.map(|entry| (LocalObject::of(entry), at())));
        }
        let directories = lost.iter().chain(&got).map(|(_, at)| at.dir).collect();
        let mut changes = Self { directories, ..Self::default() };
        for (object, from) in lost {
            match got.iter().position(|(other, _)| *other == object) {
                Some(found) => changes.moved.push((object, from, got.remove(found).1)),
                None => {
                    let is_last = is_last(rows, object);
                    changes.removed.push(Happened::Removed { object, at: from, is_last });
                }
            }
        }
        changes.added = got.into_iter().map(|(object, at)| added(rows, object, at)).collect();
        Ok(changes)
    }

    /// What was made.
    pub(super) fn born(&self) -> BTreeSet<LocalObject> {
        let born = |happened: &Happened| match happened {
            Happened::Born { object, .. } => Some(*object),
            _ => None,
        };
        self.added.iter().filter_map(born).collect()
    }

    /// The directories whose names have changed.
    pub(super) fn directories(&self) -> BTreeSet<Ino> {
        self.directories.clone()
    }

    /// All of it: removals first, since what is moved may take a name that became free.
    pub(super) fn into_happened(self) -> Vec<Happened> {
        let Self { removed: mut happened, moved, added, .. } = self;
        match <[_; 2]>::try_from(moved) {
            Ok([(one, one_from, one_to), (other, other_from, other_to)]) => {
                assert!(
                    one_to == other_from && other_to == one_from,
                    "{one:?} and {other:?} are renamed by one record and do not change places"
                );
                happened.push(Happened::Exchanged { one, one_from, other, other_from });
            }
            Err(moved) => {
                assert!(moved.len() <= 1, "one record renames {} objects", moved.len());
                let moved = moved.into_iter();
                happened.extend(moved.map(|(object, from, to)| Happened::Moved { object, from, to }));
            }
        }
        happened.extend(added);
        happened
    }
}

/// Whether what has lost a name has none left.
fn is_last(rows: &LastRows<'_>, object: LocalObject) -> bool {
    match object {
        LocalObject::Dir(_) => true,
        LocalObject::File(ino) => {
            let row = rows.inode(ino).expect("a file that loses a name has fewer links");
            row.is_none_or(|row| row.attr.nlink == 0)
        }
    }
}

/// What it is that gets a name and loses none. What has no name never gets one, so a file with one link is born now.
fn added(rows: &LastRows<'_>, object: LocalObject, at: EntryRef) -> Happened {
    let birth = match object {
        LocalObject::Dir(ino) => {
            let row = rows.dir(ino).expect("a directory gets its name when it is made");
            let (kind, rdev, target) = (Kind::Directory, 0, Bytes::new());
            let (mode, uid, gid) = (row.fixed.mode, row.fixed.uid, row.fixed.gid);
            Birth { kind, mode, uid, gid, mtime: mtime_of(row), rdev, target }
        }
        LocalObject::File(ino) => {
            let row = rows.inode(ino).flatten().expect("a file that gets a name has more links");
            if row.attr.nlink > 1 {
                return Happened::Linked { ino, at };
            }
            let (attr, target) = (&row.attr, row.target.clone().unwrap_or_default());
            let (kind, mode, uid, gid) = (attr.kind, attr.mode, attr.uid, attr.gid);
            Birth { kind, mode, uid, gid, mtime: attr.mtime, rdev: attr.rdev, target }
        }
    };
    Happened::Born { object, at, birth }
}

/// The time of the last change of a directory's names.
pub(super) fn mtime_of(row: &atoll_proto::Dir) -> Time {
    row.owned.as_ref().expect("an island that has its volume alone owns each directory").mtime
}
