//! Counters of an island. They are never reset.

use atoll_core::counters;

counters! {
    /// Counters of an island since its start.
    pub struct Counters {
        /// Requests of clients.
        requests,
        /// Messages of other islands.
        peer_messages,
        /// Records decided.
        records,
        /// Rows read from the snapshot.
        loads,
        /// Mounts that had to drop what they kept, before another client changed something.
        recalls,
        /// Checkpoints made.
        checkpoints,
    }
}
