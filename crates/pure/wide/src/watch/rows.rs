//! The rows that a record leaves, by their keys: a record may set a row twice, and only the last one counts. Compares nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, Name};
use atoll_proto::{BodyChange, Dir, Entry, Inode, Record, RowChange, Xattrs};

/// See the module. A row that is removed is `None`.
#[derive(Debug, Default)]
pub(super) struct LastRows<'a> {
    inodes: BTreeMap<Ino, Option<&'a Inode>>,
    dirs: BTreeMap<Ino, Option<&'a Dir>>,
    entries: BTreeMap<(Ino, &'a Name), Option<&'a Entry>>,
    xattrs: BTreeMap<Ino, Option<&'a Xattrs>>,
    /// Bytes of blocks that get a checksum.
    sums: BTreeMap<Ino, Vec<Range<u64>>>,
    bodies: BTreeMap<Ino, Vec<&'a BodyChange>>,
}

impl<'a> LastRows<'a> {
    pub(super) fn of(record: &'a Record) -> Self {
        let mut rows = Self::default();
        for change in &record.changes {
            match change {
                RowChange::Inode { ino, row } => drop(rows.inodes.insert(*ino, row.as_deref())),
                RowChange::Dir { ino, row } => drop(rows.dirs.insert(*ino, row.as_deref())),
                RowChange::Entry { dir, name, row } => drop(rows.entries.insert((*dir, name), row.as_ref())),
                RowChange::Xattrs { ino, row } => drop(rows.xattrs.insert(*ino, row.as_ref())),
                RowChange::Sums { ino, first, sums } => {
                    let (from, len) = (first * BLOCK_BYTES, sums.len() as u64 * BLOCK_BYTES);
                    rows.sums.entry(*ino).or_default().push(from..from + len);
                }
                // All others are the island's own. A cut of checksums comes with the new length.
                _ => {}
            }
        }
        for change in &record.bodies {
            rows.bodies.entry(change.ino()).or_default().push(change);
        }
        rows
    }

    /// The row of a file or of a removed directory, if the record sets or removes it.
    pub(super) fn inode(&self, ino: Ino) -> Option<Option<&'a Inode>> {
        self.inodes.get(&ino).copied()
    }

    /// The row of a directory that the record sets.
    pub(super) fn dir(&self, ino: Ino) -> Option<&'a Dir> {
        self.dirs.get(&ino).copied().flatten()
    }

    /// The directories whose rows the record sets.
    pub(super) fn dirs(&self) -> impl Iterator<Item = (Ino, &'a Dir)> {
        self.dirs.iter().filter_map(|(ino, row)| Some((*ino, (*row)?)))
    }

    /// The names that the record sets or removes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Ino, &'a Name, Option<&'a Entry>)> {
        self.entries.iter().map(|((dir, name), row)| (*dir, *name, *row))
    }

    /// The extended attributes that the record leaves, if it changes them.
    pub(super) fn xattrs(&self, ino: Ino) -> Option<Option<&'a Xattrs>> {
        self.xattrs.get(&ino).copied()
    }

    /// The files that the record is about, and removed directories.
    pub(super) fn files(&self) -> BTreeSet<Ino> {
        self.inodes.keys().chain(self.sums.keys()).chain(self.bodies.keys()).copied().collect()
    }

    /// What the record does to the body of a file, in order.
    pub(super) fn body(&self, ino: Ino) -> &[&'a BodyChange] {
        self.bodies.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// Bytes of a file whose blocks get checksums, with those of the last block that are behind the file's end.
    pub(super) fn sums(&self, ino: Ino) -> &[Range<u64>] {
        self.sums.get(&ino).map_or(&[], Vec::as_slice)
    }
}
