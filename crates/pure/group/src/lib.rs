//! The group of an island (`docs/design/018-copies.md`): which copy leads, whom it counts, what is committed and synced,
//! who is dropped and admitted, and what a copy must cut off.
//!
//! There is one machine for each copy. It deals in positions of records and never sees what is in them: the engine
//! writes, sends and applies.
//!
//! How it is used. [`Group`] lies beside the engine of its copy, under the engine's lock, and outlives engines. [`Promise`] lies
//! beside it under a lock of its own. [`Group::handle`] is called with both locks; so the order is engine, promise. The effects of
//! all events of a copy go into one queue, and are performed in its order without the locks; what is slow among them says by an
//! event that it is done. When the engine is closed, events of it that have not been told are dropped. The thread of beacons takes the lock of the promise only: [`Promise::named`] says what a beacon of this node
//! names, and [`Promise::beacon`] answers one of another node; the answer leaves when the lock was released. An answer that comes back
//! is told by [`GroupEvent::Promised`] with the time at which its beacon *left*. All times are of the boot clock, read under the lock.
//!
//! What leaves the island asks [`Group::lease_until`] at the door, and what clients ask is decided only if [`Group::may_decide`] says
//! so. A frame of records is kept by the engine while its `Append` is handled: [`GroupEffect::Take`] says which of them are new.

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
mod rebuild;
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
pub use machine::{Config, Group, LINKS_MAX, Role};
pub use progress::WINDOW;
pub use rebuild::{CannotRebuild, Rebuilt, rebuilt};
pub use seat::{SLOT_BYTES, SeatError, SeatFile};
