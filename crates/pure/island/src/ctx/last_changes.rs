//! Which clients have changed something here last, and when. Never knows what has changed, or who may keep what.

use atoll_core::{SessionId, Stamp};

/// Milliseconds behind a change for which the others are allowed to keep nothing, if it is not known what it changes. Who changes one thing often changes the next one
/// soon, and should not have to wait for them.
pub(super) const CHANGES_MS: u64 = 2_000;
/// Milliseconds without a change by others after which a mount counts as keeping everything, and nothing is noted.
pub(super) const WHOLE_MS: u64 = 10_000;

/// The last change by a client.
#[derive(Debug, Clone, Copy)]
struct Change {
    by: SessionId,
    /// Then it is long ago.
    over_ms: u64,
    /// It may be in the journal up to here.
    stamp: Stamp,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct LastChanges {
    last: Change,
    /// The last one by another client than that.
    by_other: Change,
    /// Milliseconds behind a change after which it is long ago.
    long_ms: u64,
}

impl LastChanges {
    /// A life begins. Clients have changed things in earlier ones, which are in the journal up to `stamp`.
    pub(crate) const fn new(stamp: Stamp, long_ms: u64) -> Self {
        // It is no client's.
        let unknown = Change { by: super::RECOVERY_SESSION, over_ms: 0, stamp };
        Self { last: unknown, by_other: unknown, long_ms }
    }

    /// A client changes something, or has.
    pub(crate) fn note(&mut self, by: SessionId, now_ms: u64, stamp: Stamp) {
        if self.last.by != by {
            self.by_other = self.last;
        }
        self.last = Change { by, over_ms: now_ms + self.long_ms, stamp };
    }

    /// Up to where the journal may have changes by other clients than this one. None if the last of them is not long ago.
    pub(crate) fn by_others(&self, client: SessionId, now_ms: u64) -> Option<Stamp> {
        let change = if self.last.by == client { self.by_other } else { self.last };
        (change.over_ms <= now_ms).then_some(change.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_own_changes_do_not_count_and_those_of_all_others_do() {
        let [a, b, c] = [1, 2, 3].map(SessionId);
        let [start, first, second] = [1, 2, 3].map(|n| Stamp::new(1, n));
        let mut changes = LastChanges::new(start, CHANGES_MS);
        assert_eq!(changes.by_others(a, 0), Some(start));
        changes.note(a, 100, first);
        changes.note(a, 5_000, first);
        assert_eq!((changes.by_others(a, 5_000), changes.by_others(b, 5_000)), (Some(start), None));
        changes.note(b, 6_000, second);
        assert_eq!(changes.by_others(a, 7_999), None, "of b");
        assert_eq!(changes.by_others(b, 7_000), Some(first), "of a, which is long ago");
        assert_eq!(changes.by_others(c, 8_000), Some(second));
        changes.note(a, 8_000, second);
        changes.note(a, 8_000, second);
        assert_eq!((changes.by_others(a, 8_000), changes.by_others(b, 8_000)), (Some(second), None));
    }
}
