//! Requests of other islands to prepare: whether this island can, and the record of that.

use atoll_core::limits::MESSAGE_BYTES_MAX;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, TxnId};
use atoll_posix::Errno;
use atoll_proto::{
    Chain, EntryRef, ParticipantWork, PeerMessage, PeerOp, RequestId, Txn, TxnPart, TxnStamps, TxnState,
    Vote, VoteInfo,
};

use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next};
use crate::island::Island;
use crate::look::Missing;
use crate::migration::Needs;
use crate::rows::chains::VectorOrder;
use crate::rows::homes::LINKS_MAX;

/// Most bytes of the work that another island asks to prepare: a chain of ancestors, and as much besides as
/// its messages have room for. Islands of this version send no more.
const WORK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (128 << 10);

impl Island {
    pub(crate) fn on_prepare(
        &mut self,
        message: &PeerMessage,
        txn: TxnId,
        origin: RequestId,
        work: &ParticipantWork,
    ) -> Result<(), Blocked> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        if let Some(row) = self.ctx.state.txn(txn).filter(|row| row.partner == from) {
            // A repetition.
            if matches!(row.part.work, ParticipantWork::ReceiveFile { .. }) {
                // It votes when all is here, or asks.
                return Ok(());
            }
            let (prepared, seen) = (row.stamps.prepared, VoteInfo::Nothing);
            self.ctx.send(
                self.ctx.state.seq(),
                from,
                PeerOp::Voted { txn, vote: Vote::Yes { prepared, seen } },
            );
            return Ok(());
        }
        if work.encoded_len() > WORK_BYTES_MAX {
            self.ctx.send(0, from, PeerOp::Voted { txn, vote: Vote::No { errno: Errno::ENAMETOOLONG } });
            return Ok(());
        }
        if self.quiesce.is_quiescing() || !self.requests.decides() {
            // What a listing waits for must come to its end: nobody waits for what is held. And a vote is a change.
            self.ctx.send(0, from, PeerOp::Voted { txn, vote: Vote::Busy });
            return Ok(());
        }
        if matches!(work, ParticipantWork::Adopt { .. }) {
            match self.ctx.order_of(&message.vector) {
                VectorOrder::Same => {}
                VectorOrder::Newer { missing } => {
                    self.ctx.next(Next::FallBehind(missing, message.clone()));
                    return Ok(());
                }
                VectorOrder::Older => {
                    self.ctx.send(0, from, PeerOp::Voted { txn, vote: Vote::Behind });
                    return Ok(());
                }
            }
        }
        if !self.sessions.clear_work(&mut self.ctx, origin.session, work)? {
            self.ctx.send(0, from, PeerOp::Voted { txn, vote: Vote::Busy });
            return Ok(());
        }
        let mut decision = Decision::new();
        let mut work = work.clone();
        let marks = match &work {
            ParticipantWork::BorrowName { renaming, .. } => !self.ctx.is_lent(renaming.to.dir)?,
            _ => false,
        };
        let vote = match self.prepare_work(&mut decision, message, txn, &mut work) {
            Ok(Ok(seen)) => {
                let prepared = self.ctx.stamp();
                decision.stamp(prepared);
                let stamps = TxnStamps { prepared, ..TxnStamps::default() };
                let part = TxnPart { request: origin, work: work.clone() };
                decision.txn(txn, Some(Txn { state: TxnState::Prepared, partner: from, stamps, part }));
                let seq = self.ctx.decide(decision);
                self.txns.prepared(&self.ctx, txn, &work, seq);
                if let ParticipantWork::ReceiveFile { file, .. } = &work {
                    self.migration.begin_pulling(&mut self.ctx, from, txn, file, prepared);
                    return Ok(());
                }
                self.ctx.vote_yes(from, txn, &work, prepared, seen, marks);
                return Ok(());
            }
            Ok(Err(vote)) => vote,
            Err(Blocked::Fail(errno)) => Vote::No { errno },
            Err(Blocked::NeedGroups) => Vote::NeedGroups,
            // It has happened, so its end is near, and waits for nobody.
            Err(Blocked::Txn(held)) if self.txns.wait(held, message) => return Ok(()),
            Err(Blocked::Txn(_) | Blocked::Unheard) => Vote::Busy,
            // It waits for what it has not seen.
            Err(Blocked::NotNow) => return Ok(()),
            Err(stop) => return Err(stop),
        };
        self.ctx.send(0, from, PeerOp::Voted { txn, vote });
        Ok(())
    }

    /// Whether this island can carry out `work`, and if so, the record that prepares it.
    fn prepare_work(
        &mut self,
        decision: &mut Decision,
        message: &PeerMessage,
        txn: TxnId,
        work: &mut ParticipantWork,
    ) -> Result<Result<VoteInfo, Vote>, Blocked> {
        match work {
            ParticipantWork::Adopt { .. } | ParticipantWork::Seal { .. } => {
                self.prepare_dir(decision, txn, work)
            }
            ParticipantWork::BorrowName { .. } => self.prepare_lend(decision, message, work),
            ParticipantWork::FreezeDir { .. } | ParticipantWork::PermitMove { .. } => {
                self.look().prepare_move(work)
            }
            ParticipantWork::ReceiveFile { .. } => {
                let is_incomplete = self.recovery.is_incomplete();
                let is_quiescing = self.quiesce.is_quiescing();
                let needs = Needs {
                    locks: self.txns.locks(),
                    file_locks: &self.file_locks,
                    bodies: &self.bodies,
                    is_quiescing,
                };
                let migration = &self.migration;
                migration.prepare_arrival(&mut self.ctx, needs, is_incomplete, decision, message.from, work)
            }
            ParticipantWork::AddName { .. }
            | ParticipantWork::RemoveName { .. }
            | ParticipantWork::MoveName { .. } => self.prepare_home(decision, message, work),
        }
    }

    /// Prepares a work of a file's home.
    pub(crate) fn prepare_home(
        &mut self,
        decision: &mut Decision,
        message: &PeerMessage,
        work: &mut ParticipantWork,
    ) -> Result<Result<VoteInfo, Vote>, Blocked> {
        let refused = |errno| Ok(Err(Vote::No { errno }));
        let (ParticipantWork::AddName { ino, .. }
        | ParticipantWork::RemoveName { ino, .. }
        | ParticipantWork::MoveName { ino, .. }) = &*work
        else {
            unreachable!("called for what a home does")
        };
        let ino = *ino;
        if let ParticipantWork::AddName { within: Some(within), .. } = &*work
            && !planted(Bug::LinkedWithoutScope)
        {
            // Whoever asks may have made the id up: the owner of the new name does not know the file.
            self.look().is_inside(ino, within.by.as_ref(), within.scope, None)?;
        }
        if matches!(work, ParticipantWork::AddName { .. }) && self.migration.has_gone(&self.ctx, ino) {
            return Ok(Err(Vote::Moved));
        }
        if self.look().is_claimed(ino, work) || self.migration.is_moving(self.txns.locks(), ino) {
            return Ok(Err(Vote::Busy));
        }
        let row = self.ctx.state.inode(ino)?.cloned();
        let knows = self.ctx.knows(work)?;
        if !knows && self.recovery.is_incomplete() {
            // Somebody who is away may know how it came by that name.
            return Ok(Err(Vote::Busy));
        }
        if let ParticipantWork::RemoveName { had, .. } | ParticipantWork::MoveName { had, .. } = work {
            *had = knows;
        }
        match (&*work, row) {
            (ParticipantWork::AddName { at, time, chain, .. }, Some(row)) => {
                if row.attr.nlink == 0 {
                    return refused(Errno::ENOENT);
                }
                if row.attr.nlink >= LINKS_MAX {
                    return refused(Errno::EMLINK);
                }
                // Its answer will tell attributes from before this, and this the attributes from before it.
                if self.bodies.is_cutting(ino) {
                    return Ok(Err(Vote::Busy));
                }
                if let Err(Blocked::Fail(errno)) = self.ctx.room.take(0) {
                    return refused(errno);
                }
                if !self.reserve_name(decision, message, at, chain)? {
                    return Ok(Err(Vote::Behind));
                }
                let mut attr = row.attr;
                attr.nlink += 1;
                attr.ctime = attr.ctime.max(*time);
                Ok(Ok(VoteInfo::File { attr }))
            }
            (ParticipantWork::AddName { .. }, None) => {
                let is_dir = self.ctx.state.dir(ino)?.is_some();
                // It may be elsewhere, as in `link`.
                refused(if is_dir { Errno::EPERM } else { Errno::ESTALE })
            }
            (
                ParticipantWork::RemoveName { by: Some(by), .. }
                | ParticipantWork::MoveName { by: Some(by), .. },
                Some(row),
            ) if row.attr.uid != *by => refused(Errno::EPERM),
            (ParticipantWork::MoveName { to, chain, .. }, Some(_)) => {
                let pinned = self.reserve_name(decision, message, to, chain)?;
                Ok(if pinned { Ok(VoteInfo::Nothing) } else { Err(Vote::Behind) })
            }
            (ParticipantWork::MoveName { .. }, None) => refused(Errno::ESTALE),
            // A name that leads to nothing can be removed, or it would stay for ever.
            (ParticipantWork::RemoveName { .. }, _) => Ok(Ok(VoteInfo::Nothing)),
            _ => unreachable!("not a home's"),
        }
    }

    /// Keeps the directory of a future name in the skeleton. False if the chain is older than the journals
    /// that were applied here. If it is newer, the message waits, and `Blocked::NotNow` says so.
    pub(crate) fn reserve_name(
        &mut self,
        decision: &mut Decision,
        message: &PeerMessage,
        at: &EntryRef,
        chain: &Chain,
    ) -> Result<bool, Blocked> {
        if self.ctx.state.dir(at.dir)?.is_some_and(|dir| dir.owned.is_some()) {
            return Ok(true);
        }
        match self.ctx.order_of_chain(chain)? {
            VectorOrder::Same => {}
            VectorOrder::Older => return Ok(false),
            VectorOrder::Newer { missing } => {
                self.ctx.next(Next::FallBehind(missing, message.clone()));
                return Err(Blocked::NotNow);
            }
        }
        self.ctx.chain_must_be_loaded(chain)?;
        if chain.dirs.last().is_none_or(|last| last.ino != at.dir) && self.ctx.state.dir(at.dir)?.is_none() {
            return Ok(false);
        }
        self.ctx.merge_ancestors_if_applied(decision, chain);
        self.ctx.count_homes(decision, at.dir, 1);
        Ok(true)
    }
}
