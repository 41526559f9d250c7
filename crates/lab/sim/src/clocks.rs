//! Clocks of machines and clients: each may run at a rate of its own, from a time of its own. The world
//! itself goes by true time, which nobody in it can read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atoll_core::Time;
use atoll_dispatch::Clock;
use atoll_island::Now;
use atoll_model::Rng;

/// The second of a true wall clock at the beginning.
const BEGIN_SECS: u64 = 1_800_000_000;
/// Parts in a million by which a common clock is too fast or too slow.
const COMMON_PPM: u64 = 1_000;
/// By which a bad one is.
const BAD_PPM: u64 = 60_000;
/// Milliseconds that a monotonic clock may show at the beginning.
const BEGIN_MS_MAX: u64 = 1 << 40;

/// True time, in microseconds since the beginning.
#[derive(Debug, Default)]
pub(crate) struct TrueTime(AtomicU64);

impl TrueTime {
    pub(crate) fn us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, us: u64) {
        self.0.store(us, Ordering::Relaxed);
    }
}

/// How one party's clocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Parts in a million by which both are fast.
    ppm: i64,
    /// Milliseconds that the monotonic clock showed at the beginning.
    ms: u64,
    /// Microseconds by which the wall clock was ahead at the beginning.
    ahead_us: i64,
}

impl Pace {
    /// Of clocks that are right.
    pub(crate) const TRUE: Self = Self { ppm: 0, ms: 0, ahead_us: 0 };

    fn passed(self, us: u64) -> i64 {
        let us = us as i64;
        us + us / 1_000_000 * self.ppm + us % 1_000_000 * self.ppm / 1_000_000
    }

    /// Milliseconds by the monotonic clock.
    pub(crate) fn ms(self, us: u64) -> u64 {
        self.ms + self.passed(us) as u64 / 1000
    }

    /// The wall clock.
    pub(crate) fn wall(self, us: u64) -> Time {
        let since_us = self.passed(us) + self.ahead_us;
        Time::from_nanos((BEGIN_SECS * 1_000_000_000).wrapping_add_signed(since_us * 1000))
    }
}

/// Draws the clocks of a world, from a stream of its own.
pub(crate) struct Paces(Option<Rng>);

impl Paces {
    /// True ones unless they drift.
    pub(crate) fn new(seed: u64, drift: bool) -> Self {
        Self(drift.then(|| Rng::new(seed ^ 0x636c_6f63_6b73)))
    }

    pub(crate) fn next(&mut self) -> Pace {
        let Some(rng) = &mut self.0 else { return Pace::TRUE };
        let mut around = |max: u64| rng.below(2 * max + 1) as i64 - max as i64;
        let (common, bad, near, far) =
            (around(COMMON_PPM), around(BAD_PPM), around(50_000), around(3_600_000_000));
        let ppm = if rng.percent(20) { bad } else { common };
        // Most are set by the network; some by hand.
        let ahead_us = if rng.percent(20) { far } else { near };
        Pace { ppm, ms: rng.below(BEGIN_MS_MAX), ahead_us }
    }
}

/// The clocks of a machine. The monotonic one begins anew with each process, the boot clock with each boot.
#[derive(Debug, Clone)]
pub(crate) struct SimClock {
    time: Arc<TrueTime>,
    pub(crate) pace: Pace,
    /// What the boot clock showed, in milliseconds, and when that was by true time.
    boot: (u64, u64),
}

impl SimClock {
    pub(crate) const fn new(time: Arc<TrueTime>, pace: Pace) -> Self {
        Self { time, pace, boot: (pace.ms, 0) }
    }

    /// A process begins, and with it its monotonic clock.
    pub(crate) const fn begin_life(&mut self, life: u64) {
        if self.pace.ppm != 0 {
            self.pace.ms = atoll_model::rng::mix(self.pace.ms ^ life) % BEGIN_MS_MAX;
        }
    }

    /// The machine boots.
    pub(crate) fn begin_boot(&mut self) {
        self.boot = (0, self.time.us());
    }

    /// Time passes, for everybody.
    pub(crate) fn passes(&self, us: u64) {
        self.time.set(self.time.us() + us);
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> Time {
        self.pace.wall(self.time.us())
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let us = self.time.us();
        Now { wall: self.pace.wall(us), ms: self.pace.ms(us) }
    }

    fn boot_ms(&self) -> u64 {
        let (ms, since_us) = self.boot;
        ms + (self.pace.passed(self.time.us()) - self.pace.passed(since_us)) as u64 / 1000
    }

    fn pass(&self, _time: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_gains_and_a_slow_one_loses() {
        let pace = |ppm| Pace { ppm, ms: 5, ahead_us: 0 };
        let day_us = 86_400_000_000;
        assert_eq!(pace(1_000).ms(day_us), 5 + 86_486_400);
        assert_eq!(pace(-50_000).ms(day_us), 5 + 82_080_000);
        assert_eq!(Pace { ahead_us: -2_000_000, ..pace(0) }.wall(1).secs, BEGIN_SECS as i64 - 2);
    }

    #[test]
    fn a_boot_clock_goes_on_over_the_end_of_a_process_and_begins_anew_with_a_boot() {
        let time = Arc::new(TrueTime::default());
        let mut clock = SimClock::new(Arc::clone(&time), Pace { ppm: 100_000, ms: 7, ahead_us: 0 });
        time.set(10_000_000);
        clock.begin_life(1);
        assert_eq!(clock.boot_ms(), 7 + 11_000);
        assert_ne!(clock.now().ms, clock.boot_ms(), "a process has its own");
        clock.begin_boot();
        clock.begin_life(2);
        assert_eq!(clock.boot_ms(), 0);
        time.set(30_000_000);
        assert_eq!(clock.boot_ms(), 22_000);
    }

    #[test]
    fn no_clock_goes_back() {
        let mut paces = Paces::new(7, true);
        for _ in 0..20 {
            let pace = paces.next();
            assert!((0..3_000_000).step_by(997).is_sorted_by_key(|us| pace.wall(us)));
        }
    }
}
