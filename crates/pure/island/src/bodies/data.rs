//! Operations on bytes of files: read, write, truncate, allocate, punch, copy, seek, fsync (`DESIGN` 4,
//! Bodies).
//!
//! A small write is decided first, and its record carries the bytes. The bytes of a large write are put into
//! the body first. Invariants: a body loses synced bytes only when the record of that is synced; the first
//! overwrite of synced bytes since a checkpoint follows a synced `Dirty` record.

use atoll_core::planted::{Bug, planted};
use atoll_core::sum::{self, BlockSums};
use atoll_core::{Ino, TxnId};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, Whence, mode, perm};
use atoll_proto::{BodyChange, Inode, Outcome, RequestResult, RowChange};
use bytes::Bytes;

use crate::bodies::Bodies;
use crate::bodies::locks::BodyAccess;
use crate::bodies::op::{AfterBody, BodyOpState, RequiredDurability};
use crate::bodies::space;
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, PendingRequest, Step, WaitFor};
use crate::event::{BodyAttr, BodyOp, BodyOpId, Effect};
use crate::rows::path::ok;

/// Largest write that its record carries.
pub(crate) const INLINE_BYTES_MAX: usize = 32 * 1024;
/// Most bytes that one copy moves; the caller asks again for the rest.
const COPY_BYTES_MAX: u64 = 1024 * 1024;

pub(crate) const fn body_attr(attr: &Attr) -> BodyAttr {
    BodyAttr { mode: attr.mode, uid: attr.uid, gid: attr.gid }
}

/// The mode after a write by an unprivileged caller. If group membership could matter, it was asked for
/// before. If the group has changed since, the caller does not count as a member.
pub(crate) fn mode_without_set_id(caller: &Caller, attr: &Attr) -> u32 {
    perm::mode_after_bytes(caller, attr).unwrap_or(perm::kill_set_id(attr.mode) & !mode::SETGID)
}

impl Bodies {
    // --------------------------------------------------------------------- copy

    pub(crate) fn copy_range(
        &mut self,
        ctx: &mut Ctx,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
        turn: bool,
    ) -> Result<Step, Blocked> {
        let source = ctx.regular(from)?;
        let target = ctx.to_change(to)?;
        let len = len.min(COPY_BYTES_MAX).min(source.size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(Step::Looked(ok(Answer::Wrote { len: 0, offset: to_offset }, None)));
        }
        ctx.may_reach(to_offset.checked_add(len))?;
        if from == to && from_offset < to_offset + len && to_offset < from_offset + len {
            return Err(Errno::EINVAL.into());
        }
        ctx.room.take(len)?;
        let (first, count) = sum::blocks_of(from_offset, len);
        let from_sums = ctx.state.sums(from, first, count)?;
        let old = ctx.old_sums(to, to_offset, len, target.size)?;
        self.enter(to, BodyAccess::Exclusive, turn)?;
        // Its turn at one lock is its turn at both: if it went back to the front of a queue with nobody inside,
        // nobody would ever wake it.
        if from != to && !self.locks.enter(from, BodyAccess::Shared, turn && !planted(Bug::CopyWaitsBehind)) {
            // Nobody waits for one lock while it holds another.
            self.locks.leave(to, BodyAccess::Exclusive);
            return Err(Blocked::BodyLocked(from));
        }
        let after = self.before_in_place(ctx, to, to_offset, to_offset + len);
        let promised = self.sync_first(to);
        let op = BodyOp::Copy {
            from: (from, from_offset, source.size, from_sums),
            to: (to, to_offset, target.size, old),
            len,
            attr: body_attr(&target),
            sync_first: promised,
        };
        let over_new = self.fresh.contains(&to);
        let then = AfterBody::Direct { to, offset: to_offset, len, size: target.size, over_new, promised };
        // Within one file there is one lock.
        let how = if from == to { BodyAccess::Exclusive } else { BodyAccess::Shared };
        let ticket = self.ticket(BodyOpState::Asked { ino: from, how, call: None, then });
        self.body_after(ctx, ticket, op, after);
        Ok(Step::Wait(WaitFor::Body(ticket)))
    }

    // -------------------------------------------------------------------- fsync

    pub(crate) fn fsync(&mut self, ctx: &mut Ctx, ino: Ino) -> Result<Step, Blocked> {
        if ctx.state.inode(ino)?.is_none() && ctx.state.dir(ino)?.is_none() {
            return Err(Errno::ESTALE.into());
        }
        // A write that is being put in place over a file that was new then has not made safe what lies below it:
        // when it is done, it is synced together with that.
        if self.in_body.values().any(|body| body.is_over_new() == Some(ino)) {
            return Err(Blocked::BodyLocked(ino));
        }
        // From here on bytes of this file are going to be promised: whatever overwrites them must not be all that a
        // power cut leaves of the change, also while the sync is under way.
        if !planted(Bug::FreshTooLong) {
            self.fresh.remove(&ino);
        }
        // Another's sync that is under way has begun for what was there then.
        let another = |body: &BodyOpState| matches!(body, BodyOpState::Syncing { ino: of, .. } if *of == ino);
        if planted(Bug::FsyncWithoutBody) {
            return Ok(Step::Wait(WaitFor::Synced(ctx.state.seq())));
        }
        if self.unsynced_bodies.contains(&ino)
            || self.syncing_bodies.contains(&ino)
            || self.in_body.values().any(another)
        {
            self.locks.enter(ino, BodyAccess::Pinned, false);
            let ticket = self.ticket(BodyOpState::Syncing { ino, call: None });
            // Only what was acknowledged before counts, and that is in place.
            ctx.durability.emit(Effect::Body(ticket, BodyOp::Sync { ino }));
            // A write that comes while the sync runs needs another one.
            self.unsynced_bodies.remove(&ino);
            return Ok(Step::Wait(WaitFor::Body(ticket)));
        }
        Ok(Step::Wait(WaitFor::Synced(ctx.state.seq())))
    }

    /// A ticket for a body operation, with its next step.
    pub(crate) fn ticket(&mut self, in_body: BodyOpState) -> BodyOpId {
        let ticket = BodyOpId(self.next_ticket);
        self.next_ticket += 1;
        self.in_body.insert(ticket, in_body);
        ticket
    }

    pub(crate) fn enter(&mut self, ino: Ino, how: BodyAccess, turn: bool) -> Result<(), Blocked> {
        if self.locks.enter(ino, how, turn) { Ok(()) } else { Err(Blocked::BodyLocked(ino)) }
    }

    /// Asks the body for something that the request needs to go on.
    pub(crate) fn ask(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        how: BodyAccess,
        op: BodyOp,
        then: AfterBody,
    ) -> Step {
        let ticket = self.ticket(BodyOpState::Asked { ino, how, call: None, then });
        ctx.durability.emit(Effect::Body(ticket, op));
        Step::Wait(WaitFor::Body(ticket))
    }

    pub(crate) fn read(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        offset: u64,
        len: u32,
        turn: bool,
    ) -> Result<Step, Blocked> {
        let size = ctx.regular(ino)?.size;
        let len = size.saturating_sub(offset).min(u64::from(len));
        if len == 0 {
            return Ok(Step::Looked(Outcome::Data { data: Bytes::new() }));
        }
        let (first, count) = sum::blocks_of(offset, len);
        let sums = ctx.state.sums(ino, first, count)?;
        self.enter(ino, BodyAccess::Shared, turn)?;
        if call.is_of_beside() {
            let len = u32::try_from(len).expect("as asked for at most");
            let op = BodyOp::Fetch { ino, offset, len, size, sums };
            return Ok(self.ask(ctx, ino, BodyAccess::Shared, op, AfterBody::Fetched));
        }
        let seen = ctx.state.seen();
        let ticket = self.ticket(BodyOpState::Reading { ino });
        let (link, id, reply) = ctx.reply_to(call, ok(Answer::Data, None));
        let len = u32::try_from(len).expect("as asked for at most");
        let op = BodyOp::Read { link, id, reply, ino, offset, len, size, sums };
        ctx.durability.after_commit(seen, Effect::Body(ticket, op));
        Ok(Step::Answered)
    }

    pub(crate) fn seek(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        offset: u64,
        whence: Whence,
        turn: bool,
    ) -> Result<Step, Blocked> {
        let size = ctx.regular(ino)?.size;
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        self.enter(ino, BodyAccess::Shared, turn)?;
        Ok(self.ask(
            ctx,
            ino,
            BodyAccess::Shared,
            BodyOp::Seek { ino, offset, whence, size },
            AfterBody::Found,
        ))
    }

    pub(crate) fn write(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        offset: u64,
        append: bool,
        kill_set_id: bool,
        turn: bool,
    ) -> Result<Step, Blocked> {
        let attr = ctx.to_change(ino)?;
        let size = attr.size;
        let offset = if append { size } else { offset };
        let len = call.data.len() as u64;
        if len == 0 {
            return Ok(Step::Looked(ok(Answer::Wrote { len: 0, offset }, None)));
        }
        ctx.may_reach(offset.checked_add(len))?;
        if kill_set_id {
            // Now, while more can be asked for: when the bytes are there it is too late.
            perm::mode_after_bytes(call.caller(), &attr)?;
        }
        let old = ctx.old_sums(ino, offset, len, size)?;
        ctx.room.take(len)?;
        self.enter(ino, BodyAccess::Exclusive, turn)?;
        if call.data.len() <= INLINE_BYTES_MAX {
            return Ok(match sum::sums_without_reading(offset, &call.data, size, &old) {
                Some(new) => self.decide_inline(ctx, call, ino, offset, size, &old, &new, kill_set_id),
                None => {
                    let op = BodyOp::SumsAfter { ino, offset, data: call.data.clone(), size, old };
                    self.ask(ctx, ino, BodyAccess::Exclusive, op, AfterBody::Carry { offset, size })
                }
            });
        }
        let after = self.before_in_place(ctx, ino, offset, offset + len);
        let data = call.data.clone();
        let (attr, sync_first) = (body_attr(&attr), self.sync_first(ino));
        let op = BodyOp::Write { ino, offset, data, size, attr, old: Some(old), sync_first };
        let over_new = self.fresh.contains(&ino);
        let then = AfterBody::Direct { to: ino, offset, len, size, over_new, promised: sync_first };
        let ticket = self.ticket(BodyOpState::Asked { ino, how: BodyAccess::Exclusive, call: None, then });
        self.body_after(ctx, ticket, op, after);
        Ok(Step::Wait(WaitFor::Body(ticket)))
    }

    /// Decides a write whose bytes the record carries.
    pub(super) fn decide_inline(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        ino: Ino,
        offset: u64,
        size: u64,
        old: &BlockSums,
        new: &BlockSums,
        kill_set_id: bool,
    ) -> Step {
        let bytes = call.data.clone();
        let mut decision = Decision::new();
        let overwrites = offset < size && !self.fresh.contains(&ino);
        let dirty = overwrites && !ctx.state.dirty_bodies().contains(&ino) && !planted(Bug::NoDirtyCarried);
        if dirty {
            decision.push(RowChange::Dirty { ino });
        }
        let unprivileged = kill_set_id.then(|| call.caller());
        let Some(attr) =
            self.wrote(ctx, &mut decision, ino, offset, bytes.len() as u64, old, new, unprivileged)
        else {
            self.locks.leave(ino, BodyAccess::Exclusive);
            return Step::Looked(Outcome::Failed { errno: Errno::ESTALE });
        };
        decision.body(BodyChange::Bytes { ino, offset, bytes: bytes.clone() });
        let len = bytes.len() as u64;
        decision.remember_for(call, RequestResult::Wrote { len, offset });
        let seq = ctx.decide(decision);
        self.carried.insert(ino);
        let (attr, sync_first) = (body_attr(&attr), false);
        let op = BodyOp::Write { ino, offset, data: bytes, size, attr, old: None, sync_first };
        let ticket = self.ticket(BodyOpState::Changing { ino });
        let after = self.after_carrying(ctx, ino, seq, dirty, offset + len > size);
        self.body_after(ctx, ticket, op, after);
        Step::Decided(ok(Answer::Wrote { len, offset }, None))
    }

    /// When a body may be changed as its record says. Synced bytes that go (`replaces`) and a body that `grows` must
    /// not be all that a power cut leaves of the change: no recovery would look at that body.
    pub(crate) fn after_carrying(
        &self,
        ctx: &Ctx,
        ino: Ino,
        seq: u64,
        replaces: bool,
        grows: bool,
    ) -> RequiredDurability {
        let is_looked_at = || self.touched.get(&ino).is_some_and(|first| ctx.durability.is_synced(*first));
        let grows = grows && !planted(Bug::GrowsUnrecorded);
        let may_be_lost = !replaces && (!grows || is_looked_at());
        RequiredDurability::safe(seq, may_be_lost || self.fresh.contains(&ino))
    }

    /// Rows of a file after a write. `None` if the file is gone.
    pub(super) fn wrote(
        &mut self,
        ctx: &mut Ctx,
        decision: &mut Decision,
        ino: Ino,
        offset: u64,
        len: u64,
        old: &BlockSums,
        new: &BlockSums,
        unprivileged: Option<&Caller>,
    ) -> Option<Attr> {
        let mut row = ctx.state.inode(ino).ok().flatten()?.clone();
        let now = ctx.time();
        let attr = &mut row.attr;
        attr.size = attr.size.max(offset + len);
        if !row.is_absent {
            attr.mtime = now;
            attr.ctime = now;
            if let Some(caller) = unprivileged {
                attr.mode = mode_without_set_id(caller, attr);
            }
        }
        attr.blocks = space::after_write(attr.blocks, attr.size, &old.sums, &new.sums);
        let attr = *attr;
        ctx.file_changed(decision, row);
        decision.sums(ino, new.clone());
        self.touch(ino, ctx.state.seq() + 1);
        Some(attr)
    }

    /// The record that must be synced before bytes are put in place, or space is reserved for them: that
    /// synced bytes are overwritten, or that the body is longer than the file for a while, so that a recovery
    /// looks at it.
    pub(crate) fn before_in_place(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> RequiredDurability {
        let row = ctx.state.inode(ino).ok().flatten().expect("looked at before").clone();
        let size = row.attr.size;
        let mut decision = Decision::new();
        if from < size {
            if ctx.state.dirty_bodies().contains(&ino) {
                return RequiredDurability::Synced(self.announced);
            }
            if planted(Bug::NoDirty) {
                return RequiredDurability::Committed(0);
            }
            decision.push(RowChange::Dirty { ino });
        } else if let Some(seq) = self.touched.get(&ino) {
            return RequiredDurability::safe(*seq, self.fresh.contains(&ino));
        } else if to > size {
            decision.inode(row);
            decision.body(BodyChange::Cut { ino, len: size });
        } else {
            return RequiredDurability::Committed(0);
        }
        let seq = ctx.decide(decision);
        self.touch(ino, seq);
        // Bytes that were never synced may be lost in a power cut anyway.
        RequiredDurability::safe(seq, self.fresh.contains(&ino))
    }

    /// A record is about the body of a file: a recovery looks at that, from the first one since a checkpoint on.
    pub(crate) fn touch(&mut self, ino: Ino, seq: u64) {
        self.touched.entry(ino).or_insert(seq);
    }

    /// Whether the body must be synced before bytes are put in place. A recovery does not redo bytes below
    /// them. If the new bytes are lost, the ones below must be there.
    fn sync_first(&mut self, ino: Ino) -> bool {
        // Bytes that were never synced may be lost in a power cut anyway.
        !self.fresh.contains(&ino) && (self.carried.remove(&ino) || self.syncing_carried.contains(&ino))
    }

    /// Has a body operation begin when its record is as safe as it must be.
    pub(crate) fn body_after(
        &mut self,
        ctx: &mut Ctx,
        ticket: BodyOpId,
        op: BodyOp,
        after: RequiredDurability,
    ) {
        match after {
            RequiredDurability::Synced(seq) if !ctx.durability.is_synced(seq) => {
                self.wait_for_sync(seq, ticket, op);
                match self.in_body.get(&ticket) {
                    // It is answered already: one sync serves what comes within a tick.
                    Some(BodyOpState::Changing { ino }) if self.locks.waiting(*ino) == 0 => {
                        ctx.durability.want_sync_soon(ctx.now.ms)
                    }
                    _ => ctx.want_sync(),
                }
            }
            RequiredDurability::Synced(_) => ctx.durability.emit(Effect::Body(ticket, op)),
            RequiredDurability::Committed(seq) => ctx.durability.after_commit(seq, Effect::Body(ticket, op)),
        }
    }

    /// Waits until other operations have left the body.
    pub(crate) fn wait_at_body(&mut self, ctx: &mut Ctx, ino: Ino, call: PendingRequest, turn: bool) {
        if !self.after_sync.is_empty() {
            ctx.want_sync();
        }
        self.locks.wait(ino, call, turn);
    }

    /// The next operation that waits for a body, and their number.
    pub(crate) fn next_at(&mut self, ino: Ino) -> Option<(PendingRequest, usize)> {
        let waiting = self.locks.waiting(ino);
        self.locks.next(ino).map(|call| (call, waiting))
    }

    /// How many wait for a body.
    pub(crate) fn waiting_at(&self, ino: Ino) -> usize {
        self.locks.waiting(ino)
    }

    /// Removes a body when the record of that is synced and no operation is inside any more. Otherwise a read
    /// would find it damaged, and a write would make another body, which nobody removes.
    pub(crate) fn drop_body(&mut self, ctx: &mut Ctx, ino: Ino, seq: u64) {
        self.fresh.remove(&ino);
        self.touched.remove(&ino);
        self.unsynced_bodies.remove(&ino);
        self.syncing_bodies.remove(&ino);
        self.carried.remove(&ino);
        self.syncing_carried.remove(&ino);
        let ticket = self.ticket(BodyOpState::Dropping { ino });
        if planted(Bug::BodyGoesUnsynced) {
            return ctx.durability.emit(Effect::Body(ticket, BodyOp::Drop { ino }));
        }
        self.wait_for_sync(seq, ticket, BodyOp::Drop { ino });
    }

    /// Removes bodies that an operation was still inside of.
    pub(crate) fn bodies_go(&mut self, ctx: &mut Ctx) {
        if self.going.is_empty() {
            return;
        }
        let locks = &self.locks;
        for (ino, ticket) in self.going.extract_if(.., |(ino, _)| !locks.is_inside(*ino)) {
            ctx.durability.emit(Effect::Body(ticket, BodyOp::Drop { ino }));
        }
    }

    pub(crate) fn fetch(
        &mut self,
        ctx: &mut Ctx,
        ino: Ino,
        txn: TxnId,
        offset: u64,
        len: u32,
        size: u64,
        sums: Vec<u32>,
    ) {
        let ticket = self.ticket(BodyOpState::Shipping { ino, txn, offset, len, size });
        ctx.durability.emit(Effect::Body(ticket, BodyOp::Fetch { ino, offset, len, size, sums }));
    }
}

impl Ctx {
    pub(crate) fn regular(&self, ino: Ino) -> Result<Attr, Blocked> {
        match self.state.inode(ino)? {
            Some(row) if row.attr.kind == Kind::Regular => Ok(row.attr),
            Some(row) if row.attr.kind == Kind::Directory => Err(Errno::EISDIR.into()),
            Some(_) => Err(Errno::EINVAL.into()),
            None if self.state.dir(ino)?.is_some() => Err(Errno::EISDIR.into()),
            None => Err(Errno::ESTALE.into()),
        }
    }

    /// The same as [`Ctx::regular`], for a file whose bytes change.
    pub(crate) fn to_change(&self, ino: Ino) -> Result<Attr, Blocked> {
        let attr = self.regular(ino)?;
        if let Some(row) = self.state.inode(ino)? {
            self.without_capability(row)?;
        }
        Ok(attr)
    }

    pub(crate) fn old_sums(&self, ino: Ino, offset: u64, len: u64, size: u64) -> Result<BlockSums, Blocked> {
        let touched = sum::touched(offset, len, size);
        let tail = match touched.tail {
            Some(block) => Some((block, self.state.sums(ino, block, 1)?[0])),
            None => None,
        };
        let sums = self.state.sums(ino, touched.first, touched.count)?;
        Ok(BlockSums { tail, first: touched.first, sums })
    }

    /// Whether it can be told which set-id bits go when this caller changes bytes without writing them itself.
    pub(crate) fn groups_suffice(&self, call: &PendingRequest, ino: Ino) -> Result<(), Blocked> {
        if !call.caller().is_root()
            && let Some(row) = self.state.inode(ino)?
        {
            perm::mode_after_bytes(call.caller(), &row.attr)?;
        }
        Ok(())
    }

    /// The row of a file whose bytes have changed. If they come to an absent file, its user has not changed it.
    pub(crate) fn file_changed(&self, decision: &mut Decision, row: Inode) {
        let xattrs = self.without_capability(&row).expect("in memory before this goes on");
        let xattrs = xattrs.filter(|_| !row.is_absent);
        decision.file(row, xattrs);
    }
}
