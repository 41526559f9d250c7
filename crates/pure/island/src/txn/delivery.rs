//! Tells outcomes to partners, again and again until each has carried its part out. Then the rows are
//! removed.

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, Stamp, TxnId};
use atoll_proto::{Outcome, ParticipantWork, PeerOp, Txn, TxnPart, TxnStamps, TxnState};

use super::coordinator::{Coordinated, Participant, RETELL_MS, TXNS_PER_MESSAGE, is_of_dirs};
use crate::ctx::Ctx;
use crate::ctx::PATIENCE_MS;
use crate::ctx::decision::Decision;
use crate::ctx::lost::LostRecord;
use crate::ctx::request::Next;
use crate::migration::Migration;
use crate::recovery::Recovery;
use crate::txn::Txns;
use crate::txn::participant::moves_dirs;

impl Txns {
    /// Tells a partner of an outcome that is recorded here when it is synced.
    pub(crate) fn queue_stable(&mut self, ctx: &mut Ctx, partner: IslandId, txn: TxnId, committed: Stamp) {
        let seq = ctx.state.seq();
        let moves = |row: &Txn| moves_dirs(&row.part.work) && ctx.state.clocks().get(partner) <= committed;
        if txn.coordinator == partner && ctx.state.txn(txn).is_some_and(moves) {
            // Whoever has missed the place needs the row until it has made up for that. It is told again.
            return;
        }
        self.unconfirmed.push((seq, partner, txn, committed));
        if ctx.durability.is_synced(seq) {
            self.tell_stable(ctx);
            ctx.next(Next::Stable);
        }
    }

    pub(crate) fn on_ask(&mut self, ctx: &mut Ctx, from: IslandId, txn: TxnId) {
        if txn.coordinator != ctx.config.id {
            return;
        }
        let first = self.first_of(txn);
        if let Some(begun) = self.begun.get(&first) {
            let waits =
                |party: &Participant| party.txn == txn && party.island == from && party.prepared.is_none();
            if begun.parties.iter().any(waits) {
                // It has prepared, and its vote was lost with a link.
                self.abort(ctx, first, None);
            }
            return;
        }
        // No row and not under way: it was never committed (presumed abort), or is long done.
        let row = ctx.state.txn(txn);
        let (stamps, part) = (row.map(|row| row.stamps), row.map(|row| Box::new(row.part.clone())));
        ctx.send_decided(from, txn, stamps, part);
    }

    pub(crate) fn on_stable(
        &mut self,
        ctx: &mut Ctx,
        recovery: &Recovery,
        from: IslandId,
        txns: &[(TxnId, Stamp)],
    ) {
        let mut decision = Decision::new();
        let mut done = Vec::new();
        for (txn, committed) in txns {
            let mine = txn.coordinator == ctx.config.id;
            match ctx.state.txn(*txn).cloned() {
                Some(row) if row.state == TxnState::Prepared => {}
                // It says what is not to be done again.
                Some(_) if recovery.supersedes(*txn) => {}
                // It knows of a commit that was lost here, and has been made again since.
                Some(Txn { stamps, part, .. }) if mine && stamps.committed != *committed => {
                    ctx.send_decided(from, *txn, Some(stamps), Some(Box::new(part)));
                }
                // The other side keeps its row longer: what it has done again, it must not do once more.
                Some(row) => {
                    decision.txn(*txn, None);
                    if mine {
                        if let ParticipantWork::ReceiveFile { file, .. } = &row.part.work {
                            ctx.next(Next::FileLeft(file.attr.ino));
                        }
                        done.push((*txn, *committed));
                    }
                }
                // What was lost here is told with all that it is: `on_carried`.
                None if mine && !ctx.state.lost(*committed) => done.push((*txn, *committed)),
                None => {}
            }
        }
        if !decision.record.changes.is_empty() {
            ctx.decide(decision);
        }
        // Long forgotten here; the partner may forget too once that is synced.
        for (txn, committed) in done {
            self.queue_stable(ctx, from, txn, committed);
        }
    }

    /// A participant has carried out an outcome that this island decided and may have lost.
    pub(crate) fn on_carried(
        &mut self,
        ctx: &mut Ctx,
        from: IslandId,
        txn: TxnId,
        stamps: TxnStamps,
        part: &TxnPart,
    ) {
        if txn.coordinator != ctx.config.id {
            return;
        }
        match ctx.state.txn(txn) {
            Some(row) if row.stamps.committed != stamps.committed => {
                let (stamps, part) = (row.stamps, Box::new(row.part.clone()));
                ctx.send_decided(from, txn, Some(stamps), Some(part));
            }
            None if ctx.state.lost(stamps.committed) && !planted(Bug::LostCommitStaysLost) => {
                let (prepared, part) = (stamps.prepared, part.clone());
                let lost = LostRecord::Commit { from, txn, prepared, part };
                ctx.next(Next::BringBack(stamps.committed, Box::new(lost)));
            }
            // It says itself when that is synced; then the row here goes, before the one there.
            Some(row) if !is_of_dirs(&row.part.work) => {}
            _ => self.queue_stable(ctx, from, txn, stamps.committed),
        }
    }

    /// Tells a partner the outcomes that it may have missed or lost, of the transactions that `which` picks.
    pub(crate) fn resend_outcomes(
        &mut self,
        ctx: &mut Ctx,
        migration: &Migration,
        to: IslandId,
        which: impl Fn(TxnId) -> bool,
    ) {
        let rows: Vec<(TxnId, Txn)> = ctx
            .state
            .txn_ids()
            .filter_map(|txn| ctx.state.txn(txn).map(|row| (txn, row.clone())))
            .filter(|(txn, row)| row.partner == to && which(*txn) && !migration.is_pulling(*txn))
            .collect();
        let seq = ctx.state.seq();
        for (txn, Txn { state, stamps, part, .. }) in rows {
            let part = Box::new(ctx.as_it_is(part));
            let peer = match state {
                TxnState::Prepared => PeerOp::AskOutcome { txn },
                TxnState::Committed if txn.coordinator == ctx.config.id => {
                    ctx.send_decided(to, txn, Some(stamps), Some(part));
                    continue;
                }
                TxnState::Committed => {
                    self.queue_stable(ctx, to, txn, stamps.committed);
                    PeerOp::CarriedOut { txn, stamps, part }
                }
            };
            ctx.send(seq, to, peer);
        }
    }

    /// Tells partners which outcomes are synced now.
    pub(crate) fn tell_stable(&mut self, ctx: &mut Ctx) {
        let durability = &ctx.durability;
        let (ready, wait): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unconfirmed)
            .into_iter()
            .partition(|(seq, ..)| durability.is_synced(*seq) || planted(Bug::StableBeforeSync));
        self.unconfirmed = wait;
        let mut by_partner: BTreeMap<IslandId, Vec<(TxnId, Stamp)>> = BTreeMap::new();
        for (_, partner, txn, committed) in ready {
            by_partner.entry(partner).or_default().push((txn, committed));
        }
        for (partner, txns) in by_partner {
            for part in txns.chunks(TXNS_PER_MESSAGE) {
                ctx.send(0, partner, PeerOp::Stable { txns: part.to_vec() });
            }
        }
    }

    /// Ends transactions of requests that have waited too long.
    pub(crate) fn end_late(&mut self, ctx: &mut Ctx) {
        let is_late =
            |b: &Coordinated| b.call.as_ref().is_some_and(|c| c.since_ms + PATIENCE_MS < ctx.now.ms);
        let late: Vec<TxnId> =
            self.begun.iter().filter(|(_, begun)| is_late(begun)).map(|(txn, _)| *txn).collect();
        for txn in late {
            self.abort(ctx, txn, Some(Outcome::NotNow));
        }
    }

    /// From time to time tells all partners again what they may have missed.
    pub(crate) fn tell_again(&mut self, ctx: &mut Ctx, migration: &Migration) {
        if ctx.now.ms >= self.retell_ms + RETELL_MS {
            self.retell_ms = ctx.now.ms;
            // What was there at the last time already.
            let old = std::mem::take(&mut self.told_before);
            for txn in ctx.state.txn_ids() {
                let last = self.told_before.entry(txn.coordinator).or_default();
                *last = txn.stamp.max(*last);
            }
            let is_old = |txn: TxnId| old.get(&txn.coordinator).is_some_and(|last| txn.stamp <= *last);
            for island in ctx.config.others().filter(|i| ctx.peers.is_reachable(*i)).collect::<Vec<_>>() {
                self.resend_outcomes(ctx, migration, island, is_old);
            }
            ctx.next(Next::Stable);
        }
    }
}

impl Ctx {
    /// Tells an outcome that was recorded before, when it is as safe as it must be.
    pub(super) fn send_decided(
        &mut self,
        to: IslandId,
        txn: TxnId,
        stamps: Option<TxnStamps>,
        part: Option<Box<TxnPart>>,
    ) {
        let is_adopt = |part: &TxnPart| matches!(part.work, ParticipantWork::Adopt { .. });
        let safe = part.as_deref().is_none_or(is_adopt);
        let (seq, decided) = (self.state.seq(), PeerOp::Decided { txn, stamps, part });
        if safe { self.send(seq, to, decided) } else { self.send_synced(seq, to, decided) }
    }

    /// An adopted directory may have other attributes by now: the island that names it again gets those.
    pub(super) fn as_it_is(&self, mut part: TxnPart) -> TxnPart {
        if let ParticipantWork::Adopt { dir, .. } = &mut part.work
            && let Some(row) = self.in_memory(dir.ino).filter(|row| row.owned.is_some())
        {
            dir.fixed = row.fixed;
        }
        // So are the ancestors of a name: as they are known now.
        if let Some(now) = part.work.brings().and_then(|at| self.chain_to(at.dir).ok())
            && let ParticipantWork::AddName { chain, .. } | ParticipantWork::MoveName { chain, .. } =
                &mut part.work
        {
            *chain = now;
        }
        part
    }
}
