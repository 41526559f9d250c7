//! What the control store knows of a volume.

use atoll_core::{IslandId, NodeId, Table, VolumeId, wire_struct};

wire_struct! {
    /// A node of a volume.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeConfig {
        /// Its number in this volume.
        pub node: NodeId,
        /// Where it listens: `HOST:PORT`; empty if it only serves its own process.
        pub address: String,
        /// The islands that it holds.
        pub islands: Vec<IslandId>,
    }
}

/// Bytes that stay free on a disk of so many bytes, for logs and checkpoints: islands refuse to grow
/// files when only these are left, so that a full disk stays one on which things can be removed.
pub const fn reserve_bytes(disk_bytes: u64) -> u64 {
    /// Bytes that stay free on a large disk.
    const LARGE: u64 = 256 << 20;
    let part = disk_bytes / 32;
    if part < LARGE { part } else { LARGE }
}

wire_struct! {
    /// A volume: the same on every node of it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct VolumeConfig {
        /// Drawn at random when it was created.
        pub id: VolumeId,
        /// Its name, unique in the cluster.
        pub name: String,
        /// Seed of its H3 function and of its directory cookies.
        pub seed: u64,
        /// Which island owns which bucket.
        pub table: Table,
        /// Its nodes.
        pub nodes: Vec<NodeConfig>,
    }
}

impl VolumeConfig {
    /// All islands, in order.
    pub fn islands(&self) -> Vec<IslandId> {
        let mut all: Vec<_> = self.nodes.iter().flat_map(|n| n.islands.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// The node that holds `island`.
    pub fn node_of(&self, island: IslandId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|n| n.islands.contains(&island))
    }
}
