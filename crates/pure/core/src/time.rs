//! Points in time as POSIX shows them.

crate::wire_struct! {
    /// Nanoseconds since 1970, on the clock of the machine that decided the operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Time {
        /// Seconds since 1970-01-01T00:00:00Z; negative before it.
        pub secs: i64,
        /// Nanoseconds within the second, below 1,000,000,000.
        pub nanos: u32,
    }
}

impl Time {
    /// The time that is `ns` nanoseconds after 1970.
    pub const fn from_nanos(ns: u64) -> Self {
        Self { secs: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as u32 }
    }

    /// The time so many milliseconds later.
    pub const fn plus_millis(self, ms: u64) -> Self {
        let nanos = self.nanos as u64 + ms % 1_000 * 1_000_000;
        Self {
            secs: self.secs + (ms / 1_000 + nanos / 1_000_000_000) as i64,
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }

    /// Nanoseconds between this time and another, as far as they can be counted.
    pub const fn nanos_from(self, other: Self) -> u64 {
        let secs = (self.secs as i128 - other.secs as i128) * 1_000_000_000;
        let apart = (secs + self.nanos as i128 - other.nanos as i128).unsigned_abs();
        if apart > u64::MAX as u128 { u64::MAX } else { apart as u64 }
    }

    /// The next representable time.
    pub const fn next(self) -> Self {
        if self.nanos == 999_999_999 {
            Self { secs: self.secs + 1, nanos: 0 }
        } else {
            Self { secs: self.secs, nanos: self.nanos + 1 }
        }
    }
}
