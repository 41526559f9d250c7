//! The ids that the volume keeps for this frontend, bounded; and the write verifier.
//!
//! The verifier changes whenever bytes that were acknowledged and not synced may be lost, or the volume no longer
//! remembers them as such. A client then sends them again. It also differs between server processes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use atoll_core::{IdSet, Ino};
use atoll_vfs::Files;

/// Ids of one generation; at most twice as many are kept.
pub(crate) const GENERATION_MAX: usize = 131_072;
/// Files with unstable writes that are remembered.
pub(crate) const UNSYNCED_MAX: usize = 65_536;
/// Ids that are forgotten in one call.
const FORGET_BATCH: usize = 1024;

#[derive(Debug, Default)]
struct Sets {
    young: IdSet<Ino>,
    old: IdSet<Ino>,
    unsynced: IdSet<Ino>,
}

/// See the top of the file.
#[derive(Debug)]
pub(crate) struct Known {
    sets: Mutex<Sets>,
    epoch: AtomicU64,
}

impl Known {
    /// `start`: a number that no other server process has.
    pub(crate) fn new(start: u64) -> Self {
        Self { sets: Mutex::default(), epoch: start.into() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sets> {
        self.sets.lock().expect("no holder of this lock panics")
    }

    /// An id is used. Ids that were not used for long are forgotten.
    pub(crate) fn touch(&self, files: &dyn Files, ino: Ino) {
        let gone: Vec<Ino> = {
            let mut sets = self.lock();
            if !sets.young.insert(ino) || sets.young.len() < GENERATION_MAX {
                return;
            }
            let young = std::mem::take(&mut sets.young);
            let old = std::mem::replace(&mut sets.old, young);
            let gone: Vec<Ino> =
                old.into_iter().filter(|ino| *ino != Ino::ROOT && !sets.old.contains(ino)).collect();
            let lost = gone.iter().filter(|ino| sets.unsynced.remove(ino)).count();
            if lost > 0 {
                self.renew();
            }
            gone
        };
        gone.chunks(FORGET_BATCH).for_each(|batch| files.forget(batch));
    }

    /// A file has no name any more, and no NFS client can hold it open.
    pub(crate) fn removed(&self, files: &dyn Files, ino: Ino) {
        {
            let mut sets = self.lock();
            sets.young.remove(&ino);
            sets.old.remove(&ino);
            sets.unsynced.remove(&ino);
        }
        files.forget(&[ino]);
    }

    /// Bytes of a file were acknowledged that are not synced.
    pub(crate) fn unsynced(&self, ino: Ino) {
        let mut sets = self.lock();
        if sets.unsynced.len() >= UNSYNCED_MAX {
            sets.unsynced.clear();
            self.renew();
        }
        sets.unsynced.insert(ino);
    }

    /// Unsynced bytes may be lost.
    pub(crate) fn renew(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    /// What the verifier is made from.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_model::{AtimeRule, ModelFiles};
    use atoll_vfs::Caching;

    #[test]
    fn ids_that_are_not_used_are_forgotten_and_unsynced_ones_change_the_verifier() {
        let files = ModelFiles::new(AtimeRule::Never, Caching::Never);
        let known = Known::new(1);
        let touch =
            |from: usize, n: usize| (from..from + n).for_each(|i| known.touch(&files, Ino(i as u64 + 2)));
        known.unsynced(Ino(2));
        touch(0, GENERATION_MAX);
        assert_eq!(known.epoch(), 1, "it is remembered for one generation more");
        touch(GENERATION_MAX, GENERATION_MAX);
        assert_eq!(known.epoch(), 2);
        let sets = known.lock();
        assert!(sets.young.len() + sets.old.len() <= 2 * GENERATION_MAX && !sets.old.contains(&Ino(2)));
    }

    #[test]
    fn more_unsynced_files_than_are_remembered_change_the_verifier() {
        let known = Known::new(1);
        (0..=UNSYNCED_MAX as u64).for_each(|i| known.unsynced(Ino(i)));
        assert_eq!(known.epoch(), 2);
        assert_eq!(known.lock().unsynced.len(), 1);
    }
}
