//! The sending end of this island's journal (`DESIGN` 5; Archipelago 8): entries that are posted with a
//! decision, entries that wait for a sync, and how far the journal is safe. Never knows which islands have
//! applied it.

use std::collections::VecDeque;

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, Stamp};
use atoll_proto::{JournalEntry, PeerOp, RowChange};

use super::Ctx;
use super::decision::Decision;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Posts {
    /// The last stamp that this island has put into the journal.
    last: Stamp,
    /// Entries that are not synced, with their records' positions.
    unsynced: VecDeque<(u64, Stamp)>,
    /// How far the journal is synced.
    durable_to: Stamp,
    /// Entries that nobody may know before the record at this position is synced. Entries behind them wait
    /// too.
    held_until_synced: VecDeque<(u64, Stamp)>,
    /// The last stamp that was sent.
    sent: Stamp,
    /// The first half of an entry that is posted, with its predecessor.
    first_of_pair: Option<(Stamp, Vec<(Stamp, JournalEntry)>)>,
}

impl Posts {
    /// What is posted first in this life follows `last`, which the last one has posted: some may not have that yet.
    pub(crate) const fn resume(&mut self, last: Stamp) {
        self.last = last;
    }

    /// Entries up to `stamp` are told to be safe when the record at `seq` is synced.
    pub(crate) fn durable_after(&mut self, seq: u64, stamp: Stamp) {
        self.unsynced.push_back((seq, stamp));
    }

    /// The log is synced up to here.
    pub(crate) fn synced(&mut self, is_synced: impl Fn(u64) -> bool) {
        while let Some((seq, stamp)) = self.unsynced.front().copied() {
            if !is_synced(seq) && !planted(Bug::KeptBeforeSync) {
                break;
            }
            self.unsynced.pop_front();
            self.durable_to = stamp.max(self.durable_to);
        }
    }

    /// The last stamp that this island has put into the journal.
    pub(crate) const fn last(&self) -> Stamp {
        self.last
    }

    /// How far this island's journal survives a power cut.
    pub(crate) const fn durable_to(&self) -> Stamp {
        self.durable_to
    }

    /// Entries wait for the log to be synced.
    pub(crate) fn holds_back(&self) -> bool {
        !self.held_until_synced.is_empty()
    }

    /// The first entry that waits for the log to be synced: it is not told, and none behind it.
    pub(crate) fn first_held_back(&self) -> Option<Stamp> {
        self.held_until_synced.front().map(|(_, stamp)| *stamp)
    }

    /// Releases the entries that waited for records that are synced now. Returns the last one sent before, if
    /// there were some.
    pub(crate) fn open(&mut self, is_synced: impl Fn(u64) -> bool) -> Option<Stamp> {
        let mut open = false;
        while self.held_until_synced.front().is_some_and(|(seq, _)| is_synced(*seq)) {
            self.held_until_synced.pop_front();
            open = true;
        }
        open.then_some(self.sent)
    }

    /// Entries up to this one were sent.
    pub(crate) fn sent(&mut self, upto: Stamp) {
        self.sent = self.sent.max(upto);
    }

    /// Nothing waits for a sync.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.unsynced.is_empty() && self.held_until_synced.is_empty()
    }

    /// Panics unless the journal goes up to the island's own clock and no further, and nothing was sent that waits for a
    /// sync; `synced`: whether a record is.
    pub(crate) fn check(&self, clock: Stamp, is_synced: impl Fn(u64) -> bool) {
        assert!(self.last <= clock, "the journal goes up to {:?}, and the clock to {clock:?}", self.last);
        assert!(
            self.durable_to <= clock,
            "{:?} is safe of a journal that goes up to {clock:?}",
            self.durable_to
        );
        let mut before = (0, self.sent);
        for (seq, stamp) in &self.held_until_synced {
            assert!(!is_synced(*seq) && *seq >= before.0, "an entry waits for {seq} behind {before:?}");
            assert!(*stamp > before.1, "{stamp:?} waits for a sync behind {before:?}");
            before = (*seq, *stamp);
        }
        assert!(self.first_of_pair.is_none(), "half of an exchange is left");
    }
}

impl Ctx {
    /// Puts an entry into the journal, as part of the decision that is decided next. `gated`: the entry
    /// leaves only when that record is synced.
    pub(crate) fn post(&mut self, decision: &mut Decision, stamp: Stamp, entry: &JournalEntry, gated: bool) {
        let after = std::mem::replace(&mut self.posts.last, stamp);
        let me = self.config.id;
        decision.push(RowChange::Clock { island: me, stamp });
        let need = self.state.seq() + 1;
        let has_others = self.config.islands.len() > 1;
        if has_others {
            decision.push(RowChange::Posted { stamp, entry: entry.clone() });
            self.posts.unsynced.push_back((need, stamp));
        }
        if gated && !planted(Bug::PlaceBeforeSync) && has_others {
            self.posts.held_until_synced.push_back((need, stamp));
        }
        if !self.posts.held_until_synced.is_empty() {
            // It goes with all that waits.
            self.posts.first_of_pair = None;
            return;
        }
        self.posts.sent = stamp;
        let (after, mut entries) = self.posts.first_of_pair.take().unwrap_or((after, Vec::new()));
        entries.push((stamp, entry.clone()));
        for island in self.config.others() {
            self.send(need, island, PeerOp::Journal { after, entries: entries.clone() });
        }
    }

    /// Puts an entry into the journal whose other half follows in the same decision: two directories change
    /// places. An island that applied only one half would have two directories of one name.
    pub(crate) fn post_first_of_pair(&mut self, decision: &mut Decision, stamp: Stamp, entry: &JournalEntry) {
        let after = std::mem::replace(&mut self.posts.last, stamp);
        let me = self.config.id;
        decision.push(RowChange::Clock { island: me, stamp });
        if self.config.islands.len() > 1 {
            decision.push(RowChange::Posted { stamp, entry: entry.clone() });
            let need = self.state.seq() + 1;
            self.posts.unsynced.push_back((need, stamp));
            self.posts.first_of_pair = Some((after, vec![(stamp, entry.clone())]));
        }
    }

    /// The entries of this island's journal behind `after` that an island may not have, and may know.
    pub(crate) fn posted(&self, to: IslandId, after: Stamp) -> Vec<(Stamp, JournalEntry)> {
        let held = self.posts.first_held_back();
        let may = |stamp: Stamp| held.is_none_or(|held| stamp < held);
        let entries = self.state.outbox_behind(to, after);
        entries.take_while(|(s, _)| may(*s)).map(|(s, e)| (s, e.clone())).collect()
    }
}
