//! The side rows of what is near a name and no entry leads to. Owns when an object needs one: if it is not dead, and the entry of its own
//! name leads to something else.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::FileId;
use atoll_core::Name;
use atoll_shown::{DirGroup, Objects};

use super::objects::Writing;
use crate::rows::{NEAR, NearRow, near_key, remove, set};

impl Writing<'_> {
    /// The rows of all affected names.
    pub(super) fn near(&mut self) {
        let mut keys: BTreeMap<u128, BTreeSet<FileId>> = BTreeMap::new();
        for (dir, name) in &self.affected.names {
            let near = self.after.near(*dir, Some(name)).into_iter().map(|near| near.child);
            keys.entry(near_key(*dir, name)).or_default().extend(near);
        }
        for (key, mut ids) in keys {
            let old = self.rows.near_row(key);
            // Another name may have the same key.
            ids.extend(&old);
            ids.retain(|id| self.needs_row(*id, key));
            let ids: Vec<FileId> = ids.into_iter().collect();
            if ids.is_empty() && !old.is_empty() {
                self.draft.sides.push(remove(NEAR, key));
            } else if ids != old {
                self.draft.sides.push(set(NEAR, key, &NearRow::Near { ids }));
            }
        }
    }

    fn needs_row(&self, id: FileId, key: u128) -> bool {
        let names = self.names_of(id).into_iter().filter(|(dir, name)| near_key(*dir, name) == key);
        names.into_iter().any(|(dir, name)| !self.is_entered(id, dir, &name))
    }

    /// Whether the entry of a name leads to an object.
    fn is_entered(&self, id: FileId, dir: FileId, name: &Name) -> bool {
        let above = DirGroup::of(self.after, dir).and_then(|group| self.numbers.of(&group));
        let Some(above) = above else { return false };
        let entry = self.draft.entry(above, name, self.numbers.new.contains(&above));
        let Some(entry) = entry else { return false };
        if self.after.dir(id).is_none() {
            return self.file_number(id) == Some(entry.ino);
        }
        let group = DirGroup::of(self.after, id).filter(|group| group.first() == id);
        group.and_then(|group| self.numbers.of(&group)) == Some(entry.ino)
    }
}
