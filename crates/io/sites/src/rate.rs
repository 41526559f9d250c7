//! How many bytes a second leave for other sites. Urgent messages never wait for it: what they use, bodies have less.

use std::sync::Mutex;
use std::time::Instant;

/// A second's bytes may leave at once.
const BURST_S: f64 = 0.25;

/// See the module.
#[derive(Debug)]
pub struct Rate {
    /// Bytes a second; 0: no limit.
    per_s: u64,
    left: Mutex<(f64, Instant)>,
}

impl Rate {
    /// So many bytes a second; 0: no limit.
    pub fn new(per_s: u64) -> Self {
        Self { per_s, left: Mutex::new((per_s as f64 * BURST_S, Instant::now())) }
    }

    /// How many of so many bytes may leave now.
    pub(crate) fn take(&self, wanted: usize, is_urgent: bool) -> usize {
        self.take_at(wanted, is_urgent, Instant::now())
    }

    fn take_at(&self, wanted: usize, is_urgent: bool, now: Instant) -> usize {
        if self.per_s == 0 {
            return wanted;
        }
        let mut left = self.left.lock().expect("no panic while it is held");
        let (tokens, at) = &mut *left;
        let passed = now.saturating_duration_since(*at).as_secs_f64();
        *at = now;
        *tokens = (*tokens + passed * self.per_s as f64).min(self.per_s as f64 * BURST_S);
        let taken = if is_urgent { wanted } else { wanted.min(tokens.max(0.0) as usize) };
        *tokens -= taken as f64;
        taken
    }

    /// Bytes a second; 0: no limit.
    pub const fn per_s(&self) -> u64 {
        self.per_s
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_leaves_than_may_and_what_is_urgent_goes_first() {
        let (rate, start) = (Rate::new(1_000), Instant::now());
        let mut sent = 0;
        for ms in 0..10_000 {
            sent += rate.take_at(100, false, start + Duration::from_millis(ms));
        }
        assert!((9_900..=10_300).contains(&sent), "{sent}");
        let now = start + Duration::from_secs(20);
        assert_eq!(rate.take_at(1_250, true, now), 1_250);
        assert_eq!(rate.take_at(1, false, now), 0, "it has used what bodies could have had");
        assert_eq!(rate.take_at(1, false, now + Duration::from_millis(1_100)), 1);
        assert_eq!(Rate::new(0).take(usize::MAX, false), usize::MAX);
    }
}
