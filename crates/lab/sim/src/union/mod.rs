//! Unions over simulated members: concurrent operations whose calls to members are made and answered in any order, programs that
//! use the members directly, and members that go away, hang, are full or read-only. All from one seed.
//!
//! Judged by what the members had at every moment: no name is invented, none is hidden, no gap is left unsaid, and nothing is
//! removed or overwritten but what an operation meant and was shown.

mod job;
mod judge;
mod members;
#[cfg(test)]
mod named;
mod points;
mod process;
mod rest;
mod run;
mod spec;

pub(crate) use points::run as run_points;
pub(crate) use run::{Kind, run};
