//! Files that have no `security.capability`, as the volume has said. Before the kernel lets somebody write to a file it asks for that
//! attribute, and it does so again whenever it was told of the file's other attributes. Never asks a volume.
//!
//! What is here holds as long as the volume lets the kernel keep what it is told, and goes with a recall. Bounded by the files that the
//! kernel knows, in about 20 bytes each.

use atoll_core::Ino;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

/// The attribute that holds a file's capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const SHARDS: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Uncapable {
    shards: [Mutex<HashSet<Ino>>; SHARDS],
    /// Counts what may make an answer that is under way untrue.
    changes: AtomicU64,
}

impl Uncapable {
    fn of(&self, ino: Ino) -> MutexGuard<'_, HashSet<Ino>> {
        self.shards[(ino.0 % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// How many changes there were. To be noted when the volume is asked.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// A file has none, as the volume has said. When it was asked there were so many changes.
    pub(crate) fn learn(&self, ino: Ino, asked: u64) {
        let mut known = self.of(ino);
        if self.changes() == asked {
            known.insert(ino);
        }
    }

    /// Whether a file is known to have none.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.of(ino).contains(&ino)
    }

    /// A file may have some from here on.
    pub(crate) fn may_change(&self, ino: Ino) {
        self.changes.fetch_add(1, SeqCst);
        self.of(ino).remove(&ino);
    }

    /// The kernel has forgotten a file.
    pub(crate) fn forget(&self, ino: Ino) {
        self.of(ino).remove(&ino);
    }

    /// Any file may have some from here on.
    pub(crate) fn clear(&self) {
        self.changes.fetch_add(1, SeqCst);
        for shard in &self.shards {
            std::mem::take(&mut *shard.lock().expect("no holder of this lock panics"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_a_change_has_overtaken_is_not_learnt() {
        let (files, f, g) = (Uncapable::default(), Ino(7), Ino(8));
        let asked = files.changes();
        files.learn(f, asked);
        assert!(files.has(f) && !files.has(g));
        files.may_change(f);
        files.learn(f, asked);
        files.learn(g, asked);
        assert!(!files.has(f) && !files.has(g));
        [f, g].into_iter().for_each(|ino| files.learn(ino, files.changes()));
        files.forget(f);
        assert!(!files.has(f) && files.has(g));
        let asked = files.changes();
        files.clear();
        files.learn(f, asked);
        assert!(!files.has(f) && !files.has(g));
    }
}
