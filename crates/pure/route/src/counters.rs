//! What a client counts. Never reset.

use atoll_core::counters;

counters! {
    /// What a client has done.
    pub struct Counters {
        /// Calls of the frontend.
        calls,
        /// Requests to islands for them.
        requests,
        /// Calls that were answered by one island with one request.
        one_island,
    }
}
