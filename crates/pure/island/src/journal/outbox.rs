//! The outbox: entries of this island's journal that others may not have. They are kept up to a bound for an
//! island that does not confirm them. Beyond it, that island must compare; if it is away, when it returns
//! (`DESIGN` 5).
//!
//! Invariant: of the entries after the last one that an island has confirmed, or up to which it must compare,
//! none is missing.

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, Stamp, portions};
use atoll_proto::{PeerOp, RowChange};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::posts::ENTRY_BYTES_PER_MESSAGE;
use crate::journal::Journal;
use crate::journal::others::applied_by;

impl Ctx {
    /// Keeps no more than it may for islands that are away, and for those that are reached and confirm nothing. What could
    /// be lost in a power cut here stays.
    pub(crate) fn bound_outbox(&mut self) {
        let (kept, max, bytes_max) =
            (self.posts.durable_to(), self.config.outbox_max, self.config.outbox_bytes_max);
        let is_full = |island: &IslandId| {
            // One that is reached confirms many at once when it has synced them: only their bytes count.
            let is_long = !self.peers.is_reachable(*island) && self.state.outbox(*island).len() > max;
            self.needs_from(*island) < kept && (is_long || self.state.outbox_bytes(*island) > bytes_max)
        };
        let full: Vec<IslandId> = self.config.others().filter(is_full).collect();
        if full.is_empty() {
            return;
        }
        // Who compares has all up to there, and does not hear for whom it was.
        self.post_to_all();
        let mut decision = Decision::new();
        for island in &full {
            decision.push(RowChange::Skipped { island: *island, upto: kept });
        }
        let needed = |island| if full.contains(&island) { kept } else { self.needs_from(island) };
        if let Some(upto) = self.config.others().map(needed).min() {
            decision.push(RowChange::Unposted { upto });
        }
        let seq = self.decide(decision);
        for island in full.into_iter().filter(|island| self.peers.is_reachable(*island)).collect::<Vec<_>>() {
            self.send(seq, island, PeerOp::JournalSkipped { upto: kept });
        }
    }

    /// Sends messages that waited for the log to be synced.
    pub(crate) fn send_posted(&mut self) {
        let durability = &self.durability;
        let Some(after) = self.posts.open(|seq| durability.is_synced(seq)) else { return };
        for island in self.config.others() {
            let after = self.posts.forget_batch(island).unwrap_or(after);
            let entries = self.posted(island, after);
            if let Some((last, _)) = entries.last() {
                self.posts.sent(*last);
                self.send_entries(island, after, &entries);
            }
        }
    }

    /// Sends an island every entry that it may not have. It has applied and synced all entries before the
    /// first one of the outbox, or must compare for them.
    pub(crate) fn resend(&mut self, to: IslandId, after: Stamp) {
        let skipped = self.state.skipped(to);
        if self.has_journal_gap(to) && after < skipped && !planted(Bug::ReturnsWithoutComparing) {
            self.send(self.state.seq(), to, PeerOp::JournalSkipped { upto: skipped });
        }
        let before = if self.has_journal_gap(to) { skipped } else { Stamp::default() };
        // What it gets is told as one.
        self.post_to_all();
        if self.posts.forget_batch(to).is_some() {
            self.posts.note_untold();
        }
        let entries = self.posted(to, after);
        self.send_entries(to, before, &entries);
        self.tell_public(to);
    }

    /// Sends an island the entries of its own journal that were applied here and that it may have lost.
    pub(crate) fn return_journal(&mut self, to: IslandId) {
        let entries: Vec<_> = self.state.inbox(to).map(|(s, e)| (s, e.clone())).collect();
        for part in portions(&entries, ENTRY_BYTES_PER_MESSAGE) {
            self.send(self.state.seq(), to, PeerOp::ReturnedJournal { entries: part.to_vec() });
        }
    }
}

impl Journal {
    pub(crate) fn on_applied(&mut self, ctx: &mut Ctx, from: IslandId, upto: Stamp, synced: bool) {
        let known = self.applied.entry(from).or_default();
        *known = upto.max(*known);
        for waiting in &mut self.waiting {
            waiting.missing.retain(|island, needed| *island != from || *needed > upto);
        }
        let Ctx { posts, state, .. } = ctx;
        posts.settle(|island, stamp| applied_by(&self.applied, state, island) >= stamp);
        self.answer_applied(ctx);
        if (synced || planted(Bug::DroppedUnsynced)) && upto > ctx.state.delivered(from) {
            let mut decision = Decision::new();
            decision.push(RowChange::Delivered { island: from, upto });
            let slowest = ctx.config.others().map(|i| if i == from { upto } else { ctx.needs_from(i) }).min();
            if let Some(all) =
                slowest.filter(|all| ctx.state.first_posted().is_some_and(|first| first <= *all))
            {
                decision.push(RowChange::Unposted { upto: all });
            }
            ctx.decide(decision);
        }
    }
}
