//! What users do at sites of the small world, through what is shown to them. After each operation the tree of the site is what
//! POSIX says: what is derived was written down before.

use std::collections::BTreeMap;

use atoll_causal::{
    AttrPart, AttrState, Context, DirBirth, DirState, Dot, EntryKey, EntryWord, FileBirth, FileId, FilePart,
    FileState, FileVersion, LinkPlace, Lww,
};
use atoll_core::{Name, Time};
use atoll_model::Rng;
use atoll_model::life::Did;
use atoll_posix::Kind;
use atoll_shown::{
    DirGroup, FilePlace, Objects, ShownEntry, ShownObject, explicit, keep, listing, live_versions, places,
};
use bytes::Bytes;

use super::site::{Moved, What};
use super::{World, linked, name, number_of, with};

/// What is at a path: a directory, or a file with its mode and the bytes of the version that is shown, by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Dir,
    File { file: FileId, mode: u32, bytes: u64 },
    Away,
}

/// What is shown at each path.
pub type Tree = BTreeMap<String, At>;

const NAMES: &[&str] = &["a", "b", "c", "d.txt"];

/// What a new entry and its child are made with.
struct Entered {
    dir: FileId,
    stamp: atoll_causal::HybridStamp,
    entry: Dot,
    /// The child's birth.
    dot: Dot,
}

impl World {
    /// Everything that is shown at a site.
    pub fn tree(&self, at: usize) -> Tree {
        let mut tree = Tree::new();
        for (group, path) in self.groups(at) {
            for entry in listing(&self.sites[at], &group) {
                let what = match entry.object {
                    ShownObject::Dir(_) => At::Dir,
                    ShownObject::Away { .. } => At::Away,
                    ShownObject::File(files) => {
                        let state = &self.sites[at].held.files[&files[0].file];
                        let live = live_versions(state);
                        let Some((_, version)) = live.first() else {
                            panic!("a file without bytes: {state:?}\n{}", self.story(at, files[0].file));
                        };
                        At::File {
                            file: files[0].file,
                            mode: state.attrs.mode.value,
                            bytes: version.root as u64,
                        }
                    }
                };
                let is_new = tree.insert(format!("{path}/{}", entry.name), what).is_none();
                assert!(is_new, "two things at {path}/{}", entry.name);
            }
        }
        tree
    }

    /// All directories that are shown, those that are shown as one once, with their paths.
    pub fn groups(&self, at: usize) -> Vec<(DirGroup, String)> {
        let mut found = vec![(DirGroup::root(), String::new())];
        let mut next = 0;
        while next < found.len() {
            let (group, path) = found[next].clone();
            for entry in listing(&self.sites[at], &group) {
                if let ShownObject::Dir(below) = entry.object {
                    found.push((below, format!("{path}/{}", entry.name)));
                }
            }
            next += 1;
        }
        found
    }

    /// The group at a path.
    pub fn group(&self, at: usize, path: &str) -> DirGroup {
        let found = self.groups(at).into_iter().find(|(_, other)| other == path);
        found.unwrap_or_else(|| panic!("site {at} shows no directory {path:?}: {:?}", self.tree(at))).0
    }

    /// What is shown under a name.
    pub fn entry(&self, at: usize, group: &DirGroup, shown: &Name) -> Option<ShownEntry> {
        listing(&self.sites[at], group).into_iter().find(|entry| entry.name == *shown)
    }

    /// The files at a name that is about to be used, after what is derived was written down.
    fn used(&mut self, at: usize, group: &DirGroup, shown: &Name) -> Option<Vec<FilePlace>> {
        let entry = self.entry(at, group, shown)?;
        let steps = explicit(&self.sites[at], group, &entry.own);
        self.carry_out(at, steps);
        let entry = self.entry(at, group, shown)?;
        assert_eq!(entry.own, entry.name, "what is used has the name under which it is shown");
        let ShownObject::File(files) = entry.object else { return None };
        for place in &files {
            let steps = keep(&self.sites[at], place.dir);
            self.carry_out(at, steps);
        }
        Some(files)
    }

    fn attrs(stamp: atoll_causal::HybridStamp, mode: u32) -> AttrState {
        AttrState::new(stamp, mode, 0, 0, Time::default())
    }

    /// A directory gets the entry of what is about to be born there.
    fn enter(&mut self, at: usize, group: &DirGroup, new: &Name, is_dir: bool) -> Entered {
        let dir = group.first();
        let steps = keep(&self.sites[at], dir);
        self.carry_out(at, steps);
        let stamp = self.stamp(at, &[dir]);
        let (entry, dot) = (self.sites[at].dot(), self.sites[at].dot());
        let key = EntryKey { name: new.clone(), child: FileId::born(dot) };
        let word = EntryWord { stamp, is_dir };
        let part = self.entry_part(at, dir, &key, Some(word), Context::default());
        self.change_dir(at, dir, entry, vec![part], vec![]);
        Entered { dir, stamp, entry, dot }
    }

    pub fn create(&mut self, at: usize, group: &DirGroup, new: &Name, bytes: u64) -> FileId {
        let Entered { dir, stamp, entry, dot } = self.enter(at, group, new, false);
        let id = FileId::born(dot);
        let birth = FileBirth { kind: Kind::Regular, rdev: 0, target: Bytes::new(), copy_of: None };
        let place = LinkPlace { stamp, dir, name: new.clone(), entry };
        let dids = vec![linked(dot, &place), wrote(dot, bytes)];
        let state = FileState::new(birth, dot, Self::attrs(stamp, 0o644), place, version(stamp, bytes));
        self.born(at, id, What::File(state), dids);
        id
    }

    pub fn mkdir(&mut self, at: usize, group: &DirGroup, new: &Name) -> FileId {
        let Entered { dir, stamp, dot, .. } = self.enter(at, group, new, true);
        let id = FileId::born(dot);
        let birth = DirBirth { stamp, parent: dir };
        let state = DirState::new(birth, dot, Self::attrs(stamp, 0o755), new.clone());
        self.born(at, id, What::Dir(state), vec![Did::Kept]);
        id
    }

    /// The version that users see goes: they write over it, or remove the file.
    pub fn end_version(&mut self, at: usize, id: FileId) {
        let Some((dot, _)) = live_versions(&self.sites[at].held.files[&id]).first().copied() else {
            return;
        };
        let number = self.number(id);
        let ghost = &self.sites[at].held.ghosts[&id];
        let is_it = |event: &usize| matches!(&self.history.event(*event).did, Did::Wrote { version, .. } if *version == number_of(dot));
        let ended: Vec<usize> = self.history.of(number, ghost).into_iter().filter(is_it).collect();
        self.ended.extend(ended);
    }

    /// As [`Self::used`], and the first file's other places too: it will be like other files than before.
    fn changed(&mut self, at: usize, group: &DirGroup, shown: &Name) -> Option<Vec<FilePlace>> {
        let files = self.used(at, group, shown)?;
        for place in self.places(at, files[0].file) {
            if let Some(group) = DirGroup::of(&self.sites[at], place.dir) {
                let steps = explicit(&self.sites[at], &group, &place.name);
                self.carry_out(at, steps);
            }
        }
        Some(files)
    }

    pub fn write(&mut self, at: usize, group: &DirGroup, shown: &Name, bytes: u64) {
        let Some(files) = self.changed(at, group, shown) else { return };
        let id = files[0].file;
        self.unlink_twins(at, &files);
        self.end_version(at, id);
        let stamp = self.stamp(at, &[id]);
        let dot = self.sites[at].dot();
        let part = self.sites[at].held.files[&id].write(version(stamp, bytes));
        self.change_file(at, id, dot, vec![part], vec![wrote(dot, bytes)]);
    }

    fn unlink_twins(&mut self, at: usize, files: &[FilePlace]) {
        for place in &files[1..] {
            self.unlink(at, place.file, place.link.expect("it was written down"), true);
        }
    }

    pub fn chmod(&mut self, at: usize, group: &DirGroup, shown: &Name, mode: u32) {
        let Some(files) = self.changed(at, group, shown) else { return };
        let id = files[0].file;
        self.unlink_twins(at, &files);
        let stamp = self.stamp(at, &[id]);
        let dot = self.sites[at].dot();
        let part = FilePart::Attr { part: AttrPart::Mode { to: Lww::new(stamp, mode) } };
        self.change_file(at, id, dot, vec![part], vec![]);
    }

    pub fn unlink_shown(&mut self, at: usize, group: &DirGroup, shown: &Name) {
        let Some(files) = self.used(at, group, shown) else { return };
        for place in files {
            self.unlink(at, place.file, place.link.expect("it was written down"), true);
        }
    }

    /// A link gets another place.
    pub fn relink(&mut self, at: usize, id: FileId, link: Dot, dir: FileId, new: &Name) {
        let file = self.sites[at].held.files[&id].clone();
        let old = file.links.get(&link).and_then(|places| places.highest()).expect("a link").1.clone();
        let stamp = self.stamp(at, &[id, dir]);
        let (gone, entry, dot) = (self.sites[at].dot(), self.sites[at].dot(), self.sites[at].dot());
        let is_left = file
            .places()
            .any(|(other, there)| other != link && (there.dir, &there.name) == (old.dir, &old.name));
        let known = with(&file.context, dot);
        let old_key = EntryKey { name: old.name, child: id };
        let key = EntryKey { name: new.clone(), child: id };
        let removed = (!is_left).then(|| self.entry_part(at, old.dir, &old_key, None, known.clone()));
        let added = self.entry_part(at, dir, &key, Some(EntryWord { stamp, is_dir: false }), known);
        if old.dir == dir {
            self.change_dir(at, dir, entry, removed.into_iter().chain([added]).collect(), vec![]);
        } else {
            if let Some(removed) = removed {
                self.change_dir(at, old.dir, gone, vec![removed], vec![]);
            }
            self.change_dir(at, dir, entry, vec![added], vec![]);
        }
        let place = LinkPlace { stamp, dir, name: new.clone(), entry };
        let did = linked(link, &place);
        self.change_file(at, id, dot, vec![file.relink(link, place)], vec![did]);
    }

    /// Renames a file, over another one if there is one.
    pub fn rename(&mut self, at: usize, from: (&DirGroup, &Name), to: (&DirGroup, &Name)) -> bool {
        let files_at = |world: &Self, (group, shown): (&DirGroup, &Name)| match world
            .entry(at, group, shown)
            .map(|entry| entry.object)
        {
            Some(ShownObject::File(files)) => Some(files),
            _ => None,
        };
        let Some(files) = files_at(self, from) else { return false };
        let target = self.entry(at, to.0, to.1);
        let over = files_at(self, to).unwrap_or_default();
        if target.is_some() && over.is_empty() || over.iter().any(|place| place.file == files[0].file) {
            return false;
        }
        let Some(files) = self.used(at, from.0, from.1) else { return false };
        if let Some(over) = target.and_then(|_| self.used(at, to.0, to.1)) {
            for place in over {
                self.unlink(at, place.file, place.link.expect("it was written down"), true);
            }
        }
        let dir = to.0.first();
        let steps = keep(&self.sites[at], dir);
        self.carry_out(at, steps);
        self.unlink_twins(at, &files);
        self.relink(at, files[0].file, files[0].link.expect("it was written down"), dir, to.1);
        true
    }

    /// A further name for a file.
    pub fn link(&mut self, at: usize, from: (&DirGroup, &Name), to: (&DirGroup, &Name)) -> bool {
        if self.entry(at, to.0, to.1).is_some() {
            return false;
        }
        let Some(files) = self.used(at, from.0, from.1) else { return false };
        let (id, dir) = (files[0].file, to.0.first());
        let steps = keep(&self.sites[at], dir);
        self.carry_out(at, steps);
        let stamp = self.stamp(at, &[id, dir]);
        let (entry, dot) = (self.sites[at].dot(), self.sites[at].dot());
        let known = with(&self.sites[at].held.files[&id].context, dot);
        let key = EntryKey { name: to.1.clone(), child: id };
        let part = self.entry_part(at, dir, &key, Some(EntryWord { stamp, is_dir: false }), known);
        self.change_dir(at, dir, entry, vec![part], vec![]);
        let place = LinkPlace { stamp, dir, name: to.1.clone(), entry };
        let did = linked(dot, &place);
        self.change_file(at, id, dot, vec![FileState::link(dot, place)], vec![did]);
        true
    }

    /// The directories of a name in a group, after what is derived was written down.
    fn used_dirs(&mut self, at: usize, group: &DirGroup, shown: &Name) -> Option<DirGroup> {
        let below = group.below(&self.sites[at], shown)?;
        let steps = explicit(&self.sites[at], group, shown);
        self.carry_out(at, steps);
        for member in below.members() {
            let steps = keep(&self.sites[at], *member);
            self.carry_out(at, steps);
        }
        Some(below)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, at: usize, group: &DirGroup, shown: &Name) -> bool {
        let Some(below) = group.below(&self.sites[at], shown) else { return false };
        if !listing(&self.sites[at], &below).is_empty() {
            return false;
        }
        self.used_dirs(at, group, shown);
        for &member in below.members() {
            let (parent, own) = self.sites[at].place(member).expect("it is shown");
            let (entry, dot) = (self.sites[at].dot(), self.sites[at].dot());
            let head = self.sites[at].held.dirs[&member].head.clone();
            let key = EntryKey { name: own, child: member };
            let part = self.entry_part(at, parent, &key, None, with(&head.context, dot));
            self.change_dir(at, parent, entry, vec![part], vec![]);
            self.change_dir(at, member, dot, head.remove(dot), vec![Did::Removed]);
        }
        true
    }

    /// Renames a directory in its parent, or moves it to another one.
    pub fn rename_dir(&mut self, at: usize, from: (&DirGroup, &Name), to: (&DirGroup, &Name)) -> bool {
        let Some(below) = from.0.below(&self.sites[at], from.1) else { return false };
        let is_inside = |world: &Self, mut dir: FileId| {
            while dir != FileId::ROOT && !below.members().contains(&dir) {
                dir = world.sites[at].place(dir).expect("it is shown").0;
            }
            dir != FileId::ROOT
        };
        if self.entry(at, to.0, to.1).is_some() || to.0.members().iter().any(|dir| is_inside(self, *dir)) {
            return false;
        }
        self.used_dirs(at, from.0, from.1);
        let is_in_place = from.0 == to.0;
        if !is_in_place {
            let steps = keep(&self.sites[at], to.0.first());
            self.carry_out(at, steps);
        }
        for &member in below.members() {
            let (parent, own) = self.sites[at].place(member).expect("it is shown");
            let target = if is_in_place { parent } else { to.0.first() };
            let stamp = self.stamp(at, &[member, parent, target]);
            let (gone, entry, dot) = (self.sites[at].dot(), self.sites[at].dot(), self.sites[at].dot());
            let head = self.sites[at].held.dirs[&member].head.clone();
            let known = with(&head.context, dot);
            let (old, new) =
                (EntryKey { name: own, child: member }, EntryKey { name: to.1.clone(), child: member });
            let removed = self.entry_part(at, parent, &old, None, known.clone());
            self.change_dir(at, parent, gone, vec![removed], vec![]);
            let added = self.entry_part(at, target, &new, Some(EntryWord { stamp, is_dir: true }), known);
            self.change_dir(at, target, entry, vec![added], vec![]);
            self.change_dir(at, member, dot, head.rename(stamp, to.1.clone()), vec![Did::Kept]);
            if !is_in_place {
                self.note_move(at, stamp, Moved { dir: member, parent: target, name: to.1.clone() });
            }
        }
        true
    }

    /// A user of a site does something, and finds the tree as POSIX says.
    #[allow(clippy::collapsible_match, reason = "an operation is no condition of its arm")]
    pub fn act(&mut self, at: usize, rng: &mut Rng) {
        // So that no copy comes up beside what the operation does.
        self.settle_all(at);
        let groups = self.groups(at);
        let before = self.tree(at);
        let (group, path) = rng.pick(&groups).clone();
        let (other, other_path) = rng.pick(&groups).clone();
        let entries = listing(&self.sites[at], &group);
        let new = name(rng.pick::<&str>(NAMES));
        let new_path = format!("{path}/{new}");
        let other_new = format!("{other_path}/{new}");
        let mut expected = before.clone();
        let what = rng.weighted(&[14, 10, 14, 12, 6, 14, 10, 8, 6, 3]);
        let entry = if entries.is_empty() { None } else { Some(rng.pick(&entries).clone()) };
        let shown = entry.as_ref().map_or_else(|| name("none"), |entry| entry.name.clone());
        let shown_path = format!("{path}/{shown}");
        let file = match before.get(&shown_path) {
            Some(At::File { .. }) => before.get(&shown_path).copied(),
            _ => None,
        };
        match (what, file) {
            (0, _) if !before.contains_key(&new_path) => {
                let bytes = rng.below(6);
                let file = self.create(at, &group, &new, bytes);
                expected.insert(new_path, At::File { file, mode: 0o644, bytes });
            }
            (1, _) if !before.contains_key(&new_path) => {
                self.mkdir(at, &group, &new);
                expected.insert(new_path, At::Dir);
            }
            (2, Some(_)) => {
                let bytes = rng.below(6);
                self.write(at, &group, &shown, bytes);
                return self.check_change(
                    at,
                    &before,
                    &shown_path,
                    |now| matches!(now, At::File { bytes: there, .. } if *there == bytes),
                );
            }
            (3, Some(file)) => {
                if self.rename(at, (&group, &shown), (&other, &new)) {
                    expected.remove(&shown_path);
                    expected.insert(other_new, file);
                }
            }
            (4, Some(file)) => {
                if self.link(at, (&group, &shown), (&other, &new)) {
                    expected.insert(other_new, file);
                }
            }
            (5, Some(_)) => {
                self.unlink_shown(at, &group, &shown);
                expected.remove(&shown_path);
            }
            (6, None) if entry.is_some() => {
                if self.rmdir(at, &group, &shown) {
                    expected.remove(&shown_path);
                }
            }
            (7, None) if entry.is_some() => {
                if self.rename_dir(at, (&group, &shown), (&group, &new)) {
                    expected = moved(&before, &shown_path, &new_path);
                }
            }
            (8, None) if entry.is_some() => {
                if self.rename_dir(at, (&group, &shown), (&other, &new)) {
                    expected = moved(&before, &shown_path, &other_new);
                }
            }
            (9, Some(_)) => {
                self.chmod(at, &group, &shown, 0o600);
                return self.check_change(at, &before, &shown_path, |now| {
                    matches!(now, At::File { mode: 0o600, .. })
                });
            }
            _ => {}
        }
        // What is not held cannot be written down, and takes a name that becomes free.
        let held = |tree: Tree| tree.into_iter().filter(|(_, what)| *what != At::Away).collect::<Tree>();
        let (after, expected) = (held(self.tree(at)), held(expected));
        assert_eq!(
            after, expected,
            "operation {what} on {shown_path} and {new} at site {at}; before: {before:?}"
        );
    }

    /// A file has changed. Its other links may have become unlike files with which they were shown as one, so that more is shown.
    fn check_change(&self, at: usize, before: &Tree, path: &str, is_new: impl Fn(&At) -> bool) {
        let after = self.tree(at);
        let Some(At::File { file, .. }) = before.get(path) else { panic!("{path} is no file") };
        assert!(after.get(path).is_some_and(&is_new), "{path}: {after:?}");
        for (path, was) in before.iter().filter(|(_, was)| **was != At::Away) {
            let is_same = after.get(path).is_some_and(|now| match now {
                At::File { file: there, .. } if there == file => is_new(now),
                _ => now == was,
            });
            assert!(is_same, "{path} was {was:?} at site {at}, changed {file:?}: {before:?} {after:?}");
        }
    }

    /// The places of a file at a site.
    pub fn places(&self, at: usize, id: FileId) -> Vec<FilePlace> {
        self.sites[at].held.files.get(&id).map(|state| places(id, state)).unwrap_or_default()
    }
}

fn moved(tree: &Tree, from: &str, to: &str) -> Tree {
    let inside = format!("{from}/");
    let rename = |path: &String| match path.strip_prefix(&inside) {
        Some(rest) => format!("{to}/{rest}"),
        None if path == from => to.to_owned(),
        None => path.clone(),
    };
    tree.iter().map(|(path, what)| (rename(path), *what)).collect()
}

fn version(stamp: atoll_causal::HybridStamp, bytes: u64) -> FileVersion {
    FileVersion { stamp, size: bytes, mtime: Time::default(), root: bytes.into() }
}

/// The history's word for a version.
pub fn wrote(dot: Dot, bytes: u64) -> Did {
    Did::Wrote { version: number_of(dot), bytes }
}
