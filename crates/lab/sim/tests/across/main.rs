//! Sequences across islands, each by name: those that broke a draft of the design, and those that were
//! found by attacking what was built. A test that is ignored says what is still wrong.

mod accessed;
mod again;
mod away;
mod bench;
mod deadlocks;
mod dirs;
mod drafts;
mod follow;
mod frozen;
mod full;
mod further;
mod paths;
#[cfg(feature = "planted")]
mod planted;
mod removed;
mod skipped;
mod stops;
mod storm;
mod symlinks;
mod synced;
mod table;
mod times;
mod vectors;
