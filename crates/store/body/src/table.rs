//! The bounded table of open bodies. Opens nothing itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_core::Ino;

/// Ids of which it is remembered, for a while after they are closed, that nothing lies beyond
/// their end: half of them at least.
const TRIMMED_MAX: usize = 1 << 16;

/// An open body.
pub(crate) struct Open<F> {
    pub(crate) file: F,
    /// Bytes that a lost end of the log left beyond the end have been cut off.
    trimmed: AtomicBool,
    trimming: Mutex<()>,
}

impl<F> Open<F> {
    /// Runs `trim` unless it has been done. Two at once run it one after the other.
    pub(crate) fn trim_once<E>(&self, trim: impl FnOnce(&F) -> Result<(), E>) -> Result<bool, E> {
        if self.trimmed.load(Ordering::Acquire) {
            return Ok(false);
        }
        let _one = lock(&self.trimming);
        if self.trimmed.load(Ordering::Acquire) {
            return Ok(false);
        }
        trim(&self.file)?;
        self.trimmed.store(true, Ordering::Release);
        Ok(true)
    }
}

struct Slot<F> {
    open: Arc<Open<F>>,
    used: u64,
}

struct Inner<F> {
    slots: HashMap<Ino, Slot<F>>,
    /// Ids in the order of a use, with its time. A body that was used again since goes to the back.
    queue: VecDeque<(u64, Ino)>,
    now: u64,
    // Two generations: when the young one is full it becomes the old one. Cutting a body a second
    // time, at a length decided long ago, must not happen while others append to it.
    trimmed: HashSet<Ino>,
    trimmed_before: HashSet<Ino>,
}

pub(crate) struct Table<F> {
    max: usize,
    inner: Mutex<Inner<F>>,
}

impl<F> Table<F> {
    pub(crate) fn new(max: usize) -> Self {
        let inner = Inner {
            slots: HashMap::new(),
            queue: VecDeque::new(),
            now: 0,
            trimmed: HashSet::new(),
            trimmed_before: HashSet::new(),
        };
        Self { max: max.max(1), inner: Mutex::new(inner) }
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Open<F>>> {
        let mut inner = lock(&self.inner);
        inner.now += 1;
        let now = inner.now;
        let slot = inner.slots.get_mut(&ino)?;
        slot.used = now;
        Some(Arc::clone(&slot.open))
    }

    /// Takes in a file that was just opened (`trimmed`: just made). If two threads open one body, the first
    /// wins.
    pub(crate) fn insert(&self, ino: Ino, file: F, trimmed: bool) -> Arc<Open<F>> {
        let mut inner = lock(&self.inner);
        inner.now += 1;
        let now = inner.now;
        if let Some(slot) = inner.slots.get(&ino) {
            return Arc::clone(&slot.open);
        }
        let evicted = if inner.slots.len() < self.max { None } else { inner.evict() };
        let known = inner.trimmed.contains(&ino) || inner.trimmed_before.contains(&ino);
        if trimmed {
            inner.remember_trimmed(ino);
        }
        let open =
            Arc::new(Open { file, trimmed: AtomicBool::new(trimmed || known), trimming: Mutex::new(()) });
        inner.slots.insert(ino, Slot { open: Arc::clone(&open), used: now });
        inner.queue.push_back((now, ino));
        drop(inner);
        drop(evicted); // Closes outside of the lock, unless somebody still reads.
        open
    }

    pub(crate) fn remember_trimmed(&self, ino: Ino) {
        lock(&self.inner).remember_trimmed(ino);
    }

    pub(crate) fn remove(&self, ino: Ino) {
        let slot = lock(&self.inner).slots.remove(&ino);
        drop(slot);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).slots.len()
    }
}

impl<F> Inner<F> {
    fn remember_trimmed(&mut self, ino: Ino) {
        if self.trimmed.len() >= TRIMMED_MAX / 2 {
            self.trimmed_before = std::mem::take(&mut self.trimmed);
        }
        self.trimmed.insert(ino);
    }

    /// Takes out the file that was used longest ago, if possible one that is not in use.
    fn evict(&mut self) -> Option<Slot<F>> {
        let mut busy = None;
        for _ in 0..self.queue.len() {
            let (at, ino) = self.queue.pop_front()?;
            let Some(slot) = self.slots.get(&ino) else { continue };
            if slot.used != at {
                self.queue.push_back((slot.used, ino));
            } else if Arc::strong_count(&slot.open) > 1 {
                busy.get_or_insert(ino);
                self.queue.push_back((at, ino));
            } else {
                return self.slots.remove(&ino);
            }
        }
        self.slots.remove(&busy?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_keeps_its_bound_and_what_was_used_last() {
        let table = Table::new(3);
        for i in 0..3 {
            table.insert(Ino(i), i, true);
        }
        table.get(Ino(0));
        table.insert(Ino(3), 3, true);
        assert_eq!(table.len(), 3);
        assert!(table.get(Ino(1)).is_none() && table.get(Ino(0)).is_some());
    }

    #[test]
    fn a_file_in_use_outlives_its_place_in_the_table() {
        let table = Table::new(1);
        let held = table.insert(Ino(1), 7, true);
        table.insert(Ino(2), 8, true);
        assert!(table.get(Ino(1)).is_none());
        assert_eq!(held.file, 7);
    }

    #[test]
    fn a_body_that_was_trimmed_is_not_trimmed_again_when_it_opens_next() {
        let table = Table::new(1);
        let open = table.insert(Ino(1), 0, false);
        assert_eq!(open.trim_once(|_| Ok::<_, ()>(())), Ok(true));
        table.remember_trimmed(Ino(1));
        table.insert(Ino(2), 0, true);
        assert_eq!(table.insert(Ino(1), 0, false).trim_once(|_| Err(())), Ok(false));
    }

    #[test]
    fn what_is_remembered_of_closed_bodies_is_bounded() {
        let table = Table::<()>::new(1);
        for i in 0..TRIMMED_MAX as u64 * 2 {
            table.remember_trimmed(Ino(i));
        }
        let inner = lock(&table.inner);
        assert!(inner.trimmed.len() + inner.trimmed_before.len() <= TRIMMED_MAX);
    }
}
