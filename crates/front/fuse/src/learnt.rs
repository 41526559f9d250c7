//! What answers of the volume have told of files or directories, by their ids. Never asks a volume, and knows nothing of what it is.
//!
//! An answer may be overtaken by a change. So whoever asks notes how many changes there were before, and what a change has overtaken is not
//! learnt.

use atoll_core::Ino;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Most files or directories of a shard. If there are more, all of a shard go.
const SHARD_MAX: usize = 1 << 12;

/// See the module.
#[derive(Debug)]
pub(crate) struct Learnt<V> {
    shards: [Mutex<HashMap<Ino, V>>; SHARDS],
    /// Counts what may make an answer that is under way untrue.
    changes: AtomicU64,
}

impl<V> Default for Learnt<V> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), changes: 0.into() }
    }
}

impl<V: Copy> Learnt<V> {
    fn of(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, V>> {
        self.shards[(ino.0 % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// How many changes there were. To be noted when the volume is asked.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// The volume has told this. When it was asked there were so many changes. `is_later`: than what was told before. If a change may have
    /// overtaken it, then nothing is known: what was told before may be older still.
    pub(crate) fn learn(&self, ino: Ino, value: V, asked: u64, is_later: impl FnOnce(&V) -> bool) {
        let mut known = self.of(ino);
        if self.changes() != asked {
            known.remove(&ino);
            return;
        }
        if !known.get(&ino).is_none_or(is_later) {
            return;
        }
        if known.len() >= SHARD_MAX {
            known.clear();
        }
        known.insert(ino, value);
    }

    /// What is known of it.
    pub(crate) fn get(&self, ino: Ino) -> Option<V> {
        self.of(ino).get(&ino).copied()
    }

    /// It may be another one from here on.
    pub(crate) fn may_change(&self, ino: Ino) {
        self.changes.fetch_add(1, SeqCst);
        self.forget(ino);
    }

    /// The kernel has forgotten it.
    pub(crate) fn forget(&self, ino: Ino) {
        self.of(ino).remove(&ino);
    }

    /// All may be others from here on.
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
        let (files, f, g) = (Learnt::default(), Ino(7), Ino(8));
        let learn = |ino, asked| files.learn(ino, (), asked, |()| false);
        let has = |ino| files.get(ino).is_some();
        let asked = files.changes();
        learn(f, asked);
        assert!(has(f) && !has(g));
        files.may_change(f);
        learn(f, asked);
        learn(g, asked);
        assert!(!has(f) && !has(g));
        // Nor is what was told before it still known.
        learn(f, files.changes());
        files.may_change(g);
        learn(f, asked);
        assert!(!has(f));
        [f, g].into_iter().for_each(|ino| learn(ino, files.changes()));
        files.forget(f);
        assert!(!has(f) && has(g));
        let asked = files.changes();
        files.clear();
        learn(f, asked);
        assert!(!has(f) && !has(g));
    }

    #[test]
    fn only_so_many_are_known() {
        let files = Learnt::default();
        for n in 0..=SHARD_MAX as u64 {
            files.learn(Ino(16 * (n + 1)), (), 0, |()| false);
        }
        assert!(files.get(Ino(16)).is_none() && files.of(Ino(16)).len() == 1);
    }
}
