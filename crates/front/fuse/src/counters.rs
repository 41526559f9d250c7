//! Counts requests and errors of each operation. The counters are never reset.

use crate::abi::{OPCODES, opcode};
use atoll_posix::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One operation's counts since the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The kernel's name of the operation, such as `LOOKUP`.
    pub operation: &'static str,
    /// Requests that came.
    pub requests: u64,
    /// Requests that were answered with an error; an absent name is one only if the kernel may not
    /// remember it.
    pub errors: u64,
}

#[derive(Debug)]
pub(crate) struct Counters {
    requests: [AtomicU64; OPCODES],
    errors: [AtomicU64; OPCODES],
}

impl Default for Counters {
    fn default() -> Self {
        Self { requests: std::array::from_fn(|_| 0.into()), errors: std::array::from_fn(|_| 0.into()) }
    }
}

/// Where an opcode is counted; unknown ones share the place of 0.
fn place(code: u32) -> usize {
    usize::try_from(code).ok().filter(|&at| at < OPCODES).unwrap_or(0)
}

impl Counters {
    pub(crate) fn came(&self, code: u32) {
        self.requests[place(code)].fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, code: u32, _why: Errno) {
        self.errors[place(code)].fetch_add(1, Relaxed);
    }

    /// Every operation that was asked for at least once, by opcode.
    pub(crate) fn snapshot(&self) -> Vec<Count> {
        (0u32..)
            .zip(self.requests.iter().zip(&self.errors))
            .map(|(code, (requests, errors))| Count {
                operation: opcode::name(code),
                requests: requests.load(Relaxed),
                errors: errors.load(Relaxed),
            })
            .filter(|count| count.requests > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_listed_and_unknown_opcodes_are_too() {
        let counters = Counters::default();
        counters.came(opcode::LOOKUP);
        counters.failed(opcode::LOOKUP, Errno::ENOENT);
        counters.came(u32::MAX);
        let lookup = Count { operation: "LOOKUP", requests: 1, errors: 1 };
        let unknown = Count { operation: "UNKNOWN", requests: 1, errors: 0 };
        assert_eq!(counters.snapshot(), [unknown, lookup]);
    }
}
