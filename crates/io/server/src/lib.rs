//! A node: its volumes, their islands here, the connections to them, and their housekeeping.
//!
//! Takes frames to the islands' machines and brings their answers back; decides nothing. A client of the same
//! process is connected without a socket.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod abreast;
mod answers;
mod arrange;
mod changes;
mod cluster;
mod copies;
mod desk;
#[cfg(test)]
mod fixture;
mod invites;
mod limits;
mod links;
mod local;
mod map;
mod member;
mod membership;
mod node;
mod node_links;
mod opening;
mod orders;
mod reached;
mod refusals;
mod served;
mod sites;
mod slots;
mod switch;
mod views;
mod volume;
mod wide;

pub use cluster::{Beside, Cluster, Shelf};
pub use desk::{Counter, Desk};
pub use local::Local;
pub use member::{ISLANDS, Member, kept_config, member, volumes_kept};
pub use membership::{Membership, Secured, Told, clock_ms, node_keys, session_prefix};
pub use node::{Kinds, Node, NodeError, NodeSetup};
pub use reached::{forget_reached, reached};
pub use served::{LocalWay, Place, Serve, Served, ServedStatus};
pub use sites::check_site;
pub use switch::Switch;
pub use volume::{Volume, VolumeError, VolumeOptions, WallClock, setup};
pub use wide::{NodeSites, Wide};

const _: () = assert!(!atoll_core::planted::CAN_PLANT, "bugs can be planted in the simulator only");
