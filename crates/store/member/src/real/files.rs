//! The descriptors of regular files, shared by all calls on a file. Owns their number and their end; never keeps one that is only
//! a cache for long, because a descriptor for writing keeps others from running the file, and any keeps a removed one's space.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use atoll_posix::Errno;
use atoll_union::NativeId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::stuck::now_ms;
use super::{TREES, lock};

/// Most descriptors of files that a tree keeps and nobody has opened; fewer where the process may not open many.
pub const FILE_DESCRIPTORS_MAX: usize = 1_024;

/// A descriptor that nobody has opened is closed after so long without use.
const IDLE_MS: u64 = 1_000;

/// Open files are counted over all trees of the process.
static NEXT_OPEN: AtomicU64 = AtomicU64::new(1);

/// How many descriptors the process may have, as it was when a tree was opened last.
static LIMIT: AtomicUsize = AtomicUsize::new(1_024);

/// The process may open as many files as it is allowed to.
pub(super) fn raise_limit() {
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        // It stays as it is where that is refused: the bounds follow the limit.
        let _refused = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
    let limit = getrlimit(Resource::Nofile).current;
    LIMIT.store(
        limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        Ordering::Relaxed,
    );
}

/// How many descriptors the process may have.
pub(super) fn limit() -> usize {
    LIMIT.load(Ordering::Relaxed)
}

/// The files whose descriptors are there.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    files: HashMap<NativeId, File>,
    opens: HashMap<u64, (NativeId, Arc<OwnedFd>)>,
    /// How many files have opens.
    pinned: usize,
    /// When idle ones were looked for, in milliseconds.
    swept: u64,
}

#[derive(Debug)]
struct File {
    fd: Arc<OwnedFd>,
    /// For writing too.
    write: bool,
    /// How many opens it has.
    pins: usize,
    /// When it was used last, in milliseconds.
    used: u64,
    /// Held by a call that uses the file's position.
    position: Arc<Mutex<()>>,
}

impl Files {
    /// A descriptor, whatever it is for. Looking at attributes through it keeps it no longer.
    pub(super) fn get(&self, id: NativeId) -> Option<Arc<OwnedFd>> {
        lock(&self.0).files.get(&id).map(|file| Arc::clone(&file.fd))
    }

    /// A descriptor that is for writing too if that is asked for.
    pub(super) fn get_for(&self, id: NativeId, write: bool) -> Option<Arc<OwnedFd>> {
        let mut table = lock(&self.0);
        let file = table.files.get_mut(&id).filter(|file| file.write || !write)?;
        file.used = now_ms();
        Some(Arc::clone(&file.fd))
    }

    /// The lock of the position that goes with a file's descriptor.
    pub(super) fn position(&self, id: NativeId) -> Arc<Mutex<()>> {
        lock(&self.0).files.get(&id).map(|file| Arc::clone(&file.position)).unwrap_or_default()
    }

    /// A descriptor is there from now on. A better one that is there stays. The one that is there.
    pub(super) fn insert(&self, id: NativeId, fd: OwnedFd, write: bool) -> Arc<OwnedFd> {
        self.close_idle();
        let mut table = lock(&self.0);
        table.make_room();
        table.file(id, &Arc::new(fd), write)
    }

    /// Opens it: this descriptor, or a better one that is there, stays until [`Files::close`]. The number of the open. Somebody's
    /// last close may have taken it out of the table since it was found there.
    pub(super) fn pin(&self, id: NativeId, fd: &Arc<OwnedFd>, write: bool) -> u64 {
        let mut table = lock(&self.0);
        let fd = table.file(id, fd, write);
        let first = table.files.get_mut(&id).is_some_and(|file| {
            file.pins += 1;
            file.pins == 1
        });
        let open = NEXT_OPEN.fetch_add(1, Ordering::Relaxed);
        table.opens.insert(open, (id, fd));
        table.pinned += usize::from(first);
        open
    }

    /// Lets go of an open. `EBADF`.
    pub(super) fn close(&self, open: u64) -> Result<(), Errno> {
        let mut table = lock(&self.0);
        let (id, fd) = table.opens.remove(&open).ok_or(Errno::EBADF)?;
        let mut last = None;
        if let Some(file) = table.files.get_mut(&id) {
            file.pins = file.pins.saturating_sub(1);
            // As long as it is open for writing, nobody can run it.
            if file.pins == 0 {
                last = table.files.remove(&id);
                table.pinned -= 1;
            }
        }
        // The native close may free a large file: not under the lock.
        drop(table);
        drop((last, fd));
        Ok(())
    }

    pub(super) fn backing(&self, open: u64) -> Option<Arc<OwnedFd>> {
        lock(&self.0).opens.get(&open).map(|(_, fd)| Arc::clone(fd))
    }

    /// A name of it is gone: a descriptor that nobody has opened would keep its space.
    pub(super) fn let_go(&self, id: NativeId) {
        let mut table = lock(&self.0);
        let unpinned = table.files.get(&id).is_some_and(|file| file.pins == 0);
        let file = if unpinned { table.files.remove(&id) } else { None };
        drop(table);
        drop(file);
    }

    /// Closes all descriptors of a file. Its opens are gone.
    pub(super) fn close_file(&self, id: NativeId) {
        let mut table = lock(&self.0);
        let file = table.files.remove(&id);
        if file.as_ref().is_some_and(|file| file.pins > 0) {
            table.pinned -= 1;
        }
        let opens: Vec<_> = table.opens.extract_if(|_, (of, _)| *of == id).collect();
        drop(table);
        drop((file, opens));
    }

    /// Closes what nobody has opened or used for a while.
    pub(super) fn close_idle(&self) {
        let now = now_ms();
        let mut table = lock(&self.0);
        if now.saturating_sub(table.swept) < IDLE_MS {
            return;
        }
        table.swept = now;
        let idle = |file: &File| file.pins == 0 && now.saturating_sub(file.used) >= IDLE_MS;
        let closed: Vec<_> = table.files.extract_if(|_, file| idle(file)).collect();
        drop(table);
        drop(closed);
    }

    /// Closes all that nobody has opened.
    pub(super) fn close_unpinned(&self) {
        lock(&self.0).files.retain(|_, file| file.pins > 0);
    }

    /// Closes everything, opens too.
    pub(super) fn drop_all(&self) {
        *lock(&self.0) = Table::default();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        lock(&self.0).files.len()
    }
}

impl Table {
    /// The descriptor of a file, which is this one if there is none that is as good.
    fn file(&mut self, id: NativeId, fd: &Arc<OwnedFd>, write: bool) -> Arc<OwnedFd> {
        let new = || File { fd: Arc::clone(fd), write, pins: 0, used: 0, position: Arc::default() };
        let file = self.files.entry(id).or_insert_with(new);
        if write && !file.write {
            *file = File { pins: file.pins, ..new() };
        }
        file.used = now_ms();
        Arc::clone(&file.fd)
    }

    fn make_room(&mut self) {
        let trees = TREES.load(Ordering::Relaxed).max(1);
        let bound = (limit() / 4 / trees).clamp(4, FILE_DESCRIPTORS_MAX);
        if self.files.len() - self.pinned < bound {
            return;
        }
        let mut unpinned: Vec<_> =
            self.files.iter().filter(|(_, file)| file.pins == 0).map(|(id, file)| (file.used, *id)).collect();
        unpinned.sort_unstable_by_key(|(used, _)| *used);
        for (_, id) in unpinned.into_iter().take(bound / 8 + 1) {
            self.files.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Time;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn an_open_that_meets_the_last_close_of_its_file_succeeds() {
        let files = Files::default();
        let id = NativeId { ino: 5, btime: Time::default() };
        let first = files.pin(id, &Arc::new(null()), false);
        let found = files.get_for(id, false).unwrap();
        files.close(first).unwrap();
        let second = files.pin(id, &found, false);
        assert!(files.backing(second).is_some() && files.get(id).is_some());
        files.close(second).unwrap();
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn files_that_nobody_has_opened_are_bounded_and_opened_ones_stay() {
        let files = Files::default();
        let id = |ino| NativeId { ino, btime: Time::default() };
        files.insert(id(0), null(), true);
        let fd = files.get(id(0)).unwrap();
        let open = files.pin(id(0), &fd, true);
        for ino in 1..2 * FILE_DESCRIPTORS_MAX as u64 {
            files.insert(id(ino), null(), false);
        }
        assert!(files.len() <= FILE_DESCRIPTORS_MAX + 1, "{}", files.len());
        files.close_unpinned();
        assert_eq!(files.len(), 1);
        assert!(files.backing(open).is_some());
        files.close(open).unwrap();
        assert_eq!((files.len(), files.close(open)), (0, Err(Errno::EBADF)));
    }
}
