//! Counts the blocks that a file takes on its disk, as `stat` shows them. Never asks the disk.
//!
//! Reserved space and holes both read as zeros, and checksums do not tell them apart. So the count follows
//! from known facts: which blocks get bytes or lose them, and that a file takes no more blocks than lie
//! within it and outside of a hole that was just punched. The count is right for files that were written, and
//! for files that were reserved as a whole. For others it is an estimate.

use atoll_core::sum::BLOCK_BYTES;

use crate::rows::files::blocks;

/// Bytes of the unit in which `stat` counts.
const UNIT_BYTES: u64 = 512;
/// Such units in a block.
const UNITS: u64 = BLOCK_BYTES / UNIT_BYTES;

fn with_bytes(sums: &[u32]) -> u64 {
    sums.iter().filter(|sum| **sum != 0).count() as u64 * UNITS
}

/// After a write into a file that then has `size` bytes. Checksums of the blocks that were written.
pub(crate) fn after_write(taken: u64, size: u64, old: &[u32], new: &[u32]) -> u64 {
    // Into reserved blocks, bytes come without taking anything.
    let most = taken.max(blocks(size) * UNITS);
    (taken + with_bytes(new)).saturating_sub(with_bytes(old)).min(most)
}

/// After zeros were put into a file of `size` bytes, where `whole` blocks were zeroed as a whole.
pub(crate) fn after_zero(taken: u64, size: u64, whole: u64, old: &[u32], new: &[u32]) -> u64 {
    // Among them reserved ones, which no checksum shows.
    let most = taken.max(blocks(size) * UNITS).saturating_sub(whole * UNITS);
    (taken + with_bytes(new)).saturating_sub(with_bytes(old)).min(most)
}

/// After a range was reserved in a file that then has `size` bytes.
pub(crate) fn after_allocate(taken: u64, size: u64, offset: u64, len: u64) -> u64 {
    let end = offset + len;
    let range = blocks(end) - offset / BLOCK_BYTES;
    let most = taken.max(blocks(size.max(end)) * UNITS);
    (taken + range * UNITS).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Units that so many bytes take.
    const fn units(bytes: u64) -> u64 {
        bytes / UNIT_BYTES
    }

    #[test]
    fn a_hole_in_reserved_space_gives_it_back() {
        let reserved = after_allocate(0, 10 * MIB, 0, 10 * MIB);
        assert_eq!(reserved, units(10 * MIB));
        let whole = 8 * MIB / BLOCK_BYTES;
        let zeros = vec![0; whole as usize];
        let left = after_zero(reserved, 10 * MIB, whole, &zeros, &zeros);
        assert_eq!(left, units(2 * MIB));
        // The same once more gives nothing back.
        assert_eq!(after_zero(left, 10 * MIB, whole, &zeros, &zeros), left);
    }

    #[test]
    fn a_write_into_reserved_space_takes_no_more() {
        let reserved = after_allocate(0, 10 * MIB, 0, 10 * MIB);
        assert_eq!(after_write(reserved, 10 * MIB, &[0; 256], &[7; 256]), reserved);
        // Beyond its end, too, where the length was kept.
        assert_eq!(after_write(reserved, MIB, &[0; 256], &[7; 256]), reserved);
    }

    #[test]
    fn blocks_of_a_sparse_file_are_those_with_bytes() {
        let sparse = after_write(0, 100 * MIB, &[0; 2], &[7; 2]);
        assert_eq!(sparse, units(2 * BLOCK_BYTES));
        assert_eq!(after_write(sparse, 100 * MIB, &[7; 2], &[8; 2]), sparse);
        assert_eq!(after_zero(sparse, 100 * MIB, 1, &[8, 8], &[0, 9]), units(BLOCK_BYTES));
    }

    #[test]
    fn what_is_reserved_far_out_takes_only_that() {
        assert_eq!(after_allocate(0, 1 << 30, (1 << 30) - BLOCK_BYTES, BLOCK_BYTES), units(BLOCK_BYTES));
        assert_eq!(after_allocate(units(MIB), MIB, 0, MIB), units(MIB));
        assert_eq!(after_allocate(0, 0, 100, 1), units(BLOCK_BYTES));
    }
}
