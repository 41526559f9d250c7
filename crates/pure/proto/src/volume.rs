//! The configuration of a volume, as the control store has it.

use atoll_core::{Decode, Encode, IslandId, Key, Malformed, NodeId, Reader, Table, VolumeId, wire_struct};

/// What a volume promises, and so what serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeKind {
    /// Directories are spread over islands; every operation is atomic and seen in one order.
    #[default]
    Cluster,
    /// Native trees shown as one.
    Union,
    /// The whole tree at every site, read and written also when cut off.
    Wide,
    /// A kind of a newer version, by its tag: it is kept and shown, and refused by whoever would open it.
    Unknown(u8),
}

impl VolumeKind {
    /// The kinds that have a name.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Union, Self::Wide];

    /// Its name; kinds that are not known have none of their own.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Union => "union",
            Self::Wide => "wide",
            Self::Unknown(_) => "unknown",
        }
    }

    const fn tag(self) -> u8 {
        match self {
            Self::Cluster => 1,
            Self::Union => 2,
            Self::Wide => 3,
            Self::Unknown(tag) => tag,
        }
    }
}

impl std::fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(tag) => write!(f, "{}-{tag}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl Encode for VolumeKind {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
    }

    fn encoded_len(&self) -> usize {
        1
    }
}

impl Decode for VolumeKind {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let tag = u8::decode(r)?;
        let known = Self::ALL.into_iter().find(|kind| kind.tag() == tag);
        Ok(known.unwrap_or(Self::Unknown(tag)))
    }
}

wire_struct! {
    /// A node of a volume.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeConfig {
        /// Its number in this volume.
        pub node: NodeId,
        /// Its address, `HOST:PORT`; empty if it only serves its own process.
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
        /// The table of owners.
        pub table: Table,
        /// Its nodes.
        pub nodes: Vec<NodeConfig>,
        /// Its contract.
        pub kind: VolumeKind,
    }
}

/// Why a stored configuration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadConfig {
    /// It is no configuration.
    Malformed(Malformed),
    /// It is whole, and has more behind its end: a newer version adds there what a volume needs.
    Newer {
        /// The volume's name.
        volume: String,
    },
}

/// The part of a volume's configuration that cannot change while the volume is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fixed {
    /// Which volume it is: id, name, seed and kind.
    Volume,
    /// Which islands there are.
    Islands,
    /// Which island owns a directory.
    Owners,
}

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Volume => "a volume in use keeps its id, name, seed and kind",
            Self::Islands => "a volume in use keeps its islands",
            Self::Owners => "directories do not move to other islands while a volume is in use",
        })
    }
}

impl VolumeConfig {
    /// Whether `next` is a newer configuration than this one, which may take its place while the volume is in use: other
    /// nodes, at other addresses, with other islands, and more or fewer buckets of the table. The version of the table is
    /// that of the whole configuration.
    pub fn is_replaced_by(&self, next: &Self) -> Result<bool, Fixed> {
        let same = |config: &Self| (config.id, config.name.clone(), config.seed, config.kind);
        if same(self) != same(next) {
            return Err(Fixed::Volume);
        }
        if self.islands() != next.islands() {
            return Err(Fixed::Islands);
        }
        if !next.table.has_owners_of(&self.table) {
            return Err(Fixed::Owners);
        }
        Ok(next.table.version() > self.table.version())
    }

    /// Reads the bytes of a control store or of a volume's folder. A configuration that ends before the kind
    /// was written before there were kinds, and is a cluster volume's.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, BadConfig> {
        Self::from_slice(bytes).or_else(|why| {
            if let Ok(config) = Self::decode(&mut Reader::new(bytes)) {
                return Err(BadConfig::Newer { volume: config.name });
            }
            // Nothing but the kind may be missing.
            let with_kind = [bytes, &VolumeKind::Cluster.to_vec()].concat();
            Self::from_slice(&with_kind).map_err(|_| BadConfig::Malformed(why))
        })
    }

    /// All islands, in order.
    pub fn islands(&self) -> Vec<IslandId> {
        let mut all: Vec<_> = self.nodes.iter().flat_map(|n| n.islands.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// The island that owns a directory with this placement key.
    pub fn owner(&self, key: Key) -> IslandId {
        self.table.owner(key)
    }

    /// The node that holds `island`.
    pub fn node_of(&self, island: IslandId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|n| n.islands.contains(&island))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: VolumeKind) -> VolumeConfig {
        let (id, name, table) = (VolumeId(7), "home".to_owned(), Table::new(1));
        VolumeConfig { id, name, seed: 9, table, nodes: Vec::new(), kind }
    }

    #[test]
    fn a_stored_configuration_without_a_kind_is_a_cluster_volumes() {
        let mut bytes = config(VolumeKind::Cluster).to_vec();
        bytes.pop();
        assert_eq!(VolumeConfig::from_stored(&bytes), Ok(config(VolumeKind::Cluster)));
        assert!(VolumeConfig::from_slice(&bytes).is_err(), "in a message the kind is always there");
        bytes.pop();
        assert!(VolumeConfig::from_stored(&bytes).is_err(), "nothing else may be missing");
    }

    #[test]
    fn a_stored_configuration_with_more_in_it_is_a_newer_one() {
        for kind in [VolumeKind::Cluster, VolumeKind::Unknown(250)] {
            let bytes = [&config(kind).to_vec()[..], b"settings"].concat();
            let newer = BadConfig::Newer { volume: "home".to_owned() };
            assert_eq!(VolumeConfig::from_stored(&bytes), Err(newer));
        }
        assert!(matches!(VolumeConfig::from_stored(b"none"), Err(BadConfig::Malformed(_))));
    }

    #[test]
    fn a_volume_in_use_may_get_other_nodes_and_nothing_else() {
        let node = |node, islands: &[u16]| NodeConfig {
            node: NodeId(node),
            address: format!("host{node}:1"),
            islands: islands.iter().map(|island| IslandId(*island)).collect(),
        };
        let with = |table, nodes| VolumeConfig { table, nodes, ..config(VolumeKind::Cluster) };
        let first = with(Table::new(2), vec![node(0, &[0]), node(1, &[1])]);
        let moved = with(first.table.reassigned([]), vec![node(0, &[0]), node(7, &[1])]);
        assert_eq!(first.is_replaced_by(&moved), Ok(true));
        assert_eq!(first.is_replaced_by(&with(first.table.doubled(), moved.nodes.clone())), Ok(true));
        assert_eq!((moved.is_replaced_by(&first), first.is_replaced_by(&first)), (Ok(false), Ok(false)));
        let fewer = VolumeConfig { nodes: vec![node(0, &[0])], ..moved.clone() };
        assert_eq!(first.is_replaced_by(&fewer), Err(Fixed::Islands));
        let bucket = atoll_core::table::Bucket(0);
        let given = VolumeConfig { table: first.table.reassigned([(bucket, IslandId(1))]), ..moved.clone() };
        assert_eq!(first.is_replaced_by(&given), Err(Fixed::Owners));
        for other in [
            VolumeConfig { seed: 10, ..moved.clone() },
            VolumeConfig { id: VolumeId(8), ..moved.clone() },
            VolumeConfig { name: "work".to_owned(), ..moved.clone() },
            VolumeConfig { kind: VolumeKind::Wide, ..moved },
        ] {
            assert_eq!(first.is_replaced_by(&other), Err(Fixed::Volume));
        }
    }

    #[test]
    fn every_kind_comes_back_as_it_went_also_one_of_a_newer_version() {
        for kind in VolumeKind::ALL.into_iter().chain([VolumeKind::Unknown(0), VolumeKind::Unknown(250)]) {
            let bytes = config(kind).to_vec();
            assert_eq!(VolumeConfig::from_stored(&bytes), Ok(config(kind)));
            assert_eq!(bytes.len(), config(kind).encoded_len());
        }
    }
}
