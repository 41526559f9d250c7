//! A real volume of four islands in one process, and clients of it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod node;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use atoll_client::{Client, Wire};
use atoll_core::{Ino, IslandId, Name, NodeId, SessionId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_posix::{Answer, AnswerExtras, Caller, Errno, Op};
use atoll_proto::{NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::DaemonId;
use atoll_server::{LocalWay, Volume, VolumeOptions};
use bytes::Bytes;

pub const ISLANDS: u16 = 4;

pub struct Tree {
    pub volume: Arc<Volume<RealDisk>>,
    pub client: Arc<Client>,
    path: PathBuf,
}

pub fn options() -> VolumeOptions {
    VolumeOptions {
        beside: None,
        sites: Default::default(),
        rows_max: 10_000,
        snapshot_cache_bytes: 1 << 20,
        log: atoll_log::Config { segment_bytes: 8 << 20, ..atoll_log::Config::default() },
        root: rustix::process::geteuid().is_root(),
        devices: false,
        owner: (0, 0),
        daemon: DaemonId(1),
        incarnation: 1,
        directory: 1,
        is_new: true,
        reached: BTreeMap::new(),
    }
}

pub fn client(volume: &Arc<Volume<RealDisk>>, session: u64, mount: bool) -> Arc<Client> {
    let local = volume.local();
    let wires: BTreeMap<IslandId, Arc<dyn Wire>> =
        volume.islands().into_iter().map(|i| (i, Arc::clone(&local) as Arc<dyn Wire>)).collect();
    let config = volume.config();
    let route = atoll_route::Config {
        seed: config.seed,
        table: config.table.clone(),
        islands: config.islands(),
        session: SessionId(session),
        mount,
        keeps: mount,
        patience_ms: Some(5_000),
        scope: None,
    };
    let client = Client::new(route, wires);
    local.connect(Arc::clone(&client) as _);
    assert!(client.wait_ready(Duration::from_secs(10)), "the islands do not let the client in");
    client
}

impl Tree {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atoll-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let config = VolumeConfig {
            id: VolumeId(7),
            name: "one".into(),
            seed: 42,
            table: Table::new(ISLANDS),
            nodes: vec![NodeConfig {
                daemon: 0,
                node: NodeId(0),
                address: String::new(),
                islands: (0..ISLANDS).map(IslandId).collect(),
            }],
            kind: VolumeKind::Cluster,
            copies: None,
            site: None,
        };
        let volume = Volume::open(config, NodeId(0), &options(), |island| {
            let folder = path.join(island.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            Ok(Arc::new(RealDisk::open(&folder).unwrap()))
        })
        .unwrap();
        let client = client(&volume, 99, true);
        Self { volume, client, path }
    }

    pub fn call(&self, op: Op, data: &'static [u8]) -> Result<Answer, Errno> {
        let (send, receive) = mpsc::sync_channel(1);
        let done =
            Box::new(move |result: Result<Answer, Errno>, _: AnswerExtras<'_>| send.send(result).unwrap());
        self.client.submit(&Caller::ROOT, op, Bytes::from_static(data), done);
        receive.recv_timeout(Duration::from_secs(20)).expect("an answer")
    }

    /// Runs an operation that must succeed, and counts the requests that it took.
    pub fn counted(&self, op: Op, data: &'static [u8]) -> (Answer, u64) {
        let what = format!("{op:?}");
        let before = self.client.counters();
        let answer = self.call(op, data).unwrap_or_else(|e| panic!("{what}: {e}"));
        (answer, self.client.counters().requests - before.requests)
    }

    pub fn found(&self, op: Op) -> Ino {
        match self.call(op, b"").unwrap() {
            Answer::Found { found } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    pub fn mkdir(&self, dir: Ino, name: &str) -> Ino {
        self.found(Op::Mkdir { dir, name: n(name), mode: 0o755, umask: 0 })
    }

    pub fn wait_until_forgotten(&self) {
        let busy = |tree: &Self| {
            tree.volume.engines().any(|e| e.with_island(|i| i.state().txn_ids().next().is_some()))
        };
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while busy(self) {
            assert!(std::time::Instant::now() < until, "a transaction is never forgotten");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Islands that have decided records since `before`.
    pub fn islands_at_work(&self, before: &BTreeMap<IslandId, u64>) -> usize {
        self.records().iter().filter(|(island, count)| before[island] < **count).count()
    }

    pub fn records(&self) -> BTreeMap<IslandId, u64> {
        self.volume.engines().map(|e| (e.id(), e.counters().records)).collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.client.stop();
        let _ = self.volume.stop();
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub fn n(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}
