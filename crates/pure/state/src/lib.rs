//! An island's state (`DESIGN` 4): rows in memory over a snapshot, changed only by applying decided records
//! in order.
//!
//! A row that is not in memory is a [`NotInMemory`]: the machine puts the request aside, has the row loaded, and
//! starts the request again. Nothing here waits, reads a file or looks at a clock.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod cache;
pub mod cuts;
mod journal;
pub mod key;
pub mod links;
mod load;
mod meta;
pub mod pending;
pub mod renamed;
mod sessions;
mod sides;
pub mod state;
mod sums;

pub use cache::{Cached, Slot};
pub use cuts::{CUT_ROWS_MAX, CUTS_MAX, CutId, CutRowError, NamesAt};
pub use key::RowKey;
pub use load::{LoadedRows, RowLoad};
pub use pending::ToLay;
pub use sessions::RESULTS_MAX;
pub use state::{CheckpointRows, NotInMemory, State};
