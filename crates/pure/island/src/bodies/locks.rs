//! The read-write locks of bodies: many readers or one writer, first come first served.
//!
//! A gate is held from the decision to the end of the native work. So a read never sees bytes whose checksum
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
struct Gate<W> {
    readers: u32,
    writer: bool,
    beside: u32,
    waiting: VecDeque<W>,
}

impl<W> Gate<W> {
    const fn is_inside(&self) -> bool {
        self.readers > 0 || self.writer || self.beside > 0
    }
}

/// The gates of all bodies in use; a waiter is whatever the machine wants back.
#[derive(Debug, Clone)]
pub(crate) struct BodyLocks<W> {
    gates: IdMap<Ino, Gate<W>>,
}

impl<W> Default for BodyLocks<W> {
    fn default() -> Self {
        Self { gates: IdMap::default() }
    }
}

impl<W> BodyLocks<W> {
    /// Enters, unless an operation that must go first is inside or waits. `turn`: the caller was the first
    /// that waited.
    pub(crate) fn enter(&mut self, ino: Ino, how: BodyAccess, turn: bool) -> bool {
        let gate = self.gates.entry(ino).or_insert_with(|| Gate {
            readers: 0,
            writer: false,
            beside: 0,
            waiting: VecDeque::new(),
        });
        if how == BodyAccess::Pinned {
            gate.beside += 1;
            return true;
        }
        if planted(Bug::TwoWriters) && how == BodyAccess::Exclusive {
            gate.writer = true;
            return true;
        }
        if gate.writer
            || (!turn && !gate.waiting.is_empty())
            || (how == BodyAccess::Exclusive && gate.readers > 0)
        {
            return false;
        }
        match how {
            BodyAccess::Shared => gate.readers += 1,
            BodyAccess::Exclusive => gate.writer = true,
            BodyAccess::Pinned => unreachable!("has entered above"),
        }
        true
    }

    /// Waits behind the operations that wait already; if it was the caller's `turn`, before them.
    pub(crate) fn wait(&mut self, ino: Ino, who: W, turn: bool) {
        let gate = self.gates.get_mut(&ino).expect("nobody waits at a gate that is not there");
        if turn { gate.waiting.push_front(who) } else { gate.waiting.push_back(who) }
    }

    /// Leaves.
    pub(crate) fn leave(&mut self, ino: Ino, how: BodyAccess) {
        let gate = self.gates.get_mut(&ino).expect("who leaves has entered");
        match how {
            BodyAccess::Shared => gate.readers -= 1,
            BodyAccess::Pinned => gate.beside -= 1,
            BodyAccess::Exclusive => {
                assert!(gate.writer, "an exclusive use was left twice");
                gate.writer = false;
            }
        }
        self.tidy(ino);
    }

    /// The next operation that waits, if it may be able to enter now.
    pub(crate) fn next(&mut self, ino: Ino) -> Option<W> {
        let gate = self.gates.get_mut(&ino)?;
        let who = if gate.writer { None } else { gate.waiting.pop_front() };
        self.tidy(ino);
        who
    }

    /// An operation inside changes the body.
    pub(crate) fn is_exclusive(&self, ino: Ino) -> bool {
        self.gates.get(&ino).is_some_and(|gate| gate.writer)
    }

    /// An operation is inside, or waits.
    pub(crate) fn is_used(&self, ino: Ino) -> bool {
        self.gates.contains_key(&ino)
    }

    /// An operation is inside.
    pub(crate) fn is_inside(&self, ino: Ino) -> bool {
        self.gates.get(&ino).is_some_and(Gate::is_inside)
    }

    /// How many wait.
    pub(crate) fn waiting(&self, ino: Ino) -> usize {
        self.gates.get(&ino).map_or(0, |gate| gate.waiting.len())
    }

    /// Takes out waiting operations that `gone` picks.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&W) -> bool) {
        self.gates.retain(|_, gate| {
            gate.waiting.retain(&mut keep);
            gate.is_inside() || !gate.waiting.is_empty()
        });
    }

    /// All waiting operations.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = &W> {
        self.gates.values().flat_map(|gate| &gate.waiting)
    }

    /// Panics unless readers, writers and those beside them are exactly these.
    pub(crate) fn check(&self, inside: &BTreeMap<Ino, (u32, u32, u32)>) {
        for (ino, gate) in &self.gates {
            let is = (gate.readers, u32::from(gate.writer), gate.beside);
            let should = inside.get(ino).copied().unwrap_or_default();
            assert_eq!(
                is, should,
                "readers, writers and others inside of {ino}, and what is being done there"
            );
            assert!(gate.is_inside() || !gate.waiting.is_empty(), "a gate of {ino} stays that nobody uses");
        }
        for (ino, should) in inside {
            assert!(self.gates.contains_key(ino), "{should:?} are inside of {ino} without a gate");
        }
    }

    fn tidy(&mut self, ino: Ino) {
        if let Some(gate) = self.gates.get(&ino)
            && !gate.is_inside()
            && gate.waiting.is_empty()
        {
            self.gates.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_later_readers_wait_behind_it() {
        let mut gates = BodyLocks::default();
        let ino = Ino(5);
        assert!(gates.enter(ino, BodyAccess::Shared, false));
        assert!(!gates.enter(ino, BodyAccess::Exclusive, false));
        gates.wait(ino, "writer", false);
        assert!(!gates.enter(ino, BodyAccess::Shared, false));
        gates.wait(ino, "reader", false);
        gates.leave(ino, BodyAccess::Shared);
        assert_eq!(gates.next(ino), Some("writer"));
        assert!(gates.enter(ino, BodyAccess::Exclusive, true));
        assert_eq!(gates.next(ino), None);
        gates.leave(ino, BodyAccess::Exclusive);
        assert_eq!(gates.next(ino), Some("reader"));
        assert!(gates.enter(ino, BodyAccess::Shared, true));
        gates.leave(ino, BodyAccess::Shared);
        assert!(gates.gates.is_empty());
    }

    #[test]
    fn who_is_beside_hinders_nobody_and_is_inside() {
        let mut gates = BodyLocks::<()>::default();
        let ino = Ino(5);
        assert!(gates.enter(ino, BodyAccess::Exclusive, false));
        assert!(gates.enter(ino, BodyAccess::Pinned, false));
        gates.leave(ino, BodyAccess::Exclusive);
        assert!(gates.enter(ino, BodyAccess::Exclusive, false));
        gates.leave(ino, BodyAccess::Exclusive);
        assert!(gates.is_inside(ino));
        gates.retain(|()| false);
        gates.leave(ino, BodyAccess::Pinned);
        assert!(gates.gates.is_empty());
    }
}
