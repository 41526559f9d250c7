//! The bytes of a file that was changed: blocks that are others now, over those of the file below.

use std::collections::BTreeMap;
use std::io;

use crate::DiskFile;

const BLOCK: u64 = 4096;

#[derive(Debug, Clone)]
enum Block {
    /// A hole.
    Zeros,
    Data(Box<[u8; BLOCK as usize]>),
}

/// See the module. The length of the file is its owner's to keep.
#[derive(Debug, Clone, Default)]
pub(super) struct Bytes {
    blocks: BTreeMap<u64, Block>,
    /// From here on, nothing of the file below counts.
    base_end: u64,
    /// Space was reserved up to here.
    reserved: u64,
}

/// The pieces of `[from, to)` in each block: the block, and the part of it.
fn parts(from: u64, to: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let part = move |n| (n, from.max(n * BLOCK), to.min((n + 1) * BLOCK));
    (from / BLOCK..to.div_ceil(BLOCK)).map(part).filter(|(_, from, to)| from < to)
}

impl Bytes {
    /// As they are below, where the file has this length.
    pub(super) fn over(base_end: u64) -> Self {
        Self { base_end, ..Self::default() }
    }

    /// 512-byte blocks in use, with `below` of them in the file below.
    pub(super) fn space(&self, below: u64) -> u64 {
        let (mut more, mut less) = (0, 0);
        for (at, block) in &self.blocks {
            let is_below = at * BLOCK < self.base_end;
            match block {
                Block::Data(_) if !is_below => more += BLOCK / 512,
                Block::Zeros if is_below => less += BLOCK / 512,
                _ => {}
            }
        }
        let below = below.min(self.base_end.div_ceil(BLOCK) * (BLOCK / 512));
        (below + more).saturating_sub(less).max(self.reserved.div_ceil(BLOCK) * (BLOCK / 512))
    }

    pub(super) fn read<F: DiskFile>(
        &self,
        size: u64,
        base: Option<&F>,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let n = size.saturating_sub(offset).min(buf.len() as u64);
        let (mut at, end) = (offset, offset + n);
        while at < end {
            // All blocks at once that are as below.
            let block = at / BLOCK;
            let next = match self.blocks.range(block..).next() {
                Some((changed, _)) if *changed == block => (block + 1) * BLOCK,
                Some((changed, _)) => changed * BLOCK,
                None => end,
            };
            let to = next.min(end);
            let buf = &mut buf[(at - offset) as usize..(to - offset) as usize];
            self.read_block(block, base, buf, at % BLOCK)?;
            at = to;
        }
        Ok(n as usize)
    }

    /// Reads of one block, from `start` in it, or of several that are as below.
    fn read_block<F: DiskFile>(
        &self,
        block: u64,
        base: Option<&F>,
        buf: &mut [u8],
        start: u64,
    ) -> io::Result<()> {
        match (self.blocks.get(&block), base) {
            (Some(Block::Data(data)), _) => {
                buf.copy_from_slice(&data[start as usize..start as usize + buf.len()]);
            }
            (None, Some(base)) => {
                let at = block * BLOCK + start;
                let below = self.base_end.saturating_sub(at).min(buf.len() as u64) as usize;
                let n = base.read_full(&mut buf[..below], at)?;
                buf[n..].fill(0);
            }
            (Some(Block::Zeros), _) | (None, None) => buf.fill(0),
        }
        Ok(())
    }

    pub(super) fn write<F: DiskFile>(
        &mut self,
        base: Option<&F>,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        for (block, from, to) in parts(offset, offset + bytes.len() as u64) {
            let new = &bytes[(from - offset) as usize..(to - offset) as usize];
            let start = (from % BLOCK) as usize;
            self.block(block, base)?[start..start + new.len()].copy_from_slice(new);
        }
        Ok(())
    }

    /// A block that is to be changed.
    fn block<F: DiskFile>(&mut self, block: u64, base: Option<&F>) -> io::Result<&mut [u8; BLOCK as usize]> {
        if !matches!(self.blocks.get(&block), Some(Block::Data(_))) {
            let mut data = Box::new([0; BLOCK as usize]);
            self.read_block(block, base, &mut data[..], 0)?;
            self.blocks.insert(block, Block::Data(data));
        }
        match self.blocks.get_mut(&block) {
            Some(Block::Data(data)) => Ok(data),
            _ => unreachable!("it was put there just now"),
        }
    }

    /// Nothing from here on.
    pub(super) fn cut(&mut self, len: u64) {
        self.blocks.split_off(&len.div_ceil(BLOCK));
        if let Some(Block::Data(data)) = self.blocks.get_mut(&(len / BLOCK)) {
            data[(len % BLOCK) as usize..].fill(0);
        }
        self.base_end = self.base_end.min(len);
        self.reserved = self.reserved.min(len);
    }

    pub(super) fn zero<F: DiskFile>(&mut self, base: Option<&F>, from: u64, to: u64) -> io::Result<()> {
        for (block, from, to) in parts(from, to) {
            if to - from == BLOCK {
                self.blocks.insert(block, Block::Zeros);
            } else {
                self.block(block, base)?[(from % BLOCK) as usize..=((to - 1) % BLOCK) as usize].fill(0);
            }
        }
        Ok(())
    }

    /// Space is reserved up to here.
    pub(super) fn reserve(&mut self, end: u64) {
        self.reserved = self.reserved.max(end);
    }

    pub(super) fn seek<F: DiskFile>(
        &self,
        size: u64,
        base: Option<&F>,
        offset: u64,
        hole: bool,
    ) -> io::Result<Option<u64>> {
        let mut at = offset;
        while at < size {
            let block = at / BLOCK;
            let end = (block + 1) * BLOCK;
            match (self.blocks.get(&block), base) {
                (Some(Block::Data(_)), _) if !hole => return Ok(Some(at)),
                (Some(Block::Data(_)), _) => at = end,
                (None, Some(base)) if at < self.base_end => {
                    // The next change below, if no block above lies before it.
                    let next = base.seek(at, hole)?.unwrap_or(self.base_end).min(self.base_end);
                    let above = self.blocks.range(block..).next().map_or(u64::MAX, |(n, _)| n * BLOCK);
                    if next < above && next < self.base_end {
                        return Ok(Some(next));
                    }
                    at = if above <= next { above } else { self.base_end };
                }
                _ if hole => return Ok(Some(at)),
                _ => {
                    let above = self.blocks.range(block + 1..).next().map_or(u64::MAX, |(n, _)| n * BLOCK);
                    at = if matches!(self.blocks.get(&block), Some(Block::Zeros)) { end } else { above };
                }
            }
        }
        Ok(if hole && offset < size { Some(size) } else { None })
    }
}
