//! Recovery of one body: makes it match the final state after a crash (`DESIGN` 4). Reads no log and no
//! state; its caller gives it both.
//!
//! Carried bytes, zeros and cuts are redone in the order of the log, each without the ranges that later
//! records without bytes (`Extent`) cover. Those bytes were put into the body before their record, and
//! redoing an older change would destroy them. Bytes beyond the end that the file had at the checkpoint, of
//! which no record speaks, go first: an earlier crash left them. Then the length is set, and the blocks
//! concerned are compared with their checksums. Only bytes of an `Extent`, or overwritten bytes of a dirty
//! body, can differ now.
//!
//! Those bytes are written again even if they do not differ. After a failed sync the kernel may call pages
//! clean that never reached the disk. Then a read gets them from memory, and no later sync would bring them
//! to the disk.

use std::collections::BTreeMap;

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_core::sum::{self, BLOCK_BYTES, block_len};
use atoll_disk::{Disk, DiskFile};
use atoll_proto::BodyChange;

use crate::io::fill;
use crate::{Bodies, BodyError, Born};

/// Bytes that are read and compared at once.
const PIECE_BLOCKS: u64 = 256;

/// The facts that the recovery of one body needs.
#[derive(Debug, Clone, Copy)]
pub struct Redo<'a> {
    /// The file.
    pub ino: Ino,
    /// The changes of the body by the records since the checkpoint, in order.
    pub ops: &'a [BodyChange],
    /// The ends within a block that the file has had since the checkpoint, by those records, each with the
    /// checksum of that block at that time.
    pub ends: &'a [(u64, u32)],
    /// Its length at the checkpoint; 0 if it is younger.
    pub old_size: u64,
    /// Its length by the final state.
    pub size: u64,
    /// A `Dirty` record is in force: bytes that were synced may have been overwritten in part.
    pub dirty: bool,
    /// Records that were cut off had changed it: any block may lack what it had before them.
    pub cut: bool,
    /// Mode and owner, if the native file has to be made.
    pub born: Option<Born>,
}

/// A correction of the final state, because bytes that it speaks of were never synced. It must be logged and
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// The bytes that are in this block now have this checksum.
    Resum {
        /// The block.
        block: u64,
        /// Its checksum.
        sum: u32,
    },
    /// The file ends here now: before the first bytes that were never synced and are not there.
    Cut {
        /// Length in bytes.
        len: u64,
        /// The block that is shorter now, and its checksum.
        last: Option<(u64, u32)>,
    },
    /// A block differs that no record since the checkpoint explains: it is damaged, and stays as it
    /// is.
    Damaged {
        /// The block.
        block: u64,
    },
}

/// Ranges that do not touch each other, by their starts.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        let joined: Vec<u64> =
            self.0.range(..=to).rev().take_while(|(_, end)| **end >= from).map(|(start, _)| *start).collect();
        for start in joined {
            let end = self.0.remove(&start).expect("found a moment ago");
            (from, to) = (from.min(start), to.max(end));
        }
        self.0.insert(from, to);
    }

    fn has(&self, at: u64) -> bool {
        self.0.range(..=at).next_back().is_some_and(|(_, end)| *end > at)
    }

    /// The parts of `from..to` that are in none of them.
    fn gaps(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut at = from;
        let mut gaps = Vec::new();
        let before = self.0.range(..=from).next_back().map(|(_, end)| *end);
        at = at.max(before.unwrap_or(at));
        for (&start, &end) in self.0.range(from..to) {
            if at < start {
                gaps.push((at, start));
            }
            at = at.max(end);
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }
}

impl<D: Disk> Bodies<D> {
    /// Makes a body match the final state, without syncing it. `sums(first, count)` gives the final
    /// checksums of so many blocks. Runs before anything else uses the body, and may run again.
    pub fn redo<E: From<BodyError>>(
        &self,
        what: Redo<'_>,
        sums: impl FnMut(u64, u64) -> Result<Vec<u32>, E>,
    ) -> Result<Vec<Correction>, E> {
        let mut what = what;
        if let Some(last) = what.ops.iter().rposition(|op| matches!(op, BodyChange::Drop { .. })) {
            // A file may have gone to another island and come back: then nothing is left of what it was.
            (what.ops, what.old_size) = (&what.ops[last + 1..], 0);
            if what.ops.is_empty() {
                self.drop_body(what.ino)?;
            }
        }
        self.redo_ops(&what)?;
        self.fit_length(what.ino, what.size, what.born)?;
        self.compare(&what, sums)
    }

    fn redo_ops(&self, what: &Redo<'_>) -> Result<(), BodyError> {
        // From the end, so that what later extents cover is known at each operation.
        let mut covered = Ranges::default();
        let mut pieces = Vec::with_capacity(what.ops.len());
        for op in what.ops.iter().rev() {
            pieces.push(match op {
                BodyChange::Extent { offset, len, .. } => {
                    covered.add(*offset, offset + len);
                    Vec::new()
                }
                BodyChange::Bytes { offset, bytes, .. } => covered.gaps(*offset, offset + bytes.len() as u64),
                BodyChange::Zero { offset, len, .. } => covered.gaps(*offset, offset.saturating_add(*len)),
                BodyChange::Cut { len, .. } => covered.gaps(*len, u64::MAX),
                BodyChange::Allocate { .. } | BodyChange::Drop { .. } => Vec::new(),
            });
        }
        let junk = BodyChange::Cut { ino: what.ino, len: what.old_size };
        self.redo_op(what, &junk, &covered.gaps(what.old_size, u64::MAX))?;
        for (op, pieces) in what.ops.iter().zip(pieces.into_iter().rev()) {
            self.redo_op(what, op, &pieces)?;
        }
        Ok(())
    }

    fn redo_op(&self, what: &Redo<'_>, op: &BodyChange, pieces: &[(u64, u64)]) -> Result<(), BodyError> {
        let io = |e| BodyError::io(what.ino, e);
        match op {
            BodyChange::Bytes { offset, bytes, .. } => {
                for (from, to) in pieces {
                    let open = self.existing_or_new(what.ino, what.born)?;
                    let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                    open.file.write_at(part, *from).map_err(io)?;
                }
            }
            BodyChange::Zero { .. } | BodyChange::Cut { .. } => {
                let Some(open) = self.existing(what.ino)? else { return Ok(()) };
                let native = open.file.stat().map_err(io)?.size;
                for (from, to) in pieces.iter().filter(|(from, _)| *from < native) {
                    if *to >= native && matches!(op, BodyChange::Cut { .. }) {
                        open.file.set_len(*from).map_err(io)?;
                    } else {
                        open.file.punch(*from, native.min(*to) - from).map_err(io)?;
                    }
                }
            }
            BodyChange::Allocate { offset, len, .. } => {
                let open = self.existing_or_new(what.ino, what.born)?;
                // A promise of space that cannot be kept now is no reason to lose the rest.
                let _ = open.file.allocate(*offset, *len, true);
            }
            BodyChange::Extent { .. } | BodyChange::Drop { .. } => {}
        }
        Ok(())
    }

    /// Compares the blocks that the operations or a torn overwrite may have changed.
    fn compare<E: From<BodyError>>(
        &self,
        what: &Redo<'_>,
        mut sums: impl FnMut(u64, u64) -> Result<Vec<u32>, E>,
    ) -> Result<Vec<Correction>, E> {
        let mut corrections = Vec::new();
        let mut buf = Vec::new();
        let extents = extents(what.ops);
        for (mut first, end) in concerned(what).0 {
            while first < end {
                let count = (end - first).min(PIECE_BLOCKS);
                let want = sums(first, count)?;
                assert_eq!(want.len() as u64, count, "one checksum for each block");
                self.read_blocks(what, first, count, &mut buf)?;
                let got = buf.chunks(BLOCK_BYTES as usize).map(sum::sum);
                let (mut again, mut zeros) = (Ranges::default(), Ranges::default());
                for ((block, got), want) in (first..).zip(got).zip(want) {
                    if got != want || (extents.has(block) && !planted(Bug::NotWrittenAgain)) {
                        let pieces = if got == 0 { &mut zeros } else { &mut again };
                        pieces.add(block, block + 1);
                    }
                    if got != want && what.dirty {
                        corrections.push(Correction::Resum { block, sum: got });
                    } else if got != want {
                        let bytes = &buf[((block - first) * BLOCK_BYTES) as usize..];
                        let Some(len) = whole_upto(what, block, bytes) else {
                            corrections.push(Correction::Damaged { block });
                            continue;
                        };
                        // Nothing that was synced has been overwritten, so all behind is new.
                        corrections.push(self.cut_before(what, len)?);
                        return Ok(corrections);
                    }
                }
                self.write_again(what, first, (&again, &zeros), &buf)?;
                first += count;
            }
        }
        Ok(corrections)
    }

    /// Writes blocks again that were read from `first` on.
    fn write_again(
        &self,
        what: &Redo<'_>,
        first: u64,
        (blocks, zeros): (&Ranges, &Ranges),
        bytes: &[u8],
    ) -> Result<(), BodyError> {
        let Some(open) = self.existing(what.ino)? else { return Ok(()) };
        for (&from, &to) in &zeros.0 {
            self.zero(what.ino, from * BLOCK_BYTES, (to - from) * BLOCK_BYTES, what.size)?;
        }
        for (&from, &to) in &blocks.0 {
            let start = ((from - first) * BLOCK_BYTES) as usize;
            let end = (((to - first) * BLOCK_BYTES) as usize).min(bytes.len());
            let io = |e| BodyError::io(what.ino, e);
            open.file.write_at(&bytes[start..end], from * BLOCK_BYTES).map_err(io)?;
        }
        Ok(())
    }

    fn cut_before(&self, what: &Redo<'_>, len: u64) -> Result<Correction, BodyError> {
        self.cut(what.ino, len, what.size, what.born)?;
        if len.is_multiple_of(BLOCK_BYTES) {
            return Ok(Correction::Cut { len, last: None });
        }
        let block = len / BLOCK_BYTES;
        let mut buf = Vec::new();
        self.read_blocks(&Redo { size: len, ..*what }, block, 1, &mut buf)?;
        Ok(Correction::Cut { len, last: Some((block, sum::sum(&buf))) })
    }

    fn read_blocks(
        &self,
        what: &Redo<'_>,
        first: u64,
        count: u64,
        buf: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        let from = first * BLOCK_BYTES;
        let last = first + count - 1;
        let to = last * BLOCK_BYTES + block_len(last, what.size);
        buf.resize((to - from) as usize, 0);
        let io = |e| BodyError::io(what.ino, e);
        match self.existing(what.ino)? {
            Some(open) => match open.file.seek(from, false).map_err(io)? {
                Some(data) if data < to => fill(&open.file, buf, from).map_err(io)?,
                _ => buf.fill(0), // A hole; large ones are not read.
            },
            None => buf.fill(0),
        }
        Ok(())
    }
}

/// The offset up to which a block that differs has bytes that it once had. Bytes in front of those that were
/// put there before their record were synced by the checkpoint, or have been written again. Of the bytes
/// themselves, some may have been synced since: the checksum that the block had when the file ended there
/// shows this. None if the block has no such bytes.
fn whole_upto(what: &Redo<'_>, block: u64, bytes: &[u8]) -> Option<u64> {
    let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
    let begins = what.ops.iter().filter_map(|op| match op {
        BodyChange::Extent { offset, len, .. } if *offset < end && offset + len > start => Some(*offset),
        _ => None,
    });
    let begin = begins.min()?.max(start);
    let upto = end.min(what.size);
    let ends = what.ends.iter().filter(|(at, _)| *at > begin && *at < upto);
    let is_there = |at: u64, sum| sum::sum(&bytes[..(at - start) as usize]) == sum;
    Some(ends.filter(|(at, sum)| is_there(*at, *sum)).map(|(at, _)| *at).max().unwrap_or(begin))
}

/// The blocks that have bytes which were put there before their record.
fn extents(ops: &[BodyChange]) -> Ranges {
    let mut blocks = Ranges::default();
    for op in ops {
        if let BodyChange::Extent { offset, len, .. } = op {
            blocks.add(offset / BLOCK_BYTES, (offset + len).div_ceil(BLOCK_BYTES));
        }
    }
    blocks
}

/// The blocks to compare: all of a dirty body, or one that cut records had changed, else those that the operations touch and the last.
fn concerned(what: &Redo<'_>) -> Ranges {
    let blocks = what.size.div_ceil(BLOCK_BYTES);
    let mut ranges = Ranges::default();
    if what.dirty || what.cut {
        ranges.add(0, blocks);
        return ranges;
    }
    let mut add = |from: u64, to: u64| {
        ranges.add((from / BLOCK_BYTES).min(blocks), to.div_ceil(BLOCK_BYTES).min(blocks));
    };
    for op in what.ops {
        match op {
            BodyChange::Bytes { offset, bytes, .. } => add(*offset, offset + bytes.len() as u64),
            BodyChange::Extent { offset, len, .. } => add(*offset, offset + len),
            BodyChange::Zero { offset, len, .. } => add(*offset, offset.saturating_add(*len)),
            BodyChange::Cut { len, .. } => add(len.saturating_sub(1), len.saturating_add(1)),
            BodyChange::Allocate { .. } | BodyChange::Drop { .. } => {}
        }
    }
    ranges.add(blocks.saturating_sub(1), blocks);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_leave_gaps() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20);
        ranges.add(30, 40);
        assert_eq!(ranges.gaps(0, 50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(ranges.gaps(12, 18), []);
        assert_eq!(ranges.gaps(15, 35), [(20, 30)]);
        ranges.add(20, 30);
        assert_eq!(ranges.gaps(0, 50), [(0, 10), (40, 50)]);
        ranges.add(0, 100);
        assert_eq!(ranges.gaps(0, 100), []);
        assert_eq!(ranges.gaps(90, u64::MAX), [(100, u64::MAX)]);
    }
}
