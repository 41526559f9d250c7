//! Changes of a body's shape: length, holes, reserved space, copies of ranges.

use atoll_core::Ino;
use atoll_core::sum::{self, BLOCK_BYTES, BlockSums, block_len};
use atoll_disk::{Disk, DiskFile};

use crate::{Bodies, BodyError, Born};

impl<D: Disk> Bodies<D> {
    /// Cuts a file of `size` bytes to `len`, or extends it with a hole: the native file gets exactly
    /// that length. One is made only if it has to have any.
    pub fn cut(&self, ino: Ino, len: u64, size: u64, born: Option<Born>) -> Result<(), BodyError> {
        let open = match self.existing(ino)? {
            None if len == 0 => return Ok(()),
            Some(open) if len < size => open, // Takes what lies beyond `size` along.
            _ => self.to_change(ino, size, born)?,
        };
        open.file.set_len(len).map_err(|e| BodyError::io(ino, e))?;
        self.trim(ino, &open, len)
    }

    /// The block that [`Bodies::cut`] gives another checksum, and that: `old` is its sum before, and
    /// needed if `sum::block_of_cut` names one. Asked before the cut is done.
    pub fn sum_after_cut(
        &self,
        ino: Ino,
        len: u64,
        size: u64,
        old: u32,
    ) -> Result<Option<(u64, u32)>, BodyError> {
        let Some(block) = sum::block_of_cut(len, size) else { return Ok(None) };
        if len > size {
            return Ok(Some(sum::sum_after_growing(size, len, (block, old))));
        }
        let bytes = self.block(ino, block, size, old)?;
        Ok(Some((block, sum::sum(&bytes[..(len % BLOCK_BYTES) as usize]))))
    }

    /// Makes a range read as zeros, as far as the file of `size` bytes goes, and gives its space
    /// back where the disk can. The length stays.
    pub fn zero(&self, ino: Ino, offset: u64, len: u64, size: u64) -> Result<(), BodyError> {
        let end = offset.saturating_add(len).min(size);
        let Some(open) = self.existing(ino)?.filter(|_| offset < end) else { return Ok(()) };
        self.trim(ino, &open, size)?;
        open.file.punch(offset, end - offset).map_err(|e| BodyError::io(ino, e))
    }

    /// Checksums, after [`Bodies::zero`], of the blocks that it covers in part; all others in the
    /// range are 0 then. `old` has the sums before, of the blocks that `sum::edges_of_zero` names.
    /// Asked before the range is zeroed.
    pub fn sums_after_zero(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        size: u64,
        old: &[u32],
    ) -> Result<Vec<(u64, u32)>, BodyError> {
        let end = offset.saturating_add(len).min(size);
        let edges = sum::edges_of_zero(offset, len, size);
        assert_eq!(edges.len(), old.len(), "checksums of the blocks that are zeroed in part");
        let after = |(block, want): (u64, u32)| {
            let mut bytes = self.block(ino, block, size, want)?;
            let start = block * BLOCK_BYTES;
            let from = offset.max(start) - start;
            let to = end.min(start + block_len(block, size)) - start;
            bytes[from as usize..to as usize].fill(0);
            Ok((block, sum::sum(&bytes)))
        };
        edges.into_iter().zip(old.iter().copied()).map(after).collect()
    }

    /// Reserves space for a range; the length grows to its end unless `keep_size`.
    pub fn allocate(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        keep_size: bool,
        size: u64,
        born: Option<Born>,
    ) -> Result<(), BodyError> {
        let open = self.to_change(ino, size, born)?;
        open.file.allocate(offset, len, keep_size).map_err(|e| BodyError::io(ino, e))
    }

    /// Where data (`hole` false) or a hole begins at or after `offset` in a file of `size` bytes, as
    /// `SEEK_DATA` and `SEEK_HOLE`; none past the end.
    pub fn seek(&self, ino: Ino, offset: u64, hole: bool, size: u64) -> Result<Option<u64>, BodyError> {
        if offset >= size {
            return Ok(None);
        }
        let native = match self.existing(ino)? {
            Some(open) => open.file.seek(offset, hole).map_err(|e| BodyError::io(ino, e))?,
            None => None,
        };
        // Behind the native end all is a hole, up to `size`.
        Ok(if hole { Some(native.unwrap_or(offset).min(size)) } else { native.filter(|at| *at < size) })
    }

    /// Copies a range of one body of `size` bytes into another of `to_size`, within the kernel where
    /// it can, unchecked: what is damaged stays so, and is noticed by its checksum if that is copied
    /// too. The range must end within the source; ranges of one body that overlap are `EINVAL`.
    pub fn copy(
        &self,
        (from, offset, size): (Ino, u64, u64),
        (to, to_offset, to_size): (Ino, u64, u64),
        len: u64,
        born: Option<Born>,
    ) -> Result<(), BodyError> {
        assert!(offset.saturating_add(len) <= size, "copy of bytes beyond the end of {from}");
        if len == 0 {
            return Ok(());
        }
        let target = self.to_change(to, to_size, born)?;
        let io = |e| BodyError::io(to, e);
        let mut done = 0;
        if let Some(source) = self.existing(from)? {
            // In place of what lies beyond the source's end, a hole is copied.
            let native = source.file.stat().map_err(|e| BodyError::io(from, e))?.size.min(size);
            let here = native.saturating_sub(offset).min(len);
            while done < here {
                match source
                    .file
                    .copy_to(offset + done, &target.file, to_offset + done, here - done)
                    .map_err(io)?
                {
                    0 => break,
                    n => done += n,
                }
            }
        }
        if done < len {
            let end = to_offset + len;
            let native = target.file.stat().map_err(io)?.size;
            if to_offset + done < native {
                target.file.punch(to_offset + done, native.min(end) - to_offset - done).map_err(io)?;
            }
            if native < end {
                target.file.set_len(end).map_err(io)?;
            }
        }
        Ok(())
    }

    /// Checksums of the target after [`Bodies::copy`], before it is done: the source's range is read
    /// into `buf` and compared with `sums`, as in [`Bodies::read`]; `old` is as in
    /// [`Bodies::sums_after`]. Also hands out where in `buf` the bytes are.
    pub fn sums_after_copy(
        &self,
        (from, offset, size, sums): (Ino, u64, u64, &[u32]),
        (to, to_offset, to_size, old): (Ino, u64, u64, &BlockSums),
        len: u64,
        buf: &mut Vec<u8>,
    ) -> Result<(BlockSums, std::ops::Range<usize>), BodyError> {
        let range = self.read(from, offset, len, size, sums, buf)?;
        let after = self.sums_after(to, to_offset, &buf[range.clone()], to_size, old)?;
        Ok((after, range))
    }
}
