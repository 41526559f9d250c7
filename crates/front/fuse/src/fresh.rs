//! Directories that were made through this mount, and the names that were given there since: what is not among them is absent, and the
//! volume need not be asked. Never asks a volume, and never says that a name is there.
//!
//! What is here holds as long as the volume lets the kernel keep what it is told, and goes with a recall. A name is noted before the
//! volume is asked to make it, and stays noted when it is removed. Only hashes of names are kept. If two are the same, one name too much
//! is asked for.

use atoll_core::{Ino, Name};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

/// Most names of one directory. One with more is as any other.
const NAMES_MAX: usize = 1 << 16;
/// Most directories and names of all, in about 20 bytes each: 5 MiB. If there are more, all are as any others.
const ALL_MAX: usize = 1 << 18;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    hasher: RandomState,
    known: Mutex<Dirs>,
}

#[derive(Debug, Default)]
struct Dirs {
    dirs: HashMap<Ino, HashSet<u64>>,
    /// Directories, and names.
    count: usize,
}

impl Dirs {
    fn forget(&mut self, dir: Ino) {
        if let Some(names) = self.dirs.remove(&dir) {
            self.count -= 1 + names.len();
        }
    }
}

impl Fresh {
    fn known(&self) -> MutexGuard<'_, Dirs> {
        self.known.lock().expect("no holder of this lock panics")
    }

    /// A directory was made just now, and the kernel has not been told yet.
    pub(crate) fn made(&self, dir: Ino) {
        let mut known = self.known();
        if known.count >= ALL_MAX {
            *known = Dirs::default();
        }
        known.forget(dir);
        known.dirs.insert(dir, HashSet::new());
        known.count += 1;
    }

    /// The volume is about to be asked to give this name.
    pub(crate) fn names(&self, dir: Ino, name: &Name) {
        let mut known = self.known();
        let Some(names) = known.dirs.get_mut(&dir) else { return };
        let is_new = names.insert(self.hasher.hash_one(name));
        let is_large = names.len() > NAMES_MAX;
        known.count += usize::from(is_new);
        if is_large {
            known.forget(dir);
        }
    }

    /// Whether a name is known to be absent.
    pub(crate) fn lacks(&self, dir: Ino, name: &Name) -> bool {
        self.known().dirs.get(&dir).is_some_and(|names| !names.contains(&self.hasher.hash_one(name)))
    }

    /// Others may have given names there, or the kernel has forgotten it.
    pub(crate) fn forget(&self, dir: Ino) {
        self.known().forget(dir);
    }

    /// Others may have given any names.
    pub(crate) fn clear(&self) {
        *self.known() = Dirs::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_not_given_in_a_new_directory_is_absent() {
        let (fresh, dir, other) = (Fresh::default(), Ino(9), Ino(10));
        assert!(!fresh.lacks(dir, &name("a")), "it may have any names");
        fresh.made(dir);
        fresh.names(dir, &name("a"));
        fresh.names(other, &name("b"));
        assert!(
            fresh.lacks(dir, &name("b")) && !fresh.lacks(dir, &name("a")) && !fresh.lacks(other, &name("a"))
        );
        fresh.forget(dir);
        assert!(!fresh.lacks(dir, &name("b")));
        fresh.made(dir);
        assert!(fresh.lacks(dir, &name("a")));
        fresh.clear();
        assert!(!fresh.lacks(dir, &name("b")));
    }

    #[test]
    fn a_directory_of_many_names_is_as_any_other_and_so_are_all_when_there_are_too_many() {
        let (fresh, small, large) = (Fresh::default(), Ino(9), Ino(10));
        [small, large].into_iter().for_each(|dir| fresh.made(dir));
        (0..=NAMES_MAX).for_each(|n| fresh.names(large, &name(&n.to_string())));
        assert!(!fresh.lacks(large, &name("a")) && fresh.lacks(small, &name("a")));
        assert_eq!(fresh.known().count, 1);
        for n in 0..5 {
            let dir = Ino(20 + n);
            fresh.made(dir);
            (0..NAMES_MAX).for_each(|n| fresh.names(dir, &name(&n.to_string())));
        }
        let last = Ino(30);
        fresh.made(last);
        assert!(fresh.lacks(last, &name("a")) && !fresh.lacks(small, &name("a")));
        assert!(fresh.known().count <= ALL_MAX + NAMES_MAX);
    }
}
