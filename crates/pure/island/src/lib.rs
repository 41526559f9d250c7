//! The island machine (`DESIGN` 4 and 5): events in, effects out. Decides every operation on the
//! directories that its island owns and the files that it homes.
//!
//! Never touches a clock, a socket, a file, a thread or a random source. The daemon and the
//! simulator run this same code.
//!
//! A decided record changes the state in memory at once, and later operations are decided on top
//! of it; but no answer that shows it leaves before the record is committed.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod attrs;
mod between;
mod chains;
mod check;
mod checkpoint;
mod compare;
mod compared;
mod counters;
mod ctx;
mod data;
mod dirs;
mod ending;
mod enumerate;
pub mod event;
mod gate;
mod hints;
mod holds;
mod homes;
mod journal;
mod locks;
mod lost;
mod machine;
mod mover;
mod moves;
mod names;
mod outbox;
mod participant;
mod path;
mod promised;
mod recovery;
mod retell;
mod rows;
mod sessions;
mod shape;
mod skeleton;
mod space;
mod symlinks;
mod sync;
mod targets;
mod txn;
mod under_way;

pub use counters::Counters;
pub use ctx::Config;
pub use event::{BodyAttr, BodyDone, BodyFault, BodyOp, Effect, Event, LinkId, Now, Ticket};
pub use machine::{Island, Phase};
pub use mover::Moving;
pub use outbox::{OUTBOX_BYTES_MAX, OUTBOX_MAX};
pub use recovery::Ended;
pub use under_way::UnderWay;
