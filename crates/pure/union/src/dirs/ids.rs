//! The ids of files and directories. An id is made of the native number where it can be; the others are kept as long as the process
//! lives, so that what a frontend forgets has the same one when it is found again.

use atoll_core::planted::{Bug, planted};
use atoll_core::{IdMap, Ino};

use bytes::Bytes;

use super::{Home, Known, ino_of};
use crate::native::{NativeId, Tag};

/// Most ids that are kept of objects that no frontend knows. Past that they are forgotten, and such an object may get another one.
pub(crate) const IDS_KEPT_MAX: usize = 65_536;

/// Most moved files whose old handles still name them. Past that the oldest are `ESTALE`.
pub(crate) const MOVED_HANDLES_MAX: usize = 4_096;

/// Ids that are not made of the native numbers of their objects.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// By where the object is.
    kept: IdMap<(Tag, u64), (Ino, NativeId)>,
    /// Where the object of such an id is.
    places: IdMap<Ino, (Tag, u64)>,
    /// How many stayed when some were forgotten last.
    stayed: usize,
    /// Ids that were given in place of the usual one so far.
    substitutes: u64,
}

impl Ids {
    fn remove(&mut self, place: (Tag, u64)) {
        if let Some((ino, _)) = self.kept.remove(&place) {
            self.places.remove(&ino);
        }
    }

    fn insert(&mut self, (tag, id): (Tag, NativeId), ino: Ino) {
        let place = (tag, id.ino);
        self.remove(place);
        if let Some(before) = self.places.insert(ino, place) {
            self.kept.remove(&before);
        }
        self.kept.insert(place, (ino, id));
    }

    /// Forgets those that a member's objects have.
    pub(super) fn member_left(&mut self, tag: Tag) {
        self.kept.retain(|(of, _), _| *of != tag);
        self.places.retain(|_, (of, _)| *of != tag);
    }
}

impl Known {
    /// The id of a file in a member.
    pub fn file_ino(&self, tag: Tag, native: u64) -> Ino {
        let ids = &self.ids.kept;
        let kept = if ids.is_empty() { None } else { ids.get(&(tag, native)) };
        kept.map_or_else(|| ino_of(tag, native), |(ino, _)| *ino)
    }

    /// The id by which a frontend is to know a file. As long as one knows another object that had this number before, it is another
    /// one than is made of the number.
    pub(crate) fn id_for(&mut self, tag: Tag, id: NativeId) -> Ino {
        let usual = self.usual(tag, id);
        let file = self.files.get(&usual);
        let is_other = file.is_some_and(|file| (file.tag, file.id) != (tag, id));
        let is_taken = is_other || self.dirs.contains_key(&usual) || self.is_kept_elsewhere(usual, tag, id);
        if is_taken && !planted(Bug::InoReused) { self.substitute(tag, id) } else { usual }
    }

    /// The id of a directory with this anchor that was not known. Another directory may have its number, because the anchor was part
    /// of that before: it keeps the id as long as a frontend knows it.
    pub(crate) fn id_for_dir(&mut self, tag: Tag, id: NativeId) -> Ino {
        let usual = self.usual(tag, id);
        if self.dirs.get(&usual).is_some_and(|other| other.told.is_nobody()) {
            self.forget_dir(usual);
        }
        let is_taken = self.dirs.contains_key(&usual) || self.files.contains_key(&usual);
        if is_taken || self.is_kept_elsewhere(usual, tag, id) { self.substitute(tag, id) } else { usual }
    }

    /// The id that an object had before, or that is made of its number. What had the number before it has gone.
    fn usual(&mut self, tag: Tag, id: NativeId) -> Ino {
        match self.ids.kept.get(&(tag, id.ino)) {
            Some((ino, of)) if *of == id => *ino,
            Some(_) => {
                self.ids.remove((tag, id.ino));
                ino_of(tag, id.ino)
            }
            None => ino_of(tag, id.ino),
        }
    }

    fn is_kept_elsewhere(&self, ino: Ino, tag: Tag, id: NativeId) -> bool {
        self.ids.places.get(&ino).is_some_and(|place| *place != (tag, id.ino))
    }

    /// An id that nothing has, for this object.
    fn substitute(&mut self, tag: Tag, id: NativeId) -> Ino {
        let ino = loop {
            self.ids.substitutes += 1;
            let ino = ino_of(tag, u64::MAX - self.ids.substitutes);
            let is_taken = self.ids.places.contains_key(&ino)
                || self.files.contains_key(&ino)
                || self.dirs.contains_key(&ino);
            if !is_taken {
                break ino;
            }
        };
        self.keep_id(tag, id, ino);
        ino
    }

    /// An object has this id from now on, also when no frontend knows it.
    pub(super) fn keep_id(&mut self, tag: Tag, id: NativeId, ino: Ino) {
        if self.ids.kept.len() >= IDS_KEPT_MAX.max(2 * self.ids.stayed) {
            let (files, dirs) = (&self.files, &self.dirs);
            let is_known = |ino: &Ino| files.contains_key(ino) || dirs.contains_key(ino);
            self.ids.kept.retain(|_, (ino, _)| is_known(ino));
            self.ids.places.retain(|ino, _| is_known(ino));
            self.ids.stayed = self.ids.kept.len();
        }
        self.ids.insert((tag, id), ino);
    }

    /// A directory is not known any more. When it is found again its oldest home is its anchor, which may be another one than now.
    pub(super) fn keep_id_of_dir(&mut self, ino: Ino, homes: &[Home]) {
        let anchor = homes.iter().min_by_key(|home| (home.id.btime, home.tag));
        let Some(anchor) = anchor else { return };
        if self.file_ino(anchor.tag, anchor.id.ino) != ino {
            self.keep_id(anchor.tag, anchor.id, ino);
        }
    }

    /// A file has another handle from now on, in another member.
    pub(crate) fn handle_moved(&mut self, old: (Tag, Bytes), new: (Tag, Bytes)) {
        if self.moved_handles.len() >= MOVED_HANDLES_MAX {
            self.moved_handles.pop_front();
        }
        self.moved_handles.push_back([old, new]);
    }

    /// The handle of a file that had this one before it was moved to another member.
    pub fn moved_handle(&self, tag: Tag, handle: &Bytes) -> Option<(Tag, Bytes)> {
        let moved = self.moved_handles.iter().rev();
        moved.into_iter().find(|[old, _]| (old.0, &old.1) == (tag, handle)).map(|[_, new]| new.clone())
    }

    /// An object has gone: the next one of its number has nothing to do with it.
    pub(super) fn lose_ids(&mut self, tag: Tag, id: NativeId) {
        if self.ids.kept.get(&(tag, id.ino)).is_some_and(|(_, of)| *of == id) {
            self.ids.remove((tag, id.ino));
        }
    }
}
