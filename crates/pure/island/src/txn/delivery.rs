//! Telling partners of outcomes: what is told again until it is known to be carried out, and what is forgotten then.

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Stamp, TxnId};
use atoll_posix::Errno;
use atoll_proto::{Moments, Outcome, Part, Peer, Txn, TxnState, Work};

use super::coordinator::{Participant, RETELL_MS, TXNS_PER_MESSAGE, is_of_dirs};
use crate::ctx::Ctx;
use crate::ctx::PATIENCE_MS;
use crate::ctx::decision::Decision;
use crate::ctx::lost::Lost;
use crate::island::Island;
use crate::txn::participant::moves_dirs;

impl Island {
    /// Tells a partner of an outcome that is recorded here when it is synced.
    pub(crate) fn confirm(&mut self, partner: IslandId, txn: TxnId, committed: Stamp) {
        let seq = self.ctx.state.seq();
        let moves =
            |row: &Txn| moves_dirs(&row.part.work) && self.ctx.state.clocks().get(partner) <= committed;
        if txn.coordinator == partner && self.ctx.state.txn(txn).is_some_and(moves) {
            // Whoever has missed the place needs the row until it has made up for that. It is told again.
            return;
        }
        self.txns.unconfirmed.push((seq, partner, txn, committed));
        if self.ctx.durability.is_synced(seq) {
            self.stable();
        }
    }

    pub(crate) fn on_ask(&mut self, from: IslandId, txn: TxnId) {
        if txn.coordinator != self.ctx.config.id {
            return;
        }
        let first = self.txns.first_of(txn);
        if let Some(begun) = self.txns.begun.get(&first) {
            let waits =
                |party: &Participant| party.txn == txn && party.island == from && party.prepared.is_none();
            if begun.parties.iter().any(waits) {
                // It has prepared, and its vote was lost with a link.
                self.abort(first, None);
            }
            return;
        }
        // No row and not under way: it was never committed (presumed abort), or is long done.
        let row = self.ctx.state.txn(txn);
        let (moments, part) = (row.map(|row| row.moments), row.map(|row| Box::new(row.part.clone())));
        self.ctx.send_decided(from, txn, moments, part);
    }

    pub(crate) fn on_stable(&mut self, from: IslandId, txns: &[(TxnId, Stamp)]) {
        let mut decision = Decision::new();
        let mut done = Vec::new();
        for (txn, committed) in txns {
            let mine = txn.coordinator == self.ctx.config.id;
            match self.ctx.state.txn(*txn).cloned() {
                Some(row) if row.state == TxnState::Prepared => {}
                // It says what is not to be done again.
                Some(_) if self.recovery.supersedes(*txn) => {}
                // It knows of a commit that was lost here, and has been made again since.
                Some(Txn { moments, part, .. }) if mine && moments.committed != *committed => {
                    self.ctx.send_decided(from, *txn, Some(moments), Some(Box::new(part)));
                }
                // The other side keeps its row longer: what it has done again, it must not do once more.
                Some(row) => {
                    decision.txn(*txn, None);
                    if mine {
                        self.migration.has_left(&row.part.work);
                        done.push((*txn, *committed));
                    }
                }
                // What was lost here is told with all that it is: `on_carried`.
                None if mine && !self.ctx.state.lost(*committed) => done.push((*txn, *committed)),
                None => {}
            }
        }
        if !decision.record.changes.is_empty() {
            self.ctx.decide(decision);
        }
        // Long forgotten here; the partner may forget too once that is synced.
        for (txn, committed) in done {
            self.confirm(from, txn, committed);
        }
    }

    /// A participant has carried out what this island decided, and may have lost.
    pub(crate) fn on_carried(&mut self, from: IslandId, txn: TxnId, moments: Moments, part: &Part) {
        if txn.coordinator != self.ctx.config.id {
            return;
        }
        match self.ctx.state.txn(txn) {
            Some(row) if row.moments.committed != moments.committed => {
                let (moments, part) = (row.moments, Box::new(row.part.clone()));
                self.ctx.send_decided(from, txn, Some(moments), Some(part));
            }
            None if self.ctx.state.lost(moments.committed) && !planted(Bug::LostCommitStaysLost) => {
                let (prepared, part) = (moments.prepared, part.clone());
                self.recovery.bring_back(
                    &mut self.ctx,
                    moments.committed,
                    Lost::Commit { from, txn, prepared, part },
                );
            }
            // It says itself when that is synced; then the row here goes, before the one there.
            Some(row) if !is_of_dirs(&row.part.work) => {}
            _ => self.confirm(from, txn, moments.committed),
        }
    }

    /// Tells partners of what is synced now.
    pub(crate) fn stable(&mut self) {
        let durability = &self.ctx.durability;
        let (ready, wait): (Vec<_>, Vec<_>) = std::mem::take(&mut self.txns.unconfirmed)
            .into_iter()
            .partition(|(seq, ..)| durability.is_synced(*seq) || planted(Bug::StableBeforeSync));
        self.txns.unconfirmed = wait;
        let mut by_partner: BTreeMap<IslandId, Vec<(TxnId, Stamp)>> = BTreeMap::new();
        for (_, partner, txn, committed) in ready {
            by_partner.entry(partner).or_default().push((txn, committed));
        }
        for (partner, txns) in by_partner {
            for part in txns.chunks(TXNS_PER_MESSAGE) {
                self.ctx.send(0, partner, Peer::Stable { txns: part.to_vec() });
            }
        }
        self.journal.confirm_applied(&mut self.ctx);
        self.recovery.tell_kept(&mut self.ctx);
    }

    /// Tells a partner what it may have missed or lost, of the transactions of which `which` says so.
    pub(crate) fn retell(&mut self, to: IslandId, which: impl Fn(TxnId) -> bool) {
        let rows: Vec<(TxnId, Txn)> = self
            .ctx
            .state
            .txn_ids()
            .filter_map(|txn| self.ctx.state.txn(txn).map(|row| (txn, row.clone())))
            .filter(|(txn, row)| row.partner == to && which(*txn) && !self.migration.is_pulling(*txn))
            .collect();
        let seq = self.ctx.state.seq();
        for (txn, Txn { state, moments, part, .. }) in rows {
            let part = Box::new(self.ctx.as_it_is(part));
            let peer = match state {
                TxnState::Prepared => Peer::Ask { txn },
                TxnState::Committed if txn.coordinator == self.ctx.config.id => {
                    self.ctx.send_decided(to, txn, Some(moments), Some(part));
                    continue;
                }
                TxnState::Committed => {
                    self.confirm(to, txn, moments.committed);
                    Peer::Carried { txn, moments, part }
                }
            };
            self.ctx.send(seq, to, peer);
        }
    }

    pub(crate) fn tick_txns(&mut self) {
        let late: Vec<TxnId> = self
            .txns
            .begun
            .iter()
            .filter(|(_, b)| b.call.as_ref().is_some_and(|c| c.since_ms + PATIENCE_MS < self.ctx.now.ms))
            .map(|(txn, _)| *txn)
            .collect();
        for txn in late {
            self.abort(txn, Some(Outcome::NotNow));
        }
        let late = self.ctx.now.ms.saturating_sub(PATIENCE_MS);
        for call in self.requests.late(late) {
            self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EIO });
        }
        if self.ctx.now.ms >= self.txns.retell_ms + RETELL_MS {
            self.txns.retell_ms = self.ctx.now.ms;
            // What was there at the last time already.
            let old = std::mem::take(&mut self.txns.told_before);
            for txn in self.ctx.state.txn_ids() {
                let last = self.txns.told_before.entry(txn.coordinator).or_default();
                *last = txn.stamp.max(*last);
            }
            let is_old = |txn: TxnId| old.get(&txn.coordinator).is_some_and(|last| txn.stamp <= *last);
            for island in
                self.ctx.config.others().filter(|i| self.ctx.peers.is_reachable(*i)).collect::<Vec<_>>()
            {
                self.retell(island, is_old);
            }
            self.stable();
        }
    }
}

impl Ctx {
    /// A directory that goes was adopted, so its mkdir need not be told again.
    pub(super) fn forget_adoption(&self, decision: &mut Decision, work: &Work) {
        if let Work::Seal { ino, .. } = work {
            self.forget_adoption_of(decision, *ino);
        }
    }

    /// As [`Ctx::forget_adoption`], by its id.
    pub(crate) fn forget_adoption_of(&self, decision: &mut Decision, ino: Ino) {
        let old = self.state.txn_ids().find(|id| {
            id.coordinator == self.config.id
                && self
                    .state
                    .txn(*id)
                    .is_some_and(|row| matches!(&row.part.work, Work::Adopt { dir, .. } if dir.ino == ino))
        });
        if let Some(old) = old {
            decision.txn(old, None);
        }
    }

    /// Tells an outcome that was recorded before, when it is as safe as it must be.
    pub(super) fn send_decided(
        &mut self,
        to: IslandId,
        txn: TxnId,
        moments: Option<Moments>,
        part: Option<Box<Part>>,
    ) {
        let is_adopt = |part: &Part| matches!(part.work, Work::Adopt { .. });
        let safe = part.as_deref().is_none_or(is_adopt);
        let (seq, decided) = (self.state.seq(), Peer::Decided { txn, moments, part });
        if safe { self.send(seq, to, decided) } else { self.send_synced(seq, to, decided) }
    }

    /// A directory that was adopted may have other attributes by now: whoever names it again gets those.
    pub(super) fn as_it_is(&self, mut part: Part) -> Part {
        if let Work::Adopt { dir, .. } = &mut part.work
            && let Some(row) = self.in_memory(dir.ino).filter(|row| row.owned.is_some())
        {
            dir.fixed = row.fixed;
        }
        // So are the ancestors of a name: as they are known now.
        if let Some(now) = part.work.brings().and_then(|at| self.chain_to(at.dir).ok())
            && let Work::Count { chain, .. } | Work::Renamed { chain, .. } = &mut part.work
        {
            *chain = now;
        }
        part
    }
}
