//! Threads that leave the filling of copies to others. Fills nothing itself.
//!
//! Whoever brings an event to a copy does what follows from it. While a copy is filled that may be its whole filling, piece after piece,
//! for hours. A thread that reads requests lets another one read on meanwhile. A node's own thread has no other one in its place: what
//! it does for other islands would wait.

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;

use atoll_disk::Disk;

use crate::copy::Task;

thread_local! {
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread leaves to others what fills a copy, here or at another node: a thread has to call
/// [`crate::GroupCopy::run_tasks`] for that.
#[derive(Debug)]
pub struct LeavesFilling {
    /// It did so before.
    before: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl LeavesFilling {
    /// From now on.
    pub fn begin() -> Self {
        Self { before: LEAVES.replace(true), _of_this_thread: PhantomData }
    }
}

impl Drop for LeavesFilling {
    fn drop(&mut self) {
        LEAVES.set(self.before);
    }
}

impl<D: Disk> Task<D> {
    /// Whether it is a piece of a filling: another one may follow from it.
    const fn fills(&self) -> bool {
        match self {
            Self::Work(..) | Self::Rest(..) | Self::Sync { .. } | Self::Reopen(_) | Self::Ship(_) => false,
            Self::Fetch(..) | Self::Rows(..) | Self::Weigh(..) => true,
            Self::Walk(_) | Self::Fetched(..) | Self::TakeRows { .. } => true,
        }
    }
}

/// The first task that is for this thread.
pub(crate) fn take_own<D: Disk>(tasks: &mut VecDeque<Task<D>>) -> Option<Task<D>> {
    let is_own = |task: &Task<D>| !LEAVES.get() || !task.fills();
    let at = tasks.iter().position(is_own)?;
    tasks.remove(at)
}
