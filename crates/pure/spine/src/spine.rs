//! The spine of a site: what it is told of directories, what can be asked, and the judgement of a local move.
//!
//! Owns the log, the tree and the cut. How a record of a move is taken in is in `receive`, how moves are forgotten in
//! `fold`.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{FileId, HybridStamp, Writer};
use atoll_core::Encode;
use atoll_core::planted::{Bug, planted};

use crate::evidence::Evidence;
use crate::fold::SpineCut;
use crate::lost::LostMove;
use crate::record::{MovedDir, SpineMove};
use crate::tree::{SpinePlace, SpineTree};

/// Where directories are, at one site.
///
/// For every directory that is known here, which are those that the site holds, those that the log names and all
/// above them, it has the place that Kleppmann's algorithm computes from all moves that the site has received.
#[derive(Debug, Clone, Default)]
pub struct Spine {
    pub(crate) tree: SpineTree,
    /// The moves later than the cut.
    pub(crate) log: BTreeMap<HybridStamp, Logged>,
    /// What each writer has in the log.
    pub(crate) shares: BTreeMap<Writer, Share>,
    pub(crate) cut: SpineCut,
    /// Directories that folded moves have moved, each with the horizon of the cut: until a cut has passed it, a
    /// record may come whose site did not know of these moves.
    pub(crate) kept: BTreeMap<FileId, HybridStamp>,
}

/// A move in the log.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub(crate) record: SpineMove,
    pub(crate) outcome: MoveOutcome,
}

/// What came of a move, by all that are before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveOutcome {
    /// It has only been put into the log.
    Untried,
    /// Its directories have the places that it gave them, or had until later moves.
    Done,
    /// It has no effect.
    Lost(LostMove),
}

/// What one writer has in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Bytes of its records.
    pub(crate) bytes: usize,
    /// The stamp of its latest one.
    pub(crate) last: HybridStamp,
}

/// Why a local move is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefused {
    /// A directory would be below itself: `EINVAL`.
    #[error("{0:?} would be below itself")]
    Below(FileId),
    /// Too many moves wait for sites that are away: `EBUSY`, until a cut.
    #[error("too many moves of directories have not been seen by all sites yet")]
    Busy,
    /// More directories than [`SpineMove::DIRS_MAX`] would move together.
    #[error("too many directories would move together")]
    TooMany,
}

impl Spine {
    /// Bytes of records of one writer in the log.
    pub const LOG_BYTES_MAX: usize = 64 << 20;

    /// The spine of a site that joins, at the cut of the site that lets it in. It is to [learn](Self::learn) all that
    /// this one [keeps](Self::kept), and [keep](Self::keep) it too, and to receive all [moves](Self::records) that
    /// this one has, before it is a member.
    pub fn begin(cut: SpineCut) -> Self {
        Self { cut, ..Self::default() }
    }

    /// Directories whose places are kept, each with the horizon until which.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = (FileId, HybridStamp)> {
        self.kept.iter().map(|(dir, horizon)| (*dir, *horizon))
    }

    /// Keeps the place of a known directory until a cut has passed the horizon.
    pub fn keep(&mut self, dir: FileId, horizon: HybridStamp) {
        assert!(self.tree.get(dir).is_some(), "{dir:?} is not known");
        self.kept.insert(dir, horizon);
    }

    /// A directory is made here, in one that is known.
    pub fn born(&mut self, dir: FileId, place: SpinePlace) {
        assert!(self.tree.has(place.parent), "{dir:?} is made in an unknown directory");
        self.tree.add(vec![(dir, place)], true);
    }

    /// The site holds a known directory from here on.
    pub fn hold(&mut self, dir: FileId) {
        self.tree.get_mut(dir).held = true;
    }

    /// The site holds it no more. It stays known until no directory and no move needs it.
    pub fn release(&mut self, dir: FileId) {
        self.tree.get_mut(dir).held = false;
        self.tree.loosen(dir);
    }

    /// Where a directory is; none for the root and for one that is not known.
    pub fn place(&self, dir: FileId) -> Option<&SpinePlace> {
        self.tree.get(dir).map(|known| known.place())
    }

    /// Where a directory was as of the cut, or of its birth if that was later; none for the root and for one that is not known.
    pub fn base(&self, dir: FileId) -> Option<&SpinePlace> {
        self.tree.get(dir).map(|known| &known.places[0])
    }

    /// How many directories are known, without the root.
    pub fn known(&self) -> usize {
        self.tree.iter().len()
    }

    /// A known directory and those above it with their places, up to the last one below the root.
    pub fn up(&self, dir: FileId) -> impl Iterator<Item = (FileId, &SpinePlace)> {
        self.tree.up(dir)
    }

    /// The moves that are kept, in their order: those later than the cut.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &SpineMove> {
        self.log.values().map(|logged| &logged.record)
    }

    /// The move with this stamp, if it is kept.
    pub fn record(&self, stamp: HybridStamp) -> Option<&SpineMove> {
        self.log.get(&stamp).map(|logged| &logged.record)
    }

    /// The cut up to which moves are folded.
    pub const fn cut(&self) -> SpineCut {
        self.cut
    }

    /// Judges a move that is made here, of known directories into known ones. The record that it gives is to be
    /// [received](Self::receive) here, and is sent to all sites when it is synced. `give` gives the stamp of a change
    /// that `writer` makes now, later than the stamp that it is told.
    pub fn decide(
        &self,
        writer: Writer,
        mut dirs: Vec<MovedDir>,
        give: impl FnOnce(HybridStamp) -> HybridStamp,
    ) -> Result<SpineMove, MoveRefused> {
        dirs.sort_by_key(|moved| moved.dir);
        assert!(!dirs.is_empty() && dirs.is_sorted_by(|a, b| a.dir < b.dir), "each directory moves once");
        if dirs.len() > SpineMove::DIRS_MAX {
            return Err(MoveRefused::TooMany);
        }
        if let Some(root) = dirs.iter().find(|moved| moved.dir == FileId::ROOT) {
            return Err(MoveRefused::Below(root.dir));
        }
        if let Some(circle) = self.tree.circle(&dirs) {
            return Err(MoveRefused::Below(circle.dir));
        }
        let starts = dirs.iter().flat_map(|moved| [moved.dir, moved.parent]);
        let reach = self.reach(starts).ok_or(MoveRefused::Busy)?;
        let share = self.shares.get(&writer);
        // A clock does not follow stamps that are far ahead, so it may give the same stamp above two of them. A stamp
        // is the name of one move.
        let above = self.latest(&reach).max(share.map_or(HybridStamp::ZERO, |share| share.last));
        let stamp = give(above);
        assert!(stamp > above && stamp > self.cut.upto, "{stamp:?} is before its causes");
        let evidence = self.evidence_of(&reach);
        let bytes = stamp.encoded_len() + dirs.encoded_len() + evidence.encoded_len();
        let in_log = share.map_or(0, |share| share.bytes);
        let fits = bytes <= SpineMove::BYTES_MAX && in_log + bytes <= Self::LOG_BYTES_MAX;
        // Somebody may have sent a move that is later than all times.
        if !fits || stamp.time_us > SpineMove::TIME_US_MAX {
            return Err(MoveRefused::Busy);
        }
        Ok(SpineMove::new(stamp, dirs, evidence).expect("what is decided has the form of a move"))
    }

    /// What to tell a site that fetches these known directories; none if that is more than [`Evidence::DIRS_MAX`]
    /// directories, so that fewer at a time must be fetched, or a cut awaited.
    pub fn evidence(&self, dirs: &[FileId]) -> Option<Evidence> {
        Some(self.evidence_of(&self.reach(dirs.iter().copied())?))
    }

    /// These directories and all that are above them, or were since the cut; none if they are too many. Where a
    /// directory was belongs to it: a site that lacks a move, or has folded further, begins with one of these places.
    /// Where a move without effect would have put it does not: such a move brings that itself.
    fn reach(&self, starts: impl Iterator<Item = FileId>) -> Option<BTreeSet<FileId>> {
        let mut reach = BTreeSet::new();
        let mut next: Vec<FileId> = starts.collect();
        while let Some(dir) = next.pop() {
            if dir == FileId::ROOT || !reach.insert(dir) {
                continue;
            }
            if reach.len() > Evidence::DIRS_MAX {
                return None;
            }
            let known = self.tree.get(dir).expect("what is asked for is known");
            if planted(Bug::ChainOnly) {
                next.push(known.place().parent);
            } else {
                next.extend(known.places.iter().map(|place| place.parent));
            }
        }
        Some(reach)
    }

    /// The latest stamp of a birth or move of these directories. A move without effect counts as well: a local move
    /// before it, which takes its hindrance away, would bring it to life.
    fn latest(&self, reach: &BTreeSet<FileId>) -> HybridStamp {
        let known = reach.iter().filter_map(|dir| self.tree.get(*dir));
        let latest = known.map(|known| known.moves.last().map_or(known.places[0].since, |(stamp, _)| *stamp));
        latest.max().unwrap_or(HybridStamp::ZERO)
    }

    fn evidence_of(&self, reach: &BTreeSet<FileId>) -> Evidence {
        let is_told = |parent| !planted(Bug::ChainOnly) || parent == FileId::ROOT || reach.contains(&parent);
        let places = |dir: &FileId| {
            let known = self.tree.get(*dir).expect("what is in reach is known");
            (*dir, known.places.iter().filter(|place| is_told(place.parent)).cloned().collect())
        };
        Evidence::new(reach.iter().map(places).collect()).expect("what is in reach has the form of evidence")
    }
}
