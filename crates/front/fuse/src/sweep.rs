//! Goes through many ids or names on threads of its own, because the kernel may make each of them wait for a
//! request under way. Never waits longer than its limit; the rest goes on by itself.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Most threads of one sweep: so many blocked ids delay no others.
const THREADS_MAX: usize = 64;
/// If no id was done for so long, all threads are blocked, and another one is started.
const HELD_UP: Duration = Duration::from_millis(20);

/// A sweep that may be begun again while it is under way.
pub(crate) struct Sweep<T> {
    name: &'static str,
    each: Box<dyn Fn(&T) + Send + Sync>,
    state: Mutex<State<T>>,
    /// Signals that nothing is left.
    clean: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Ids that are not begun.
    left: Vec<T>,
    /// Ids that are begun, each with a mark if it must be done again because it was wanted again meanwhile.
    begun: Vec<(T, bool)>,
    /// Number of ids that are done.
    done: u64,
    threads: usize,
}

impl<T: Ord + Hash + Clone> State<T> {
    fn is_clean(&self) -> bool {
        self.left.is_empty() && self.begun.is_empty()
    }

    fn add(&mut self, all: Vec<T>) {
        if all.is_empty() {
            return;
        }
        if self.left.is_empty() {
            self.left = all;
        } else {
            self.left.extend(all);
            self.left.sort_unstable();
            self.left.dedup();
        }
        if self.begun.is_empty() {
            return;
        }
        // Else each sweep would leave one more thread behind at an id that is held up.
        let begun: HashSet<&T> = self.begun.iter().map(|(one, _)| one).collect();
        self.left.retain(|one| !begun.contains(one));
        self.begun.iter_mut().for_each(|(_, again)| *again = true);
    }
}

impl<T> std::fmt::Debug for Sweep<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweep").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Ord + Hash + Clone + Send + 'static> Sweep<T> {
    /// Calls `each` for each id. `name` is the name of the threads.
    pub(crate) fn new(name: &'static str, each: impl Fn(&T) + Send + Sync + 'static) -> Arc<Self> {
        let state = State { left: Vec::new(), begun: Vec::new(), done: 0, threads: 0 };
        let (state, clean) = (Mutex::new(state), Condvar::new());
        Arc::new(Self { name, each: Box::new(each), state, clean })
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Goes through all of these ids, and those that other calls have left. True if all are done within the
    /// time.
    pub(crate) fn run(self: &Arc<Self>, all: Vec<T>, time_max: Duration) -> bool {
        self.run_until_held_up(all, time_max, time_max)
    }

    /// The same, but it returns too when all ids that are left were begun and none was done for `held_up_max`: these wait for
    /// requests under way.
    pub(crate) fn run_until_held_up(
        self: &Arc<Self>,
        all: Vec<T>,
        time_max: Duration,
        held_up_max: Duration,
    ) -> bool {
        let until = Instant::now() + time_max;
        let mut moved_on = Instant::now();
        let mut state = self.lock();
        state.add(all);
        let mut wanted = state.threads.max(1);
        loop {
            while state.threads < wanted.min(state.begun.len() + state.left.len()) && self.spawn() {
                state.threads += 1;
            }
            if state.threads == 0 && !state.left.is_empty() {
                // No thread is to be had: better late than not at all.
                state.threads = 1;
                drop(state);
                self.work();
                state = self.lock();
            }
            let left = until.saturating_duration_since(Instant::now());
            let held_up = state.left.is_empty() && moved_on.elapsed() >= held_up_max;
            if state.is_clean() || left.is_zero() || held_up {
                return state.is_clean();
            }
            let done = state.done;
            let (next, waited) = self
                .clean
                .wait_timeout_while(state, left.min(HELD_UP), |state| !state.is_clean())
                .expect("no holder of this lock panics");
            state = next;
            if state.done != done {
                moved_on = Instant::now();
            } else if waited.timed_out() {
                wanted = (2 * state.threads).clamp(1, THREADS_MAX);
            }
        }
    }

    fn spawn(self: &Arc<Self>) -> bool {
        let me = Arc::clone(self);
        std::thread::Builder::new().name(self.name.into()).spawn(move || me.work()).is_ok()
    }

    fn work(&self) {
        let mut state = self.lock();
        while let Some(one) = state.left.pop() {
            state.begun.push((one.clone(), false));
            drop(state);
            (self.each)(&one);
            state = self.lock();
            let at = state.begun.iter().position(|(begun, _)| *begun == one).expect("only here it ends");
            let (_, again) = state.begun.swap_remove(at);
            if again {
                state.left.push(one);
            }
            state.done += 1;
        }
        state.threads -= 1;
        if state.is_clean() {
            self.clean.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Ino;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(100);

    /// Ids from `HELD` on are held up until `release`.
    const HELD: u64 = 1000;

    #[derive(Default)]
    struct Work {
        counts: Mutex<std::collections::HashMap<Ino, usize>>,
        held: Mutex<bool>,
        released: Condvar,
        inside: AtomicUsize,
    }

    impl Work {
        fn sweep() -> (Arc<Self>, Arc<Sweep<Ino>>) {
            let work = Arc::new(Self { held: Mutex::new(true), ..Self::default() });
            let mine = Arc::clone(&work);
            let sweep = Sweep::new("test-sweep", move |ino: &Ino| {
                if ino.0 >= HELD {
                    mine.inside.fetch_add(1, SeqCst);
                    let held = mine.held.lock().unwrap();
                    drop(mine.released.wait_while(held, |held| *held).unwrap());
                    mine.inside.fetch_sub(1, SeqCst);
                }
                *mine.counts.lock().unwrap().entry(*ino).or_default() += 1;
            });
            (work, sweep)
        }

        fn release(&self) {
            *self.held.lock().unwrap() = false;
            self.released.notify_all();
        }

        fn count(&self, ino: u64) -> usize {
            self.counts.lock().unwrap().get(&Ino(ino)).copied().unwrap_or(0)
        }
    }

    fn ids(range: std::ops::Range<u64>) -> Vec<Ino> {
        range.map(Ino).collect()
    }

    #[test]
    fn each_id_is_done_once_before_it_returns() {
        let (work, sweep) = Work::sweep();
        assert!(sweep.run(ids(0..500), LONG));
        assert!((0..500).all(|ino| work.count(ino) == 1));
        assert!(sweep.run(Vec::new(), Duration::ZERO), "nothing is left");
    }

    #[test]
    fn ids_that_are_held_up_hold_up_no_others_and_are_done_when_they_can_be() {
        let (work, sweep) = Work::sweep();
        let held = HELD..HELD + 20;
        let mut all = ids(held.clone());
        // The last ones are begun first.
        all.splice(0..0, ids(0..500));
        assert!(!sweep.run(all, Duration::from_secs(3)));
        assert!((0..500).all(|ino| work.count(ino) == 1));
        assert!(held.clone().all(|ino| work.count(ino) == 0));
        work.release();
        assert!(sweep.run(Vec::new(), LONG));
        assert!(held.clone().all(|ino| work.count(ino) > 0));
    }

    /// As when a volume answers a read only when the recall is over, and the kernel drops no page that is being read.
    #[test]
    fn nobody_waits_for_ids_that_are_held_up() {
        let (work, sweep) = Work::sweep();
        let mut all = ids(HELD..HELD + 20);
        all.splice(0..0, ids(0..500));
        assert!(!sweep.run_until_held_up(all, LONG, SHORT));
        assert!((0..500).all(|ino| work.count(ino) == 1));
        assert!(*work.held.lock().unwrap(), "it did not wait for their end");
        work.release();
        assert!(sweep.run(Vec::new(), LONG));
    }

    #[test]
    fn what_is_wanted_anew_while_it_is_held_up_is_done_once_more_by_the_same_thread() {
        let (work, sweep) = Work::sweep();
        for _ in 0..10 {
            assert!(!sweep.run(ids(HELD..HELD + 1), SHORT));
        }
        assert_eq!(work.inside.load(SeqCst), 1);
        work.release();
        assert!(sweep.run(Vec::new(), LONG));
        assert_eq!(work.count(HELD), 2);
    }

    #[test]
    fn there_are_never_more_threads_than_the_bound() {
        let (work, sweep) = Work::sweep();
        let all = HELD..HELD + 3 * THREADS_MAX as u64;
        assert!(!sweep.run(ids(all.clone()), Duration::from_secs(2)));
        assert_eq!(work.inside.load(SeqCst), THREADS_MAX);
        assert_eq!(sweep.lock().threads, THREADS_MAX);
        work.release();
        assert!(sweep.run(Vec::new(), LONG));
        assert!(all.clone().all(|ino| work.count(ino) == 1));
        assert_eq!(sweep.lock().threads, 0);
    }
}
