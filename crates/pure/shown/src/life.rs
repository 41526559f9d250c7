//! Life and death: at which places a file is shown, and whether a directory is. Owns the rule that a removal counts only for
//! what it has seen. Knows nothing of names that are taken.

use atoll_causal::{Context, Dot, DotFun, EntryKey, EntryWord, FileId, FileState, HybridStamp};
use atoll_core::Name;
use atoll_core::planted::{Bug, planted};

use crate::objects::Objects;

/// A place at which a file is shown, unless another file has the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace {
    /// The file.
    pub file: FileId,
    /// Its link. None if the file is rescued: it has no link any more, but a version that no removal had seen.
    pub link: Option<Dot>,
    /// The directory.
    pub dir: FileId,
    /// The name.
    pub name: Name,
    /// When the link came here, or when the version was made for which the file is rescued, and who did that.
    pub stamp: HybridStamp,
    /// The change of the directory that entered the link.
    pub entry: Option<Dot>,
}

/// The places at which a file is shown; none if it is dead.
pub fn places(file: FileId, state: &FileState) -> Vec<FilePlace> {
    let mut shown: Vec<FilePlace> = Vec::new();
    for (link, places) in state.links.iter() {
        let Some((_, place)) = places.highest() else { continue };
        shown.push(FilePlace {
            file,
            link: Some(*link),
            dir: place.dir,
            name: place.name.clone(),
            stamp: place.stamp,
            entry: Some(place.entry),
        });
    }
    if let (true, Some(grave)) = (shown.is_empty(), &state.grave) {
        let latest = state.unburied().max_by_key(|(dot, version)| (**version, *dot));
        shown.extend(latest.map(|(_, version)| FilePlace {
            file,
            link: None,
            dir: grave.dir,
            name: grave.name.clone(),
            stamp: version.stamp,
            entry: None,
        }));
    }
    shown
}

/// Whether a directory is shown where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Something keeps it that no removal had seen.
    Alive,
    /// It was removed, and has a child that the removal had not seen.
    Revived,
    /// It was removed, or is not held.
    Dead,
}

/// Whether a directory is shown where it is.
pub fn life(objects: &impl Objects, dir: FileId) -> Life {
    let Some(head) = objects.dir(dir) else { return Life::Dead };
    if !head.is_removed() || dir == FileId::ROOT {
        return Life::Alive;
    }
    let revives = |key: &EntryKey| {
        let entry = objects.entry(dir, key);
        let is_new = entry.is_some_and(|entry| is_unseen(&head.buried, &entry));
        match standing(objects, dir, key) {
            Stands::Nowhere => false,
            _ if planted(Bug::RevivedByAnyChild) => true,
            Stands::Linked(entries) => is_new || entries.iter().any(|dot| !has_seen(&head.buried, *dot)),
            Stands::Away | Stands::Dir => is_new,
            Stands::Rescued | Stands::RevivedDir => true,
        }
    };
    if objects.near(dir, None).iter().any(revives) { Life::Revived } else { Life::Dead }
}

/// How an object stands at a name of a directory.
pub(crate) enum Stands {
    /// It is not shown there.
    Nowhere,
    /// It is not held, and an entry says that it is there.
    Away,
    /// A file with links there, which were entered by these changes.
    Linked(Vec<Dot>),
    /// A file that has no link, and a version that no removal had seen.
    Rescued,
    /// A directory.
    Dir,
    /// A removed directory with a child that the removal had not seen.
    RevivedDir,
}

/// How an object stands at a name of a directory. What is held says so itself; for others the entry does.
pub(crate) fn standing(objects: &impl Objects, dir: FileId, key: &EntryKey) -> Stands {
    if let Some(state) = objects.file(key.child) {
        let is_here = |place: &FilePlace| (place.dir, &place.name) == (dir, &key.name);
        let here: Vec<FilePlace> = places(key.child, &state).into_iter().filter(is_here).collect();
        return match here.first() {
            None => Stands::Nowhere,
            Some(FilePlace { link: None, .. }) => Stands::Rescued,
            Some(_) => Stands::Linked(here.iter().filter_map(|place| place.entry).collect()),
        };
    }
    if objects.dir(key.child).is_some() {
        let is_here =
            objects.place(key.child).is_some_and(|(parent, name)| (parent, &name) == (dir, &key.name));
        return match objects.life(key.child) {
            Life::Alive if is_here => Stands::Dir,
            Life::Revived if is_here => Stands::RevivedDir,
            _ => Stands::Nowhere,
        };
    }
    if objects.entry(dir, key).is_some() { Stands::Away } else { Stands::Nowhere }
}

/// Whether there is a dot that a removal had not seen.
pub(crate) fn is_unseen(buried: &Context, entry: &DotFun<EntryWord>) -> bool {
    entry.iter().any(|(dot, _)| !has_seen(buried, dot))
}

fn has_seen(buried: &Context, dot: Dot) -> bool {
    buried.covers(dot) || planted(Bug::RemovalSeesAll)
}
