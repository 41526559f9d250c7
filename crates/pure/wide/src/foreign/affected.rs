//! Which names, and which directories, may look different when states change: as the first page of `atoll-shown` says. Owns the order in
//! which that is found out. Decides nothing about rows.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{EntryKey, FileId};
use atoll_core::Name;
use atoll_shown::names::{following, unmarked};
use atoll_shown::{DirGroup, Objects, places};

use super::bodies::NewBodies;
use super::judge::Judged;
use crate::held::{HeldObjects, SiteRows};
use crate::rows::FeedRow;

/// What may look different.
#[derive(Debug, Default)]
pub(super) struct Affected {
    /// Names of directories, by the words of those who have them.
    pub(super) names: BTreeSet<(FileId, Name)>,
    /// Directories that may be shown elsewhere, or with others than before.
    pub(super) dirs: BTreeSet<FileId>,
}

/// The names that the changed objects have, and those of removed directories above them, which may be shown because of them.
#[derive(Default)]
struct Starts {
    names: BTreeSet<(FileId, Name)>,
    /// What has them now.
    near: Vec<(FileId, EntryKey)>,
}

impl Starts {
    fn add(&mut self, held: &HeldObjects<'_>, dir: FileId, name: Name, child: FileId) {
        let mut at = (dir, name, child);
        loop {
            let (dir, name, child) = at;
            self.near.push((dir, EntryKey { name: name.clone(), child }));
            self.names.insert((dir, name));
            let is_removed = dir != FileId::ROOT && held.dir(dir).is_some_and(|head| head.is_removed());
            match held.place(dir).filter(|_| is_removed) {
                Some((parent, name)) => at = (parent, name, dir),
                None => return,
            }
        }
    }

    fn of(held: &HeldObjects<'_>, judged: &Judged<'_>, bodies: &NewBodies) -> Self {
        let mut starts = Self::default();
        let moved = judged.moved.iter().map(|id| FeedRow::Dir { id: *id });
        let bodies = bodies.keys().map(|id| FeedRow::File { id: *id });
        let objects: BTreeSet<FeedRow> = judged.changed.iter().copied().chain(moved).chain(bodies).collect();
        for object in objects {
            match object {
                FeedRow::File { id } => {
                    let Some(state) = held.file(id) else { continue };
                    let places = places(id, &state).into_iter();
                    places.for_each(|place| starts.add(held, place.dir, place.name, id));
                }
                FeedRow::Dir { id } => {
                    let Some((parent, name)) = held.place(id) else { continue };
                    starts.add(held, parent, name, id);
                }
                FeedRow::Move { .. } => unreachable!("moves are not among objects"),
            }
        }
        starts
    }
}

impl Affected {
    /// Names that changed objects have before and after. What has them then is near them from here on.
    pub(super) fn start(
        before: &HeldObjects<'_>,
        rows: &SiteRows<'_>,
        judged: &mut Judged<'_>,
        bodies: &NewBodies,
        site: BesideRows<'_>,
    ) -> Self {
        let was = Starts::of(before, judged, bodies);
        let is = Starts::of(&HeldObjects::new(rows, site.spine, &judged.changes, site.name), judged, bodies);
        for (dir, key) in is.near {
            judged.changes.near.entry(dir).or_default().insert(key);
        }
        let names = was.names.into_iter().chain(is.names).collect();
        Self { names, dirs: judged.changes.dirs.keys().copied().collect() }
    }

    /// All that these names and directories affect.
    pub(super) fn close(self, before: &HeldObjects<'_>, after: &HeldObjects<'_>) -> Self {
        let mut queue: Vec<(FileId, Name)> = self.names.into_iter().collect();
        let mut found = Self::default();
        let mut dirs: Vec<FileId> = self.dirs.into_iter().collect();
        let mut followed = BTreeSet::new();
        loop {
            if let Some(dir) = dirs.pop() {
                if found.dirs.insert(dir) {
                    names_of_regrouped(before, after, dir, &mut queue);
                }
                continue;
            }
            let Some((dir, name)) = queue.pop() else { return found };
            if !found.names.insert((dir, name.clone())) {
                continue;
            }
            queue.extend(unmarked(&name).map(|own| (dir, own)));
            let (was, is) = (DirGroup::of(before, dir), DirGroup::of(after, dir));
            let members = was.as_ref().map_or(std::slice::from_ref(&dir), DirGroup::members);
            queue.extend(avoiding(before, members, &name, &mut followed));
            for (held, group) in [(before, was), (after, is)] {
                let Some(group) = group else { continue };
                queue.extend(group.members().iter().map(|member| (*member, name.clone())));
                dirs.extend(group.below(held, &name).iter().flat_map(|below| below.members().to_vec()));
            }
        }
    }
}

/// The own names of what is shown under a name with a mark, or under one that follows it because that one was taken, in directories that are
/// shown as one. An own name may have a mark too, so what is shown beside it is not found by its name without one. `followed`: names from
/// which this was done, each with the first of its directories. What follows one of them was found then.
pub(crate) fn avoiding(
    held: &HeldObjects<'_>,
    dirs: &[FileId],
    name: &Name,
    followed: &mut BTreeSet<(FileId, Name)>,
) -> BTreeSet<(FileId, Name)> {
    let mut found = BTreeSet::new();
    let mut at = unmarked(name).map(|_| name.clone());
    while let Some(name) = at.filter(|name| followed.insert((dirs[0], name.clone()))) {
        // The entry of a name is that of all of them, and leads to what is in one of them.
        let there = dirs.iter().flat_map(|dir| held.near(*dir, Some(&name)));
        let children: BTreeSet<FileId> = there.map(|key| key.child).collect();
        let names_in = |dir: FileId, child| held.names_in(dir, child).into_iter().map(move |own| (dir, own));
        let own: Vec<(FileId, Name)> = children
            .iter()
            .flat_map(|child| dirs.iter().flat_map(move |dir| names_in(*dir, *child)))
            .collect();
        at = following(&name).filter(|_| !own.is_empty());
        // What has the name as its own keeps it.
        found.extend(own.into_iter().filter(|(_, own)| *own != name));
    }
    found
}

/// If a directory is shown with others than before, all names in these are affected.
fn names_of_regrouped(
    before: &HeldObjects<'_>,
    after: &HeldObjects<'_>,
    dir: FileId,
    queue: &mut Vec<(FileId, Name)>,
) {
    let (was, is) = (DirGroup::of(before, dir), DirGroup::of(after, dir));
    if was == is {
        return;
    }
    let members: BTreeSet<FileId> =
        was.iter().chain(&is).flat_map(|group| group.members().to_vec()).chain([dir]).collect();
    for held in [before, after] {
        for &member in &members {
            queue.extend(held.near(member, None).into_iter().map(|key| (member, key.name)));
        }
    }
}

/// What a site knows beside its rows.
#[derive(Clone, Copy)]
pub(super) struct BesideRows<'a> {
    pub(super) spine: &'a atoll_spine::Spine,
    pub(super) name: &'a dyn Fn(atoll_causal::Writer) -> String,
}

/// How many directories are above a directory, by its own word.
pub(super) fn depth(held: &HeldObjects<'_>, dir: FileId) -> usize {
    let mut at = dir;
    let mut depth = 0;
    while let Some((parent, _)) = held.place(at) {
        at = parent;
        depth += 1;
    }
    depth
}

/// The groups in which directories are shown, by the first of each.
pub(super) fn groups<'a>(
    held: &HeldObjects<'_>,
    dirs: impl IntoIterator<Item = &'a FileId>,
) -> BTreeMap<FileId, DirGroup> {
    let groups = dirs.into_iter().filter_map(|dir| DirGroup::of(held, *dir));
    groups.map(|group| (group.first(), group)).collect()
}
