//! A member that is a directory of this machine. Owns its root, and the way of a call: is the member stuck or away, who calls,
//! what is done. Every name is resolved from the root's own descriptor, never from the path at which it was found.

mod attrs;
mod bytes;
mod copies;
mod dirs;
mod feed;
mod files;
mod handle;
mod lease;
mod list;
mod locks;
mod names;
mod stuck;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use atoll_core::{Name, Time};
use atoll_posix::{Errno, Kind};
use atoll_union::{At, Changes, LONG_MS, NativeCall, NativeId, NativeReply, NativeStat, Space, Who};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp};

use crate::identity::{MemberIdentity, file_system_uuid};
use crate::{Tree, TreeState, who};

pub use bytes::READ_BYTES_MAX;
pub use dirs::DIR_DESCRIPTORS_MAX;
pub use files::FILE_DESCRIPTORS_MAX;
pub(crate) use handle::native_handle;
pub use stuck::{STUCK_CALLS_MAX, STUCK_MS};

/// A damaged block gives an error whenever it is read: the root is asked so often at most.
const PROBE_MS: u64 = 1_000;

/// How many trees share the descriptors of this process.
static TREES: AtomicUsize = AtomicUsize::new(0);

/// A member of a union in a directory of this machine.
#[derive(Debug)]
pub struct NativeTree {
    path: PathBuf,
    root: NativeStat,
    identity: MemberIdentity,
    mount: RwLock<Mount>,
    dirs: dirs::Dirs,
    files: files::Files,
    locks: locks::Locks,
    handles: handle::Handles,
    feed: feed::Feed,
    stuck: stuck::Calls,
    away: AtomicBool,
    /// When the root was asked last whether the disk is there, in milliseconds.
    probed: AtomicU64,
}

/// The root as it is open now.
#[derive(Debug)]
struct Mount {
    /// An ordinary descriptor of it, for calls that take no other. None while the member is away, so that what is left of the
    /// lost disk can end.
    dir: Option<Arc<OwnedFd>>,
    /// The device of the file system.
    dev: (u32, u32),
    /// What [`Space::fs`] says.
    fs: u64,
    /// Whether its changes are made here alone, so that this kernel can tell of all of them.
    local: bool,
}

impl NativeTree {
    /// Opens the directory at `path`, links to which are followed. Native errors; `ENOTDIR`.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        files::raise_limit();
        let (root, mount, stat) = open_root(path)?;
        let identity = mount.identity(stat.id)?;
        TREES.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            path: path.to_owned(),
            root: stat,
            identity,
            mount: RwLock::new(mount),
            dirs: dirs::Dirs::new(stat.id, root),
            files: files::Files::default(),
            locks: locks::Locks::default(),
            handles: handle::Handles::default(),
            feed: feed::Feed::default(),
            stuck: stuck::Calls::default(),
            away: AtomicBool::new(false),
            probed: AtomicU64::new(0),
        })
    }

    /// What tells this member from all others.
    pub const fn identity(&self) -> &MemberIdentity {
        &self.identity
    }

    /// Whether a call has not returned for [`STUCK_MS`].
    pub fn stuck(&self) -> bool {
        self.stuck.is_stuck()
    }

    fn run(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        use NativeReply::{Data, Done, Stat, Watched};
        Ok(match call {
            NativeCall::Look { dir, name } => Stat(self.look(who, *dir, name)?),
            NativeCall::OpenDir { dir, name } => Stat(self.open_dir(*dir, name)?),
            NativeCall::Stat { of } => Stat(self.stat(of)?),
            NativeCall::List { dir, from, bytes } => self.list(who, *dir, *from, *bytes)?,
            NativeCall::Watch { dir } => Watched(self.watch(*dir)?),
            NativeCall::Make { dir, name, kind, mode, umask, rdev, target } => {
                Stat(self.make(who, *dir, name, *kind, *mode, *umask, *rdev, target)?)
            }
            NativeCall::Mkdir { dir, name, mode, umask } => Stat(self.mkdir(who, *dir, name, *mode, *umask)?),
            NativeCall::MkdirLike { dir, name, like } => Stat(self.mkdir_like(*dir, name, like)?),
            NativeCall::Tmpfile { dir, mode, umask } => self.tmpfile(who, *dir, *mode, *umask)?,
            NativeCall::CopyOf { of } => NativeReply::Copied(self.copy_of(of)?),
            NativeCall::Become { of, like } => self.make_like(of, like).map(|()| Done)?,
            NativeCall::Unlink { dir, name, id } => self.unlink(who, *dir, name, *id).map(|()| Done)?,
            NativeCall::Rmdir { dir, name, id } => self.rmdir(who, *dir, name, *id).map(|()| Done)?,
            NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode } => {
                let (from, to) = ((*dir, name), (*new_dir, new_name));
                self.rename(who, from, *id, to, *new_id, *mode).map(|()| Done)?
            }
            NativeCall::Link { of, dir, name } => Stat(self.link(who, of, *dir, name)?),
            NativeCall::SetAttr { of, set } => Stat(self.set_attr(who, of, set)?),
            NativeCall::Readlink { of } => Data(self.readlink(of)?),
            NativeCall::Read { of, offset, len } => Data(self.read(of, *offset, *len)?),
            NativeCall::Write { of, offset, append, kill_set_id } => {
                self.write(who, of, *offset, *append, *kill_set_id, bytes)?
            }
            NativeCall::Fallocate { of, offset, len, what } => {
                self.fallocate(who, of, *offset, *len, *what).map(|()| Done)?
            }
            NativeCall::Seek { of, offset, whence } => NativeReply::Offset(self.seek(of, *offset, *whence)?),
            NativeCall::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range(who, (from, *from_offset), (to, *to_offset), *len)?
            }
            NativeCall::Open { of, write } => self.open_file(who, of, *write)?,
            NativeCall::Hold { of } => self.hold(of)?,
            NativeCall::Lease { of } => self.lease(of)?,
            NativeCall::LeaseHolds { open } => self.lease_holds(*open).map(|()| Done)?,
            NativeCall::Close { open } => self.files.close(*open).map(|()| Done)?,
            NativeCall::Fsync { of } => self.fsync(of).map(|()| Done)?,
            NativeCall::FsyncDir { dir } => self.fsync_dir(*dir).map(|()| Done)?,
            NativeCall::GetXattr { of, name } => Data(self.get_xattr(who, of, name)?),
            NativeCall::SetXattr { of, name, value, mode, kill_sgid } => {
                self.set_xattr(who, of, name, value, *mode, *kill_sgid).map(|()| Done)?
            }
            NativeCall::ListXattr { of } => Data(self.list_xattr(who, of)?),
            NativeCall::RemoveXattr { of, name } => self.remove_xattr(who, of, name).map(|()| Done)?,
            NativeCall::Access { of, want } => NativeReply::Access(self.access(who, of, *want)?),
            NativeCall::Space => NativeReply::Space(self.space()?),
            NativeCall::Lock { of, lock } => self.lock(of, lock).map(|()| Done)?,
            NativeCall::TestLock { of, lock } => NativeReply::Lock(self.test_lock(of, lock)?),
            NativeCall::HandleOf { of } => Data(self.handle_of(of)?),
            NativeCall::ByHandle { handle } => self.by_handle(handle)?,
            NativeCall::PlaceOf { dir } => self.place_of(*dir)?,
            NativeCall::ForgetDirs { dirs } => {
                for dir in dirs.iter().filter(|dir| **dir != self.root.id) {
                    self.feed.unwatch(*dir);
                    self.dirs.forget(*dir);
                }
                Done
            }
        })
    }

    /// Acts as who calls until the value is dropped.
    fn act(&self, who: &Who) -> Result<Option<who::Taken>, Errno> {
        match who {
            Who::Daemon => {
                who::daemon();
                Ok(None)
            }
            Who::Caller(caller) => who::take(caller).map(Some),
        }
    }

    fn space(&self) -> Result<Space, Errno> {
        let told = rustix::fs::fstatvfs(&*self.mount_dir()?).map_err(os)?;
        Ok(Space {
            fs: read(&self.mount).fs,
            bytes: told.f_blocks.saturating_mul(told.f_frsize),
            bytes_free: told.f_bfree.saturating_mul(told.f_frsize),
            bytes_available: told.f_bavail.saturating_mul(told.f_frsize),
            inodes: told.f_files,
            inodes_free: told.f_ffree,
        })
    }

    /// The ordinary descriptor of the root. `EIO` while the member is away.
    fn mount_dir(&self) -> Result<Arc<OwnedFd>, Errno> {
        read(&self.mount).dir.clone().ok_or(Errno::EIO)
    }

    /// After an error that a lost disk gives, too: asks the root.
    fn probe(&self) {
        let now = stuck::now_ms();
        let last = self.probed.load(Ordering::Relaxed);
        if last != 0 && now.saturating_sub(last) < PROBE_MS {
            return;
        }
        self.probed.store(now, Ordering::Relaxed);
        who::daemon();
        atoll_handover::slow();
        let Ok(dir) = self.mount_dir() else { return };
        if !serves(&dir) {
            self.away.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether a disk is there. Names and attributes that the kernel has cached are answered by a dead one, too: XFS refuses to
/// open, ext4 to sync.
fn serves(dir: &OwnedFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(dir, c".", flags, Mode::empty());
    let answered = opened.and_then(|dir| rustix::fs::fsync(&dir));
    // A file system that cannot sync directories is there.
    !answered.is_err_and(|e| is_of_lost_disk(os(e)))
}

impl Mount {
    fn identity(&self, root: NativeId) -> Result<MemberIdentity, Errno> {
        MemberIdentity::read(self.dir.as_ref().ok_or(Errno::EIO)?, self.dev, root)
    }
}

impl Drop for NativeTree {
    fn drop(&mut self) {
        TREES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tree for NativeTree {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        if self.away.load(Ordering::Relaxed) {
            // What is open here is of the lost disk, and is let go of without asking it.
            return match call {
                NativeCall::Close { open } => self.files.close(*open).map(|()| NativeReply::Done),
                _ => Err(Errno::EIO),
            };
        }
        if let NativeCall::ForgetDirs { .. } = call {
            return self.run(who, call, bytes); // Asks the file system nothing.
        }
        let under_way = self.stuck.begin(if call.takes_long() { LONG_MS } else { 0 })?;
        if !read(&self.mount).local {
            who::daemon();
            atoll_handover::slow();
        }
        let done = self.run(who, call, bytes);
        drop(under_way);
        // Behind the last data there is none: that is no error of a disk.
        let seeks = matches!(call, NativeCall::Seek { .. });
        if let Err(errno) = done
            && is_of_lost_disk(errno)
            && !(seeks && errno == Errno::ENXIO)
        {
            self.probe();
        }
        done
    }

    fn root(&self) -> NativeStat {
        self.root
    }

    fn changes(&self) -> Changes {
        who::daemon();
        self.files.close_idle();
        self.feed.changes()
    }

    fn backing(&self, open: u64) -> Option<Arc<OwnedFd>> {
        self.files.backing(open)
    }

    fn state(&self) -> TreeState {
        if self.away.load(Ordering::Relaxed) {
            TreeState::Away
        } else if self.stuck() {
            TreeState::Stuck
        } else {
            TreeState::Serving
        }
    }

    fn reopen(&self) -> Result<bool, Errno> {
        if !self.away.load(Ordering::Relaxed) {
            return Ok(true);
        }
        who::daemon();
        // As long as anything of the lost disk is open, it may be in the way of itself.
        self.files.drop_all();
        self.locks.drop_all();
        self.feed.lose();
        self.dirs.close_all();
        self.mount.write().expect(NEVER_POISONED).dir = None;
        let (root, mount, stat) = match open_root(&self.path) {
            Err(errno) if is_of_lost_disk(errno) => return Ok(false),
            opened => opened?,
        };
        if mount.identity(stat.id)? != self.identity || !mount.dir.as_ref().is_some_and(|dir| serves(dir)) {
            return Ok(false);
        }
        *self.mount.write().expect(NEVER_POISONED) = mount;
        self.dirs.reopened(root);
        self.probed.store(0, Ordering::Relaxed);
        self.away.store(false, Ordering::Relaxed);
        Ok(true)
    }
}

const NEVER_POISONED: &str = "a panic ends the process";

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().expect(NEVER_POISONED)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(NEVER_POISONED)
}

/// The same error in the words of Atoll.
pub(crate) fn os(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

const ESHUTDOWN: Errno = Errno(libc::ESHUTDOWN);
const ENODEV: Errno = Errno(libc::ENODEV);
const ENOTCONN: Errno = Errno(libc::ENOTCONN);

fn is_of_lost_disk(errno: Errno) -> bool {
    [Errno::EIO, Errno::ENXIO, ENODEV, ESHUTDOWN, ENOTCONN].contains(&errno)
}

fn open_root(path: &Path) -> Result<(OwnedFd, Mount, NativeStat), Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, OFlags::PATH | flags, Mode::empty()).map_err(os)?;
    let dir = rustix::fs::openat(&root, c".", OFlags::RDONLY | flags, Mode::empty()).map_err(os)?;
    let told = rustix::fs::statx(&root, c"", AtFlags::EMPTY_PATH, MASK).map_err(os)?;
    let stat = native_stat(&told)?;
    let dev = (told.stx_dev_major, told.stx_dev_minor);
    let fs = match file_system_uuid(&dir) {
        Some(uuid) => u64::from(atoll_core::sum::sum(&uuid)) << 32 | uuid.len() as u64,
        None => rustix::fs::makedev(dev.0, dev.1),
    };
    let local = feed::is_local(&dir)?;
    Ok((root, Mount { dir: Some(Arc::new(dir)), dev, fs, local }, stat))
}

/// What every look at an object asks for.
const MASK: StatxFlags =
    StatxFlags::from_bits_retain(StatxFlags::BASIC_STATS.bits() | StatxFlags::BTIME.bits());

const NOFOLLOW: AtFlags =
    AtFlags::from_bits_retain(AtFlags::SYMLINK_NOFOLLOW.bits() | AtFlags::NO_AUTOMOUNT.bits());

/// Attributes of a name in a directory. `EXDEV` if something is mounted there.
fn stat_name(dir: BorrowedFd<'_>, name: &Name) -> Result<NativeStat, Errno> {
    let told = rustix::fs::statx(dir, name.as_bytes(), NOFOLLOW, MASK).map_err(os)?;
    if told.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::EXDEV);
    }
    native_stat(&told)
}

/// Attributes of what is open.
fn stat_fd(fd: BorrowedFd<'_>) -> Result<NativeStat, Errno> {
    native_stat(&rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, MASK).map_err(os)?)
}

/// `ESTALE` unless the name means this object.
fn expect_name(dir: BorrowedFd<'_>, name: &Name, id: NativeId) -> Result<NativeStat, Errno> {
    let stat = stat_name(dir, name)?;
    if stat.id == id { Ok(stat) } else { Err(Errno::ESTALE) }
}

fn native_stat(told: &Statx) -> Result<NativeStat, Errno> {
    let time = |t: StatxTimestamp| Time { secs: t.tv_sec, nanos: t.tv_nsec };
    let born = told.stx_mask & StatxFlags::BTIME.bits() != 0;
    let (major, minor) = (told.stx_rdev_major, told.stx_rdev_minor);
    let mode = u32::from(told.stx_mode);
    Ok(NativeStat {
        id: NativeId { ino: told.stx_ino, btime: if born { time(told.stx_btime) } else { Time::default() } },
        kind: Kind::from_format_bits(mode).ok_or(Errno::EIO)?,
        mode: mode & atoll_posix::mode::ALL,
        nlink: told.stx_nlink,
        uid: told.stx_uid,
        gid: told.stx_gid,
        rdev: (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12),
        size: told.stx_size,
        blocks: told.stx_blocks,
        atime: time(told.stx_atime),
        mtime: time(told.stx_mtime),
        ctime: time(told.stx_ctime),
    })
}

/// The path by which this process names an open object, whatever kind it is of.
struct ProcPath([u8; 32]);

impl ProcPath {
    fn of(fd: BorrowedFd<'_>) -> Self {
        use std::io::Write;
        let mut path = [0; 32];
        write!(&mut path[..31], "/proc/self/fd/{}", fd.as_raw_fd()).expect("a number has ten digits at most");
        Self(path)
    }

    fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.0).expect("its last byte is never written")
    }
}

/// An object that was found: through its own descriptor.
#[derive(Debug)]
enum Found {
    /// Shared with a table.
    Shared(Arc<OwnedFd>),
    /// Opened for this call, without the right to its bytes.
    Own(OwnedFd),
}

impl Found {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Shared(fd) => fd.as_fd(),
            Self::Own(fd) => fd.as_fd(),
        }
    }
}

impl NativeTree {
    /// Finds an object as [`At`] says. `ESTALE`.
    fn find(&self, of: &At) -> Result<Found, Errno> {
        if self.dirs.knows(of.id) {
            return Ok(Found::Shared(self.dir(of.id)?));
        }
        if let Some(file) = self.files.get(of.id) {
            return Ok(Found::Shared(file));
        }
        if let Some(handle) = self.handles.get(of.id) {
            let fd = handle.open(&*self.mount_dir()?)?;
            return if stat_fd(fd.as_fd())?.id == of.id { Ok(Found::Own(fd)) } else { Err(Errno::ESTALE) };
        }
        let (dir, name) = of.seen.as_ref().ok_or(Errno::ESTALE)?;
        let dir = self.dir(*dir)?;
        who::daemon();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&*dir, name.as_bytes(), flags, Mode::empty());
        let fd = opened.map_err(|e| gone(os(e)))?;
        if stat_fd(fd.as_fd())?.id == of.id { Ok(Found::Own(fd)) } else { Err(Errno::ESTALE) }
    }
}

/// An object whose name is gone is not what was named.
fn gone(errno: Errno) -> Errno {
    if errno == Errno::ENOENT { Errno::ESTALE } else { errno }
}
