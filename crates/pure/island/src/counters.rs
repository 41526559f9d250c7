//! What an island counts. Never reset.

use atoll_core::counters;

counters! {
    /// What an island has done since it started.
    pub struct Counters {
        /// Requests of clients.
        requests,
        /// Messages of other islands.
        peer_messages,
        /// Records decided.
        records,
        /// Rows read from the snapshot.
        loads,
        /// Checkpoints made.
        checkpoints,
    }
}
