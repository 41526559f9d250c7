//! What islands have said, until the keeper of answers is told by one thread. What comes meanwhile is told together. Knows neither islands nor
//! keepers.

use std::sync::{Mutex, MutexGuard};

/// See the module.
#[derive(Debug)]
pub(crate) struct Pending<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    waiting: Option<T>,
    /// Somebody tells the keeper.
    has_thread: bool,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self(Mutex::new(State { waiting: None, has_thread: false }))
    }
}

impl<T> Pending<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// This is to be told too. `merge` puts it to what waits.
    pub(crate) fn add(&self, new: T, merge: impl FnOnce(&mut T, T)) {
        match &mut self.lock().waiting {
            Some(waiting) => merge(waiting, new),
            none => *none = Some(new),
        }
    }

    /// Whether a thread must be begun that tells: something waits, and there is none. It counts as begun.
    pub(crate) fn wants_thread(&self) -> bool {
        let mut state = self.lock();
        state.waiting.is_some() && !std::mem::replace(&mut state.has_thread, true)
    }

    /// No thread was to be had.
    pub(crate) fn has_no_thread(&self) {
        self.lock().has_thread = false;
    }

    /// What is to be told next. None: the thread ends.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        let taken = state.waiting.take();
        state.has_thread = taken.is_some();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_together_by_one_thread() {
        let pending = Pending::default();
        assert!(!pending.wants_thread(), "nothing waits");
        let add = |n: u32| pending.add(n, |waiting, n| *waiting += n);
        add(1);
        assert!(pending.wants_thread());
        add(2);
        assert!(!pending.wants_thread(), "one tells already");
        assert_eq!(pending.take(), Some(3));
        add(4);
        assert!(!pending.wants_thread(), "it goes on");
        assert_eq!([pending.take(), pending.take()], [Some(4), None]);
        add(5);
        assert!(pending.wants_thread());
        pending.has_no_thread();
        assert!(pending.wants_thread(), "it is tried again");
    }
}
