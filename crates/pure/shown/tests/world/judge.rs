//! Judges the small world at rest: all sites show the same, what is shown is what the oracle says of the history, and no
//! bytes are gone that nobody has written over or removed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{Context, DirHead, DotFun, EntryKey, EntryWord, FileId, FileState, Writer};
use atoll_core::{Encode, Name};
use atoll_model::Rng;
use atoll_model::life::{Did, PlaceGiven, Seen};
use atoll_shown::{DirGroup, Life, Objects, ShownObject, is_in_conflict, listing, places};

use super::site::Site;
use super::{World, given, number_of};

/// Rounds in which everything comes to rest.
const ROUNDS_MAX: usize = 40;

impl World {
    /// All sites get everything, mend and settle, until nothing changes.
    pub fn rest(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.exchange();
            let mut is_changed = false;
            for at in 0..self.sites.len() {
                is_changed |= self.patch_all(at);
                is_changed |= self.settle_all(at);
            }
            if !is_changed {
                return;
            }
        }
        panic!("no rest in {ROUNDS_MAX} rounds");
    }

    /// Everything that must hold at rest.
    pub fn judge(&mut self, rng: &mut Rng) {
        let tree = self.tree(0);
        let bytes = |site: &Site| {
            let files: Vec<_> = site.held.files.iter().map(|(id, file)| (*id, file.to_vec())).collect();
            let dirs: Vec<_> = site.held.dirs.iter().map(|(id, dir)| (*id, dir.to_vec())).collect();
            (files, dirs)
        };
        for at in 1..self.sites.len() {
            assert!(
                bytes(&self.sites[0]) == bytes(&self.sites[at]),
                "site {at} has other states than site 0"
            );
            assert_eq!(self.tree(at), tree, "site {at} shows another tree");
        }
        self.judge_files();
        self.judge_dirs();
        self.judge_bytes();
        self.judge_cleaned();
        self.judge_partial(rng);
    }

    fn heard(&self, id: FileId) -> Seen {
        self.sites[0].held.ghosts.get(&id).cloned().unwrap_or_default()
    }

    /// Each file has the links that the oracle says, and is rescued if it says so.
    fn judge_files(&self) {
        let mut numbers = BTreeSet::new();
        let births: BTreeSet<u64> = self.copies.keys().map(|(_, dot)| number_of(*dot)).collect();
        for (id, state) in &self.sites[0].held.files {
            let number = self.numbers[id];
            assert!(numbers.insert(number), "two copies of one version: {id:?}");
            let left = self.history.file(number, &self.heard(*id));
            let shown = places(*id, state);
            let links: BTreeMap<u64, PlaceGiven> = shown
                .iter()
                .filter_map(|place| {
                    Some((number_of(place.link?), given(place.stamp, place.dir, &place.name)))
                })
                .collect();
            // The places at which several sites have made one copy differ.
            let is_free = |link: &u64| state.birth.copy_of.is_some() && births.contains(link);
            assert!(
                links.keys().eq(left.links.keys())
                    && links.iter().all(|(link, place)| is_free(link) || left.links[link] == *place),
                "links of {id:?}: {links:?}, and by the oracle {:?}",
                left.links
            );
            let is_rescued = shown.iter().any(|place| place.link.is_none());
            assert_eq!(
                is_rescued,
                left.is_rescued,
                "whether {id:?} is rescued: {state:?}\n{}",
                self.story(0, *id)
            );
            // Each place is shown, and each name of a place shows something.
            for place in shown {
                let group = DirGroup::of(&self.sites[0], place.dir);
                let group = group.unwrap_or_else(|| panic!("{id:?} is in a directory that is not shown"));
                let all = listing(&self.sites[0], &group);
                let is_it = |object: &ShownObject| match object {
                    ShownObject::File(files) => files.contains(&place),
                    ShownObject::Dir(_) | ShownObject::Away { .. } => false,
                };
                assert_eq!(
                    all.iter().filter(|entry| is_it(&entry.object)).count(),
                    1,
                    "{place:?} is shown once"
                );
                assert!(all.iter().any(|entry| entry.name == place.name), "{:?} shows nothing", place.name);
            }
            assert!(places(*id, state).is_empty() || !is_in_conflict(state), "{id:?} is settled");
        }
    }

    /// What was done to an object.
    pub fn story(&self, at: usize, id: FileId) -> String {
        let events = self.history.of(self.numbers[&id], &self.sites[at].held.ghosts[&id]);
        events.iter().map(|event| format!("{event}: {:?}\n", self.history.event(*event))).collect()
    }

    /// Each directory is shown if the oracle says so, or if a child in it is.
    fn judge_dirs(&self) {
        let site = &self.sites[0];
        let mut shown: BTreeSet<FileId> = BTreeSet::new();
        for (id, state) in &site.held.files {
            shown.extend(places(*id, state).into_iter().map(|place| place.dir));
        }
        for id in site.held.dirs.keys() {
            if *id == FileId::ROOT || self.history.is_kept(self.numbers[id], &self.heard(*id)) {
                shown.insert(*id);
            }
        }
        let parents: BTreeMap<FileId, FileId> =
            site.held.dirs.keys().filter_map(|id| Some((*id, site.place(*id)?.0))).collect();
        loop {
            let above: BTreeSet<FileId> = shown.iter().filter_map(|id| parents.get(id).copied()).collect();
            if above.is_subset(&shown) {
                break;
            }
            shown.extend(above);
        }
        for id in site.held.dirs.keys() {
            let is_shown = site.life(*id) != Life::Dead;
            assert_eq!(is_shown, shown.contains(id), "whether the directory {id:?} is shown");
            assert_eq!(is_shown, DirGroup::of(site, *id).is_some(), "whether {id:?} is in a group");
        }
    }

    /// Each version is shown in its file or a copy of it, or a user saw it and wrote over it or removed the file.
    fn judge_bytes(&self) {
        let site = &self.sites[0];
        for (id, _) in site.held.files.iter() {
            let number = self.numbers[id];
            let family = self.family(number);
            let mut there: BTreeSet<u64> = BTreeSet::new();
            let mut ended: BTreeSet<u64> = BTreeSet::new();
            for (other, state) in &site.held.files {
                if family.contains(&self.numbers[other]) && !places(*other, state).is_empty() {
                    there.extend(state.versions.iter().map(|(_, version)| version.root as u64));
                }
            }
            for &event in &self.ended {
                let event = self.history.event(event);
                if let (true, Did::Wrote { bytes, .. }) = (family.contains(&event.object), &event.did) {
                    ended.insert(*bytes);
                }
            }
            for event in self.history.of(number, &self.heard(*id)) {
                let Did::Wrote { bytes, .. } = self.history.event(event).did else { continue };
                assert!(there.contains(&bytes) || ended.contains(&bytes), "bytes {bytes} of {id:?} are lost");
            }
        }
    }

    /// A file and all copies of its versions, and of theirs.
    fn family(&self, number: usize) -> BTreeSet<usize> {
        let mut family = BTreeSet::from([number]);
        loop {
            let more =
                self.copies.iter().filter(|((of, _), _)| family.contains(of)).map(|(_, (copy, _))| *copy);
            let more: Vec<usize> = more.filter(|copy| !family.contains(copy)).collect();
            if more.is_empty() {
                return family;
            }
            family.extend(more);
        }
    }

    /// If a file went because another one was shown for it, that one is there, or somebody removed it who knew of both.
    fn judge_cleaned(&self) {
        let site = &self.sites[0];
        for (gone, kept) in &self.cleaned {
            let is_dead =
                |id: &FileId| site.held.files.get(id).is_none_or(|state| places(*id, state).is_empty());
            let is_followed = self.cleaned.iter().any(|(other, _)| other == kept);
            let by_who_knew = self.unlinked.iter().any(|(id, known)| id == kept && known.contains(gone));
            assert!(
                !is_dead(gone) || !is_dead(kept) || is_followed || by_who_knew,
                "{gone:?} went for {kept:?}, which is gone too"
            );
        }
    }

    /// A site that lacks some objects sees the same names and the same directories: entries say what their children say.
    fn judge_partial(&self, rng: &mut Rng) {
        let site = &self.sites[0];
        let hidden: BTreeSet<FileId> =
            site.ids().into_iter().filter(|id| *id != FileId::ROOT && rng.percent(20)).collect();
        let part = Without { site, hidden };
        for (id, _) in site.held.dirs.iter().filter(|(id, _)| part.dir(**id).is_some()) {
            let is_shown = site.life(*id) != Life::Dead;
            assert_eq!(
                part.life(*id) != Life::Dead,
                is_shown,
                "whether {id:?} is shown where some children are not held"
            );
            let Some(group) = DirGroup::of(&part, *id) else { continue };
            let here = |objects: &dyn Fn(&DirGroup) -> Vec<(Name, FileId)>| objects(&group);
            let partly = here(&|group| children(&part, group));
            let wholly = here(&|group| children(site, group));
            assert_eq!(partly, wholly, "children of {id:?} where some are not held");
        }
    }
}

/// Each object that is shown in a group, with its own name.
fn children(objects: &impl Objects, group: &DirGroup) -> Vec<(Name, FileId)> {
    let mut found = BTreeSet::new();
    for &member in group.members() {
        for key in objects.near(member, None) {
            let stands = match (objects.file(key.child), objects.dir(key.child)) {
                (Some(state), _) => places(key.child, &state)
                    .iter()
                    .any(|place| (place.dir, &place.name) == (member, &key.name)),
                (_, Some(_)) => {
                    objects.life(key.child) != Life::Dead
                        && objects.place(key.child) == Some((member, key.name.clone()))
                }
                (None, None) => objects.entry(member, &key).is_some(),
            };
            if stands {
                found.insert((key.name, key.child));
            }
        }
    }
    found.into_iter().collect()
}

/// A site without some of its objects.
struct Without<'a> {
    site: &'a Site,
    hidden: BTreeSet<FileId>,
}

impl Objects for Without<'_> {
    fn file(&self, id: FileId) -> Option<Cow<'_, FileState>> {
        if self.hidden.contains(&id) { None } else { self.site.file(id) }
    }

    fn dir(&self, id: FileId) -> Option<Cow<'_, DirHead>> {
        if self.hidden.contains(&id) { None } else { self.site.dir(id) }
    }

    fn place(&self, dir: FileId) -> Option<(FileId, Name)> {
        if self.hidden.contains(&dir) { None } else { self.site.place(dir) }
    }

    fn entry(&self, dir: FileId, key: &EntryKey) -> Option<Cow<'_, DotFun<EntryWord>>> {
        if self.hidden.contains(&dir) { None } else { self.site.entry(dir, key) }
    }

    fn based(&self, dir: FileId, child: FileId) -> Option<Cow<'_, Context>> {
        if self.hidden.contains(&dir) { None } else { self.site.based(dir, child) }
    }

    fn near(&self, dir: FileId, name: Option<&Name>) -> Vec<EntryKey> {
        let is_known = |key: &EntryKey| !self.hidden.contains(&key.child) || self.entry(dir, key).is_some();
        self.site.near(dir, name).into_iter().filter(is_known).collect()
    }

    fn site(&self, writer: Writer) -> Cow<'_, str> {
        self.site.site(writer)
    }
}
