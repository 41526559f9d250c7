//! Participants of transactions: prepare, vote, and carry out the outcome.

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, TxnId};
use atoll_proto::{Change, Moments, Part, Peer, PeerMessage, Txn, TxnState, Work};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::lost::{Lost, LostPart};
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
        moments: Option<Moments>,
        part: Option<&Part>,
    ) -> Result<(), Blocked> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        match (ctx.state.txn(txn).cloned(), moments) {
            (Some(row), Some(moments)) if row.state == TxnState::Committed => {
                if row.moments.committed < moments.committed {
                    // The coordinator had lost its commit, and has made it again.
                    let mut decision = Decision::new();
                    decision.txn(txn, Some(Txn { moments, ..row }));
                    ctx.decide(decision);
                }
                self.confirm(ctx, from, txn, moments.committed);
            }
            // It was asked for before, and answered when its coordinator had heard that it is done here.
            (Some(row), None) if row.state == TxnState::Committed => {}
            (Some(row), moments) => {
                let mut decision = Decision::new();
                let work = row.part.work.clone();
                if let Some(moments) = moments
                    && moves_dirs(&work)
                    && ctx.state.clocks().get(from) <= moments.committed
                {
                    // The new place comes by the journal: what follows here is about that one.
                    self.locks.decided_early(txn);
                    ctx.next(Next::FallBehind(vec![from], message.clone()));
                    return Ok(());
                }
                ctx.finish_work(&mut decision, from, &work, moments)?;
                let next = moments.map(|moments| Txn { state: TxnState::Committed, moments, ..row });
                decision.txn(txn, next);
                ctx.decide(decision);
                if let Some(moments) = moments {
                    self.confirm(ctx, from, txn, moments.committed);
                }
                self.locks.release(ctx, recovery.is_incomplete(), txn, &work);
            }
            // Its prepare was lost here: the coordinator has to say what it was.
            (None, Some(moments))
                if ctx.state.lost(moments.prepared)
                    && !recovery.is_known(txn)
                    && !planted(Bug::LostPartStaysLost) =>
            {
                match part {
                    Some(part) => {
                        let part = part.clone();
                        let lost = Lost::Part(LostPart { from, txn, moments, part });
                        ctx.next(Next::BringBack(moments.prepared, Box::new(lost)));
                    }
                    None => ctx.send(0, from, Peer::Ask { txn }),
                }
            }
            // Long done.
            (None, Some(moments)) => self.confirm(ctx, from, txn, moments.committed),
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
