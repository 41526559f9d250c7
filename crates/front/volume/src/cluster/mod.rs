//! Cluster volumes: islands on nodes, and a client with a way to each of them.

pub mod attach;
pub mod files;
