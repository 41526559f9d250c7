//! Files whose latest versions have bytes that are not here: which of them are fetched, and from whom. Never looks into one that is fetched.
//!
//! **Lost versions.** Who removes a file with a version that nobody else has got takes its bytes along, while another site may have given the
//! file another name, so that it stays. Then sites tell each other who has not got that version. When all are known not to have it, the one
//! of them that has an earlier version, or none if nobody has one, makes a version of what it has: not over the lost one, since somebody may
//! have got that meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{Dot, FileId, Writer};
use atoll_core::Ino;
use atoll_posix::{Errno, Kind};
use atoll_state::RowLoad;
use bytes::Bytes;

use super::cutting::{of_version, within_a_record};
use super::due::DueQueue;
use super::fetch::{Fetch, FetchPhase};
use super::fetches::Fetches;
use super::pieces;
use super::work::Work;
use super::{ContentsNow, ContentsStep};
use crate::foreign::bodies::{is_behind, latest};
use crate::held::{HeldFile, SiteRows};
use crate::peers::message::{ContentsPlan, SITES_MAX, SiteWithout};
use crate::rows::{BodyVersion, SiteId};

/// Files that are looked at before the rows are read that they need.
const LOOKED_AT_ONCE: usize = 64;
/// Files that are fetched at once: so many of a few KB are under way on a link of 100 Mb/s.
const FETCHES_MAX: usize = 256;
/// Bytes of their pieces, in memory.
const PIECES_BYTES_MAX: u64 = 64 << 20;
/// So many that have arrived are one record, if more are about to arrive.
const TOGETHER_MIN: usize = 32;
/// A version of at most so many bytes is asked for as it is, also if an earlier one is here.
const WHOLE_BYTES_MAX: u64 = 16 << 10;
/// Milliseconds until a file is looked at again, which no site has. Each time doubles them, up to the last.
const AGAIN_MS: (u64, u64) = (250, 8_000);

/// Milliseconds until such a version is asked for once more of which nobody had all pieces. A later one is asked for at once.
const LACKING_MS: u64 = 30_000;
/// Milliseconds until such a file is looked at.
const LOOK_MS: u64 = 1_000;

/// How far a site is with the bytes that it has not got: since it last had everything, or since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchedBytes {
    /// Files whose latest versions have bytes that are not here,
    pub files_left: u64,
    /// and those bytes, where the site can tell.
    pub bytes_left: u64,
    /// Files whose bytes have come,
    pub files: u64,
    /// and these bytes, also if they were here and were only put together.
    pub bytes: u64,
    /// Files that are left and for which the disk has no room.
    pub files_without_room: u64,
}

/// A file that is behind.
#[derive(Debug, Clone)]
struct Behind {
    /// Bytes of its latest version, as far as that is noted.
    bytes: u64,
    /// How long it waits the next time.
    wait_ms: u64,
    /// Sites that have said that they have not got its bytes.
    tried: BTreeSet<SiteId>,
    /// Some of its bytes may be in the body in which they are gathered.
    has_some: bool,
    /// The version that is lacking, and the other sites that have not got it, each with whether it has an earlier one.
    without: Option<(Dot, BTreeMap<Writer, bool>)>,
    /// There was no room for them when it was looked at last.
    lacks_room: bool,
    /// It is asked first how the bytes are to be had.
    asks_how: bool,
    /// The version of which nobody had all pieces, and until when it is not asked for.
    lacking: Option<(Dot, u64)>,
}

impl Behind {
    const fn new(bytes: u64, has_some: bool) -> Self {
        let (wait_ms, lacks_room, asks_how) = (AGAIN_MS.0, false, false);
        let tried = BTreeSet::new();
        Self { bytes, wait_ms, tried, has_some, without: None, lacks_room, asks_how, lacking: None }
    }
}

/// All bytes of a version are here, and synced.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) file: FileId,
    pub(crate) version: BodyVersion,
    /// What was in the body of the file when it was begun.
    pub(crate) over: Option<BodyVersion>,
    /// Where they are.
    pub(crate) ino: Ino,
    /// It has no name yet.
    pub(crate) is_staged: bool,
    /// No site has it: the file is empty from here on.
    pub(crate) is_lost: bool,
    pub(crate) hashes: Vec<u128>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fetching {
    behind: BTreeMap<FileId, Behind>,
    /// When those are looked at that are not fetched. Without a link none is.
    due: DueQueue<FileId>,
    fetches: Fetches,
    links: BTreeSet<SiteId>,
    /// This site, and all of them.
    own: Option<Writer>,
    sites: BTreeSet<Writer>,
    last: u64,
    /// Files that have come since this site had everything, and their bytes.
    done: (u64, u64),
}

impl Fetching {
    /// Of this site, and with these other ones.
    pub(crate) fn new(own: Writer, sites: impl IntoIterator<Item = Writer>) -> Self {
        Self { own: Some(own), sites: sites.into_iter().chain([own]).collect(), ..Self::default() }
    }

    /// All sites are these, and this one.
    pub(crate) fn know(&mut self, sites: BTreeSet<Writer>) {
        self.sites = sites;
        self.sites.extend(self.own);
        // A version may be lost now.
        self.look_at_all();
    }

    /// All that is not fetched is looked at.
    fn look_at_all(&mut self) {
        for file in self.behind.keys().filter(|file| !self.fetches.contains(**file)) {
            self.due.set(*file, 0);
        }
    }

    /// The sites that have not got a version of a file, as far as this one knows, which has not got it either.
    pub(crate) fn without(&self, file: FileId, dot: Dot, has_earlier: bool) -> Vec<SiteWithout> {
        let others = self.behind.get(&file).and_then(|behind| behind.without.as_ref());
        let others = others.filter(|(of, _)| *of == dot).into_iter().flat_map(|(_, others)| others.clone());
        let own = self.own.map(|own| (own, has_earlier));
        let all: BTreeMap<Writer, bool> = others.chain(own).collect();
        all.into_iter().map(|(site, has_earlier)| SiteWithout { site, has_earlier }).take(SITES_MAX).collect()
    }

    /// A file was behind when the site began.
    pub(crate) fn was_behind(&mut self, file: FileId, bytes: u64) {
        self.behind.insert(file, Behind::new(bytes, true));
        self.due.set(file, 0);
    }

    /// A file is behind, perhaps another version than before.
    pub(crate) fn is_behind(&mut self, file: FileId, bytes: u64) {
        if let Some(behind) = self.behind.get_mut(&file).filter(|behind| behind.bytes != bytes) {
            // A later version has another length. What is known of the one that is fetched stays.
            behind.bytes = bytes;
            return;
        }
        let has_some = self.behind.get(&file).is_some_and(|behind| behind.has_some);
        self.behind.insert(file, Behind::new(bytes, has_some));
        if !self.fetches.contains(file) {
            self.due.set(file, 0);
        }
    }

    /// How far it is.
    pub(crate) fn fetched(&self) -> FetchedBytes {
        let (files, done) = self.done;
        let under_way: u64 = self.fetches.iter().map(Fetch::placed_bytes).sum();
        let all: u64 = self.behind.values().map(|behind| behind.bytes).sum();
        let (files_left, bytes_left) = (self.behind.len() as u64, all.saturating_sub(under_way));
        let files_without_room = self.behind.values().filter(|behind| behind.lacks_room).count() as u64;
        FetchedBytes { files_left, bytes_left, files, bytes: done + under_way, files_without_room }
    }

    /// Whether none is.
    pub(crate) fn is_quiet(&self) -> bool {
        self.behind.is_empty()
    }

    /// A link is up or down. What was under way on it is asked for once more, of any site.
    pub(crate) fn link(&mut self, site: SiteId, up: bool) {
        self.fetches.link_down(site);
        if up {
            self.links.insert(site);
        } else {
            self.links.remove(&site);
        }
        for behind in self.behind.values_mut().filter(|_| up) {
            behind.wait_ms = AGAIN_MS.0;
            behind.tried.remove(&site);
        }
        self.look_at_all();
    }

    /// The bytes of a file are here, or are not wanted any more.
    pub(crate) fn is_done(&mut self, file: FileId) {
        let behind = self.behind.remove(&file);
        self.due.remove(file);
        self.fetches.remove(file);
        let (files, bytes) = self.done;
        self.done = match behind {
            _ if self.behind.is_empty() => (0, 0),
            Some(behind) => (files + 1, bytes + behind.bytes),
            None => self.done,
        };
    }

    /// A file is looked at once more, a little later.
    pub(crate) fn again(&mut self, file: FileId, now_ms: u64) {
        self.fetches.remove(file);
        if let Some(behind) = self.behind.get_mut(&file) {
            self.due.set(file, now_ms + behind.wait_ms);
            behind.wait_ms = (behind.wait_ms * 2).min(AGAIN_MS.1);
            behind.tried.clear();
        }
    }

    /// A site has not got what is fetched: another one may.
    fn ask_another(&mut self, file: FileId, now_ms: u64) {
        let Some(fetch) = self.fetches.remove(file) else { return };
        let Some(behind) = self.behind.get_mut(&file) else { return };
        behind.asks_how = true;
        behind.tried.insert(fetch.from);
        self.due.set(file, now_ms);
        if self.links.iter().all(|site| behind.tried.contains(site)) {
            self.again(file, now_ms);
        }
    }

    // ------------------------------------------------------------------- beginning

    /// Begins to fetch a file, if there is one and a site to ask.
    pub(crate) fn begin(
        &mut self,
        rows: &SiteRows<'_>,
        moment: ContentsNow<'_>,
    ) -> Result<Option<ContentsStep>, Vec<RowLoad>> {
        for file in self.fetches.lacking() {
            let Some(dot) = self.fetches.get(file).map(|fetch| fetch.version.dot) else { continue };
            if let Some(behind) = self.behind.get_mut(&file).filter(|behind| behind.asks_how) {
                behind.lacking = Some((dot, moment.ms + LACKING_MS));
            }
            self.ask_another(file, moment.ms);
        }
        let mut pieces_bytes = self.fetches.iter().map(Fetch::pieces_bytes_max).sum::<u64>();
        loop {
            let some: Vec<FileId> = self.due.due(moment.ms).take(LOOKED_AT_ONCE).collect();
            for file in &some {
                if self.fetches.len() >= FETCHES_MAX || pieces_bytes > PIECES_BYTES_MAX {
                    return rows.loaded().map(|()| None);
                }
                let since = self.due.when(*file).unwrap_or(moment.ms);
                // Unless it says when, it is looked at once more a little later.
                self.due.set(*file, moment.ms + AGAIN_MS.0);
                let step = self.begin_file(rows, *file, moment);
                if step.is_some() || rows.lack_some() {
                    // It is the first again: if others came before, the rows that are read for it might have left memory.
                    self.due.set(*file, since);
                }
                if step.is_some() && !rows.lack_some() {
                    return Ok(step);
                }
                if let Some(fetch) = self.fetches.get(*file) {
                    pieces_bytes += fetch.pieces_bytes_max();
                    self.due.remove(*file);
                }
            }
            rows.loaded()?;
            if some.is_empty() {
                return Ok(None);
            }
        }
    }

    fn begin_file(
        &mut self,
        rows: &SiteRows<'_>,
        file: FileId,
        moment: ContentsNow<'_>,
    ) -> Option<ContentsStep> {
        let held = rows.file(file)?;
        let row = held.ino.and_then(|ino| rows.inode(ino));
        let staged = rows.staged(file);
        let (Some(ino), Some(row)) = (held.ino, row) else {
            return Some(ContentsStep::Forget(file)).filter(|_| moment.may_decide);
        };
        if !is_behind(&held.state, &held.bytes) {
            return Some(ContentsStep::Forget(file)).filter(|_| moment.may_decide);
        }
        let behind = self.behind.get_mut(&file)?;
        if held.bytes.is_uncut || row.attr.kind != Kind::Regular {
            // Its own version comes first.
            return None;
        }
        let (dot, version) = latest(&held.state)?;
        let is_lacking = |(of, until): (Dot, u64)| of == dot && moment.ms < until;
        if behind.tried.is_empty() && behind.lacking.is_some_and(is_lacking) {
            self.due.set(file, moment.ms + LOOK_MS);
            return None;
        }
        let needed = self.fetches.iter().map(Fetch::needs_bytes).sum::<u64>().saturating_add(version.size);
        behind.lacks_room = needed > moment.room && version.size > 0;
        if version.size > pieces::FILE_BYTES_MAX || behind.lacks_room {
            self.again(file, moment.ms);
            return None;
        }
        let from = self.links.iter().find(|site| !behind.tried.contains(site)).copied();
        let is_staged = held.bytes.has.is_some();
        if behind.are_all_without(dot, &self.sites, self.own, has_earlier(&held)) {
            if is_staged {
                return Some(ContentsStep::Lost(file)).filter(|_| moment.may_decide);
            }
            self.last += 1;
            let version = BodyVersion { dot, size: 0, root: pieces::NO_BYTES };
            // Nothing is asked of any site. There may be no other one.
            let from = from.unwrap_or(SiteId(0));
            let fetch = Fetch { is_lost: true, ..Fetch::of(self.last, version, from, (ino, false)) };
            self.fetches.insert(file, fetch);
            return None;
        }
        let Some(from) = from else {
            if self.links.is_empty() {
                self.due.remove(file);
            } else {
                self.again(file, moment.ms);
            }
            return None;
        };
        let into = match staged {
            _ if !is_staged => ino,
            Some(staged) => staged,
            None => return Some(ContentsStep::Stage(file)).filter(|_| moment.may_decide),
        };
        let version = BodyVersion::of(dot, &version);
        let base = held.bytes.has.filter(|has| has.size > 0).map(|has| (ino, has));
        let known = base.map_or_else(Vec::new, |(ino, has)| of_version(rows, ino, has));
        let hashes = match pieces::count(version.size) {
            0 => Some(Vec::new()),
            1 if !behind.asks_how && (base.is_none() || version.size <= WHOLE_BYTES_MAX) => {
                Some(vec![version.root])
            }
            _ => None,
        };
        let has_some = std::mem::replace(&mut behind.has_some, true);
        if !rows.missing().is_empty() {
            behind.has_some = has_some;
            return None;
        }
        self.last += 1;
        let mut fetch = Fetch::of(self.last, version, from, (into, is_staged));
        (fetch.has_some, fetch.base, fetch.known) = (has_some, base, known);
        fetch.over = held.bytes.has;
        fetch.hashes = hashes.unwrap_or_default();
        if !has_some && !is_staged && fetch.hashes.len() == 1 && row.attr.size == version.size {
            // Its only piece has all its bytes.
            fetch.phase = FetchPhase::Pieces;
        }
        self.fetches.insert(file, fetch);
        None
    }

    // ---------------------------------------------------------------------- acting

    /// The next thing that is to be done for a fetch.
    pub(crate) fn act(&mut self, work: &mut Work) -> Option<ContentsStep> {
        self.fetches.act(work)
    }

    /// A site says how the bytes of a version are to be had.
    pub(crate) fn planned(&mut self, from: SiteId, file: FileId, dot: Dot, plan: ContentsPlan, now_ms: u64) {
        let Some(fetch) = self.fetches.get(file) else { return };
        let is_asked = fetch.phase == FetchPhase::Plan && fetch.is_asked;
        if fetch.from != from || fetch.version.dot != dot || !is_asked {
            return;
        }
        let is_good = self.fetches.change(file, |fetch| {
            fetch.is_asked = false;
            match plan {
                ContentsPlan::Gone { without } => {
                    if let Some(behind) = self.behind.get_mut(&file) {
                        behind.note(dot, &without, self.own);
                    }
                    false
                }
                ContentsPlan::Pieces { hashes } => fetch.by_pieces(hashes.into_vec()),
                ContentsPlan::Since { ranges, hashes } => fetch.by_change(ranges, &hashes),
            }
        });
        if is_good == Some(false) {
            self.ask_another(file, now_ms);
        }
    }

    /// Bytes of a version have come; none if that site has not got them.
    pub(crate) fn came(
        &mut self,
        from: SiteId,
        file: FileId,
        dot: Dot,
        offset: u64,
        bytes: Option<Vec<u8>>,
        now_ms: u64,
    ) {
        let is_it = |fetch: &&Fetch| fetch.from == from && fetch.version.dot == dot;
        if self.fetches.get(file).filter(is_it).is_none() {
            return;
        }
        let is_good = self.fetches.change(file, |fetch| match bytes {
            Some(bytes) => fetch.came(offset, &bytes),
            None => {
                fetch.has_not(offset);
                true
            }
        });
        if is_good == Some(false) {
            self.ask_another(file, now_ms);
        }
    }

    /// The island has done something.
    pub(crate) fn did(
        &mut self,
        (file, number): (FileId, u64),
        id: u64,
        done: Result<Bytes, Errno>,
        now_ms: u64,
    ) {
        if self.fetches.get(file).is_none_or(|fetch| fetch.number != number) {
            return;
        }
        if let Some(Err(_)) = self.fetches.change(file, |fetch| fetch.did(id, done)) {
            self.again(file, now_ms);
        }
    }

    /// Files whose bytes are all here, at most so many. As long as others are about to be, they are one record with them.
    pub(crate) fn arrived(&self, most: usize, busy: &BTreeSet<Ino>) -> Vec<Arrival> {
        if self.fetches.are_syncing() && self.fetches.here().count() < TOGETHER_MIN {
            return Vec::new();
        }
        let is_free = |fetch: &Fetch| fetch.base.is_none_or(|(ino, _)| !busy.contains(&ino));
        let here = self.fetches.here().filter(|(_, fetch)| is_free(fetch));
        let here = here.map(|(file, fetch)| Arrival {
            file,
            version: fetch.version,
            over: fetch.over,
            ino: fetch.into,
            is_staged: fetch.is_staged,
            is_lost: fetch.is_lost,
            hashes: fetch.hashes.clone(),
        });
        within_a_record(here, |arrival| arrival.hashes.len(), most)
    }
}

impl Behind {
    /// These sites have not got a version.
    fn note(&mut self, dot: Dot, sites: &[SiteWithout], own: Option<Writer>) {
        let (of, known) = self.without.get_or_insert_with(|| (dot, BTreeMap::new()));
        if *of != dot {
            (*of, *known) = (dot, BTreeMap::new());
        }
        let others = sites.iter().filter(|without| Some(without.site) != own);
        known.extend(others.map(|without| (without.site, without.has_earlier)));
    }

    /// Whether no site has a version, and this one is to make another: of those that have an earlier one, or else of all, the highest.
    fn are_all_without(
        &self,
        dot: Dot,
        sites: &BTreeSet<Writer>,
        own: Option<Writer>,
        has_earlier: bool,
    ) -> bool {
        let Some(own) = own else { return false };
        let others = self.without.iter().filter(|(of, _)| *of == dot).flat_map(|(_, others)| others);
        let others: BTreeMap<Writer, bool> = others.map(|(site, has)| (*site, *has)).collect();
        let are_all = sites.iter().all(|site| *site == own || others.contains_key(site));
        let others_first = others.iter().any(|(site, has)| (*has, *site) > (has_earlier, own));
        are_all && !others_first
    }
}

/// Whether bytes of an earlier version of a file are here than the latest one, of which they are not.
pub(crate) fn has_earlier(held: &HeldFile) -> bool {
    held.ino.is_some() && held.bytes.has.is_some()
}

#[cfg(test)]
mod tests {
    use atoll_state::State;

    use super::*;
    use crate::peers::{WidePeers, Window};

    /// Found by `atoll-wan fill`: after one row of a file had been read, the next file was looked at. When each had its turn again, its row
    /// had left memory, so a site that lacked many files read rows for ever.
    #[test]
    fn files_for_which_rows_are_read_are_looked_at_first_when_these_are_there() {
        let mut fetching = Fetching::new(Writer(1), [Writer(2)]);
        fetching.link(SiteId(2), true);
        (0..10_000).for_each(|file| fetching.was_behind(FileId(file), 1));
        let state = State::new(1);
        let peers = WidePeers::open(1, Writer(1), Window::MOST, 0, []).unwrap();
        let (busy, room) = (BTreeSet::new(), u64::MAX);
        let mut lacks = |ms| {
            let rows = SiteRows::new(&state);
            let moment = ContentsNow { ms, may_decide: true, busy: &busy, room, peers: &peers };
            fetching.begin(&rows, moment).unwrap_err()
        };
        let first = lacks(1);
        assert_eq!(first.len(), LOOKED_AT_ONCE);
        for ms in 2..2_000 {
            assert_eq!(lacks(ms), first, "at {ms} ms");
        }
    }
}
