//! Rows of transactions that this island coordinates.

use atoll_core::{Ino, IslandId, Stamp, TxnId};
use atoll_proto::{ParticipantWork, Txn, TxnPart, TxnStamps, TxnState};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;

impl Ctx {
    /// The coordinator's row of a transaction that is committed now.
    pub(crate) fn committed_txn(
        &mut self,
        decision: &mut Decision,
        txn: TxnId,
        partner: IslandId,
        prepared: Stamp,
        part: &TxnPart,
    ) -> TxnStamps {
        let stamps = TxnStamps { prepared, committed: self.stamp() };
        decision.stamp(stamps.committed);
        decision.txn(txn, Some(Txn { state: TxnState::Committed, partner, stamps, part: part.clone() }));
        self.forget_adoption(decision, &part.work);
        stamps
    }

    /// A directory that goes was adopted, so its mkdir need not be told again.
    fn forget_adoption(&self, decision: &mut Decision, work: &ParticipantWork) {
        if let ParticipantWork::Seal { ino, .. } = work {
            self.forget_adoption_of(decision, *ino);
        }
    }

    /// The same as [`Ctx::forget_adoption`], by the transaction's id.
    pub(crate) fn forget_adoption_of(&self, decision: &mut Decision, ino: Ino) {
        let old = self.state.txn_ids().find(|id| {
            id.coordinator == self.config.id
                && self.state.txn(*id).is_some_and(
                    |row| matches!(&row.part.work, ParticipantWork::Adopt { dir, .. } if dir.ino == ino),
                )
        });
        if let Some(old) = old {
            decision.txn(old, None);
        }
    }
}
