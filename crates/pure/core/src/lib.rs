//! The words in which every other part of Atoll is written: ids, names, the codec, placement and clocks.
//!
//! Never touches a file, a socket, a clock, a thread or a random source.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(
    feature = "planted",
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_types,
        reason = "only the simulator has it, and each of its threads has a bug of its own"
    )
)]

pub mod clock;
pub mod codec;
pub mod cookie;
mod counters;
pub mod h3;
pub mod id;
pub mod limits;
pub mod map;
pub mod name;
pub mod placement;
pub mod planted;
mod position;
pub mod rebalance;
pub mod sum;
pub mod table;
pub mod time;

pub use clock::{ClockVector, Stamp};
pub use codec::{Decode, Encode, Malformed, Reader, fitting, portions};
pub use cookie::{COOKIE_MIN, cookie_of, siphash24};
pub use h3::{H3, PathHash};
pub use id::{Ino, IslandId, Key, NodeId, SessionId, TxnId, VolumeId};
pub use map::{IdMap, IdSet};
pub use name::{Name, NameError, ShownPath, VolumePath};
pub use position::Position;
pub use table::Table;
pub use time::Time;
