//! An NFSv3 client that mounts an export as a volume, so that suites and programs judge a server through it.
//!
//! Its messages are those of the crate `nfs3_types`: another implementation than the server's own. Never part of the
//! product, and never used against a server that is not trusted.
//!
//! - [`rpc`] sends calls over TCP, [`client`] has the procedures.
//! - [`files`] makes a volume of an export ([`NfsFiles`]), as Linux's client would: removed files that are known keep a
//!   name, bytes are committed at `fsync` and written again if the server lost them, appends go to the end that the
//!   server told last. Locks are local, and there are no extended attributes.
//! - [`ganesha`] starts nfs-ganesha, which the same client judges: what fails there too is not our server's fault.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![allow(clippy::wildcard_imports, reason = "the types of the protocol have its names, and most are used")]

mod attrs;
pub mod client;
mod data;
pub mod files;
pub mod ganesha;
mod names;
pub mod rpc;
mod table;
mod unstable;

pub use client::Client;
pub use files::{Export, NfsFiles, Ways};
