//! Clients: their sessions and leases, the locks on files, and what waits for a sync.

pub(crate) mod ending;
pub(crate) mod requests;
pub(crate) mod retell;
pub(crate) mod sessions;
