//! Which number of this site each directory has that is shown: it belongs to what is shown under a name, and not to one object. Owns the
//! rule that says which of several keeps it. Sets no row.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::FileId;
use atoll_core::Ino;
use atoll_shown::{DirGroup, Objects};

use super::Mint;
use super::affected::{Affected, groups};
use crate::held::{HeldObjects, SiteRows};

/// See the module.
pub(super) struct Numbers<'a> {
    rows: &'a SiteRows<'a>,
    /// The directories that may be shown elsewhere or with others than before, as they are shown now: by the first of each group.
    pub(super) groups: BTreeMap<FileId, DirGroup>,
    by_first: BTreeMap<FileId, Ino>,
    /// Numbers that are new.
    pub(super) new: BTreeSet<Ino>,
    /// Numbers that nothing has any more.
    pub(super) gone: BTreeSet<Ino>,
}

impl<'a> Numbers<'a> {
    /// First what is shown under a name keeps the number that it had there. What is left then gets the number of the first of its
    /// directories, or of another one, if that is free; or a new one.
    pub(super) fn new(
        rows: &'a SiteRows<'a>,
        before: &HeldObjects<'_>,
        after: &HeldObjects<'_>,
        affected: &Affected,
        mint: &mut Mint<'_>,
    ) -> Self {
        let groups_now = groups(after, &affected.dirs);
        let members_before = groups(before, &affected.dirs);
        let members_before = members_before.values().flat_map(|group| group.members());
        let had: BTreeSet<Ino> = members_before.filter_map(|dir| rows.dir(*dir)?.number).collect();
        let mut numbers = Self {
            rows,
            groups: BTreeMap::new(),
            by_first: BTreeMap::new(),
            new: BTreeSet::new(),
            gone: BTreeSet::new(),
        };
        let mut taken = BTreeSet::new();
        for (first, group) in &groups_now {
            let free: Vec<Ino> = numbers.had(group).filter(|number| !taken.contains(number)).collect();
            let stays = if *first == FileId::ROOT {
                Some(Ino::ROOT)
            } else {
                numbers.at_name(after, *first).into_iter().find(|number| free.contains(number))
            };
            if let Some(number) = stays {
                taken.insert(number);
                numbers.by_first.insert(*first, number);
            }
        }
        for (first, group) in &groups_now {
            if numbers.by_first.contains_key(first) {
                continue;
            }
            let free = numbers.had(group).find(|number| !taken.contains(number));
            let number = free.unwrap_or_else(|| {
                let number = mint.next();
                numbers.new.insert(number);
                number
            });
            taken.insert(number);
            numbers.by_first.insert(*first, number);
        }
        numbers.groups = groups_now;
        numbers.gone = had.difference(&taken).copied().collect();
        numbers
    }

    /// The numbers that members of a group had before, in the order of their births.
    fn had(&self, group: &DirGroup) -> impl Iterator<Item = Ino> {
        group.members().iter().filter_map(|dir| self.rows.dir(*dir)?.number)
    }

    /// What rows have under the name at which a directory is shown now.
    fn at_name(&self, after: &HeldObjects<'_>, first: FileId) -> Vec<Ino> {
        let Some((parent, name)) = after.place(first) else { return Vec::new() };
        let Some(above) = DirGroup::of(after, parent) else { return Vec::new() };
        self.had(&above).filter_map(|dir| Some(self.rows.entry(dir, &name)?.ino)).collect()
    }

    /// The number of directories that are shown as one.
    pub(super) fn of(&self, group: &DirGroup) -> Option<Ino> {
        let first = group.first();
        self.by_first.get(&first).copied().or_else(|| self.rows.dir(first)?.number)
    }
}
