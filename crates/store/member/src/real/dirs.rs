//! The directories that are open in a member: each is found by its identity. Owns their places and descriptors; opens a
//! descriptor anew where the bound has closed it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use atoll_core::{Name, VolumePath};
use atoll_posix::{Errno, Kind};
use atoll_union::{NativeId, NativeStat};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::handle::{Handle, native_handle};
use super::{NativeTree, TREES, files, lock, os, read, stat_fd};

/// Most descriptors of directories that a tree keeps; fewer where the process may not open many.
pub const DIR_DESCRIPTORS_MAX: usize = 16_384;

/// Deepest directory that is found by walking up to one whose descriptor is open: as deep as a path can be.
const DEPTH_MAX: usize = VolumePath::BYTES_MAX / 2;

/// The directories that are open.
#[derive(Debug)]
pub(super) struct Dirs {
    table: RwLock<HashMap<NativeId, Arc<Dir>>>,
    root: NativeId,
    /// How many descriptors there are.
    descriptors: AtomicUsize,
    /// Counts openings of descriptors: the clock by which the oldest are found.
    clock: AtomicU64,
}

/// One directory.
#[derive(Debug)]
struct Dir {
    inner: Mutex<Inner>,
    used: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    fd: Option<Arc<OwnedFd>>,
    /// Taken when the descriptor is closed, where the file system has handles and we may use them.
    handle: Option<Handle>,
    /// The directory above and the name there. None for the root.
    place: Option<(NativeId, Name)>,
}

impl Dirs {
    pub(super) fn new(root: NativeId, fd: OwnedFd) -> Self {
        let dir = Dir {
            inner: Mutex::new(Inner { fd: Some(Arc::new(fd)), handle: None, place: None }),
            used: AtomicU64::new(u64::MAX),
        };
        Self {
            table: RwLock::new(HashMap::from([(root, Arc::new(dir))])),
            root,
            descriptors: AtomicUsize::new(1),
            clock: AtomicU64::new(1),
        }
    }

    pub(super) fn knows(&self, id: NativeId) -> bool {
        read(&self.table).contains_key(&id)
    }

    fn get(&self, id: NativeId) -> Result<Arc<Dir>, Errno> {
        read(&self.table).get(&id).cloned().ok_or(Errno::ESTALE)
    }

    /// A directory is open from now on, at this place.
    pub(super) fn insert(&self, id: NativeId, fd: OwnedFd, place: (NativeId, Name)) {
        self.make_room();
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut table = self.table.write().expect(super::NEVER_POISONED);
        let dir = table.entry(id).or_insert_with(|| {
            let inner = Mutex::new(Inner { fd: None, handle: None, place: None });
            Arc::new(Dir { inner, used: AtomicU64::new(used) })
        });
        if id != self.root {
            dir.used.store(used, Ordering::Relaxed);
        }
        let mut inner = lock(&dir.inner);
        if id != self.root {
            inner.place = Some(place);
        }
        if inner.fd.is_none() {
            inner.fd = Some(Arc::new(fd));
            self.descriptors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It was renamed by us.
    pub(super) fn moved(&self, id: NativeId, place: (NativeId, Name)) {
        if id != self.root
            && let Ok(dir) = self.get(id)
        {
            lock(&dir.inner).place = Some(place);
        }
    }

    pub(super) fn forget(&self, id: NativeId) {
        let dir = self.table.write().expect(super::NEVER_POISONED).remove(&id);
        if dir.is_some_and(|dir| lock(&dir.inner).fd.is_some()) {
            self.descriptors.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes every descriptor, the root's too.
    pub(super) fn close_all(&self) {
        let table = self.table.write().expect(super::NEVER_POISONED);
        for dir in table.values() {
            lock(&dir.inner).fd = None;
        }
        self.descriptors.store(0, Ordering::Relaxed);
    }

    /// The root was opened anew.
    pub(super) fn reopened(&self, root: OwnedFd) {
        if let Ok(dir) = self.get(self.root) {
            lock(&dir.inner).fd = Some(Arc::new(root));
            self.descriptors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes the descriptors that were used least lately, if there are too many.
    fn make_room(&self) {
        let trees = TREES.load(Ordering::Relaxed).max(1);
        let bound = (files::limit() / 2 / trees).clamp(8, DIR_DESCRIPTORS_MAX);
        if self.descriptors.load(Ordering::Relaxed) < bound {
            return;
        }
        self.close_oldest(bound / 8 + 1);
    }

    /// Closes so many descriptors, the root's never.
    pub(super) fn close_oldest(&self, count: usize) {
        let table = read(&self.table);
        let mut open: Vec<_> = table
            .iter()
            .filter(|(id, dir)| **id != self.root && lock(&dir.inner).fd.is_some())
            .map(|(_, dir)| (dir.used.load(Ordering::Relaxed), dir))
            .collect();
        open.sort_by_key(|(used, _)| *used);
        for (_, dir) in open.into_iter().take(count) {
            let mut inner = lock(&dir.inner);
            if let Some(fd) = inner.fd.take() {
                if inner.handle.is_none() && rustix::process::geteuid().is_root() {
                    inner.handle = native_handle(fd.as_fd()).ok();
                }
                self.descriptors.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// How a directory is opened below another one: nothing but the name itself is followed.
fn open_below(above: &OwnedFd, name: &Name) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let opened = rustix::fs::openat2(above, name.as_bytes(), flags, Mode::empty(), resolve).map_err(os);
    // A symbolic link is not a directory, whatever it points to.
    opened.map_err(|e| if e == Errno::ELOOP { Errno::ENOTDIR } else { e })
}

impl NativeTree {
    /// The descriptor of a directory that is open. `ESTALE` if it is not, or cannot be found any more.
    pub(super) fn dir(&self, id: NativeId) -> Result<Arc<OwnedFd>, Errno> {
        let dir = self.dirs.get(id)?;
        if id != self.root.id {
            dir.used.store(self.dirs.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if let Some(fd) = &lock(&dir.inner).fd {
            return Ok(Arc::clone(fd));
        }
        self.dir_again(id)
    }

    /// Opens a directory again whose descriptor was closed.
    fn dir_again(&self, id: NativeId) -> Result<Arc<OwnedFd>, Errno> {
        crate::who::daemon();
        let mut way = Vec::new();
        let mut at = id;
        let mut above = loop {
            let dir = self.dirs.get(at)?;
            let inner = lock(&dir.inner);
            if let Some(fd) = &inner.fd {
                break Arc::clone(fd);
            }
            let by_handle = inner.handle.as_ref().and_then(|handle| {
                let fd = handle.open(&*self.mount_dir().ok()?).ok()?;
                let right = stat_fd(fd.as_fd()).is_ok_and(|stat| stat.id == at);
                (right && self.path_of(fd.as_fd()).is_ok()).then_some(fd)
            });
            let place = inner.place.clone().ok_or(Errno::ESTALE)?;
            drop(inner);
            if let Some(fd) = by_handle {
                break self.keep(at, fd, place);
            }
            if way.len() >= DEPTH_MAX {
                return Err(Errno::ESTALE);
            }
            way.push((at, place.clone()));
            at = place.0;
        };
        while let Some((id, place)) = way.pop() {
            let fd = open_below(&above, &place.1).map_err(super::gone)?;
            if stat_fd(fd.as_fd())?.id != id {
                return Err(Errno::ESTALE);
            }
            above = self.keep(id, fd, place);
        }
        Ok(above)
    }

    fn keep(&self, id: NativeId, fd: OwnedFd, place: (NativeId, Name)) -> Arc<OwnedFd> {
        self.dirs.insert(id, fd, place);
        let dir = self.dirs.get(id).expect("it was put there, and the machine forgets no directory in use");
        let fd = lock(&dir.inner).fd.clone();
        fd.expect("it was put there, and is the youngest")
    }

    /// Opens a directory by name and enters it into the table.
    pub(super) fn open_dir(&self, dir: NativeId, name: &Name) -> Result<NativeStat, Errno> {
        crate::who::daemon();
        let above = self.dir(dir)?;
        let opened = open_below(&above, name);
        let fd = match opened {
            Err(Errno(libc::EMFILE | libc::ENFILE)) => {
                self.dirs.close_oldest(64);
                self.files.close_unpinned();
                open_below(&above, name)?
            }
            opened => opened?,
        };
        let stat = stat_fd(fd.as_fd())?;
        if stat.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.dirs.insert(stat.id, fd, (dir, name.clone()));
        Ok(stat)
    }
}
