//! Versions of files that users of this site have changed: when one is due, and the hashes over its bytes. Owns which files are uncut. Never
//! makes a change.
//!
//! A version is due when nobody has changed the file for a fifth of a second, or when half a minute has passed since it was changed first;
//! but not within a second behind the version before, so that a file which changes now and then has no more of them. Then the pieces are
//! read of which no hash is known, and the body is synced: what a version says of bytes must survive a power cut. If the file changes
//! meanwhile, what was touched is read again.
//!
//! While users change files one soon after the other, versions that are due wait for up to 0.8 s. Then they are cut together: read, synced at
//! once, and decided by one record. So users are not held up, and each version costs a fraction of what it costs alone.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_posix::Op;
use atoll_state::RowLoad;
use bytes::Bytes;

use super::due::DueQueue;
use super::kept::PIECES_MAX;
use super::pieces;
use super::work::{Work, WorkFor, WorkOp};
use crate::held::SiteRows;
use crate::rows::{BodyVersion, FileBeside, FileBytes};
use crate::watch::ByteRanges;

/// Milliseconds without a change after which a version is due.
const IDLE_MS: u64 = 200;
/// Milliseconds from a version of a file to the next one.
const APART_MS: u64 = 1_000;
/// Milliseconds after the first change after which one is due.
const LATEST_MS: u64 = 30_000;
/// A version that is due waits until nobody has changed any file for so many milliseconds,
const QUIET_MS: u64 = 50;
/// but not longer than this.
const GATHER_MS: u64 = 800;
/// Files of which versions are being cut.
const CUTS_MAX: usize = 32;
/// Pieces of a file for which others wait, to be synced with it.
const SHORT_PIECES: usize = 8;
/// Milliseconds until it is tried again, if a body cannot be read,
const AGAIN_MS: u64 = 10_000;
/// and if the version may not be decided yet.
const NOT_YET_MS: u64 = 1_000;

/// When users have changed a file.
#[derive(Debug, Clone, Copy)]
struct Changed {
    first_ms: u64,
    last_ms: u64,
    /// It was tried, or the version before was cut: none is due before.
    after_ms: u64,
}

impl Changed {
    /// When a version is due.
    fn due_ms(self) -> u64 {
        let (idle, latest) = (self.last_ms.saturating_add(IDLE_MS), self.first_ms.saturating_add(LATEST_MS));
        idle.min(latest).max(self.after_ms)
    }
}

/// What is asked of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutAsks {
    /// The bytes of this piece.
    Piece(u64),
    /// That it survives a power cut.
    Sync,
}

/// A version that is being cut.
#[derive(Debug, Clone)]
struct Cut {
    size: u64,
    hashes: Vec<Option<u128>>,
    /// The first pieces that were read for it.
    read: BTreeMap<u64, Bytes>,
    is_synced: bool,
    /// What is asked of the body, and whether the answer still counts.
    asks: Option<(CutAsks, bool)>,
}

impl Cut {
    fn is_known(&self) -> bool {
        self.hashes.iter().all(Option::is_some)
    }

    /// It is read, which takes a moment.
    fn is_read_soon(&self) -> bool {
        self.hashes.len() <= SHORT_PIECES && !self.is_known()
    }
}

/// A version of which all is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CutVersion {
    /// The file.
    pub(crate) ino: Ino,
    /// Its length.
    pub(crate) size: u64,
    /// The hashes of its pieces.
    pub(crate) hashes: Vec<u128>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cutting {
    uncut: BTreeMap<Ino, Changed>,
    /// Those of which no version is being cut.
    due: DueQueue<Ino>,
    /// When users have changed any file last.
    changed_ms: u64,
    cuts: BTreeMap<Ino, Cut>,
    /// Files of which a version was cut a moment ago: when there may be another one.
    apart: DueQueue<Ino>,
}

impl Cutting {
    /// A file was uncut when the site began.
    pub(crate) fn was_uncut(&mut self, ino: Ino) {
        self.uncut.insert(ino, Changed { first_ms: 0, last_ms: 0, after_ms: 0 });
        self.due.set(ino, 0);
    }

    /// A file has become uncut, before a user changes it.
    pub(crate) fn is_uncut(&mut self, ino: Ino, now_ms: u64) {
        self.changed_ms = now_ms;
        let changed = self.begins(ino, now_ms);
        self.uncut.insert(ino, changed);
        self.due.set(ino, changed.due_ms());
    }

    fn begins(&self, ino: Ino, now_ms: u64) -> Changed {
        Changed { first_ms: now_ms, last_ms: now_ms, after_ms: self.apart.when(ino).unwrap_or(0) }
    }

    /// A user has changed these bytes of a file, or its length to `size`.
    pub(crate) fn changed(&mut self, ino: Ino, size: u64, ranges: &ByteRanges, now_ms: u64) {
        self.changed_ms = now_ms;
        let new = self.begins(ino, now_ms);
        let changed = self.uncut.entry(ino).or_insert(new);
        changed.last_ms = now_ms;
        let Some(cut) = self.cuts.get_mut(&ino) else { return self.due.set(ino, changed.due_ms()) };
        cut.is_synced = false;
        let was = std::mem::replace(&mut cut.size, size);
        cut.hashes.resize(pieces::count(size) as usize, None);
        let touched: Vec<u64> = pieces::touched(ranges).collect();
        let is_other = |nth: u64| {
            touched.contains(&nth)
                || nth >= pieces::count(was)
                || pieces::range(nth, was) != pieces::range(nth, size)
        };
        for (nth, hash) in (0..).zip(&mut cut.hashes) {
            if is_other(nth) {
                *hash = None;
                cut.read.remove(&nth);
            }
        }
        if let Some((asks, counts)) = &mut cut.asks {
            *counts &= matches!(asks, CutAsks::Piece(nth) if !is_other(*nth));
        }
    }

    /// A version of a file is due now.
    pub(crate) fn is_due(&mut self, ino: Ino) {
        if let Some(changed) = self.uncut.get_mut(&ino) {
            changed.first_ms = 0;
            if !self.cuts.contains_key(&ino) {
                self.due.set(ino, changed.due_ms());
            }
        }
    }

    /// The pieces that were read for a version, or the first of them.
    pub(crate) fn read(&self, ino: Ino) -> BTreeMap<u64, Bytes> {
        self.cuts.get(&ino).map(|cut| cut.read.clone()).unwrap_or_default()
    }

    /// A version of a file was cut.
    pub(crate) fn cut(&mut self, ino: Ino, now_ms: u64) {
        self.is_clean(ino);
        self.apart.set(ino, now_ms.saturating_add(APART_MS));
    }

    /// A file has no bytes any more that no version has, or is gone.
    pub(crate) fn is_clean(&mut self, ino: Ino) {
        self.uncut.remove(&ino);
        self.due.remove(ino);
        self.cuts.remove(&ino);
    }

    /// Whether no file is uncut.
    pub(crate) fn is_quiet(&self) -> bool {
        self.uncut.is_empty()
    }

    /// Begins what is due.
    pub(crate) fn begin(&mut self, rows: &SiteRows<'_>, now_ms: u64) -> Result<(), Vec<RowLoad>> {
        let over: Vec<Ino> = self.apart.due(now_ms).collect();
        over.into_iter().for_each(|ino| self.apart.remove(ino));
        let is_quiet = now_ms >= self.changed_ms + QUIET_MS;
        if !is_quiet && self.due.first_ms().is_some_and(|first_ms| now_ms < first_ms + GATHER_MS) {
            return Ok(());
        }
        let room = CUTS_MAX - self.cuts.len();
        let due: Vec<Ino> = self.due.due(now_ms).take(room).collect();
        for ino in due {
            let found = of_file(rows, ino);
            rows.loaded()?;
            match found {
                Some(cut) if cut.size <= pieces::FILE_BYTES_MAX => {
                    self.due.remove(ino);
                    self.cuts.insert(ino, cut);
                }
                Some(_) => self.later(ino, now_ms + AGAIN_MS),
                None => self.is_clean(ino),
            }
        }
        Ok(())
    }

    /// Something is asked of a body, if nothing else is to come before.
    pub(crate) fn ask(&mut self, work: &mut Work) -> Option<WorkOp> {
        let asked = |cut: &Cut| -> Option<CutAsks> {
            let unknown = (0..).zip(&cut.hashes).find_map(|(nth, hash)| hash.is_none().then_some(nth));
            cut.asks.is_none().then_some(unknown)?.map(CutAsks::Piece)
        };
        let to_read = self.cuts.iter().find_map(|(ino, cut)| Some((*ino, asked(cut)?)));
        let (ino, asks) = to_read.or_else(|| self.to_sync().map(|ino| (ino, CutAsks::Sync)))?;
        let cut = self.cuts.get_mut(&ino).expect("just found");
        let op = match asks {
            CutAsks::Piece(nth) => {
                let range = pieces::range(nth, cut.size);
                let len = (range.end - range.start) as u32;
                Op::Read { ino, offset: range.start, len }
            }
            CutAsks::Sync => Op::Fsync { ino },
        };
        cut.asks = Some((asks, true));
        Some(work.begin(WorkFor::Cut(ino), op, Default::default()))
    }

    /// A file that is to be synced next. If others are read soon, they are synced together with it.
    fn to_sync(&self) -> Option<Ino> {
        let is_next = |cut: &Cut| cut.asks.is_none() && !cut.is_synced && cut.is_known();
        let next = self.cuts.iter().find_map(|(ino, cut)| is_next(cut).then_some(*ino));
        next.filter(|_| !planted(Bug::CutUnsynced) && !self.cuts.values().any(Cut::is_read_soon))
    }

    /// The body of a file has answered.
    pub(crate) fn did(&mut self, ino: Ino, done: Result<Bytes, ()>, now_ms: u64) {
        let Some(cut) = self.cuts.get_mut(&ino) else { return };
        let Some((asks, counts)) = cut.asks.take() else { return };
        match (asks, done) {
            (_, Err(())) => self.later(ino, now_ms + AGAIN_MS),
            (CutAsks::Piece(nth), Ok(bytes)) if counts => {
                let range = pieces::range(nth, cut.size);
                if bytes.len() as u64 == range.end - range.start
                    && let Some(hash) = cut.hashes.get_mut(nth as usize)
                {
                    *hash = Some(pieces::hash(&bytes));
                    if cut.read.len() < PIECES_MAX {
                        cut.read.insert(nth, bytes);
                    }
                }
            }
            (CutAsks::Sync, Ok(_)) => cut.is_synced = counts,
            (CutAsks::Piece(_), Ok(_)) => {}
        }
    }

    /// A version of a file cannot be cut yet.
    pub(crate) fn not_yet(&mut self, ino: Ino, now_ms: u64) {
        self.later(ino, now_ms + NOT_YET_MS);
    }

    /// A version of a file is not cut before this time.
    fn later(&mut self, ino: Ino, after_ms: u64) {
        self.cuts.remove(&ino);
        if let Some(changed) = self.uncut.get_mut(&ino) {
            changed.after_ms = after_ms;
            self.due.set(ino, changed.due_ms());
        }
    }

    /// Versions of which all is known, at most so many; not of files in whose bodies somebody is, as these may have other bytes already.
    /// None while others are being synced: they are decided together.
    pub(crate) fn ready(&self, most: usize, busy: &BTreeSet<Ino>) -> Vec<CutVersion> {
        if self.cuts.values().any(|cut| matches!(cut.asks, Some((CutAsks::Sync, _)))) {
            return Vec::new();
        }
        let whole = |(ino, cut): (&Ino, &Cut)| {
            if busy.contains(ino) {
                return None;
            }
            let hashes = cut.hashes.iter().copied().collect::<Option<Vec<u128>>>()?;
            let is_synced = cut.is_synced || planted(Bug::CutUnsynced);
            is_synced.then_some(CutVersion { ino: *ino, size: cut.size, hashes })
        };
        within_a_record(self.cuts.iter().filter_map(whole), |version| version.hashes.len(), most)
    }
}

/// The version of a file that is to be cut, with the hashes that are known; none if it is not uncut.
fn of_file(rows: &SiteRows<'_>, ino: Ino) -> Option<Cut> {
    let row = rows.inode(ino).filter(|row| row.attr.nlink > 0)?;
    let beside = FileBeside::read(row.beside.as_ref()?).expect("this site has written it");
    let FileBytes { has, is_uncut, written, .. } = beside.bytes;
    if !is_uncut {
        return None;
    }
    let size = row.attr.size;
    if size > pieces::FILE_BYTES_MAX {
        return Some(Cut { size, hashes: Vec::new(), read: BTreeMap::new(), is_synced: false, asks: None });
    }
    let touched: Vec<u64> = pieces::touched(&written).collect();
    let known = has.map_or_else(Vec::new, |has| of_version(rows, ino, has));
    let old = has.map_or(0, |has| has.size);
    let hash = |nth: u64| {
        let is_same = !touched.contains(&nth) && pieces::range(nth, old) == pieces::range(nth, size);
        known.get(nth as usize).copied().filter(|_| is_same)
    };
    let hashes = (0..pieces::count(size)).map(hash).collect();
    Some(Cut { size, hashes, read: BTreeMap::new(), is_synced: false, asks: None })
}

/// The first ones, at most so many, whose hashes of pieces fit into one record.
pub(crate) fn within_a_record<T>(
    all: impl Iterator<Item = T>,
    pieces: impl Fn(&T) -> usize,
    most: usize,
) -> Vec<T> {
    let mut left = pieces::RECORD_PIECES;
    let fits = |one: &T| {
        let count = pieces(one);
        let fits = count <= left;
        left = left.saturating_sub(count);
        fits
    };
    all.take_while(fits).take(most).collect()
}

/// The hash of a piece of a version that a body has.
pub(crate) fn of_piece(rows: &SiteRows<'_>, ino: Ino, has: BodyVersion, nth: u64) -> Option<u128> {
    if pieces::count(has.size) == 1 {
        return Some(has.root).filter(|_| nth == 0);
    }
    let row = rows.pieces(ino, nth / pieces::ROW_PIECES as u64)?;
    row.get((nth % pieces::ROW_PIECES as u64) as usize).copied()
}

/// The hashes of the pieces of a version that a body has.
pub(crate) fn of_version(rows: &SiteRows<'_>, ino: Ino, has: BodyVersion) -> Vec<u128> {
    match pieces::count(has.size) {
        0 => Vec::new(),
        1 => vec![has.root],
        _ => (0..pieces::rows(Some(has))).flat_map(|nth| rows.pieces(ino, nth).unwrap_or_default()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use atoll_state::State;

    use super::*;

    #[test]
    fn a_version_is_due_soon_behind_the_last_change_and_a_second_behind_the_one_before() {
        let (ino, ranges) = (Ino(1), ByteRanges::default());
        let mut cutting = Cutting::default();
        let due = |cutting: &mut Cutting, now_ms| {
            cutting.changed(ino, 1, &ranges, now_ms);
            cutting.due.when(ino)
        };
        assert_eq!(due(&mut cutting, 10_000), Some(10_200));
        assert_eq!(due(&mut cutting, 10_100), Some(10_300));
        cutting.cut(ino, 10_300);
        assert_eq!(cutting.due.when(ino), None);
        assert_eq!(due(&mut cutting, 10_400), Some(11_300));
        assert_eq!(due(&mut cutting, 11_250), Some(11_450));
        cutting.cut(ino, 11_450);
        let state = State::new(1);
        cutting.begin(&SiteRows::new(&state), 12_450).expect("it needs no row");
        assert!(cutting.apart.due(u64::MAX).next().is_none(), "nothing is kept of it");
        assert_eq!(due(&mut cutting, 12_500), Some(12_700));
        // Somebody who never stops.
        for at in (12_600..42_500).step_by(100) {
            due(&mut cutting, at);
        }
        assert_eq!(due(&mut cutting, 42_450), Some(42_500));
    }
}
