//! All files that are fetched at once, and which of them can go on. Owns that nobody looks at those that wait. Never decides what is fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use atoll_causal::FileId;

use super::ContentsStep;
use super::fetch::{Fetch, FetchPhase, OpenQuestions};
use super::work::Work;
use crate::rows::SiteId;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Fetches {
    all: BTreeMap<FileId, Fetch>,
    /// Those that have something to ask their site, though it may take no more questions yet.
    asking: BTreeSet<(SiteId, FileId)>,
    /// Those that have something to be done in a body, though there may be no room for it yet.
    doing: BTreeSet<FileId>,
    /// Those whose bodies are being synced.
    syncing: BTreeSet<FileId>,
    /// Those whose bytes are all here.
    here: BTreeSet<FileId>,
    /// Those of which the other site has not got all pieces, and all others are in place.
    lacking: BTreeSet<FileId>,
}

impl Fetches {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, file: FileId) -> bool {
        self.all.contains_key(&file)
    }

    pub(super) fn get(&self, file: FileId) -> Option<&Fetch> {
        self.all.get(&file)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Fetch> {
        self.all.values()
    }

    /// A file is fetched from here on.
    pub(super) fn insert(&mut self, file: FileId, fetch: Fetch) {
        self.remove(file);
        self.note(file, &fetch);
        self.all.insert(file, fetch);
    }

    /// It is not any more.
    pub(super) fn remove(&mut self, file: FileId) -> Option<Fetch> {
        let fetch = self.all.remove(&file)?;
        self.forget(file, fetch.from);
        Some(fetch)
    }

    /// Nothing comes from a site any more.
    pub(super) fn link_down(&mut self, site: SiteId) {
        let of_it: Vec<FileId> =
            self.all.iter().filter(|(_, fetch)| fetch.from == site).map(|(file, _)| *file).collect();
        of_it.into_iter().for_each(|file| drop(self.remove(file)));
    }

    /// Something happens to a file that is fetched; none if it is not.
    pub(super) fn change<R>(&mut self, file: FileId, change: impl FnOnce(&mut Fetch) -> R) -> Option<R> {
        let mut fetch = self.remove(file)?;
        let result = change(&mut fetch);
        self.insert(file, fetch);
        Some(result)
    }

    /// How it stands with a file.
    fn note(&mut self, file: FileId, fetch: &Fetch) {
        if fetch.may_ask() {
            self.asking.insert((fetch.from, file));
        }
        if fetch.may_do() {
            self.doing.insert(file);
        }
        match fetch.phase {
            FetchPhase::Sync => drop(self.syncing.insert(file)),
            FetchPhase::Here => drop(self.here.insert(file)),
            _ if fetch.is_lacking() => drop(self.lacking.insert(file)),
            _ => {}
        }
    }

    fn forget(&mut self, file: FileId, from: SiteId) {
        self.asking.remove(&(from, file));
        for set in [&mut self.doing, &mut self.syncing, &mut self.here, &mut self.lacking] {
            set.remove(&file);
        }
    }

    /// Whether bodies are being synced.
    pub(super) fn are_syncing(&self) -> bool {
        !self.syncing.is_empty()
    }

    /// Those whose bytes are all here.
    pub(super) fn here(&self) -> impl Iterator<Item = (FileId, &Fetch)> {
        self.here.iter().map(|file| (*file, &self.all[file]))
    }

    /// Those for which another site is to be asked.
    pub(super) fn lacking(&self) -> Vec<FileId> {
        self.lacking.iter().copied().collect()
    }

    /// The next thing that is to be done for one of them. If one cannot ask its site now, no other one does before it.
    pub(super) fn act(&mut self, work: &mut Work) -> Option<ContentsStep> {
        while let Some(file) = self.doing.first().copied().filter(|_| work.has_room()) {
            // It has nothing to do any more behind that, or something else.
            let step = self.act_for(file, work);
            if step.is_some() {
                return step;
            }
        }
        let mut next = self.asking.first().copied();
        while let Some((from, file)) = next {
            let step = self.act_for(file, work);
            if step.is_some() {
                return step;
            }
            let behind = (Bound::Excluded((from, FileId(u128::MAX))), Bound::Unbounded);
            next = self.asking.range(behind).next().copied();
        }
        None
    }

    fn act_for(&mut self, file: FileId, work: &mut Work) -> Option<ContentsStep> {
        let of_site = self.asked_of(self.all[&file].from);
        self.change(file, |fetch| fetch.act(file, work, of_site)).flatten()
    }

    /// What is asked of a site and has not come.
    fn asked_of(&self, site: SiteId) -> OpenQuestions {
        let of_site = self.all.values().filter(|fetch| fetch.from == site);
        of_site.map(Fetch::asked).fold(OpenQuestions::default(), |all, one| OpenQuestions {
            questions: all.questions + one.questions,
            bytes: all.bytes + one.bytes,
        })
    }
}
