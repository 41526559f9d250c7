//! The read-write locks of bodies: many readers or one writer, first come first served.
//!
//! A lock is held from the decision to the end of the native work. So a read never sees bytes whose checksum
//! is not decided yet, and a write's bytes are in place before the next read. A body is removed only when no
//! operation is inside.

use std::collections::{BTreeMap, VecDeque};

use atoll_core::Ino;
use atoll_core::map::IdMap;
use atoll_core::planted::{Bug, planted};

/// How a body is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyAccess {
    Shared,
    Exclusive,
    /// Waits for nobody, and nobody waits for it: only the body stays.
    Pinned,
}

#[derive(Debug, Clone)]
struct BodyLock<W> {
    readers: u32,
    writer: bool,
    beside: u32,
    waiting: VecDeque<W>,
}

impl<W> BodyLock<W> {
    const fn is_inside(&self) -> bool {
        self.readers > 0 || self.writer || self.beside > 0
    }
}

/// The locks of all bodies in use; a waiter is whatever the machine wants back.
#[derive(Debug, Clone)]
pub(crate) struct BodyLocks<W> {
    locks: IdMap<Ino, BodyLock<W>>,
}

impl<W> Default for BodyLocks<W> {
    fn default() -> Self {
        Self { locks: IdMap::default() }
    }
}

impl<W> BodyLocks<W> {
    /// Enters, unless an operation that must go first is inside or waits. `turn`: the caller was the first
    /// that waited.
    pub(crate) fn enter(&mut self, ino: Ino, how: BodyAccess, turn: bool) -> bool {
        let lock = self.locks.entry(ino).or_insert_with(|| BodyLock {
            readers: 0,
            writer: false,
            beside: 0,
            waiting: VecDeque::new(),
        });
        if how == BodyAccess::Pinned {
            lock.beside += 1;
            return true;
        }
        if planted(Bug::TwoWriters) && how == BodyAccess::Exclusive {
            lock.writer = true;
            return true;
        }
        if lock.writer
            || (!turn && !lock.waiting.is_empty())
            || (how == BodyAccess::Exclusive && lock.readers > 0)
        {
            return false;
        }
        match how {
            BodyAccess::Shared => lock.readers += 1,
            BodyAccess::Exclusive => lock.writer = true,
            BodyAccess::Pinned => unreachable!("has entered above"),
        }
        true
    }

    /// Waits behind the operations that wait already; if it was the caller's `turn`, before them.
    pub(crate) fn wait(&mut self, ino: Ino, who: W, turn: bool) {
        let lock = self.locks.get_mut(&ino).expect("nobody waits at a lock that is not there");
        if turn { lock.waiting.push_front(who) } else { lock.waiting.push_back(who) }
    }

    /// Leaves.
    pub(crate) fn leave(&mut self, ino: Ino, how: BodyAccess) {
        let lock = self.locks.get_mut(&ino).expect("who leaves has entered");
        match how {
            BodyAccess::Shared => lock.readers -= 1,
            BodyAccess::Pinned => lock.beside -= 1,
            BodyAccess::Exclusive => {
                assert!(lock.writer, "an exclusive use was left twice");
                lock.writer = false;
            }
        }
        self.tidy(ino);
    }

    /// The next operation that waits, if it may be able to enter now.
    pub(crate) fn next(&mut self, ino: Ino) -> Option<W> {
        let lock = self.locks.get_mut(&ino)?;
        let who = if lock.writer { None } else { lock.waiting.pop_front() };
        self.tidy(ino);
        who
    }

    /// An operation inside changes the body.
    pub(crate) fn is_exclusive(&self, ino: Ino) -> bool {
        self.locks.get(&ino).is_some_and(|lock| lock.writer)
    }

    /// An operation is inside, or waits.
    pub(crate) fn is_used(&self, ino: Ino) -> bool {
        self.locks.contains_key(&ino)
    }

    /// An operation is inside.
    pub(crate) fn is_inside(&self, ino: Ino) -> bool {
        self.locks.get(&ino).is_some_and(BodyLock::is_inside)
    }

    /// How many wait.
    pub(crate) fn waiting(&self, ino: Ino) -> usize {
        self.locks.get(&ino).map_or(0, |lock| lock.waiting.len())
    }

    /// Takes out waiting operations that `gone` picks.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&W) -> bool) {
        self.locks.retain(|_, lock| {
            lock.waiting.retain(&mut keep);
            lock.is_inside() || !lock.waiting.is_empty()
        });
    }

    /// All waiting operations.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = &W> {
        self.locks.values().flat_map(|lock| &lock.waiting)
    }

    /// Panics unless readers, writers and those beside them are exactly these.
    pub(crate) fn check(&self, inside: &BTreeMap<Ino, (u32, u32, u32)>) {
        for (ino, lock) in &self.locks {
            let is = (lock.readers, u32::from(lock.writer), lock.beside);
            let should = inside.get(ino).copied().unwrap_or_default();
            assert_eq!(
                is, should,
                "readers, writers and others inside of {ino}, and what is being done there"
            );
            assert!(lock.is_inside() || !lock.waiting.is_empty(), "a lock of {ino} stays that nobody uses");
        }
        for (ino, should) in inside {
            assert!(self.locks.contains_key(ino), "{should:?} are inside of {ino} without a lock");
        }
    }

    fn tidy(&mut self, ino: Ino) {
        if let Some(lock) = self.locks.get(&ino)
            && !lock.is_inside()
            && lock.waiting.is_empty()
        {
            self.locks.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_later_readers_wait_behind_it() {
        let mut locks = BodyLocks::default();
        let ino = Ino(5);
        assert!(locks.enter(ino, BodyAccess::Shared, false));
        assert!(!locks.enter(ino, BodyAccess::Exclusive, false));
        locks.wait(ino, "writer", false);
        assert!(!locks.enter(ino, BodyAccess::Shared, false));
        locks.wait(ino, "reader", false);
        locks.leave(ino, BodyAccess::Shared);
        assert_eq!(locks.next(ino), Some("writer"));
        assert!(locks.enter(ino, BodyAccess::Exclusive, true));
        assert_eq!(locks.next(ino), None);
        locks.leave(ino, BodyAccess::Exclusive);
        assert_eq!(locks.next(ino), Some("reader"));
        assert!(locks.enter(ino, BodyAccess::Shared, true));
        locks.leave(ino, BodyAccess::Shared);
        assert!(locks.locks.is_empty());
    }

    #[test]
    fn who_is_beside_hinders_nobody_and_is_inside() {
        let mut locks = BodyLocks::<()>::default();
        let ino = Ino(5);
        assert!(locks.enter(ino, BodyAccess::Exclusive, false));
        assert!(locks.enter(ino, BodyAccess::Pinned, false));
        locks.leave(ino, BodyAccess::Exclusive);
        assert!(locks.enter(ino, BodyAccess::Exclusive, false));
        locks.leave(ino, BodyAccess::Exclusive);
        assert!(locks.is_inside(ino));
        locks.retain(|()| false);
        locks.leave(ino, BodyAccess::Pinned);
        assert!(locks.locks.is_empty());
    }
}
