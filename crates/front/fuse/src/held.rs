//! Notes which locks were granted through this mount, so that a close takes away the right ones. Holds no
//! lock itself, and never decides whether one is granted.
//!
//! The kernel leaves unlocking at close to the file system. The POSIX locks of a process end at FLUSH, which
//! comes at each `close`. `flock` and open-file-description locks end at RELEASE of the handle.

use atoll_core::Ino;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A holder of a lock on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The kernel's lock owner.
    pub(crate) owner: u64,
    /// The handle through which it was asked for.
    pub(crate) fh: u64,
    pub(crate) flock: bool,
}

/// Holders by file. Nearly always empty, which costs one load to see.
#[derive(Debug, Default)]
pub(crate) struct Held {
    count: AtomicUsize,
    files: Mutex<HashMap<Ino, Vec<Holder>>>,
}

impl Held {
    /// A lock was granted; called before the kernel hears of it, so that the close that follows
    /// finds it.
    pub(crate) fn granted(&self, ino: Ino, holder: Holder) {
        let mut files = self.files.lock().expect("no holder of this lock panics");
        let holders = files.entry(ino).or_default();
        if !holders.contains(&holder) {
            holders.push(holder);
            self.count.fetch_add(1, SeqCst);
        }
    }

    /// A process closes a descriptor of this file: true if it may hold POSIX locks there, which go
    /// with any of its descriptors.
    pub(crate) fn closed(&self, ino: Ino, owner: u64) -> bool {
        !self.take(ino, |h| h.owner == owner && !h.flock).is_empty()
    }

    /// A handle is closed. Returns the holders whose locks end with it.
    pub(crate) fn released(&self, ino: Ino, fh: u64) -> Vec<Holder> {
        self.take(ino, |h| h.fh == fh)
    }

    fn take(&self, ino: Ino, mut gone: impl FnMut(&Holder) -> bool) -> Vec<Holder> {
        if self.count.load(SeqCst) == 0 {
            return Vec::new();
        }
        let mut files = self.files.lock().expect("no holder of this lock panics");
        let Some(holders) = files.get_mut(&ino) else { return Vec::new() };
        let taken: Vec<Holder> = holders.extract_if(.., |h| gone(h)).collect();
        if holders.is_empty() {
            files.remove(&ino);
        }
        self.count.fetch_sub(taken.len(), SeqCst);
        taken
    }

    /// Every holder: the mount has gone without closing its files.
    pub(crate) fn drain(&self) -> Vec<(Ino, Holder)> {
        let mut files = self.files.lock().expect("no holder of this lock panics");
        self.count.store(0, SeqCst);
        files.drain().flat_map(|(ino, holders)| holders.into_iter().map(move |h| (ino, h))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_finds_the_posix_locks_of_the_process_whichever_handle_took_them() {
        let held = Held::default();
        held.granted(Ino(5), Holder { owner: 1, fh: 10, flock: false });
        held.granted(Ino(5), Holder { owner: 1, fh: 11, flock: false });
        held.granted(Ino(5), Holder { owner: 1, fh: 11, flock: true });
        assert!(!held.closed(Ino(5), 2) && !held.closed(Ino(6), 1));
        assert!(held.closed(Ino(5), 1));
        assert!(!held.closed(Ino(5), 1), "they went with the first close");
        assert_eq!(held.released(Ino(5), 11), [Holder { owner: 1, fh: 11, flock: true }]);
        assert!(held.drain().is_empty() && held.count.load(SeqCst) == 0);
    }
}
