//! Files on their way from this island.

use atoll_core::planted::{Bug, planted};
use atoll_core::sum::{self, BLOCK_BYTES};
use atoll_core::{Ino, SessionId, TxnId};
use atoll_proto::{EntryRef, Forward, Notice, ParticipantWork, PeerMessage, PeerOp, RowChange};
use bytes::Bytes;

use super::{Needs, Shipping, TRIES_MAX};
use crate::bodies::data::INLINE_BYTES_MAX;
use crate::ctx::Ctx;
use crate::ctx::MigrationConfig;
use crate::ctx::RECOVERY_SESSION;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, Piece};
use crate::migration::Migration;

impl Migration {
    /// The first message of a file's move, if it can move now. None if it need not move at all.
    pub(super) fn to_ship(
        &self,
        ctx: &Ctx,
        needs: Needs<'_>,
        moving: MigrationConfig,
        ino: Ino,
        at: &EntryRef,
        tries: u32,
    ) -> Result<Option<Shipping>, Blocked> {
        let later = Err(Blocked::NotNow);
        let (Some(row), Some(dir)) = (needs.homed(ctx, ino)?, ctx.state.dir(at.dir)?) else {
            return Ok(None);
        };
        let named = ctx.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino);
        if dir.owned.is_some() || !named || row.attr.nlink == 0 {
            return Ok(None);
        }
        if row.attr.nlink > 1 {
            return if tries < TRIES_MAX { later } else { Ok(None) };
        }
        let to = ctx.config.owner(dir.key);
        let rests = row.attr.ctime.plus_millis(moving.rest_ms(row.attr.size)) <= ctx.now.wall;
        if !rests || self.is_in_use(ctx, needs, ino)? || !ctx.peers.is_reachable(to) {
            return later;
        }
        let xattrs = if row.has_xattrs { ctx.state.xattrs(ino)?.cloned() } else { None };
        let (at, file, mounts) = (at.clone(), Box::new(row.clone()), ctx.mounts());
        Ok(Some(Shipping { to, at, file, xattrs, mounts, heard_ms: ctx.now.ms, tries }))
    }

    /// A client has locked the file, an operation reads or changes it, or a transaction has prepared to. Or
    /// after a power cut its names are not certain.
    pub(super) fn is_in_use(&self, ctx: &Ctx, needs: Needs<'_>, ino: Ino) -> Result<bool, Blocked> {
        let locked =
            ctx.state.locks(ino)?.is_some_and(|locks| !locks.is_empty()) && !planted(Bug::LockedFileMoves);
        Ok(locked
            || needs.bodies.is_used(ino)
            || needs.locks.on_file(ino).next().is_some()
            || ctx.state.session(RECOVERY_SESSION).is_some()
            || needs.file_locks.is_awaited(ino))
    }

    pub(super) fn ship(&mut self, ctx: &mut Ctx, shipping: Shipping) {
        let Shipping { to, at, file, xattrs, mounts, .. } = shipping.clone();
        let stamp = ctx.stamp();
        let work = ParticipantWork::ReceiveFile { at, file, xattrs, mounts };
        ctx.next(Next::Ship { stamp, to, work: Box::new(work) });
        self.shipping.insert(TxnId { coordinator: ctx.config.id, stamp }, shipping);
    }

    /// Nothing is on its way from here any more: a listing of everything waits for that.
    pub(crate) fn ship_nothing(&mut self, ctx: &mut Ctx) {
        for txn in self.shipping.keys().copied().collect::<Vec<_>>() {
            self.give_up(ctx, txn);
        }
    }

    /// No file moves from here any more.
    pub(crate) fn stop_moving(&mut self, ctx: &mut Ctx) {
        ctx.config.moving = None;
        self.ship_nothing(ctx);
    }

    /// The new home wants bytes.
    pub(crate) fn on_pull(
        &mut self,
        ctx: &mut Ctx,
        message: &PeerMessage,
        txn: TxnId,
        offset: u64,
    ) -> Result<(), Blocked> {
        let from = message.from;
        let Some(shipping) = self.shipping.get(&txn).filter(|shipping| shipping.to == from) else {
            return Ok(());
        };
        let (ino, size) = (shipping.file.attr.ino, shipping.file.attr.size);
        if !ctx.is_as_shipped(shipping)? || offset >= size || !offset.is_multiple_of(BLOCK_BYTES) {
            self.give_up(ctx, txn);
            return Ok(());
        }
        if self.allowance < 0 {
            self.shipping.get_mut(&txn).expect("looked at").heard_ms = ctx.now.ms;
            self.slowed.push_back(message.clone());
            return Ok(());
        }
        let len = (size - offset).min(INLINE_BYTES_MAX as u64) as u32;
        let (first, count) = sum::blocks_of(offset, u64::from(len));
        let sums = ctx.state.sums(ino, first, count)?;
        self.shipping.get_mut(&txn).expect("looked at").heard_ms = ctx.now.ms;
        ctx.next(Next::ReadToShip(Box::new(Piece { txn, ino, offset, len, size, sums })));
        Ok(())
    }

    /// The new home has all of it, safe from power cuts: it moves, if it is as it was. `Blocked::NotNow` if not.
    pub(crate) fn commit_ship(
        &mut self,
        ctx: &mut Ctx,
        needs: Needs<'_>,
        txn: TxnId,
        mut decision: Decision,
    ) -> Result<(), Blocked> {
        let shipping = self.shipping.get(&txn).ok_or(Blocked::NotNow)?.clone();
        let Shipping { to, at, file, .. } = &shipping;
        let ino = file.attr.ino;
        ctx.name_must_be_loaded(at)?;
        let strange = ctx.mounts().iter().any(|mount| !shipping.mounts.contains(mount));
        let named = ctx.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino);
        let is_elsewhere = ctx.state.dir(at.dir)?.is_some_and(|dir| dir.owned.is_none());
        if !ctx.is_as_shipped(&shipping)?
            || strange
            || !named
            || !is_elsewhere
            || self.is_in_use(ctx, needs, ino)?
            || needs.is_quiescing
        {
            return Err(Blocked::NotNow);
        }
        ctx.note_name_removed(&mut decision, at, ino);
        ctx.drop_file(&mut decision, file);
        // Who does not see it is not told.
        let sees = |session: &SessionId| *session != RECOVERY_SESSION && ctx.sees(*session, at.dir);
        let sessions = ctx.state.session_ids().filter(sees).collect();
        decision.push(RowChange::Forward {
            ino,
            row: Some(Forward { to: *to, moves: file.moves.saturating_add(1), sessions }),
        });
        let seq = ctx.decide(decision);
        self.shipping.remove(&txn);
        self.leaving.insert(ino);
        self.unsynced.push_back((seq, txn, ino));
        Ok(())
    }

    /// Bytes of a file that moves are read; none if they cannot be.
    pub(crate) fn has_read(&mut self, ctx: &mut Ctx, txn: TxnId, chunk: Option<(u64, Bytes)>) {
        let Some(shipping) = self.shipping.get(&txn) else { return };
        match chunk {
            Some((offset, bytes)) => {
                self.allowance -= bytes.len() as i64;
                ctx.send(0, shipping.to, PeerOp::Chunk { txn, offset, bytes });
            }
            // They stay where that is known.
            None => self.give_up(ctx, txn),
        }
    }

    /// A move ends without effect, and is tried again.
    pub(super) fn give_up(&mut self, ctx: &mut Ctx, txn: TxnId) {
        self.not_shipped(ctx, txn);
        ctx.next(Next::Abort(txn, None));
    }

    /// A move does not happen, for now.
    pub(crate) fn not_shipped(&mut self, ctx: &Ctx, txn: TxnId) {
        if let Some(Shipping { file, at, tries, .. }) = self.shipping.remove(&txn) {
            self.try_again(ctx, file.attr.ino, at, tries);
        }
    }

    /// A moved file cannot come back any more: clients that may ask here are told.
    pub(crate) fn tell_moved(&mut self, ctx: &mut Ctx) {
        while self.unsynced.front().is_some_and(|(seq, ..)| ctx.durability.is_synced(*seq)) {
            let (_, txn, ino) = self.unsynced.pop_front().expect("looked at");
            if let Some(Forward { to, moves, sessions }) = ctx.state.forward(ino).cloned() {
                if sessions.is_empty() {
                    let mut decision = Decision::new();
                    decision.push(RowChange::Forward { ino, row: None });
                    ctx.decide(decision);
                }
                for session in sessions {
                    ctx.notify(session, 0, Notice::Moved { ino, to, moves });
                }
            }
            ctx.next(Next::TxnEnded(txn));
        }
    }
}

impl Ctx {
    /// The file is as it was when its move began.
    pub(super) fn is_as_shipped(&self, shipping: &Shipping) -> Result<bool, Blocked> {
        let ino = shipping.file.attr.ino;
        let xattrs = if shipping.file.has_xattrs { self.state.xattrs(ino)? } else { None };
        let same = self.state.inode(ino)? == Some(&*shipping.file) || planted(Bug::ShippedAsItWas);
        Ok(same && xattrs == shipping.xattrs.as_ref())
    }
}
