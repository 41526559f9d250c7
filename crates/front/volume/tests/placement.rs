//! Volumes with copies, as they are made: who keeps which island, where the first group records are, and what is left if one of
//! the nodes cannot.
//!
//! The nodes here serve such volumes, each by itself, which the nodes of the program refuse. Nobody uses what they serve.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_control::{
    ClusterStore, ConfigStore, ControlError, ControlStore, DataDir, EmbeddedStore, GroupStore, VolumeRef,
};
use atoll_core::{Encode, IslandId, NodeId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_proto::cluster::{Cluster as List, StoredCluster};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};
use atoll_proto::{NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::{Address, Listener, Options};
use atoll_server::{Cluster, ISLANDS, Node, NodeSetup};
use atoll_volume::create::{Create, hangs_on_store};
use atoll_volume::node::{open_island, options};

/// What was put into stores, in order: the place of the node, and what.
type Noted = Arc<Mutex<Vec<(usize, &'static str)>>>;

/// A store that notes what is put in, and may have no room for groups.
struct Store {
    store: EmbeddedStore,
    at: usize,
    noted: Noted,
    is_full: bool,
}

impl Store {
    fn note(&self, what: &'static str) {
        self.noted.lock().unwrap().push((self.at, what));
    }
}

impl GroupStore for Store {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        self.store.group(volume, island)
    }

    fn swap_group(&self, volume: VolumeId, island: IslandId, at: Revision, next: &GroupRecord) -> Swapped {
        self.store.swap_group(volume, island, at, next)
    }

    fn groups(&self, of: VolumeId, since: Revision, wait: Duration) -> Result<ChangedGroups, ControlError> {
        self.store.groups(of, since, wait)
    }
}

impl ClusterStore for Store {
    fn cluster(&self) -> Result<Option<StoredCluster>, ControlError> {
        self.store.cluster()
    }

    fn swap_cluster(&self, expected: Revision, next: &List) -> Swapped {
        self.store.swap_cluster(expected, next)
    }
}

impl ConfigStore for Store {
    fn newest_config(&self, volume: VolumeId) -> Result<VolumeConfig, ControlError> {
        self.store.newest_config(volume)
    }

    fn swap_config(&self, next: &VolumeConfig, expected: u64) -> Swapped {
        self.store.swap_config(next, expected)
    }
}

impl ControlStore for Store {
    fn note_cluster(&self, list: &StoredCluster) -> Result<(), ControlError> {
        self.store.note_cluster(list)
    }

    fn volumes(&self) -> Result<Vec<VolumeConfig>, ControlError> {
        self.store.volumes()
    }

    fn volume(&self, volume: &VolumeRef) -> Result<VolumeConfig, ControlError> {
        self.store.volume(volume)
    }

    fn create_volume(&self, config: &VolumeConfig) -> Result<(), ControlError> {
        self.note("volume");
        self.store.create_volume(config)
    }

    fn replace_volume(&self, config: &VolumeConfig, expected: u64) -> Result<(), ControlError> {
        self.store.replace_volume(config, expected)
    }

    fn remove_volume(&self, id: VolumeId) -> Result<(), ControlError> {
        self.store.remove_volume(id)
    }

    fn create_groups(&self, id: VolumeId, first: &[(IslandId, GroupRecord)]) -> Result<(), ControlError> {
        if self.is_full {
            let (place, why) = ("control.redb".to_owned(), "no space left on device".to_owned());
            return Err(ControlError::Unavailable { place, why });
        }
        self.note("groups");
        self.store.create_groups(id, first)
    }

    fn discard_groups(&self, id: VolumeId) -> Result<(), ControlError> {
        let left = || self.groups(id, Revision::NONE, Duration::ZERO).unwrap().groups.len();
        let before = left();
        self.store.discard_groups(id)?;
        if before > 0 {
            assert_eq!(left(), 0);
            self.note("no groups");
        }
        Ok(())
    }
}

/// Nodes in this process.
struct Nodes {
    nodes: Vec<(tempfile::TempDir, Arc<Node>, Listener)>,
    noted: Noted,
}

impl Nodes {
    /// So many. The one at `full` has no room for groups.
    fn new(n: usize, full: Option<usize>) -> Self {
        let noted = Noted::default();
        let nodes = (0..n).map(|at| node(at, full == Some(at), &noted)).collect();
        Self { nodes, noted }
    }

    fn data(&self, at: usize) -> &Path {
        self.nodes[at].0.path()
    }

    fn addresses(&self, which: &[usize]) -> Vec<Address> {
        which.iter().map(|at| self.nodes[*at].2.address().clone()).collect()
    }

    fn create(&self, name: &str, which: &[usize], replicas: usize) -> Result<VolumeConfig, String> {
        let (nodes, racks, kind) = (self.addresses(which), Vec::new(), VolumeKind::Cluster);
        let create = Create { name: name.to_owned(), kind, nodes, islands_per_node: 1, replicas, racks };
        let created = create.run().map_err(|why| why.to_string())?;
        assert_eq!(created.late, Vec::<String>::new());
        Ok(created.config)
    }

    /// The group records of a volume that a node's store has.
    fn groups(&self, at: usize, volume: VolumeId) -> Vec<StoredGroup> {
        let store = &self.nodes[at].1;
        let order = atoll_proto::Control::Groups { volume, since: Revision::NONE, wait_ms: 0 };
        match atoll_server::Desk::answer(&**store, order) {
            atoll_proto::ControlReply::Groups { changed } => changed.groups,
            other => panic!("{other:?}"),
        }
    }

    /// Nothing of any volume is at these nodes.
    fn have_nothing(&self, which: &[usize]) {
        for at in which {
            assert_eq!(self.nodes[*at].1.names(), Vec::<String>::new());
            let left = std::fs::read_dir(self.data(*at).join(ISLANDS)).map_or(0, Iterator::count);
            assert_eq!(left, 0, "node {at} has folders of a volume that was not made");
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (_, node, listener) in &mut self.nodes {
            listener.stop();
            node.stop();
        }
    }
}

fn node(at: usize, is_full: bool, noted: &Noted) -> (tempfile::TempDir, Arc<Node>, Listener) {
    let data = tempfile::tempdir().unwrap();
    let mut dir = DataDir::open_or_create(data.path()).unwrap();
    let incarnation = dir.begin_incarnation().unwrap();
    let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE)).unwrap();
    let prepared = EmbeddedStore::open(&dir.path().join("prepared.redb")).unwrap();
    let (shelf, options) = (Arc::new(open_island), options(&dir, incarnation));
    let beside = Arc::new(|folder: &Path| RealDisk::open(folder).map(Arc::new));
    let cluster = Arc::new(Cluster { options, shelf, beside, fills: Arc::default() });
    let node = Node::new(NodeSetup {
        sites: Default::default(),
        identity: dir.identity(),
        incarnation,
        data: data.path().to_owned(),
        store: Arc::new(Store { store, at, noted: Arc::clone(noted), is_full }),
        prepared: Box::new(prepared),
        secured: None,
        kinds: Box::new(move |_| Ok(Arc::clone(&cluster) as _)),
    });
    let node = node.unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::start(&any, Arc::clone(&node) as _, Options::default()).unwrap();
    (data, node, listener)
}

#[test]
fn a_volume_with_copies_has_its_first_groups_before_any_node_has_the_volume() {
    let nodes = Nodes::new(4, None);
    let config = nodes.create("home", &[0, 1, 2, 3], 2).unwrap();
    let groups = nodes.groups(0, config.id);
    assert_eq!(groups.len(), 3, "one for each island");
    for stored in &groups {
        let (record, group) = (&stored.record, config.group_of(stored.island));
        // One of them may lead already.
        assert_eq!((record.wanted, record.power_cut), (2, false));
        assert!(record.in_sync.iter().all(|seat| group.contains(&seat.node) && seat.tenure == 1));
        assert_eq!((record.in_sync.len(), group.len()), (2, 2));
        assert!(!group.contains(&NodeId(0)), "the node with the store keeps no island");
    }
    assert!((1..4).all(|at| nodes.groups(at, config.id).is_empty()), "only the volume's store has groups");
    // Nodes that hear of the volume from others activate it before they are told.
    let mut noted = nodes.noted.lock().unwrap().clone();
    noted[2..].sort_unstable();
    assert_eq!(noted, [(0, "groups"), (0, "volume"), (1, "volume"), (2, "volume"), (3, "volume")]);
    assert!(nodes.nodes.iter().all(|(_, node, _)| node.names() == ["home"]));
    let [what, then] = hangs_on_store(&config).unwrap();
    assert!(what.contains(&nodes.addresses(&[0])[0].to_string()) && what.contains("no copies"), "{what}");
    assert!(then.contains("serve on"), "{then}");
}

#[test]
fn with_as_many_nodes_as_copies_the_one_with_the_store_is_named_as_the_one_that_must_not_be_lost() {
    let nodes = Nodes::new(2, None);
    let config = nodes.create("home", &[0, 1], 2).unwrap();
    assert_eq!(config.islands_at(NodeId(0)), config.islands());
    assert!(hangs_on_store(&config).unwrap()[0].contains("must not be lost"));
}

#[test]
fn if_the_first_groups_cannot_be_stored_nothing_stays() {
    let nodes = Nodes::new(3, Some(0));
    let why = nodes.create("home", &[0, 1, 2], 2).unwrap_err();
    assert!(why.contains("not made") && why.contains("no space left"), "{why}");
    nodes.have_nothing(&[0, 1, 2]);
    // The name is free, and a volume without copies needs no groups.
    let config = nodes.create("home", &[0, 1, 2], 1).unwrap();
    assert_eq!(config.copies, None);
}

#[test]
fn if_a_node_behind_that_of_the_store_refuses_the_groups_go_too() {
    let nodes = Nodes::new(3, None);
    nodes.create("home", &[2], 1).unwrap();
    let why = nodes.create("home", &[0, 1, 2], 2).unwrap_err();
    assert!(why.contains("not made") && why.contains("already"), "{why}");
    nodes.have_nothing(&[0, 1]);
    let noted = nodes.noted.lock().unwrap().clone();
    assert_eq!(noted, [(2, "volume"), (0, "groups"), (0, "no groups")]);
}

#[test]
fn a_node_of_another_cluster_is_refused_and_one_of_the_same_is_not() {
    let nodes = Nodes::new(4, None);
    nodes.create("home", &[0, 1], 2).unwrap();
    for which in [[2, 1], [2, 0], [1, 0]] {
        let why = nodes.create("work", &which, 2).unwrap_err();
        assert!(why.contains("another cluster") && why.contains("home"), "{which:?}: {why}");
        assert!(why.contains("Name nodes of one cluster"), "{why}");
    }
    nodes.have_nothing(&[2, 3]);
    nodes.create("work", &[0, 2, 1], 2).unwrap();
    // Volumes without copies bind nobody to a store.
    nodes.create("alone", &[3, 1], 1).unwrap();
    nodes.create("other", &[0, 3], 2).unwrap();
}

#[test]
fn without_copies_a_volume_is_what_it_always_was() {
    let nodes = Nodes::new(3, None);
    let addresses = nodes.addresses(&[0, 1, 2]);
    let (name, kind) = ("home".to_owned(), VolumeKind::Cluster);
    let create = Create {
        name: name.clone(),
        kind,
        nodes: addresses.clone(),
        islands_per_node: 2,
        replicas: 1,
        racks: Vec::new(),
    };
    let config = create.run().unwrap().config;
    let node = |at: u16| NodeConfig {
        daemon: 0,
        node: NodeId(at),
        address: addresses[usize::from(at)].to_string(),
        islands: vec![IslandId(2 * at), IslandId(2 * at + 1)],
    };
    let (id, seed, table) = (config.id, config.seed, Table::new(6));
    let expected = VolumeConfig {
        id,
        name,
        seed,
        table,
        nodes: (0..3).map(node).collect(),
        kind,
        copies: None,
        site: None,
    };
    assert_eq!(config, expected);
    assert_eq!(config.to_vec().last(), Some(&1), "its bytes end with the kind");
    assert_eq!(hangs_on_store(&config), None);
    assert!(nodes.noted.lock().unwrap().iter().all(|(_, what)| *what == "volume"));
}
