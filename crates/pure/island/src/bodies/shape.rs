//! Operations that change the shape of files: truncate, allocate, punch. Puts no bytes in place by itself;
//! `data` has the order between records and bodies.

use atoll_core::Ino;
use atoll_core::sum::{self, BLOCK_BYTES};
use atoll_posix::{Allocation, Answer, Attr, Errno, Op, SetAttr, perm};
use atoll_proto::{BodyChange, ClientOp, Inode, RequestResult, RowChange};

use crate::bodies::Bodies;
use crate::bodies::data::{body_attr, mode_without_set_id};
use crate::bodies::locks::BodyAccess;
use crate::bodies::op::{AfterBody, BodyOpState, RequiredDurability};
use crate::bodies::space;
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, PendingRequest, Step, WaitFor};
use crate::event::BodyOp;
use crate::rows::files::blocks;
use crate::rows::path::{done, ok};

impl Bodies {
    /// `truncate` and its kin, together with the other attributes that come along.
    pub(crate) fn set_size(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        set: &SetAttr,
        after: &Attr,
        turn: bool,
    ) -> Result<Step, Blocked> {
        let attr = ctx.regular(ino)?;
        let (size, len) = (attr.size, after.size);
        if len > size {
            ctx.room.take(0)?;
        }
        let old = match sum::block_of_cut(len, size) {
            Some(block) => Some((block, ctx.state.sums(ino, block, 1)?[0])),
            None => None,
        };
        ctx.cut_sums(ino, len, size)?;
        self.enter(ino, BodyAccess::Exclusive, turn)?;
        match old {
            Some((_, sum)) if len < size && sum != 0 => {
                let op = BodyOp::SumAfterCut { ino, len, size, old: sum };
                Ok(self.ask(ctx, ino, BodyAccess::Exclusive, op, AfterBody::Cut { size }))
            }
            Some(last) if len > size => {
                let edge = sum::sum_after_growing(size, len, last);
                self.decide_cut(ctx, call, ino, set, size, Some(edge))
            }
            _ => self.decide_cut(ctx, call, ino, set, size, None),
        }
    }

    pub(crate) fn decide_cut(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        set: &SetAttr,
        size: u64,
        edge: Option<(u64, u32)>,
    ) -> Result<Step, Blocked> {
        let mut decision = Decision::new();
        let changed = ctx.changed_attr(call, ino, set);
        let (mut row, xattrs) = match changed {
            Ok(changed) => changed,
            Err(stop) => {
                self.locks.leave(ino, BodyAccess::Exclusive);
                return Err(stop);
            }
        };
        let len = row.attr.size;
        if len < size {
            let first = blocks(len);
            decision.push(RowChange::SumsCut { ino, first, end: blocks(size) });
            row.attr.blocks = row.attr.blocks.min(first * 8);
        }
        if let Some((block, sum)) = edge {
            decision.push(RowChange::Sums { ino, first: block, sums: vec![sum] });
        }
        let attr = row.attr;
        decision.file(row, xattrs);
        decision.remember_for(call, RequestResult::Attr { ino });
        if len == size {
            ctx.decide(decision);
            self.locks.leave(ino, BodyAccess::Exclusive);
        } else {
            self.touch(ino, ctx.state.seq() + 1);
            decision.body(BodyChange::Cut { ino, len });
            self.carried.insert(ino);
            let seq = ctx.decide(decision);
            let ticket = self.ticket(BodyOpState::Changing { ino });
            let op = BodyOp::Cut { ino, len, size, attr: body_attr(&attr) };
            let after = self.after_carrying(ctx, ino, seq, len < size, len > size);
            self.body_after(ctx, ticket, op, after);
        }
        Ok(Step::Decided(ok(Answer::Attr { attr }, None)))
    }

    pub(crate) fn fallocate(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        offset: u64,
        len: u64,
        what: Allocation,
        turn: bool,
    ) -> Result<Step, Blocked> {
        let attr = ctx.to_change(ino)?;
        let size = attr.size;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        ctx.may_reach(offset.checked_add(len))?;
        if !matches!(what, Allocation::PunchHole) {
            ctx.room.take(0)?;
        }
        ctx.last_sum(ino, size)?;
        if let Allocation::Allocate { keep_size } = what {
            self.enter(ino, BodyAccess::Exclusive, turn)?;
            let end = if keep_size { size } else { offset + len };
            let after = self.before_in_place(ctx, ino, size, end);
            let op = BodyOp::Allocate { ino, offset, len, keep_size, size, attr: body_attr(&attr) };
            let then = AfterBody::Allocated { offset, len, keep_size, size };
            let ticket =
                self.ticket(BodyOpState::Asked { ino, how: BodyAccess::Exclusive, call: None, then });
            self.body_after(ctx, ticket, op, after);
            return Ok(Step::Wait(WaitFor::Body(ticket)));
        }
        if len > perm::ZERO_BYTES_MAX {
            // Its checksums would be more than a record holds.
            return Err(Errno::EFBIG.into());
        }
        let edges = sum::edges_of_zero(offset, len, size);
        let mut old = Vec::with_capacity(edges.len());
        for block in edges {
            old.push(ctx.state.sums(ino, block, 1)?[0]);
        }
        // Every checksum in the range is written, so the rows must be there.
        let (first, count) = sum::blocks_of(offset, len.min(size.saturating_sub(offset)));
        if count > 0 {
            ctx.state.sums(ino, first, count)?;
        }
        self.enter(ino, BodyAccess::Exclusive, turn)?;
        let op = BodyOp::SumsAfterZero { ino, offset, len, size, old };
        Ok(self.ask(ctx, ino, BodyAccess::Exclusive, op, AfterBody::Zero { offset, len, size }))
    }

    pub(crate) fn decide_zero(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        (offset, len, size): (u64, u64, u64),
        edges: &[(u64, u32)],
    ) -> Step {
        let Some(mut row) = ctx.state.inode(ino).ok().flatten().cloned() else {
            return self.lost(ino);
        };
        let ClientOp::Fs { op: Op::Fallocate { what, .. } } = &call.request.op else {
            unreachable!("zeroing serves fallocate")
        };
        let mut decision = Decision::new();
        let (first, count) = sum::blocks_of(offset, len.min(size.saturating_sub(offset)));
        let new: Vec<u32> = (first..first + count)
            .map(|block| edges.iter().find(|(b, _)| *b == block).map_or(0, |(_, sum)| *sum))
            .collect();
        if count > 0 {
            let old = ctx.state.sums(ino, first, count).expect("loaded before");
            let whole = count - edges.len() as u64;
            row.attr.blocks = space::after_zero(row.attr.blocks, size, whole, &old, &new);
            decision.push(RowChange::Sums { ino, first, sums: new.clone() });
        }
        ctx.bytes_changed(&mut row, call);
        let grows = matches!(what, Allocation::ZeroRange { keep_size: false }) && offset + len > size;
        if grows {
            ctx.grow(&mut decision, ino, size, offset + len, (first, &new));
            row.attr.size = offset + len;
        }
        let attr = row.attr;
        ctx.file_changed(&mut decision, row);
        decision.body(BodyChange::Zero { ino, offset, len });
        self.carried.insert(ino);
        if grows {
            decision.body(BodyChange::Cut { ino, len: offset + len });
        }
        decision.remember_for(call, RequestResult::Done);
        let seq = ctx.decide(decision);
        self.touch(ino, seq);
        let after = RequiredDurability::safe(seq, self.fresh.contains(&ino));
        if grows {
            // Order within one body: the hole first, then the length, then the body is free.
            let ticket = self.ticket(BodyOpState::Dropping { ino });
            self.body_after(ctx, ticket, BodyOp::Zero { ino, offset, len, size }, after);
            let ticket = self.ticket(BodyOpState::Changing { ino });
            let op = BodyOp::Cut { ino, len: offset + len, size, attr: body_attr(&attr) };
            self.body_after(ctx, ticket, op, after);
        } else {
            let ticket = self.ticket(BodyOpState::Changing { ino });
            self.body_after(ctx, ticket, BodyOp::Zero { ino, offset, len, size }, after);
        }
        Step::Decided(done())
    }

    pub(crate) fn decide_allocated(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        (offset, len, size): (u64, u64, u64),
        keep_size: bool,
    ) -> Step {
        let Some(mut row) = ctx.state.inode(ino).ok().flatten().cloned() else {
            return self.lost(ino);
        };
        let mut decision = Decision::new();
        ctx.bytes_changed(&mut row, call);
        let end = offset + len;
        if !keep_size && end > size {
            ctx.grow(&mut decision, ino, size, end, (0, &[]));
            row.attr.size = end;
        }
        row.attr.blocks = space::after_allocate(row.attr.blocks, row.attr.size, offset, len);
        ctx.file_changed(&mut decision, row);
        decision.body(BodyChange::Allocate { ino, offset, len });
        decision.remember_for(call, RequestResult::Done);
        let seq = ctx.decide(decision);
        self.touch(ino, seq);
        self.locks.leave(ino, BodyAccess::Exclusive);
        Step::Decided(done())
    }
}

impl Ctx {
    /// The times and the mode of a file whose bytes change. If they come to an absent file, its user has not changed it.
    fn bytes_changed(&mut self, row: &mut Inode, call: &PendingRequest) {
        if row.is_absent {
            return;
        }
        let now = self.time();
        row.attr.mtime = now;
        row.attr.ctime = now;
        if !call.caller().is_root() {
            row.attr.mode = mode_without_set_id(call.caller(), &row.attr);
        }
    }

    /// The rows of a file that grows to `len` with a hole, as far as its last block is concerned.
    /// `zeroed`: checksums that the same decision gives to blocks from the first one on.
    pub(crate) fn grow(&self, decision: &mut Decision, ino: Ino, size: u64, len: u64, zeroed: (u64, &[u32])) {
        let Some(block) = sum::growing_block(size, len) else { return };
        let new = block.checked_sub(zeroed.0).and_then(|i| zeroed.1.get(i as usize)).copied();
        let old = || self.state.sums(ino, block, 1).expect("in memory before this goes on")[0];
        let (block, sum) = sum::sum_after_growing(size, len, (block, new.unwrap_or_else(old)));
        decision.push(RowChange::Sums { ino, first: block, sums: vec![sum] });
    }

    /// The checksum of the last block, which changes when the file grows with a hole.
    pub(crate) fn last_sum(&self, ino: Ino, size: u64) -> Result<(), Blocked> {
        if !size.is_multiple_of(BLOCK_BYTES) {
            self.state.sums(ino, size / BLOCK_BYTES, 1)?;
        }
        Ok(())
    }

    /// The rows of checksums of which a cut takes a part.
    pub(crate) fn cut_sums(&self, ino: Ino, len: u64, size: u64) -> Result<(), Blocked> {
        if len >= size {
            return self.last_sum(ino, size);
        }
        self.state.sums(ino, len / BLOCK_BYTES, 1)?;
        let cut = RowChange::SumsCut { ino, first: blocks(len), end: blocks(size) };
        self.state.needs(&cut).map_or(Ok(()), |load| Err(Blocked::Load(vec![load])))
    }
}
