//! The next steps after a body operation is done.

use atoll_core::planted::{Bug, planted};
use atoll_core::sum::{self, BLOCK_BYTES, BlockSums};
use atoll_core::{Ino, TxnId};
use atoll_posix::{Answer, Errno, Op, Whence, acl};
use atoll_proto::{BodyChange, ClientOp, Outcome, RequestResult};

use bytes::Bytes;

use crate::bodies::Bodies;
use crate::bodies::locks::BodyAccess;
use crate::bodies::op::{AfterBody, BodyOpState};
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, PendingRequest, Piece, Step};
use crate::event::{BodyDone, BodyFault, BodyOp, BodyOpId, Effect};
use crate::rows::path::ok;

impl Bodies {
    pub(crate) fn body_done(&mut self, ctx: &mut Ctx, ticket: BodyOpId, result: Result<BodyDone, BodyFault>) {
        let in_body = self.in_body.remove(&ticket).expect("every ticket comes back once");
        if let (BodyOpState::Asked { ino, call: Some(call), then, .. }, Ok(_)) = (&in_body, &result)
            && let Err(Blocked::Load(loads)) = ctx.may_decide(*ino, call, then)
        {
            // A sweep has let go of rows meanwhile: what the body has said or done stays true.
            self.in_body.insert(ticket, in_body);
            return ctx.load(loads, Next::BodyDone(ticket, result));
        }
        match in_body {
            BodyOpState::Dropping { .. } => {}
            BodyOpState::Shipping { ino, txn, offset, len, size } => {
                self.has_read(ctx, (ino, txn), (offset, len, size), result);
            }
            BodyOpState::Arriving { ino, txn } => {
                self.has_arrived(ino);
                ctx.state.view_again(&[ino], &[]);
                ctx.next(Next::Pull(txn));
            }
            BodyOpState::Reading { ino } => self.leave(ctx, ino, BodyAccess::Shared),
            BodyOpState::Changing { ino } => {
                // The record is committed: bytes that do not get in place are a broken disk, and
                // whoever performs effects stops the island for it. If the view has laid the file
                // meanwhile, it has yet to see them.
                ctx.state.view_again(&[ino], &[]);
                self.leave(ctx, ino, BodyAccess::Exclusive);
            }
            BodyOpState::Syncing { ino, call } => {
                let call = call.expect("kept when it was begun");
                self.locks.leave(ino, BodyAccess::Pinned);
                if planted(Bug::FreshTooLong) {
                    self.fresh.remove(&ino);
                }
                match result {
                    Ok(_) => {
                        let seq = ctx.state.seq();
                        ctx.next(Next::AwaitSynced(seq, call));
                    }
                    Err(BodyFault(errno)) => {
                        self.unsynced_bodies.insert(ino);
                        ctx.answer(&call, 0, Outcome::Failed { errno });
                    }
                }
            }
            BodyOpState::Asked { ino, how, call, then } => {
                let call = call.expect("kept when it was begun");
                self.after_body(ctx, ino, how, call, then, result);
            }
        }
        ctx.next(Next::Checkpoint);
    }

    pub(super) fn after_body(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        how: BodyAccess,
        call: PendingRequest,
        then: AfterBody,
        result: Result<BodyDone, BodyFault>,
    ) {
        ctx.state.begin_reads();
        let found = match result {
            Ok(found) => found,
            Err(BodyFault(errno)) => {
                let target = if let AfterBody::Direct { to, .. } = then { to } else { ino };
                if matches!(then, AfterBody::Direct { .. } | AfterBody::Allocated { .. }) {
                    ctx.state.view_disturbed(target);
                }
                if matches!(then, AfterBody::Direct { .. }) {
                    // The sync that was to come first may not have been made: the next write asks for it again.
                    self.carried.insert(target);
                }
                self.leave_asked(ctx, ino, target, how);
                return ctx.answer(&call, 0, Outcome::Failed { errno });
            }
        };
        let target = if let AfterBody::Direct { to, .. } = then { to } else { ino };
        if matches!(ctx.state.inode(target), Ok(None)) {
            // It has been removed meanwhile, and its checksums may be gone from memory, unlike it from the snapshot.
            self.leave_asked(ctx, ino, target, how);
            return ctx.answer(&call, 0, Outcome::Failed { errno: Errno::ESTALE });
        }
        let step = match (then, found) {
            (AfterBody::Found, BodyDone::Offset(at)) => {
                self.leave(ctx, ino, how);
                match at {
                    Some(offset) => Ok(Step::Looked(ok(Answer::Offset { offset }, None))),
                    None => Err(Blocked::Fail(Errno::ENXIO)),
                }
            }
            (AfterBody::Fetched, BodyDone::Bytes(bytes)) => {
                self.leave(ctx, ino, how);
                let seq = ctx.state.seq();
                return ctx.answer_data(&call, seq, ok(Answer::Data, None), bytes);
            }
            (AfterBody::Carry { offset, size }, BodyDone::Sums(new)) => {
                let kill =
                    matches!(call.request.op, ClientOp::Fs { op: Op::Write { kill_set_id: true, .. } });
                let old = ctx.old_sums(ino, offset, call.data.len() as u64, size);
                let old = old.expect("in memory before this goes on");
                Ok(self.decide_inline(ctx, &call, ino, offset, size, &old, &new, kill))
            }
            (AfterBody::Direct { to, offset, len, size, promised, .. }, found) => {
                let (new, placed) = match found {
                    BodyDone::Sums(new) => (new, call.data.clone()),
                    BodyDone::Copied(new, placed) => (new, placed),
                    found => unreachable!("bytes were put in place, and answered with {found:?}"),
                };
                let extent = BodyChange::Extent { ino: to, offset, len, promised };
                let step = self.decide_in_place(ctx, &call, (extent, placed), (to, offset, len), size, &new);
                self.leave_asked(ctx, ino, to, how);
                step
            }
            (AfterBody::Cut { size }, BodyDone::Edges(edges)) => {
                let ClientOp::Fs { op: Op::SetAttr { set, .. } } = &call.request.op else {
                    unreachable!("cutting serves setattr")
                };
                let set = *set;
                self.decide_cut(ctx, &call, ino, &set, size, edges.first().copied())
            }
            (AfterBody::Zero { offset, len, size }, BodyDone::Edges(edges)) => {
                Ok(self.decide_zero(ctx, &call, ino, (offset, len, size), &edges))
            }
            (AfterBody::Allocated { offset, len, keep_size, size }, BodyDone::Done) => {
                Ok(self.decide_allocated(ctx, &call, ino, (offset, len, size), keep_size))
            }
            (then, found) => unreachable!("{then:?} was answered with {found:?}"),
        };
        match step {
            Ok(Step::Looked(outcome)) => ctx.answer(&call, ctx.state.seen(), outcome),
            Ok(Step::Decided(outcome)) => ctx.answer(&call, ctx.state.seq(), outcome),
            Ok(Step::Wait(_) | Step::Answered) => unreachable!("nothing is asked twice"),
            Err(stop) => ctx.next(Next::Park(call, stop)),
        }
        ctx.next(Next::Turn(ino));
    }

    /// Reads bytes of a file that moves. If an operation inside changes the file, it does not move.
    pub(crate) fn read_to_ship(&mut self, ctx: &mut Ctx, piece: Piece) {
        let Piece { txn, ino, offset, len, size, sums } = piece;
        if self.enter(ino, BodyAccess::Shared, false).is_err() {
            return ctx.next(Next::Abort(txn, None));
        }
        // A hole has no checksums; what has none may still be no hole.
        if sums.iter().all(|sum| *sum == 0) {
            let op = BodyOp::Seek { ino, offset, whence: Whence::Data, size };
            let ticket = self.ticket(BodyOpState::Shipping { ino, txn, offset, len, size });
            ctx.durability.emit(Effect::Body(ticket, op));
        } else {
            self.fetch(ctx, ino, txn, offset, len, size, sums);
        }
    }

    /// Bytes of a file that moves are read; the gate is still entered.
    fn has_read(
        &mut self,
        ctx: &mut Ctx,
        (ino, txn): (Ino, TxnId),
        (offset, len, size): (u64, u32, u64),
        result: Result<BodyDone, BodyFault>,
    ) {
        let chunk = match result {
            // The first data is behind this piece: a hole, up to there.
            Ok(BodyDone::Offset(data)) => {
                let data = data.unwrap_or(size);
                if data < offset + u64::from(len) {
                    let sums = vec![0; sum::blocks_of(offset, u64::from(len)).1 as usize];
                    return self.fetch(ctx, ino, txn, offset, len, size, sums);
                }
                let end = if data >= size { size } else { data - data % BLOCK_BYTES };
                Some((end, Bytes::new()))
            }
            Ok(BodyDone::Bytes(bytes)) => Some((offset, bytes)),
            _ => None,
        };
        ctx.next(Next::HasRead(txn, chunk));
        self.leave(ctx, ino, BodyAccess::Shared);
    }

    pub(super) fn decide_in_place(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        (extent, placed): (BodyChange, Bytes),
        (ino, offset, len): (Ino, u64, u64),
        size: u64,
        new: &BlockSums,
    ) -> Result<Step, Blocked> {
        let kill = match call.request.op {
            ClientOp::Fs { op: Op::Write { kill_set_id, .. } } => kill_set_id,
            _ => !call.caller().is_root(),
        };
        let old = ctx.old_sums(ino, offset, len, size).expect("in memory before this goes on");
        let mut decision = Decision::new();
        let unprivileged = kill.then(|| call.caller());
        if self.wrote(ctx, &mut decision, ino, offset, len, &old, new, unprivileged).is_none() {
            return Err(Errno::ESTALE.into());
        }
        decision.body(extent);
        decision.placed = placed;
        decision.remember_for(call, RequestResult::Wrote { len, offset });
        ctx.decide(decision);
        self.unsynced_bodies.insert(ino);
        Ok(Step::Decided(ok(Answer::Wrote { len, offset }, None)))
    }

    pub(crate) fn lost(&mut self, ino: Ino) -> Step {
        self.locks.leave(ino, BodyAccess::Exclusive);
        Step::Looked(Outcome::Failed { errno: Errno::ESTALE })
    }

    pub(crate) fn leave(&mut self, ctx: &mut Ctx, ino: Ino, how: BodyAccess) {
        self.locks.leave(ino, how);
        ctx.next(Next::Turn(ino));
    }

    /// A body operation is done: the body's gate is free, and the gate of a second body that it changed.
    pub(super) fn leave_asked(&mut self, ctx: &mut Ctx, ino: Ino, target: Ino, how: BodyAccess) {
        if target != ino {
            self.leave(ctx, target, BodyAccess::Exclusive);
        }
        self.leave(ctx, ino, how);
    }
}

impl Ctx {
    /// Everything that is read to decide what follows a body operation must be in memory.
    pub(super) fn may_decide(
        &self,
        ino: Ino,
        call: &PendingRequest,
        then: &AfterBody,
    ) -> Result<(), Blocked> {
        let target = if let AfterBody::Direct { to, .. } = then { *to } else { ino };
        let Some(row) = self.state.inode(target)? else { return Ok(()) };
        self.without_capability(row)?;
        let zeroed = |offset: u64, len: u64, size: u64| -> Result<(), Blocked> {
            let (first, count) = sum::blocks_of(offset, len.min(size.saturating_sub(offset)));
            self.state.sums(ino, first, count)?;
            self.last_sum(ino, size)
        };
        match (then, &call.request.op) {
            (AfterBody::Found | AfterBody::Fetched, _) => Ok(()),
            (AfterBody::Carry { offset, size }, _) => {
                self.old_sums(ino, *offset, call.data.len() as u64, *size).map(drop)
            }
            (AfterBody::Direct { to, offset, len, size, .. }, _) => {
                self.old_sums(*to, *offset, *len, *size).map(drop)
            }
            (AfterBody::Cut { size }, ClientOp::Fs { op: Op::SetAttr { set, .. } }) => {
                self.acl(ino, row.has_acl, acl::ACCESS_XATTR)?;
                self.cut_sums(ino, set.size.unwrap_or(*size), *size)
            }
            (AfterBody::Zero { offset, len, size }, _) => zeroed(*offset, *len, *size),
            (AfterBody::Allocated { size, .. }, _) => self.last_sum(ino, *size),
            (AfterBody::Cut { .. }, _) => unreachable!("cutting serves setattr"),
        }
    }
}
