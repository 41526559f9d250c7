//! Where the kernel has each directory that it knows: the parent and name of the last answer about it, and
//! its attributes if no other mount can have changed them. Never asks a volume, and never decides what to do
//! about a directory that is elsewhere.
//!
//! It may be wrong for a moment, because answers overtake each other on their way to the kernel. A user of it
//! must do nothing that is wrong then. Bounded by the directories that the kernel knows.

use atoll_core::{Ino, Name};
use atoll_posix::{Attr, Kind, NamedObject};
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
    attr: Known,
}

/// The time between two recalls, as the number of recalls before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) u64);

/// Knowledge about a directory's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// None: its owner must be asked.
    No,
    /// Its owner's answer in a period without other mounts.
    In(Period, Attr),
    /// The directory was removed. Other mounts may have changed it while it had a name.
    Removed,
    /// The directory was removed while no other mount was there. So only this mount can have it open and
    /// change it.
    RemovedAlone(Attr),
}

impl Known {
    /// The owner's answer; `alone` if no other mount is there. Answers overtake each other, but change times
    /// never go back.
    fn told(&mut self, attr: &Attr, alone: Option<Period>) {
        *self = match (*self, alone) {
            (removed @ (Self::Removed | Self::RemovedAlone(_)), _) => removed,
            (_, None) => Self::No,
            (Self::In(before, newer), Some(now)) if before == now && newer.ctime > attr.ctime => return,
            (_, Some(now)) => Self::In(now, *attr),
        };
    }
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
    pub(crate) fn learn(&self, found: &NamedObject, place: &Place, alone: Option<Period>) -> Option<Place> {
        let ino = found.attr.ino;
        if ino == Ino::ROOT {
            return None;
        }
        match self.of_id(ino).entry(ino) {
            Entry::Occupied(mut had) => {
                let had = had.get_mut();
                if found.attr_current {
                    had.attr.told(&found.attr, alone);
                }
                match had {
                    had if had.place != *place => return Some(had.place.clone()),
                    had if !had.displaced => return None,
                    had => had.displaced = false,
                }
            }
            Entry::Vacant(free) => {
                let mut attr = Known::No;
                if found.attr_current {
                    attr.told(&found.attr, alone);
                }
                free.insert(Had { place: place.clone(), displaced: false, attr });
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

    /// The kernel is told of attributes, as the owner has them.
    pub(crate) fn saw(&self, attr: &Attr, alone: Option<Period>) {
        if attr.kind == Kind::Directory
            && let Some(had) = self.of_id(attr.ino).get_mut(&attr.ino)
        {
            had.attr.told(attr, alone);
        }
    }

    /// The place at which the kernel has a directory. None for the root, and for an id that is no directory.
    pub(crate) fn of(&self, ino: Ino) -> Option<Place> {
        self.of_id(ino).get(&ino).map(|had| had.place.clone())
    }

    /// A directory was removed; `alone` if no other mount is there.
    pub(crate) fn removed(&self, ino: Ino, alone: Option<Period>) {
        if let Some(had) = self.of_id(ino).get_mut(&ino) {
            had.attr = match had.attr {
                Known::In(period, attr) if alone == Some(period) => {
                    Known::RemovedAlone(Attr { nlink: 0, size: 0, ..attr })
                }
                Known::RemovedAlone(attr) => Known::RemovedAlone(attr),
                Known::No | Known::In(..) | Known::Removed => Known::Removed,
            };
        }
    }

    /// Whether a directory is known to have been removed.
    pub(crate) fn is_removed(&self, ino: Ino) -> bool {
        let known = self.of_id(ino).get(&ino).map(|had| had.attr);
        matches!(known, Some(Known::Removed | Known::RemovedAlone(_)))
    }

    /// The attributes of a directory that was removed. None if it was not, or if other mounts may know better.
    pub(crate) fn removed_attr(&self, ino: Ino) -> Option<Attr> {
        match self.of_id(ino).get(&ino)?.attr {
            Known::RemovedAlone(attr) => Some(attr),
            Known::No | Known::In(..) | Known::Removed => None,
        }
    }

    /// Changes the attributes of a directory that was removed and that only this mount has.
    pub(crate) fn change_removed(&self, attr: &Attr) {
        if let Some(Had { attr: Known::RemovedAlone(mine), .. }) = self.of_id(attr.ino).get_mut(&attr.ino) {
            *mine = *attr;
        }
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
        places.learn(&found(ino), place, None)
    }

    /// A period, and one after a recall.
    fn periods() -> [Option<Period>; 2] {
        [Some(Period(0)), Some(Period(1))]
    }

    #[test]
    fn a_directory_that_was_removed_while_no_other_mount_was_there_keeps_its_attributes_until_it_is_forgotten()
     {
        let (places, here, [alone, _]) = (Places::default(), place(Ino::ROOT, "a"), periods());
        places.learn(&found(A), &here, alone);
        places.saw(&Attr { mode: 0o700, ..dir(A) }, alone);
        places.saw(&Attr { kind: Kind::Regular, mode: 0o600, ..dir(A) }, alone);
        assert!(!places.is_removed(A) && places.removed_attr(A).is_none());
        places.removed(A, alone);
        places.removed(B, alone);
        let removed = Attr { mode: 0o700, nlink: 0, size: 0, ..dir(A) };
        assert_eq!(places.removed_attr(A), Some(removed));
        assert_eq!((places.removed_attr(B), places.of(A)), (None, Some(here)));
        // Another mount that comes now cannot open it; and what was asked before says nothing new.
        places.saw(&dir(A), None);
        places.removed(A, None);
        assert_eq!(places.removed_attr(A), Some(removed));
        places.change_removed(&Attr { mode: 0o711, ..removed });
        assert_eq!(places.removed_attr(A).unwrap().mode, 0o711);
        places.forgotten(A);
        assert_eq!((places.removed_attr(A), places.counts()), (None, [0, 0]));
    }

    #[test]
    fn what_another_mount_may_have_changed_is_not_known_of_a_removed_directory() {
        let (here, [before, now]) = (place(Ino::ROOT, "a"), periods());
        let stub = NamedObject { attr_current: false, ..found(A) };
        // Told in one period, removed in another.
        for (told, removed) in [(None, None), (None, now), (before, None), (before, now)] {
            let places = Places::default();
            places.learn(&found(A), &here, told);
            places.removed(A, removed);
            assert!(places.is_removed(A));
            places.change_removed(&dir(A));
            places.saw(&dir(A), now);
            assert_eq!(places.removed_attr(A), None, "{told:?}, {removed:?}");
        }
        // By its parent's owner, which may not know the last change.
        let places = Places::default();
        places.learn(&stub, &here, now);
        places.removed(A, now);
        assert_eq!(places.removed_attr(A), None);
        let places = Places::default();
        places.learn(&found(A), &here, now);
        places.learn(&NamedObject { attr: Attr { mode: 0o700, ..dir(A) }, ..stub }, &here, now);
        places.removed(A, now);
        assert_eq!(places.removed_attr(A).unwrap().mode, 0o755);
    }

    #[test]
    fn an_answer_that_was_overtaken_by_a_newer_one_changes_nothing() {
        let (places, here, [_, now]) = (Places::default(), place(Ino::ROOT, "a"), periods());
        let newer = Attr { mode: 0o700, ctime: Time { secs: 9, nanos: 0 }, ..dir(A) };
        places.learn(&NamedObject { attr: newer, ..found(A) }, &here, now);
        places.saw(&dir(A), now);
        places.removed(A, now);
        assert_eq!(places.removed_attr(A).unwrap().mode, 0o700);
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
