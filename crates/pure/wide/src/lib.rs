//! A site of a wide volume (`docs/design/023-wide.md`): an island that has the whole tree, and beside it what replicates that tree. Never
//! touches a file, a socket or a clock.
//!
//! [`watch`] reads from the rows of a record what users did. [`author`] writes it down as changes of objects, in the same record and for
//! other sites. [`foreign`] makes the record by which changes of another site are shown. [`site`] puts these together
//! beside the island. [`contents`] moves bytes of files. [`held`] is what a site holds, and [`rows`] what it
//! keeps of that beside the rows of its island. [`members`] is which sites there are,
//! and [`confirm`] which of them have an object.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod asks;
pub mod author;
pub mod confirm;
pub mod contents;
mod copies;
pub mod foreign;
pub mod held;
pub mod lives;
pub mod members;
pub mod peers;
pub mod rows;
pub mod settled;
pub mod site;
pub mod trash;
pub mod watch;
