//! Links to nodes (`docs/design/011-links.md`): when a connection is tried, directly or through another node, and
//! when a node counts as reachable. And the header in front of what they carry.
//!
//! Never connects, sends or waits: daemons, mounts and the simulator ask this same code what to do next.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod both_ways;
mod dialer;
pub mod header;

pub use both_ways::BothWays;
pub use dialer::{BACK_AFTER_MS_MAX, Dialer, RELAY_AFTER_MS, Via};
