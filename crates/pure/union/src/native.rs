//! What the machine asks of a member, and what a member answers: plain values, so a member may be anywhere.
//!
//! A member is a directory of a machine with everything below it. Directories and files in it are named by their native
//! identity ([`NativeId`]), so a name that means another file by now is noticed and not acted on.

use atoll_core::{Decode, Encode, Malformed, Name, Reader, Time, wire_struct};
use atoll_posix::{Allocation, Caller, Kind, LockRange, RenameMode, SetAttr, Whence, XattrMode};
use bytes::Bytes;

/// A member of a union: 16 bits of the hash of its identity, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

impl Encode for Tag {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Tag {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(u16::decode(r)?))
    }
}

wire_struct! {
    /// A file or directory, as its file system tells it from all others, also from one that got its inode number later.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct NativeId {
        /// The native inode number.
        pub ino: u64,
        /// When it was made. 0 if the file system does not tell: then the inode number alone counts.
        pub btime: Time,
    }
}

/// Where a member finds an object.
///
/// A directory that was opened in this member ([`NativeCall::OpenDir`], [`NativeCall::Mkdir`], [`NativeCall::MkdirLike`], the root) is found by
/// its identity. Anything else is found if it is open, by its native handle if the member has seen it and may use
/// handles, or by the name at which it was seen last. `ESTALE` if what is found is something else, or nothing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Which object.
    pub id: NativeId,
    /// The directory and the name in it at which it was seen last.
    pub seen: Option<(NativeId, Name)>,
}

/// In whose name a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The daemon itself: no permission is checked.
    Daemon,
    /// This caller: the member's file system checks, and owns what is made by it. Without `groups` the caller has its
    /// own group only.
    Caller(Caller),
}

/// Attributes of an object in its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeStat {
    /// Which object.
    pub id: NativeId,
    /// Type.
    pub kind: Kind,
    /// The twelve permission bits.
    pub mode: u32,
    /// Number of names, as the file system counts them.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, as Linux's `dev_t` in 32 bits.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks that are allocated.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything. Nobody can set it.
    pub ctime: Time,
}

/// One name of a native directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeEntry {
    /// The name.
    pub name: Name,
    /// Native inode number of what it names.
    pub ino: u64,
    /// Type of that.
    pub kind: Kind,
}

/// What is copied when a directory or file gets a second home: everything of it but its names, its bytes and its ctime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The twelve permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Extended attributes, the ACLs and security labels among them.
    pub xattrs: Vec<(Bytes, Bytes)>,
}

/// One call in a member. Its bytes (of a write) travel beside it. An error is the native one; `ESTALE` if an identity that
/// the call names is not what is there: then nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NativeCall {
    /// Attributes of a name, a symbolic link's own. [`NativeReply::Stat`].
    Look {
        /// The directory.
        dir: NativeId,
        /// The name.
        name: Name,
    },
    /// Opens a directory: it is found by its identity until [`NativeCall::ForgetDirs`]. [`NativeReply::Stat`]; `ENOTDIR`. A mount point
    /// in the member is not entered: `EXDEV`.
    OpenDir {
        /// The directory above.
        dir: NativeId,
        /// Its name there.
        name: Name,
    },
    /// Attributes. [`NativeReply::Stat`].
    Stat {
        /// Of what.
        of: At,
    },
    /// Names of a directory, in the native order. [`NativeReply::Names`].
    List {
        /// The directory.
        dir: NativeId,
        /// 0, or where the last portion ended.
        from: u64,
        /// About how many bytes of names to answer with.
        bytes: u32,
    },
    /// From now on changes of this directory's names are told by the member's feed. [`NativeReply::Watched`].
    Watch {
        /// The directory.
        dir: NativeId,
    },
    /// Makes anything but a directory; `EEXIST` if the name is taken. [`NativeReply::Stat`]. A regular file can be opened right
    /// afterwards whatever its mode.
    Make {
        /// In this directory.
        dir: NativeId,
        /// The new name.
        name: Name,
        /// Type.
        kind: Kind,
        /// Permission bits before the umask.
        mode: u32,
        /// The caller's umask, which a default ACL replaces.
        umask: u32,
        /// Device number.
        rdev: u32,
        /// Target of a symbolic link.
        target: Bytes,
    },
    /// Makes a directory and opens it. [`NativeReply::Stat`].
    Mkdir {
        /// In this directory.
        dir: NativeId,
        /// The new name.
        name: Name,
        /// Permission bits before the umask.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// Makes a directory that is like another one, and opens it. Nobody but the daemon may enter it before it is. The times of
    /// access and of the last change of the directory above stay.
    /// [`NativeReply::Stat`].
    MkdirLike {
        /// In this directory.
        dir: NativeId,
        /// The new name.
        name: Name,
        /// What it is like.
        like: Copied,
    },
    /// Makes a regular file without a name (`O_TMPFILE`) and holds it open. [`NativeReply::Opened`].
    Tmpfile {
        /// In the file system of this directory, with its default ACL.
        dir: NativeId,
        /// Permission bits before the umask.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// What a copy of it must have. [`NativeReply::Copied`].
    CopyOf {
        /// Of what.
        of: At,
    },
    /// Makes it like that. [`NativeReply::Done`].
    Become {
        /// What.
        of: At,
        /// Like that.
        like: Copied,
    },
    /// Removes a name of anything but a directory. [`NativeReply::Done`].
    Unlink {
        /// In this directory.
        dir: NativeId,
        /// The name.
        name: Name,
        /// What it must name.
        id: NativeId,
    },
    /// Removes an empty directory. [`NativeReply::Done`].
    Rmdir {
        /// In this directory.
        dir: NativeId,
        /// The name.
        name: Name,
        /// What it must name.
        id: NativeId,
    },
    /// One native rename. [`NativeReply::Done`].
    Rename {
        /// From this directory.
        dir: NativeId,
        /// The old name.
        name: Name,
        /// What it must name.
        id: NativeId,
        /// To this directory.
        new_dir: NativeId,
        /// The new name.
        new_name: Name,
        /// What the new name must name. None: nothing.
        new_id: Option<NativeId>,
        /// How the new name is treated.
        mode: RenameMode,
    },
    /// One more name of a file. [`NativeReply::Stat`].
    Link {
        /// The file.
        of: At,
        /// In this directory.
        dir: NativeId,
        /// The new name.
        name: Name,
    },
    /// Changes attributes. [`NativeReply::Stat`].
    SetAttr {
        /// Of what.
        of: At,
        /// To what.
        set: SetAttr,
    },
    /// Target of a symbolic link. [`NativeReply::Data`].
    Readlink {
        /// The link.
        of: At,
    },
    /// Bytes of a file. [`NativeReply::Data`], shorter only at its end.
    Read {
        /// The file.
        of: At,
        /// First byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// Changes bytes of a file; they travel beside the call. [`NativeReply::Wrote`].
    Write {
        /// The file.
        of: At,
        /// First byte; ignored when `append`.
        offset: u64,
        /// Write at the end.
        append: bool,
        /// Take away set-id bits and capabilities.
        kill_set_id: bool,
    },
    /// Reserves, punches or zeroes a range. [`NativeReply::Done`].
    Fallocate {
        /// The file.
        of: At,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// What to do.
        what: Allocation,
    },
    /// Next data or hole. [`NativeReply::Offset`].
    Seek {
        /// The file.
        of: At,
        /// From here.
        offset: u64,
        /// What to look for.
        whence: Whence,
    },
    /// Copies bytes from file to file of this member. [`NativeReply::Wrote`].
    CopyRange {
        /// From.
        from: At,
        /// First byte there.
        from_offset: u64,
        /// To.
        to: At,
        /// First byte there.
        to_offset: u64,
        /// How many.
        len: u64,
    },
    /// Opens a regular file and holds it open until [`NativeCall::Close`], also without a name. [`NativeReply::Opened`].
    Open {
        /// The file.
        of: At,
        /// For writing too.
        write: bool,
    },
    /// Holds anything but a directory until [`NativeCall::Close`], also without a name: it is found by its identity, and nothing else gets
    /// its inode number. Its bytes are not opened. [`NativeReply::Opened`].
    Hold {
        /// What.
        of: At,
    },
    /// Opens a regular file to read it, and has nobody else open it for writing until [`NativeCall::Close`]. What this member has
    /// open of it is closed first. [`NativeReply::Opened`]; `EBUSY` if somebody has it open for writing, `EOPNOTSUPP` or `EACCES` where
    /// that cannot be had.
    Lease {
        /// The file.
        of: At,
    },
    /// Whether a lease still holds. [`NativeReply::Done`]; `EBUSY` if somebody waits to open the file for writing.
    LeaseHolds {
        /// As it was told by [`NativeReply::Opened`].
        open: u64,
    },
    /// Lets go of an open. [`NativeReply::Done`].
    Close {
        /// As it was told by [`NativeReply::Opened`].
        open: u64,
    },
    /// The file's bytes and attributes survive a power cut. [`NativeReply::Done`].
    Fsync {
        /// The file.
        of: At,
    },
    /// The directory's names survive a power cut. [`NativeReply::Done`].
    FsyncDir {
        /// The directory.
        dir: NativeId,
    },
    /// Value of an extended attribute. [`NativeReply::Data`].
    GetXattr {
        /// Of what.
        of: At,
        /// The attribute.
        name: Bytes,
    },
    /// Sets an extended attribute. [`NativeReply::Done`].
    SetXattr {
        /// Of what.
        of: At,
        /// The attribute.
        name: Bytes,
        /// Its value.
        value: Bytes,
        /// May it be made or replaced.
        mode: XattrMode,
        /// An ACL that is set takes away the set-group-id bit if the caller is not of the file's group.
        kill_sgid: bool,
    },
    /// Names of the extended attributes, each with a NUL behind it. [`NativeReply::Data`].
    ListXattr {
        /// Of what.
        of: At,
    },
    /// Removes an extended attribute. [`NativeReply::Done`].
    RemoveXattr {
        /// Of what.
        of: At,
        /// The attribute.
        name: Bytes,
    },
    /// What of read (4), write (2) and execute or search (1) the caller has. [`NativeReply::Access`].
    Access {
        /// Of what.
        of: At,
        /// Which of them must be told. The answer may lack others that the caller has.
        want: u8,
    },
    /// Space of the member's file system. [`NativeReply::Space`].
    Space,
    /// Takes a lock in the member's file system, so that it holds against everybody; `EAGAIN` if it is taken. Whose it is: the
    /// owner in the range. All of an owner's locks on a file go when the owner's last one is unlocked. [`NativeReply::Done`].
    Lock {
        /// The file.
        of: At,
        /// The lock.
        lock: LockRange,
    },
    /// Would this lock be granted by the member's file system? [`NativeReply::Lock`].
    TestLock {
        /// The file.
        of: At,
        /// The lock.
        lock: LockRange,
    },
    /// A native handle, which names the object over restarts. [`NativeReply::Data`]; `EOPNOTSUPP` if the file system has none.
    HandleOf {
        /// Of what.
        of: At,
    },
    /// The object of a native handle. A directory is opened. [`NativeReply::Placed`]; `ESTALE` if it is gone or lies outside the
    /// member.
    ByHandle {
        /// The handle.
        handle: Bytes,
    },
    /// The present names from the member's root down to a directory. [`NativeReply::Placed`].
    PlaceOf {
        /// The directory.
        dir: NativeId,
    },
    /// These directories are not asked for any more. [`NativeReply::Done`].
    ForgetDirs {
        /// They.
        dirs: Vec<NativeId>,
    },
}

impl NativeCall {
    /// Whether it may take long because there is much to do, on a member that answers.
    pub const fn takes_long(&self) -> bool {
        matches!(
            self,
            Self::Fsync { .. } | Self::FsyncDir { .. } | Self::Fallocate { .. } | Self::CopyRange { .. }
        )
    }

    /// Whether it opens a file for later, and changes nothing.
    pub(crate) const fn holds_open(&self) -> bool {
        matches!(self, Self::Open { .. } | Self::Hold { .. })
    }
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NativeReply {
    /// It is done.
    Done,
    /// Attributes.
    Stat(NativeStat),
    /// A portion of a listing.
    Names {
        /// The names, without "." and "..".
        names: Vec<NativeEntry>,
        /// Where the next portion begins. None: there is none.
        next: Option<u64>,
        /// The directory's attributes, taken before the first name of this portion was read.
        dir: NativeStat,
    },
    /// Whether the member tells of changes from now on. If not, the directory's times must be looked at.
    Watched(bool),
    /// Bytes.
    Data(Bytes),
    /// So many bytes were written, there.
    Wrote {
        /// Bytes.
        len: u64,
        /// First byte.
        offset: u64,
    },
    /// An offset in a file.
    Offset(u64),
    /// An open file.
    Opened {
        /// For [`NativeCall::Close`]; never given twice by a process.
        open: u64,
        /// Its attributes.
        stat: NativeStat,
    },
    /// For a copy.
    Copied(Copied),
    /// What the caller has: read 4, write 2, execute or search 1.
    Access(u8),
    /// Space.
    Space(Space),
    /// The lock that stands in the way, or the one that was asked for with `LockKind::Unlock`.
    Lock(LockRange),
    /// Where an object is.
    Placed {
        /// Its attributes.
        stat: NativeStat,
        /// The names from the root down to a directory. None for anything else.
        path: Option<Vec<Name>>,
    },
}

/// Space of a member's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Which file system: members with the same value share their space.
    pub fs: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes free to anyone.
    pub bytes_free: u64,
    /// Bytes free to users.
    pub bytes_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
}

/// What a member's feed tells of one directory whose changes are watched. It tells of changes that others have made, and of what
/// has come to a name by any rename.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The directory.
    pub dir: NativeId,
    /// Names that may mean something else now.
    pub names: Vec<Name>,
}

/// What has changed in a member since it was asked last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Some changes may be missing here: nothing that is remembered of this member counts.
    pub lost: bool,
    /// Directories with changes.
    pub dirs: Vec<Changed>,
}
