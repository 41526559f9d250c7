//! The real disk: a folder, through `rustix`. Never resolves a path by hand, and never follows a link.
//!
//! The kernel opens every path beneath the folder (`openat2`): the directory part as an `O_PATH` descriptor,
//! then the call itself on the last component without following it. Some calls take no directory descriptor
//! (extended attributes, `chmod`). For these the descriptor is named through `/proc/self/fd`, so `/proc` must
//! be mounted.
//!
//! Files get the mode that was asked for, whatever the umask, set-group-id directories and default ACLs say:
//! a new file is looked at, and its mode is corrected if it differs. A daemon sets its umask to 0. Then this
//! costs nothing more, and a crash in between leaves no wrong mode.

mod file;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

pub use file::RealFile;

use crate::{Disk, FileKind, OpenHow, Space, Stat, check_path, split_last};

/// Longest path that one system call takes, without the NUL behind it.
const CALL_PATH_BYTES_MAX: usize = 4095;

/// How often an open that may create is tried while it loses a race against others.
const CREATE_RACES_MAX: usize = 64;

/// Bytes of directory entries that one system call brings.
const LIST_BYTES: usize = 64 * 1024;

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder of this machine. A clone is the same folder.
#[derive(Debug, Clone)]
pub struct RealDisk {
    root: Arc<OwnedFd>,
}

/// The directory that a path's last component is in.
enum Parent<'a> {
    Root(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => fd.as_fd(),
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

impl RealDisk {
    /// Opens a folder that exists. Errors of `open(2)`; `ENOTDIR` if it is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Self { root: Arc::new(root) })
    }

    /// Opens a folder, making it and what is missing above it. Syncs nothing.
    pub fn create(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Opens `path` beneath the folder, in pieces if it is longer than a system call takes. The
    /// path has been checked.
    fn open_beneath(&self, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let mut rest = path;
        let mut piece: Option<OwnedFd> = None;
        while rest.len() > CALL_PATH_BYTES_MAX {
            // A component without a slash in so many bytes is longer than any file system takes.
            let at =
                rest[..CALL_PATH_BYTES_MAX].iter().rposition(|b| *b == b'/').ok_or(Errno::NAMETOOLONG)?;
            let from = piece.as_ref().map_or(self.root.as_fd(), |fd| fd.as_fd());
            let next = rustix::fs::openat2(from, &rest[..at], DIRECTORY, Mode::empty(), BENEATH)?;
            piece = Some(next);
            rest = &rest[at + 1..];
        }
        let from = piece.as_ref().map_or(self.root.as_fd(), |fd| fd.as_fd());
        let rest: &[u8] = if rest.is_empty() { b"." } else { rest };
        let flags = flags | OFlags::CLOEXEC;
        loop {
            match rustix::fs::openat2(from, rest, flags, mode, BENEATH) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// The directory of a path's last component, and that component: "." for the folder itself.
    fn parent<'a, 'p>(&'a self, path: &'p [u8]) -> io::Result<(Parent<'a>, &'p [u8])> {
        check_path(path)?;
        if path.is_empty() {
            return Ok((Parent::Root(self.root.as_fd()), b"."));
        }
        let (dir, name) = split_last(path);
        if dir.is_empty() {
            return Ok((Parent::Root(self.root.as_fd()), name));
        }
        Ok((Parent::Opened(self.open_beneath(dir, DIRECTORY, Mode::empty())?), name))
    }

    /// As [`Self::parent`], for a name that is about to change: `root` is the error for the folder.
    fn name<'a, 'p>(&'a self, path: &'p [u8], root: Errno) -> io::Result<(Parent<'a>, &'p [u8])> {
        if path.is_empty() {
            return Err(root.into());
        }
        self.parent(path)
    }

    fn open_regular(&self, path: &[u8], flags: OFlags) -> io::Result<RealFile> {
        // Without O_NONBLOCK a fifo would wait for its other end. It means nothing to a file.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        // The access times of plain files are those that their users see, not the daemon's reads. Only
        // an owner may ask for that.
        let fd = match self.open_beneath(path, flags | OFlags::NOATIME, Mode::empty()) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
                self.open_beneath(path, flags, Mode::empty())?
            }
            opened => opened?,
        };
        match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => Ok(RealFile::new(fd)),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::NXIO.into()),
        }
    }

    fn create_regular(&self, path: &[u8], mode: u32) -> io::Result<RealFile> {
        if path.is_empty() {
            return Err(Errno::EXIST.into());
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::NOATIME;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let fd = self.open_beneath(path, flags, mode)?;
        if mode_of(&rustix::fs::fstat(&fd)?) != mode.as_raw_mode() {
            rustix::fs::fchmod(&fd, mode)?;
        }
        Ok(RealFile::new(fd))
    }

    /// Corrects the mode of a file that was just made.
    fn settle_mode(&self, parent: &Parent<'_>, name: &[u8], mode: u32) -> io::Result<()> {
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if mode_of(&stat) == mode { Ok(()) } else { chmod_beneath(parent, name, mode) }
    }
}

fn mode_of(stat: &rustix::fs::Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// `chmod` of a name in a directory; `EOPNOTSUPP` for a symbolic link.
fn chmod_beneath(parent: &Parent<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    // Some kernels change a symbolic link's own mode when asked this way: never ask.
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::Symlink {
        return Err(Errno::OPNOTSUPP.into());
    }
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::chmodat(CWD, link, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
    Ok(())
}

/// A path to the name that the `l*xattr` calls do not follow: only the descriptor's link in `/proc`
/// is followed, to the directory that it holds.
fn proc_path(parent: &Parent<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", parent.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// Asks for the size, then for the bytes, until they fit.
fn sized(
    size: impl Fn() -> Result<usize, Errno>,
    call: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    loop {
        let mut buf = vec![0; size()?];
        if buf.is_empty() {
            return Ok(buf);
        }
        match call(&mut buf) {
            Err(Errno::RANGE) => {} // It grew meanwhile.
            Err(error) => return Err(error),
            Ok(size) => {
                buf.truncate(size);
                return Ok(buf);
            }
        }
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn open(&self, path: &[u8], how: OpenHow) -> io::Result<RealFile> {
        check_path(path)?;
        match how {
            OpenHow::Read => self.open_regular(path, OFlags::RDONLY),
            OpenHow::Write => self.open_regular(path, OFlags::RDWR),
            OpenHow::CreateNew { mode } => self.create_regular(path, mode),
            OpenHow::Create { mode } => {
                for _ in 0..CREATE_RACES_MAX {
                    match self.open_regular(path, OFlags::RDWR) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        done => return done,
                    }
                    match self.create_regular(path, mode) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        done => return done,
                    }
                }
                Err(Errno::AGAIN.into())
            }
        }
    }

    fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        let (parent, name) = self.parent(path)?;
        Ok(stat_of(&rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
        check_path(path)?;
        let dir = self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut buf = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(&dir, buf.spare_capacity_mut());
        let mut list = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue, // Removed since it was listed.
                    stat => FileType::from_raw_mode(stat?.st_mode),
                },
                known => known,
            };
            list.push((name.to_vec(), kind_of(kind)));
        }
        Ok(list)
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (parent, name) = self.name(path, Errno::EXIST)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode & 0o7777))?;
        self.settle_mode(&parent, name, mode & 0o7777)
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.name(path, Errno::BUSY)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.name(path, Errno::ISDIR)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    fn link(&self, old: &[u8], new: &[u8]) -> io::Result<()> {
        let (old_parent, old_name) = self.name(old, Errno::PERM)?;
        let (new_parent, new_name) = self.name(new, Errno::EXIST)?;
        Ok(rustix::fs::linkat(&old_parent, old_name, &new_parent, new_name, AtFlags::empty())?)
    }

    fn rename(&self, old: &[u8], new: &[u8], replace: bool) -> io::Result<()> {
        let (old_parent, old_name) = self.name(old, Errno::BUSY)?;
        let (new_parent, new_name) = self.name(new, Errno::BUSY)?;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        Ok(rustix::fs::renameat_with(&old_parent, old_name, &new_parent, new_name, flags)?)
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.name(path, Errno::EXIST)?;
        Ok(rustix::fs::symlinkat(target, &parent, name)?)
    }

    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::readlinkat(&parent, name, Vec::with_capacity(128))?.into_bytes())
    }

    fn mknod(&self, path: &[u8], kind: FileKind, mode: u32, rdev: u32) -> io::Result<()> {
        let kind = match kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => return Err(Errno::INVAL.into()),
        };
        let (parent, name) = self.name(path, Errno::EXIST)?;
        rustix::fs::mknodat(&parent, name, kind, Mode::from_raw_mode(mode & 0o7777), rdev.into())?;
        self.settle_mode(&parent, name, mode & 0o7777)
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        chmod_beneath(&parent, name, mode)
    }

    fn set_owner(&self, path: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn set_times(&self, path: &[u8], atime: (i64, u32), mtime: (i64, u32)) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let time = |(sec, nsec): (i64, u32)| Timespec { tv_sec: sec, tv_nsec: nsec.into() };
        if atime.1 >= 1_000_000_000 || mtime.1 >= 1_000_000_000 {
            return Err(Errno::INVAL.into()); // UTIME_NOW and UTIME_OMIT are above that.
        }
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        Ok(rustix::fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (parent, name) = self.parent(path)?;
        let at = proc_path(&parent, name);
        let names =
            match sized(|| rustix::fs::llistxattr_query(&at[..]), |buf| rustix::fs::llistxattr(&at[..], buf))
            {
                Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
                names => names?,
            };
        let mut list = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let size = || rustix::fs::lgetxattr_query(&at[..], name);
            match sized(size, |buf| rustix::fs::lgetxattr(&at[..], name, buf)) {
                Ok(value) => list.push((name.to_vec(), value)),
                // Not ours to read, or removed since it was listed.
                Err(Errno::ACCESS | Errno::PERM | Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(list)
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let (parent, last) = self.parent(path)?;
        let at = proc_path(&parent, last);
        match value {
            Some(value) => Ok(rustix::fs::lsetxattr(&at[..], name, value, XattrFlags::empty())?),
            None => match rustix::fs::lremovexattr(&at[..], name) {
                Err(Errno::NODATA) => Ok(()),
                done => Ok(done?),
            },
        }
    }

    fn sync_dir(&self, path: &[u8]) -> io::Result<()> {
        check_path(path)?;
        let dir = self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(rustix::fs::fsync(&dir)?)
    }

    fn sync_everything(&self) -> io::Result<()> {
        // `syncfs` wants a descriptor that is open for more than its path.
        let dir = self.open_beneath(b"", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(rustix::fs::syncfs(&dir)?)
    }

    fn space(&self) -> io::Result<Space> {
        let fs = rustix::fs::fstatvfs(&self.root)?;
        let fs_id = rustix::fs::fstat(&self.root)?.st_dev;
        Ok(Space {
            bytes: fs.f_blocks.saturating_mul(fs.f_frsize),
            bytes_free: fs.f_bfree.saturating_mul(fs.f_frsize),
            bytes_available: fs.f_bavail.saturating_mul(fs.f_frsize),
            inodes: fs.f_files,
            inodes_free: fs.f_ffree,
            fs_id,
        })
    }
}

const fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    Stat {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        ino: stat.st_ino,
        mode: mode_of(stat),
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: u64::from(stat.st_nlink as u32),
        rdev: stat.st_rdev as u32,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: (stat.st_atime, stat.st_atime_nsec as u32),
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}
