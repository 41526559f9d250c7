//! Who shall keep the islands of a volume with copies. Who keeps them at the moment is in their group records.

use atoll_core::{Decode, Encode, IslandId, Malformed, NodeId, Reader, wire_struct};

use crate::group::{GroupRecord, Seat};

/// Longest name of a rack, in bytes.
pub const RACK_BYTES_MAX: usize = 255;

wire_struct! {
    /// The nodes that keep an island.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct IslandGroup {
        /// The island.
        pub island: IslandId,
        /// They, in the order of the ring: first those that shall keep it, and of these first the one that shall lead at first; then
        /// those that keep it until all of these have it.
        pub nodes: Vec<NodeId>,
    }
}

/// The copies of a volume's islands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copies {
    /// How many of each island there should be.
    pub wanted: u8,
    /// The node whose control store has the group records, unless all nodes reach them in another way.
    pub store: NodeId,
    /// One for each island, in the order of the islands.
    pub groups: Vec<IslandGroup>,
    /// The rack of each node, in the order of the volume's nodes. Empty if none were named.
    pub racks: Vec<String>,
    /// Nodes that get no copy, whatever happens.
    pub drained: Vec<NodeId>,
    /// For so many seconds a node may be away before another one gets its copies; none: as long as is usual.
    pub grace_s: Option<u32>,
}

impl Copies {
    /// The grace of a volume that has none of its own, in seconds.
    pub const GRACE_S: u32 = 300;

    /// Whether it says something that the first configurations with copies could not say.
    pub(crate) fn has_changed(&self) -> bool {
        !self.drained.is_empty() || self.grace_s.is_some()
    }

    pub(crate) fn encode_first(&self, out: &mut Vec<u8>) {
        (self.wanted, self.store).encode(out);
        self.groups.encode(out);
        self.racks.encode(out);
    }

    pub(crate) fn encode_changed(&self, out: &mut Vec<u8>) {
        self.drained.encode(out);
        self.grace_s.encode(out);
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let first =
            (self.wanted, self.store).encoded_len() + self.groups.encoded_len() + self.racks.encoded_len();
        let changed = self.drained.encoded_len() + self.grace_s.encoded_len();
        first + if self.has_changed() { changed } else { 0 }
    }

    pub(crate) fn decode(r: &mut Reader<'_>, has_changed: bool) -> Result<Self, Malformed> {
        let (wanted, store) = Decode::decode(r)?;
        let first =
            Self { wanted, store, groups: Decode::decode(r)?, racks: Decode::decode(r)?, ..Self::default() };
        if !has_changed {
            return Ok(first);
        }
        let all = Self { drained: Decode::decode(r)?, grace_s: Decode::decode(r)?, ..first };
        if all.has_changed() { Ok(all) } else { Err(Malformed::new("copies that say nothing of changes")) }
    }
}

impl IslandGroup {
    /// Those that are to have a copy each, of so many that are wanted. The others of the ring keep theirs until all of these are in
    /// sync.
    pub fn keepers(&self, wanted: u8) -> &[NodeId] {
        &self.nodes[..usize::from(wanted).min(self.nodes.len())]
    }
}

impl Copies {
    /// The nodes that keep `island`, or shall; none if there is no such island.
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
