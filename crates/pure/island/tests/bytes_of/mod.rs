//! Bodies in memory. Nothing fails, and nothing waits.

use std::collections::BTreeMap;

use atoll_core::Ino;
use atoll_core::sum::{self, BLOCK_BYTES, BlockSums, PartialBlock};
use atoll_island::{BodyDone, BodyOp};
use atoll_proto::Reply;
use bytes::Bytes;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bodies(pub(crate) BTreeMap<Ino, Vec<u8>>);

/// The answer to a client's read.
pub(crate) type ReadReply = (u64, Reply, Bytes);

impl Bodies {
    /// Does it. Of a client's read also the answer.
    pub(crate) fn perform(&mut self, op: BodyOp) -> (Option<ReadReply>, BodyDone) {
        let mut reply_of_read = None;
        let done = match op {
            BodyOp::Read { id, reply, ino, offset, len, size, .. } => {
                reply_of_read = Some((id, reply, self.read(ino, size, offset, len.into()).into()));
                BodyDone::Done
            }
            BodyOp::Fetch { ino, offset, len, size, .. } => {
                BodyDone::Bytes(self.read(ino, size, offset, len.into()).into())
            }
            BodyOp::SumsAfter { ino, offset, data, size, old } => {
                BodyDone::Sums(self.sums_after(ino, offset, &data, size, &old))
            }
            BodyOp::Write { ino, offset, data, size, old, .. } => {
                let sums = old.map(|old| self.sums_after(ino, offset, &data, size, &old));
                self.put(ino, offset, &data);
                sums.map_or(BodyDone::Done, BodyDone::Sums)
            }
            BodyOp::SumAfterCut { ino, len, .. } => {
                let block = len / BLOCK_BYTES;
                let left = self.read(ino, len, block * BLOCK_BYTES, BLOCK_BYTES);
                BodyDone::Edges(vec![(block, sum::sum(&left))])
            }
            BodyOp::Cut { ino, len, .. } => {
                self.0.entry(ino).or_default().resize(len as usize, 0);
                BodyDone::Done
            }
            BodyOp::Copy { from: (from, at, from_size, _), to: (to, offset, size, old), len, .. } => {
                let data = self.read(from, from_size, at, len);
                let sums = self.sums_after(to, offset, &data, size, &old);
                self.put(to, offset, &data);
                BodyDone::Copied(sums, data.into())
            }
            BodyOp::Drop { ino } => {
                self.0.remove(&ino);
                BodyDone::Done
            }
            BodyOp::Sync { .. } => BodyDone::Done,
            BodyOp::SumsAfterZero { ino, offset, len, size, .. } => {
                let mut after = self.read(ino, size, 0, size);
                let end = offset.saturating_add(len).min(size);
                after[offset as usize..end as usize].fill(0);
                let sum_of = |block: u64| {
                    let from = (block * BLOCK_BYTES) as usize;
                    sum::sum(&after[from..after.len().min(from + BLOCK_BYTES as usize)])
                };
                let edges = sum::edges_of_zero(offset, len, size).into_iter();
                BodyDone::Edges(edges.map(|block| (block, sum_of(block))).collect())
            }
            BodyOp::Zero { ino, offset, len, size } => {
                let body = self.0.entry(ino).or_default();
                let end = offset.saturating_add(len).min(size).min(body.len() as u64);
                body[offset.min(end) as usize..end as usize].fill(0);
                BodyDone::Done
            }
            BodyOp::Seek { size, .. } => BodyDone::Offset(Some(size)),
            other => panic!("{other:?} is not done here"),
        };
        (reply_of_read, done)
    }

    /// Bytes of a file of `size` bytes. What a body does not have reads as zeros.
    fn read(&self, ino: Ino, size: u64, offset: u64, len: u64) -> Vec<u8> {
        let body = self.0.get(&ino).map_or(&[][..], Vec::as_slice);
        let (from, end) = (offset.min(size) as usize, offset.saturating_add(len).min(size) as usize);
        (from..end).map(|at| body.get(at).copied().unwrap_or(0)).collect()
    }

    fn put(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let (body, end) = (self.0.entry(ino).or_default(), offset as usize + data.len());
        body.resize(body.len().max(end), 0);
        body[offset as usize..end].copy_from_slice(data);
    }

    fn sums_after(&self, ino: Ino, offset: u64, data: &[u8], size: u64, old: &BlockSums) -> BlockSums {
        let whole = |part: PartialBlock, _| {
            let start = part.block * BLOCK_BYTES;
            let end = (start + part.old_len).max((offset + data.len() as u64).min(start + BLOCK_BYTES));
            let mut after = self.read(ino, size, start, part.old_len);
            after.resize((end - start) as usize, 0);
            for (at, byte) in (offset..).zip(data).filter(|(at, _)| (start..end).contains(at)) {
                after[(at - start) as usize] = *byte;
            }
            Ok::<_, ()>(sum::sum(&after))
        };
        sum::sums_after_write(offset, data, size, old, whole).expect("nothing fails")
    }
}
