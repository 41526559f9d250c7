//! Versions that were cut a while ago, as far as other sites may still ask for their bytes: what was read of each when it was cut, in memory.
//! Owns which of them stay. Reads nothing.
//!
//! A user goes on to change the file, so its body soon has other bytes. On a slow link every version would be gone before it has come.

use std::collections::BTreeMap;

use atoll_causal::{Dot, FileId, Writer};
use bytes::Bytes;

use super::pieces;
use crate::rows::{BodyVersion, VersionDelta};

/// Pieces that are kept of one version.
pub(super) const PIECES_MAX: usize = 8;
/// Versions that are looked at one behind the other.
const STEPS_MAX: usize = 64;
/// Bytes that are kept of all together.
const BYTES_MAX: usize = 32 << 20;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptVersions {
    versions: BTreeMap<(FileId, Dot), Kept>,
    /// Those that nobody has asked for the longest time go first.
    order: BTreeMap<u64, (FileId, Dot)>,
    bytes: usize,
    last: u64,
}

/// A version.
#[derive(Debug, Clone)]
struct Kept {
    version: CutBefore,
    bytes: usize,
    /// Its place in the order.
    asked: u64,
}

/// What is known of a version that was cut.
#[derive(Debug, Clone)]
pub(crate) struct CutBefore {
    /// Which.
    pub(crate) has: BodyVersion,
    /// The hashes of its pieces.
    pub(crate) hashes: Vec<u128>,
    /// How it differs from the one that it was made from.
    pub(crate) since: Option<VersionDelta>,
    /// What was read of it.
    pub(crate) pieces: BTreeMap<u64, Bytes>,
}

impl CutBefore {
    /// Some bytes of it, if they are here.
    pub(super) fn bytes(&self, offset: u64, len: u32) -> Option<Bytes> {
        let nth = offset / pieces::PIECE_BYTES;
        let from = (offset - nth * pieces::PIECE_BYTES) as usize;
        let piece = self.pieces.get(&nth)?;
        let end = from.checked_add(len as usize).filter(|end| *end <= piece.len())?;
        Some(piece.slice(from..end))
    }
}

impl KeptVersions {
    /// A version was cut.
    pub(super) fn keep(&mut self, file: FileId, version: CutBefore) {
        let key = (file, version.has.dot);
        self.forget(key);
        self.last += 1;
        let bytes = size_of::<Kept>()
            + version.hashes.len() * size_of::<u128>()
            + version.pieces.values().map(Bytes::len).sum::<usize>();
        self.bytes += bytes;
        self.order.insert(self.last, key);
        self.versions.insert(key, Kept { version, bytes, asked: self.last });
        while self.bytes > BYTES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.forget(oldest);
        }
    }

    /// How a version of a file differs from one of those with these bytes, by how it does from the one before, and that one from its own. If
    /// not all of these are known, only from the one before.
    pub(super) fn since(&self, file: FileId, delta: &VersionDelta, base: u128) -> VersionDelta {
        let mut all = delta.clone();
        for _ in 0..STEPS_MAX {
            if all.base == base {
                all.ranges.join_nearest();
                return all;
            }
            let before = self.of(file).find(|(_, kept)| kept.version.has.root == all.base);
            let Some(before) = before.and_then(|(_, kept)| kept.version.since.as_ref()) else { break };
            before.ranges.iter().for_each(|range| all.ranges.add(range.clone()));
            all.base = before.base;
        }
        delta.clone()
    }

    /// Somebody asks for a version.
    pub(super) fn ask(&mut self, file: FileId, dot: Dot) -> Option<&CutBefore> {
        let kept = self.versions.get_mut(&(file, dot))?;
        self.order.remove(&kept.asked);
        self.last += 1;
        kept.asked = self.last;
        self.order.insert(self.last, (file, dot));
        Some(&kept.version)
    }

    /// Whether a version of a file is kept.
    pub(super) fn has_some(&self, file: FileId) -> bool {
        self.of(file).next().is_some()
    }

    /// A file is gone, with all its versions.
    pub(super) fn is_gone(&mut self, file: FileId) {
        let keys: Vec<(FileId, Dot)> = self.of(file).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    fn of(&self, file: FileId) -> impl Iterator<Item = (&(FileId, Dot), &Kept)> {
        let first = (file, Dot { writer: Writer(0), n: 0 });
        self.versions.range(first..).take_while(move |((of, _), _)| *of == file)
    }

    fn forget(&mut self, key: (FileId, Dot)) {
        if let Some(kept) = self.versions.remove(&key) {
            self.bytes -= kept.bytes;
            self.order.remove(&kept.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::ByteRanges;

    const FILE: FileId = FileId(7);

    const fn dot(n: u64) -> Dot {
        Dot { writer: Writer(1), n }
    }

    /// The `n`th version, in which one byte differs from the one before, with so many bytes that were read.
    fn version(n: u64, bytes: usize) -> CutBefore {
        let mut ranges = ByteRanges::default();
        ranges.add(10 * n..10 * n + 1);
        CutBefore {
            has: BodyVersion { dot: dot(n), size: 1_000, root: n.into() },
            hashes: vec![n.into()],
            since: Some(VersionDelta { base: u128::from(n) - 1, ranges }),
            pieces: BTreeMap::from([(0, vec![n as u8; bytes].into())]),
        }
    }

    #[test]
    fn of_too_many_bytes_those_go_that_nobody_has_asked_for_the_longest_time() {
        let mut kept = KeptVersions::default();
        for n in 1..=7 {
            kept.keep(FILE, version(n, BYTES_MAX / 8));
        }
        assert!(kept.ask(FILE, dot(1)).is_some());
        kept.keep(FILE, version(8, BYTES_MAX / 8));
        let left = |kept: &KeptVersions| kept.versions.keys().map(|(_, dot)| dot.n).collect::<Vec<_>>();
        assert_eq!(left(&kept), [1, 3, 4, 5, 6, 7, 8]);
        kept.keep(FILE, version(9, BYTES_MAX));
        assert_eq!((left(&kept), kept.bytes, kept.order.len()), (vec![], 0, 0), "one that does not fit");
    }

    #[test]
    fn how_a_version_differs_from_one_long_ago_is_told_as_far_as_all_between_are_known() {
        let mut kept = KeptVersions::default();
        (1..=9).for_each(|n| kept.keep(FILE, version(n, 1)));
        let last = version(9, 1).since.unwrap();
        let told = |base| {
            let since = kept.since(FILE, &last, base);
            (since.base, since.ranges.iter().map(|range| range.start / 10).collect::<Vec<u64>>())
        };
        assert_eq!(told(8), (8, vec![9]));
        assert_eq!(told(5), (5, vec![6, 7, 8, 9]));
        assert_eq!(told(0), (0, (1..=9).collect()));
        assert_eq!(told(77), (8, vec![9]), "nobody knows it");
        assert_eq!(kept.since(FileId(8), &last, 5), last);
    }

    #[test]
    fn only_bytes_that_were_read_are_given() {
        let version = version(3, 9);
        assert_eq!(version.bytes(2, 7), Some(vec![3; 7].into()));
        assert_eq!((version.bytes(2, 8), version.bytes(pieces::PIECE_BYTES, 1)), (None, None));
    }
}
