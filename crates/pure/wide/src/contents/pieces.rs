//! Pieces of files, and hashes over them: what two sites compare of the bytes of a file. Reads no body.

use std::ops::Range;

use atoll_core::Ino;
use atoll_proto::RowChange;

use crate::rows::{BodyVersion, PIECES, PiecesRow, pieces_key, remove, set};
use crate::watch::ByteRanges;

/// Bytes of a piece: all of a file's have so many, but for the last one.
pub const PIECE_BYTES: u64 = 256 << 10;
/// Bytes of the largest file: the hashes of its pieces fit into one record.
pub const FILE_BYTES_MAX: u64 = 32 << 30;
/// Hashes of pieces in one record.
pub const RECORD_PIECES: usize = (FILE_BYTES_MAX / PIECE_BYTES) as usize;
/// Hashes in one row.
pub const ROW_PIECES: usize = 1_024;
/// The hash of no bytes.
pub const NO_BYTES: u128 = 0xaf13_49b9_f5f9_a1a6_a040_4dea_36dc_c949;

/// The first 128 bits of the BLAKE3 hash of some bytes.
pub fn hash(bytes: &[u8]) -> u128 {
    let hash = blake3::hash(bytes);
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    u128::from_be_bytes(*first)
}

/// The hash of a file by those of its pieces: of one piece it is its own.
pub fn root(pieces: &[u128]) -> u128 {
    match pieces {
        [] => NO_BYTES,
        [only] => *only,
        pieces => hash(&pieces.iter().flat_map(|piece| piece.to_be_bytes()).collect::<Vec<u8>>()),
    }
}

/// How many pieces a file of this length has.
pub const fn count(size: u64) -> u64 {
    size.div_ceil(PIECE_BYTES)
}

/// The bytes of a piece of a file of this length.
pub fn range(nth: u64, size: u64) -> Range<u64> {
    nth * PIECE_BYTES..((nth + 1) * PIECE_BYTES).min(size)
}

/// The pieces in which bytes of these ranges are.
pub fn touched(ranges: &ByteRanges) -> impl Iterator<Item = u64> {
    let of = |range: &Range<u64>| range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES);
    let mut next = 0;
    ranges.iter().flat_map(of).filter(move |nth| {
        let is_new = *nth >= next;
        next = next.max(nth + 1);
        is_new
    })
}

/// How many rows of hashes a file has with this version.
pub const fn rows(has: Option<BodyVersion>) -> u64 {
    match has {
        Some(has) if has.size > PIECE_BYTES => count(has.size).div_ceil(ROW_PIECES as u64),
        _ => 0,
    }
}

/// The rows of hashes of a file that has this version go.
pub fn no_rows(ino: Ino, has: Option<BodyVersion>) -> impl Iterator<Item = RowChange> {
    (0..rows(has)).map(move |nth| remove(PIECES, pieces_key(ino, nth)))
}

/// The rows of hashes of a file change, which had a version with others.
pub fn new_rows(ino: Ino, had: Option<BodyVersion>, pieces: &[u128]) -> Vec<RowChange> {
    let pieces = if pieces.len() > 1 { pieces } else { &[] };
    let new = (0..).zip(pieces.chunks(ROW_PIECES));
    let mut changes: Vec<RowChange> = new
        .map(|(nth, hashes)| {
            set(PIECES, pieces_key(ino, nth), &PiecesRow::Pieces { hashes: hashes.to_vec() })
        })
        .collect();
    let left = changes.len() as u64..rows(had);
    changes.extend(left.map(|nth| remove(PIECES, pieces_key(ino, nth))));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_nothing_and_of_one_piece_is_that_of_the_bytes() {
        assert_eq!(hash(b""), NO_BYTES);
        assert_eq!((root(&[]), root(&[7])), (NO_BYTES, 7));
        assert_ne!(root(&[7, 8]), root(&[8, 7]));
    }

    #[test]
    fn pieces_of_a_file_follow_each_other_and_the_last_one_ends_with_it() {
        assert_eq!((count(0), count(1), count(PIECE_BYTES), count(PIECE_BYTES + 1)), (0, 1, 1, 2));
        assert_eq!(range(0, 5), 0..5);
        assert_eq!(range(1, PIECE_BYTES + 5), PIECE_BYTES..PIECE_BYTES + 5);
    }

    #[test]
    fn each_piece_in_which_something_has_changed_is_told_once() {
        let mut ranges = ByteRanges::default();
        for range in [5..6, 9..10, PIECE_BYTES - 1..PIECE_BYTES + 1, 3 * PIECE_BYTES..3 * PIECE_BYTES + 1] {
            ranges.add(range);
        }
        assert_eq!(touched(&ranges).collect::<Vec<_>>(), [0, 1, 3]);
    }
}
