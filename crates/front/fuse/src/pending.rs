//! Which requests are under way, so that an INTERRUPT reaches the operation that it means. An
//! operation that is completed before `Files::submit` returns never comes here.
//!
//! Three things race for one request: the submitting thread learns the ticket, another thread
//! completes the operation, a third reads an INTERRUPT. Each leaves what the next needs.

use atoll_vfs::{Files, Ticket};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Interrupts kept for requests whose ticket is not known yet. Most are for requests that were
/// just answered, and are never asked for again.
const EARLY_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Pending {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    requests: HashMap<u64, State>,
    early: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Submitted, not completed.
    UnderWay(Ticket),
    /// Completed by another thread while this one was still submitting it.
    Completed,
}

thread_local! {
    /// The request that this thread is inside `submit` for; 0 is none, or it is completed.
    static SUBMITTING: Cell<u64> = const { Cell::new(0) };
}

impl Pending {
    /// Runs `submit`, which starts the operation for this request and returns its ticket.
    pub(crate) fn submit(&self, files: &dyn Files, unique: u64, submit: impl FnOnce() -> Ticket) {
        let outer = SUBMITTING.replace(unique);
        let ticket = submit();
        let completed_here = SUBMITTING.replace(outer) == 0;
        if completed_here {
            return;
        }
        let cancel = {
            let mut inner = self.inner.lock().expect("no holder of this lock panics");
            if inner.requests.remove(&unique) == Some(State::Completed) {
                false
            } else {
                inner.requests.insert(unique, State::UnderWay(ticket));
                let early = inner.early.iter().position(|&u| u == unique);
                early.is_some_and(|at| inner.early.remove(at).is_some())
            }
        };
        if cancel && ticket != Ticket(0) {
            files.cancel(ticket);
        }
    }

    /// The operation of this request is completed, on this thread.
    pub(crate) fn completed(&self, unique: u64) {
        if SUBMITTING.get() == unique {
            SUBMITTING.set(0);
            return;
        }
        let mut inner = self.inner.lock().expect("no holder of this lock panics");
        if inner.requests.remove(&unique).is_none() {
            inner.requests.insert(unique, State::Completed);
        }
    }

    /// The kernel no longer wants this request to go on. Its answer is still awaited.
    pub(crate) fn interrupt(&self, files: &dyn Files, unique: u64) {
        let ticket = {
            let mut inner = self.inner.lock().expect("no holder of this lock panics");
            match inner.requests.get(&unique) {
                Some(State::UnderWay(ticket)) => *ticket,
                Some(State::Completed) => return,
                None => {
                    if inner.early.len() == EARLY_MAX {
                        inner.early.pop_front();
                    }
                    inner.early.push_back(unique);
                    return;
                }
            }
        };
        if ticket != Ticket(0) {
            files.cancel(ticket);
        }
    }

    /// Asks to end everything that is under way: nobody waits any more.
    pub(crate) fn cancel_all(&self, files: &dyn Files) {
        let tickets: Vec<Ticket> = {
            let inner = self.inner.lock().expect("no holder of this lock panics");
            let under_way = inner.requests.values().filter_map(|state| match state {
                State::UnderWay(ticket) => Some(*ticket),
                State::Completed => None,
            });
            under_way.filter(|ticket| *ticket != Ticket(0)).collect()
        };
        tickets.into_iter().for_each(|ticket| files.cancel(ticket));
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.inner.lock().unwrap().requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Ino;
    use atoll_posix::{Caller, Op};
    use atoll_vfs::{Caching, Done, Watcher};
    use bytes::Bytes;
    use std::sync::Arc;

    /// Notes what is cancelled.
    #[derive(Default)]
    struct Cancelled(Mutex<Vec<Ticket>>);

    impl Files for Cancelled {
        fn submit(&self, _: &Caller, _: Op, _: Bytes, _: Done) -> Ticket {
            unreachable!("these tests submit nothing to it")
        }
        fn cancel(&self, ticket: Ticket) {
            self.0.lock().unwrap().push(ticket);
        }
        fn forget(&self, _: &[Ino]) {}
        fn caching(&self) -> Caching {
            Caching::Never
        }
        fn set_watcher(&self, _: Arc<dyn Watcher>) {}
    }

    #[test]
    fn an_interrupt_reaches_the_operation_whichever_comes_first() {
        let (pending, files) = (Pending::default(), Cancelled::default());
        pending.submit(&files, 1, || Ticket(10));
        pending.interrupt(&files, 1);
        pending.submit(&files, 2, || {
            pending.interrupt(&files, 2);
            Ticket(20)
        });
        assert_eq!(*files.0.lock().unwrap(), [Ticket(10), Ticket(20)]);
        pending.completed(1);
        pending.completed(2);
        assert!(pending.is_empty());
    }

    #[test]
    fn nothing_is_cancelled_that_was_completed_and_nothing_is_left_behind() {
        let (pending, files) = (Pending::default(), Cancelled::default());
        // Completed inside submit, on the same thread.
        pending.submit(&files, 1, || {
            pending.completed(1);
            Ticket(0)
        });
        // Completed by another thread before submit returns.
        pending.submit(&files, 2, || {
            std::thread::scope(|s| {
                s.spawn(|| pending.completed(2));
            });
            Ticket(20)
        });
        // Completed later.
        pending.submit(&files, 3, || Ticket(30));
        pending.completed(3);
        (1..=3).for_each(|unique| pending.interrupt(&files, unique));
        assert!(pending.is_empty() && files.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_request_completed_inside_another_ones_submit_is_told_apart() {
        let (pending, files) = (Pending::default(), Cancelled::default());
        pending.submit(&files, 1, || Ticket(10));
        pending.submit(&files, 2, || {
            pending.completed(1);
            Ticket(20)
        });
        pending.interrupt(&files, 2);
        pending.completed(2);
        assert_eq!(*files.0.lock().unwrap(), [Ticket(20)]);
        assert!(pending.is_empty());
    }

    #[test]
    fn interrupts_for_requests_that_never_come_are_bounded() {
        let (pending, files) = (Pending::default(), Cancelled::default());
        (0..2 * EARLY_MAX as u64).for_each(|unique| pending.interrupt(&files, unique + 1));
        assert_eq!(pending.inner.lock().unwrap().early.len(), EARLY_MAX);
    }
}
