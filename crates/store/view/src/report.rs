//! The report of a laying: things that the view left as they are, and why.

use std::fmt;

use atoll_core::{Ino, Name};

/// The subject of a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A file or directory.
    Id(Ino),
    /// A name in a directory.
    Name(Ino, Name),
}

/// Why something is natively not as in the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The name is held by something that was not laid here.
    Taken,
    /// The name is gone from the state, but is now something that was not laid here: it stays.
    Replaced,
    /// The directory is gone from the state, but holds what was not laid here: it stays.
    NotEmpty,
    /// The state has the name, but not the directory that it is in, or not as a directory.
    NoParent,
    /// Its attributes or content were changed from outside since it was laid; attributes have been
    /// laid again.
    ChangedByHand,
    /// Device files are not made here.
    Device,
    /// The native file system refused: its errno.
    Refused(i32),
    /// The native file system refused extended attributes, with this errno. They are kept beside the tree.
    Spilled(i32),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("the name is held by something that Atoll did not put there"),
            Self::Replaced => f.write_str("it was removed, but something else has its name now"),
            Self::NotEmpty => f.write_str("the directory was removed, but holds other things"),
            Self::NoParent => f.write_str("its directory is not there"),
            Self::ChangedByHand => f.write_str("it was changed from outside"),
            Self::Device => f.write_str("device files are not made"),
            Self::Refused(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
            Self::Spilled(errno) => {
                let why = std::io::Error::from_raw_os_error(*errno);
                write!(f, "extended attributes are kept in xattrs/, beside the plain tree: {why}")
            }
        }
    }
}

/// Something that is natively not as in the state, and stays so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The subject.
    pub subject: Subject,
    /// Why.
    pub why: Why,
}

/// The report of one [`View::lay`](crate::View::lay).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Names linked or replaced.
    pub linked: u64,
    /// Names removed.
    pub unlinked: u64,
    /// Directories made, moved or removed.
    pub dirs: u64,
    /// Things that were left as they are.
    pub conflicts: Vec<Conflict>,
}

impl Report {
    pub(crate) fn conflict(&mut self, subject: Subject, why: Why) {
        self.conflicts.push(Conflict { subject, why });
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.linked += other.linked;
        self.unlinked += other.unlinked;
        self.dirs += other.dirs;
        self.conflicts.extend(other.conflicts);
    }
}
