//! Attributes as `stat` shows them, changes of them by `chmod`, `chown`, `truncate` and `utimensat`, and
//! callers.

use atoll_core::{Decode, Encode, Ino, Malformed, Reader, Time, wire_enum, wire_struct};

wire_enum! {
    /// The type of a file. Never changes while the id lives.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Kind {
        /// Regular file.
        1 => Regular,
        /// Directory.
        2 => Directory,
        /// Symbolic link.
        3 => Symlink,
        /// Named pipe.
        4 => Fifo,
        /// Unix domain socket.
        5 => Socket,
        /// Character device.
        6 => CharDevice,
        /// Block device.
        7 => BlockDevice,
    }
}

impl Kind {
    /// The `S_IFMT` bits.
    pub const fn format_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }

    /// The kind that the `S_IFMT` bits of `st_mode` tell.
    pub const fn from_format_bits(st_mode: u32) -> Option<Self> {
        Some(match st_mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// The twelve permission bits.
pub mod mode {
    /// Set-user-id.
    pub const SETUID: u32 = 0o4000;
    /// Set-group-id.
    pub const SETGID: u32 = 0o2000;
    /// Sticky: in such a directory only an owner removes.
    pub const STICKY: u32 = 0o1000;
    /// Execute by group.
    pub const GROUP_EXEC: u32 = 0o010;
    /// All twelve.
    pub const ALL: u32 = 0o7777;
}

wire_struct! {
    /// The attributes of a file or directory, as `stat` shows them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Attr {
        /// Inode number.
        pub ino: Ino,
        /// Type.
        pub kind: Kind,
        /// The twelve permission bits.
        pub mode: u32,
        /// Number of names; for a directory 2 and one for each directory in it.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Device number of a device, as Linux's `dev_t` in 32 bits.
        pub rdev: u32,
        /// Bytes; of a symbolic link, the length of its target.
        pub size: u64,
        /// 512-byte blocks that are allocated.
        pub blocks: u64,
        /// Last access.
        pub atime: Time,
        /// Last change of content.
        pub mtime: Time,
        /// Last change of anything.
        pub ctime: Time,
        /// When it was made.
        pub btime: Time,
    }
}

impl Attr {
    /// Attributes of a file with one name, of which nothing else is known.
    pub fn blank(ino: Ino, kind: Kind) -> Self {
        let (mode, nlink, uid, gid, rdev, size, blocks) = (0, 1, 0, 0, 0, 0, 0);
        let time = Time::default();
        let (atime, mtime, ctime, btime) = (time, time, time, time);
        Self { ino, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime }
    }
}

wire_enum! {
    /// A time to be set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SetTime {
        /// `UTIME_NOW`: the time at which the operation is decided.
        1 => Now,
        /// This time.
        2 => To { /// The time.
            time: Time },
    }
}

wire_struct! {
    /// The attributes that one operation changes; absent ones stay.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SetAttr {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Length of a regular file in bytes.
        pub size: Option<u64>,
        /// Last access.
        pub atime: Option<SetTime>,
        /// Last change of content.
        pub mtime: Option<SetTime>,
        /// The caller holds the file open for writing: `ftruncate`, which asks no permission.
        pub opened: bool,
        /// Take away set-id bits and capabilities, because an unprivileged caller changes bytes.
        pub kill_set_id: bool,
    }
}

/// A caller: the credentials with which the last step of an operation is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups, if the frontend looked them up. An island that would refuse for want
    /// of a group says so (`NeedGroups`) and is asked again with them.
    pub groups: Option<Vec<u32>>,
}

impl Caller {
    /// The superuser, whom no permission bit stops.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: None };
}

impl Encode for Caller {
    fn encode(&self, out: &mut Vec<u8>) {
        self.uid.encode(out);
        self.gid.encode(out);
        self.groups.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.uid.encoded_len() + self.gid.encoded_len() + self.groups.encoded_len()
    }
}

impl Decode for Caller {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { uid: u32::decode(r)?, gid: u32::decode(r)?, groups: Option::decode(r)? })
    }
}
