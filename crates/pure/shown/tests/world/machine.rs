//! What sites of the small world do without a user: patches of entries, copies of conflicting versions, twins that go.

use atoll_causal::{
    Context, DirPart, DotFun, EntryKey, EntryWord, FileId, FileState, FileVersion, HybridStamp,
};
use atoll_core::Name;
use atoll_model::life::Did;
use atoll_shown::{
    DirGroup, DuePatch, ExplicitStep, Objects, live_versions, patch, places, settle, twins_to_unlink,
};

use super::site::What;
use super::{World, linked, number_of, with};

impl World {
    /// One directory's entries are mended at a site. Whoever knows less of a child than those who changed its entry asks the others.
    pub fn patch_dir(&mut self, at: usize, dir: FileId) -> bool {
        let mut is_changed = false;
        for key in self.sites[at].near(dir, None) {
            if patch(&self.sites[at], dir, &key) == Some(DuePatch::Ask) {
                for from in (0..self.sites.len()).filter(|from| *from != at) {
                    self.send_state(from, at, key.child);
                }
            }
            let word = match patch(&self.sites[at], dir, &key) {
                Some(DuePatch::Add(word)) => Some(word),
                Some(DuePatch::Remove) => None,
                Some(DuePatch::Ask) | None => continue,
            };
            is_changed = true;
            let known = self.context(at, key.child);
            self.put_entry(at, dir, &key, word, known);
        }
        is_changed
    }

    fn context(&self, at: usize, id: FileId) -> Context {
        let held = &self.sites[at].held;
        let file = held.files.get(&id).map(|file| file.context.clone());
        file.or_else(|| held.dirs.get(&id).map(|dir| dir.head.context.clone())).unwrap_or_default()
    }

    /// An entry is added or removed.
    pub fn put_entry(
        &mut self,
        at: usize,
        dir: FileId,
        key: &EntryKey,
        word: Option<EntryWord>,
        based: Context,
    ) {
        let dot = self.sites[at].dot();
        let part = self.entry_part(at, dir, key, word, based);
        self.change_dir(at, dir, dot, vec![part], vec![]);
    }

    pub fn entry_part(
        &self,
        at: usize,
        dir: FileId,
        key: &EntryKey,
        word: Option<EntryWord>,
        based: Context,
    ) -> DirPart {
        let state = &self.sites[at].held.dirs[&dir];
        match word {
            Some(word) => state.add_entry(key.clone(), word, based),
            None => state.remove_entry(key.clone(), based),
        }
    }

    /// All entries are mended.
    pub fn patch_all(&mut self, at: usize) -> bool {
        let dirs: Vec<FileId> = self.sites[at].held.dirs.keys().copied().collect();
        dirs.into_iter().fold(false, |changed, dir| self.patch_dir(at, dir) | changed)
    }

    /// The versions of a file are settled at a site; whether there was something to settle.
    pub fn settle(&mut self, at: usize, id: FileId) -> bool {
        let Some(file) = self.sites[at].held.files.get(&id).cloned() else { return false };
        let copies: Vec<(FileId, FileVersion)> = self.sites[at]
            .held
            .files
            .iter()
            .filter(|(copy, state)| state.birth.copy_of == Some(id) && !places(**copy, state).is_empty())
            .filter_map(|(copy, state)| Some((*copy, live_versions(state).first()?.1)))
            .collect();
        let by = self.sites[at].dot();
        let Some(settlement) = settle(id, &file, by, &copies) else { return false };
        for copy in &settlement.copies {
            let Some((dir, name)) = copy.place(&self.sites[at], id, &file) else { return false };
            let entry = self.sites[at].dot();
            let state = copy.state(id, &file, dir, name.clone(), entry);
            let bytes = copy.version.root as u64;
            let events = self.copy(id, copy.dot, copy.id, copy.version.stamp, bytes);
            let site = &mut self.sites[at];
            let known =
                super::Known { object: copy.id, what: What::File(state.clone()), events: events.to_vec() };
            site.take(&std::rc::Rc::new(known));
            let is_here = places(copy.id, &site.held.files[&copy.id])
                .iter()
                .any(|place| (place.dir, &place.name) == (dir, &name));
            if is_here {
                let key = EntryKey { name, child: copy.id };
                let word = EntryWord { stamp: copy.version.stamp, is_dir: false };
                let dir_state = &site.held.dirs[&dir];
                let part = dir_state.add_entry(key, word, Context::default());
                self.change_dir(at, dir, entry, vec![part], vec![]);
            }
        }
        // After the dots above, so that the dots of the file rise.
        let dot = self.sites[at].dot();
        let dids = settlement.settled.iter().map(|dot| Did::Settled { version: number_of(*dot) }).collect();
        self.change_file(at, id, dot, vec![FileState::settle(settlement.settled, settlement.kept)], dids);
        for copy in settlement.unlinked {
            self.unlink_all(at, copy);
        }
        true
    }

    /// All versions of all files are settled.
    pub fn settle_all(&mut self, at: usize) -> bool {
        let files: Vec<FileId> = self.sites[at].held.files.keys().copied().collect();
        files.into_iter().fold(false, |changed, file| self.settle(at, file) | changed)
    }

    /// Twins of one name go behind the cut.
    pub fn clean(&mut self, at: usize, group: &DirGroup, own: &Name) -> bool {
        let twins = twins_to_unlink(&self.sites[at], group, own, self.cut);
        for (file, link) in &twins {
            let shown = atoll_shown::named(&self.sites[at], group, own).into_iter();
            let kept = shown.filter_map(|entry| match entry.object {
                atoll_shown::ShownObject::File(files) if files.iter().any(|place| place.file == *file) => {
                    Some(files[0].file)
                }
                _ => None,
            });
            let kept: Vec<FileId> = kept.collect();
            if kept[0] != *file {
                self.cleaned.push((*file, kept[0]));
            }
            let is_user = false;
            self.unlink(at, *file, *link, is_user);
        }
        !twins.is_empty()
    }

    /// What is shown is written down.
    pub fn carry_out(&mut self, at: usize, steps: Vec<ExplicitStep>) {
        for (nth, step) in steps.into_iter().enumerate() {
            if nth > 0 {
                self.floor = self.given;
            }
            match step {
                ExplicitStep::Keep(dir) => {
                    let dot = self.sites[at].dot();
                    let part = self.sites[at].held.dirs[&dir].head.keep();
                    self.change_dir(at, dir, dot, vec![part], vec![Did::Kept]);
                }
                ExplicitStep::Settle(file) => drop(self.settle(at, file)),
                ExplicitStep::Rename(place, name) => {
                    let link = place.link.expect("a link that has a name");
                    self.relink(at, place.file, link, place.dir, &name);
                }
                ExplicitStep::Link(place, name) => {
                    let file = self.sites[at].held.files[&place.file].clone();
                    let stamp = self.stamp(at, &[place.file, place.dir]);
                    let (entry, dot) = (self.sites[at].dot(), self.sites[at].dot());
                    let known = with(&file.context, dot);
                    let key = |name: &Name| EntryKey { name: name.clone(), child: place.file };
                    let word = EntryWord { stamp, is_dir: false };
                    let mut parts = Vec::new();
                    if place.name != name {
                        parts.push(self.entry_part(at, place.dir, &key(&place.name), None, known.clone()));
                    }
                    parts.push(self.entry_part(at, place.dir, &key(&name), Some(word), known));
                    self.change_dir(at, place.dir, entry, parts, vec![]);
                    let to = atoll_causal::LinkPlace { stamp, dir: place.dir, name, entry };
                    let (_, version) = live_versions(&file)[0];
                    let dids = vec![linked(dot, &to), super::ops::wrote(dot, version.root as u64)];
                    let parts = vec![FileState::link(dot, to), file.write(FileVersion { stamp, ..version })];
                    self.change_file(at, place.file, dot, parts, dids);
                }
            }
        }
        self.floor = HybridStamp::ZERO;
    }

    /// A link goes. `is_user`: because a user removes it.
    pub fn unlink(&mut self, at: usize, id: FileId, link: atoll_causal::Dot, is_user: bool) {
        let file = self.sites[at].held.files[&id].clone();
        let Some((_, place)) = file.links.get(&link).and_then(DotFun::highest) else { return };
        let place = place.clone();
        let stamp = self.stamp(at, &[id, place.dir]);
        let (entry, dot) = (self.sites[at].dot(), self.sites[at].dot());
        let is_left = file
            .places()
            .any(|(other, there)| other != link && (there.dir, &there.name) == (place.dir, &place.name));
        if !is_left && self.sites[at].held.dirs.contains_key(&place.dir) {
            let key = EntryKey { name: place.name.clone(), child: id };
            let part = self.entry_part(at, place.dir, &key, None, with(&file.context, dot));
            self.change_dir(at, place.dir, entry, vec![part], vec![]);
        }
        let parts = vec![file.unlink(link), file.bury(dot, stamp, place.dir, place.name)];
        if is_user {
            let held = self.sites[at].held.files.keys().copied().collect();
            self.unlinked.push((id, held));
        }
        self.end_version(at, id);
        self.change_file(at, id, dot, parts, vec![Did::Unlinked { link: number_of(link) }]);
    }

    /// All links of a file go.
    pub fn unlink_all(&mut self, at: usize, id: FileId) {
        let links: Vec<_> = self.sites[at].held.files[&id].places().map(|(link, _)| link).collect();
        links.into_iter().for_each(|link| self.unlink(at, id, link, true));
    }
}
