//! What a site has changed, as other sites get it: bundles in memory, in the order of their records. Never decides what is in one.

use std::collections::VecDeque;

use atoll_causal::{DirChange, DirHead, FileChange, FileId, FileState};
use atoll_core::{Encode, wire_enum, wire_struct};
use atoll_spine::SpineMove;

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

wire_struct! {
    /// What one record does to objects, at most once to each: in the order of the dots, and then the move of directories, if there is one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Bundle {
        /// Position of the record.
        pub position: u64,
        /// They.
        pub changes: Vec<BundleChange>,
    }
}

/// Bundles of the last records, as many as fit. What is not here any more another site gets by the feed, as whole states.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// With the length of each, encoded.
    bundles: VecDeque<(Bundle, usize)>,
    bytes: usize,
    /// The position of the last record that changed objects and is not here.
    gone: u64,
}

impl Made {
    /// Bundles in memory.
    const COUNT_MAX: usize = 4_096;
    /// Bytes of them, encoded.
    const BYTES_MAX: usize = 8 << 20;

    /// None, of a site whose last record that changed objects is that one.
    pub(super) const fn behind(position: u64) -> Self {
        Self { bundles: VecDeque::new(), bytes: 0, gone: position }
    }

    /// One more. The oldest go, as far as they do not fit.
    pub(super) fn push(&mut self, bundle: Bundle) {
        let bytes = bundle.encoded_len();
        self.bytes += bytes;
        self.bundles.push_back((bundle, bytes));
        while self.bundles.len() > Self::COUNT_MAX || self.bytes > Self::BYTES_MAX {
            let (oldest, bytes) = self.bundles.pop_front().expect("what is too much is there");
            self.bytes -= bytes;
            self.gone = oldest.position;
        }
    }

    /// Those of records behind `after` up to `upto`, in order; none if some of them are gone.
    pub(super) fn between(&self, after: u64, upto: u64) -> Option<impl Iterator<Item = &Bundle>> {
        if after < self.gone {
            return None;
        }
        let first = self.bundles.partition_point(|(bundle, _)| bundle.position <= after);
        let bundles = self.bundles.range(first..).map(|(bundle, _)| bundle);
        Some(bundles.take_while(move |bundle| bundle.position <= upto))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::root_head;

    fn bundle(position: u64, births: usize) -> Bundle {
        let born = || BundleChange::DirBorn { id: FileId::ROOT, head: Box::new(root_head(0o755, 0, 0)) };
        Bundle { position, changes: (0..births).map(|_| born()).collect() }
    }

    fn positions(made: &Made, after: u64, upto: u64) -> Option<Vec<u64>> {
        Some(made.between(after, upto)?.map(|bundle| bundle.position).collect())
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
        let births = Made::BYTES_MAX / 4 / bundle(1, 1).encoded_len();
        let mut made = Made::behind(0);
        (1..=9).for_each(|position| made.push(bundle(position, births)));
        assert!(made.bytes <= Made::BYTES_MAX);
        assert_eq!(positions(&made, 4, 9), None);
        assert_eq!(positions(&made, 5, 9), Some(vec![6, 7, 8, 9]));
        made.push(bundle(10, 5 * births));
        assert_eq!((made.bytes, positions(&made, 9, 10)), (0, None), "one that is too large is not kept");
        assert_eq!(positions(&made, 10, 11), Some(vec![]));
    }
}
