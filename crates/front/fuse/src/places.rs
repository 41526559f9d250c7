//! Where the kernel has each directory that it knows: the parent and name of the last answer about it, and
//! whether it was removed. Never asks a volume, and never decides what to do
//! about a directory that is elsewhere.
//!
//! It may be wrong for a moment, because answers overtake each other on their way to the kernel. A user of it
//! must do nothing that is wrong then. Bounded by the directories that the kernel knows.

use atoll_core::{Ino, Name};
use atoll_posix::NamedObject;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Longest path that is built, in bytes. The kernel takes no longer one.
const PATH_BYTES_MAX: usize = 4095;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) dir: Ino,
    pub(crate) name: Name,
}

/// Where the kernel has a directory.
#[derive(Debug)]
struct Had {
    place: Place,
    /// Another directory has come to this place since. The kernel has dropped this one, or hides it while it
    /// is used.
    displaced: bool,
    /// The directory was removed, as the volume has said. Its attributes are asked for as before.
    is_removed: bool,
}

/// The places of all directories that the kernel knows, but for the root.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// By directory: all that an ordinary lookup needs.
    by_id: [Mutex<HashMap<Ino, Had>>; SHARDS],
    /// The directory that was last told to be at a place. No lock of this map is held together with one of
    /// the other.
    by_place: [Mutex<HashMap<Place, Ino>>; SHARDS],
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().expect("no holder of this lock panics")
}

impl Places {
    fn of_id(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Had>> {
        lock(&self.by_id[(ino.0 % SHARDS as u64) as usize])
    }

    fn of_place(&self, place: &Place) -> MutexGuard<'_, HashMap<Place, Ino>> {
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        lock(&self.by_place[(hasher.finish() % SHARDS as u64) as usize])
    }

    /// The kernel is told of a directory at a place. If the kernel has it at another place, that one is
    /// returned, and nothing changes: only the kernel moves it.
    pub(crate) fn learn(&self, found: &NamedObject, place: &Place) -> Option<Place> {
        let ino = found.attr.ino;
        if ino == Ino::ROOT {
            return None;
        }
        match self.of_id(ino).entry(ino) {
            Entry::Occupied(mut had) => match had.get_mut() {
                had if had.place != *place => return Some(had.place.clone()),
                had if !had.displaced => return None,
                had => had.displaced = false,
            },
            Entry::Vacant(free) => {
                free.insert(Had { place: place.clone(), displaced: false, is_removed: false });
            }
        }
        self.take(ino, place.clone());
        None
    }

    /// The kernel has moved a directory, if it had it at `old` before.
    pub(crate) fn settled(&self, ino: Ino, old: &Place, new: &Place) {
        match self.of_id(ino).get_mut(&ino) {
            Some(had) if had.place == *old => {
                had.place = new.clone();
                had.displaced = false;
            }
            _ => return,
        }
        self.vacate(ino, old);
        self.take(ino, new.clone());
    }

    /// A directory comes to a place.
    fn take(&self, ino: Ino, place: Place) {
        let before = self.of_place(&place).insert(place.clone(), ino);
        if let Some(other) = before.filter(|other| *other != ino)
            && let Some(had) = self.of_id(other).get_mut(&other)
            && had.place == place
        {
            had.displaced = true;
        }
    }

    /// A rename through this mount: the kernel does the same when it hears of its success.
    pub(crate) fn renamed(&self, from: &Place, to: &Place, exchange: bool) {
        let [moved, other] = [from, to].map(|place| self.at(place));
        if let Some(moved) = moved {
            self.settled(moved, from, to);
        }
        if let Some(other) = other.filter(|_| exchange) {
            self.settled(other, to, from);
        }
    }

    /// The kernel has forgotten a directory.
    pub(crate) fn forgotten(&self, ino: Ino) {
        let had = self.of_id(ino).remove(&ino);
        if let Some(had) = had {
            self.vacate(ino, &had.place);
        }
    }

    /// The kernel does not have a directory at this place any more.
    pub(crate) fn vacate(&self, ino: Ino, place: &Place) {
        let mut shard = self.of_place(place);
        if shard.get(place) == Some(&ino) {
            shard.remove(place);
        }
    }

    /// The place at which the kernel has a directory. None for the root, and for an id that is no directory.
    pub(crate) fn of(&self, ino: Ino) -> Option<Place> {
        self.of_id(ino).get(&ino).map(|had| had.place.clone())
    }

    /// Whether the kernel knows a directory of this id.
    pub(crate) fn is_dir(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.of_id(ino).contains_key(&ino)
    }

    /// A directory was removed.
    pub(crate) fn removed(&self, ino: Ino) {
        if let Some(had) = self.of_id(ino).get_mut(&ino) {
            had.is_removed = true;
        }
    }

    /// Whether a directory is known to have been removed.
    pub(crate) fn is_removed(&self, ino: Ino) -> bool {
        self.of_id(ino).get(&ino).is_some_and(|had| had.is_removed)
    }

    /// The directory that the kernel has at a place.
    pub(crate) fn at(&self, place: &Place) -> Option<Ino> {
        self.of_place(place).get(place).copied()
    }

    /// The way to a place from the root, as the kernel has it. None if it does not have all of it.
    pub(crate) fn path(&self, place: &Place) -> Option<PathBuf> {
        let (mut names, mut bytes, mut next) = (Vec::new(), 0, place.clone());
        loop {
            bytes += next.name.as_bytes().len() + 1;
            // A circle, seen while it changes, ends here too.
            if bytes > PATH_BYTES_MAX {
                return None;
            }
            let dir = next.dir;
            names.push(next.name);
            if dir == Ino::ROOT {
                return Some(names.iter().rev().map(|name| OsStr::from_bytes(name.as_bytes())).collect());
            }
            next = self.of_id(dir).get(&dir)?.place.clone();
        }
    }

    /// How many places are kept, by directory and by place.
    #[cfg(test)]
    fn counts(&self) -> [usize; 2] {
        let by_id = self.by_id.iter().map(|shard| lock(shard).len()).sum();
        [by_id, self.by_place.iter().map(|shard| lock(shard).len()).sum()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Time;
    use atoll_posix::{Attr, Kind};
    use proptest::prelude::*;

    const A: Ino = Ino(10);
    const B: Ino = Ino(11);

    fn place(dir: Ino, text: &str) -> Place {
        Place { dir, name: Name::new(text.as_bytes()).unwrap() }
    }

    fn dir(ino: Ino) -> Attr {
        let time = Time::default();
        let (kind, mode, nlink) = (Kind::Directory, 0o755, 2);
        let [atime, mtime, ctime, btime] = [time; 4];
        Attr {
            ino,
            kind,
            mode,
            nlink,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 3,
            blocks: 0,
            atime,
            mtime,
            ctime,
            btime,
        }
    }

    /// As its owner tells it.
    fn found(ino: Ino) -> NamedObject {
        NamedObject { attr: dir(ino), attr_current: true }
    }

    fn learn(places: &Places, ino: Ino, place: &Place) -> Option<Place> {
        places.learn(&found(ino), place)
    }

    #[test]
    fn a_directory_that_was_removed_is_known_to_be_until_it_is_forgotten() {
        let (places, here) = (Places::default(), place(Ino::ROOT, "a"));
        learn(&places, A, &here);
        assert!(!places.is_removed(A));
        places.removed(A);
        places.removed(B);
        assert!(places.is_removed(A) && !places.is_removed(B));
        // An answer from before.
        learn(&places, A, &here);
        assert_eq!((places.is_removed(A), places.of(A)), (true, Some(here)));
        places.forgotten(A);
        assert_eq!((places.is_removed(A), places.counts()), (false, [0, 0]));
    }

    #[test]
    fn a_directory_found_elsewhere_stays_where_the_kernel_has_it_until_that_has_moved_it() {
        let (places, old, new) = (Places::default(), place(Ino::ROOT, "a"), place(B, "e"));
        assert_eq!(learn(&places, A, &old), None);
        assert_eq!(learn(&places, A, &old), None);
        assert_eq!(learn(&places, A, &new), Some(old.clone()));
        assert_eq!(learn(&places, A, &new), Some(old.clone()), "it was only told of it");
        places.settled(A, &old, &new);
        assert_eq!((learn(&places, A, &new), places.at(&new), places.at(&old)), (None, Some(A), None));
        places.settled(A, &old, &old);
        assert_eq!(places.at(&new), Some(A), "what has moved on since is left alone");
    }

    #[test]
    fn a_place_belongs_to_who_came_there_last() {
        let (places, here, there) = (Places::default(), place(Ino::ROOT, "a"), place(Ino::ROOT, "b"));
        learn(&places, A, &here);
        learn(&places, B, &here);
        assert_eq!(places.at(&here), Some(B));
        places.settled(A, &here, &there);
        assert_eq!((places.at(&here), places.at(&there)), (Some(B), Some(A)));
        places.forgotten(A);
        places.forgotten(B);
        assert_eq!(places.counts(), [0, 0]);
    }

    #[test]
    fn who_comes_back_to_a_place_that_another_has_left_has_it_again() {
        let (places, here, there) = (Places::default(), place(Ino::ROOT, "a"), place(Ino::ROOT, "b"));
        learn(&places, A, &here);
        learn(&places, B, &here);
        places.settled(B, &here, &there);
        assert_eq!(places.at(&here), None, "nobody knows that it is there");
        assert_eq!((learn(&places, A, &here), places.at(&here)), (None, Some(A)));
    }

    #[test]
    fn renames_move_replace_and_exchange() {
        let (places, a, b) = (Places::default(), place(Ino::ROOT, "a"), place(Ino(5), "b"));
        learn(&places, A, &a);
        learn(&places, B, &b);
        places.renamed(&a, &b, true);
        assert_eq!((places.at(&a), places.at(&b)), (Some(B), Some(A)));
        assert_eq!((learn(&places, A, &b), learn(&places, B, &a)), (None, None));
        places.renamed(&a, &b, false);
        assert_eq!((places.at(&a), places.at(&b)), (None, Some(B)));
        places.renamed(&place(A, "file"), &a, false);
        assert_eq!(places.at(&a), None, "files have no place here");
        places.forgotten(A);
        assert_eq!(places.counts(), [1, 1]);
    }

    #[test]
    fn a_path_goes_up_to_the_root_or_is_none() {
        let places = Places::default();
        learn(&places, A, &place(Ino::ROOT, "a"));
        learn(&places, B, &place(A, "b"));
        assert_eq!(places.path(&place(B, "c")), Some("a/b/c".into()));
        assert_eq!(places.path(&place(Ino::ROOT, "c")), Some("c".into()));
        assert_eq!(places.path(&place(Ino(99), "c")), None);
        places.settled(A, &place(Ino::ROOT, "a"), &place(B, "a"));
        assert_eq!(places.path(&place(B, "c")), None, "a circle has no end");
    }

    proptest! {
        #[test]
        fn nothing_is_left_of_what_was_forgotten(
            steps in proptest::collection::vec((0u8..4, 0u64..6, 0u64..6), 0..200)
        ) {
            let places = Places::default();
            let at = |n: u64| place(Ino(100 + n % 2), &format!("{}", n / 2));
            for (what, one, two) in steps {
                let ino = Ino(10 + one);
                match what {
                    0 => _ = learn(&places, ino, &at(two)),
                    1 => {
                        if let Some(old) = learn(&places, ino, &at(two)) {
                            places.settled(ino, &old, &at(two));
                            prop_assert_eq!(learn(&places, ino, &at(two)), None);
                        }
                    }
                    2 => places.renamed(&at(one), &at(two), one % 2 == 0),
                    _ => places.forgotten(ino),
                }
            }
            let [by_id, by_place] = places.counts();
            prop_assert!(by_place <= by_id, "{} places of {} directories", by_place, by_id);
            (0..6).for_each(|n| places.forgotten(Ino(10 + n)));
            prop_assert_eq!(places.counts(), [0, 0]);
        }
    }
}
