//! The configuration of a volume, as the control store has it.

use atoll_core::{Decode, Encode, IslandId, Key, Malformed, NodeId, Reader, Table, VolumeId};

use crate::copies::Copies;
use crate::site::SiteSettings;

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

/// A node of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its number in this volume.
    pub node: NodeId,
    /// Its daemon, which its certificate names; 0 in a cluster without certificates.
    pub daemon: u64,
    /// Its address, `HOST:PORT`; empty if it only serves its own process.
    pub address: String,
    /// The islands that it holds; in a volume with copies those that it shall lead at first.
    pub islands: Vec<IslandId>,
}

/// Bytes that stay free on a disk of so many bytes, for logs and checkpoints: islands refuse to grow
/// files when only these are left, so that a full disk stays one on which things can be removed.
pub const fn reserve_bytes(disk_bytes: u64) -> u64 {
    /// Bytes that stay free on a large disk.
    const LARGE: u64 = 256 << 20;
    let part = disk_bytes / 32;
    if part < LARGE { part } else { LARGE }
}

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
    /// The copies of its islands. None: one node keeps each island, and its group is only that one. Only cluster volumes
    /// have some.
    pub copies: Option<Copies>,
    /// What this site of the volume is. Only wide volumes have some.
    pub site: Option<SiteSettings>,
}

/// Stands in front of the kind of a volume whose nodes have certificates. The daemon of each node comes between. So a volume
/// without them has the bytes that it had before there were any.
const WITH_DAEMONS: u8 = 5;

/// Stands in the place of the kind of a cluster volume with copies, which follow behind it. So a volume without copies has the
/// bytes that it had before there were any.
const WITH_COPIES: u8 = 4;

/// The same, and behind the copies the nodes that are drained, and the grace. So copies that say nothing of both have the bytes that
/// they had before.
const WITH_CHANGED_COPIES: u8 = 6;

/// Stands in the place of the kind of a wide volume, and behind it what the site is.
const WITH_SITE: u8 = 7;

impl Encode for VolumeConfig {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.name.encode(out);
        self.seed.encode(out);
        self.table.encode(out);
        (self.nodes.len() as u32).encode(out);
        for node in &self.nodes {
            (node.node, &node.address).encode(out);
            node.islands.encode(out);
        }
        if let Some(daemons) = self.daemons() {
            out.push(WITH_DAEMONS);
            daemons.encode(out);
        }
        match (&self.copies, &self.site) {
            (None, None) => self.kind.encode(out),
            (None, Some(site)) => {
                assert_eq!(self.kind, VolumeKind::Wide, "only wide volumes have sites");
                out.push(WITH_SITE);
                site.encode(out);
            }
            (Some(copies), _) => {
                assert_eq!(self.kind, VolumeKind::Cluster, "only cluster volumes have copies");
                out.push(if copies.has_changed() { WITH_CHANGED_COPIES } else { WITH_COPIES });
                copies.encode_first(out);
                if copies.has_changed() {
                    copies.encode_changed(out);
                }
            }
        }
    }

    fn encoded_len(&self) -> usize {
        let Self { id, name, seed, table, nodes, kind, copies, site } = self;
        let first = id.encoded_len() + name.encoded_len() + seed.encoded_len();
        let of_node = |n: &NodeConfig| (n.node, &n.address).encoded_len() + n.islands.encoded_len();
        let nodes = 0_u32.encoded_len() + nodes.iter().map(of_node).sum::<usize>();
        let daemons = self.daemons().map_or(0, |daemons| 1 + daemons.encoded_len());
        let then = table.encoded_len() + nodes + daemons + kind.encoded_len();
        let site = site.as_ref().map_or(0, Encode::encoded_len);
        first + then + site + copies.as_ref().map_or(0, Copies::encoded_len)
    }
}

impl Decode for VolumeConfig {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (id, name, seed) = (Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?);
        let (table, nodes) = (Decode::decode(r)?, Vec::<((NodeId, String), Vec<IslandId>)>::decode(r)?);
        let node = |((node, address), islands)| NodeConfig { node, daemon: 0, address, islands };
        let mut nodes: Vec<NodeConfig> = nodes.into_iter().map(node).collect();
        let mut kind = VolumeKind::decode(r)?;
        if kind == VolumeKind::Unknown(WITH_DAEMONS) {
            let daemons = Vec::<u64>::decode(r)?;
            if daemons.len() != nodes.len() || daemons.iter().all(|daemon| *daemon == 0) {
                return Err(Malformed::new("daemons of a volume's nodes"));
            }
            nodes.iter_mut().zip(daemons).for_each(|(node, daemon)| node.daemon = daemon);
            kind = VolumeKind::decode(r)?;
        }
        let (kind, copies, site) = match kind {
            VolumeKind::Unknown(tag @ (WITH_COPIES | WITH_CHANGED_COPIES)) => {
                (VolumeKind::Cluster, Some(Copies::decode(r, tag == WITH_CHANGED_COPIES)?), None)
            }
            VolumeKind::Unknown(WITH_SITE) => (VolumeKind::Wide, None, Some(SiteSettings::decode(r)?)),
            kind => (kind, None, None),
        };
        Ok(Self { id, name, seed, table, nodes, kind, copies, site })
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
    /// That islands have groups.
    Copies,
    /// Which site of the volume it is.
    Site,
}

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Volume => "a volume in use keeps its id, name, seed and kind",
            Self::Islands => "a volume in use keeps its islands",
            Self::Owners => "directories do not move to other islands while a volume is in use",
            Self::Site => "a site keeps its number and its name",
            Self::Copies => "a volume whose islands have groups keeps them, also with one copy of each",
        })
    }
}

impl VolumeConfig {
    /// Whether `next` is a newer configuration than this one, which may take its place while the volume is in use: other
    /// nodes, at other addresses, with other islands, more or fewer copies, and more or fewer buckets of the table. The version of the
    /// table is that of the whole configuration.
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
        if self.copies.is_some() && next.copies.is_none() {
            return Err(Fixed::Copies);
        }
        let which = |config: &Self| config.site.as_ref().map(|site| (site.site, site.name.clone()));
        if which(self) != which(next) {
            return Err(Fixed::Site);
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

    /// The daemons of the nodes, in their order; none in a cluster without certificates.
    fn daemons(&self) -> Option<Vec<u64>> {
        let daemons: Vec<u64> = self.nodes.iter().map(|node| node.daemon).collect();
        daemons.iter().any(|daemon| *daemon != 0).then_some(daemons)
    }

    /// The daemon of a node; 0 if it has no certificate.
    pub fn daemon_of(&self, node: NodeId) -> Option<u64> {
        self.nodes.iter().find(|n| n.node == node).map(|n| n.daemon)
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

    /// The node that holds `island`, or shall lead it at first.
    pub fn node_of(&self, island: IslandId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|n| n.islands.contains(&island))
    }

    /// The nodes that keep `island`, or shall, in the order of the ring: first [`Self::node_of`]. None if there is no such island.
    pub fn group_of(&self, island: IslandId) -> Vec<NodeId> {
        match &self.copies {
            Some(copies) => copies.group_of(island).to_vec(),
            None => self.node_of(island).map(|n| n.node).into_iter().collect(),
        }
    }

    /// The islands that a node keeps, or shall, in order.
    pub fn islands_at(&self, node: NodeId) -> Vec<IslandId> {
        let mut islands: Vec<IslandId> = match &self.copies {
            Some(copies) => {
                let its = copies.groups.iter().filter(|group| group.nodes.contains(&node));
                its.map(|group| group.island).collect()
            }
            None => {
                let its = self.nodes.iter().find(|n| n.node == node);
                its.map(|n| n.islands.clone()).unwrap_or_default()
            }
        };
        islands.sort_unstable();
        islands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::IslandGroup;

    fn config(kind: VolumeKind) -> VolumeConfig {
        let (id, name, table) = (VolumeId(7), "home".to_owned(), Table::new(1));
        VolumeConfig { id, name, seed: 9, table, nodes: Vec::new(), kind, copies: None, site: None }
    }

    /// Three nodes, of which two keep two islands and one has the store.
    fn with_copies() -> VolumeConfig {
        let node = |node, islands: &[u16]| NodeConfig {
            daemon: 0,
            node: NodeId(node),
            address: format!("host{node}:1"),
            islands: islands.iter().map(|island| IslandId(*island)).collect(),
        };
        let group = |island, nodes: [u16; 2]| IslandGroup {
            island: IslandId(island),
            nodes: nodes.map(NodeId).to_vec(),
        };
        let groups = vec![group(0, [1, 2]), group(1, [2, 1])];
        let copies =
            Some(Copies { wanted: 2, store: NodeId(0), groups, racks: Vec::new(), ..Copies::default() });
        let nodes = vec![node(0, &[]), node(1, &[0]), node(2, &[1])];
        VolumeConfig { table: Table::new(2), nodes, copies, ..config(VolumeKind::Cluster) }
    }

    #[test]
    fn a_volume_with_copies_has_a_group_for_each_island_and_one_without_has_its_node() {
        let (with, nobody) = (with_copies(), Vec::<NodeId>::new());
        assert_eq!(with.group_of(IslandId(1)), [NodeId(2), NodeId(1)]);
        assert_eq!(with.islands_at(NodeId(1)), [IslandId(0), IslandId(1)]);
        assert_eq!((with.islands_at(NodeId(0)), with.group_of(IslandId(2))), (Vec::new(), nobody.clone()));
        let without = VolumeConfig { copies: None, ..with };
        assert_eq!(without.group_of(IslandId(1)), [NodeId(2)]);
        assert_eq!(
            (without.islands_at(NodeId(2)), without.group_of(IslandId(2))),
            (vec![IslandId(1)], nobody)
        );
    }

    #[test]
    fn copies_come_back_as_they_went_and_whoever_does_not_know_them_finds_a_newer_volume() {
        let with = with_copies();
        let bytes = with.to_vec();
        assert_eq!(VolumeConfig::from_stored(&bytes), Ok(with.clone()));
        assert_eq!(bytes.len(), with.encoded_len());
        let without = VolumeConfig { copies: None, ..with.clone() }.to_vec();
        assert_eq!(
            bytes[..without.len() - 1],
            without[..without.len() - 1],
            "what was there stays where it was"
        );
        // A program from before there were copies reads a kind that it does not know, and bytes behind it.
        assert_eq!(
            VolumeKind::from_slice(&bytes[without.len() - 1..without.len()]),
            Ok(VolumeKind::Unknown(4))
        );
        let newer = Err(BadConfig::Newer { volume: "home".to_owned() });
        assert_eq!(VolumeConfig::from_stored(&[&bytes[..], &[0]].concat()), newer);
        let mut changed = with.clone();
        changed.copies.as_mut().unwrap().grace_s = Some(7);
        changed.copies.as_mut().unwrap().drained = vec![NodeId(2)];
        assert_eq!(VolumeConfig::from_stored(&changed.to_vec()), Ok(changed.clone()));
        assert_eq!(changed.to_vec().len(), changed.encoded_len());
        assert!(VolumeConfig::from_stored(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn the_first_record_of_a_group_is_one_that_a_group_can_have() {
        let copies = with_copies().copies.unwrap();
        let record = copies.first_record(&copies.groups[1]);
        let seat = |node| crate::group::Seat { node: NodeId(node), tenure: 1 };
        assert_eq!(record.check(), Ok(()));
        assert_eq!((record.epoch, record.primary, record.wanted), (0, None, 2));
        assert_eq!(record.in_sync, [seat(1), seat(2)]);
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
            daemon: 0,
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
            VolumeConfig { kind: VolumeKind::Wide, ..moved.clone() },
        ] {
            assert_eq!(first.is_replaced_by(&other), Err(Fixed::Volume));
        }
        let grouped = VolumeConfig { copies: with_copies().copies, ..moved.clone() };
        assert_eq!(first.is_replaced_by(&grouped), Ok(true));
        let again = VolumeConfig { table: moved.table.reassigned([]), ..moved };
        assert_eq!(grouped.is_replaced_by(&again), Err(Fixed::Copies));
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
