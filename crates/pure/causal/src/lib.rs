//! Causality between the sites of a wide volume (`docs/design/023-wide.md`): who made a change, what was known when it was
//! made, and how the states of two sites are joined.
//!
//! Values and functions over them. Never sends, writes or asks the time, and knows no site's file tree.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod context;
mod id;
mod stamp;

pub use context::Context;
pub use id::{Dot, FileId, Writer};
pub use stamp::{HybridClock, HybridStamp};
