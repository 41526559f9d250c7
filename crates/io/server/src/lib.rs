//! A node's part of a volume: its islands, who is connected to them, and their housekeeping.
//!
//! Takes frames to the islands' machines and their answers back; decides nothing. A client of the
//! same process is connected without a socket.

mod links;
mod local;
mod switch;
mod volume;

pub use local::Local;
pub use switch::Switch;
pub use volume::{Volume, VolumeError, VolumeOptions, WallClock};
