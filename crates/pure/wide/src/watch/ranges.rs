//! Which bytes of a file a record changes. Never has the bytes themselves.

use std::collections::BTreeSet;
use std::ops::Range;

use atoll_core::{Decode, Encode, Malformed, Reader};
use atoll_proto::BodyChange;

/// Ranges of the bytes of a file, in order. They neither overlap nor touch, and none is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ByteRanges(Vec<Range<u64>>);

impl ByteRanges {
    /// Ranges that are kept of a file.
    pub const KEPT_MAX: usize = 64;

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

    /// At most [`Self::KEPT_MAX`] ranges: if there are more, the smallest gaps between them belong to them from here on.
    pub fn join_nearest(&mut self) {
        let more = self.0.len().saturating_sub(Self::KEPT_MAX);
        let pairs = self.0.windows(2).zip(1..);
        let mut gaps: Vec<(u64, usize)> = pairs.map(|(pair, at)| (pair[1].start - pair[0].end, at)).collect();
        gaps.sort_unstable();
        let filled: BTreeSet<usize> = gaps[..more].iter().map(|(_, at)| *at).collect();
        for (at, range) in std::mem::take(&mut self.0).into_iter().enumerate() {
            match self.0.last_mut() {
                Some(last) if filled.contains(&at) => last.end = range.end,
                _ => self.0.push(range),
            }
        }
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

impl Encode for ByteRanges {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        for range in &self.0 {
            range.start.encode(out);
            range.end.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        size_of::<u32>() + self.0.len() * 2 * size_of::<u64>()
    }
}

impl Decode for ByteRanges {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let malformed = Malformed::new("byte ranges");
        let count = u32::decode(r)? as usize;
        if count > Self::KEPT_MAX {
            return Err(malformed);
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for _ in 0..count {
            let range = u64::decode(r)?..u64::decode(r)?;
            if range.is_empty() || ranges.last().is_some_and(|last| last.end >= range.start) {
                return Err(malformed);
            }
            ranges.push(range);
        }
        Ok(Self(ranges))
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

    #[test]
    fn of_too_many_ranges_those_are_joined_that_are_nearest() {
        let max = ByteRanges::KEPT_MAX as u64;
        let mut ranges = ByteRanges::default();
        // Gaps of 100 bytes, but for one of 7 and one of 8.
        for nth in 0..max {
            ranges.add(nth * 200..nth * 200 + 100);
        }
        let all = ranges.clone();
        ranges.join_nearest();
        assert_eq!(ranges, all, "so many are kept");
        ranges.add(107..150);
        ranges.add(408..409);
        ranges.add(300..301);
        ranges.join_nearest();
        let kept: Vec<(u64, u64)> = ranges.iter().take(3).map(|range| (range.start, range.end)).collect();
        assert_eq!(kept, [(0, 150), (200, 301), (400, 500)]);
        ranges.add(max * 200 + 9..max * 200 + 10);
        ranges.join_nearest();
        assert_eq!(ranges.iter().len() as u64, max);
        assert!(
            all.iter()
                .all(|range| ranges.iter().any(|kept| kept.start <= range.start && range.end <= kept.end))
        );
        assert_eq!(ranges.iter().next(), Some(&(0..301)), "the gap of 50 bytes is the smallest one");
    }

    #[test]
    fn bytes_of_ranges_that_are_not_in_order_or_too_many_are_refused() {
        let bytes = |of: &[(u64, u64)]| {
            let mut bytes = (of.len() as u32).to_vec();
            of.iter().for_each(|range| range.encode(&mut bytes));
            bytes
        };
        let read = |of: &[(u64, u64)]| ByteRanges::from_slice(&bytes(of));
        let mut ranges = ByteRanges::default();
        ranges.add(1..2);
        ranges.add(3..9);
        assert_eq!(ranges.to_vec(), bytes(&[(1, 2), (3, 9)]));
        assert_eq!(read(&[(1, 2), (3, 9)]), Ok(ranges));
        for wrong in [&[(2, 2)][..], &[(3, 2)], &[(1, 2), (2, 3)], &[(5, 6), (1, 2)], &[(1, 5), (3, 9)]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        let many: Vec<(u64, u64)> =
            (0..=ByteRanges::KEPT_MAX as u64).map(|at| (2 * at, 2 * at + 1)).collect();
        assert!(read(&many[1..]).is_ok());
        assert!(read(&many).is_err());
    }
}
