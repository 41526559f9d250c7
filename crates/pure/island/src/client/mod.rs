//! Clients: their sessions and leases, and requests that wait for a sync.

pub(crate) mod ending;
pub(crate) mod leases;
pub(crate) mod requests;
pub(crate) mod retell;
pub(crate) mod sessions;
