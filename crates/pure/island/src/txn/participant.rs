//! Participants of transactions: preparing, voting, and carrying out what was decided.

use atoll_core::limits::MESSAGE_BYTES_MAX;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, IslandId, TxnId};
use atoll_posix::Errno;
use atoll_proto::{Change, Moments, Origin, Part, Peer, PeerMessage, Seen, Txn, TxnState, Vote, Work};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::lost::{Lost, LostPart};
use crate::ctx::request::{Blocked, Next};
use crate::island::Island;
use crate::look::Missing;
use crate::rows::chains::Sight;

/// Bytes of what another island asks to prepare: a chain of ancestors, and as much besides as its messages have
/// room for. Those of this version tell no more.
const WORK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (128 << 10);

impl Island {
    pub(crate) fn on_prepare(
        &mut self,
        message: &PeerMessage,
        txn: TxnId,
        origin: Origin,
        work: &Work,
    ) -> Result<(), Blocked> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        if let Some(row) = self.ctx.state.txn(txn).filter(|row| row.partner == from) {
            // A repetition.
            if matches!(row.part.work, Work::Arrive { .. }) {
                // It votes when all is here, or asks.
                return Ok(());
            }
            let (prepared, seen) = (row.moments.prepared, Seen::Nothing);
            self.ctx.send(
                self.ctx.state.seq(),
                from,
                Peer::Voted { txn, vote: Vote::Yes { prepared, seen } },
            );
            return Ok(());
        }
        if work.encoded_len() > WORK_BYTES_MAX {
            self.ctx.send(0, from, Peer::Voted { txn, vote: Vote::No { errno: Errno::ENAMETOOLONG } });
            return Ok(());
        }
        if self.quiesce.is_quiescing() {
            // What a listing waits for must come to its end: nobody waits for what is held.
            self.ctx.send(0, from, Peer::Voted { txn, vote: Vote::Busy });
            return Ok(());
        }
        if matches!(work, Work::Adopt { .. }) {
            match self.ctx.sight_of(&message.vector) {
                Sight::Same => {}
                Sight::Newer { missing } => {
                    self.fall_behind(&missing, Next::Peer(message.clone()));
                    return Ok(());
                }
                Sight::Older => {
                    self.ctx.send(0, from, Peer::Voted { txn, vote: Vote::Behind });
                    return Ok(());
                }
            }
        }
        let mut decision = Decision::new();
        let mut work = work.clone();
        let marks = match &work {
            Work::Lend { renaming, .. } => !self.ctx.is_lent(renaming.to.dir)?,
            _ => false,
        };
        let vote = match self.prepare_work(&mut decision, message, txn, &mut work) {
            Ok(Ok(seen)) => {
                let prepared = self.ctx.stamp();
                decision.stamp(prepared);
                let moments = Moments { prepared, ..Moments::default() };
                let part = Part { origin, work: work.clone() };
                decision.txn(txn, Some(Txn { state: TxnState::Prepared, partner: from, moments, part }));
                let seq = self.ctx.decide(decision);
                self.txns.locks.hold(&self.ctx, txn, &work, seq);
                if let Work::Arrive { file, .. } = &work {
                    self.begin_pulling(from, txn, file, prepared);
                    return Ok(());
                }
                self.ctx.vote_yes(from, txn, &work, prepared, seen, marks);
                return Ok(());
            }
            Ok(Err(vote)) => vote,
            Err(Blocked::Fail(errno)) => Vote::No { errno },
            Err(Blocked::NeedGroups) => Vote::NeedGroups,
            // It has happened, so its end is near, and waits for nobody.
            Err(Blocked::Txn(held))
                if self.txns.locks.is_shown(held) && self.txns.locks.wait(held, message.clone()) =>
            {
                return Ok(());
            }
            Err(Blocked::Txn(_) | Blocked::Unheard) => Vote::Busy,
            // It waits for what it has not seen.
            Err(Blocked::NotNow) => return Ok(()),
            Err(stop) => return Err(stop),
        };
        self.ctx.send(0, from, Peer::Voted { txn, vote });
        Ok(())
    }

    /// Whether this island can carry out `work`, and if so, the record that prepares it.
    fn prepare_work(
        &mut self,
        decision: &mut Decision,
        message: &PeerMessage,
        txn: TxnId,
        work: &mut Work,
    ) -> Result<Result<Seen, Vote>, Blocked> {
        match work {
            Work::Adopt { .. } | Work::Seal { .. } => self.prepare_dir(decision, txn, work),
            Work::Lend { .. } => self.prepare_lend(decision, message, work),
            Work::Hold { .. } | Work::Ticket { .. } => self.look().prepare_move(work),
            Work::Arrive { .. } => self.prepare_arrival(decision, message.from, work),
            Work::Count { .. } | Work::Drop { .. } | Work::Renamed { .. } => {
                self.prepare_home(decision, message, work)
            }
        }
    }

    pub(crate) fn on_decided(
        &mut self,
        message: &PeerMessage,
        txn: TxnId,
        moments: Option<Moments>,
        part: Option<&Part>,
    ) -> Result<(), Blocked> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        match (self.ctx.state.txn(txn).cloned(), moments) {
            (Some(row), Some(moments)) if row.state == TxnState::Committed => {
                if row.moments.committed < moments.committed {
                    // The coordinator had lost its commit, and has made it again.
                    let mut decision = Decision::new();
                    decision.txn(txn, Some(Txn { moments, ..row }));
                    self.ctx.decide(decision);
                }
                self.confirm(from, txn, moments.committed);
            }
            // It was asked for before, and answered when its coordinator had heard that it is done here.
            (Some(row), None) if row.state == TxnState::Committed => {}
            (Some(row), moments) => {
                let mut decision = Decision::new();
                let work = row.part.work.clone();
                if let Some(moments) = moments
                    && moves_dirs(&work)
                    && self.ctx.state.clocks().get(from) <= moments.committed
                {
                    // The new place comes by the journal: what follows here is about that one.
                    self.txns.decided_early.insert(txn);
                    self.fall_behind(&[from], Next::Peer(message.clone()));
                    return Ok(());
                }
                self.ctx.finish_work(&mut decision, from, &work, moments)?;
                self.txns.decided_early.remove(&txn);
                let next = moments.map(|moments| Txn { state: TxnState::Committed, moments, ..row });
                decision.txn(txn, next);
                self.ctx.decide(decision);
                if let Some(moments) = moments {
                    self.confirm(from, txn, moments.committed);
                }
                self.txns.locks.release(&mut self.ctx, self.recovery.is_incomplete(), txn, &work);
            }
            // Its prepare was lost here: the coordinator has to say what it was.
            (None, Some(moments))
                if self.ctx.state.lost(moments.prepared)
                    && !self.recovery.is_known(txn)
                    && !planted(Bug::LostPartStaysLost) =>
            {
                match part {
                    Some(part) => {
                        let part = part.clone();
                        self.recovery.bring_back(
                            &mut self.ctx,
                            moments.prepared,
                            Lost::Part(LostPart { from, txn, moments, part }),
                        );
                    }
                    None => self.ctx.send(0, from, Peer::Ask { txn }),
                }
            }
            // Long done.
            (None, Some(moments)) => self.confirm(from, txn, moments.committed),
            (None, None) => {}
        }
        Ok(())
    }
}

impl Ctx {
    /// Carries out, or takes back, what was prepared.
    fn finish_work(
        &mut self,
        decision: &mut Decision,
        from: IslandId,
        work: &Work,
        moments: Option<Moments>,
    ) -> Result<(), Blocked> {
        let commit = moments.is_some();
        match work {
            Work::Adopt { dir, .. } => self.finish_dir(decision, dir.ino, true, commit),
            Work::Seal { ino, .. } => self.finish_dir(decision, *ino, false, commit),
            Work::Lend { renaming, .. } => {
                self.need_renaming(renaming)?;
                self.finish_lend(decision, renaming, commit);
                Ok(())
            }
            Work::Hold { .. } => Ok(()),
            Work::Arrive { at, file, xattrs, .. } => {
                self.need_arrival(at, file)?;
                self.finish_arrival(decision, at, file, xattrs.as_ref(), commit);
                Ok(())
            }
            Work::Ticket { .. } => {
                if let Some(moments) = moments {
                    decision.push(Change::Moved { island: from, stamp: moments.committed });
                }
                Ok(())
            }
            Work::Count { .. } | Work::Drop { .. } | Work::Renamed { .. } => {
                self.need_home(work)?;
                self.finish_home(decision, work, commit);
                Ok(())
            }
        }
    }
}

/// Whether a work is part of a rename that moves directories to another parent.
pub(crate) fn moves_dirs(work: &Work) -> bool {
    match work {
        Work::Hold { .. } => true,
        Work::Lend { renaming, .. } => !crate::rows::moves::moving(renaming).is_empty(),
        _ => false,
    }
}
