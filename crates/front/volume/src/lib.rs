//! The library behind the command: it finds volumes, opens and mounts them, and asks processes about them.
//!
//! Parses no arguments and prints nothing. An error is a text for people of at most three lines: what failed,
//! why, and what to do next.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod ask;
pub mod change;
mod cluster;
pub mod control;
pub mod control_move;
pub mod control_rebuild;
pub mod create;
pub mod credentials;
pub mod doctor;
pub mod drain;
pub mod explain;
pub mod findings;
pub mod group;
pub mod kind;
pub mod machines;
pub mod members;
pub mod mounting;
pub mod nfs;
pub mod node;
pub mod order;
mod own_etcd;
pub mod places;
pub mod reach;
pub mod source;
pub mod status;
pub mod union;
pub mod whatif;
pub mod wide;

pub use cluster::lost;
