//! What a site says of directories that another one may not know: the places that they have, and had since its cut.
//!
//! Owns the form of evidence, and refuses bytes that do not have it. Which directories belong to it is decided in
//! `spine`, and what is taken from it in `receive`.

use atoll_causal::{FileId, HybridStamp};
use atoll_core::{Decode, Encode, Malformed, Reader};

use crate::record::SpineMove;
use crate::tree::SpinePlace;

/// The places of directories as their sender knows them: of each the place as of the sender's cut, or of its birth if
/// that was later, and then the places that moves gave it since, in the order of stamps. With each directory that is
/// a parent in it, it has this directory too, up to the root. So a receiver that knows none of them knows where they
/// are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence(Vec<(FileId, Vec<SpinePlace>)>);

impl Evidence {
    /// Directories in one piece of evidence.
    pub const DIRS_MAX: usize = 4096;

    /// Sorted by directory, without the root.
    pub(crate) fn new(dirs: Vec<(FileId, Vec<SpinePlace>)>) -> Result<Self, Malformed> {
        let evidence = Self(dirs);
        if evidence.has_form() { Ok(evidence) } else { Err(Malformed::new("evidence")) }
    }

    /// The places of each directory, the earliest first.
    pub fn dirs(&self) -> &[(FileId, Vec<SpinePlace>)] {
        &self.0
    }

    /// The places of a directory, the earliest first; none if it says nothing of it.
    pub fn of(&self, dir: FileId) -> &[SpinePlace] {
        match self.0.binary_search_by_key(&dir, |(dir, _)| *dir) {
            Ok(at) => &self.0[at].1,
            Err(_) => &[],
        }
    }

    /// Whether it says something of the directory; of the root there is nothing to say.
    pub(crate) fn has(&self, dir: FileId) -> bool {
        dir == FileId::ROOT || !self.of(dir).is_empty()
    }

    /// The latest stamp in it.
    pub(crate) fn latest(&self) -> HybridStamp {
        let last = self.0.iter().filter_map(|(_, places)| places.last());
        last.map(|place| place.since).max().unwrap_or(HybridStamp::ZERO)
    }

    fn has_form(&self) -> bool {
        self.0.len() <= Self::DIRS_MAX
            && self.0.is_sorted_by(|(a, _), (b, _)| a < b)
            && self.0.iter().all(|(dir, places)| {
                *dir != FileId::ROOT
                    && !places.is_empty()
                    && places.is_sorted_by(|a, b| a.since < b.since)
                    && places.iter().all(|place| place.since.time_us <= SpineMove::TIME_US_MAX)
                    && places.iter().all(|place| place.parent != *dir && self.has(place.parent))
            })
    }
}

impl Encode for Evidence {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Evidence {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::new(Vec::decode(r)?)
    }
}
