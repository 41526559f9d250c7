//! Everything in Atoll that reads bytes nobody vouches for, as functions that take any bytes: what
//! `cargo fuzz` runs for hours, and the tests here for seconds.
//!
//! Each function returns if all is well, whatever the bytes are, and panics if something is not: a
//! reader that panics, gives out what was not there, or does not write what it has read.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod read;
mod stream;

pub use read::{forget_node_file, message, node_file, record, row, segment, source, volume};
pub use stream::frame;

/// A function of bytes.
pub type Target = fn(&[u8]);

/// All functions, with the names of their corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("frame", frame),
    ("message", message),
    ("record", record),
    ("volume", volume),
    ("segment", segment),
    ("row", row),
    ("node_file", node_file),
    ("source", source),
];
