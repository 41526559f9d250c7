//! Open directories: which handle may use the listing that the kernel keeps, and which handles have come to
//! the end of theirs. Holds no names itself.
//!
//! The kernel keeps one listing of a directory, in the order in which it was told of the names, and does not
//! note who asked. Suppose one handle has listed all but the end, a name is removed, and another handle
//! begins. When the first one is told the end, the kernel takes the old listing for complete, and the second
//! handle goes on with it. So at most one open directory at a time may fill and read the listing.
//!
//! The kernel also compares the directory's change time. If an older answer with it comes in between, the
//! kernel drops the newer one. So no handle uses the listing while other mounts may change the volume.

use atoll_core::Ino;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Handles with something to remember.
#[derive(Debug, Default)]
pub(crate) struct Listers {
    /// By directory: the handle that may use the kept listing.
    keepers: Mutex<HashMap<Ino, u64>>,
    /// By handle: the last cookie.
    ends: Mutex<HashMap<u64, u64>>,
}

fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().expect("no holder of this lock panics")
}

impl Listers {
    /// A directory is opened. True if this handle may use the kept listing until it is closed.
    pub(crate) fn keeps(&self, dir: Ino, handle: u64) -> bool {
        *lock(&self.keepers).entry(dir).or_insert(handle) == handle
    }

    /// A handle was listed up to this cookie, and there was nothing more.
    pub(crate) fn ended(&self, handle: u64, cookie: u64) {
        lock(&self.ends).insert(handle, cookie);
    }

    /// To be called for each listing request of this handle. True if the answer before told the last name. A
    /// further request gets the names that have come since.
    pub(crate) fn is_at_end(&self, handle: u64, cookie: u64) -> bool {
        lock(&self.ends).remove(&handle) == Some(cookie)
    }

    /// A handle is closed.
    pub(crate) fn closed(&self, dir: Ino, handle: u64) {
        lock(&self.ends).remove(&handle);
        let mut keepers = lock(&self.keepers);
        if keepers.get(&dir) == Some(&handle) {
            keepers.remove(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_listing_is_one_handles_until_that_is_closed() {
        let (listers, dir) = (Listers::default(), Ino(9));
        assert!(listers.keeps(dir, 1) && !listers.keeps(dir, 2) && listers.keeps(Ino(10), 3));
        listers.closed(dir, 2);
        assert!(!listers.keeps(dir, 4));
        listers.closed(dir, 1);
        assert!(listers.keeps(dir, 5));
    }

    #[test]
    fn the_end_is_told_once_to_who_has_come_to_it() {
        let listers = Listers::default();
        listers.ended(1, 77);
        assert!(!listers.is_at_end(2, 77));
        assert!(listers.is_at_end(1, 77) && !listers.is_at_end(1, 77));
        listers.ended(1, 77);
        assert!(!listers.is_at_end(1, 50) && !listers.is_at_end(1, 77), "it has gone back");
        listers.ended(1, 77);
        listers.closed(Ino(9), 1);
        assert!(!listers.is_at_end(1, 77) && lock(&listers.ends).is_empty());
    }
}
