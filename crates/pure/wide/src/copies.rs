//! Copies that conflicts have made, by the files of which they are: when there are too many of one. Owns which copies count, and which of
//! them go. Makes no change.

use std::collections::BTreeMap;

use atoll_causal::{Dot, FileId, FileState, FileVersion};
use atoll_core::{Decode, Malformed, Name};
use atoll_proto::{Record, RowChange};
use atoll_shown::copy_id;
use bytes::Bytes;

use crate::rows::{COPIES, CopiesRow};

/// A copy that nobody has used: it is as the conflict has made it, at the place where that was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnusedCopy {
    /// Its only version: the oldest copy is first.
    pub(crate) version: FileVersion,
    pub(crate) id: FileId,
    pub(crate) link: Dot,
    pub(crate) dir: FileId,
    pub(crate) name: Name,
}

impl UnusedCopy {
    /// By the state of a file. A copy that somebody has renamed, linked or changed is a file like others.
    pub(crate) fn of(id: FileId, state: &FileState) -> Option<Self> {
        let of = state.birth.copy_of?;
        let mut versions = state.versions.iter();
        let (dot, version) = versions.next().filter(|_| versions.next().is_none())?;
        let mut places = state.places();
        let (link, place) = places.next().filter(|_| places.next().is_none())?;
        // What somebody had open when another site replaced it, and goes on in, is a file of its own from its birth on.
        let is_made = link == dot && id == copy_id(of, dot);
        let is_unused = is_made && place.stamp == version.stamp;
        let (dir, name) = (place.dir, place.name.clone());
        is_unused.then_some(Self { version: *version, id, link, dir, name })
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct CopiesOfFiles {
    most: usize,
    /// Files that may have too many, each with the time in milliseconds before which that is not looked at.
    over: BTreeMap<FileId, u64>,
}

impl CopiesOfFiles {
    /// At most so many of a file stay. Goes on with the rows of [`COPIES`], among others.
    pub(crate) fn open<'a>(
        most: usize,
        rows: impl IntoIterator<Item = &'a (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let mut copies = Self { most, over: BTreeMap::new() };
        for (_, of, row) in rows.into_iter().filter(|(table, ..)| *table == COPIES) {
            copies.note(FileId(*of), &CopiesRow::from_slice(row)?);
        }
        Ok(copies)
    }

    /// How many of a file stay.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    fn note(&mut self, of: FileId, CopiesRow::Copies { ids }: &CopiesRow) {
        if ids.len() > self.most {
            self.over.insert(of, 0);
        } else {
            self.over.remove(&of);
        }
    }

    /// A record is decided.
    pub(crate) fn noted(&mut self, record: &Record) {
        for change in &record.changes {
            if let RowChange::Side { table: COPIES, id, row: Some(row) } = change {
                self.note(FileId(*id), &CopiesRow::from_slice(row).expect("this site has written it"));
            }
        }
    }

    /// A file that may have too many, and is to be looked at.
    pub(crate) fn due(&self, ms: u64) -> Option<FileId> {
        self.over.iter().find(|(_, after_ms)| **after_ms <= ms).map(|(of, _)| *of)
    }

    /// It is looked at again later.
    pub(crate) fn later(&mut self, of: FileId, after_ms: u64) {
        self.over.insert(of, after_ms);
    }
}
