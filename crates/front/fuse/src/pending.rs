//! Requests under way, so that an INTERRUPT reaches its operation. An operation that is completed before
//! `Files::submit` returns never comes here.
//!
//! Three threads race for one request: the submitting one learns the ticket, another completes the operation,
//! a third reads an INTERRUPT. Each leaves the data that the next one needs.

use atoll_core::Ino;
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

/// A request whose caller waits for its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) unique: u64,
    pub(crate) ticket: Ticket,
    /// The thread that waits; 0 if it is not known.
    pub(crate) pid: u32,
    pub(crate) what: What,
}

/// What a request waits for, as far as that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A lock of another holder. Any signal ends that wait.
    Lock,
    /// Bytes of this file. The kernel holds its pages locked meanwhile.
    Bytes(Ino),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Submitted, not completed.
    UnderWay(Waiting),
    /// Completed by another thread while this one was still submitting it.
    Completed,
}

thread_local! {
    /// The request that this thread is inside `submit` for; 0 is none, or it is completed.
    static SUBMITTING: Cell<u64> = const { Cell::new(0) };
}

impl Pending {
    /// Runs `submit`, which starts the operation for this request and returns its ticket. The
    /// request, if it waits and has been interrupted already.
    pub(crate) fn submit(
        &self,
        (unique, pid, what): (u64, u32, What),
        submit: impl FnOnce() -> Ticket,
    ) -> Option<Waiting> {
        let outer = SUBMITTING.replace(unique);
        let ticket = submit();
        let completed_here = SUBMITTING.replace(outer) == 0;
        if completed_here {
            return None;
        }
        let mut inner = self.inner.lock().expect("no holder of this lock panics");
        if inner.requests.remove(&unique) == Some(State::Completed) {
            return None;
        }
        let waiting = Waiting { unique, ticket, pid, what };
        inner.requests.insert(unique, State::UnderWay(waiting));
        let early = inner.early.iter().position(|&u| u == unique);
        let interrupted = early.is_some_and(|at| inner.early.remove(at).is_some());
        (interrupted && ticket != Ticket(0)).then_some(waiting)
    }

    /// The request, if it waits still.
    pub(crate) fn waiting(&self, unique: u64) -> Option<Waiting> {
        match self.inner.lock().expect("no holder of this lock panics").requests.get(&unique) {
            Some(State::UnderWay(waiting)) if waiting.ticket != Ticket(0) => Some(*waiting),
            _ => None,
        }
    }

    /// The requests for bytes of this file that wait.
    pub(crate) fn for_bytes(&self, ino: Ino) -> Vec<u64> {
        let inner = self.inner.lock().expect("no holder of this lock panics");
        let waits = |state: &State| matches!(state, State::UnderWay(w) if w.what == What::Bytes(ino));
        inner.requests.iter().filter(|(_, state)| waits(state)).map(|(unique, _)| *unique).collect()
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

    /// A signal has come for whoever waits for this request: the request, if it waits. Its answer is
    /// still awaited.
    pub(crate) fn interrupt(&self, unique: u64) -> Option<Waiting> {
        let mut inner = self.inner.lock().expect("no holder of this lock panics");
        match inner.requests.get(&unique) {
            Some(State::UnderWay(waiting)) => Some(*waiting).filter(|w| w.ticket != Ticket(0)),
            Some(State::Completed) => None,
            None => {
                if inner.early.len() == EARLY_MAX {
                    inner.early.pop_front();
                }
                inner.early.push_back(unique);
                None
            }
        }
    }

    /// Ends every request under way: no caller waits any more.
    pub(crate) fn abandon_all(&self, files: &dyn Files) {
        let tickets: Vec<Ticket> = {
            let inner = self.inner.lock().expect("no holder of this lock panics");
            let under_way = inner.requests.values().filter_map(|state| match state {
                State::UnderWay(waiting) => Some(waiting.ticket),
                State::Completed => None,
            });
            under_way.filter(|ticket| *ticket != Ticket(0)).collect()
        };
        tickets.into_iter().for_each(|ticket| files.abandon(ticket));
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.inner.lock().unwrap().requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(unique: u64) -> (u64, u32, What) {
        (unique, 7, What::Other)
    }

    fn interrupted(unique: u64, ticket: u64) -> Option<Waiting> {
        Some(Waiting { unique, ticket: Ticket(ticket), pid: 7, what: What::Other })
    }

    #[test]
    fn an_interrupt_reaches_the_operation_whichever_comes_first() {
        let pending = Pending::default();
        assert_eq!(pending.submit(of(1), || Ticket(10)), None);
        assert_eq!(pending.interrupt(1), interrupted(1, 10));
        let early = pending.submit(of(2), || {
            assert_eq!(pending.interrupt(2), None);
            Ticket(20)
        });
        assert_eq!(early, interrupted(2, 20));
        assert_eq!(pending.waiting(2), early);
        pending.completed(1);
        pending.completed(2);
        assert!(pending.is_empty() && pending.waiting(2).is_none());
    }

    #[test]
    fn nothing_is_interrupted_that_was_completed_and_nothing_is_left_behind() {
        let pending = Pending::default();
        // Completed inside submit, on the same thread.
        pending.submit(of(1), || {
            pending.completed(1);
            Ticket(0)
        });
        // Completed by another thread before submit returns.
        pending.submit(of(2), || {
            std::thread::scope(|s| {
                s.spawn(|| pending.completed(2));
            });
            Ticket(20)
        });
        // Completed later.
        pending.submit(of(3), || Ticket(30));
        pending.completed(3);
        (1..=3).for_each(|unique| assert_eq!(pending.interrupt(unique), None));
        assert!(pending.is_empty());
    }

    #[test]
    fn a_request_completed_inside_another_ones_submit_is_told_apart() {
        let pending = Pending::default();
        pending.submit(of(1), || Ticket(10));
        pending.submit(of(2), || {
            pending.completed(1);
            Ticket(20)
        });
        assert_eq!(pending.interrupt(2), interrupted(2, 20));
        pending.completed(2);
        assert!(pending.is_empty());
    }

    #[test]
    fn requests_for_the_bytes_of_a_file_are_told_until_they_end() {
        let pending = Pending::default();
        let (read, other) = (Ino(5), Ino(6));
        pending.submit((1, 7, What::Bytes(read)), || Ticket(10));
        pending.submit((2, 7, What::Other), || Ticket(20));
        assert_eq!((pending.for_bytes(read), pending.for_bytes(other)), (vec![1], vec![]));
        pending.completed(1);
        assert!(pending.for_bytes(read).is_empty());
    }

    #[test]
    fn interrupts_for_requests_that_never_come_are_bounded() {
        let pending = Pending::default();
        (0..2 * EARLY_MAX as u64).for_each(|unique| assert_eq!(pending.interrupt(unique + 1), None));
        assert_eq!(pending.inner.lock().unwrap().early.len(), EARLY_MAX);
    }
}
