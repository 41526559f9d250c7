//! Every part of Atoll that reads untrusted bytes, as functions that take any bytes. `cargo fuzz` runs them
//! for hours, and the tests here for seconds.
//!
//! Each function returns if all is well, whatever the bytes are. It panics if a reader panics, returns data
//! that was not in the bytes, or does not write the bytes that it has read.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod read;
mod site;
mod stranger;
mod stream;

pub use read::{forget_node_file, message, nfs, node_file, record, row, segment, source, volume};
pub use site::site;
pub use stranger::{certificate, greeting, join_line, metrics};
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
    ("nfs", nfs),
    ("greeting", greeting),
    ("certificate", certificate),
    ("join_line", join_line),
    ("metrics", metrics),
    ("site", site),
];
