//! The tree of directories at a site: of each its place as of the cut, the places that moves gave it since, and who
//! names it.
//!
//! Owns the places, and what a move would do to them. Which moves there are, and in which order, it is told.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{FileId, HybridStamp};
use atoll_core::Name;

use crate::record::{MovedDir, moved};

atoll_core::wire_struct! {
    /// Where a directory is. A rename in place with a later stamp gives it another name there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SpinePlace {
        /// The directory in which it is.
        pub parent: FileId,
        /// The name that its birth or its last move gave it.
        pub name: Name,
        /// The birth or move by which it came there.
        pub since: HybridStamp,
    }
}

/// A directory that is known here.
#[derive(Debug, Clone)]
pub(crate) struct KnownPlaces {
    /// Whether the site holds it.
    pub(crate) held: bool,
    /// The base, which is its place as of the cut or of its birth, and behind it the places by moves that had an
    /// effect. Sorted by stamp.
    pub(crate) places: Vec<SpinePlace>,
    /// All moves of it in the log with their parents, also those without effect. Sorted by stamp.
    pub(crate) moves: Vec<(HybridStamp, FileId)>,
    /// How often it is the parent in a base or in a move of the log.
    pub(crate) named: u32,
}

impl KnownPlaces {
    /// The place that it has.
    pub(crate) fn place(&self) -> &SpinePlace {
        self.places.last().expect("a directory has a base at least")
    }

    /// Every directory in which it is, was since the cut, or might be by a move that has no effect as far as is known
    /// here.
    pub(crate) fn parents(&self) -> impl Iterator<Item = FileId> {
        std::iter::once(self.places[0].parent).chain(self.moves.iter().map(|(_, parent)| *parent))
    }
}

/// All directories that are known at a site. With each one all that are or might be above it are known; the root is
/// not among them, since it has no place.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpineTree {
    dirs: BTreeMap<FileId, KnownPlaces>,
    /// Directories that nothing may need any more. The next fold looks at them.
    loose: BTreeSet<FileId>,
}

/// Why directories cannot move together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// The moved directory that would be below itself.
    pub(crate) dir: FileId,
    /// Directories between it and itself that do not move.
    pub(crate) between: Vec<FileId>,
}

impl SpineTree {
    pub(crate) fn get(&self, dir: FileId) -> Option<&KnownPlaces> {
        self.dirs.get(&dir)
    }

    pub(crate) fn get_mut(&mut self, dir: FileId) -> &mut KnownPlaces {
        self.dirs.get_mut(&dir).expect("a directory that is named is known")
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (FileId, &KnownPlaces)> {
        self.dirs.iter().map(|(dir, known)| (*dir, known))
    }

    /// Whether it is known, or the root.
    pub(crate) fn has(&self, dir: FileId) -> bool {
        dir == FileId::ROOT || self.dirs.contains_key(&dir)
    }

    /// Directories become known. Of each the parent is known, or among them.
    pub(crate) fn add(&mut self, dirs: Vec<(FileId, SpinePlace)>, held: bool) {
        let parents: Vec<FileId> = dirs.iter().map(|(_, base)| base.parent).collect();
        for (dir, base) in dirs {
            let known = KnownPlaces { held, places: vec![base], moves: Vec::new(), named: 0 };
            assert!(self.dirs.insert(dir, known).is_none(), "{dir:?} is known already");
            if !held {
                self.loose.insert(dir);
            }
        }
        parents.into_iter().for_each(|parent| self.name(parent));
    }

    /// Somebody has `parent` as parent in a base or in a move of the log.
    pub(crate) fn name(&mut self, parent: FileId) {
        if parent != FileId::ROOT {
            self.get_mut(parent).named += 1;
        }
    }

    /// Somebody has it as parent no more.
    pub(crate) fn unname(&mut self, parent: FileId) {
        if parent != FileId::ROOT {
            self.get_mut(parent).named -= 1;
            self.loose.insert(parent);
        }
    }

    /// Something for which the directory was needed has gone.
    pub(crate) fn loosen(&mut self, dir: FileId) {
        self.loose.insert(dir);
    }

    /// Forgets the directories that nothing needs.
    pub(crate) fn drop_loose(&mut self, is_kept: impl Fn(FileId) -> bool) {
        while let Some(dir) = self.loose.pop_first() {
            let Some(known) = self.dirs.get(&dir) else { continue };
            if known.named == 0 && !known.held && known.moves.is_empty() && !is_kept(dir) {
                let base = self.dirs.remove(&dir).map(|known| known.places.into_iter().next());
                base.flatten().into_iter().for_each(|base| self.unname(base.parent));
            }
        }
    }

    /// The directory, and those above it, up to the last one below the root.
    pub(crate) fn up(&self, dir: FileId) -> impl Iterator<Item = (FileId, &SpinePlace)> {
        let mut at = dir;
        let mut left = self.dirs.len();
        std::iter::from_fn(move || {
            if at == FileId::ROOT {
                return None;
            }
            assert!(left > 0, "a circle is above {dir:?}");
            left -= 1;
            let place = self.dirs.get(&at).expect("what is above a known directory is known").place();
            let here = std::mem::replace(&mut at, place.parent);
            Some((here, place))
        })
    }

    /// Whether some directory would be below itself if all of `dirs`, which is sorted, had their new places.
    pub(crate) fn circle(&self, dirs: &[MovedDir]) -> Option<Circle> {
        // There is no circle now, so one would go through a directory that moves.
        dirs.iter().find_map(|first| self.circle_above(first, dirs))
    }

    fn circle_above(&self, first: &MovedDir, dirs: &[MovedDir]) -> Option<Circle> {
        let mut passed = Vec::new();
        let mut between = Vec::new();
        let mut at = first.parent;
        loop {
            let does_not_move = |(dir, _): &(FileId, &SpinePlace)| moved(dirs, *dir).is_none();
            for (dir, place) in self.up(at).take_while(does_not_move) {
                between.push(dir);
                at = place.parent;
            }
            // The root does not move either: then there is no circle.
            let next = moved(dirs, at)?;
            if next.dir == first.dir {
                return Some(Circle { dir: next.dir, between });
            }
            // A circle that is only above it is found above another one.
            if passed.contains(&next.dir) {
                return None;
            }
            passed.push(next.dir);
            at = next.parent;
        }
    }
}
