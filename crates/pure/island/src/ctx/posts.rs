//! The sending end of this island's journal (`DESIGN` 5; Archipelago 8): entries that are posted with a
//! decision, for whom each is, entries that wait for a sync, and how far the journal is safe. Never knows which
//! islands have applied what is for all.
//!
//! Each island gets each entry, in order. One that has nothing of what an entry is about gets it with the next that is
//! for all, or within `Posts::batch_ms`.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, IslandId, Stamp, fitting};
use atoll_proto::{DirPlace, EntryRef, JournalEntry, PeerOp, RowChange};

use super::decision::Decision;
use super::{Config, Ctx};

/// Milliseconds after which an island is sent the entries that are of no use to it yet: so many for each island of the volume, but so many at
/// least and at most. So in a volume of up to 240 islands each sends four such messages a second at most.
const BATCH_MS_OF_EACH: u64 = 250;
const BATCH_MS_MIN: u64 = 1_000;
const BATCH_MS_MAX: u64 = 60_000;

/// Entries that are for one island and that this has not applied: 4 KiB. At the bound the next is for all.
const PRIVATE_MAX: usize = 256;

/// Entries in one message, and their encoded bytes; one entry, or two that go together, may have more: the bytes of a chain of
/// ancestors have a bound of their own.
const ENTRIES_PER_MESSAGE: usize = 64;
pub(crate) const ENTRY_BYTES_PER_MESSAGE: usize = 256 << 10;

/// Which islands must apply an entry before anybody is told that what it says is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All.
    All,
    /// This one: no other has anything of the directory. None if only this island has.
    Only(Option<IslandId>),
}

/// An entry for one other island only.
#[derive(Debug, Clone, Copy)]
struct Private {
    stamp: Stamp,
    island: IslandId,
}

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
    /// Islands that can be reached and were not sent the last entries: the last one that each was sent.
    batched: BTreeMap<IslandId, Stamp>,
    /// Since when the first of them was not.
    batched_ms: u64,
    /// Entries that were posted since then, and their bytes.
    batched_entries: (usize, usize),
    /// Some island was sent entries behind their sync, and was not told since that they are synced.
    untold: bool,
    /// Entries that the one island which they are for has not applied.
    private: Vec<Private>,
    /// The last entry that is for all.
    for_all: Stamp,
}

impl Posts {
    /// What is posted first in this life follows `last`, which the last one has posted: some may not have that yet.
    pub(crate) const fn resume(&mut self, last: Stamp) {
        self.last = last;
        self.sent = last;
        self.for_all = last;
    }

    /// The last entry that an island must apply before those are answered who wait for this journal.
    pub(crate) fn needed_by(&self, island: IslandId) -> Stamp {
        let last = self.private.iter().rev().find(|private| private.island == island);
        last.map_or(self.for_all, |private| private.stamp.max(self.for_all))
    }

    /// The last entry that the one island which it is for has not applied.
    pub(crate) fn last_unsettled(&self) -> Option<Stamp> {
        self.private.last().map(|private| private.stamp)
    }

    /// Whether an island was not sent the last entries.
    pub(crate) fn is_batched(&self, island: IslandId) -> bool {
        self.batched.contains_key(&island)
    }

    /// What an island was not sent is sent now, or when it can be reached again. The last entry that it was sent before.
    pub(crate) fn forget_batch(&mut self, island: IslandId) -> Option<Stamp> {
        self.batched.remove(&island)
    }

    /// For how long entries are batched in a volume with so many islands.
    fn batch_ms(islands: usize) -> u64 {
        (BATCH_MS_OF_EACH * islands as u64).clamp(BATCH_MS_MIN, BATCH_MS_MAX)
    }

    /// Islands whose batch is due: its time has come, or it is large, which is half of what an outbox keeps for an island that is away.
    pub(crate) fn batches_due(&self, now_ms: u64, config: &Config) -> Vec<IslandId> {
        let is_late = now_ms >= self.batched_ms + Self::batch_ms(config.islands.len());
        let (entries, bytes) = self.batched_entries;
        let is_due = is_late || entries >= config.outbox_max / 2 || bytes >= ENTRY_BYTES_PER_MESSAGE;
        if is_due { self.batched.keys().copied().collect() } else { Vec::new() }
    }

    /// Nothing that was posted can be lost in a power cut.
    pub(crate) fn is_all_durable(&self) -> bool {
        self.unsynced.is_empty()
    }

    /// An island was sent entries that may be synced already.
    pub(crate) const fn note_untold(&mut self) {
        self.untold = true;
    }

    /// Whether an entry, and all behind it, is for one other island at most.
    pub(crate) fn is_private(&self, stamp: Stamp) -> bool {
        stamp > self.for_all
    }

    /// Whether somebody was sent entries that may be synced already, and was not told since how far the journal is.
    pub(crate) const fn take_untold(&mut self) -> bool {
        std::mem::replace(&mut self.untold, false)
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

    /// The one island which some entries are for has applied them.
    pub(crate) fn settle(&mut self, has_applied: impl Fn(IslandId, Stamp) -> bool) {
        self.private.retain(|private| !has_applied(private.island, private.stamp));
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

    /// Nothing waits for a sync, for another island, or to be sent.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.unsynced.is_empty()
            && self.held_until_synced.is_empty()
            && self.batched.is_empty()
            && self.private.is_empty()
            && !self.untold
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
        for (island, sent) in &self.batched {
            assert!(*sent < self.sent, "{island:?} has all up to {sent:?}, and waits for more");
        }
        let mut last = Stamp::default();
        for private in &self.private {
            assert!(private.stamp > last && private.stamp <= self.sent, "{private:?} behind {last:?}");
            last = private.stamp;
        }
    }
}

impl Ctx {
    /// Puts an entry into the journal, as part of the decision that is decided next. `gated`: the entry
    /// leaves only when that record is synced.
    pub(crate) fn post(
        &mut self,
        decision: &mut Decision,
        stamp: Stamp,
        entry: &JournalEntry,
        audience: Audience,
        gated: bool,
    ) {
        let after = std::mem::replace(&mut self.posts.last, stamp);
        let me = self.config.id;
        let need = self.state.seq() + 1;
        let has_others = self.config.islands.len() > 1;
        if has_others {
            decision.push(RowChange::Posted { stamp, entry: entry.clone() });
            self.posts.unsynced.push_back((need, stamp));
        }
        if gated && !planted(Bug::PlaceBeforeSync) && has_others {
            self.posts.held_until_synced.push_back((need, stamp));
        }
        let is_held = self.posts.holds_back();
        let only = match audience {
            Audience::Only(island) => Some(island),
            Audience::All => None,
        };
        let has_room = self.posts.private.len() < PRIVATE_MAX;
        let only = only.filter(|_| has_others && has_room && !is_held && self.posts.first_of_pair.is_none());
        match only {
            None => {
                decision.push(RowChange::Clock { island: me, stamp });
                self.posts.for_all = stamp;
                self.posts.private.clear();
            }
            Some(island) => {
                decision.push(RowChange::PrivateClock { island: me, stamp });
                self.posts.private.extend(island.map(|island| Private { stamp, island }));
            }
        }
        if is_held {
            // It goes with all that waits.
            self.posts.first_of_pair = None;
            return;
        }
        self.posts.sent = stamp;
        let (after, mut entries) = self.posts.first_of_pair.take().unwrap_or((after, Vec::new()));
        entries.push((stamp, entry.clone()));
        for island in self.config.others() {
            if only.is_some_and(|only| only != Some(island)) {
                self.batch(island, after);
                continue;
            }
            self.send_batched(island);
            let private = only.is_some();
            self.send(need, island, PeerOp::Journal { after, entries: entries.clone(), private });
        }
        if only.is_some() {
            let (entries, bytes) = &mut self.posts.batched_entries;
            (*entries, *bytes) = (*entries + 1, *bytes + entry.encoded_len());
        }
    }

    /// An island is sent what is behind `after` in a batch, or what was to be in its batch already.
    pub(crate) fn batch(&mut self, island: IslandId, after: Stamp) {
        if !self.peers.is_reachable(island) {
            // It gets everything when it can be.
            return;
        }
        if self.posts.batched.is_empty() {
            (self.posts.batched_ms, self.posts.batched_entries) = (self.now.ms, (0, 0));
        }
        self.posts.batched.entry(island).or_insert(after);
    }

    /// All that was sent is for all. So are its stamps: they count in what islands have seen.
    pub(crate) fn post_to_all(&mut self) {
        let upto = self.posts.sent;
        if upto <= self.posts.for_all {
            return;
        }
        self.posts.private.clear();
        self.posts.for_all = upto;
        let mut decision = Decision::new();
        decision.push(RowChange::Clock { island: self.config.id, stamp: upto });
        self.decide(decision);
        for island in self.config.others() {
            if self.posts.is_batched(island) {
                self.send_batched(island);
            } else {
                self.tell_public(island);
            }
        }
    }

    /// Tells an island up to where this journal is for all. It may have taken some of that for its own and this island's.
    pub(crate) fn tell_public(&mut self, to: IslandId) {
        let after = self.posts.for_all.min(self.posts.sent);
        self.send(self.state.seq(), to, PeerOp::Journal { after, entries: Vec::new(), private: false });
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

    /// Sends an island its batch, if it has one.
    pub(crate) fn send_batched(&mut self, to: IslandId) {
        if self.send_safe_batch(to) {
            self.posts.note_untold();
        }
    }

    /// The same, when it has been told that the journal is safe up to its end. Whether it had one.
    pub(crate) fn send_safe_batch(&mut self, to: IslandId) -> bool {
        let Some(after) = self.posts.forget_batch(to) else { return false };
        let entries = self.posted(to, after);
        self.send_entries(to, after, &entries);
        true
    }

    /// Sends entries that follow `after`, as many messages as it takes.
    pub(crate) fn send_entries(&mut self, to: IslandId, mut after: Stamp, entries: &[(Stamp, JournalEntry)]) {
        let private = entries.first().is_some_and(|(first, _)| self.posts.is_private(*first));
        let mut rest = entries;
        while let Some((part, more)) = rest.split_at_checked(whole_part(rest)).filter(|(p, _)| !p.is_empty())
        {
            self.send(self.state.seq(), to, PeerOp::Journal { after, entries: part.to_vec(), private });
            after = part.last().map_or(after, |(stamp, _)| *stamp);
            rest = more;
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

/// Whether two directories change places by these: at one moment, since names may also come to be free one by one.
pub(crate) fn is_pair(one: &JournalEntry, other: &JournalEntry) -> bool {
    let goes_to = |place: &DirPlace, from: &EntryRef| {
        place.parent == from.dir && place.name.as_ref() == Some(&from.name)
    };
    match (one, other) {
        (
            JournalEntry::Place { place, from, time, .. },
            JournalEntry::Place { place: other_place, from: other_from, time: other_time, .. },
        ) => time == other_time && goes_to(place, other_from) && goes_to(other_place, from),
        _ => false,
    }
}

/// How many of these go in one message, or one record: two directories that change places go together.
pub(crate) fn whole_part<E: Borrow<(Stamp, JournalEntry)> + Encode>(entries: &[E]) -> usize {
    let mut end = fitting(entries, ENTRY_BYTES_PER_MESSAGE).min(ENTRIES_PER_MESSAGE);
    if end > 0 && end < entries.len() && is_pair(&entries[end - 1].borrow().1, &entries[end].borrow().1) {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_island_sends_four_batches_a_second_and_none_is_kept_for_more_than_a_minute() {
        assert_eq!([1, 4, 16, 64, 10_000].map(Posts::batch_ms), [1_000, 1_000, 4_000, 16_000, 60_000]);
    }
}
