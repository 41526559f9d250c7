//! The papers' analyses, run with Atoll's own code on real data.
//!
//! Measures and predicts; never serves a volume, and changes nothing that it has not made itself.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod bloom;
pub mod borrow;
pub mod failover;
mod folder;
pub mod imbalance;
mod mix;
pub mod scale;
pub mod table3;
pub mod trips;
pub mod walk;

pub use imbalance::{Options, Report, imbalance};
