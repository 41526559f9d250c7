//! Directories that are open: who may use what the kernel keeps of a listing, and who has come to the end of
//! one. Holds no names itself.
//!
//! The kernel keeps one listing of a directory, in the order in which it was told of the names, and does not
//! see by whom: where one has listed all but the end, and a name goes, and another one begins, the end that
//! the first one is told makes the old listing a whole one, from which the other goes on. So at most one open
//! directory at a time may fill it and read it.
//!
//! It goes by the directory's time of change, too. Of two answers that tell this the kernel drops the newer
//! one if the older comes in between. So nobody uses it while others may change the volume.

use atoll_core::Ino;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Those that are open and remembered for something.
#[derive(Debug, Default)]
pub(crate) struct Listers {
    /// By directory: the handle whose the kept listing is.
    keepers: Mutex<HashMap<Ino, u64>>,
    /// By handle: behind which cookie there was nothing more.
    ends: Mutex<HashMap<u64, u64>>,
}

fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().expect("no holder of this lock panics")
}

impl Listers {
    /// A directory is opened. True if the kept listing is this handle's, until it is closed.
    pub(crate) fn keeps(&self, dir: Ino, handle: u64) -> bool {
        *lock(&self.keepers).entry(dir).or_insert(handle) == handle
    }

    /// It was listed up to this cookie, and there is nothing more.
    pub(crate) fn ended(&self, handle: u64, cookie: u64) {
        lock(&self.ends).insert(handle, cookie);
    }

    /// To be asked for each answer to this handle: true if all there was to tell was told by the one before.
    /// Whoever asks once more wants to know what has come since.
    pub(crate) fn is_at_end(&self, handle: u64, cookie: u64) -> bool {
        lock(&self.ends).remove(&handle) == Some(cookie)
    }

    /// Nobody has this handle any more.
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
