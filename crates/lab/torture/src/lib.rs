//! Torture of the real product: the `atoll` binary, real disks, the kernel's mount, real programs.
//!
//! - [`daemon`] starts, kills and stops `atoll up`, [`cluster`] several nodes over TCP with several mounts, each as
//!   a [`process`]; [`place`] has folders and small disks for them.
//! - [`history`] records what several clients do at once while nodes are killed and the ways of their [`network`] are cut
//!   ([`mishap`]), and has it judged.
//! - [`copies`] does the same to volumes whose islands have copies, with each [`fault`] that takes copies away; [`pauses`]
//!   measures how long clients wait, [`starved`] whether a node that is slow is taken for dead.
//! - [`sites`] are those of a wide volume, where users of one change files while others work at another.
//! - [`worker`] changes a tree and knows what must be in it; [`kill9`] kills the daemon under it.
//! - [`tree`] lists a tree with everything that a file system can tell, and compares two of them.
//! - [`race`] has two mounts move directories into each other, [`reader`] opens what is being replaced,
//!   [`vanish`] copies, lists and removes one directory through several.
//! - [`programs`] (with [`tools`] and [`saves`]), [`million`] and [`pjdfstest`] are what else is run over a mount.
//!
//! Looks only at what users see: the mount, the plain trees, the command. Never used by the product.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod cluster;
pub mod copies;
pub mod daemon;
pub mod fault;
pub mod filling;
pub mod history;
pub mod kill9;
pub mod large;
pub mod link;
pub mod million;
pub mod mishap;
pub mod network;
pub mod ops;
pub mod pauses;
pub mod pjdfstest;
pub mod place;
pub mod plain;
pub mod process;
pub mod programs;
pub mod race;
pub mod reader;
pub mod saves;
pub mod sites;
pub mod starved;
pub mod tools;
pub mod tree;
pub mod vanish;
pub mod worker;
