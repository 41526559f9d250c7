//! Remembers the last answers to lookups of each thread: which directory a name leads to. Never asks a
//! volume.
//!
//! Before the kernel removes or replaces a directory, the same thread looks its name up. Then the kernel
//! sends only the name. If the operation succeeds, the kernel marks the directory that it had found as dead,
//! whatever the name led to by then. So the volume must be told which directory the caller means, and this
//! file knows it.
//!
//! The memory may be missing (the kernel has kept an answer, or too many threads ask) or old. Then the volume
//! says `ESTALE`, the kernel looks the name up once more, and the memory is right.

use crate::places::Place;
use atoll_core::Ino;
use std::sync::{Mutex, MutexGuard};

/// Most threads that are remembered.
const THREADS_MAX: usize = 256;

/// The last answers to each thread. Bounded.
#[derive(Debug)]
pub(crate) struct Told {
    /// By number of the thread. Threads that share a place push each other out.
    threads: [Mutex<Thread>; THREADS_MAX],
}

#[derive(Debug, Default)]
struct Thread {
    number: u32,
    /// The last two names, because a rename has two, each with the directory that it led to, if it was one.
    last: [Option<(Place, Option<Ino>)>; 2],
}

impl Default for Told {
    fn default() -> Self {
        Self { threads: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Told {
    fn of(&self, thread: u32) -> MutexGuard<'_, Thread> {
        self.threads[thread as usize % THREADS_MAX].lock().expect("no holder of this lock panics")
    }

    /// A thread is about to be told that a name leads to this directory, or to none.
    pub(crate) fn tell(&self, thread: u32, place: Place, dir: Option<Ino>) {
        let mut it = self.of(thread);
        if it.number != thread {
            *it = Thread { number: thread, ..Thread::default() };
        }
        let [first, second] = &mut it.last;
        if first.as_ref().is_none_or(|(last, _)| *last != place) {
            std::mem::swap(first, second);
        }
        *first = Some((place, dir));
    }

    /// Takes the answer about this name. The outer `None`: nothing is remembered.
    pub(crate) fn take(&self, thread: u32, place: &Place) -> Option<Option<Ino>> {
        let mut it = self.of(thread);
        if it.number != thread {
            return None;
        }
        let one = it.last.iter_mut().find(|one| one.as_ref().is_some_and(|(at, _)| at == place))?;
        one.take().map(|(_, dir)| dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Name;

    fn place(text: &str) -> Place {
        Place { dir: Ino::ROOT, name: Name::new(text.as_bytes()).unwrap() }
    }

    #[test]
    fn a_thread_means_what_it_was_told_last_of_each_of_two_names() {
        let told = Told::default();
        told.tell(7, place("a"), Some(Ino(10)));
        told.tell(7, place("b"), Some(Ino(11)));
        told.tell(7, place("b"), None);
        told.tell(8, place("a"), Some(Ino(12)));
        assert_eq!(told.take(7, &place("a")), Some(Some(Ino(10))), "the same name again pushes out none");
        assert_eq!(told.take(7, &place("b")), Some(None));
        assert_eq!(told.take(7, &place("a")), None, "what it has used may be over");
        assert_eq!(told.take(8, &place("a")), Some(Some(Ino(12))));
    }

    #[test]
    fn only_the_last_two_names_are_remembered_and_of_so_many_threads() {
        let told = Told::default();
        for name in ["way", "from", "to"] {
            told.tell(7, place(name), Some(Ino(10)));
        }
        assert_eq!(told.take(7, &place("way")), None);
        let other = 7 + u32::try_from(THREADS_MAX).unwrap();
        told.tell(other, place("x"), None);
        assert_eq!(told.take(7, &place("from")), None, "another one has its place");
        assert_eq!(told.take(other, &place("x")), Some(None));
    }
}
