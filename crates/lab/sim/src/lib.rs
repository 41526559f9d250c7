//! The simulator (`DESIGN` 12): islands and clients in virtual time, with seeded faults.
//!
//! Islands are the product's own: machine, state and effect dispatch, each over a simulated disk.
//! Clients are the product's routing machine. Only the network, the clock and the threads are made
//! here, all from one seed, so that a run can be repeated. Every run is judged by the reference model
//! of a POSIX tree and by the invariants of the islands' rows.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod absences;
mod alike;
mod asleep;
pub mod cause;
mod client;
mod clocks;
pub mod concurrent;
mod copies;
pub mod crash_points;
mod disks;
mod enumerate;
pub mod explore;
mod flips;
pub mod frontend;
mod groups;
mod handovers;
mod histories;
mod injected;
pub mod invariants;
mod islands;
mod judge;
mod kept;
pub mod large;
mod leaders;
mod leases;
mod limited;
mod link;
mod links;
mod locks;
mod lost_links;
mod machines;
mod net;
#[cfg(feature = "planted")]
pub mod planted;
pub mod power;
mod recalls;
mod rest;
mod rings;
mod saves;
pub mod scenario;
mod script;
mod sequences;
pub mod sequential;
pub mod store;
mod storm;
mod thread;
mod transcript;
mod unanswered;
mod union;
mod votes;
mod walks;
mod wide;
mod wire;
pub mod world;

pub use cause::Failure;
pub use client::Done;
pub use injected::Injected;
pub use invariants::invariants;
pub use judge::{Judge, Verdict};
pub use leases::{Mishap, happens};
pub use links::Party;
pub use recalls::alone;
pub use scenario::{Report, SCENARIOS, Scenario, run};
pub use script::SlowDisks;
pub use transcript::hash_everything;
pub use world::{Config, World};
