//! Which names of each directory the kernel was told that it may keep, present ones and absent ones, as long as it may keep them. Never talks to
//! the kernel.
//!
//! There are two lists in each shard: the names of this period, and those of the one before. A period is as long as the kernel may keep a name. If
//! there are more names than a list has room for, it is not known which ones the kernel keeps.

use crate::adapter::KEEP;
use atoll_core::map::IdMap;
use atoll_core::{Ino, Name};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const SHARDS: usize = 16;
/// Most names of a list, in about 60 bytes each: 16 MiB in all.
const LIST_MAX: usize = 1 << 13;
/// Most names of a directory that are dropped one by one.
const NAMES_MAX: usize = 1 << 10;
/// How long a list takes names. Longer than the kernel keeps one: an answer takes some time until the kernel has it.
const PERIOD: Duration = KEEP.saturating_add(Duration::from_secs(1));

/// A name that the kernel may keep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeptName {
    pub(crate) name: Name,
    /// It leads to a directory.
    pub(crate) is_dir: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct KeptNames {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    since: Instant,
    young: List,
    old: List,
}

#[derive(Debug, Default)]
struct List {
    dirs: IdMap<Ino, Vec<KeptName>>,
    count: usize,
    /// There were more.
    is_over_full: bool,
}

impl Default for KeptNames {
    fn default() -> Self {
        let shard = || Shard { since: Instant::now(), young: List::default(), old: List::default() };
        Self { shards: std::array::from_fn(|_| Mutex::new(shard())) }
    }
}

impl Shard {
    /// Begins a new list if it is time to. Returns what the kernel keeps no more.
    fn at(&mut self, now: Instant) -> Option<[List; 2]> {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < PERIOD {
            return None;
        }
        self.since = now;
        let young = std::mem::take(&mut self.young);
        let old = std::mem::take(&mut self.old);
        if elapsed < 2 * PERIOD {
            self.old = young;
            return Some([old, List::default()]);
        }
        Some([old, young])
    }
}

impl KeptNames {
    fn of(&self, dir: Ino) -> MutexGuard<'_, Shard> {
        self.shards[(dir.0 % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// The kernel is about to be told that it may keep a name.
    pub(crate) fn tell(&self, dir: Ino, name: &Name, is_dir: bool) {
        self.tell_at(dir, KeptName { name: name.clone(), is_dir }, Instant::now());
    }

    fn tell_at(&self, dir: Ino, name: KeptName, now: Instant) {
        let mut shard = self.of(dir);
        // Freed when others may have the lock again.
        let _over = shard.at(now);
        let list = &mut shard.young;
        if list.count >= LIST_MAX {
            list.is_over_full = true;
            return;
        }
        list.count += 1;
        list.dirs.entry(dir).or_default().push(name);
        drop(shard);
    }

    /// The kernel must drop all names of a directory that it may keep: these. None if it is not known which, or they are many.
    pub(crate) fn take(&self, dir: Ino) -> Option<Vec<KeptName>> {
        self.take_at(dir, Instant::now())
    }

    fn take_at(&self, dir: Ino, now: Instant) -> Option<Vec<KeptName>> {
        let mut shard = self.of(dir);
        let _over = shard.at(now);
        let mut names = Vec::new();
        let Shard { young, old, .. } = &mut *shard;
        for list in [young, old] {
            if let Some(told) = list.dirs.remove(&dir) {
                list.count -= told.len();
                names.extend(told);
            }
        }
        let is_known = !shard.young.is_over_full && !shard.old.is_over_full && names.len() <= NAMES_MAX;
        is_known.then_some(names)
    }

    /// The kernel has dropped all names.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().expect("no holder of this lock panics");
            let _over = [std::mem::take(&mut shard.young), std::mem::take(&mut shard.old)];
            drop(shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Ino = Ino(5);

    fn name(n: usize) -> KeptName {
        KeptName { name: Name::new(n.to_string().as_bytes()).unwrap(), is_dir: n.is_multiple_of(2) }
    }

    #[test]
    fn names_are_known_as_long_as_the_kernel_may_keep_them_and_taken_once() {
        let (names, begin) = (KeptNames::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        names.tell_at(D, name(1), at(0));
        names.tell_at(Ino(6), name(2), at(0));
        names.tell_at(D, name(3), at(8));
        assert_eq!(names.take_at(D, at(9)), Some(vec![name(3), name(1)]));
        assert_eq!(names.take_at(D, at(9)), Some(Vec::new()));
        names.tell_at(D, name(4), at(9));
        names.tell_at(Ino(7), name(5), at(40));
        assert_eq!(names.take_at(D, at(40)), Some(Vec::new()), "it is over");
        assert_eq!(names.take_at(Ino(7), at(41)), Some(vec![name(5)]));
    }

    #[test]
    fn it_is_not_known_which_names_are_kept_if_there_are_too_many_until_those_are_over() {
        let (names, begin) = (KeptNames::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        for n in 0..=NAMES_MAX {
            names.tell_at(D, name(n), at(0));
        }
        assert_eq!(names.take_at(D, at(0)), None, "too many to drop each");
        let other = Ino(D.0 + SHARDS as u64);
        for n in 0..=LIST_MAX {
            names.tell_at(other, name(n), at(0));
        }
        assert_eq!(names.take_at(D, at(0)), None, "some may have found no room");
        assert_eq!(names.of(D).young.count, LIST_MAX);
        assert_eq!(names.take_at(D, at(8)), None);
        assert_eq!(names.take_at(D, at(16)), Some(Vec::new()));
        names.tell_at(D, name(1), at(16));
        names.clear();
        assert_eq!(names.take_at(D, at(16)), Some(Vec::new()));
    }
}
