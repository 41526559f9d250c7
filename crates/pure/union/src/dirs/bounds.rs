//! How many bytes of names are kept, of one directory and of all. Never forgets the names that were read last.

use atoll_core::Ino;

use super::{Gathered, Known, Part, Tick, UnionDir};
use crate::native::Tag;

/// Most bytes of names of all directories, about. Past that the names that were read longest ago are forgotten.
pub const NAMES_BYTES_MAX: usize = 256 << 20;
/// Most bytes of names of one directory, about. Past that one section of them is kept at a time.
pub const DIR_NAMES_BYTES_MAX: usize = NAMES_BYTES_MAX / 2;

/// How many bytes of names are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamesMax {
    /// Of one directory.
    pub of_dir: usize,
    /// Of all.
    pub of_all: usize,
}

impl Default for NamesMax {
    fn default() -> Self {
        Self { of_dir: DIR_NAMES_BYTES_MAX, of_all: NAMES_BYTES_MAX }
    }
}

impl UnionDir {
    /// Nothing that is known of its names counts any more, and they are not kept.
    fn clear_names(&mut self, after: u64) {
        self.names.restart(after);
        self.unsure.clear();
        self.changes += 1;
        self.questions.all_changed(self.changes);
        self.homes.iter_mut().for_each(|home| home.part = Part::Unsure);
    }
}

impl Known {
    /// Sets other bounds, for tests.
    pub fn bound_names(&mut self, max: NamesMax) {
        self.names_max = max;
    }

    /// The memory that names take, about.
    pub const fn names_bytes(&self) -> usize {
        self.names_bytes
    }

    /// How many bytes of a directory's names in one home are kept.
    pub(crate) fn home_bytes_max(&self, ino: Ino) -> usize {
        self.names_max.of_dir / self.dir(ino).map_or(1, |dir| dir.homes.len())
    }

    /// Changes names of a directory.
    pub(super) fn change_names<T>(&mut self, ino: Ino, change: impl FnOnce(&mut UnionDir) -> T) -> Option<T> {
        let dir = self.dirs.get_mut(&ino)?;
        let before = dir.names.bytes();
        let told = change(dir);
        if dir.names.bytes() > self.names_max.of_dir {
            dir.names.narrow(self.names_max.of_dir / 2);
        }
        self.names_bytes = self.names_bytes - before + dir.names.bytes();
        if self.names_bytes > self.names_max.of_all {
            self.forget_names(ino);
        }
        Some(told)
    }

    /// All names in a home were read, or those of the section that is kept.
    pub(crate) fn read(&mut self, ino: Ino, tag: Tag, read: Gathered, part: Part, now: Tick) {
        self.change_names(ino, |dir| {
            dir.changes += 1;
            let told = dir.changes;
            dir.names.replace(tag, read);
            dir.unsure.retain(|(of, _)| *of != tag);
            (dir.asked, dir.used) = (0, now);
            if let Some(home) = dir.home_mut(tag) {
                (home.part, home.read_at) = (part, told);
            }
        });
    }

    /// This operation reads the section of a directory's names behind a cookie.
    pub(crate) fn restart_names(&mut self, ino: Ino, after: u64, by: Option<u64>) {
        self.change_names(ino, |dir| {
            dir.clear_names(after);
            dir.section_by = by;
        });
    }

    /// Makes room, but not of this directory.
    fn forget_names(&mut self, but: Ino) {
        let others = self.dirs.iter().filter(|(ino, dir)| **ino != but && !dir.names.is_empty());
        let mut others: Vec<(Tick, Ino)> = others.map(|(ino, dir)| (dir.used, *ino)).collect();
        others.sort_unstable();
        let enough = self.names_max.of_all / 4 * 3;
        for (_, ino) in others {
            if self.names_bytes <= enough {
                return;
            }
            if let Some(dir) = self.dirs.get_mut(&ino) {
                self.names_bytes -= dir.names.bytes();
                dir.clear_names(0);
            }
        }
    }
}
