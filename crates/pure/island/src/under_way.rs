//! A list of an island's unfinished work, for observers: a simulator that compares states, and tools that ask
//! whether everything is at rest. Changes nothing.

use std::fmt;

use crate::island::Island;
use crate::journal::Journal;
use crate::txn::Txns;

/// Unfinished work, locks and waiting requests of an island, beside its rows. For display.
pub struct Fingerprint<'a>(&'a Island);

impl fmt::Debug for Fingerprint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Island { recovery, txns, journal, anti_entropy, requests, ctx, .. } = self.0;
        f.debug_struct("UnderWay")
            .field("phase", &recovery.phase())
            .field("unsynced", &!self.0.ctx.is_all_synced())
            .field("txns", txns as &Txns)
            .field("journal", journal as &Journal)
            .field("anti-entropy", anti_entropy)
            .field("paused", &requests.paused())
            .field("waiting", &requests.awaiting_txns())
            .field("awaiting ids", &requests.awaiting_ids())
            .field("loading", &ctx.loads)
            .field("posts", &ctx.posts)
            .field("skeleton", &ctx.skeleton)
            .field("peers", &ctx.peers)
            .field("awaiting sync", &ctx.durability.awaiting_sync().collect::<Vec<_>>())
            .finish()
    }
}

impl Island {
    /// Its unfinished work, locks and waiting requests, beside its rows.
    pub const fn under_way(&self) -> Fingerprint<'_> {
        Fingerprint(self)
    }

    /// True if an answer or a message waits for a record to be committed. A record that nobody waits for is
    /// written with the next one, or a moment later: until then another island has its content and tells it
    /// again.
    pub fn wants_write(&self) -> bool {
        self.ctx.durability.awaits_commit()
    }

    /// True if nothing is under way: no record unwritten, no request waiting for a body.
    pub fn is_idle(&self) -> bool {
        let seq = self.ctx.state.seq();
        self.ctx.durability.is_committed(seq) && self.bodies.is_idle() && !self.links.looks_at_links()
    }

    /// Nothing about links is under way, and all reachable islands have them.
    pub fn links_are_told(&self) -> bool {
        self.links.are_told(&self.ctx)
    }

    /// No file is on its way, from here or to here.
    pub fn moves_nothing(&self) -> bool {
        self.migration.moves_nothing() && self.txns.locks().brings_nothing()
    }

    /// When the next request begins again that was put off because of others, in milliseconds.
    pub fn next_retry_ms(&self) -> Option<u64> {
        self.requests.next_ms()
    }

    /// Nothing is begun, held, promised or waited for, no other island has to be told anything, and all of
    /// it survives a power cut.
    pub fn is_at_rest(&self) -> bool {
        self.is_idle()
            && self.ctx.is_all_synced()
            && self.ctx.state.txn_ids().next().is_none()
            && self.ctx.config.others().all(|i| self.ctx.state.inbox(i).next().is_none())
            && self.ctx.state.first_posted().is_none()
            && self.txns.is_at_rest()
            && self.migration.is_at_rest()
            && self.journal.is_at_rest()
            && self.anti_entropy.is_at_rest()
            && self.ctx.posts.is_at_rest()
            && self.ctx.durability.is_at_rest()
            && self.requests.is_at_rest()
            && self.ctx.loads.is_empty()
            && self.ctx.skeleton.is_pruned()
    }
}
