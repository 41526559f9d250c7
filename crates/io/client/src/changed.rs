//! What islands have said has changed, until the keeper of answers is told. Knows neither islands nor keepers.

use std::sync::{Mutex, MutexGuard};

use atoll_core::{Ino, Name};
use atoll_posix::CHANGED_MAX;
use atoll_proto::EntryRef;

/// Files and directories, and names of directories.
pub(crate) type ChangedParts = (Vec<Ino>, Vec<(Ino, Name)>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PendingChanges(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: ChangedParts,
    /// Somebody tells the keeper.
    has_thread: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.0.is_empty() && self.waiting.1.is_empty()
    }

    /// More than may be told one by one: all of the others need not be known.
    fn is_full(&self) -> bool {
        self.waiting.0.len() + self.waiting.1.len() > CHANGED_MAX
    }
}

impl PendingChanges {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// These have changed too.
    pub(crate) fn add(&self, inos: Vec<Ino>, names: Vec<EntryRef>) {
        let mut state = self.lock();
        for ino in inos {
            if state.is_full() {
                return;
            }
            state.waiting.0.push(ino);
        }
        for EntryRef { dir, name } in names {
            if state.is_full() {
                return;
            }
            state.waiting.1.push((dir, name));
        }
    }

    /// Whether a thread must be begun that tells: something waits, and there is none. It counts as begun.
    pub(crate) fn wants_thread(&self) -> bool {
        let mut state = self.lock();
        !state.is_empty() && !std::mem::replace(&mut state.has_thread, true)
    }

    /// No thread was to be had.
    pub(crate) fn has_no_thread(&self) {
        self.lock().has_thread = false;
    }

    /// What is to be told next, each once. None: the thread ends.
    pub(crate) fn take(&self) -> Option<ChangedParts> {
        let mut state = self.lock();
        if state.is_empty() {
            state.has_thread = false;
            return None;
        }
        let is_full = state.is_full();
        let (mut inos, mut names) = std::mem::take(&mut state.waiting);
        if !is_full {
            inos.sort_unstable();
            inos.dedup();
            names.sort_unstable();
            names.dedup();
        }
        Some((inos, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_once_by_one_thread_and_too_much_stands_for_everything() {
        let changed = PendingChanges::default();
        assert!(!changed.wants_thread(), "nothing has changed");
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        changed.add(vec![Ino(3), Ino(2)], vec![EntryRef { dir: Ino(2), name: name("a") }]);
        assert!(changed.wants_thread());
        changed.add(vec![Ino(3)], Vec::new());
        assert!(!changed.wants_thread(), "one tells already");
        assert_eq!(changed.take(), Some((vec![Ino(2), Ino(3)], vec![(Ino(2), name("a"))])));
        changed.add(
            (1..).take(2 * CHANGED_MAX).map(Ino).collect(),
            vec![EntryRef { dir: Ino(2), name: name("a") }],
        );
        let told = changed.take().unwrap();
        assert_eq!((told.0.len(), told.1.len()), (CHANGED_MAX + 1, 0));
        assert_eq!(changed.take(), None);
        changed.add(vec![Ino(3)], Vec::new());
        assert!(changed.wants_thread());
        changed.has_no_thread();
        assert!(changed.wants_thread(), "it is tried again");
    }
}
