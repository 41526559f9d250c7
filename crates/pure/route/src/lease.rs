//! The lease of a mount that is alone, as the mount knows it: until when it may keep what it is answered, and
//! what happens when that time has passed unseen.
//!
//! Invariant: what is kept is void before the lease ends that an island has given. The island counts from when
//! it got the last sign of life, the mount from when it gave it, which is earlier. The mount's clock must count the
//! time for which its machine is suspended.

use atoll_core::planted::{Bug, planted};

use crate::out::RouteOut;
use crate::route::Route;

/// Milliseconds since the last answered sign of life for which answers may be kept. Together with
/// [`KEEP_MS`] and [`LAPSE_MS`] it stays below the islands' lease of 15 s.
const FRESH_MS: u64 = 5_000;
/// Milliseconds for which a frontend may keep an answer at most.
pub const KEEP_MS: u64 = 6_000;
/// Milliseconds after that time after which everything goes that was kept. The frontend's own time, by which
/// it drops an answer, may stand still while the machine is suspended: by so much, unnoticed.
const LAPSE_MS: u64 = 2_000;

/// What a mount knows of its lease.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// The frontend may have kept something since it was last told to drop everything.
    kept: bool,
    /// Until then it could.
    until_ms: u64,
}

impl Lease {
    /// What is answered may be kept until then.
    fn goes_on(&mut self, now_ms: u64, until_ms: u64) {
        if until_ms > now_ms {
            self.kept = true;
            self.until_ms = until_ms;
        }
    }

    /// Everything that was kept is to go. Whether that may be anything.
    pub(crate) fn take(&mut self) -> bool {
        std::mem::take(&mut self.kept)
    }

    const fn has_lapsed(&self, now_ms: u64) -> bool {
        self.kept && now_ms >= self.until_ms + LAPSE_MS
    }
}

impl<T> Route<T> {
    /// Until when, in milliseconds, what is answered now may be kept for up to [`KEEP_MS`]; 0: not at all.
    pub fn keep_until_ms(&self) -> u64 {
        let until = |p: &crate::route::Peer| if p.attached && p.sole { p.renewed_ms + FRESH_MS } else { 0 };
        self.peers.values().map(until).min().unwrap_or(0)
    }

    /// Whether what is answered now may be kept for up to [`KEEP_MS`].
    pub fn may_keep(&self, now_ms: u64) -> bool {
        self.keep_until_ms() > now_ms
    }

    /// An island has answered a sign of life.
    pub(crate) fn lease_goes_on(&mut self, now_ms: u64) {
        let until_ms = self.keep_until_ms();
        self.lease.goes_on(now_ms, until_ms);
    }

    /// Before anything is answered: if no sign of life has been answered for too long, or the machine was
    /// suspended, the islands may have let others in. So what was kept goes, and no earlier promise counts.
    pub(crate) fn look_at_lease(&mut self, now_ms: u64, out: &mut RouteOut<T>) {
        if !self.lease.has_lapsed(now_ms) || planted(Bug::LapseUnseen) {
            return;
        }
        for peer in self.peers.values_mut() {
            peer.sole = false;
            peer.sole_from = self.next_id;
        }
        self.recall(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lapses_once_and_only_if_something_was_kept() {
        let mut lease = Lease::default();
        assert!(!lease.has_lapsed(u64::MAX / 2));
        lease.goes_on(100, 100);
        assert!(!lease.take(), "it was over when it was heard of");
        lease.goes_on(100, 5_000);
        assert!(!lease.has_lapsed(5_000 + LAPSE_MS - 1) && lease.has_lapsed(5_000 + LAPSE_MS));
        lease.goes_on(200, 8_000);
        assert!(!lease.has_lapsed(5_000 + LAPSE_MS));
        assert!(lease.take() && !lease.has_lapsed(u64::MAX / 2));
    }
}
