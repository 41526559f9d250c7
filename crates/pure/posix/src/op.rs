//! File-system operations and their answers, in POSIX's terms.
//!
//! Bodies' bytes travel beside an operation or answer, never inside it.

use crate::atime::Readings;
use crate::attr::{Attr, Kind, SetAttr};
use atoll_core::{Ino, Name, wire_enum, wire_struct};
use bytes::Bytes;

wire_enum! {
    /// How a rename treats a name that is taken.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RenameMode {
        /// The old file of that name is removed in the same step.
        1 => Replace,
        /// `RENAME_NOREPLACE`: fail with `EEXIST`.
        2 => NoReplace,
        /// `RENAME_EXCHANGE`: both names must exist, and swap.
        3 => Exchange,
    }
}

wire_enum! {
    /// Whether a setxattr may make or replace the attribute.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum XattrMode {
        /// Either.
        1 => Any,
        /// `XATTR_CREATE`: `EEXIST` if it is there.
        2 => Create,
        /// `XATTR_REPLACE`: `ENODATA` if it is not.
        3 => Replace,
    }
}

wire_enum! {
    /// What `lseek` looks for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Whence {
        /// `SEEK_DATA`.
        1 => Data,
        /// `SEEK_HOLE`.
        2 => Hole,
    }
}

wire_enum! {
    /// What `fallocate` does to a range.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Allocation {
        /// Reserve space; the file grows to the range's end unless `keep_size`.
        1 => Allocate { /// The file keeps its size.
            keep_size: bool },
        /// `FALLOC_FL_PUNCH_HOLE`: reads as zeros, space is given back, size stays.
        2 => PunchHole,
        /// `FALLOC_FL_ZERO_RANGE`: reads as zeros.
        3 => ZeroRange { /// The file keeps its size.
            keep_size: bool },
    }
}

wire_enum! {
    /// What a lock keeps others from doing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LockKind {
        /// Shared: others may read-lock.
        1 => Read,
        /// Exclusive.
        2 => Write,
        /// None: takes locks away.
        3 => Unlock,
    }
}

wire_struct! {
    /// A lock on a range of bytes, or on a whole file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LockRange {
        /// First byte.
        pub start: u64,
        /// Last byte, inclusive; `u64::MAX` is the end of the file wherever that will be.
        pub end: u64,
        /// What it keeps others from doing.
        pub kind: LockKind,
        /// Whose it is within the session: the kernel's lock owner.
        pub owner: u64,
        /// The process to show in `F_GETLK`.
        pub pid: u32,
        /// `flock(2)`; otherwise `fcntl(2)`. The two kinds do not see each other.
        pub flock: bool,
    }
}

wire_enum! {
    /// One operation of a file system. Directories and files are named by id.
    ///
    /// Permission to walk to a directory was checked by whoever walked; the last step is checked
    /// with the caller's credentials where the operation is decided.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Op {
        /// Find a name in a directory. `Answer::Found`.
        1 => Lookup { /// The directory.
            dir: Ino, /// The name.
            name: Name },
        /// Attributes. `Answer::Attr`.
        2 => GetAttr { /// Of what.
            ino: Ino },
        /// Change attributes. `Answer::Attr`.
        3 => SetAttr { /// Of what.
            ino: Ino, /// To what.
            set: SetAttr },
        /// Make anything but a directory. `Answer::Found`. If the name is taken: `EEXIST` when
        /// `exclusive`, otherwise the file that is there.
        4 => Create { /// In this directory.
            dir: Ino, /// The new name.
            name: Name, /// Type.
            kind: Kind, /// Permission bits before the umask.
            mode: u32, /// The caller's umask, which a default ACL replaces.
            umask: u32, /// Device number.
            rdev: u32, /// Fail if the name is taken.
            exclusive: bool, /// Target of a symbolic link, otherwise empty.
            target: Bytes },
        /// Make a directory. `Answer::Found`.
        5 => Mkdir { /// In this directory.
            dir: Ino, /// The new name.
            name: Name, /// Permission bits before the umask.
            mode: u32, /// The caller's umask.
            umask: u32 },
        /// Remove a name of a file. `Answer::Removed`.
        6 => Unlink { /// In this directory.
            dir: Ino, /// The name.
            name: Name },
        /// Remove an empty directory. `Answer::Done`.
        7 => Rmdir { /// In this directory.
            dir: Ino, /// The name.
            name: Name, /// What the caller means by it: `ESTALE` if it names something else.
            meant: Option<Ino> },
        /// Change a name. `Answer::Removed` (of what was replaced).
        8 => Rename { /// From this directory.
            dir: Ino, /// The old name.
            name: Name, /// To this directory.
            new_dir: Ino, /// The new name.
            new_name: Name, /// What happens to a file of that name.
            mode: RenameMode, /// What the caller means by the old name: `ESTALE` if it names something else.
            meant: Option<Ino>, /// By the new one: `ESTALE` if it names something else, or nothing.
            new_meant: Option<Ino> },
        /// Give a file one more name. `Answer::Found`.
        9 => Link { /// The file.
            ino: Ino, /// In this directory.
            dir: Ino, /// The new name.
            name: Name },
        /// Target of a symbolic link. `Answer::Data`.
        10 => Readlink { /// The link.
            ino: Ino },
        /// Bytes of a file. `Answer::Data`, shorter only at the end of the file.
        11 => Read { /// The file.
            ino: Ino, /// First byte.
            offset: u64, /// How many.
            len: u32 },
        /// Change bytes of a file; they travel beside the operation. `Answer::Wrote`.
        12 => Write { /// The file.
            ino: Ino, /// First byte; ignored when `append`.
            offset: u64, /// Write at the end, wherever it is when the write is decided.
            append: bool, /// Take away set-id bits.
            kill_set_id: bool },
        /// Reserve, punch or zero a range. `Answer::Done`.
        13 => Fallocate { /// The file.
            ino: Ino, /// First byte.
            offset: u64, /// How many.
            len: u64, /// What to do.
            what: Allocation },
        /// Next data or hole. `Answer::Offset`; `ENXIO` past the end.
        14 => Seek { /// The file.
            ino: Ino, /// From here.
            offset: u64, /// What to look for.
            whence: Whence },
        /// Copy bytes from file to file without moving them through the caller. `Answer::Wrote`;
        /// `EXDEV` makes the kernel copy by reading and writing.
        15 => CopyRange { /// From.
            from: Ino, /// First byte there.
            from_offset: u64, /// To.
            to: Ino, /// First byte there.
            to_offset: u64, /// How many.
            len: u64 },
        /// Everything that was acknowledged of this file survives a power cut. `Answer::Done`.
        16 => Fsync { /// The file.
            ino: Ino },
        /// Every name that was acknowledged in this directory survives a power cut. `Answer::Done`.
        17 => FsyncDir { /// The directory.
            dir: Ino },
        /// Names of a directory. `Answer::Entries`; the list ends where `eof` says so.
        18 => ReadDir { /// The directory.
            dir: Ino, /// 0, or the cookie of the last name that was seen.
            after: u64, /// How many bytes of names and attributes to answer with, about.
            bytes: u32, /// With attributes of every entry.
            plus: bool },
        /// Value of an extended attribute. `Answer::Data`; `ENODATA` if there is none.
        19 => GetXattr { /// Of what.
            ino: Ino, /// The attribute, such as `user.mime`.
            name: Bytes },
        /// Set an extended attribute. `Answer::Done`.
        20 => SetXattr { /// Of what.
            ino: Ino, /// The attribute.
            name: Bytes, /// Its value.
            value: Bytes, /// May it be made or replaced.
            mode: XattrMode, /// `FUSE_SETXATTR_ACL_KILL_SGID`.
            kill_sgid: bool },
        /// Names of the extended attributes, each with a NUL behind it. `Answer::Data`.
        21 => ListXattr { /// Of what.
            ino: Ino },
        /// Remove an extended attribute. `Answer::Done`; `ENODATA` if there is none.
        22 => RemoveXattr { /// Of what.
            ino: Ino, /// The attribute.
            name: Bytes },
        /// Space and inodes, summed over all islands. `Answer::Statfs`.
        23 => Statfs,
        /// Would this lock be granted? `Answer::Lock`.
        24 => GetLock { /// The file.
            ino: Ino, /// The lock.
            lock: LockRange },
        /// Take or give up a lock. `Answer::Done`; `EAGAIN` when taken and not `wait`.
        25 => SetLock { /// The file.
            ino: Ino, /// The lock.
            lock: LockRange, /// Wait until it is free.
            wait: bool },
        /// It was read a while ago, which may change its time of access and nothing else. A hint that nobody waits
        /// for. `Answer::Done`.
        26 => Accessed { /// What was read.
            ino: Ino, /// When.
            access: Readings },
        /// What of read, write and execute (search) the caller has. `Answer::Access`.
        27 => Access { /// Of what.
            ino: Ino },
        /// The directory above; the root is above itself. `Answer::Found`.
        28 => Parent { /// Of this directory.
            dir: Ino },
        /// Make a regular file without a name (`O_TMPFILE`). `Answer::Found`.
        29 => Tmpfile { /// Where a name may be given to it later, and whose rules for new files it follows.
            dir: Ino, /// Permission bits before the umask.
            mode: u32, /// The caller's umask, which a default ACL replaces.
            umask: u32 },
    }
}

impl Op {
    /// The file that it is about, if it names one by its id and is decided by its home.
    #[must_use]
    pub const fn file(&self) -> Option<Ino> {
        match self {
            Self::GetAttr { ino }
            | Self::SetAttr { ino, .. }
            | Self::Readlink { ino }
            | Self::Read { ino, .. }
            | Self::Write { ino, .. }
            | Self::Fallocate { ino, .. }
            | Self::Seek { ino, .. }
            | Self::Fsync { ino }
            | Self::GetXattr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::ListXattr { ino }
            | Self::RemoveXattr { ino, .. }
            | Self::GetLock { ino, .. }
            | Self::SetLock { ino, .. }
            | Self::Accessed { ino, .. }
            | Self::Access { ino }
            | Self::CopyRange { to: ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// The directories that it names as such: whose names it reads or changes, that it syncs, or whose parent it asks for.
    /// A rename within one directory names it twice.
    #[must_use]
    pub const fn dirs(&self) -> [Option<Ino>; 2] {
        match self {
            Self::Lookup { dir, .. }
            | Self::Create { dir, .. }
            | Self::Mkdir { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Rmdir { dir, .. }
            | Self::Link { dir, .. }
            | Self::FsyncDir { dir }
            | Self::ReadDir { dir, .. }
            | Self::Parent { dir }
            | Self::Tmpfile { dir, .. } => [Some(*dir), None],
            Self::Rename { dir, new_dir, .. } => [Some(*dir), Some(*new_dir)],
            _ => [None, None],
        }
    }

    /// What it is about: the directories that it names as such, each once, or the file or directory that it names by its
    /// id.
    #[must_use]
    pub fn subjects(&self) -> [Option<Ino>; 2] {
        match self.dirs() {
            [None, _] => [self.file(), None],
            [dir, other] => [dir, other.filter(|other| Some(*other) != dir)],
        }
    }

    /// Whether it can change something: a name, attributes, a body or a lock. A time of access does not count: it
    /// need not survive anything, and setting it twice does no harm.
    #[must_use]
    pub const fn changes(&self) -> bool {
        matches!(
            self,
            Self::SetAttr { .. }
                | Self::Create { .. }
                | Self::Mkdir { .. }
                | Self::Unlink { .. }
                | Self::Rmdir { .. }
                | Self::Rename { .. }
                | Self::Link { .. }
                | Self::Write { .. }
                | Self::Fallocate { .. }
                | Self::CopyRange { .. }
                | Self::SetXattr { .. }
                | Self::RemoveXattr { .. }
                | Self::SetLock { .. }
                | Self::Tmpfile { .. }
        )
    }
}

wire_struct! {
    /// A file or directory that was found or made under a name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NamedObject {
        /// Its attributes.
        pub attr: Attr,
        /// False when the size, times and link count of a directory are only the last known ones:
        /// ask with `GetAttr`, which goes to its owner.
        pub attr_current: bool,
    }
}

wire_struct! {
    /// One name of a listing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirEntry {
        /// The name.
        pub name: Name,
        /// What it names.
        pub ino: Ino,
        /// Type of that.
        pub kind: Kind,
        /// Where to go on after this name; never 0, and the same however the directory changes.
        pub cookie: u64,
        /// With `plus`, the attributes.
        pub found: Option<NamedObject>,
    }
}

wire_enum! {
    /// What an operation that succeeded tells.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Answer {
        /// Nothing but that it is done.
        1 => Done,
        /// What was found or made.
        2 => Found { /// It.
            found: NamedObject },
        /// Attributes.
        3 => Attr { /// They.
            attr: Attr },
        /// Bytes, which travel beside the answer.
        4 => Data,
        /// So many bytes were written.
        5 => Wrote { /// Bytes.
            len: u64, /// Where, when appended.
            offset: u64 },
        /// An offset in a file.
        6 => Offset { /// Bytes from the start.
            offset: u64 },
        /// Part of a listing.
        7 => Entries { /// The names, in the order of their cookies.
            entries: Vec<DirEntry>, /// Nothing follows.
            eof: bool },
        /// Space of the volume.
        8 => Statfs { /// Bytes.
            bytes: u64, /// Bytes free to anyone.
            bytes_free: u64, /// Bytes free to users.
            bytes_available: u64, /// Inodes.
            inodes: u64, /// Inodes free.
            inodes_free: u64, /// Which native file system; 0 for a sum.
            fs_id: u64 },
        /// The first lock that stands in the way (kind, owner, pid), or the one asked for with
        /// `LockKind::Unlock`.
        9 => Lock { /// It.
            lock: LockRange },
        /// A name went. If it was the last of its file, the file lives on as an orphan until every
        /// mount has let go of it.
        10 => Removed { /// The file that has no name any more.
            orphan: Option<Ino> },
        /// What the caller has of read (4), write (2) and execute or search (1), added up.
        11 => Access { /// It.
            granted: u8 },
    }
}
