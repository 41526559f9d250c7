//! The record that commits an operation which other islands have prepared.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Stamp, TxnId};
use atoll_proto::{PeerOp, TxnPart};

use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, Step, WaitFor};
use crate::island::Island;
use crate::migration::Needs;
use crate::txn::coordinator::{OwnPart, ended_by};

impl Island {
    /// All have prepared: makes it happen.
    pub(crate) fn commit(&mut self, first: TxnId) {
        let Some(begun) = self.txns.take_begun(first) else { return };
        let mut decision = Decision::new();
        let mut told = Vec::new();
        let early = self.ctx.stamps_before_commit(&begun.plan);
        for party in &begun.parties {
            let prepared = party.prepared.unwrap_or_else(|| {
                assert!(planted(Bug::VoteOfNobody), "all have voted");
                Stamp::default()
            });
            let part = TxnPart { request: begun.origin, work: party.work.clone() };
            let stamps = self.ctx.committed_txn(&mut decision, party.txn, party.island, prepared, &part);
            told.push((party.txn, party.island, stamps));
        }
        self.ctx.state.begin_reads();
        let done = match (&begun.plan, &begun.call) {
            (OwnPart::Ship, _) => self.commit_ship(first, decision).map(|()| Step::Answered),
            (OwnPart::Dirs, Some(call)) => self.commit_work(call, decision, &begun.parties[0].work),
            (plan, Some(call)) => self.commit_between(call, decision, plan, &early),
            (_, None) => unreachable!("the request is kept when its transaction is begun"),
        };
        match done {
            Ok(step) => {
                let seq = self.ctx.state.seq();
                let at_once = matches!(begun.plan, OwnPart::Dirs);
                let heard = told.iter().filter(|_| at_once);
                let heard = heard.map(|(txn, island, stamps)| (*txn, *island, stamps.committed));
                self.txns.committed(first, &begun, seq, heard);
                match (step, begun.call) {
                    (Step::Looked(outcome) | Step::Decided(outcome), Some(call)) => {
                        self.ctx.answer(&call, seq, outcome);
                    }
                    (Step::Wait(WaitFor::Applied(stamp, outcome)), Some(call)) => {
                        self.journal.await_applied(&mut self.ctx, call, stamp, outcome);
                    }
                    (Step::Answered, None) => {}
                    _ => unreachable!("a commit waits for the journal only"),
                }
                // The client first: it need not wait for the participant's record.
                for (txn, island, stamps) in told {
                    let decided = PeerOp::Decided { txn, stamps: Some(stamps), part: None };
                    if at_once {
                        self.ctx.send(seq, island, decided);
                    } else {
                        if !matches!(begun.plan, OwnPart::Ship) {
                            self.ctx.send(seq, island, PeerOp::ProvisionalCommit { txn });
                        }
                        self.ctx.send_synced(seq, island, decided);
                    }
                }
                self.ctx.next(Next::TxnEnded(first));
            }
            Err(stop) => {
                self.txns.put_begun(first, begun);
                match stop {
                    Blocked::Load(loads) => self.ctx.load(loads, Next::Commit(first)),
                    stop => self.txns.abort(&mut self.ctx, first, ended_by(&stop)),
                }
            }
        }
    }

    fn commit_ship(&mut self, first: TxnId, decision: Decision) -> Result<(), Blocked> {
        let needs = Needs {
            locks: self.txns.locks(),
            file_locks: &self.file_locks,
            bodies: &self.bodies,
            is_quiescing: self.quiesce.is_quiescing(),
        };
        self.migration.commit_ship(&mut self.ctx, needs, first, decision)
    }
}
