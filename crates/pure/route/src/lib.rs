//! The client's pure half (`DESIGN` 9): which island is asked, under which number, when a request is
//! repeated, and which answers may be kept.
//!
//! Never touches a socket, a clock or a thread. The mount, the tools and the simulator's clients run this
//! same code.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod attach;
mod call;
mod check;
mod counters;
mod detour;
pub mod dirs;
pub mod enumerate;
mod fits;
mod found;
mod handles;
pub mod hints;
mod homes;
mod lease;
mod links;
mod out;
mod patience;
mod peer;
pub mod route;
pub mod serial;
mod stamps;
mod synced;
mod walk;

pub use counters::Counters;
pub use dirs::{Dirs, KnownDir};
pub use enumerate::{Enumerate, ListConfig, ListError, ListedFile};
pub use fits::MisfitAnswer;
pub use hints::{HINTS_MAX, Hints};
pub use lease::KEEP_MS;
pub use out::{FinishedCall, IslandAnswer, OutgoingRequest, RecallOf, RouteOut};
pub use route::{Config, Route};
