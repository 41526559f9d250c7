//! Name operations that are done and not yet synced, and which of them a power cut may keep.
//!
//! Each operation is atomic. Any subset of the unsynced ones may survive, with these exceptions, which every
//! file system that journals its names keeps too:
//! - operations on one (directory, name) survive in order;
//! - a directory is removed after the operations in it, so that a file that was moved out is not lost;
//! - a rename survives together with the operations that gave the new directory, and all directories above
//!   it, their places. So a tree stays a tree: when the rename is done, the way up from there is the one of
//!   the living tree. And a file that was synced under its old name is not lost with a directory that was
//!   never made.
//!
//! Operations on different names of one file know nothing of each other. So a program that links a file into
//! one directory and unlinks it in another must sync the first before the second.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A name in a directory, and the inode that it now stands for, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameChange {
    pub(super) dir: u64,
    pub(super) name: Vec<u8>,
    pub(super) ino: Option<u64>,
}

/// One atomic operation: the names that it changes, and which ones must have survived before it.
#[derive(Debug, Clone)]
struct Pending {
    changes: Vec<NameChange>,
    after: Vec<u64>,
}

/// What an operation is, as far as the order of survival goes.
#[derive(Debug, Clone, Default)]
pub(super) struct NameOp {
    pub(super) changes: Vec<NameChange>,
    /// A directory that gets another place or its first one.
    pub(super) placed_dir: Option<u64>,
    /// A directory that goes away (rmdir, or replaced by a rename).
    pub(super) removed_dir: Option<u64>,
    /// For a rename: the directory that the name goes to, and all above it.
    pub(super) moved_into: Vec<u64>,
}

/// All unsynced name operations of a disk, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    next: u64,
    pending: BTreeMap<u64, Pending>,
    // Operations that were synced since stay in these until nothing is pending; they say nothing.
    last_on_name: HashMap<(u64, Vec<u8>), u64>,
    last_placed: HashMap<u64, u64>,
    in_dir: HashMap<u64, Vec<u64>>,
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn push(&mut self, op: NameOp) {
        let id = self.next;
        self.next += 1;
        let mut after = Vec::new();
        for change in &op.changes {
            let slot = (change.dir, change.name.clone());
            after.extend(self.last_on_name.insert(slot, id));
            self.in_dir.entry(change.dir).or_default().push(id);
        }
        for dir in &op.moved_into {
            after.extend(self.last_placed.get(dir).copied());
        }
        if let Some(dir) = op.placed_dir {
            self.last_placed.insert(dir, id);
        }
        if let Some(dir) = op.removed_dir {
            after.extend(self.in_dir.get(&dir).into_iter().flatten().copied());
        }
        after.retain(|earlier| *earlier != id && self.pending.contains_key(earlier));
        self.pending.insert(id, Pending { changes: op.changes, after });
    }

    /// Takes out the operations that must survive when this directory was synced, in order.
    pub(super) fn take_dir(&mut self, dir: u64) -> Vec<NameChange> {
        let chosen = self.in_dir.remove(&dir).unwrap_or_default();
        self.take(chosen)
    }

    /// Takes out the operations that survive if these are chosen, in order.
    fn take(&mut self, mut chosen: Vec<u64>) -> Vec<NameChange> {
        let mut all = BTreeSet::new();
        while let Some(id) = chosen.pop() {
            if let Some(op) = self.pending.get(&id)
                && all.insert(id)
            {
                chosen.extend(&op.after);
            }
        }
        let ops = all.iter().filter_map(|id| self.pending.remove(id));
        let changes = ops.flat_map(|op| op.changes).collect();
        if self.pending.is_empty() {
            *self = Self { next: self.next, ..Self::default() };
        }
        changes
    }

    /// Takes out the ones that `choose` picks and what they need; the rest stays.
    pub(super) fn take_some(&mut self, mut choose: impl FnMut() -> bool) -> Vec<NameChange> {
        let chosen = self.pending.keys().copied().filter(|_| choose()).collect();
        self.take(chosen)
    }

    /// Forgets the rest, which did not survive.
    pub(super) fn take_rest(&mut self) -> Vec<NameChange> {
        self.take(self.pending.keys().copied().collect())
    }
}
