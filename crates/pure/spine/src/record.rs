//! The record of a move, as all sites get it.
//!
//! Owns the form of the record and its bounds, and refuses bytes that do not have it. What a move does is decided in
//! `receive`.

use atoll_causal::{FileId, HybridStamp};
use atoll_core::{Decode, Encode, Malformed, Name, Reader};

use crate::evidence::Evidence;

atoll_core::wire_struct! {
    /// One directory of a move, with the place that it is to have.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MovedDir {
        /// Which directory.
        pub dir: FileId,
        /// The directory in which it is to be.
        pub parent: FileId,
        /// Its name there.
        pub name: Name,
    }
}

/// A move of one directory, or of several together: two that change places (`RENAME_EXCHANGE`), or several that are
/// shown as one. All of them move, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpineMove {
    stamp: HybridStamp,
    /// Sorted by directory: the places are taken at once, so their order means nothing.
    dirs: Vec<MovedDir>,
    evidence: Evidence,
}

impl SpineMove {
    /// Directories that one record moves.
    pub const DIRS_MAX: usize = 64;

    /// Bytes of one record, so that it goes into a bundle of 256 KiB with what belongs to it.
    pub const BYTES_MAX: usize = 240 << 10;

    /// The latest time that a stamp may have, in microseconds: half of what fits, so that each stamp has a later one.
    pub const TIME_US_MAX: u64 = u64::MAX / 2;

    /// `dirs` is sorted.
    pub(crate) fn new(
        stamp: HybridStamp,
        dirs: Vec<MovedDir>,
        evidence: Evidence,
    ) -> Result<Self, Malformed> {
        let record = Self { stamp, dirs, evidence };
        if record.has_form() { Ok(record) } else { Err(Malformed::new("move")) }
    }

    /// When it was made and by whom: its place in the order of moves, and its name.
    pub const fn stamp(&self) -> HybridStamp {
        self.stamp
    }

    /// The directories that it moves, sorted.
    pub fn dirs(&self) -> &[MovedDir] {
        &self.dirs
    }

    /// What its site knew of these directories, of their new parents, and of all that are above them or were.
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    fn has_form(&self) -> bool {
        (1..=Self::DIRS_MAX).contains(&self.dirs.len())
            && self.stamp.time_us <= Self::TIME_US_MAX
            && self.dirs.is_sorted_by(|a, b| a.dir < b.dir)
            && self.dirs.iter().all(|moved| {
                moved.dir != FileId::ROOT
                    && moved.dir != moved.parent
                    && self.evidence.has(moved.dir)
                    && self.evidence.has(moved.parent)
            })
            // A move is later than all that it was decided on, births too. Else a site that knows less could undo it.
            && self.evidence.latest() < self.stamp
            && self.encoded_len() <= Self::BYTES_MAX
    }
}

/// The part of a directory among sorted ones.
pub(crate) fn moved(dirs: &[MovedDir], dir: FileId) -> Option<&MovedDir> {
    dirs.binary_search_by_key(&dir, |moved| moved.dir).ok().map(|at| &dirs[at])
}

impl Encode for SpineMove {
    fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        self.dirs.encode(out);
        self.evidence.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.stamp.encoded_len() + self.dirs.encoded_len() + self.evidence.encoded_len()
    }
}

impl Decode for SpineMove {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::new(HybridStamp::decode(r)?, Vec::decode(r)?, Evidence::decode(r)?)
    }
}
