//! What a cluster stores about itself: its volumes and their nodes, and the data directory of a node.
//!
//! Never touches a file of a volume, and takes no part in serving one: if its control store is away, a node
//! goes on with what it knows.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod data_dir;
mod embedded;
mod groups;
mod new_node;
mod node_file;
mod served;
#[cfg(test)]
mod simulated;
mod source;
mod store;

pub use cluster::ClusterStore;
pub use data_dir::{DataDir, DataDirError, replace_file};
pub use embedded::EmbeddedStore;
pub use groups::{GroupStore, WATCH_MAX};
pub use new_node::NewNode;
pub use node_file::{Identity, NODE_FORMAT, rfc3339, seconds_now};
pub use served::ServedStore;
pub use source::{ADDRESSES_MAX, Addresses, SourceError, VOLUME_NAME_BYTES_MAX, check_volume_name};
pub use store::{ConfigStore, ControlError, ControlStore, VolumeRef, check_config, swapped};
