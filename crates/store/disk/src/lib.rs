//! A folder on a native file system behind one narrow trait, with a simulated twin.
//!
//! Log, state, bodies and view are all kept through [`Disk`]. The real disk lets the kernel resolve every
//! path beneath its folder (`openat2`, `RESOLVE_BENEATH`, no symbolic links), so no path of a client can
//! leave the folder. The simulated disk ([`sim`]) can die at any call. After a process death it has
//! everything. After a power cut it has what was synced, and a random part of the rest. An overlay ([`overlay`]) reads another
//! disk and keeps every change in memory.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod overlay;
pub mod real;
pub mod sim;

use std::io;

use rustix::io::Errno;

/// Longest component of a path, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, as Linux has it.
const XATTR_BYTES_MAX: usize = 65536;

/// Largest length of a file: what a signed 64-bit offset can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Whether a disk, or somebody's part of it, is full: the same call may succeed later.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Where a disk keeps its files: a folder.
///
/// Paths are bytes, relative to the folder, without a leading slash, components separated by one
/// `/`; the empty path is the folder itself. A path with ".", "..", an empty component or NUL is
/// refused with `EINVAL`. No call follows a symbolic link, in any component: one on the way is
/// `ELOOP`. Paths may be longer than the system's `PATH_MAX`; a component has at most 255 bytes.
///
/// The folder itself can be listed, synced and given attributes, but not made (`EEXIST`), unlinked
/// (`EISDIR`), removed or renamed (`EBUSY`) or linked (`EPERM`).
pub trait Disk: Send + Sync + 'static {
    /// An open regular file.
    type File: DiskFile;

    /// Opens a regular file. `EISDIR` for a directory, `ELOOP` for a symbolic link, `ENXIO` for any
    /// other kind.
    fn open(&self, path: &[u8], how: OpenHow) -> io::Result<Self::File>;
    /// `lstat`.
    fn stat(&self, path: &[u8]) -> io::Result<Stat>;
    /// Names in a directory, in no order, without "." and "..".
    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, FileKind)>>;
    /// Makes a directory.
    fn mkdir(&self, path: &[u8], mode: u32) -> io::Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &[u8]) -> io::Result<()>;
    /// Removes a name of anything but a directory.
    fn unlink(&self, path: &[u8]) -> io::Result<()>;
    /// Gives anything but a directory one more name (a symbolic link too); `EEXIST` if taken.
    fn link(&self, old: &[u8], new: &[u8]) -> io::Result<()>;
    /// Renames; without `replace`, `EEXIST` if the new name is taken.
    fn rename(&self, old: &[u8], new: &[u8], replace: bool) -> io::Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()>;
    /// Target of a symbolic link.
    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>>;
    /// Makes a fifo, socket or device.
    fn mknod(&self, path: &[u8], kind: FileKind, mode: u32, rdev: u32) -> io::Result<()>;
    /// Sets permission bits (12 of them). `EOPNOTSUPP` for a symbolic link.
    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()>;
    /// Sets owner and group, of a symbolic link itself too.
    fn set_owner(&self, path: &[u8], uid: u32, gid: u32) -> io::Result<()>;
    /// Sets access and modification time as (seconds, nanoseconds), of a symbolic link itself too.
    fn set_times(&self, path: &[u8], atime: (i64, u32), mtime: (i64, u32)) -> io::Result<()>;
    /// All extended attributes and their values that may be read.
    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Sets (`Some`) or removes (`None`) an extended attribute. Removing what is not there is fine.
    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> io::Result<()>;
    /// Makes the names in a directory, and its own attributes, survive a power cut. Its own name is
    /// in its parent.
    fn sync_dir(&self, path: &[u8]) -> io::Result<()>;
    /// Makes everything on it survive a power cut with one native call (`syncfs`): names, bytes and
    /// attributes, also of what cannot be opened. It waits for whatever else uses the file system.
    fn sync_everything(&self) -> io::Result<()>;
    /// Space of the file system below.
    fn space(&self) -> io::Result<Space>;
}

/// An open regular file. All calls may run at once; each is one native call where that exists.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads up to `buf.len()` bytes; 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads until `buf` is full or the file ends; how many bytes.
    fn read_full(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }
    /// Writes all of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes content and length survive a power cut (`fdatasync`), not the name, and not what was
    /// changed of mode, owner, times and extended attributes since the file was made. After an
    /// error nothing written before may be trusted.
    fn sync(&self) -> io::Result<()>;
    /// [`DiskFile::sync`] and all attributes too (`fsync`).
    fn sync_all(&self) -> io::Result<()>;
    /// Attributes.
    fn stat(&self) -> io::Result<Stat>;
    /// Cuts or extends with a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space; the length grows to `offset + len` unless `keep_size`. Where the file system
    /// cannot reserve, the grown part is written with zeros, and nothing happens if `keep_size`.
    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> io::Result<()>;
    /// Gives a range's space back; it reads as zeros and the length stays.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// First byte of data (`hole` false) or of a hole at or after `offset`; none past the end.
    fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<u64>>;
    /// Copies up to `len` bytes, within the kernel where it can; how many, 0 at the end. `EINVAL`
    /// for ranges of one file that overlap.
    fn copy_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> io::Result<u64>;
    /// Sets permission bits.
    fn set_mode(&self, mode: u32) -> io::Result<()>;
    /// Sets owner and group.
    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()>;
}

/// How [`Disk::open`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenHow {
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    Write,
    /// Read and write; made with these permission bits if it is not there.
    Create {
        /// Permission bits, not subject to the umask.
        mode: u32,
    },
    /// Read and write a file made now with these permission bits; `EEXIST` if it is there.
    CreateNew {
        /// Permission bits, not subject to the umask.
        mode: u32,
    },
}

/// The type of a native file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix domain socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Attributes of a native file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Type.
    pub kind: FileKind,
    /// Native inode number.
    pub ino: u64,
    /// Twelve permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u64,
    /// Device number.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access (seconds, nanoseconds).
    pub atime: (i64, u32),
    /// Last change of content.
    pub mtime: (i64, u32),
    /// Last change of anything.
    pub ctime: (i64, u32),
}

/// Space of the file system that a disk lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes.
    pub bytes: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Bytes free to this user.
    pub bytes_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
    /// The file system: equal for disks that share one.
    pub fs_id: u64,
}

/// Refuses a path that is not in the form that [`Disk`] asks for.
fn check_path(path: &[u8]) -> io::Result<()> {
    let bad = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
    if !path.is_empty() && path.split(|b| *b == b'/').any(bad) { Err(Errno::INVAL.into()) } else { Ok(()) }
}

/// The directory part and the last component; the empty path has neither.
fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Refuses an offset and length that leave the range of file offsets.
fn check_range(offset: u64, len: u64) -> io::Result<()> {
    if offset > FILE_BYTES_MAX {
        return Err(Errno::INVAL.into());
    }
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Errno::FBIG.into()),
    }
}

/// Refuses the name and value of an extended attribute that no file can have.
fn check_xattr(name: &[u8], value: Option<&[u8]>) -> io::Result<()> {
    let known = [&b"user."[..], b"trusted.", b"security.", b"system."];
    match name {
        _ if name.is_empty() || name.len() > NAME_BYTES_MAX => Err(Errno::RANGE.into()),
        _ if value.is_some_and(|value| value.len() > XATTR_BYTES_MAX) => Err(Errno::TOOBIG.into()),
        _ if !known.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len()) => {
            Err(Errno::OPNOTSUPP.into())
        }
        _ => Ok(()),
    }
}
