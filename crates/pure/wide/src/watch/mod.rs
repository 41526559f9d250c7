//! What a record does to the files and directories of a site, read from the rows that it sets. Decides nothing, keeps nothing, and knows
//! nothing of other sites.
//!
//! The island of a site has its volume alone. So it makes each record from one operation: one name is given, removed or replaced, or two
//! are exchanged. Other records change attributes or bytes. A recovery's record may change the bytes of many files.
//!
//! Nothing is told of these:
//!
//! - a file or a directory without a name. It never gets one again, so nobody but those who have it open sees it,
//! - times of access, and of changes of anything, which do not travel,
//! - a directory's mtime if its names change, since the names tell it,
//! - space that is reserved, since it reads as before,
//! - the root when it is made, since all sites have it from the beginning,
//! - rows that an island has for itself: sessions, locks, stamps, checksums.

mod attrs;
mod names;
mod ranges;
mod rows;

use atoll_core::{Ino, Time};
use atoll_posix::Kind;
use atoll_proto::{Entry, EntryRef, Record};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

pub use ranges::ByteRanges;

use rows::LastRows;

/// A file or a directory of this site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalObject {
    /// Anything but a directory.
    File(Ino),
    /// A directory.
    Dir(Ino),
}

impl LocalObject {
    const fn of(entry: &Entry) -> Self {
        match entry.kind {
            Kind::Directory => Self::Dir(entry.ino),
            _ => Self::File(entry.ino),
        }
    }

    /// Its id.
    pub const fn ino(self) -> Ino {
        match self {
            Self::File(ino) | Self::Dir(ino) => ino,
        }
    }
}

/// What a file or a directory is when it is made. A file has no bytes then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Birth {
    /// Its type.
    pub kind: Kind,
    /// The twelve permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was made.
    pub mtime: Time,
    /// Device number of a device, otherwise 0.
    pub rdev: u32,
    /// Target of a symbolic link, otherwise empty.
    pub target: Bytes,
}

/// An attribute that has changed, and its value now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttrValue {
    /// The twelve permission bits.
    Mode(u32),
    /// Owner.
    Uid(u32),
    /// Group.
    Gid(u32),
    /// Time of the last change of content: somebody has set it, or content was changed to what it was.
    Mtime(Time),
    /// An extended attribute, such as an ACL. Without a value it was removed.
    Xattr {
        /// Its name.
        name: Bytes,
        /// Its value.
        value: Option<Bytes>,
    },
}

/// One thing that a record does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A name was removed, by its own operation or because another one was renamed over it.
    Removed {
        /// What had it.
        object: LocalObject,
        /// The name.
        at: EntryRef,
        /// It was the only name. No further event is about this object, though somebody may still have it open.
        is_last: bool,
    },
    /// A name has become another one, which is free: if something had it, its removal comes before this.
    Moved {
        /// What has it.
        object: LocalObject,
        /// The name before.
        from: EntryRef,
        /// The name now.
        to: EntryRef,
    },
    /// Two names were exchanged.
    Exchanged {
        /// What had the one name and has the other.
        one: LocalObject,
        /// The name of `one` before.
        one_from: EntryRef,
        /// What had the other name and has the one.
        other: LocalObject,
        /// The name of `other` before.
        other_from: EntryRef,
    },
    /// Something was made. Its extended attributes, if it has some, come as changes behind this.
    Born {
        /// It.
        object: LocalObject,
        /// Its name.
        at: EntryRef,
        /// What it is.
        birth: Birth,
    },
    /// A file got one more name.
    Linked {
        /// The file.
        ino: Ino,
        /// The new name.
        at: EntryRef,
    },
    /// An attribute has changed.
    AttrChanged {
        /// Of what.
        object: LocalObject,
        /// Which one, and its value.
        to: AttrValue,
    },
    /// Bytes of a regular file have changed, or its length.
    Written {
        /// The file.
        ino: Ino,
        /// Its length now, in bytes.
        size: u64,
        /// The bytes below `size` that may differ from before. Whoever has the file as it was, cuts or extends it to `size` and puts the
        /// bytes of these ranges in place, has it as it is.
        ranges: ByteRanges,
        /// Time of the last change of content, which belongs to these bytes. No other event tells it.
        mtime: Time,
    },
}

/// What a record does to the files and directories of a site: first to names, then to attributes and bytes. `state` has the rows as they
/// are before the record is applied. A row of it that is needed and not in memory is the error: load it and ask again.
///
/// # Panics
/// If no island that has its volume alone makes such a record.
pub fn happened(state: &State, record: &Record) -> Result<Vec<Happened>, NotInMemory> {
    if state.seq() == 0 {
        // The first record makes the root.
        return Ok(Vec::new());
    }
    let rows = LastRows::of(record);
    let names = names::NameChanges::of(state, &rows)?;
    let born = names.born();
    let touched = names.directories();
    let mut happened = names.into_happened();
    for (ino, row) in rows.dirs() {
        attrs::of_dir(state, &rows, ino, row, &born, &touched, &mut happened)?;
    }
    for ino in rows.files() {
        attrs::of_file(state, &rows, ino, &born, &mut happened)?;
    }
    Ok(happened)
}
