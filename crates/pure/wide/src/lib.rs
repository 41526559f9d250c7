//! A site of a wide volume (`docs/design/023-wide.md`): an island that has the whole tree, and beside it what replicates that tree. Never
//! touches a file, a socket or a clock.
//!
//! [`watch`] reads from the rows of a record what users did.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod watch;
