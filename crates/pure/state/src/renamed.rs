//! Which directories were renamed, so that their keys do not follow from their paths. Always in memory, and
//! bounded. It serves only hints to clients, never an answer about a name.

use std::collections::BTreeSet;
use std::ops::Bound;

use atoll_core::Ino;

use crate::key::RowKey;

/// Renamed directories that are remembered; those with the lowest ids are forgotten first.
pub const RENAMED_MAX: usize = 16_384;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Renamed {
    inos: BTreeSet<Ino>,
    dirty: BTreeSet<Ino>,
}

impl Renamed {
    pub(crate) fn insert(&mut self, ino: Ino) {
        if self.inos.insert(ino) {
            self.dirty.insert(ino);
        }
        if self.inos.len() > RENAMED_MAX {
            self.dirty.extend(self.inos.pop_first());
        }
    }

    pub(crate) fn remove(&mut self, ino: Ino) {
        if self.inos.remove(&ino) {
            self.dirty.insert(ino);
        }
    }

    /// A row of the snapshot.
    pub(crate) fn open(&mut self, ino: Ino) {
        self.inos.insert(ino);
    }

    pub(crate) fn after(&self, after: Ino) -> impl Iterator<Item = Ino> + '_ {
        self.inos.range((Bound::Excluded(after), Bound::Unbounded)).copied()
    }

    /// Rows that changed since the last checkpoint.
    pub(crate) fn freeze(&mut self, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for ino in std::mem::take(&mut self.dirty) {
            rows.push((RowKey::Renamed(ino).to_bytes(), self.inos.contains(&ino).then(Vec::new)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_remembered_than_may_be() {
        let mut renamed = Renamed::default();
        (0..=RENAMED_MAX as u64).for_each(|n| renamed.insert(Ino(n + 2)));
        assert_eq!(renamed.after(Ino(0)).count(), RENAMED_MAX);
        assert_eq!(renamed.after(Ino(0)).next(), Some(Ino(3)));
        renamed.remove(Ino(3));
        let mut rows = Vec::new();
        renamed.freeze(&mut rows);
        assert_eq!(rows.iter().filter(|(_, row)| row.is_some()).count(), RENAMED_MAX - 1);
        renamed.freeze(&mut rows);
        assert_eq!(rows.len(), RENAMED_MAX + 1, "nothing has changed since");
    }
}
