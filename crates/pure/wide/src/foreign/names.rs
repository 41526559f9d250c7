//! What the affected names show, before and after: which entries there were, and which there are to be. Reads no entry.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::FileId;
use atoll_core::{Ino, Name};
use atoll_shown::{DirGroup, ShownObject, named};

use super::affected::Affected;
use crate::held::HeldObjects;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// The directories of which this is the first.
    Dir(FileId),
    /// A file.
    File(FileId),
}

/// What affected names show.
#[derive(Debug, Default)]
pub(super) struct ShownNames {
    /// By the number of the directory and the name that users see.
    pub(super) entries: BTreeMap<(Ino, Name), Leads>,
    /// All files that have one of these names, those too that are shown as one with another.
    pub(super) files: BTreeSet<FileId>,
    /// Those of them that are shown as one, the first of them first.
    pub(super) together: Vec<Vec<FileId>>,
}

impl ShownNames {
    /// By these states. `number`: which number directories have that are shown as one; none if a row is missing for that.
    pub(super) fn of(
        held: &HeldObjects<'_>,
        affected: &Affected,
        number: impl Fn(&DirGroup) -> Option<Ino>,
    ) -> Self {
        let mut shown = Self::default();
        let mut done = BTreeSet::new();
        for (dir, own) in &affected.names {
            let Some(group) = DirGroup::of(held, *dir) else { continue };
            if !done.insert((group.first(), own)) {
                continue;
            }
            let Some(number) = number(&group) else { continue };
            for entry in named(held, &group, own) {
                let leads = match entry.object {
                    ShownObject::Dir(below) => Leads::Dir(below.first()),
                    ShownObject::File(files) => {
                        shown.files.extend(files.iter().map(|place| place.file));
                        if files.len() > 1 {
                            shown.together.push(files.iter().map(|place| place.file).collect());
                        }
                        Leads::File(files[0].file)
                    }
                    // Sites hold everything: what has not come is not shown.
                    ShownObject::Away { .. } => continue,
                };
                shown.entries.entry((number, entry.name)).or_insert(leads);
            }
        }
        shown
    }
}
