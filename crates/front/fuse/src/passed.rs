//! Files whose reads, writes and mappings the kernel does itself in a native file (passthrough). Knows for each inode whether its
//! opens are passed, because the kernel refuses an open that is not like the others. Never opens a native file.
//!
//! The kernel opens the native file anew for each open and acts in it with the rights of the thread that has told of it. So that
//! thread gives up what a daemon may and a user may not: to exceed quotas, to use the reserve of a file system, and to keep
//! set-id bits over a write.

use crate::device::Device;
use atoll_core::Ino;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// Whether the kernel reads and writes native files itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passthrough {
    /// It does where the volume names them.
    On,
    /// The volume has none, or this mount is not to use them.
    NotOffered,
    /// The kernel cannot (Linux before 6.9, or built without).
    OldKernel,
    /// This process may not tell the kernel of native files (`CAP_SYS_ADMIN`).
    NotAllowed,
}

/// All inodes that are open.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    inodes: Mutex<HashMap<Ino, Opens>>,
    /// Passed opens for writing, of all inodes.
    writers: AtomicUsize,
}

/// The opens of an inode.
#[derive(Debug)]
struct Opens {
    count: usize,
    writers: usize,
    /// The kernel's number of the native file, if they are passed.
    backing: Option<u32>,
}

impl Passed {
    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, Opens>> {
        self.inodes.lock().expect("no holder of this lock panics")
    }

    /// An inode has one more open. If that is passed, the number of the native file. `tell` tells the kernel of the native file
    /// and returns its number; it is called for the first open only.
    pub(crate) fn opened(&self, ino: Ino, write: bool, tell: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let mut inodes = self.lock();
        let opens = inodes.entry(ino).or_insert_with(|| Opens { count: 0, writers: 0, backing: tell() });
        opens.count += 1;
        if opens.backing.is_some() && write {
            opens.writers += 1;
            self.writers.fetch_add(1, Relaxed);
        }
        opens.backing
    }

    /// An open of an inode has ended. `forget` is called with the number of a native file that no open uses any more.
    pub(crate) fn closed(&self, ino: Ino, write: bool, forget: impl FnOnce(u32)) {
        let mut inodes = self.lock();
        let Some(opens) = inodes.get_mut(&ino) else { return };
        opens.count -= 1;
        if opens.backing.is_some() && write {
            opens.writers -= 1;
            self.writers.fetch_sub(1, Relaxed);
        }
        if opens.count == 0 {
            // Under the lock: the next open of this inode tells of the file anew.
            if let Some(backing) = opens.backing {
                forget(backing);
            }
            inodes.remove(&ino);
        }
    }

    /// Whether a file has this one open and no other.
    pub(crate) fn is_open_once(&self, ino: Ino) -> bool {
        self.lock().get(&ino).is_some_and(|opens| opens.count == 1)
    }

    /// Whether a program may change this file without a request, so that its attributes cannot be kept.
    pub(crate) fn has_writers(&self, ino: Ino) -> bool {
        self.writers.load(Relaxed) > 0 && self.lock().get(&ino).is_some_and(|opens| opens.writers > 0)
    }
}

/// `struct fuse_backing_map`.
#[repr(C)]
struct Map {
    fd: RawFd,
    flags: u32,
    padding: u64,
}

/// `FUSE_DEV_IOC_BACKING_OPEN`.
const OPEN: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<Map>(229, 1);
/// `FUSE_DEV_IOC_BACKING_CLOSE`.
const CLOSE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<u32>(229, 2);

fn tell(device: &Device, fd: RawFd) -> Result<u32, std::io::Error> {
    let map = Map { fd, flags: 0, padding: 0 };
    // SAFETY: the kernel reads the map.
    let told = unsafe { libc::ioctl(device.raw(), OPEN as libc::Ioctl, &raw const map) };
    u32::try_from(told).map_err(|_| std::io::Error::last_os_error())
}

impl Device {
    /// Tells the kernel of a native file, in the name of this user. Its number; none if the kernel does not take it.
    pub(crate) fn pass_to(&self, file: &impl AsRawFd, uid: u32) -> Option<u32> {
        let _less = LessRights::take(uid)?;
        tell(self, file.as_raw_fd()).ok()
    }

    /// The kernel need not keep a native file any more.
    pub(crate) fn pass_no_more(&self, backing: u32) {
        // SAFETY: the kernel reads the number.
        let _gone = unsafe { libc::ioctl(self.raw(), CLOSE as libc::Ioctl, &raw const backing) };
    }

    /// Whether this process may tell of native files.
    pub(crate) fn may_pass(&self) -> bool {
        // Who may not is refused before the file is looked at.
        tell(self, -1).is_err_and(|why| why.raw_os_error() == Some(libc::EBADF))
    }
}

/// The rights of this thread are those of a user, but for the right to tell of native files, until this is dropped.
struct LessRights {
    before: CapabilitySets,
    uid: u32,
}

impl LessRights {
    fn take(uid: u32) -> Option<Self> {
        let before = capabilities(None).ok()?;
        if uid != 0 {
            set_fs_user(uid);
        }
        let less = CapabilitySets { effective: before.effective & CapabilitySet::SYS_ADMIN, ..before };
        let it = Self { before, uid };
        set_capabilities(None, less).ok()?;
        Some(it)
    }
}

impl Drop for LessRights {
    fn drop(&mut self) {
        // A thread that cannot become the daemon again would fail in all that it does.
        set_capabilities(None, self.before).expect("a thread may use the rights that it has");
        if self.uid != 0 {
            set_fs_user(0);
        }
    }
}

/// By which user the native file system judges this thread.
fn set_fs_user(uid: u32) {
    // SAFETY: no memory is involved. This thread alone is concerned.
    unsafe { libc::setfsuid(uid) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_opens_of_an_inode_are_passed_or_none_is() {
        let passed = Passed::default();
        assert_eq!(passed.opened(Ino(5), false, || Some(7)), Some(7));
        assert!(passed.is_open_once(Ino(5)) && !passed.is_open_once(Ino(6)));
        assert_eq!(passed.opened(Ino(5), true, || panic!("it is known")), Some(7));
        assert!(passed.has_writers(Ino(5)) && !passed.is_open_once(Ino(5)));
        assert_eq!(passed.opened(Ino(6), true, || None), None);
        assert_eq!(passed.opened(Ino(6), false, || Some(8)), None, "one is open that is not passed");
        assert!(!passed.has_writers(Ino(6)), "its writes are seen");
        passed.closed(Ino(5), true, |_| panic!("one is open"));
        assert!(!passed.has_writers(Ino(5)));
        let mut forgotten = None;
        passed.closed(Ino(5), false, |backing| forgotten = Some(backing));
        assert_eq!(forgotten, Some(7));
        assert_eq!(passed.opened(Ino(5), false, || Some(9)), Some(9));
    }
}
