//! Which calls are under way, and since when. Owns a table without locks; never ends a call, because native calls cannot be
//! interrupted.

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_posix::Errno;
use rustix::time::{ClockId, clock_gettime};

/// A call that has not returned for so long makes the member stuck.
pub const STUCK_MS: u64 = 2_000;

/// So many calls may be under way in a member that is stuck. One more is `ETIMEDOUT` at once.
pub const STUCK_CALLS_MAX: usize = 16;

/// So many calls may be under way at all. One more is `ETIMEDOUT` at once.
const CALLS_MAX: usize = 256;

/// The calls that are under way.
#[derive(Debug)]
pub(super) struct Calls {
    /// When each began, or would have if it may take longer than others, in milliseconds (upper 40 bits), and on which thread
    /// (lower 24). 0: free.
    calls: [AtomicU64; CALLS_MAX],
}

impl Default for Calls {
    fn default() -> Self {
        Self { calls: [const { AtomicU64::new(0) }; CALLS_MAX] }
    }
}

/// A call under way; ended when dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

thread_local! {
    static THREAD: u64 = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()) & 0xff_ffff;
}

/// Milliseconds of a clock that costs no system call and ticks every few of them.
pub(super) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

impl Calls {
    /// A call begins, which may take so many milliseconds more than others. `ETIMEDOUT` if too many are under way.
    pub(super) fn begin(&self, more_ms: u64) -> Result<UnderWay<'_>, Errno> {
        let now = now_ms();
        let mark = (now + more_ms).max(1) << 24 | THREAD.with(|thread| *thread);
        // The first slots are the ones in use: as a rule one look finds a free one, and all calls are in front of it.
        let (mut running, mut old) = (0, false);
        for call in &self.calls {
            let there = call.load(Ordering::Relaxed);
            if there == 0 {
                if old && running >= STUCK_CALLS_MAX {
                    return Err(Errno::ETIMEDOUT);
                }
                if call.compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(UnderWay(call));
                }
            }
            running += 1;
            old |= now.saturating_sub(there >> 24) > STUCK_MS && there != 0;
        }
        Err(Errno::ETIMEDOUT)
    }

    /// Whether a call is older than [`STUCK_MS`].
    pub(super) fn is_stuck(&self) -> bool {
        let now = now_ms();
        let started = self.calls.iter().map(|call| call.load(Ordering::Relaxed)).filter(|call| *call != 0);
        started.into_iter().any(|call| now.saturating_sub(call >> 24) > STUCK_MS)
    }

    /// As if every call under way had begun so long before.
    #[cfg(test)]
    fn age(&self, ms: u64) {
        for call in self.calls.iter().filter(|call| call.load(Ordering::Relaxed) != 0) {
            call.fetch_sub(ms << 24, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_does_not_return_makes_the_member_stuck_and_bounds_the_calls() {
        let calls = Calls::default();
        let first = calls.begin(0).unwrap();
        assert!(!calls.is_stuck());
        calls.age(STUCK_MS + 1_000);
        assert!(calls.is_stuck());
        let more: Vec<_> = (1..STUCK_CALLS_MAX).map(|_| calls.begin(0).unwrap()).collect();
        assert_eq!(calls.begin(0).unwrap_err(), Errno::ETIMEDOUT);
        drop(first);
        assert!(!calls.is_stuck());
        drop((calls.begin(0).unwrap(), calls.begin(0).unwrap(), more));
    }

    #[test]
    fn a_call_that_may_take_long_makes_the_member_stuck_later() {
        let calls = Calls::default();
        let _sync = calls.begin(60_000).unwrap();
        calls.age(STUCK_MS + 1_000);
        assert!(!calls.is_stuck());
        calls.age(60_000);
        assert!(calls.is_stuck());
    }

    #[test]
    fn so_many_calls_at_once_and_no_more() {
        let calls = Calls::default();
        let all: Vec<_> = (0..CALLS_MAX).map(|_| calls.begin(0).unwrap()).collect();
        assert_eq!(calls.begin(0).unwrap_err(), Errno::ETIMEDOUT);
        drop(all);
        assert!(calls.begin(0).is_ok());
    }
}
