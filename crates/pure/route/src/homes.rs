//! The files that the frontend knows and that are not homed where their ids were minted.

use atoll_core::{IdMap, Ino, IslandId};

/// Where files are homed, as far as that does not follow from their ids. As many as the frontend holds.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    moved: IdMap<Ino, IslandId>,
}

impl Homes {
    /// The island to ask for a file.
    pub(crate) fn of(&self, ino: Ino) -> IslandId {
        match self.moved.is_empty() {
            true => ino.minted_by(),
            false => self.moved.get(&ino).copied().unwrap_or_else(|| ino.minted_by()),
        }
    }

    /// The home of a file has answered, or was told.
    pub(crate) fn learn(&mut self, ino: Ino, home: IslandId) {
        if home != ino.minted_by() {
            self.moved.insert(ino, home);
        } else if !self.moved.is_empty() {
            self.moved.remove(&ino);
        }
    }

    /// The frontend no longer knows it.
    pub(crate) fn forget(&mut self, ino: Ino) {
        if !self.moved.is_empty() {
            self.moved.remove(&ino);
        }
    }
}
