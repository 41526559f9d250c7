//! What the last records of a site have changed, in memory: the bundles of its users' changes, as other sites get them, and which objects
//! other sites' changes have changed. Never decides what is in one.

use std::collections::VecDeque;

use atoll_causal::{DirChange, DirHead, FileChange, FileId, FileState};
use atoll_core::{Decode, Encode, Malformed, Reader, wire_enum};
use atoll_spine::SpineMove;

use crate::foreign::OBJECTS_MAX;
use crate::rows::{FeedRow, SiteId};

wire_enum! {
    /// What one record does to one object, or a move of the spine.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum BundleChange {
        /// A file is made.
        1 => FileBorn { /// Which.
            id: FileId, /// All of it, its extended attributes too.
            state: Box<FileState> },
        /// A file changes.
        2 => FileChanged { /// Which.
            id: FileId, /// How.
            change: FileChange },
        /// A directory is made. Its base in the spine is the place of its birth.
        3 => DirBorn { /// Which.
            id: FileId, /// All of it.
            head: Box<DirHead> },
        /// A directory changes.
        4 => DirChanged { /// Which.
            id: FileId, /// How.
            change: DirChange },
        /// Directories get other parents.
        5 => DirsMoved { /// The record of the spine.
            record: SpineMove },
    }
}

impl BundleChange {
    /// What it changes.
    pub const fn object(&self) -> FeedRow {
        match self {
            Self::FileBorn { id, .. } | Self::FileChanged { id, .. } => FeedRow::File { id: *id },
            Self::DirBorn { id, .. } | Self::DirChanged { id, .. } => FeedRow::Dir { id: *id },
            Self::DirsMoved { record } => FeedRow::Move { stamp: record.stamp() },
        }
    }
}

/// What one record does to objects, at most once to each: in the order of the dots, and then the move of directories, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Position of the record.
    pub position: u64,
    /// They: at most [`OBJECTS_MAX`] in what comes from another site.
    pub changes: Vec<BundleChange>,
}

impl Encode for Bundle {
    fn encode(&self, out: &mut Vec<u8>) {
        self.position.encode(out);
        self.changes.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.position.encoded_len() + self.changes.encoded_len()
    }
}

impl Decode for Bundle {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bundle = Self { position: u64::decode(r)?, changes: Vec::decode(r)? };
        let is_sound = (1..=OBJECTS_MAX).contains(&bundle.changes.len());
        if is_sound { Ok(bundle) } else { Err(Malformed::new("bundle")) }
    }
}

/// What a record has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MadeRecord {
    /// By users of this site.
    Own(Bundle),
    /// By changes of another site.
    Foreign {
        /// Position of the record.
        position: u64,
        /// The site that told of the changes.
        from: SiteId,
        /// What has changed.
        changed: Vec<FeedRow>,
    },
}

impl MadeRecord {
    /// Position of the record.
    pub const fn position(&self) -> u64 {
        match self {
            Self::Own(bundle) => bundle.position,
            Self::Foreign { position, .. } => *position,
        }
    }

    /// What has changed.
    pub fn changed(&self) -> Vec<FeedRow> {
        match self {
            Self::Own(bundle) => bundle.changes.iter().map(BundleChange::object).collect(),
            Self::Foreign { changed, .. } => changed.clone(),
        }
    }

    /// Bytes in memory, about.
    fn bytes(&self) -> usize {
        match self {
            Self::Own(bundle) => bundle.encoded_len(),
            Self::Foreign { changed, .. } => size_of::<Self>() + changed.encoded_len(),
        }
    }

    /// Whether another site takes it as it is.
    fn can_be_sent(&self) -> bool {
        matches!(self, Self::Foreign { .. }) || self.changed().len() <= OBJECTS_MAX
    }
}

/// What the last records have changed, as many of them as fit. What is not here any more another site gets by the feed, as whole states.
#[derive(Debug, Clone)]
pub struct Made {
    /// With the length of each.
    records: VecDeque<(MadeRecord, usize)>,
    count_max: usize,
    bytes: usize,
    /// The position of the last record that changed objects and is not here.
    gone: u64,
}

impl Made {
    /// Records in memory.
    pub const COUNT_MAX: usize = 4_096;
    /// Bytes of them.
    const BYTES_MAX: usize = 8 << 20;

    /// None, of a site whose last record that changed objects is that one, or one before.
    pub const fn behind(position: u64) -> Self {
        Self::at_most(Self::COUNT_MAX, position)
    }

    /// As [`Self::behind`]; never more than so many.
    pub const fn at_most(count_max: usize, position: u64) -> Self {
        Self { records: VecDeque::new(), count_max, bytes: 0, gone: position }
    }

    /// One more. The oldest go, as far as they do not fit.
    pub fn push(&mut self, record: MadeRecord) {
        assert!(record.position() > self.gone, "records are in order");
        let bytes = record.bytes();
        let is_kept = record.can_be_sent();
        self.bytes += bytes;
        self.records.push_back((record, bytes));
        while self.records.len() > self.count_max
            || self.bytes > Self::BYTES_MAX
            || !is_kept && !self.records.is_empty()
        {
            let (oldest, bytes) = self.records.pop_front().expect("what is too much is there");
            self.bytes -= bytes;
            self.gone = oldest.position();
        }
    }

    /// What records behind `after` up to `upto` have changed, in order; none if some of them are gone.
    pub fn between(&self, after: u64, upto: u64) -> Option<impl Iterator<Item = &MadeRecord>> {
        if after < self.gone {
            return None;
        }
        let first = self.records.partition_point(|(record, _)| record.position() <= after);
        let records = self.records.range(first..).map(|(record, _)| record);
        Some(records.take_while(move |record| record.position() <= upto))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::root_head;

    fn bundle(position: u64, births: usize) -> MadeRecord {
        let born = || BundleChange::DirBorn { id: FileId::ROOT, head: Box::new(root_head(0o755, 0, 0)) };
        MadeRecord::Own(Bundle { position, changes: (0..births).map(|_| born()).collect() })
    }

    /// Of so many bytes.
    fn foreign(position: u64, bytes: usize) -> MadeRecord {
        let one = FeedRow::Dir { id: FileId::ROOT };
        let changed = vec![one; bytes / one.encoded_len()];
        MadeRecord::Foreign { position, from: SiteId(2), changed }
    }

    fn positions(made: &Made, after: u64, upto: u64) -> Option<Vec<u64>> {
        Some(made.between(after, upto)?.map(MadeRecord::position).collect())
    }

    #[test]
    fn bundles_are_given_in_order_up_to_a_synced_position() {
        let mut made = Made::behind(3);
        [5, 6, 9].into_iter().for_each(|position| made.push(bundle(position, 1)));
        assert_eq!(positions(&made, 3, 9), Some(vec![5, 6, 9]));
        assert_eq!(positions(&made, 5, 8), Some(vec![6]));
        assert_eq!(positions(&made, 4, 4), Some(vec![]));
        assert_eq!(positions(&made, 2, 9), None, "what was before the start may have had some");
    }

    #[test]
    fn of_too_many_bundles_the_oldest_go_and_who_needs_them_is_told() {
        let mut made = Made::behind(0);
        let all = 10 + Made::COUNT_MAX as u64;
        (1..=all).for_each(|position| made.push(bundle(position, 1)));
        assert_eq!(positions(&made, 9, all), None);
        assert_eq!(positions(&made, 10, all), Some((11..=all).collect()));
    }

    #[test]
    fn of_too_many_bytes_the_oldest_go() {
        let a_fourth = Made::BYTES_MAX / 4 - 100;
        let mut made = Made::behind(0);
        (1..=9).for_each(|position| made.push(foreign(position, a_fourth)));
        assert!(made.bytes <= Made::BYTES_MAX);
        assert_eq!(positions(&made, 4, 9), None);
        assert_eq!(positions(&made, 5, 9), Some(vec![6, 7, 8, 9]));
        made.push(foreign(10, 5 * a_fourth));
        assert_eq!((made.bytes, positions(&made, 9, 10)), (0, None), "one that is too large is not kept");
        assert_eq!(positions(&made, 10, 11), Some(vec![]));
    }

    #[test]
    fn a_bundle_that_no_site_would_take_is_told_by_the_feed() {
        let mut made = Made::behind(0);
        made.push(bundle(1, OBJECTS_MAX));
        assert_eq!(positions(&made, 0, 9), Some(vec![1]));
        made.push(bundle(2, OBJECTS_MAX + 1));
        assert_eq!((positions(&made, 1, 9), positions(&made, 2, 9)), (None, Some(vec![])));
        for (births, is_read) in [(0, false), (1, true), (OBJECTS_MAX, true), (OBJECTS_MAX + 1, false)] {
            let MadeRecord::Own(bundle) = bundle(1, births) else { unreachable!() };
            assert_eq!(Bundle::from_slice(&bundle.to_vec()).is_ok(), is_read, "{births} births");
        }
    }
}
