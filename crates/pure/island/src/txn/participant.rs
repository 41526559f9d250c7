//! Participants of transactions: prepare, vote, and carry out the outcome.

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, TxnId};
use atoll_proto::{ParticipantWork, PeerMessage, PeerOp, RowChange, Txn, TxnPart, TxnStamps, TxnState};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::lost::{LostPart, LostRecord};
use crate::ctx::request::{Blocked, Next};
use crate::look::Missing;
use crate::recovery::Recovery;
use crate::txn::Txns;

impl Txns {
    pub(crate) fn on_decided(
        &mut self,
        ctx: &mut Ctx,
        recovery: &Recovery,
        message: &PeerMessage,
        txn: TxnId,
        stamps: Option<TxnStamps>,
        part: Option<&TxnPart>,
    ) -> Result<(), Blocked> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        match (ctx.state.txn(txn).cloned(), stamps) {
            (Some(row), Some(stamps)) if row.state == TxnState::Committed => {
                if row.stamps.committed < stamps.committed {
                    // The coordinator had lost its commit, and has made it again.
                    let mut decision = Decision::new();
                    decision.txn(txn, Some(Txn { stamps, ..row }));
                    ctx.decide(decision);
                }
                self.queue_stable(ctx, from, txn, stamps.committed);
            }
            // It was asked for before, and answered when its coordinator had heard that it is done here.
            (Some(row), None) if row.state == TxnState::Committed => {}
            (Some(row), stamps) => {
                let mut decision = Decision::new();
                let work = row.part.work.clone();
                if let Some(stamps) = stamps
                    && moves_dirs(&work)
                    && ctx.state.clocks().get(from) <= stamps.committed
                {
                    // The new place comes by the journal: what follows here is about that one.
                    self.locks.decided_early(txn);
                    ctx.next(Next::FallBehind(vec![from], message.clone()));
                    return Ok(());
                }
                ctx.finish_work(&mut decision, from, &work, stamps)?;
                let next = stamps.map(|stamps| Txn { state: TxnState::Committed, stamps, ..row });
                decision.txn(txn, next);
                ctx.decide(decision);
                if let Some(stamps) = stamps {
                    self.queue_stable(ctx, from, txn, stamps.committed);
                }
                self.locks.release(ctx, recovery.is_incomplete(), txn, &work);
            }
            // Its prepare was lost here: the coordinator has to say what it was.
            (None, Some(stamps))
                if ctx.state.lost(stamps.prepared)
                    && !recovery.is_known(txn)
                    && !planted(Bug::LostPartStaysLost) =>
            {
                match part {
                    Some(part) => {
                        let part = part.clone();
                        let lost = LostRecord::Part(LostPart { from, txn, stamps, part });
                        ctx.next(Next::BringBack(stamps.prepared, Box::new(lost)));
                    }
                    None => ctx.send(0, from, PeerOp::AskOutcome { txn }),
                }
            }
            // Long done.
            (None, Some(stamps)) => self.queue_stable(ctx, from, txn, stamps.committed),
            (None, None) => {}
        }
        Ok(())
    }
}

impl Ctx {
    /// Carries out, or takes back, prepared work.
    fn finish_work(
        &mut self,
        decision: &mut Decision,
        from: IslandId,
        work: &ParticipantWork,
        stamps: Option<TxnStamps>,
    ) -> Result<(), Blocked> {
        let commit = stamps.is_some();
        match work {
            ParticipantWork::Adopt { dir, .. } => self.finish_dir(decision, dir.ino, true, commit),
            ParticipantWork::Seal { ino, .. } => self.finish_dir(decision, *ino, false, commit),
            ParticipantWork::BorrowName { renaming, .. } => {
                self.renaming_must_be_loaded(renaming)?;
                self.finish_lend(decision, renaming, commit);
                Ok(())
            }
            ParticipantWork::FreezeDir { .. } => Ok(()),
            ParticipantWork::ReceiveFile { at, file, xattrs, .. } => {
                self.arrival_must_be_loaded(at, file)?;
                self.finish_arrival(decision, at, file, xattrs.as_ref(), commit);
                Ok(())
            }
            ParticipantWork::PermitMove { .. } => {
                if let Some(stamps) = stamps {
                    decision.push(RowChange::Moved { island: from, stamp: stamps.committed });
                }
                Ok(())
            }
            ParticipantWork::AddName { .. }
            | ParticipantWork::RemoveName { .. }
            | ParticipantWork::MoveName { .. } => {
                self.home_must_be_loaded(work)?;
                self.finish_home(decision, work, commit);
                Ok(())
            }
        }
    }
}

/// Whether a work is part of a rename that moves directories to another parent.
pub(crate) fn moves_dirs(work: &ParticipantWork) -> bool {
    match work {
        ParticipantWork::FreezeDir { .. } => true,
        ParticipantWork::BorrowName { renaming, .. } => !crate::rows::moves::moving(renaming).is_empty(),
        _ => false,
    }
}
