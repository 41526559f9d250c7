//! Which names of each directory the kernel was told that it may keep, present ones and absent ones, as long as it may keep them. Never talks to
//! the kernel. Names that a rename is about to give are here too: the kernel keeps them as long as it would have kept the old ones.
//!
//! There are two lists in each shard: the names of this period, and those of the one before. A period is as long as the kernel may keep a name. If
//! there are more names than a list has room for, it is not known which ones the kernel keeps.

use crate::adapter::KEEP;
use atoll_core::map::IdMap;
use atoll_core::{Ino, Name};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const SHARDS: usize = 16;
/// Most names of a list, in about 75 bytes each: 20 MiB in all. If each is in a directory of its own it takes about 250: 60 MiB.
const LIST_MAX: usize = 1 << 13;
/// Most names of a directory that are dropped one by one.
const NAMES_MAX: usize = 1 << 10;
/// How long a list takes names. Longer than the kernel keeps one: an answer takes some time until the kernel has it.
const PERIOD: Duration = KEEP.saturating_add(Duration::from_secs(1));

/// A name that the kernel may keep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeptName {
    pub(crate) name: Name,
    /// It leads to a directory, or has.
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
    dirs: IdMap<Ino, HashMap<Name, What>>,
    count: usize,
    /// There were more that the kernel may keep.
    lacks_kept: bool,
    /// There were more that it may have got by a rename.
    lacks_renamed: bool,
}

/// What is known of a name.
#[derive(Debug, Clone, Copy, Default)]
struct What {
    /// It leads to a directory, or has.
    is_dir: bool,
    /// The kernel was told that it may keep it.
    is_kept: bool,
}

impl What {
    fn add(&mut self, other: Self) {
        self.is_dir |= other.is_dir;
        self.is_kept |= other.is_kept;
    }
}

impl List {
    fn add(&mut self, dir: Ino, name: &Name, what: What) {
        if let Some(had) = self.dirs.get_mut(&dir).and_then(|names| names.get_mut(name)) {
            had.add(what);
        } else if self.count < LIST_MAX {
            self.count += 1;
            self.dirs.entry(dir).or_default().insert(name.clone(), what);
        } else if what.is_kept {
            self.lacks_kept = true;
        } else {
            self.lacks_renamed = true;
        }
    }
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
    /// Gives the memory of names back that the kernel keeps no more.
    pub(crate) fn expire(&self) {
        self.expire_at(Instant::now());
    }

    fn expire_at(&self, now: Instant) {
        for shard in &self.shards {
            let over = shard.lock().expect("no holder of this lock panics").at(now);
            drop(over);
        }
    }

    fn of(&self, dir: Ino) -> MutexGuard<'_, Shard> {
        self.shards[(dir.0 % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// The kernel is about to be told that it may keep a name.
    pub(crate) fn tell(&self, dir: Ino, name: &Name, is_dir: bool) {
        self.add_at(dir, name, What { is_dir, is_kept: true }, Instant::now());
    }

    /// A rename may give a name, or take it away.
    pub(crate) fn may_be_renamed(&self, dir: Ino, name: &Name, is_dir: bool) {
        self.add_at(dir, name, What { is_dir, is_kept: false }, Instant::now());
    }

    fn add_at(&self, dir: Ino, name: &Name, what: What, now: Instant) {
        let mut shard = self.of(dir);
        // Freed when others may have the lock again.
        let _over = shard.at(now);
        shard.young.add(dir, name, what);
        drop(shard);
    }

    /// Whether the kernel was told that it may keep a name. True if that is not known.
    pub(crate) fn has(&self, dir: Ino, name: &Name) -> bool {
        let is_kept = |names: &HashMap<Name, What>| names.get(name).is_some_and(|what| what.is_kept);
        self.any(dir, |list| list.lacks_kept || list.dirs.get(&dir).is_some_and(is_kept))
    }

    /// Whether the kernel was told that it may keep any name of a directory, since all were dropped the last time. False if that is not known.
    pub(crate) fn has_any(&self, dir: Ino) -> bool {
        let is_kept = |names: &HashMap<Name, What>| names.values().any(|what| what.is_kept);
        self.any(dir, |list| list.dirs.get(&dir).is_some_and(is_kept))
    }

    fn any(&self, dir: Ino, has: impl Fn(&List) -> bool) -> bool {
        let mut shard = self.of(dir);
        let _over = shard.at(Instant::now());
        let any = has(&shard.young) || has(&shard.old);
        drop(shard);
        any
    }

    /// The kernel must drop all names of a directory that it may keep: these. None if it is not known which, or they are many.
    pub(crate) fn take(&self, dir: Ino) -> Option<Vec<KeptName>> {
        self.take_at(dir, Instant::now())
    }

    fn take_at(&self, dir: Ino, now: Instant) -> Option<Vec<KeptName>> {
        let mut shard = self.of(dir);
        let _over = shard.at(now);
        let mut names: HashMap<Name, What> = HashMap::new();
        let Shard { young, old, .. } = &mut *shard;
        for list in [young, old] {
            if let Some(told) = list.dirs.remove(&dir) {
                list.count -= told.len();
                told.into_iter().for_each(|(name, what)| names.entry(name).or_default().add(what));
            }
        }
        let lacks_none = |list: &List| !list.lacks_kept && !list.lacks_renamed;
        let is_known = lacks_none(&shard.young) && lacks_none(&shard.old) && names.len() <= NAMES_MAX;
        drop(shard);
        let mut names: Vec<KeptName> =
            names.into_iter().map(|(name, What { is_dir, .. })| KeptName { name, is_dir }).collect();
        names.sort_unstable();
        is_known.then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Ino = Ino(5);

    fn name(n: usize) -> KeptName {
        KeptName { name: Name::new(n.to_string().as_bytes()).unwrap(), is_dir: n.is_multiple_of(2) }
    }

    fn tell(names: &KeptNames, dir: Ino, KeptName { name, is_dir }: KeptName, now: Instant) {
        names.add_at(dir, &name, What { is_dir, is_kept: true }, now);
    }

    #[test]
    fn names_are_known_as_long_as_the_kernel_may_keep_them_and_taken_once() {
        let (names, begin) = (KeptNames::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        tell(&names, D, name(1), at(0));
        tell(&names, Ino(6), name(2), at(0));
        tell(&names, D, name(3), at(8));
        assert_eq!(names.take_at(D, at(9)), Some(vec![name(1), name(3)]));
        assert_eq!(names.take_at(D, at(9)), Some(Vec::new()));
        tell(&names, D, name(4), at(9));
        tell(&names, Ino(7), name(5), at(40));
        assert_eq!(names.take_at(D, at(40)), Some(Vec::new()), "it is over");
        assert_eq!(names.take_at(Ino(7), at(41)), Some(vec![name(5)]));
    }

    #[test]
    fn it_is_not_known_which_names_are_kept_if_there_are_too_many_until_those_are_over() {
        let (names, begin) = (KeptNames::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        for n in 0..=NAMES_MAX {
            tell(&names, D, name(n), at(0));
        }
        assert_eq!(names.take_at(D, at(0)), None, "too many to drop each");
        let other = Ino(D.0 + SHARDS as u64);
        for n in 0..=LIST_MAX {
            tell(&names, other, name(n), at(0));
        }
        assert_eq!(names.take_at(D, at(0)), None, "some may have found no room");
        assert_eq!(names.of(D).young.count, LIST_MAX);
        assert_eq!(names.take_at(D, at(8)), None);
        assert_eq!(names.take_at(D, at(16)), Some(Vec::new()));
    }

    #[test]
    fn the_memory_of_names_is_given_back_when_the_kernel_keeps_them_no_more() {
        let (names, begin) = (KeptNames::default(), Instant::now());
        (0..1_000).for_each(|n| tell(&names, Ino(n), name(0), begin));
        let has_lists = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap();
            shard.young.dirs.capacity() + shard.old.dirs.capacity() > 0
        };
        names.expire_at(begin + PERIOD - Duration::from_millis(1));
        assert!(names.shards.iter().all(has_lists));
        names.expire_at(begin + 3 * PERIOD);
        assert!(!names.shards.iter().any(has_lists));
    }

    #[test]
    fn a_name_is_once_there_and_counts_as_a_directorys_if_it_ever_led_to_one() {
        let names = KeptNames::default();
        let name = Name::new(b"n").unwrap();
        names.may_be_renamed(D, &name, false);
        assert!(!names.has(D, &name), "it may get it by a rename");
        for is_dir in [false, true, false] {
            names.tell(D, &name, is_dir);
        }
        assert!(names.has(D, &name) && !names.has(Ino(6), &name));
        assert!(names.has_any(D) && !names.has_any(Ino(6)));
        assert_eq!(names.take(D), Some(vec![KeptName { name: name.clone(), is_dir: true }]));
        assert!(!names.has(D, &name) && !names.has_any(D));
    }
}
