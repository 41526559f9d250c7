//! Numbers of the requests that change something, one sequence for each island. A repeated request keeps its
//! number, and from the numbers the island learns which results it may forget.

use std::collections::BTreeSet;

/// One island's numbers.
#[derive(Debug, Default)]
pub struct RequestNumbers {
    last: u64,
    open: BTreeSet<u64>,
}

impl RequestNumbers {
    /// A number for a new request.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.open.insert(self.last);
        self.last
    }

    /// The result of a request has arrived.
    pub fn done(&mut self, seq: u64) {
        self.open.remove(&seq);
    }

    /// The results of all requests below this number have arrived.
    pub fn acked(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_acknowledged_up_to_the_first_that_is_missing() {
        let mut serial = RequestNumbers::default();
        let (a, b) = (serial.begin(), serial.begin());
        assert_eq!(serial.acked(), a);
        serial.done(b);
        assert_eq!(serial.acked(), a);
        serial.done(a);
        assert_eq!(serial.acked(), b + 1);
    }
}
