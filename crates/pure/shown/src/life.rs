//! Life and death: at which places a file is shown, and whether a directory is. Owns the rule that a removal counts only for
//! what it has seen. Knows nothing of names that are taken.

use atoll_causal::{Context, DirHead, Dot, DotFun, EntryKey, EntryWord, FileId, FileState, HybridStamp};
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
///
/// A directory that is revived revives the one in which it is. So one child that revives is enough, however deep it is. What was
/// removed is looked through with a list, since users may nest directories deeper than any stack.
pub fn life(objects: &impl Objects, dir: FileId) -> Life {
    let Some(head) = objects.dir(dir) else { return Life::Dead };
    if !is_removed(dir, &head) {
        return Life::Alive;
    }
    let mut removed = vec![dir];
    while let Some(at) = removed.pop() {
        let Some(head) = objects.dir(at) else { continue };
        for key in objects.near(at, None) {
            if objects.dir(key.child).is_some_and(|child| is_removed(key.child, &child)) {
                if is_placed(objects, at, &key) {
                    removed.push(key.child);
                }
            } else if revives(objects, at, &head, &key) {
                return Life::Revived;
            }
        }
    }
    Life::Dead
}

fn is_removed(dir: FileId, head: &DirHead) -> bool {
    head.is_removed() && dir != FileId::ROOT
}

/// Whether a directory says of itself that it is in this one, under this name.
fn is_placed(objects: &impl Objects, dir: FileId, key: &EntryKey) -> bool {
    objects.place(key.child).is_some_and(|(parent, name)| (parent, &name) == (dir, &key.name))
}

/// Whether a child revives a removed directory, if it is no removed directory itself.
fn revives(objects: &impl Objects, dir: FileId, head: &DirHead, key: &EntryKey) -> bool {
    let is_new = || objects.entry(dir, key).is_some_and(|entry| is_unseen(&head.buried, &entry));
    match standing(objects, dir, key) {
        Stands::Nowhere => false,
        _ if planted(Bug::RevivedByAnyChild) => true,
        // It is not removed itself. Whoever removed the directory had moved it away, or it was removed and moved or linked meanwhile.
        Stands::Linked(_) | Stands::Dir if objects.are_all_held() && !planted(Bug::MovedIntoRemoved) => true,
        Stands::Linked(entries) => is_new() || entries.iter().any(|dot| !has_seen(&head.buried, *dot)),
        Stands::Away | Stands::Dir => is_new(),
        Stands::Rescued | Stands::RevivedDir => true,
    }
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
        if !is_placed(objects, dir, key) {
            return Stands::Nowhere;
        }
        return match objects.life(key.child) {
            Life::Alive => Stands::Dir,
            Life::Revived => Stands::RevivedDir,
            Life::Dead => Stands::Nowhere,
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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use atoll_causal::{
        AttrState, DirBirth, DirState, FileBirth, FileVersion, HybridStamp, LinkPlace, Writer,
    };
    use atoll_core::Time;
    use atoll_posix::Kind;
    use bytes::Bytes;

    use super::*;

    const DEPTH: u128 = 100_000;

    /// Directories below each other, all removed. The last one has a file of which no removal knew.
    struct Chain(FileState, DirHead);

    fn name() -> Name {
        Name::new(b"d").unwrap()
    }

    impl Chain {
        fn new() -> Self {
            let (stamp, writer) = (HybridStamp { time_us: 1, writer: Writer(1) }, Writer(1));
            let attrs = || AttrState::new(stamp, 0o755, 0, 0, Time::default());
            let birth = DirBirth { stamp, parent: FileId::ROOT };
            let mut head = DirState::new(birth, Dot { writer, n: 1 }, attrs(), name()).head;
            let gone = Dot { writer, n: 2 };
            head.apply(&head.change(gone, head.remove(gone)));
            let place = LinkPlace { stamp, dir: FileId(DEPTH), name: name(), entry: Dot { writer, n: 3 } };
            let version = FileVersion { stamp, size: 0, mtime: Time::default(), root: 0 };
            let birth = FileBirth { kind: Kind::Regular, rdev: 0, target: Bytes::new(), copy_of: None };
            Self(FileState::new(birth, Dot { writer, n: 4 }, attrs(), place, version), head)
        }
    }

    impl Objects for Chain {
        fn file(&self, id: FileId) -> Option<Cow<'_, FileState>> {
            (id.0 == DEPTH + 1).then_some(Cow::Borrowed(&self.0))
        }

        fn dir(&self, id: FileId) -> Option<Cow<'_, DirHead>> {
            (id.0 <= DEPTH).then_some(Cow::Borrowed(&self.1))
        }

        fn place(&self, dir: FileId) -> Option<(FileId, Name)> {
            Some((FileId(dir.0.checked_sub(1)?), name()))
        }

        fn entry(&self, _: FileId, _: &EntryKey) -> Option<Cow<'_, DotFun<EntryWord>>> {
            None
        }

        fn based(&self, _: FileId, _: FileId) -> Option<Cow<'_, Context>> {
            None
        }

        fn near(&self, dir: FileId, _: Option<&Name>) -> Vec<EntryKey> {
            vec![EntryKey { name: name(), child: FileId(dir.0 + 1) }]
        }

        fn site(&self, _: Writer) -> Cow<'_, str> {
            Cow::Borrowed("site")
        }
    }

    #[test]
    fn directories_that_are_nested_deeper_than_a_stack_are_revived_from_below() {
        assert_eq!(life(&Chain::new(), FileId(1)), Life::Revived);
    }
}
