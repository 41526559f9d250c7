//! Runs an island: takes events to its machine and performs the effects, on whichever thread brings
//! the event (`DESIGN` 4, The machine). Daemon and simulator run this same code, over a real or a
//! simulated disk.
//!
//! Owns the one lock of an island. Never decides anything; never holds the lock during I/O.

pub mod engine;
pub mod open;
mod perform;

pub use engine::{Clock, Engine, Halted, Net};
pub use open::{OpenError, Report, Setup};
