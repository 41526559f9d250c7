//! When a member that was dropped may come back. Never judges what it has.
//!
//! Each further drop makes it wait twice as long, so a link that flaps costs a bounded part of the time.

use std::collections::BTreeMap;

use atoll_core::NodeId;

/// A member waits so long after its first drop,
const PAUSE_MS_MIN: u64 = 1_000;
/// and at most so long.
const PAUSE_MS_MAX: u64 = 60_000;
/// Who was in for so long is as if it had never been dropped.
const STEADY_MS: u64 = 60_000;
/// A copy that is behind by so many records is counted: the rest comes while commits wait for it.
pub(crate) const NEAR: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Dropped {
    pause_ms: u64,
    /// Not before this time.
    until_ms: u64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Readmission(BTreeMap<NodeId, Dropped>);

impl Readmission {
    /// A member is dropped.
    pub(crate) fn dropped(&mut self, now_ms: u64, node: NodeId) {
        let again = self.0.get(&node).filter(|dropped| now_ms < dropped.until_ms + STEADY_MS);
        let pause_ms = again.map_or(PAUSE_MS_MIN, |dropped| (dropped.pause_ms * 2).min(PAUSE_MS_MAX));
        self.0.insert(node, Dropped { pause_ms, until_ms: now_ms + pause_ms });
    }

    /// Whether it may come back.
    pub(crate) fn may(&self, now_ms: u64, node: NodeId) -> bool {
        self.0.get(&node).is_none_or(|dropped| now_ms >= dropped.until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_dropped_again_and_again_waits_longer_up_to_a_minute() {
        let mut readmission = Readmission::default();
        let node = NodeId(1);
        assert!(readmission.may(0, node));
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            readmission.dropped(now, node);
            let pause = (0..).step_by(1_000).find(|pause| readmission.may(now + pause, node)).unwrap();
            pauses.push(pause / 1_000);
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += STEADY_MS;
        readmission.dropped(now, node);
        assert!(readmission.may(now + PAUSE_MS_MIN, node), "it was steady");
    }
}
