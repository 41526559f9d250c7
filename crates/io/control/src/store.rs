//! The operations of a control store, whichever keeps it: one file for one machine, etcd for several.
//!
//! A change is a compare-and-swap on the version of the volume's table. If two administrators change the same
//! volume, one of them is told.

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_proto::cluster::StoredCluster;
use atoll_proto::copies::RACK_BYTES_MAX;
use atoll_proto::group::{GROUP_MEMBERS_MAX, Revision, Swapped};
use atoll_proto::{Copies, GroupRecord, VolumeConfig, VolumeKind};

use crate::cluster::ClusterStore;
use crate::groups::GroupStore;
use crate::source::{SourceError, check_volume_name};

/// A reference to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeRef {
    /// By its id.
    Id(VolumeId),
    /// By its name.
    Name(String),
}

impl From<VolumeId> for VolumeRef {
    fn from(id: VolumeId) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for VolumeRef {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl std::fmt::Display for VolumeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{:016x}", id.0),
            Self::Name(name) => write!(f, "\"{}\"", name.escape_debug()),
        }
    }
}

/// Why the control store did not carry out a request. Nothing has changed, except that after `Unavailable` a
/// change may have been made: read before you try again.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No such volume.
    #[error("There is no volume {volume}.\n\"atoll volume list\" shows those that there are.")]
    NotFound {
        /// The volume.
        volume: VolumeRef,
    },
    /// Another volume has the name or id.
    #[error("There is a volume {volume} already.\nChoose another name.")]
    Taken {
        /// The name or id.
        volume: VolumeRef,
    },
    /// Another change was faster.
    #[error(
        "Volume {volume} was changed meanwhile: it is at version {found}, not {expected}.\n\
        Look at it again, then repeat the change."
    )]
    Conflict {
        /// The volume.
        volume: VolumeRef,
        /// The version that the change was made for.
        expected: u64,
        /// The version that the volume has.
        found: u64,
    },
    /// The configuration contradicts itself.
    #[error("Volume {volume} cannot be stored: {why}.")]
    Invalid {
        /// The volume.
        volume: VolumeRef,
        /// The reason.
        why: String,
    },
    /// The store cannot be reached, or its disk fails.
    #[error(
        "The control store {place} is not available: {why}.\n\
        Serving goes on; volumes and nodes cannot be changed until it is back."
    )]
    Unavailable {
        /// The store.
        place: String,
        /// The system's error.
        why: String,
    },
    /// The store was written by a newer version.
    #[error(
        "The control store {place} has format {theirs}; this program knows formats up to {ours}.\n\
        Use the version of atoll that wrote it, or a newer one."
    )]
    Newer {
        /// The store.
        place: String,
        /// The newest format that this program reads.
        ours: u64,
        /// The format that was found.
        theirs: u64,
    },
    /// A newer version wrote the configuration of a volume.
    #[error(
        "The control store {place} was written by a newer atoll: the configuration of volume {volume} has more in it\n\
        than this program knows. Use the version of atoll that wrote it, or a newer one."
    )]
    NewerVolume {
        /// The store.
        place: String,
        /// The volume.
        volume: String,
    },
    /// The store holds bytes that this program never writes.
    #[error(
        "The control store {place} is damaged: {why}.\n\
        Restore the file from a backup; the volumes' own data is not affected."
    )]
    Damaged {
        /// The store.
        place: String,
        /// A description of them.
        why: String,
    },
}

/// The newest configuration of a volume, which one place has, so that it can be changed while the volume is in use.
pub trait ConfigStore: Send + Sync {
    /// It; `NotFound` if there is no such volume.
    fn newest_config(&self, volume: VolumeId) -> Result<VolumeConfig, ControlError>;

    /// Puts `next` in its place, if that still has version `expected`. The revision of what is done is the version of `next`.
    fn swap_config(&self, next: &VolumeConfig, expected: u64) -> Swapped;
}

/// What came of [`ControlStore::replace_volume`], told as a swap.
pub fn swapped(next: &VolumeConfig, replaced: Result<(), ControlError>) -> Swapped {
    match replaced {
        Ok(()) => Swapped::Done { revision: Revision(next.table.version()) },
        Err(ControlError::Conflict { .. }) => Swapped::Conflict,
        Err(why) => Swapped::Unknown { why: why.to_string() },
    }
}

/// Keeps the facts on which all nodes of a cluster must agree. May be called from many threads at once; any
/// call may wait for a disk or a network.
pub trait ControlStore: GroupStore + ClusterStore + ConfigStore {
    /// All volumes, in the order of their names.
    fn volumes(&self) -> Result<Vec<VolumeConfig>, ControlError>;

    /// One volume; `NotFound` if there is none.
    fn volume(&self, volume: &VolumeRef) -> Result<VolumeConfig, ControlError>;

    /// Adds a volume; `Taken` if there is one of that name or id.
    fn create_volume(&self, config: &VolumeConfig) -> Result<(), ControlError>;

    /// Changes a volume, which may change its name, if its table still has version `expected`;
    /// otherwise `Conflict`. The new table's version must be greater, whatever has changed:
    /// [`Table::reassigned`](atoll_core::Table::reassigned) without moves makes one.
    fn replace_volume(&self, config: &VolumeConfig, expected: u64) -> Result<(), ControlError>;

    /// Forgets a volume; `NotFound` if there is none. Its files stay where they are.
    fn remove_volume(&self, id: VolumeId) -> Result<(), ControlError>;

    /// Forgets a volume that other nodes go on with, and whose group records they need.
    fn leave_volume(&self, id: VolumeId) -> Result<(), ControlError> {
        self.remove_volume(id)
    }

    /// Puts in the first records of the groups of a volume that is being made. `Taken` if it has records already. Before it has
    /// answered, some of them may be there without the others.
    fn create_groups(&self, id: VolumeId, first: &[(IslandId, GroupRecord)]) -> Result<(), ControlError>;

    /// Forgets the records of a volume that was not made after all. Those of a volume that the store has stay.
    fn discard_groups(&self, id: VolumeId) -> Result<(), ControlError>;

    /// Notes the cluster's list as the node that keeps it has told it, unless a later one is known.
    fn note_cluster(&self, list: &StoredCluster) -> Result<(), ControlError>;

    /// Where the records of groups are, for people, if each node of the cluster reaches the same ones by its own store. Otherwise a
    /// volume names the node that has them, and that one serves them to the others.
    fn for_all(&self) -> Option<String> {
        None
    }
}

/// Refuses a volume that contradicts itself, before it is stored for everybody.
pub fn check_config(config: &VolumeConfig) -> Result<(), ControlError> {
    let invalid = |why: String| ControlError::Invalid { volume: VolumeRef::Name(config.name.clone()), why };
    check_volume_name(&config.name).map_err(|e: SourceError| invalid(e.why.to_owned()))?;
    let islands = config.islands();
    if let Some(twice) = islands.windows(2).find(|w| w[0] == w[1]) {
        return Err(invalid(format!("island {} is on two nodes", twice[0])));
    }
    if let Some(owner) = config.table.owners().iter().find(|o| islands.binary_search(o).is_err()) {
        return Err(invalid(format!("its table names island {owner}, which no node holds")));
    }
    let mut nodes: Vec<_> = config.nodes.iter().map(|n| n.node).collect();
    nodes.sort_unstable();
    if let Some(twice) = nodes.windows(2).find(|w| w[0] == w[1]) {
        return Err(invalid(format!("it has two nodes with the number {}", twice[0])));
    }
    for node in config.nodes.iter().filter(|n| !n.address.is_empty()) {
        let parsed: Result<atoll_rpc::Address, _> = node.address.parse();
        parsed
            .map_err(|e| invalid(format!("\"{}\" of node {} is no address: {}", e.text, node.node, e.why)))?;
    }
    config.copies.as_ref().map_or(Ok(()), |copies| check_copies(config, &nodes, copies).map_err(invalid))
}

/// Refuses groups that contradict themselves or the nodes, which are `nodes` in order: each island has one group of as many
/// nodes as copies are wanted, or more, and its first node has it among those that it leads.
fn check_copies(config: &VolumeConfig, nodes: &[NodeId], copies: &Copies) -> Result<(), String> {
    let wanted = usize::from(copies.wanted);
    if config.kind != VolumeKind::Cluster {
        return Err(format!("volumes of the kind {} have no copies", config.kind));
    }
    if !(1..=GROUP_MEMBERS_MAX).contains(&wanted) {
        return Err(format!("it wants {wanted} copies, and 1 to {GROUP_MEMBERS_MAX} are possible"));
    }
    if nodes.binary_search(&copies.store).is_err() {
        return Err(format!("its control store is on node {}, which it has not", copies.store));
    }
    if !copies.racks.is_empty() && copies.racks.len() != config.nodes.len() {
        return Err(format!("it names {} racks for {} nodes", copies.racks.len(), config.nodes.len()));
    }
    if let Some(rack) = copies.racks.iter().find(|rack| rack.is_empty() || rack.len() > RACK_BYTES_MAX) {
        return Err(format!(
            "a rack's name has {} bytes, and 1 to {RACK_BYTES_MAX} are possible",
            rack.len()
        ));
    }
    if copies.groups.iter().map(|group| group.island).ne(config.islands()) {
        return Err("it has not one group for each island, in their order".to_owned());
    }
    if let Some(node) = copies.drained.iter().find(|node| nodes.binary_search(node).is_err()) {
        return Err(format!("node {node} is drained, which it has not"));
    }
    for group in &copies.groups {
        let mut members = group.nodes.clone();
        members.sort_unstable();
        members.dedup();
        let wrong = if members.len() != group.nodes.len() || members.len() < wanted {
            format!("is not of {wanted} different nodes or more")
        } else if members.len() > GROUP_MEMBERS_MAX {
            format!("has {} nodes, and {GROUP_MEMBERS_MAX} are possible", members.len())
        } else if let Some(node) = members.iter().find(|node| nodes.binary_search(node).is_err()) {
            format!("has node {node}, which the volume has not")
        } else if config.node_of(group.island).map(|n| n.node) != group.nodes.first().copied() {
            format!("begins with node {}, which does not lead it", group.nodes[0])
        } else {
            continue;
        };
        return Err(format!("the group of island {} {wrong}", group.island));
    }
    Ok(())
}
