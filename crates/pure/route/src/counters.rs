//! Counters of a client. They are never reset.

use atoll_core::counters;

counters! {
    /// Counters of a client.
    pub struct Counters {
        /// Calls of the frontend.
        calls,
        /// Requests that these calls sent to islands.
        requests,
        /// Calls that were answered by one island with one request.
        one_island,
    }
}
