//! A node of its own in a folder of its own, for the tests of this crate's parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use atoll_client::Sink;
use atoll_control::{ControlStore, EmbeddedStore};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_proto::group::Seat;
use atoll_proto::{Copies, IslandGroup, NodeConfig, Notice, Reply, VolumeConfig, VolumeKind};
use atoll_rpc::DaemonId;
use tempfile::TempDir;

use crate::copies::CopiesSetup;
use crate::served::LocalWay;
use crate::volume::{Volume, VolumeError, VolumeOptions};

pub(crate) const HERE: IslandId = IslandId(0);
pub(crate) const COMES: IslandId = IslandId(1);
const ME: NodeId = NodeId(0);
/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A client, which hears who leads.
struct Client(Sender<IslandId>);

impl Sink for Client {
    fn reply(&self, _: IslandId, _: u64, _: Reply, _: &[u8]) {}
    fn notice(&self, _: IslandId, _: Notice) {}
    fn reachable(&self, _: IslandId, _: bool) {}
    fn replaced(&self, _: IslandId) {}
    fn leads(&self, island: IslandId, _: u32) {
        let _ = self.0.send(island);
    }
}

/// The only node of a volume, which leads one island with a group. Another one, of which it has the only seat, comes later.
pub(crate) struct Alone {
    pub(crate) volume: Arc<Volume<RealDisk>>,
    options: VolumeOptions,
    /// Islands that can be asked from here on, as a client hears.
    led: Receiver<IslandId>,
    data: TempDir,
}

impl Alone {
    pub(crate) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let options = VolumeOptions {
            beside: None,
            sites: Default::default(),
            rows_max: 10_000,
            snapshot_cache_bytes: 1 << 20,
            log: atoll_log::Config { segment_bytes: 8 << 20, ..atoll_log::Config::default() },
            root: false,
            devices: false,
            owner: (0, 0),
            daemon: DaemonId(1),
            incarnation: 1,
            directory: 1,
            is_new: true,
            reached: BTreeMap::new(),
        };
        let group = |island, node| IslandGroup { island, nodes: vec![node] };
        let copies =
            Copies { wanted: 1, groups: vec![group(HERE, ME), group(COMES, NodeId(1))], ..Copies::default() };
        let mut first: Vec<_> =
            copies.groups.iter().map(|group| (group.island, copies.first_record(group))).collect();
        first[1].1.in_sync = vec![Seat { node: ME, tenure: 1 }];
        let node = NodeConfig { daemon: 0, node: ME, address: String::new(), islands: vec![HERE, COMES] };
        let config = VolumeConfig {
            site: None,
            id: VolumeId(7),
            name: "home".into(),
            seed: 42,
            table: Table::new(2),
            nodes: vec![node],
            kind: VolumeKind::Cluster,
            copies: Some(copies),
        };
        let store = EmbeddedStore::open(&data.path().join("control.redb")).unwrap();
        store.create_groups(config.id, &first).unwrap();
        let setup = CopiesSetup {
            beside: Arc::new(RealDisk::open(data.path()).unwrap()),
            store: Arc::new(store),
            on_cut: Box::new(|_, _| {}),
            fills: Arc::default(),
        };
        let volume = Volume::greet(config, ME, &options).unwrap();
        let opened = volume.open_islands(&options, disk_of(&data), Some(setup)).unwrap();
        volume.begin(opened);
        let (send, led) = channel();
        volume.local().connect(Arc::new(Client(send)));
        let alone = Self { volume, options, led, data };
        alone.leads(HERE);
        alone
    }

    /// Opens the copy of an island, and waits until clients hear that it is led.
    pub(crate) fn opens(&self, island: IslandId) {
        self.volume.open_copy(&self.options, island, &mut disk_of(&self.data)).unwrap();
        self.leads(island);
    }

    fn leads(&self, island: IslandId) {
        let is_it = |led| led == island;
        assert!(
            std::iter::from_fn(|| self.led.recv_timeout(LONG).ok()).any(is_it),
            "nobody hears that {island} is led"
        );
    }
}

fn disk_of(data: &TempDir) -> impl FnMut(IslandId) -> Result<Arc<RealDisk>, VolumeError> {
    |island| {
        let folder = data.path().join(island.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        Ok(Arc::new(RealDisk::open(&folder).unwrap()))
    }
}
