//! What a copy has promised to a primary, and the times by which primaries and members judge each other. All times are
//! milliseconds of the machine's own boot clock. Never decides to lead.
//!
//! A beacon's thread and the machine share a [`Promise`] under one lock: so no promise is given beside a claim.
//!
//! The lease of a primary is 0.75 of what a member promises, counted from when the beacon left. So it ends first, as long
//! as no clock runs faster than another one by more than a third.

use atoll_core::planted::{Bug, planted};
use atoll_proto::NodeLife;

/// For so long after a beacon a member does not claim by silence.
pub const PROMISE_MS: u64 = 1_200;
/// For so long after a beacon left, its answer is a lease.
pub const LEASE_MS: u64 = PROMISE_MS * 3 / 4;
/// A member that has promised nothing for so long is dropped.
pub const SILENT_MS: u64 = 900;
/// So is one that owes an acknowledgement for so long,
pub const OWES_MS: u64 = 900;
/// or a sync.
pub const SYNC_OWES_MS: u64 = 10_000;
/// From one beacon to the next.
pub const BEAT_MS: u64 = 150;
/// How much later than the one before it in the ring a member claims.
pub const PLACE_MS: u64 = 100;
/// How long a claimant waits for one that has more.
pub const YIELD_MS: u64 = 100;
/// A machine to which no time has passed for so long is not named in beacons, and blames nobody for a while when it goes on.
pub const LATE_MS: u64 = 300;
/// A promotion so soon after the last beacon of the old primary may be short of patience with other islands.
pub(crate) const SOON_MS: u64 = 1_875;

/// A message's epoch is believed if it is no further ahead of the record.
const EPOCHS_AHEAD: u32 = 1 << 16;

/// The answer to a beacon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// This copy does not claim by silence for [`PROMISE_MS`].
    Promise,
    /// It has promised nothing. It has seen this epoch.
    Refused(u32),
}

/// The last beacon that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Beat {
    pub(crate) epoch: u32,
    pub(crate) who: NodeLife,
    pub(crate) at_ms: u64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Promise {
    /// The highest epoch of which this copy has a record, or has taken a frame or a beacon.
    pub(crate) seen: u32,
    /// The highest epoch of which it has a record, or a record of the log when it was opened.
    pub(crate) recorded: u32,
    /// When the last promise was given.
    pub(crate) given_ms: Option<u64>,
    /// None is given: the copy is about to lead, leads, or has stopped.
    pub(crate) refusing: bool,
    /// None is given: the copy knows no record, so a primary whose epoch is over is as good to it as any.
    pub(crate) is_blind: bool,
    /// The epoch that it leads.
    pub(crate) leads: Option<u32>,
    /// When time last passed for the machine.
    pub(crate) ticked_ms: u64,
    pub(crate) beat: Option<Beat>,
}

impl Promise {
    /// A beacon has come by which `from` leads this epoch. What is promised holds from now on: so the answer may leave.
    pub fn beacon(&mut self, now_ms: u64, from: NodeLife, epoch: u32) -> Given {
        let is_old =
            epoch < self.seen || !self.is_likely(epoch) || self.leads.is_some_and(|own| own >= epoch);
        if is_old || self.is_blind {
            return Given::Refused(self.seen);
        }
        self.beat = Some(Beat { epoch, who: from, at_ms: now_ms });
        if self.refusing && !planted(Bug::PromiseBesideClaim) {
            return Given::Refused(self.seen);
        }
        self.seen = epoch;
        self.given_ms = Some(now_ms);
        Given::Promise
    }

    /// Whether an epoch of which only a message speaks may be. One that is far ahead of the record would hinder all others.
    pub(crate) const fn is_likely(&self, epoch: u32) -> bool {
        epoch <= self.recorded.saturating_add(EPOCHS_AHEAD)
    }

    /// The epoch that a beacon names now: none if the copy does not lead, or its machine stands still.
    pub fn named(&self, now_ms: u64) -> Option<u32> {
        self.leads.filter(|_| now_ms < self.ticked_ms + LATE_MS)
    }

    /// The highest epoch that was seen.
    pub const fn seen(&self) -> u32 {
        self.seen
    }

    /// No promise is given from here on.
    pub(crate) fn refuse(&mut self) {
        self.refusing = true;
    }

    /// Promises are given again.
    pub(crate) fn allow(&mut self) {
        self.refusing = false;
        self.leads = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::NodeId;
    use atoll_proto::Host;

    const P: NodeLife = NodeLife { node: NodeId(1), life: 1, host: Host { boot: 1, inode: 1 } };

    #[test]
    fn a_lower_epoch_gets_no_promise() {
        let mut promise = Promise::default();
        assert_eq!(promise.beacon(10, P, 4), Given::Promise);
        assert_eq!(promise.beacon(20, P, 3), Given::Refused(4));
        assert_eq!(promise.given_ms, Some(10));
    }

    #[test]
    fn nothing_is_promised_while_the_copy_refuses() {
        let mut promise = Promise::default();
        promise.refuse();
        assert_eq!(promise.beacon(10, P, 4), Given::Refused(0));
        assert_eq!((promise.given_ms, promise.seen), (None, 0), "only heard");
        promise.allow();
        assert_eq!(promise.beacon(20, P, 4), Given::Promise);
    }

    #[test]
    fn an_island_whose_machine_stands_still_is_not_named() {
        let mut promise = Promise { leads: Some(4), ticked_ms: 1_000, ..Promise::default() };
        assert_eq!((promise.named(1_299), promise.named(1_300)), (Some(4), None));
        promise.allow();
        assert_eq!(promise.named(1_000), None);
    }
}
