//! Who keeps a name, and under which names the others are shown. Owns the order of claims to a name, and which files are
//! shown as one. Changes nothing.

use std::collections::BTreeSet;

use atoll_causal::{EntryKey, FileBirth, FileId, HybridStamp};
use atoll_core::Name;

use crate::group::DirGroup;
use crate::life::{FilePlace, places};
use crate::names::{Mark, beside};
use crate::objects::Objects;
use crate::versions::{is_in_conflict, live_versions};

/// What users see under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownEntry {
    /// The name that they see.
    pub name: Name,
    /// The name that the object itself has.
    pub own: Name,
    /// What it is.
    pub object: ShownObject,
}

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownObject {
    /// Directories that are shown as one.
    Dir(DirGroup),
    /// Files of equal type, bytes and mode, that are shown as one: the first. At least one.
    File(Vec<FilePlace>),
    /// Something that is not held. An entry tells of it.
    Away {
        /// What.
        child: FileId,
        /// Whether it is a directory.
        is_dir: bool,
    },
}

/// How strong a claim to a name is: a directory, then what has the name by a link, then what is rescued there. Of equal ones the
/// later one is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    rank: ClaimRank,
    stamp: HybridStamp,
    id: FileId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimRank {
    Rescued,
    Linked,
    Dir,
}

/// Everything that is shown in directories that are shown as one.
pub fn listing(objects: &impl Objects, group: &DirGroup) -> Vec<ShownEntry> {
    let mut names: BTreeSet<Name> = BTreeSet::new();
    for &member in group.members() {
        names.extend(objects.near(member, None).into_iter().map(|key| key.name));
    }
    names.iter().flat_map(|own| named(objects, group, own)).collect()
}

/// Everything that has one name, with the names under which it is shown. The first is shown under the name itself.
pub fn named(objects: &impl Objects, group: &DirGroup, own: &Name) -> Vec<ShownEntry> {
    let mut taken: BTreeSet<Name> = BTreeSet::new();
    let mut shown = Vec::new();
    for (nth, (claim, object)) in claims(objects, group, own).into_iter().enumerate() {
        let name = if nth == 0 {
            own.clone()
        } else {
            let link = if let ShownObject::File(files) = &object { files[0].link } else { None };
            let site = objects.site(claim.stamp.writer);
            let mark = Mark { site: &site, stamp: claim.stamp, file: claim.id, link };
            let is_free = |name: &Name| !taken.contains(name) && !is_claimed(objects, group, name);
            beside(own, mark).find(is_free).expect("names beside a name do not end")
        };
        taken.insert(name.clone());
        shown.push(ShownEntry { name, own: own.clone(), object });
    }
    shown
}

/// Whether something has this name of its own.
pub(crate) fn is_claimed(objects: &impl Objects, group: &DirGroup, own: &Name) -> bool {
    !claims(objects, group, own).is_empty()
}

/// What has this name of its own, the strongest claim first.
fn claims(objects: &impl Objects, group: &DirGroup, own: &Name) -> Vec<(Claim, ShownObject)> {
    let mut found: Vec<(Claim, ShownObject)> = Vec::new();
    let mut files: Vec<(Claim, FilePlace)> = Vec::new();
    let dirs = group.below(objects, own);
    for &member in group.members() {
        for key in objects.near(member, Some(own)) {
            if let Some(state) = objects.file(key.child) {
                let is_here = |place: &FilePlace| (place.dir, &place.name) == (member, own);
                for place in places(key.child, &state).into_iter().filter(is_here) {
                    let rank = if place.link.is_some() { ClaimRank::Linked } else { ClaimRank::Rescued };
                    files.push((Claim { rank, stamp: place.stamp, id: key.child }, place));
                }
            } else if objects.dir(key.child).is_none() {
                found.extend(away(objects, member, &key, dirs.is_some()));
            }
        }
    }
    if let Some(dirs) = dirs {
        let claim = Claim { rank: ClaimRank::Dir, stamp: HybridStamp::MAX, id: dirs.first() };
        found.push((claim, ShownObject::Dir(dirs)));
    }
    // Of links of one file to one name, which two sites made, the lower one is shown.
    files.sort_by(|(a, x), (b, y)| b.cmp(a).then(x.link.cmp(&y.link)));
    let mut alike: Vec<(Claim, Vec<FilePlace>)> = Vec::new();
    for (claim, place) in files {
        match alike.iter_mut().find(|(_, files)| are_alike(objects, files[0].file, place.file)) {
            Some((_, files)) => files.push(place),
            None => alike.push((claim, vec![place])),
        }
    }
    found.extend(alike.into_iter().map(|(claim, files)| (claim, ShownObject::File(files))));
    found.sort_by_key(|(claim, _)| std::cmp::Reverse(*claim));
    found
}

/// What an entry tells of something that is not held. A directory joins those of its name when it is.
fn away(objects: &impl Objects, dir: FileId, key: &EntryKey, has_dirs: bool) -> Option<(Claim, ShownObject)> {
    let entry = objects.entry(dir, key)?;
    let (_, word) = entry.highest()?;
    let rank = if word.is_dir { ClaimRank::Dir } else { ClaimRank::Linked };
    let claim = Claim { rank, stamp: word.stamp, id: key.child };
    let object = ShownObject::Away { child: key.child, is_dir: word.is_dir };
    (!word.is_dir || !has_dirs).then_some((claim, object))
}

/// Whether two files are shown as one if they have one name: they are one, or have equal type, bytes and mode. A file in conflict
/// with itself is like no other.
fn are_alike(objects: &impl Objects, one: FileId, other: FileId) -> bool {
    if one == other {
        return true;
    }
    let (Some(one), Some(other)) = (objects.file(one), objects.file(other)) else { return false };
    let is_same_kind =
        |a: &FileBirth, b: &FileBirth| (a.kind, a.rdev, &a.target) == (b.kind, b.rdev, &b.target);
    if is_in_conflict(&one) || is_in_conflict(&other) {
        return false;
    }
    match (live_versions(&one).first(), live_versions(&other).first()) {
        (Some((_, a)), Some((_, b))) => {
            a.is_equal(b)
                && one.attrs.mode.value == other.attrs.mode.value
                && is_same_kind(&one.birth, &other.birth)
        }
        _ => false,
    }
}
