//! The island machine (`DESIGN` 4 and 5): events in, effects out. Decides every operation on the directories
//! that its island owns and the files that it homes.
//!
//! Never touches a clock, a socket, a file, a thread or a random source. The daemon and the simulator run
//! this same code.
//!
//! A decided record changes the state in memory at once, and later operations are decided on top of it. But
//! an answer that shows it leaves only when the record is committed.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod bodies;
mod check;
mod client;
mod compare;
mod counters;
mod ctx;
pub mod event;
mod island;
mod journal;
mod links;
mod locks;
mod look;
mod migration;
mod ops;
mod quiesce;
mod recovery;
mod rows;
mod txn;
mod under_way;

pub use counters::Counters;
pub use ctx::{
    Beside, BesideRecord, BesideStep, BesideView, Config, HELLO_MS, HELLO_SOON_MS, MigrationConfig,
    OUTBOX_BYTES_MAX, OUTBOX_MAX,
};
pub use event::{
    BesideEvent, BesideSays, BodyAttr, BodyDone, BodyFault, BodyOp, BodyOpId, Damage, Effect, Event, LinkId,
    Now,
};
pub use island::Island;
pub use recovery::start::{Phase, PreviousEnd};
pub use under_way::Fingerprint;
