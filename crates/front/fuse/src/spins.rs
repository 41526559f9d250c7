//! When a reader looks for the next request for a moment before it sleeps. Owns one reader's observations; never reads a request.
//!
//! To wake a thread on an idle processor takes longer than most requests do. So a reader to which requests come fast, one behind
//! the other, does not sleep in between. It sleeps as before where requests come seldom, so an idle machine stays idle; and where
//! another thread wants this processor, because the client may be that thread.

use std::time::Duration;

/// What one reader has seen lately.
#[derive(Debug, Default)]
pub(crate) struct Spins {
    /// Requests in a row that came soon.
    soon: u32,
    /// The processor was taken from this thread so often.
    taken: i64,
    /// Nobody else wanted the processor while the last requests came.
    alone: bool,
}

impl Spins {
    /// A request that comes within this time came soon.
    pub(crate) const MAX: Duration = Duration::from_micros(50);
    /// After so many that came soon, and once again for so many.
    const ROW: u32 = 64;

    /// Whether to look for the next request for [`Spins::MAX`].
    pub(crate) const fn is_on(&self) -> bool {
        self.alone && self.soon >= Self::ROW
    }

    /// A request came after so long. `taken` tells how often the processor was taken from this thread so far.
    pub(crate) fn came(&mut self, waited: Duration, taken: impl FnOnce() -> i64) {
        if waited > Self::MAX {
            (self.soon, self.alone) = (0, false);
            return;
        }
        self.soon = self.soon.wrapping_add(1);
        if self.soon.is_multiple_of(Self::ROW) {
            let before = std::mem::replace(&mut self.taken, taken());
            self.alone = before == self.taken;
        }
    }
}

/// How often the processor was taken from this thread for another one.
pub(crate) fn taken() -> i64 {
    // SAFETY: `rusage` is plain numbers, and the kernel fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many requests that came this soon.
    fn after(count: u32, waited: Duration, mut taken: impl FnMut() -> i64) -> Spins {
        let mut spins = Spins::default();
        (0..count).for_each(|_| spins.came(waited, &mut taken));
        spins
    }

    #[test]
    fn a_reader_looks_on_only_where_requests_come_fast() {
        assert!(!after(63, Duration::ZERO, || 0).is_on());
        let mut spins = after(64, Duration::ZERO, || 0);
        assert!(spins.is_on());
        spins.came(Spins::MAX + Duration::from_nanos(1), || 0);
        assert!(!spins.is_on());
        assert!(!after(640, Duration::from_millis(1), || 0).is_on());
    }

    #[test]
    fn a_reader_whose_processor_others_want_sleeps() {
        let mut count = 0;
        assert!(
            !after(640, Duration::ZERO, || {
                count += 1;
                count
            })
            .is_on()
        );
    }
}
