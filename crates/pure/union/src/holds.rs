//! What operations under way keep from each other: names that one changes, and files that one moves. Never waits: whoever
//! is kept from something is told to.

use atoll_core::{Ino, Name};

use crate::task::{Decided, Stop};

/// A name that an operation changes, or (without a name) a directory that it removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Option<Name>,
}

/// What is kept, and by which operation.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Vec<(Held, u64)>,
    /// Operations that are about to give the names that they hold another place in one member after the other.
    moving: Vec<u64>,
    /// Files that are moved to another member.
    growing: Vec<(Ino, u64)>,
}

impl Holds {
    /// Holds names for an operation that changes them, unless it holds some already. Waits if another one holds one of them.
    pub(crate) fn first(&mut self, task: u64, names: &[Held]) -> Decided<()> {
        let holds_some = self.held.iter().any(|(_, holder)| *holder == task);
        if holds_some { Ok(()) } else { self.more(task, names) }
    }

    /// The same for an operation that holds names already. What is held last must be held last by all that hold it.
    pub(crate) fn more(&mut self, task: u64, names: &[Held]) -> Decided<()> {
        let excludes = |want: &Held, held: &Held| {
            held.dir == want.dir && (held.name == want.name || held.name.is_none() || want.name.is_none())
        };
        let is_taken =
            |want: &Held| self.held.iter().any(|(held, holder)| *holder != task && excludes(want, held));
        if names.iter().any(is_taken) {
            return Err(Stop::Wait);
        }
        for name in names {
            let held = (name.clone(), task);
            if !self.held.contains(&held) {
                self.held.push(held);
            }
        }
        Ok(())
    }

    /// Lets others have everything that an operation keeps from them.
    pub(crate) fn release(&mut self, task: u64) {
        self.held.retain(|(_, holder)| *holder != task);
        self.set_moving(task, false);
        self.stop_growing(task);
    }

    /// From now on the names that an operation holds have two places, or one again.
    pub(crate) fn set_moving(&mut self, task: u64, is_moving: bool) {
        self.moving.retain(|moving| *moving != task);
        self.moving.extend(is_moving.then_some(task));
    }

    /// Waits while this name has two places, unless that is by this operation.
    pub(crate) fn not_moving(&self, task: u64, dir: Ino, name: &Name) -> Decided<()> {
        let is_moving = |(held, holder): &(Held, u64)| {
            held.dir == dir
                && held.name.as_ref() == Some(name)
                && *holder != task
                && self.moving.contains(holder)
        };
        if !self.moving.is_empty() && self.held.iter().any(is_moving) { Err(Stop::Wait) } else { Ok(()) }
    }

    /// From now on nobody else changes a file: it is moved to another member.
    pub(crate) fn grow(&mut self, task: u64, ino: Ino) {
        self.growing.push((ino, task));
    }

    /// A file's move has ended.
    pub(crate) fn stop_growing(&mut self, task: u64) {
        self.growing.retain(|(_, growing)| *growing != task);
    }

    /// Waits while another operation moves this file.
    pub(crate) fn not_growing(&self, task: u64, ino: Ino) -> Decided<()> {
        let moves = |(of, holder): &(Ino, u64)| *of == ino && *holder != task;
        if self.growing.iter().any(moves) { Err(Stop::Wait) } else { Ok(()) }
    }
}
