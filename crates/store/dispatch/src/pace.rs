//! Leaves processors and disk of a node to clients while its copies are filled, or fill others. Decides nothing else.
//!
//! While clients use the node, a thread that fills works for a few milliseconds and rests for twice as long. So a request waits for
//! one such slice at most, and a filling has a third of the time of a thread, however busy clients are: that is its floor. What an
//! answer has brought is synced before the next question, so that its bytes are a part of the work that rests are measured by, and a
//! client's sync finds no more than one answer in its way.

use std::time::Duration;

use crate::engine::Clock;
use crate::fills::Fills;

/// Work without a rest.
const SLICE_MS: u64 = 2;
/// A rest is so many times as long as the work before,
const REST_TIMES: u64 = 2;
/// and at most so long: a sync may take seconds.
const REST_MS_MAX: u64 = 300;

/// See the module.
pub(crate) struct Pace<'a> {
    fills: &'a Fills,
    clock: &'a dyn Clock,
    since_ms: u64,
}

impl<'a> Pace<'a> {
    pub(crate) fn begin(fills: &'a Fills, clock: &'a dyn Clock) -> Self {
        Self { fills, clock, since_ms: clock.boot_ms() }
    }

    /// Called between pieces, without a lock.
    pub(crate) fn rest(&mut self) {
        let now = self.clock.boot_ms();
        let worked = now - self.since_ms;
        if worked < SLICE_MS {
            return;
        }
        if self.fills.is_used(now) {
            self.clock.pass(Duration::from_millis((worked * REST_TIMES).min(REST_MS_MAX)));
        }
        self.since_ms = self.clock.boot_ms();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use atoll_island::Now;

    use super::*;

    /// A clock that goes on when it is told to, and how long was rested.
    #[derive(Default)]
    struct Told(AtomicU64, AtomicU64);

    impl Clock for Told {
        fn now(&self) -> Now {
            unreachable!("only the boot clock is asked")
        }

        fn boot_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn pass(&self, time: Duration) {
            let ms = time.as_millis() as u64;
            self.0.fetch_add(ms, Ordering::Relaxed);
            self.1.fetch_add(ms, Ordering::Relaxed);
        }
    }

    /// Works for so long in pieces of one millisecond; how long it rests meanwhile.
    fn rests(clients: bool, work_ms: u64) -> u64 {
        let (fills, clock) = (Fills::default(), Told::default());
        clock.0.store(10_000, Ordering::Relaxed);
        let mut pace = Pace::begin(&fills, &clock);
        for _ in 0..work_ms {
            if clients {
                fills.used(clock.boot_ms());
            }
            clock.0.fetch_add(1, Ordering::Relaxed);
            pace.rest();
        }
        clock.1.load(Ordering::Relaxed)
    }

    #[test]
    fn a_third_of_the_time_is_left_to_a_filling_while_clients_work_and_all_of_it_else() {
        assert_eq!((rests(true, 300), rests(false, 300)), (600, 0));
    }

    #[test]
    fn a_rest_is_bounded_whatever_took_long() {
        let (fills, clock) = (Fills::default(), Told::default());
        let mut pace = Pace::begin(&fills, &clock);
        clock.0.fetch_add(60_000, Ordering::Relaxed);
        fills.used(clock.boot_ms());
        pace.rest();
        assert_eq!(clock.1.load(Ordering::Relaxed), REST_MS_MAX);
    }
}
