//! Which bytes of a file a record changes. Never has the bytes themselves.

use std::ops::Range;

use atoll_proto::BodyChange;

/// Ranges of the bytes of a file, in order. They neither overlap nor touch, and none is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ByteRanges(Vec<Range<u64>>);

impl ByteRanges {
    /// The bytes of a file below its new length `size` that may differ from before, when it had `size_before` bytes. `sums` are the bytes
    /// of the blocks that get checksums: if nothing is done to the body, a recovery has found other bytes there.
    pub(super) fn changed(size_before: u64, size: u64, body: &[&BodyChange], sums: &[Range<u64>]) -> Self {
        let mut ranges = Self::default();
        // What is behind the old end and was not written reads as zeros.
        ranges.add(size_before..size);
        for change in body {
            match change {
                BodyChange::Bytes { offset, bytes, .. } => ranges.add(*offset..offset + bytes.len() as u64),
                BodyChange::Extent { offset, len, .. } | BodyChange::Zero { offset, len, .. } => {
                    ranges.add(*offset..offset.saturating_add(*len));
                }
                // The lengths tell a cut. What is reserved reads as before.
                BodyChange::Cut { .. } | BodyChange::Allocate { .. } | BodyChange::Drop { .. } => {}
            }
        }
        if body.is_empty() {
            sums.iter().for_each(|range| ranges.add(range.clone()));
        }
        ranges.cut(size);
        ranges
    }

    /// These bytes too.
    pub fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let end = self.0.partition_point(|known| known.start <= range.end);
        for known in self.0.drain(first..end) {
            range = range.start.min(known.start)..range.end.max(known.end);
        }
        self.0.insert(first, range);
    }

    /// Only those below `size`.
    pub fn cut(&mut self, size: u64) {
        self.0.retain_mut(|range| {
            range.end = range.end.min(size);
            !range.is_empty()
        });
    }

    /// There are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// They, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Range<u64>> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of these ranges when each is added.
    fn joined(of: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut ranges = ByteRanges::default();
        of.iter().for_each(|(start, end)| ranges.add(*start..*end));
        ranges.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        assert_eq!(joined(&[(10, 20), (30, 40), (20, 25)]), [(10, 25), (30, 40)]);
        assert_eq!(joined(&[(10, 20), (30, 40), (15, 35)]), [(10, 40)]);
        assert_eq!(joined(&[(10, 20), (30, 40), (0, 50)]), [(0, 50)]);
        assert_eq!(joined(&[(10, 20), (12, 15), (0, 9)]), [(0, 9), (10, 20)]);
        assert_eq!(joined(&[(5, 5)]), []);
    }

    #[test]
    fn a_set_of_bytes_is_the_same_in_whichever_order_it_is_added() {
        // Each byte by itself, so that what was added is known without ranges.
        for seed in 0..2000_u64 {
            let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut known = [false; 64];
            let mut ranges = ByteRanges::default();
            for _ in 0..6 {
                bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (start, len) = (bits >> 40 & 63, bits >> 50 & 15);
                let end = (start + len).min(64);
                ranges.add(start..end);
                known[start as usize..end as usize].fill(true);
            }
            let size = bits >> 58;
            ranges.cut(size);
            known[size as usize..].fill(false);
            let has = |at: u64| ranges.iter().any(|range| range.contains(&at));
            assert!((0..64).all(|at| has(at) == known[at as usize]), "seed {seed}: {ranges:?}");
            assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}: {ranges:?}");
            assert!(ranges.iter().all(|range| !range.is_empty()), "seed {seed}: {ranges:?}");
        }
    }
}
