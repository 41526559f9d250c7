//! The state, as the view reads it.

use std::io;

use atoll_core::{Ino, Name};
use atoll_proto::{Dir, Entry, Inode, Xattrs};

/// The state as of now. What it shows must be synced in the log: the view removes natively what is
/// gone here.
pub trait Source {
    /// A file homed here.
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>>;
    /// A directory of the skeleton.
    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>>;
    /// A name in a directory of the skeleton: any if it is owned here, else one of a directory of the
    /// skeleton or of a file homed here.
    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>>;
    /// Extended attributes of a file or directory that has some.
    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>>;
    /// From now on, what the view reads of this file is laid, because a name of it is.
    fn lays(&self, _ino: Ino) {}
    /// This id has changed since what is being laid was listed: it will be listed again.
    fn waits(&self, _ino: Ino) -> bool {
        false
    }
    /// What is being laid is a part of what has changed: the rest will be listed.
    fn is_part(&self) -> bool {
        false
    }
    /// The file is gone, and somebody is still inside its body, which stays until then: it will be listed again.
    fn keeps(&self, _ino: Ino) -> bool {
        false
    }
    /// Bytes that the state tells of may not be in this file yet, or others are already: how it looks
    /// natively says nothing.
    fn in_flux(&self, _ino: Ino) -> bool {
        false
    }
    /// The view looks now at what it has made of this file, and will know it as that: what disturbed it before is over.
    fn looks_at(&self, _ino: Ino) {}
    /// Called before each native object that comes or goes: may wait while others need the disk.
    fn rest(&self) {}
}

/// All of the state.
pub trait Whole: Source {
    /// Ids of all files homed here.
    fn inodes(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_>;
    /// Ids of all directories of the skeleton.
    fn dirs(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_>;
    /// All names in a directory of the skeleton, as [`Source::entry`] has them.
    fn names(&self, dir: Ino) -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>> + '_>;
}
