//! The numbers and layouts of the kernel's FUSE protocol, version 7.45: opcodes, flags, and the
//! structures that are sent to the kernel. Never decides anything.
//!
//! All integers are in the machine's own byte order, because the kernel's are.

use atoll_posix::{Attr, mode};
use std::time::Duration;

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that is spoken here.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that is served (Linux 5.4).
pub(crate) const MINOR_MIN: u32 = 31;
/// From here on one message voids every name that the kernel keeps (Linux 6.16).
pub(crate) const MINOR_INC_EPOCH: u32 = 44;

macro_rules! opcodes {
    ($($name:ident = $value:literal),* $(,)?) => {
        /// What the kernel asks for.
        #[allow(dead_code, reason = "the kernel's list is whole, for its names")]
        pub(crate) mod opcode {
            $(pub(crate) const $name: u32 = $value;)*

            /// The kernel's name of an opcode, in lower case.
            pub(crate) fn name(code: u32) -> &'static str {
                match code {
                    $($value => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9,
    UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17,
    RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24,
    FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31,
    SETLK = 32, SETLKW = 33, ACCESS = 34, CREATE = 35, INTERRUPT = 36, BMAP = 37, DESTROY = 38,
    IOCTL = 39, POLL = 40, NOTIFY_REPLY = 41, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44,
    RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, SETUPMAPPING = 48, REMOVEMAPPING = 49,
    SYNCFS = 50, TMPFILE = 51, STATX = 52, COPY_FILE_RANGE_64 = 53,
}

/// One more than the largest opcode that has a counter of its own.
pub(crate) const OPCODES: usize = 64;

/// Capabilities that INIT settles.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
    pub(crate) const NO_EXPORT_SUPPORT: u64 = 1 << 38;
}

/// Flags of SETATTR that say which fields count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// What the answer to an open tells the kernel.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// Bits of `open(2)` as the kernel hands them on.
pub(crate) mod open {
    pub(crate) const ACCESS_MODE: u32 = 0o3;
    pub(crate) const EXCLUSIVE: u32 = 0o200;
    pub(crate) const APPEND: u32 = 0o2000;
    /// `O_DSYNC`, which is a part of `O_SYNC` too.
    pub(crate) const SYNC: u32 = 0o10_000;
    /// `O_NOATIME`.
    pub(crate) const NO_ACCESS_TIME: u32 = 0o1_000_000;
}

pub(crate) const LK_FLOCK: u32 = 1 << 0;
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// Unasked messages to the kernel.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const INC_EPOCH: i32 = 8;
    /// A flag of [`INVAL_ENTRY`]: the name is looked up again, and stays as it is if it leads to the same.
    pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
}

/// Bytes of the header of every request.
pub(crate) const IN_HEADER: usize = 40;
/// Bytes of the header of every answer.
pub(crate) const OUT_HEADER: usize = 16;
/// Bytes before the payload of a write, header included.
pub(crate) const WRITE_HEADER: usize = IN_HEADER + 40;
/// Bytes of a directory entry before its name.
pub(crate) const DIRENT: usize = 24;
/// Bytes of a name's answer, and so of what stands before each entry of READDIRPLUS.
pub(crate) const ENTRY_OUT: usize = 128;
/// Room for any answer but data, listings and STATX.
pub(crate) const SMALL_OUT: usize = ENTRY_OUT + 32;
/// What a listing shows as the inode number of ".." (libfuse's FUSE_UNKNOWN_INO).
pub(crate) const UNKNOWN_INO: u64 = 0xffff_ffff;
/// The kernel's end of a lock that reaches to the end of the file.
pub(crate) const LOCK_END: u64 = i64::MAX as u64;
/// `st_blksize`.
const BLOCK_BYTES: u32 = 4096;
/// `f_bsize` and `f_frsize`.
const STATFS_BLOCK_BYTES: u64 = 4096;
const STATX_BASIC_AND_BTIME: u32 = 0xfff;

/// Appends integers in the machine's byte order.
#[derive(Debug, Default)]
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn u16(&mut self, v: u16) -> &mut Self {
        self.0.extend_from_slice(&v.to_ne_bytes());
        self
    }

    pub(crate) fn u32(&mut self, v: u32) -> &mut Self {
        self.0.extend_from_slice(&v.to_ne_bytes());
        self
    }

    pub(crate) fn u64(&mut self, v: u64) -> &mut Self {
        self.0.extend_from_slice(&v.to_ne_bytes());
        self
    }

    pub(crate) fn zeros(&mut self, n: usize) -> &mut Self {
        self.0.resize(self.0.len() + n, 0);
        self
    }

    /// `struct fuse_attr`.
    pub(crate) fn attr(&mut self, a: &Attr) -> &mut Self {
        self.u64(a.ino.0).u64(a.size).u64(a.blocks);
        for time in [a.atime, a.mtime, a.ctime] {
            self.u64(time.secs.cast_unsigned());
        }
        for time in [a.atime, a.mtime, a.ctime] {
            self.u32(time.nanos);
        }
        self.u32((a.mode & mode::ALL) | a.kind.format_bits()).u32(a.nlink).u32(a.uid).u32(a.gid).u32(a.rdev);
        self.u32(BLOCK_BYTES).u32(0)
    }

    /// `struct fuse_entry_out`, with the generation of the id, and with how long the name and the attributes may be kept.
    pub(crate) fn entry(
        &mut self,
        attr: &Attr,
        generation: u64,
        name: Duration,
        attrs: Duration,
    ) -> &mut Self {
        self.u64(attr.ino.0).u64(generation).u64(name.as_secs()).u64(attrs.as_secs());
        self.u32(name.subsec_nanos()).u32(attrs.subsec_nanos()).attr(attr)
    }

    /// `struct fuse_entry_out` that says that there is no such name, for so long.
    pub(crate) fn absent(&mut self, name: Duration) -> &mut Self {
        self.u64(0).u64(0).u64(name.as_secs()).u64(0).u32(name.subsec_nanos()).zeros(ENTRY_OUT - 36)
    }

    /// `struct fuse_attr_out`, with how long they may be kept.
    pub(crate) fn attr_out(&mut self, attr: &Attr, kept: Duration) -> &mut Self {
        self.u64(kept.as_secs()).u32(kept.subsec_nanos()).u32(0).attr(attr)
    }

    /// `struct fuse_open_out`. `backing`: the number of the native file with [`fopen::PASSTHROUGH`], otherwise 0.
    pub(crate) fn open_out(&mut self, fh: u64, flags: u32, backing: u32) -> &mut Self {
        self.u64(fh).u32(flags).u32(backing)
    }

    /// `struct fuse_statx_out`.
    pub(crate) fn statx_out(&mut self, a: &Attr, kept: Duration) -> &mut Self {
        self.u64(kept.as_secs()).u32(kept.subsec_nanos()).u32(0).zeros(16);
        self.u32(STATX_BASIC_AND_BTIME).u32(BLOCK_BYTES).u64(0).u32(a.nlink).u32(a.uid).u32(a.gid);
        // Sixteen bits, whatever the volume says.
        let mode = (a.mode & mode::ALL) | a.kind.format_bits();
        self.u16(mode as u16).u16(0).u64(a.ino.0).u64(a.size).u64(a.blocks).u64(0);
        for time in [a.atime, a.btime, a.ctime, a.mtime] {
            self.u64(time.secs.cast_unsigned()).u32(time.nanos).u32(0);
        }
        // The 32-bit dev_t: 12 bits of major between the two parts of the minor number.
        self.u32((a.rdev >> 8) & 0xfff).u32((a.rdev & 0xff) | ((a.rdev >> 12) & 0xf_ff00));
        self.zeros(8 + 14 * 8)
    }

    /// `struct fuse_kstatfs`, from bytes.
    pub(crate) fn statfs(&mut self, bytes: u64, free: u64, available: u64, inodes: u64, inodes_free: u64) {
        let block = u32::try_from(STATFS_BLOCK_BYTES).expect("a block is small");
        self.u64(bytes / STATFS_BLOCK_BYTES)
            .u64(free / STATFS_BLOCK_BYTES)
            .u64(available / STATFS_BLOCK_BYTES);
        self.u64(inodes).u64(inodes_free).u32(block).u32(255).u32(block).zeros(4 + 6 * 4);
    }

    /// `struct fuse_dirent` with its name and padding.
    pub(crate) fn dirent(&mut self, ino: u64, cookie: u64, format_bits: u32, name: &[u8]) -> &mut Self {
        let len = u32::try_from(name.len()).expect("a name has at most 255 bytes");
        self.u64(ino).u64(cookie).u32(len).u32(format_bits >> 12);
        self.0.extend_from_slice(name);
        self.zeros(padded(name.len()) - name.len())
    }
}

/// The multiple of 8 at or above `n`.
pub(crate) const fn padded(n: usize) -> usize {
    (n + 7) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    use atoll_core::{Ino, Time};
    use atoll_posix::Kind;

    fn attr() -> Attr {
        let time = Time { secs: -1, nanos: 5 };
        Attr {
            ino: Ino(7),
            kind: Kind::CharDevice,
            mode: 0o640,
            nlink: 1,
            uid: 2,
            gid: 3,
            rdev: 0x0010_0501,
            size: 4,
            blocks: 5,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        let size = |build: &dyn Fn(&mut Out)| {
            let mut out = Out::default();
            build(&mut out);
            out.0.len()
        };
        assert_eq!(size(&|o| _ = o.attr(&attr())), 88);
        assert_eq!(size(&|o| _ = o.entry(&attr(), 0, SHORT, SHORT)), ENTRY_OUT);
        assert_eq!(size(&|o| _ = o.absent(SHORT)), ENTRY_OUT);
        assert_eq!(size(&|o| _ = o.attr_out(&attr(), SHORT)), 104);
        assert_eq!(size(&|o| _ = o.open_out(0, 0, 0)), 16);
        assert_eq!(size(&|o| _ = o.statx_out(&attr(), SHORT)), 288);
        assert_eq!(size(&|o| o.statfs(1, 1, 1, 1, 1)), 80);
        assert_eq!(size(&|o| _ = o.dirent(1, 1, 0, b"a")), 32);
    }

    #[test]
    fn a_device_number_is_split_as_the_kernel_splits_it() {
        let mut out = Out::default();
        out.statx_out(&attr(), SHORT);
        let at = 32 + 128;
        assert_eq!(u32::from_ne_bytes(out.0[at..at + 4].try_into().unwrap()), 5);
        assert_eq!(u32::from_ne_bytes(out.0[at + 4..at + 8].try_into().unwrap()), 0x101);
    }
}
