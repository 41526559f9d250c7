//! Two sites of a wide volume, or two instances of another program that keeps folders equal, behind a link with a delay, a rate
//! and a loss: what is sent, and how long things take. Real processes, real mounts; the link is a relay of IP packets in this
//! process.
//!
//! - [`road`] is one direction of a link, [`wire`] two hosts with both.
//! - A [`pair`] is two folders at these hosts: of two [`sites`], or of two instances of [`syncthing`].
//! - [`andrew`], [`bytes`], [`fill`], [`hour`], [`moves`] and [`visible`] are what is measured. They make files by [`trees`], and have a [`table`].
//!
//! Looks only at mounts, folders, commands and packets. Never used by the product.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod andrew;
pub mod bytes;
pub mod fill;
pub mod hour;
pub mod moves;
pub mod pair;
pub mod road;
pub mod sites;
pub mod syncthing;
pub mod table;
pub mod trees;
pub mod visible;
pub mod wire;
