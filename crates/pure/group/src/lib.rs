//! The group of an island (`docs/design/018-copies.md`): which copy leads, whom it counts, what is committed and synced,
//! who is dropped and admitted, and what a copy must cut off.
//!
//! There is one machine for each copy. It deals in positions of records and never sees what is in them: the engine
//! writes, sends and applies.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod claim;
mod epochs;
mod event;
mod following;
mod join;
mod leading;
mod lease;
mod log;
mod machine;
mod members;
mod progress;
mod record;
mod rounds;
mod seat;
mod shipping;
mod store;

pub use epochs::Epochs;
pub use event::{GroupEffect, GroupEvent, LeadBy, OpenedLog, SwapOutcome};
pub use lease::{
    BEAT_MS, Given, LATE_MS, LEASE_MS, OWES_MS, PLACE_MS, PROMISE_MS, Promise, SILENT_MS, SYNC_OWES_MS,
    YIELD_MS,
};
pub use machine::{Config, Group, Role};
pub use progress::WINDOW;
pub use seat::SeatFile;
