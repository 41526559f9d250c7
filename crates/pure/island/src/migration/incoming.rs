//! Files on their way to this island: asks for their bytes piece by piece, and votes when all of them are
//! safe.

use atoll_core::sum::{self, BLOCK_BYTES};
use atoll_core::{IslandId, Stamp, TxnId};
use atoll_posix::{Errno, Kind};
use atoll_proto::{BodyChange, EntryRef, Inode, ParticipantWork, PeerOp, RowChange, Vote, VoteInfo, Xattrs};
use bytes::Bytes;

use super::{Migration, Needs, Pulling};
use crate::bodies::Bodies;
use crate::bodies::data::{INLINE_BYTES_MAX, body_attr};
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next};
use crate::event::BodyOp;

impl Migration {
    pub(crate) fn prepare_arrival(
        &self,
        ctx: &mut Ctx,
        needs: Needs<'_>,
        is_incomplete: bool,
        decision: &mut Decision,
        from: IslandId,
        work: &ParticipantWork,
    ) -> Result<Result<VoteInfo, Vote>, Blocked> {
        let ParticipantWork::ReceiveFile { at, file, mounts, .. } = work else {
            unreachable!("called for what arrives")
        };
        let ino = file.attr.ino;
        let (size, kind) = (file.attr.size, file.attr.kind);
        let known = ctx.mounts();
        if self.is_moving(needs.locks, ino)
            || ctx.state.inode(ino)?.is_some()
            // What is left of an earlier stay goes first, natively too.
            || needs.bodies.is_removing(ino)
            || !ctx.state.view_is_done_with(ino)
            || mounts.iter().any(|mount| !known.contains(mount))
            || is_incomplete
        {
            return Ok(Err(Vote::Busy));
        }
        let Some(row) = ctx.state.dir(at.dir)?.filter(|row| row.owned.is_some()) else {
            return Ok(Err(Vote::No { errno: Errno::ESTALE }));
        };
        let is_settled = row.owned.as_ref().is_some_and(|owned| owned.adopted.is_none());
        let named =
            ctx.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino && entry.home == from);
        let whole = kind != Kind::Regular || file.target.is_none();
        if !named || !is_settled || kind == Kind::Directory || file.attr.nlink != 1 || !whole {
            return Ok(Err(Vote::No { errno: Errno::ESTALE }));
        }
        ctx.state.locks(ino)?;
        ctx.state.xattrs(ino)?;
        ctx.state.sums(ino, 0, 1)?;
        if let Err(Blocked::Fail(errno)) = ctx.room.take(size) {
            return Ok(Err(Vote::No { errno }));
        }
        // Without a name, so that it is in no listing; its bytes come one after the other.
        let mut row = (**file).clone();
        (row.attr.nlink, row.attr.blocks) = (0, 0);
        if kind == Kind::Regular {
            row.attr.size = 0;
        }
        (row.has_xattrs, row.has_acl, row.orphan_of) = (false, false, Vec::new());
        decision.inode(row);
        Ok(Ok(VoteInfo::Nothing))
    }

    /// It is prepared: asks for its bytes, or, if it has none, votes.
    pub(crate) fn begin_pulling(
        &mut self,
        ctx: &mut Ctx,
        from: IslandId,
        txn: TxnId,
        file: &Inode,
        prepared: Stamp,
    ) {
        let size = if file.attr.kind == Kind::Regular { file.attr.size } else { 0 };
        let pulling = Pulling { from, ino: file.attr.ino, size, next: 0, prepared, heard_ms: ctx.now.ms };
        self.pulling.insert(txn, pulling);
        self.pull(ctx, txn);
    }

    /// Asks for the next piece, or votes when there is none.
    pub(crate) fn pull(&mut self, ctx: &mut Ctx, txn: TxnId) {
        let Some(Pulling { from, ino, size, next, prepared, .. }) = self.pulling.get(&txn).cloned() else {
            return;
        };
        if next < size {
            return ctx.send(0, from, PeerOp::Pull { txn, offset: next });
        }
        let here = ctx.state.inode(ino).ok().flatten().map_or(0, |row| row.attr.size);
        if here < size {
            // It ends with a hole.
            let Some(mut row) = ctx.state.inode(ino).ok().flatten().cloned() else { return };
            let attr = body_attr(&row.attr);
            row.attr.size = size;
            let mut decision = Decision::new();
            decision.inode(row);
            decision.body(BodyChange::Cut { ino, len: size });
            let seq = ctx.decide(decision);
            let op = BodyOp::Cut { ino, len: size, size: here, attr };
            return ctx.next(Next::PutInPlace { ino, txn, seq, op: Box::new(op) });
        }
        self.pulling.remove(&txn);
        let Some(ParticipantWork::ReceiveFile { at, .. }) =
            ctx.state.txn(txn).map(|row| row.part.work.clone())
        else {
            return;
        };
        ctx.next(Next::VoteArrival { to: from, txn, at, prepared });
    }

    /// Bytes of a file that comes: its record carries them.
    pub(crate) fn on_chunk(
        &mut self,
        ctx: &mut Ctx,
        bodies: &Bodies,
        from: IslandId,
        txn: TxnId,
        offset: u64,
        bytes: &Bytes,
    ) -> Result<(), Blocked> {
        let Some(pulling) = self.pulling.get(&txn).filter(|p| p.from == from && p.next <= offset) else {
            return Ok(());
        };
        let (ino, size, len) = (pulling.ino, pulling.size, bytes.len() as u64);
        if bodies.is_arriving(txn) || len > INLINE_BYTES_MAX as u64 {
            return Ok(());
        }
        let end = offset.saturating_add(len);
        if end > size || (end < size && !end.is_multiple_of(BLOCK_BYTES)) {
            // Its sender does not send what was asked for: the transaction ends by its silence.
            return Ok(());
        }
        if len == 0 {
            // A hole, up to there.
            self.pulled(ctx, txn, end);
            self.pull(ctx, txn);
            return Ok(());
        }
        let Some(mut row) = ctx.state.inode(ino)?.cloned() else { return Ok(()) };
        let before = row.attr.size;
        let old = ctx.old_sums(ino, offset, len, before)?;
        let Some(new) = sum::sums_without_reading(offset, bytes, before, &old) else { return Ok(()) };
        self.pulled(ctx, txn, end);
        let attr = body_attr(&row.attr);
        row.attr.size = end;
        let mut decision = Decision::new();
        decision.inode(row);
        decision.sums(ino, new);
        decision.body(BodyChange::Bytes { ino, offset, bytes: bytes.clone() });
        let seq = ctx.decide(decision);
        let data = bytes.clone();
        let op = BodyOp::Write { ino, offset, data, size: before, attr, old: None, sync_first: false };
        ctx.next(Next::PutInPlace { ino, txn, seq, op: Box::new(op) });
        Ok(())
    }

    /// Up to there the bytes of a file that comes are here.
    pub(super) fn pulled(&mut self, ctx: &Ctx, txn: TxnId, upto: u64) {
        let pulling = self.pulling.get_mut(&txn).expect("looked at by the caller");
        (pulling.next, pulling.heard_ms) = (upto, ctx.now.ms);
    }
}

impl Ctx {
    /// The file is homed here from now on, or stays where it was.
    pub(crate) fn finish_arrival(
        &mut self,
        decision: &mut Decision,
        at: &EntryRef,
        file: &Inode,
        xattrs: Option<&Xattrs>,
        commit: bool,
    ) {
        let ino = file.attr.ino;
        if !commit {
            if let Some(row) = self.state.inode(ino).ok().flatten().cloned() {
                self.drop_file(decision, &row);
            }
            return;
        }
        let mut row = file.clone();
        row.moves = row.moves.saturating_add(1);
        decision.file(row, xattrs.cloned());
        let entry = self.state.entry(at.dir, &at.name).ok().flatten().cloned();
        let mut entry = entry.expect("its old home agrees to every change of its name");
        entry.home = self.config.id;
        decision.entry(at.dir, &at.name, Some(entry));
        if self.state.forward(ino).is_some() {
            decision.push(RowChange::Forward { ino, row: None });
        }
    }

    /// Makes sure that the rows which [`Ctx::finish_arrival`] reads are in memory.
    pub(crate) fn arrival_must_be_loaded(&self, at: &EntryRef, file: &Inode) -> Result<(), Blocked> {
        self.state.entry(at.dir, &at.name)?;
        self.state.inode(file.attr.ino)?;
        self.state.locks(file.attr.ino)?;
        Ok(())
    }
}
