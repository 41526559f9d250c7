//! Which records are committed and which survive a power cut, and the effects that wait for either. Never
//! knows what an effect is about.
//!
//! Every effect of an island leaves through here, so that none shows an uncommitted change.

use std::collections::VecDeque;

use crate::event::Effect;

/// Milliseconds after which a record is synced although nobody asks for it.
pub(crate) const SYNC_MS: u64 = 1_000;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Durability {
    /// Position of the last committed record.
    committed: u64,
    /// Position of the last synced record.
    synced: u64,
    /// A sync was asked for up to here.
    sync_wanted: u64,
    /// When the first record was decided that is not synced.
    unsynced_since_ms: Option<u64>,
    /// Effects that wait until a record is committed, in the order of the records.
    awaiting_commit: VecDeque<(u64, Effect)>,
    /// Effects that wait until a record is synced, in the order of the records.
    awaiting_sync: VecDeque<(u64, Effect)>,
    /// Effects that leave when the event is handled.
    out: Vec<Effect>,
    /// The effects before this one were looked at by [`Durability::observe`].
    observed: usize,
}

impl Durability {
    /// Of an island whose log goes up to `seq`, and is synced up to `synced`. Nothing leaves the island before its first record
    /// is committed, and with that all before it is.
    pub(crate) fn new(seq: u64, synced: u64, now_ms: u64) -> Self {
        Self {
            committed: seq,
            synced,
            sync_wanted: 0,
            unsynced_since_ms: (synced < seq).then_some(now_ms),
            awaiting_commit: VecDeque::new(),
            awaiting_sync: VecDeque::new(),
            out: Vec::new(),
            observed: 0,
        }
    }

    /// An effect that shows nothing of this island's rows.
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    /// An effect that happens when the record at `need` is committed.
    pub(crate) fn after_commit(&mut self, need: u64, effect: Effect) {
        if need <= self.committed {
            self.out.push(effect);
            return;
        }
        let at = self.awaiting_commit.partition_point(|(n, _)| *n <= need);
        self.awaiting_commit.insert(at, (need, effect));
    }

    /// An effect that happens when the record at `seq`, which is the last one, is synced; see [`Durability::leave_synced`].
    pub(crate) fn after_sync(&mut self, seq: u64, effect: Effect) {
        self.awaiting_sync.push_back((seq, effect));
    }

    /// Releases all effects that waited for records that are synced now.
    pub(crate) fn leave_synced(&mut self) {
        while self.awaiting_sync.front().is_some_and(|(seq, _)| *seq <= self.synced) {
            let (_, effect) = self.awaiting_sync.pop_front().expect("looked at");
            self.out.push(effect);
        }
    }

    /// A record was decided at `seq`, and goes to the log.
    pub(crate) fn decided(&mut self, now_ms: u64, append: Effect) {
        self.unsynced_since_ms.get_or_insert(now_ms);
        self.out.push(append);
    }

    /// Every member of the island's group has written everything up to `upto`.
    pub(crate) fn commit(&mut self, upto: u64) {
        self.committed = self.committed.max(upto);
        while self.awaiting_commit.front().is_some_and(|(need, _)| *need <= self.committed) {
            let (_, effect) = self.awaiting_commit.pop_front().expect("looked at");
            self.out.push(effect);
        }
    }

    /// Everything up to `upto` survives a power cut; the log goes up to `seq`.
    pub(crate) fn log_synced(&mut self, upto: u64, seq: u64) {
        self.synced = self.synced.max(upto);
        if self.synced >= seq {
            self.unsynced_since_ms = None;
        }
        if self.sync_wanted > self.synced {
            // Asked for while the last sync was under way.
            self.after_commit(self.sync_wanted, Effect::Sync);
        }
    }

    /// Asks for a sync of everything up to `seq`.
    pub(crate) fn want_sync(&mut self, seq: u64) {
        if self.sync_wanted < seq {
            self.sync_wanted = seq;
            self.after_commit(seq, Effect::Sync);
        }
    }

    /// The next tick syncs.
    pub(crate) const fn want_sync_soon(&mut self, now_ms: u64) {
        self.unsynced_since_ms = Some(now_ms.saturating_sub(SYNC_MS));
    }

    /// Whether something has waited for a sync for so long that one is due.
    pub(crate) fn is_sync_due(&self, now_ms: u64) -> bool {
        self.unsynced_since_ms.is_some_and(|since| now_ms >= since + SYNC_MS)
    }

    /// Records up to this survive a power cut.
    pub(crate) const fn synced(&self) -> u64 {
        self.synced
    }

    /// Whether the record at `seq` survives a power cut.
    pub(crate) const fn is_synced(&self, seq: u64) -> bool {
        seq <= self.synced
    }

    /// Whether the record at `seq` is committed.
    pub(crate) const fn is_committed(&self, seq: u64) -> bool {
        seq <= self.committed
    }

    /// Whether an effect waits for a record to be committed.
    pub(crate) fn awaits_commit(&self) -> bool {
        !self.awaiting_commit.is_empty()
    }

    /// Whether an effect waits for a record to be synced.
    pub(crate) fn awaits_sync(&self) -> bool {
        self.awaiting_sync.back().is_some_and(|(seq, _)| *seq > self.synced)
    }

    /// Nothing waits for a record to be synced.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.awaiting_sync.is_empty()
    }

    /// The effects that wait for a record to be synced.
    pub(crate) fn awaiting_sync(&self) -> impl Iterator<Item = &Effect> {
        self.awaiting_sync.iter().map(|(_, effect)| effect)
    }

    /// The effects since the last call.
    pub(crate) fn observe(&mut self) -> &[Effect] {
        let from = std::mem::replace(&mut self.observed, self.out.len());
        &self.out[from..]
    }

    /// Moves the effects to `out`, in order.
    pub(crate) fn take(&mut self, out: &mut Vec<Effect>) {
        self.observed = 0;
        out.append(&mut self.out);
    }

    /// Panics unless effects wait for what was decided, in order; `seq`: of the last record.
    pub(crate) fn check(&self, seq: u64) {
        assert!(self.committed <= seq && self.synced <= seq, "something is safe that is not decided");
        assert!(self.sync_wanted <= seq, "a sync is wanted of what is not decided");
        let mut last = self.committed;
        for (need, effect) in &self.awaiting_commit {
            assert!(*need > self.committed, "{effect:?} waits for {need}, which is committed");
            assert!(*need >= last && *need <= seq, "{effect:?} waits for {need} behind {last}, of {seq}");
            last = *need;
        }
        assert!(self.out.is_empty(), "effects stay behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(seq: u64) -> Effect {
        Effect::Append(seq, atoll_proto::Record::default(), bytes::Bytes::new())
    }

    #[test]
    fn what_waits_for_a_record_leaves_when_that_is_committed_in_the_order_of_the_records() {
        let mut durability = Durability::new(4, 4, 0);
        durability.decided(0, appended(5));
        durability.decided(0, appended(6));
        durability.after_commit(6, Effect::Sync);
        durability.after_commit(4, Effect::Sync);
        let mut out = Vec::new();
        durability.take(&mut out);
        assert_eq!(out.len(), 3, "{out:?}");
        durability.check(6);
        durability.commit(5);
        assert!(durability.awaits_commit() && !durability.is_committed(6));
        durability.commit(6);
        durability.take(&mut out);
        assert!(matches!(out.last(), Some(Effect::Sync)) && !durability.awaits_commit());
        durability.check(6);
    }

    #[test]
    fn a_sync_that_was_asked_for_during_another_one_is_made_after_it() {
        let mut durability = Durability::new(0, 0, 0);
        durability.commit(2);
        durability.want_sync(1);
        durability.want_sync(2);
        durability.log_synced(1, 2);
        let mut out = Vec::new();
        durability.take(&mut out);
        assert_eq!(out.iter().filter(|effect| matches!(effect, Effect::Sync)).count(), 3);
        assert!(!durability.is_synced(2));
        durability.log_synced(2, 2);
        assert!(durability.is_synced(2));
    }
}
