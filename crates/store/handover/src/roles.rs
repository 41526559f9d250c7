//! The reading role of a link: one leader holds it, and followers are busy or idle.
//!
//! This file only keeps books and parks threads; it never touches a socket or a frame. The role is held by
//! one thread, or is vacant; then the next thread that becomes free takes it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct State {
    vacant: bool,
    idle: usize,
    threads: usize,
    over: bool,
}

/// What to do for a role that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A parked thread takes it, or a busy one will.
    Nothing,
    /// Start a thread that holds it.
    Start,
}

/// The reading role of one link and the threads that may hold it.
#[derive(Debug)]
pub struct Roles {
    state: Mutex<State>,
    changed: Condvar,
    threads_max: usize,
    idle_max: Duration,
}

impl Roles {
    /// One thread is there and holds the role.
    pub fn new(threads_max: usize, idle_max: Duration) -> Self {
        assert!(threads_max > 0, "a link without a thread");
        let state = State { vacant: false, idle: 0, threads: 1, over: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), threads_max, idle_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread that holds the role gives it up.
    pub fn give_up(&self) -> Next {
        let mut state = self.lock();
        assert!(!state.vacant, "the reading role was given up twice");
        if state.over {
            return Next::Nothing;
        }
        if state.idle == 0 && state.threads < self.threads_max {
            state.threads += 1;
            return Next::Start;
        }
        state.vacant = true;
        if state.idle > 0 {
            drop(state);
            self.changed.notify_one();
        }
        Next::Nothing
    }

    /// The thread that should take the role could not be started: the next thread that becomes free takes it.
    pub fn start_failed(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        state.vacant = true;
        drop(state);
        self.changed.notify_one();
    }

    /// A thread without the role has nothing to do. True when it holds the role. False when it must end,
    /// because it was not needed for long or because the link ends.
    pub fn take(&self) -> bool {
        let mut state = self.lock();
        let until = Instant::now() + self.idle_max;
        loop {
            if state.over {
                state.threads -= 1;
                return false;
            }
            if state.vacant {
                state.vacant = false;
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.threads -= 1;
                return false;
            }
            state.idle += 1;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
        }
    }

    /// A thread must notice that the link is closed, even if all its threads are busy and wait for just that.
    /// True if the caller must start a thread that holds the role, beyond the bound.
    pub fn take_for_closing(&self) -> bool {
        let mut state = self.lock();
        let vacant = state.vacant && !state.over;
        if vacant {
            state.vacant = false;
            state.threads += 1;
        }
        vacant
    }

    /// The thread that holds the role ends it for good, and itself.
    pub fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        state.threads -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Number of threads.
    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.lock().threads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn threads_are_started_up_to_the_bound_and_then_the_role_waits() {
        let roles = Roles::new(3, LONG);
        assert_eq!(roles.give_up(), Next::Start);
        assert_eq!(roles.give_up(), Next::Start);
        assert_eq!(roles.give_up(), Next::Nothing);
        assert_eq!(roles.threads(), 3);
        assert!(roles.take(), "the first thread that is free takes the role");
    }

    #[test]
    fn a_parked_thread_takes_the_role_before_one_is_started() {
        let roles = Arc::new(Roles::new(3, LONG));
        assert_eq!(roles.give_up(), Next::Start);
        let (send, receive) = channel();
        let parked = Arc::clone(&roles);
        let thread = thread::spawn(move || send.send(parked.take()).unwrap());
        while roles.lock().idle == 0 {
            thread::yield_now();
        }
        assert_eq!(roles.give_up(), Next::Nothing);
        assert_eq!(receive.recv(), Ok(true));
        thread.join().unwrap();
        assert_eq!(roles.threads(), 2);
    }

    #[test]
    fn a_thread_that_nobody_needs_ends() {
        let roles = Roles::new(2, Duration::from_millis(1));
        assert_eq!(roles.give_up(), Next::Start);
        assert!(!roles.take());
        assert_eq!(roles.threads(), 1);
    }

    #[test]
    fn when_all_is_over_parked_threads_end_and_none_is_started() {
        let roles = Arc::new(Roles::new(3, LONG));
        assert_eq!(roles.give_up(), Next::Start);
        let parked = Arc::clone(&roles);
        let thread = thread::spawn(move || parked.take());
        roles.end();
        assert!(!thread.join().unwrap());
        assert_eq!(roles.give_up(), Next::Nothing);
        assert!(!roles.take_for_closing());
    }

    #[test]
    fn a_vacant_role_is_taken_for_closing_beyond_the_bound() {
        let roles = Roles::new(1, LONG);
        assert!(!roles.take_for_closing(), "somebody reads and will see it");
        assert_eq!(roles.give_up(), Next::Nothing);
        assert!(roles.take_for_closing());
        assert_eq!(roles.threads(), 2);
    }

    #[test]
    fn a_role_whose_thread_could_not_be_started_is_not_lost() {
        let roles = Roles::new(2, LONG);
        assert_eq!(roles.give_up(), Next::Start);
        roles.start_failed();
        assert!(roles.take());
        assert_eq!(roles.threads(), 1);
    }
}
