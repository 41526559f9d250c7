//! Has what has changed dropped once more a moment later. Never knows what a drop is.
//!
//! The kernel may be using an answer of before that it got just before it was told of a change: a name that it has looked up once more
//! without the lock of its directory, or a file that it did not know yet. The thread that waits for that answer may write it down behind
//! the drop. So there is a second one, when that thread has had its turn.

use atoll_core::{Ino, Name};
use atoll_vfs::CHANGED_MAX;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The second drop comes behind one such time, and before the end of two.
const LATER: Duration = Duration::from_millis(100);

/// Files and directories, and names.
pub(crate) type Listed = (Vec<Ino>, Vec<(Ino, Name)>);

/// What has changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct VoidAnswers {
    inos: BTreeSet<Ino>,
    names: BTreeSet<(Ino, Name)>,
    /// More than can be named.
    everything: bool,
}

impl VoidAnswers {
    pub(crate) fn of(inos: &[Ino], names: &[(Ino, Name)]) -> Self {
        let mut changes = Self::default();
        changes.add(inos, names);
        changes
    }

    fn add(&mut self, inos: &[Ino], names: &[(Ino, Name)]) {
        if !self.everything && inos.len() + names.len() <= CHANGED_MAX {
            self.inos.extend(inos);
            self.names.extend(names.iter().cloned());
        } else {
            self.everything = true;
        }
        if self.everything || self.inos.len() + self.names.len() > CHANGED_MAX {
            *self = Self { everything: true, ..Self::default() };
        }
    }

    fn is_empty(&self) -> bool {
        self.inos.is_empty() && self.names.is_empty() && !self.everything
    }

    /// These files and directories, and these names. None: everything.
    pub(crate) fn listed(self) -> Option<Listed> {
        let Self { inos, names, everything } = self;
        (!everything).then(|| (inos.into_iter().collect(), names.into_iter().collect()))
    }
}

/// See the module.
pub(crate) struct Again {
    drop: Box<dyn Fn(VoidAnswers) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since the last look, and before it.
    young: VoidAnswers,
    old: VoidAnswers,
    has_thread: bool,
}

impl State {
    /// The time has passed once more. What is to be dropped now; none: nothing waits.
    fn next(&mut self) -> Option<VoidAnswers> {
        let due = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        if due.is_empty() && self.old.is_empty() {
            self.has_thread = false;
            return None;
        }
        Some(due)
    }
}

impl std::fmt::Debug for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Again").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Again {
    pub(crate) fn new(drop: impl Fn(VoidAnswers) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { drop: Box::new(drop), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// These are dropped once more.
    pub(crate) fn add(self: &Arc<Self>, inos: &[Ino], names: &[(Ino, Name)]) {
        let mut state = self.lock();
        state.young.add(inos, names);
        if state.young.is_empty() || std::mem::replace(&mut state.has_thread, true) {
            return;
        }
        let me = Arc::clone(self);
        // Without a thread an old answer may stay for as long as the kernel keeps one.
        state.has_thread =
            std::thread::Builder::new().name("fuse-again".into()).spawn(move || me.run()).is_ok();
    }

    fn run(&self) {
        loop {
            std::thread::sleep(LATER);
            let Some(due) = self.lock().next() else { return };
            if !due.is_empty() {
                (self.drop)(due);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_has_changed_is_due_when_the_time_has_passed_whole_and_then_nothing_waits() {
        let mut state = State { has_thread: true, ..State::default() };
        state.young.add(&[Ino(2)], &[]);
        assert_eq!(state.next(), Some(VoidAnswers::default()), "it may have come just now");
        state.young.add(&[Ino(3)], &[(Ino(1), name("a"))]);
        assert_eq!(state.next().unwrap().listed(), Some((vec![Ino(2)], Vec::new())));
        assert_eq!(state.next().unwrap().listed(), Some((vec![Ino(3)], vec![(Ino(1), name("a"))])));
        assert!(state.has_thread, "it waits for more");
        assert_eq!(state.next(), None);
        assert!(!state.has_thread);
    }

    #[test]
    fn more_than_can_be_named_is_everything() {
        let all: Vec<Ino> = (1..=CHANGED_MAX as u64).map(Ino).collect();
        let mut changes = VoidAnswers::of(&all, &[]);
        assert_eq!(changes.clone().listed().unwrap().0.len(), CHANGED_MAX);
        changes.add(&[], &[(Ino(1), name("a"))]);
        assert_eq!(changes.listed(), None);
        assert_eq!(VoidAnswers::of(&all, &[(Ino(1), name("a"))]).listed(), None);
    }

    #[test]
    fn it_is_dropped_once_more() {
        let (say, said) = std::sync::mpsc::channel();
        let say = Mutex::new(say);
        let again = Again::new(move |changes| say.lock().unwrap().send(changes).unwrap());
        again.add(&[Ino(2)], &[]);
        assert_eq!(said.recv().unwrap(), VoidAnswers::of(&[Ino(2)], &[]));
        again.add(&[Ino(3)], &[]);
        assert_eq!(said.recv().unwrap(), VoidAnswers::of(&[Ino(3)], &[]));
    }
}
