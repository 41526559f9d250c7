//! The entry of messages of other islands, and the messages that they get when a link to them comes up.

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, Stamp};
use atoll_proto::{PeerMessage, PeerOp};

use super::fits::fits;
use crate::compare::answer;
use crate::ctx::SenderLife;
use crate::ctx::request::{Blocked, Next};
use crate::event::{Damage, Effect};
use crate::island::Island;

impl Island {
    pub(crate) fn peer_reachable(&mut self, island: IslandId, up: bool) {
        if island == self.ctx.config.id {
            return;
        }
        self.journal.set_reachable(&mut self.ctx, island, up);
        if !up {
            self.links.forget_told(island);
            self.txns.abort_with(&mut self.ctx, island);
            self.anti_entropy.forget_skipped(island);
            self.anti_entropy.compare_without(&mut self.ctx, island);
            self.migration.lost_link(island);
            self.recovery.heard(&mut self.ctx, island);
            self.ctx.next(Next::CompareSkipped);
            return;
        }
        // Whichever side was away: both ask and both tell.
        self.ctx.send(self.ctx.state.seq(), island, PeerOp::Hello);
        self.tell_all(island);
    }

    /// Everything that an island may have missed or lost, and then that this was all. Over a link that
    /// is not up yet the beginning could be dropped and the end arrive: then it is told when it is.
    fn tell_all(&mut self, island: IslandId) {
        if !self.ctx.peers.is_reachable(island) {
            return;
        }
        self.txns.resend_outcomes(&mut self.ctx, &self.migration, island, |_| true);
        self.ctx.resend(island, Stamp::default());
        self.ctx.return_journal(island);
        self.links.compare_links(&mut self.ctx, island);
        if self.recovery.may_tell_kept(island) {
            self.ctx.send(
                self.ctx.state.seq(),
                island,
                PeerOp::JournalDurable { upto: self.ctx.posts.durable_to() },
            );
        }
        // Behind all that waits for the log to be synced, which may take until the other side has another life: to that one it says
        // nothing.
        let to = self.ctx.peers.incarnation(island);
        self.ctx.send_behind_synced(island, PeerOp::HelloDone { to });
    }

    /// Sends others the journal entries that are of no use to them yet, and how far the journal is safe.
    pub(crate) fn tick_posts(&mut self) {
        let due = self.ctx.posts.batches_due(self.ctx.now.ms, &self.ctx.config);
        let (is_safe, upto) = (self.ctx.posts.is_all_durable(), self.ctx.posts.durable_to());
        for island in due {
            if is_safe && self.recovery.may_tell_kept(island) {
                self.ctx.send(0, island, PeerOp::JournalDurable { upto });
                self.ctx.send_safe_batch(island);
            } else {
                self.ctx.send_batched(island);
            }
        }
        self.recovery.tell_untold(&mut self.ctx);
    }

    /// A message of another island.
    pub(crate) fn peer(&mut self, message: PeerMessage) {
        self.ctx.state.begin_reads();
        match self.run_peer(&message) {
            Ok(()) => {}
            Err(Blocked::Load(loads)) => self.ctx.load(loads, Next::Peer(message)),
            Err(Blocked::Txn(txn)) => {
                // Held by a transaction that ends by itself; the sender repeats what matters.
                debug_assert!(self.ctx.state.txn(txn).is_some() || self.txns.is_begun(txn));
            }
            // Its sender does not tell it again by itself.
            Err(_) if matches!(message.op, PeerOp::Journal { .. }) => self.journal.stall(message.from),
            Err(_) => {}
        }
    }

    fn run_peer(&mut self, message: &PeerMessage) -> Result<(), Blocked> {
        let from = message.from;
        if from == self.ctx.config.id || !self.ctx.config.islands.contains(&from) {
            return Ok(());
        }
        if let Err(why) = fits(&message.op) {
            self.ctx.durability.emit(Effect::Damaged(Damage::Message { from, why }));
            return Ok(());
        }
        match self.ctx.peers.speaks(from, message.incarnation) {
            // It has waited here meanwhile. What its sender has lost was told before this: nobody would bring it back.
            SenderLife::Earlier => return Ok(()),
            SenderLife::New => {
                // What its last life had said may have come late, and be lost there since.
                self.links.forget_told(from);
                // That life may have taken a question along, also if nobody has told that it cannot be reached: another copy leads
                // it soon. A vote that it has given and that comes yet finds nothing.
                self.txns.abort_with(&mut self.ctx, from);
                if !matches!(message.op, PeerOp::Hello) {
                    // Its `Hello` was dropped by a link that was not up yet, and what it was told was for an earlier life.
                    self.tell_all(from);
                }
            }
            SenderLife::Same => {}
        }
        match &message.op {
            PeerOp::Hello => {
                self.tell_all(from);
                Ok(())
            }
            PeerOp::HelloDone { to } => {
                if *to != self.ctx.state.meta().incarnation && !planted(Bug::ToldEarlierLife) {
                    // Its sender has not heard of this life yet, in which it may still decide by votes of the one before.
                    return Ok(());
                }
                self.recovery.heard(&mut self.ctx, from);
                self.ctx.next(Next::ToldAll(from));
                Ok(())
            }
            // It would build on what may be missing yet.
            PeerOp::Prepare { .. } | PeerOp::Journal { .. } | PeerOp::Compare { .. }
                if self.recovery.is_waiting() =>
            {
                if !self.recovery.defer(message) {
                    self.journal.turn_away(&mut self.ctx, message);
                }
                Ok(())
            }
            PeerOp::Prepare { txn, origin, work } => self.on_prepare(message, *txn, *origin, work),
            PeerOp::Voted { txn, vote } => {
                self.txns.on_voted(&mut self.ctx, &self.recovery, message, *txn, vote)
            }
            PeerOp::Decided { txn, stamps, part } => {
                self.txns.on_decided(&mut self.ctx, &self.recovery, message, *txn, *stamps, part.as_deref())
            }
            PeerOp::Stable { txns } => {
                self.txns.on_stable(&mut self.ctx, &self.recovery, from, txns);
                Ok(())
            }
            PeerOp::AskOutcome { txn } => {
                self.txns.on_ask(&mut self.ctx, from, *txn);
                Ok(())
            }
            PeerOp::Journal { after, entries, private } => {
                // What was missed comes first; then it is asked for.
                if self.anti_entropy.compares_for(from) {
                    return Ok(());
                }
                self.journal.on_journal(&mut self.ctx, from, *after, entries, *private)
            }
            PeerOp::Applied { upto, synced } => {
                self.journal.on_applied(&mut self.ctx, from, *upto, *synced);
                Ok(())
            }
            PeerOp::Resend { after } => {
                self.ctx.resend(from, *after);
                Ok(())
            }
            PeerOp::WantJournalEnd { ask } => {
                // Before, others may have seen entries that are not in this journal any more.
                if self.recovery.has_moved_on() {
                    let upto = self.ctx.posts.last();
                    self.ctx.send(self.ctx.state.seq(), from, PeerOp::JournalEnd { ask: *ask, upto });
                }
                Ok(())
            }
            PeerOp::JournalEnd { ask, upto } => {
                self.journal.on_end(&mut self.ctx, from, *ask, *upto);
                Ok(())
            }
            PeerOp::CarriedOut { txn, stamps, part } => {
                self.txns.on_carried(&mut self.ctx, from, *txn, *stamps, part);
                Ok(())
            }
            PeerOp::ReturnedJournal { entries } => {
                self.recovery.on_returned(&mut self.ctx, entries);
                Ok(())
            }
            PeerOp::ProvisionalCommit { txn } => {
                self.txns.on_happened(&mut self.ctx, from, *txn);
                Ok(())
            }
            PeerOp::JournalSkipped { upto } => {
                self.anti_entropy.on_skipped(&mut self.ctx, &self.recovery, from, *upto);
                Ok(())
            }
            PeerOp::Compare { round, missed, asks } => answer::on_compare(
                &mut self.ctx,
                self.txns.locks(),
                &self.recovery,
                from,
                *round,
                missed,
                asks,
            ),
            PeerOp::Compared { round, told } => {
                self.anti_entropy.on_compared(&mut self.ctx, self.txns.locks(), &self.recovery, *round, told);
                Ok(())
            }
            PeerOp::WantChain { dir } => self.ctx.on_want_chain(message, *dir),
            PeerOp::ChainOf { dir, chain } => {
                self.journal.on_chain_of(&mut self.ctx, *dir, chain.as_ref());
                Ok(())
            }
            PeerOp::Pull { txn, offset } => self.migration.on_pull(&mut self.ctx, message, *txn, *offset),
            PeerOp::Chunk { txn, offset, bytes } => {
                self.migration.on_chunk(&mut self.ctx, &self.bodies, from, *txn, *offset, bytes)
            }
            PeerOp::Links { before, links, after } => {
                self.ctx.on_links(from, *before, links, *after);
                Ok(())
            }
            PeerOp::LinksHeld { digest } => {
                self.links.on_links_held(&mut self.ctx, from, *digest);
                Ok(())
            }
            PeerOp::WantLinks { after } => {
                self.ctx.on_want_links(from, *after);
                Ok(())
            }
            PeerOp::AllLinks { after, upto, links } => {
                self.ctx.on_all_links(from, *after, *upto, links);
                Ok(())
            }
            PeerOp::LinkUsed { link, at } => {
                let me = self.ctx.config.id;
                self.links.link_used(&mut self.ctx, at.dir, &at.name, *link, me);
                Ok(())
            }
            PeerOp::Leads { link, path } => self.ctx.on_leads(from, *link, path),
            PeerOp::LeadsTo { link, led } => self.links.on_leads_to(&mut self.ctx, from, *link, led),
            PeerOp::JournalDurable { upto } => {
                self.journal.on_kept(&mut self.ctx, from, *upto);
                Ok(())
            }
        }
    }
}
