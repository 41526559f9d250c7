//! Transactions among islands, and what they lock.

pub(crate) mod coordinator;
pub(crate) mod locks;
pub(crate) mod participant;
