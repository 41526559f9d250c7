//! A client of a cluster volume: the routing machine of `atoll-route` with its I/O.
//!
//! Decides nothing: calls go in, requests go out by a [`Wire`] for each island, replies come back
//! through [`Sink`]. A call that ends runs its completion on the thread that brought the reply.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod client;
mod nodes;
mod pieces;
mod remote;

pub use client::{Client, Done, Sink, Told, Walked, Watcher, Wire};
pub use nodes::{NodePlace, Nodes};
pub use remote::Remote;
