//! What the command is made of: where volumes are, how they are opened, mounted and asked about.
//!
//! Parses no arguments and prints nothing. Errors are texts for people: what, why, and what to do next, in at most
//! three lines.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod ask;
mod cluster;
pub mod create;
pub mod explain;
pub mod findings;
pub mod kind;
pub mod mounting;
pub mod node;
pub mod places;
pub mod reach;
pub mod source;
pub mod status;
