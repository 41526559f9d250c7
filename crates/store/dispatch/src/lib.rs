//! Runs an island: takes events to its machine and performs the effects, on the thread that brings the event
//! (`DESIGN` 4, The machine). Daemon and simulator run this same code, over a real or a simulated disk.
//!
//! Owns the one lock of an island. Never decides anything, and never holds the lock during I/O.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod behind;
pub mod beside;
pub mod copy;
mod cut;
mod door;
mod ending;
pub mod engine;
mod fetch;
mod fill;
mod filling;
mod fills;
pub mod follow;
mod grouped;
pub mod lay;
mod leaves;
mod level;
mod membership;
mod noted;
pub mod open;
mod pace;
mod perform;
mod progress;
mod role;
pub mod seat;
mod sending;
pub mod ship;
mod space;
mod walk;
mod weight;
pub mod whole;
mod work;

pub use beside::BesideMaker;
pub use copy::{Anew, GroupCopy, GroupNet, GroupSetup, Task};
pub use engine::{Clock, Engine, Halted, Net, Nobody};
pub use fill::is_being_filled;
pub use fills::Fills;
pub use follow::NotTaken;
pub use lay::Laying;
pub use leaves::LeavesFilling;
pub use level::NotLevel;
pub use open::{OpenError, Reached, Report, Setup};
pub use seat::SeatStore;
pub use ship::{NotShipped, Shipment, Shipped};
pub use space::{Lack, SpaceState};
pub use walk::FillSize;
pub use whole::WholeState;
pub use work::Work;
