//! Files on their way from this island.

use atoll_core::planted::{Bug, planted};
use atoll_core::sum::{self, BLOCK_BYTES};
use atoll_core::{Ino, TxnId};
use atoll_posix::Whence;
use atoll_proto::{Change, Forward, Notice, Origin, Peer, PeerMessage, Spot, Work};
use bytes::Bytes;

use super::{Shipping, TRIES_MAX};
use crate::bodies::data::{CARRY_BYTES_MAX, InBody};
use crate::bodies::gate::Use;
use crate::ctx::Ctx;
use crate::ctx::Moving;
use crate::ctx::WITNESS;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next};
use crate::event::{BodyDone, BodyFault, BodyOp, Effect};
use crate::island::Island;
use crate::migration::Migration;
use crate::txn::coordinator::Plan;

impl Island {
    /// What is sent of a file, if it can move now. None if it need not move at all.
    pub(super) fn to_ship(
        &self,
        moving: Moving,
        ino: Ino,
        at: &Spot,
        tries: u32,
    ) -> Result<Option<Shipping>, Blocked> {
        let later = Err(Blocked::NotNow);
        let (Some(row), Some(dir)) = (self.look().homed(ino)?, self.ctx.state.dir(at.dir)?) else {
            return Ok(None);
        };
        let named = self.ctx.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino);
        if dir.owned.is_some() || !named || row.attr.nlink == 0 {
            return Ok(None);
        }
        if row.attr.nlink > 1 {
            return if tries < TRIES_MAX { later } else { Ok(None) };
        }
        let to = self.ctx.config.owner(dir.key);
        let rests = row.attr.ctime.plus_millis(moving.rest_ms(row.attr.size)) <= self.ctx.now.wall;
        if !rests || self.is_in_use(ino)? || !self.ctx.peers.is_reachable(to) {
            return later;
        }
        let xattrs = if row.has_xattrs { self.ctx.state.xattrs(ino)?.cloned() } else { None };
        let (at, file, mounts) = (at.clone(), Box::new(row.clone()), self.ctx.mounts());
        Ok(Some(Shipping { to, at, file, xattrs, mounts, heard_ms: self.ctx.now.ms, tries }))
    }

    /// Somebody has locked the file, reads or changes it, or has prepared to; or after a power cut its names are
    /// not sure.
    pub(super) fn is_in_use(&self, ino: Ino) -> Result<bool, Blocked> {
        let locked = self.ctx.state.locks(ino)?.is_some_and(|locks| !locks.is_empty())
            && !planted(Bug::LockedFileMoves);
        Ok(locked
            || self.bodies.is_used(ino)
            || self.look().file_is_free(ino).is_err()
            || self.ctx.state.session(WITNESS).is_some()
            || self.file_locks.is_awaited(ino))
    }

    pub(super) fn ship(&mut self, shipping: Shipping) {
        let Shipping { to, at, file, xattrs, mounts, .. } = shipping.clone();
        let work = Work::Arrive { at, file, xattrs, mounts };
        let origin = Origin { session: WITNESS, seq: 0 };
        let txn = self.begin_of(origin, None, Vec::new(), Plan::Ship, vec![(to, work)]);
        self.migration.shipping.insert(txn, shipping);
    }

    /// Nothing is on its way from here any more: a listing of everything waits for that.
    pub(crate) fn ship_nothing(&mut self) {
        for txn in self.migration.shipping.keys().copied().collect::<Vec<_>>() {
            self.abort(txn, None);
        }
    }

    /// No file moves from here any more.
    pub(crate) fn stop_moving(&mut self) {
        self.ctx.config.moving = None;
        self.ship_nothing();
    }

    /// The new home wants bytes.
    pub(crate) fn on_pull(&mut self, message: &PeerMessage, txn: TxnId, offset: u64) -> Result<(), Blocked> {
        let from = message.from;
        let Some(shipping) = self.migration.shipping.get(&txn).filter(|shipping| shipping.to == from) else {
            return Ok(());
        };
        let (ino, size) = (shipping.file.attr.ino, shipping.file.attr.size);
        if !self.ctx.is_as_shipped(shipping)? || offset >= size || !offset.is_multiple_of(BLOCK_BYTES) {
            self.abort(txn, None);
            return Ok(());
        }
        if self.migration.allowance < 0 {
            self.migration.shipping.get_mut(&txn).expect("looked at").heard_ms = self.ctx.now.ms;
            self.migration.slowed.push_back(message.clone());
            return Ok(());
        }
        let len = (size - offset).min(CARRY_BYTES_MAX as u64) as u32;
        let (first, count) = sum::blocks_of(offset, u64::from(len));
        let sums = self.ctx.state.sums(ino, first, count)?;
        if self.bodies.enter(ino, Use::Shared, false).is_err() {
            // Whoever is inside changes it.
            self.abort(txn, None);
            return Ok(());
        }
        self.migration.shipping.get_mut(&txn).expect("looked at").heard_ms = self.ctx.now.ms;
        // A hole has no checksums; what has none may still be no hole.
        if sums.iter().all(|sum| *sum == 0) {
            let op = BodyOp::Seek { ino, offset, whence: Whence::Data, size };
            let ticket = self.bodies.ticket(InBody::Shipping { ino, txn, offset, len, size });
            self.ctx.durability.emit(Effect::Body(ticket, op));
        } else {
            self.bodies.fetch(&mut self.ctx, ino, txn, offset, len, size, sums);
        }
        Ok(())
    }

    /// Bytes of a file that moves are read; the gate is still entered.
    pub(crate) fn fetched(
        &mut self,
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
                    return self.bodies.fetch(&mut self.ctx, ino, txn, offset, len, size, sums);
                }
                let end = if data >= size { size } else { data - data % BLOCK_BYTES };
                Some((end, Bytes::new()))
            }
            Ok(BodyDone::Bytes(bytes)) => Some((offset, bytes)),
            _ => None,
        };
        self.bodies.leave(&mut self.ctx, ino, Use::Shared);
        let Some(shipping) = self.migration.shipping.get(&txn) else { return };
        match chunk {
            Some((offset, bytes)) => {
                self.migration.allowance -= bytes.len() as i64;
                let to = shipping.to;
                self.ctx.send(0, to, Peer::Chunk { txn, offset, bytes });
            }
            // Its bytes cannot be read: they stay where that is known.
            None => self.abort(txn, None),
        }
    }

    /// The new home has all of it, safe from power cuts: it moves, if it is as it was. `Blocked::NotNow` if not.
    pub(crate) fn commit_ship(&mut self, txn: TxnId, mut decision: Decision) -> Result<(), Blocked> {
        let shipping = self.migration.shipping.get(&txn).ok_or(Blocked::NotNow)?.clone();
        let Shipping { to, at, file, .. } = &shipping;
        let ino = file.attr.ino;
        self.ctx.need_spot(at)?;
        let strange = self.ctx.mounts().iter().any(|mount| !shipping.mounts.contains(mount));
        let named = self.ctx.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino);
        let is_elsewhere = self.ctx.state.dir(at.dir)?.is_some_and(|dir| dir.owned.is_none());
        if !self.ctx.is_as_shipped(&shipping)?
            || strange
            || !named
            || !is_elsewhere
            || self.is_in_use(ino)?
            || self.quiesce.is_quiescing()
        {
            return Err(Blocked::NotNow);
        }
        self.ctx.name_goes(&mut decision, at, ino);
        self.ctx.drop_file(&mut decision, file);
        let sessions = self.ctx.state.session_ids().filter(|session| *session != WITNESS).collect();
        decision
            .push(Change::Forward { ino, row: Some(Forward { to: *to, moves: file.moves + 1, sessions }) });
        let seq = self.ctx.decide(decision);
        self.migration.shipping.remove(&txn);
        self.migration.leaving.insert(ino);
        self.migration.unsynced.push_back((seq, txn, ino));
        Ok(())
    }
}

impl Migration {
    /// A move does not happen, for now.
    pub(crate) fn not_shipped(&mut self, ctx: &Ctx, txn: TxnId) {
        if let Some(Shipping { file, at, tries, .. }) = self.shipping.remove(&txn) {
            self.try_again(ctx, file.attr.ino, at, tries);
        }
    }

    /// What has gone cannot come back any more: whoever may ask here is told.
    pub(crate) fn tell_moved(&mut self, ctx: &mut Ctx) {
        while self.unsynced.front().is_some_and(|(seq, ..)| ctx.durability.is_synced(*seq)) {
            let (_, txn, ino) = self.unsynced.pop_front().expect("looked at");
            if let Some(Forward { to, moves, sessions }) = ctx.state.forward(ino).cloned() {
                if sessions.is_empty() {
                    let mut decision = Decision::new();
                    decision.push(Change::Forward { ino, row: None });
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
