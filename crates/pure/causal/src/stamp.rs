//! Hybrid logical time: the order in which the last writer wins, and in which directories are moved.

use atoll_core::{Decode, Encode, Malformed, Reader};

use crate::id::Writer;

/// When a change was made. A change that knew of another one has a later stamp, whatever the clocks of their sites say;
/// between changes that did not know of each other the clocks decide, and then the writers' numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HybridStamp {
    /// Microseconds since 1970 by the clock of the site, or more where a cause has more.
    pub time_us: u64,
    /// Who made the change.
    pub writer: Writer,
}

impl HybridStamp {
    /// Before every stamp that is given.
    pub const ZERO: Self = Self { time_us: 0, writer: Writer(0) };
    /// After every stamp that is given.
    pub const MAX: Self = Self { time_us: u64::MAX, writer: Writer(u64::MAX) };
}

/// A site's hybrid clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HybridClock {
    /// The latest time that it gave or heard of, in microseconds.
    latest_us: u64,
}

impl HybridClock {
    /// A stamp of another site that is further ahead than this is not taken into the clock, in microseconds. So a site
    /// whose clock is off decides only between changes that did not know of each other.
    pub const AHEAD_US_MAX: u64 = 10 * 60 * 1_000_000;

    /// A clock that gave or heard of nothing later than `latest_us`.
    pub const fn new(latest_us: u64) -> Self {
        Self { latest_us }
    }

    /// The latest time that it gave or heard of, in microseconds.
    pub const fn latest_us(self) -> u64 {
        self.latest_us
    }

    /// Takes in a stamp of another site; false if it is too far ahead of the clock `now_us` of this one to be believed.
    pub fn hear(&mut self, now_us: u64, stamp: HybridStamp) -> bool {
        let believed = stamp.time_us <= now_us.max(self.latest_us).saturating_add(Self::AHEAD_US_MAX);
        if believed {
            self.latest_us = self.latest_us.max(stamp.time_us);
        }
        believed
    }

    /// The stamp of a change that is made now. `above` is the latest stamp among its causes, which counts even if the clock
    /// did not believe it; the clock itself does not go there then.
    pub fn give(&mut self, now_us: u64, writer: Writer, above: HybridStamp) -> HybridStamp {
        let own_us = now_us.max(self.latest_us.saturating_add(1));
        self.latest_us = own_us;
        HybridStamp { time_us: own_us.max(above.time_us.saturating_add(1)), writer }
    }
}

impl Encode for HybridStamp {
    fn encode(&self, out: &mut Vec<u8>) {
        self.time_us.encode(out);
        self.writer.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.time_us.encoded_len() + self.writer.encoded_len()
    }
}

impl Decode for HybridStamp {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { time_us: u64::decode(r)?, writer: Writer::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Writer = Writer(1);
    const OTHER: Writer = Writer(2);

    #[test]
    fn a_change_is_later_than_its_causes_whatever_the_clock_says() {
        let mut clock = HybridClock::default();
        let far = HybridStamp { time_us: 500 + HybridClock::AHEAD_US_MAX + 1, writer: OTHER };
        assert!(!clock.hear(500, far));
        assert!(clock.give(500, MINE, far) > far);
        // What has nothing to do with it goes by this site's own clock.
        assert_eq!(clock.give(700, MINE, HybridStamp::ZERO).time_us, 700);
    }

    #[test]
    fn a_clock_that_is_behind_follows_what_it_hears() {
        let mut clock = HybridClock::default();
        let heard = HybridStamp { time_us: 1_000, writer: OTHER };
        assert!(clock.hear(10, heard));
        assert_eq!(clock.give(11, MINE, HybridStamp::ZERO).time_us, 1_001);
        assert_eq!(clock.give(12, MINE, HybridStamp::ZERO).time_us, 1_002);
    }
}
