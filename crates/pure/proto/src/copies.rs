//! Who shall keep the islands of a volume with copies. Who keeps them at the moment is in their group records.

use atoll_core::{IslandId, NodeId, wire_struct};

use crate::group::{GroupRecord, Seat};

/// Longest name of a rack, in bytes.
pub const RACK_BYTES_MAX: usize = 255;

wire_struct! {
    /// The nodes that shall keep an island.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct IslandGroup {
        /// The island.
        pub island: IslandId,
        /// They, in the order of the ring: first the one that shall lead at first.
        pub nodes: Vec<NodeId>,
    }
}

wire_struct! {
    /// The copies of a volume's islands.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Copies {
        /// How many of each island there should be: two or more.
        pub wanted: u8,
        /// The node whose control store has the group records.
        pub store: NodeId,
        /// One for each island, in the order of the islands.
        pub groups: Vec<IslandGroup>,
        /// The rack of each node, in the order of the volume's nodes. Empty if none were named.
        pub racks: Vec<String>,
    }
}

impl Copies {
    /// The nodes that shall keep `island`; none if there is no such island.
    pub fn group_of(&self, island: IslandId) -> &[NodeId] {
        let at = self.groups.binary_search_by_key(&island, |group| group.island);
        at.map_or(&[], |at| &self.groups[at].nodes)
    }

    /// The record of a group that was made just now: nobody has led yet, and whatever there is, all have it.
    pub fn first_record(&self, group: &IslandGroup) -> GroupRecord {
        let mut in_sync: Vec<Seat> = group.nodes.iter().map(|node| Seat { node: *node, tenure: 1 }).collect();
        in_sync.sort_unstable();
        GroupRecord { epoch: 0, primary: None, in_sync, wanted: self.wanted, power_cut: false }
    }
}
