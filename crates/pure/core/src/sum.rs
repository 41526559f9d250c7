//! Block checksums, and how a write changes them. Computes; never reads a body.
//!
//! A file's blocks are [`BLOCK_BYTES`] long; the last one ends where the file ends. The checksum of a block
//! is the raw CRC-32C (initial value 0, not inverted) of its bytes below the file's end. So a block of zeros
//! has the checksum 0, whatever its length, and a hole needs no row. The new checksum of a block that grows
//! at its end follows from the old one, without a read.

/// Length of a block in bytes.
pub const BLOCK_BYTES: u64 = 4096;

static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// The checksum of a block with these bytes.
pub fn sum(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

/// The checksum of a block that had `sum` and gets `bytes` at its end.
pub fn extend(sum: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!sum, bytes)
}

/// The checksum of a block that had `sum` and gets `n` zeros at its end, at most [`BLOCK_BYTES`].
pub fn extend_zeros(sum: u32, n: u64) -> u32 {
    assert!(n <= BLOCK_BYTES, "a block has no room for {n} zeros");
    if sum == 0 { 0 } else { extend(sum, &ZEROS[..n as usize]) }
}

/// How many bytes of `block` a file of `size` bytes has.
pub const fn block_len(block: u64, size: u64) -> u64 {
    let len = size.saturating_sub(block.saturating_mul(BLOCK_BYTES));
    if len < BLOCK_BYTES { len } else { BLOCK_BYTES }
}

/// Blocks of a file that an operation concerns: a run of them, and perhaps the block that was the
/// file's last one and gets longer because the operation begins behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchedBlocks {
    /// A last block, not full, somewhere before the run, that is filled up with zeros.
    pub tail: Option<u64>,
    /// First block of the run.
    pub first: u64,
    /// How many blocks the run has.
    pub count: u64,
}

/// Checksums of the blocks that a [`TouchedBlocks`] names: before an operation, or after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockSums {
    /// The last block that gets longer, and its checksum.
    pub tail: Option<(u64, u32)>,
    /// First block of the run.
    pub first: u64,
    /// One a block.
    pub sums: Vec<u32>,
}

/// The blocks that bytes `offset..offset + len` are in.
pub const fn blocks_of(offset: u64, len: u64) -> (u64, u64) {
    if len == 0 {
        return (offset / BLOCK_BYTES, 0);
    }
    let first = offset / BLOCK_BYTES;
    (first, (offset + len - 1) / BLOCK_BYTES - first + 1)
}

/// The block that gets longer when a file of `size` bytes grows to `new_size`, or gets bytes at
/// `new_size` and behind: none if the last block was full. It may be the block of `new_size` itself.
pub const fn growing_block(size: u64, new_size: u64) -> Option<u64> {
    if new_size > size && !size.is_multiple_of(BLOCK_BYTES) { Some(size / BLOCK_BYTES) } else { None }
}

/// The blocks whose checksums a write of `len` bytes at `offset` changes in a file of `size` bytes.
/// Blocks between an old end and `offset` that did not exist are holes and need none.
pub const fn touched(offset: u64, len: u64, size: u64) -> TouchedBlocks {
    let (first, count) = blocks_of(offset, len);
    let tail = match growing_block(size, offset) {
        Some(block) if len > 0 && block < first => Some(block),
        _ => None,
    };
    TouchedBlocks { tail, first, count }
}

/// A block of which a write replaces a part. The bytes before or behind that part must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialBlock {
    /// The block.
    pub block: u64,
    /// Bytes of it that the file has before the write.
    pub old_len: u64,
}

/// The sum of the `i`-th touched block after writing `data` at `offset`, or what must be read.
fn after_write(offset: u64, data: &[u8], size: u64, block: u64, old: u32) -> Result<u32, PartialBlock> {
    let start = block * BLOCK_BYTES;
    let old_len = block_len(block, size);
    let from = offset.max(start);
    let to = (offset + data.len() as u64).min(start + BLOCK_BYTES);
    let part = &data[(from - offset) as usize..(to - offset) as usize];
    if from == start && to - start >= old_len {
        Ok(sum(part))
    } else if from - start >= old_len {
        // What a caller gives as the sum of a block that did not exist does not matter.
        let old = if old_len == 0 { 0 } else { old };
        Ok(extend(extend_zeros(old, from - start - old_len), part))
    } else {
        Err(PartialBlock { block, old_len })
    }
}

/// Checksums after writing `data` at `offset` to a file of `size` bytes. `old` are the sums before,
/// of the blocks that [`touched`] names; `merge` gives the whole sum of a block whose bytes must be
/// read, and is asked for the first and the last block of the run at most.
///
/// # Panics
/// If `old` is not what [`touched`] asks for.
pub fn sums_after_write<E>(
    offset: u64,
    data: &[u8],
    size: u64,
    old: &BlockSums,
    mut merge: impl FnMut(PartialBlock, u32) -> Result<u32, E>,
) -> Result<BlockSums, E> {
    let touched = touched(offset, data.len() as u64, size);
    assert_eq!(old.tail.map(|(block, _)| block), touched.tail, "checksum of the block that grows");
    assert_eq!(old.sums.len() as u64, touched.count, "checksums of the blocks that are written");
    let tail = old.tail.map(|(block, sum)| (block, extend_zeros(sum, BLOCK_BYTES - block_len(block, size))));
    let mut sums = Vec::with_capacity(old.sums.len());
    for (block, &sum) in (touched.first..).zip(&old.sums) {
        sums.push(match after_write(offset, data, size, block, sum) {
            Ok(sum) => sum,
            Err(part) => merge(part, sum)?,
        });
    }
    Ok(BlockSums { tail, first: touched.first, sums })
}

/// [`sums_after_write`] if no byte has to be read: whole blocks, appends, writes behind the end.
pub fn sums_without_reading(offset: u64, data: &[u8], size: u64, old: &BlockSums) -> Option<BlockSums> {
    sums_after_write(offset, data, size, old, |_, _| Err(())).ok()
}

/// The sum of a file's last block, with number and old sum `last`, after the file grew from `size`
/// to `new_size` with a hole.
pub fn sum_after_growing(size: u64, new_size: u64, last: (u64, u32)) -> (u64, u32) {
    let (block, sum) = last;
    let (old, new) = (block_len(block, size), block_len(block, new_size));
    (block, extend_zeros(sum, new.saturating_sub(old)))
}

/// The block whose checksum changes when a file of `size` bytes is cut or extended to `len`, beside
/// those that go: its old sum is needed for the new one.
pub const fn block_of_cut(len: u64, size: u64) -> Option<u64> {
    if len > size {
        growing_block(size, len)
    } else if len < size && !len.is_multiple_of(BLOCK_BYTES) {
        Some(len / BLOCK_BYTES)
    } else {
        None
    }
}

/// The blocks of a file of `size` bytes that `offset..offset + len` covers in part, at most two:
/// their old sums are needed to know the ones after that range was zeroed. All others in the range
/// have the sum 0 then.
pub fn edges_of_zero(offset: u64, len: u64, size: u64) -> Vec<u64> {
    let end = offset.saturating_add(len).min(size);
    let mut edges = Vec::new();
    if offset < end {
        let is_part = |block: u64| {
            let start = block * BLOCK_BYTES;
            offset > start || end < start + block_len(block, size)
        };
        let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        edges.extend(Some(first).filter(|b| is_part(*b)));
        edges.extend(Some(last).filter(|b| *b != first && is_part(*b)));
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(content: &[u8]) -> Vec<u32> {
        content.chunks(BLOCK_BYTES as usize).map(sum).collect()
    }

    fn pick(sums: &[u32], touched: TouchedBlocks) -> BlockSums {
        let at = |block: u64| sums.get(block as usize).copied().unwrap_or(0);
        BlockSums {
            tail: touched.tail.map(|block| (block, at(block))),
            first: touched.first,
            sums: (touched.first..touched.first + touched.count).map(at).collect(),
        }
    }

    #[test]
    fn zeros_of_any_length_have_the_sum_zero() {
        for n in [0, 1, 100, 4096] {
            assert_eq!(sum(&vec![0; n]), 0);
        }
        assert_ne!(sum(&[0, 1]), 0);
    }

    #[test]
    fn the_polynomial_is_castagnolis() {
        // The check value of CRC-32C is 0xe3069283 for "123456789" with the usual inversions.
        assert_eq!(!extend(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_sum_grows_with_its_block() {
        let mut block = b"some bytes".to_vec();
        let before = sum(&block);
        block.extend([0; 300]);
        assert_eq!(extend_zeros(before, 300), sum(&block));
        block.extend(b"more");
        assert_eq!(extend(extend_zeros(before, 300), b"more"), sum(&block));
    }

    #[test]
    fn a_write_far_behind_the_end_concerns_two_places_only() {
        let far = 1 << 40;
        let touched = touched(far, 10, 5000);
        assert_eq!(touched, TouchedBlocks { tail: Some(1), first: far / BLOCK_BYTES, count: 1 });
        assert_eq!(super::touched(far, 10, 8192).tail, None, "a full block does not grow");
        assert_eq!(
            super::touched(far, 0, 5000),
            TouchedBlocks { tail: None, first: far / BLOCK_BYTES, count: 0 }
        );
    }

    #[test]
    fn an_overwrite_inside_a_block_must_read_and_an_append_need_not() {
        let old = BlockSums { tail: None, first: 0, sums: vec![7] };
        assert_eq!(sums_without_reading(10, b"x", 100, &old), None);
        assert!(sums_without_reading(100, b"x", 100, &old).is_some());
        assert!(sums_without_reading(0, &[1; 100], 100, &old).is_some());
        assert_eq!(sums_without_reading(0, &[1; 99], 100, &old), None);
    }

    #[test]
    fn only_blocks_that_are_zeroed_in_part_need_their_old_sums() {
        assert_eq!(edges_of_zero(0, 8192, 20_000), []);
        assert_eq!(edges_of_zero(1, 8191, 20_000), [0]);
        assert_eq!(edges_of_zero(1, 8192, 20_000), [0, 2]);
        assert_eq!(edges_of_zero(10, 10, 20_000), [0]);
        assert_eq!(edges_of_zero(4096, 99_999, 5000), [], "the short last block is covered");
        assert_eq!(edges_of_zero(5000, 1, 5000), []);
    }

    #[test]
    fn a_cut_needs_the_block_in_which_it_falls() {
        assert_eq!(block_of_cut(100, 5000), Some(0));
        assert_eq!(block_of_cut(4096, 5000), None);
        assert_eq!(block_of_cut(9000, 5000), Some(1));
        assert_eq!(block_of_cut(9000, 4096), None);
        assert_eq!(block_of_cut(5000, 5000), None);
    }

    proptest! {
        #[test]
        fn sums_after_a_write_are_those_of_the_bytes(
            old in prop::collection::vec(any::<u8>(), 0..20_000),
            offset in 0usize..30_000,
            data in prop::collection::vec(any::<u8>(), 1..12_000),
        ) {
            let size = old.len() as u64;
            let mut new = old.clone();
            new.resize(new.len().max(offset + data.len()), 0);
            new[offset..offset + data.len()].copy_from_slice(&data);
            let (before, after) = (all(&old), all(&new));
            let touched = touched(offset as u64, data.len() as u64, size);
            let mut merges = 0;
            let got = sums_after_write(offset as u64, &data, size, &pick(&before, touched), |part, sum| {
                merges += 1;
                let start = (part.block * BLOCK_BYTES) as usize;
                assert_eq!(part.old_len, block_len(part.block, size));
                assert_eq!(sum, before[part.block as usize]);
                Ok::<_, ()>(after[start / BLOCK_BYTES as usize])
            }).unwrap();
            prop_assert!(merges <= 2);
            prop_assert_eq!(&got, &pick(&after, touched));
            let mut expected = before;
            expected.resize(after.len(), 0);
            for (block, sum) in got.tail.into_iter().chain((got.first..).zip(got.sums)) {
                expected[block as usize] = sum;
            }
            prop_assert_eq!(expected, after);
        }

        #[test]
        fn growing_with_a_hole_changes_the_last_block_only(
            old in prop::collection::vec(any::<u8>(), 0..9_000), more in 1u64..20_000,
        ) {
            let size = old.len() as u64;
            let mut new = old.clone();
            new.resize((size + more) as usize, 0);
            let mut expected = all(&old);
            expected.resize(all(&new).len(), 0);
            if let Some(block) = growing_block(size, size + more) {
                let (block, sum) = sum_after_growing(size, size + more, (block, expected[block as usize]));
                expected[block as usize] = sum;
            }
            prop_assert_eq!(expected, all(&new));
        }
    }
}
