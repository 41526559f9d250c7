//! Reading and writing bytes, and the checksums of blocks that must be read for it.

use std::ops::Range;
use std::sync::Arc;

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_core::sum::{self, BLOCK_BYTES, BlockSums, PartialBlock, block_len, blocks_of};
use atoll_disk::{Disk, DiskFile};

use crate::table::Open;
use crate::{Bodies, BodyError, Born};

impl<D: Disk> Bodies<D> {
    /// Reads `offset..offset + len` of a file of `size` bytes, as far as it goes, into `buf`, and
    /// says where in it the bytes are. `sums` are the checksums of the blocks that
    /// [`blocks_of`] names for the range cut at `size`.
    ///
    /// Whole blocks are read, with one native call, and compared. What `buf` held is gone; one that
    /// is used again costs no clearing.
    ///
    /// # Panics
    /// If there is not one checksum for each block.
    pub fn read(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        size: u64,
        sums: &[u32],
        buf: &mut Vec<u8>,
    ) -> Result<Range<usize>, BodyError> {
        let len = size.saturating_sub(offset).min(len);
        let (first, count) = blocks_of(offset, len);
        assert_eq!(sums.len() as u64, count, "one checksum for each block that is read");
        if len == 0 {
            buf.clear();
            return Ok(0..0);
        }
        let from = first * BLOCK_BYTES;
        let to = (from + count * BLOCK_BYTES).min(size);
        buf.resize((to - from) as usize, 0);
        match self.existing(ino)? {
            Some(open) => fill(&open.file, buf, from).map_err(|e| BodyError::io(ino, e))?,
            None => buf.fill(0),
        }
        for ((block, bytes), want) in (first..).zip(buf.chunks(BLOCK_BYTES as usize)).zip(sums) {
            if sum::sum(bytes) != *want {
                return Err(BodyError::Damaged { ino, block });
            }
        }
        let start = (offset - from) as usize;
        Ok(start..start + len as usize)
    }

    /// Writes `data` at `offset` of a file of `size` bytes, and makes the native file if there is
    /// none. What lies between `size` and `offset` is a hole.
    pub fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        size: u64,
        born: Option<Born>,
    ) -> Result<(), BodyError> {
        if data.is_empty() {
            return Ok(());
        }
        let open = self.to_change(ino, size, born)?;
        open.file.write_at(data, offset).map_err(|e| BodyError::io(ino, e))
    }

    /// [`Bodies::write`] of bytes that no record carries, over what may be there: `old` are the checksums
    /// before, as for [`Bodies::sums_after`]. When it fails the file is as it was, unless the error is
    /// [`BodyError::Torn`].
    pub fn write_in_place(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        size: u64,
        old: &BlockSums,
        born: Option<Born>,
    ) -> Result<(), BodyError> {
        let end = (offset + data.len() as u64).min(size);
        let len = data.len() as u64;
        let holes = || (old.first..).zip(&old.sums).any(|(at, sum)| *sum == 0 && at * BLOCK_BYTES < end);
        if offset < end && (offset + len > end || holes()) && !planted(Bug::HalfAWrite) {
            // What a full disk has no room for must not be found out when half of it is there.
            let open = self.to_change(ino, size, born)?;
            open.file.allocate(offset, len, true).map_err(|e| BodyError::io(ino, e))?;
        }
        let done = self.write(ino, offset, data, size, born);
        match done {
            Err(BodyError::Io { source, .. }) => match self.is_undone(ino, size, end, old) {
                Ok(true) => Err(BodyError::io(ino, source)),
                _ => Err(BodyError::Torn { ino, source }),
            },
            done => done,
        }
    }

    /// Cuts off what a failed write has left beyond the end; whether the blocks before `end` are as they were.
    fn is_undone(&self, ino: Ino, size: u64, end: u64, old: &BlockSums) -> Result<bool, BodyError> {
        let Some(open) = self.existing(ino)? else { return Ok(true) };
        let io = |e| BodyError::io(ino, e);
        if open.file.stat().map_err(io)?.size > size {
            open.file.set_len(size).map_err(io)?;
        }
        for (block, want) in old.tail.into_iter().chain((old.first..).zip(old.sums.iter().copied())) {
            if block * BLOCK_BYTES < end.max(1) && block * BLOCK_BYTES < size {
                match self.block(ino, block, size, want) {
                    Err(BodyError::Damaged { .. }) => return Ok(false),
                    other => drop(other?),
                }
            }
        }
        Ok(true)
    }

    /// Checksums after [`Bodies::write`], before it is done: those of `touched(offset, len, size)`
    /// from `old`, the ones before. Reads at most the first and the last block of the range, if they
    /// are overwritten in part, and compares them.
    pub fn sums_after(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        size: u64,
        old: &BlockSums,
    ) -> Result<BlockSums, BodyError> {
        sum::sums_after_write(offset, data, size, old, |PartialBlock { block, .. }, want| {
            let bytes = self.block(ino, block, size, want)?;
            let start = block * BLOCK_BYTES;
            let from = offset.max(start);
            let to = (offset + data.len() as u64).min(start + BLOCK_BYTES);
            let head = &bytes[..bytes.len().min((from - start) as usize)];
            let tail = bytes.get((to - start) as usize..).unwrap_or_default();
            let part = &data[(from - offset) as usize..(to - offset) as usize];
            Ok(sum::extend(sum::extend(sum::sum(head), part), tail))
        })
    }

    /// The bytes of one block below `size`, compared.
    pub(crate) fn block(&self, ino: Ino, block: u64, size: u64, want: u32) -> Result<Vec<u8>, BodyError> {
        let mut bytes = vec![0; block_len(block, size) as usize];
        if let Some(open) = self.existing(ino)? {
            fill(&open.file, &mut bytes, block * BLOCK_BYTES).map_err(|e| BodyError::io(ino, e))?;
        }
        if sum::sum(&bytes) == want { Ok(bytes) } else { Err(BodyError::Damaged { ino, block }) }
    }

    /// The native file, made if there is none, without anything beyond `size`.
    pub(crate) fn to_change(
        &self,
        ino: Ino,
        size: u64,
        born: Option<Born>,
    ) -> Result<Arc<Open<D::File>>, BodyError> {
        let open = self.existing_or_new(ino, born)?;
        self.trim(ino, &open, size)?;
        Ok(open)
    }

    pub(crate) fn trim(&self, ino: Ino, open: &Open<D::File>, size: u64) -> Result<(), BodyError> {
        let trim = |file: &D::File| if file.stat()?.size > size { file.set_len(size) } else { Ok(()) };
        if open.trim_once(trim).map_err(|e| BodyError::io(ino, e))? {
            self.table.remember_trimmed(ino);
        }
        Ok(())
    }
}

/// Fills `buf` from `offset` on, with zeros where the native file ends.
pub(crate) fn fill<F: DiskFile>(file: &F, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
    let done = file.read_full(buf, offset)?;
    buf[done..].fill(0);
    Ok(())
}
