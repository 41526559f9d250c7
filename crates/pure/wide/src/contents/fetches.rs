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
    stand: Standing,
}

/// How it stands with each.
#[derive(Debug, Clone, Default)]
struct Standing {
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
    /// What is asked of each site and has not come.
    open: BTreeMap<SiteId, OpenQuestions>,
}

impl Standing {
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
        let (asked, open) = (fetch.asked(), self.open.entry(fetch.from).or_default());
        open.questions += asked.questions;
        open.bytes += asked.bytes;
    }

    /// The file changes, or goes.
    fn forget(&mut self, file: FileId, fetch: &Fetch) {
        self.asking.remove(&(fetch.from, file));
        for set in [&mut self.doing, &mut self.syncing, &mut self.here, &mut self.lacking] {
            set.remove(&file);
        }
        let (asked, open) = (fetch.asked(), self.open.entry(fetch.from).or_default());
        open.questions -= asked.questions;
        open.bytes -= asked.bytes;
        if open.questions == 0 {
            self.open.remove(&fetch.from);
        }
    }
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
        self.stand.note(file, &fetch);
        self.all.insert(file, fetch);
    }

    /// It is not any more.
    pub(super) fn remove(&mut self, file: FileId) -> Option<Fetch> {
        let fetch = self.all.remove(&file)?;
        self.stand.forget(file, &fetch);
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
        let fetch = self.all.get_mut(&file)?;
        self.stand.forget(file, fetch);
        let result = change(fetch);
        self.stand.note(file, fetch);
        Some(result)
    }

    /// Whether bodies are being synced.
    pub(super) fn are_syncing(&self) -> bool {
        !self.stand.syncing.is_empty()
    }

    /// Those whose bytes are all here.
    pub(super) fn here(&self) -> impl Iterator<Item = (FileId, &Fetch)> {
        self.stand.here.iter().map(|file| (*file, &self.all[file]))
    }

    /// Those for which another site is to be asked.
    pub(super) fn lacking(&self) -> Vec<FileId> {
        self.stand.lacking.iter().copied().collect()
    }

    /// The next thing that is to be done for one of them. If one cannot ask its site now, no other one does before it.
    pub(super) fn act(&mut self, work: &mut Work) -> Option<ContentsStep> {
        while let Some(file) = self.stand.doing.first().copied().filter(|_| work.has_room()) {
            // It has nothing to do any more behind that, or something else.
            let step = self.act_for(file, work);
            if step.is_some() {
                return step;
            }
        }
        let mut next = self.stand.asking.first().copied();
        while let Some((from, file)) = next {
            let step = self.act_for(file, work);
            if step.is_some() {
                return step;
            }
            let behind = (Bound::Excluded((from, FileId(u128::MAX))), Bound::Unbounded);
            next = self.stand.asking.range(behind).next().copied();
        }
        None
    }

    fn act_for(&mut self, file: FileId, work: &mut Work) -> Option<ContentsStep> {
        let of_site = self.stand.open.get(&self.all[&file].from).copied().unwrap_or_default();
        self.change(file, |fetch| fetch.act(file, work, of_site)).flatten()
    }
}
