//! Differences between a child's own word and the entry of its directory, and who may mend them. Mends nothing itself.

use atoll_causal::{EntryKey, EntryWord, FileId};
use atoll_core::planted::{Bug, planted};

use crate::life::{Stands, is_unseen, places, standing};
use crate::objects::Objects;

/// What is due for one entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuePatch {
    /// It is to be added, or added anew.
    Add(EntryWord),
    /// It is to be removed.
    Remove,
    /// Somebody who changed the entry knew more of the child than this site: it asks for the child, and looks again.
    Ask,
}

/// What is due for one entry; none if it says what the child says, or if the child or the directory is not held.
///
/// If a removal of the directory has seen an entry whose child stands there all the same, the entry is added anew, so that the
/// directory is shown at all sites.
pub fn patch(objects: &impl Objects, dir: FileId, key: &EntryKey) -> Option<DuePatch> {
    let head = objects.dir(dir)?;
    let stands = standing(objects, dir, key);
    let word = match stands {
        Stands::Away => return None,
        Stands::Nowhere => None,
        Stands::Linked(_) | Stands::Rescued => {
            let state = objects.file(key.child)?;
            let here = places(key.child, &state).into_iter();
            let here = here.filter(|place| (place.dir, &place.name) == (dir, &key.name));
            here.map(|place| EntryWord { stamp: place.stamp, is_dir: false }).max()
        }
        Stands::Dir | Stands::RevivedDir => {
            let child = objects.dir(key.child)?;
            Some(EntryWord { stamp: child.name.stamp, is_dir: true })
        }
    };
    let due = match (word, objects.entry(dir, key)) {
        (None, None) => return None,
        (None, Some(_)) => DuePatch::Remove,
        (Some(word), None) => DuePatch::Add(word),
        (Some(word), Some(entry)) => {
            let is_buried = head.is_removed() && !is_unseen(&head.buried, &entry);
            if !is_buried || planted(Bug::OldStaysDead) {
                return None;
            }
            DuePatch::Add(word)
        }
    };
    let known = match (objects.file(key.child), objects.dir(key.child)) {
        (Some(file), _) => file.context.clone(),
        (None, Some(dir)) => dir.context.clone(),
        (None, None) => return None,
    };
    let is_behind = objects.based(dir, key.child).is_some_and(|based| !known.includes(&based));
    Some(if is_behind { DuePatch::Ask } else { due })
}
