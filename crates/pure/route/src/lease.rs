//! The lease of a mount, as the mount knows it: until when it may keep answers, and what it does if that time passes unseen. It keeps
//! answers only if all islands allow it.
//!
//! Invariant: the mount drops what it keeps before the lease ends at any island. An island counts from the
//! arrival of the last sign of life. The mount counts from its sending, which is earlier. The mount's clock
//! must also count the time for which its machine is suspended.

use atoll_core::planted::{Bug, planted};

use atoll_proto::{ClientOp, Lease, MayKeep};

use crate::call::CallKind;
use crate::out::RouteOut;
use crate::peer::Peer;
use crate::route::Route;

/// Milliseconds between two signs of life.
const RENEW_MS: u64 = 3_000;
/// The same while an island does not let the mount keep what it says: soon it may.
const RENEW_SOON_MS: u64 = 1_000;
/// Milliseconds after a recall of everything until the mount asks for the first time: an island that was answered quickly may let it keep
/// something by then.
const RENEW_AGAIN_MS: u64 = 100;
/// Milliseconds since the last answered sign of life for which answers may be kept. Together with
/// [`KEEP_MS`] and [`LAPSE_MS`] it stays below the islands' lease of 15 s.
const FRESH_MS: u64 = 5_000;
/// Milliseconds for which a frontend may keep an answer at most.
pub const KEEP_MS: u64 = 6_000;
/// Milliseconds after that time until the mount drops everything. The frontend's own clock, by which it drops
/// an answer, may stand still while the machine is suspended: at most so long without being noticed.
const LAPSE_MS: u64 = 2_000;

/// The lease, as the mount knows it.
#[derive(Debug, Default)]
pub(crate) struct LeaseClock {
    /// The frontend may have kept something since it was last told to drop everything.
    kept: bool,
    /// Until when it could keep answers, in milliseconds.
    until_ms: u64,
}

impl LeaseClock {
    /// Answers may be kept until `until_ms`.
    fn goes_on(&mut self, now_ms: u64, until_ms: u64) {
        if until_ms > now_ms {
            self.kept = true;
            self.until_ms = until_ms;
        }
    }

    /// Everything that was kept must go. True if that may be anything.
    pub(crate) fn take(&mut self) -> bool {
        std::mem::take(&mut self.kept)
    }

    const fn has_lapsed(&self, now_ms: u64) -> bool {
        self.kept && now_ms >= self.until_ms + LAPSE_MS
    }
}

/// Whether a call gives a sign of life, and nothing else.
pub(crate) const fn is_sign_of_life(what: &CallKind) -> bool {
    matches!(what, CallKind::Own(ClientOp::Renew | ClientOp::Lease))
}

/// When the last sign of life would have been given of a mount that gives the next one [`RENEW_AGAIN_MS`] from now.
pub(crate) const fn renewed_before(now_ms: u64) -> u64 {
    (now_ms + RENEW_AGAIN_MS).saturating_sub(RENEW_SOON_MS)
}

impl<T> Route<T> {
    /// The next sign of life.
    pub(crate) const fn sign_of_life(&self) -> ClientOp {
        if self.config.keeps { ClientOp::Lease } else { ClientOp::Renew }
    }

    /// Milliseconds between two signs of life now.
    pub(crate) fn pause_ms(&self) -> u64 {
        let waits_to_keep =
            self.config.keeps && self.peers.values().any(|p| p.attached && p.lease == Lease::No);
        if waits_to_keep { RENEW_SOON_MS } else { RENEW_MS }
    }

    /// Until when an answer of now may be kept, in milliseconds, for at most [`KEEP_MS`]. 0: not at all.
    pub fn keep_until_ms(&self) -> u64 {
        if self.recalls > 0 || self.peers.values().any(|p| !p.recalls_of.is_empty()) {
            // The frontend would drop it, or just has not.
            return 0;
        }
        let until = |p: &Peer| if p.attached && p.lease != Lease::No { p.renewed_ms + FRESH_MS } else { 0 };
        self.peers.values().map(until).min().unwrap_or(0)
    }

    /// Whether an answer of now may be kept, for at most [`KEEP_MS`].
    pub fn may_keep(&self, now_ms: u64) -> bool {
        self.keep_until_ms() > now_ms
    }

    /// Whether an answer that says this may be kept, as far as the leases go.
    pub(crate) fn allows(&self, may_keep: MayKeep) -> bool {
        match may_keep {
            MayKeep::No => false,
            MayKeep::Yes => true,
            MayKeep::IfWhole => self.peers.values().all(|p| p.lease == Lease::Whole),
        }
    }

    /// An island has answered a sign of life.
    pub(crate) fn lease_goes_on(&mut self, now_ms: u64) {
        let until_ms = self.keep_until_ms();
        self.lease.goes_on(now_ms, until_ms);
    }

    /// To be called before any answer. If no sign of life has been answered for too long, or the machine was
    /// suspended, the islands may have let other mounts in. Then everything that was kept goes, and no
    /// earlier promise counts.
    pub(crate) fn look_at_lease(&mut self, now_ms: u64, out: &mut RouteOut<T>) {
        if !self.lease.has_lapsed(now_ms) || planted(Bug::LapseUnseen) {
            return;
        }
        for peer in self.peers.values_mut() {
            peer.lease = Lease::No;
            peer.told_from = self.next_id;
        }
        self.recall(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lapses_once_and_only_if_something_was_kept() {
        let mut lease = LeaseClock::default();
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
