//! A client of a cluster volume: the routing machine of `atoll-route` with its I/O.
//!
//! Decides nothing. Calls go in, requests go out by a [`Wire`] for each island, replies come back through
//! [`Sink`]. If a reply ends a call, the thread that brought it runs the completion.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod changed;
mod client;
mod nodes;
mod pending;
mod pieces;
mod remote;

pub use client::{Client, Done, Sink, Told, Walked, Watcher, Wire};
pub use nodes::{NodePlace, Nodes};
pub use remote::Remote;
