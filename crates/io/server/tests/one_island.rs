//! The one-island principle, counted: how many islands each operation asks, on a real volume of four
//! islands in one process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use atoll_client::{Client, Wire};
use atoll_core::{Ino, IslandId, Name, NodeId, SessionId, Table, VolumeId, VolumePath};
use atoll_disk::real::RealDisk;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr, SetTime, XattrMode};
use atoll_proto::{NodeConfig, Resolved, VolumeConfig};
use atoll_rpc::DaemonId;
use atoll_server::{LocalWay, Volume, VolumeOptions};
use bytes::Bytes;

const ISLANDS: u16 = 4;

struct Tree {
    volume: Arc<Volume<RealDisk>>,
    client: Arc<Client>,
    path: PathBuf,
}

fn options() -> VolumeOptions {
    VolumeOptions {
        rows_max: 10_000,
        snapshot_cache_bytes: 1 << 20,
        log: atoll_log::Config { segment_bytes: 8 << 20, ..atoll_log::Config::default() },
        root: rustix::process::geteuid().is_root(),
        devices: false,
        owner: (0, 0),
        daemon: DaemonId(1),
        incarnation: 1,
        is_new: true,
        reached: BTreeMap::new(),
    }
}

fn client(volume: &Arc<Volume<RealDisk>>, session: u64, mount: bool) -> Arc<Client> {
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
        patience_ms: Some(5_000),
    };
    let client = Client::new(route, wires);
    local.connect(Arc::clone(&client) as _);
    assert!(client.wait_ready(Duration::from_secs(10)), "the islands do not let the client in");
    client
}

impl Tree {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atoll-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let config = VolumeConfig {
            id: VolumeId(7),
            name: "one".into(),
            seed: 42,
            table: Table::new(ISLANDS),
            nodes: vec![NodeConfig {
                node: NodeId(0),
                address: String::new(),
                islands: (0..ISLANDS).map(IslandId).collect(),
            }],
            kind: atoll_proto::VolumeKind::Cluster,
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

    fn call(&self, op: Op, data: &'static [u8]) -> Result<Answer, Errno> {
        let (send, receive) = mpsc::sync_channel(1);
        let done = Box::new(move |result: Result<Answer, Errno>, _: &[u8]| send.send(result).unwrap());
        self.client.submit(&Caller::ROOT, op, Bytes::from_static(data), done);
        receive.recv_timeout(Duration::from_secs(20)).expect("an answer")
    }

    /// Runs an operation that must succeed, and counts the requests that it took.
    fn counted(&self, op: Op, data: &'static [u8]) -> (Answer, u64) {
        let what = format!("{op:?}");
        let before = self.client.counters();
        let answer = self.call(op, data).unwrap_or_else(|e| panic!("{what}: {e}"));
        (answer, self.client.counters().requests - before.requests)
    }

    fn found(&self, op: Op) -> Ino {
        match self.call(op, b"").unwrap() {
            Answer::Found { found } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn mkdir(&self, dir: Ino, name: &str) -> Ino {
        self.found(Op::Mkdir { dir, name: n(name), mode: 0o755, umask: 0 })
    }

    fn wait_until_forgotten(&self) {
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
    fn islands_at_work(&self, before: &BTreeMap<IslandId, u64>) -> usize {
        self.records().iter().filter(|(island, count)| before[island] < **count).count()
    }

    fn records(&self) -> BTreeMap<IslandId, u64> {
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

fn n(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

#[test]
fn every_operation_on_a_file_or_one_directory_asks_one_island_once() {
    let tree = Tree::new("one-island");
    let dir = tree.mkdir(Ino::ROOT, "d");
    let create = |name: &str| Op::Create {
        dir,
        name: n(name),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: Bytes::new(),
    };
    let (answer, asked) = tree.counted(create("f"), b"");
    assert_eq!(asked, 1, "create");
    let Answer::Found { found } = answer else { panic!("{answer:?}") };
    let ino = found.attr.ino;
    // The mkdir's transaction is told of as stable, and forgotten, in the background.
    tree.wait_until_forgotten();
    let times = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let all: Vec<(&str, Op, &'static [u8])> = vec![
        ("lookup", Op::Lookup { dir, name: n("f") }, b""),
        ("write", Op::Write { ino, offset: 0, append: false, kill_set_id: false }, b"some bytes"),
        ("append", Op::Write { ino, offset: 0, append: true, kill_set_id: false }, b"more"),
        ("read", Op::Read { ino, offset: 0, len: 100 }, b""),
        ("getattr", Op::GetAttr { ino }, b""),
        ("chmod", Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }, b""),
        ("utimens", Op::SetAttr { ino, set: times }, b""),
        ("truncate", Op::SetAttr { ino, set: SetAttr { size: Some(5), ..SetAttr::default() } }, b""),
        (
            "setxattr",
            Op::SetXattr {
                ino,
                name: Bytes::from_static(b"user.a"),
                value: Bytes::from_static(b"b"),
                mode: XattrMode::Any,
                kill_sgid: false,
            },
            b"",
        ),
        ("getxattr", Op::GetXattr { ino, name: Bytes::from_static(b"user.a") }, b""),
        ("fsync", Op::Fsync { ino }, b""),
        ("link", Op::Link { ino, dir, name: n("g") }, b""),
        (
            "rename",
            Op::Rename {
                dir,
                name: n("g"),
                new_dir: dir,
                new_name: n("h"),
                mode: RenameMode::Replace,
                meant: None,
                new_meant: None,
            },
            b"",
        ),
        ("readdir", Op::ReadDir { dir, after: 0, bytes: 4096, plus: true }, b""),
        ("unlink", Op::Unlink { dir, name: n("h") }, b""),
    ];
    for (what, op, data) in all {
        let before = tree.records();
        let (_, asked) = tree.counted(op, data);
        assert_eq!(asked, 1, "{what}");
        assert!(tree.islands_at_work(&before) <= 1, "{what} was decided by several islands");
    }
}

#[test]
fn mkdir_and_rmdir_ask_once_and_involve_two_islands_at_most() {
    let tree = Tree::new("two-islands");
    let mut remote = 0;
    for i in 0..12 {
        let name = n(&format!("d{i}"));
        // What the last one leaves to be told in the background would be counted here.
        tree.wait_until_forgotten();
        let before = tree.records();
        let mkdir = Op::Mkdir { dir: Ino::ROOT, name: name.clone(), mode: 0o755, umask: 0 };
        let (_, asked) = tree.counted(mkdir, b"");
        assert_eq!(asked, 1);
        let at_work = tree.islands_at_work(&before);
        assert!(at_work <= 2, "mkdir took {at_work} islands");
        remote += usize::from(at_work == 2);
        tree.wait_until_forgotten();
        let before = tree.records();
        let (_, asked) = tree.counted(Op::Rmdir { dir: Ino::ROOT, name, meant: None }, b"");
        assert_eq!(asked, 1);
        assert!(tree.islands_at_work(&before) <= 2);
    }
    assert!(remote >= 4, "directories are spread over the islands: {remote} of 12 went elsewhere");
}

#[test]
fn a_path_of_depth_30_is_found_with_one_request_by_a_client_that_knows_nothing() {
    let tree = Tree::new("path");
    let mut dir = Ino::ROOT;
    let mut path = String::new();
    for i in 0..30 {
        dir = tree.mkdir(dir, &format!("level{i}"));
        path.push_str(&format!("/level{i}"));
    }
    let file = tree.found(Op::Create {
        dir,
        name: n("file"),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: Bytes::new(),
    });
    path.push_str("/file");
    let cold = client(&tree.volume, 100, false);
    let (send, receive) = mpsc::sync_channel(1);
    let walked = Box::new(move |result: Result<Resolved, Errno>| send.send(result).unwrap());
    cold.walk(&Caller::ROOT, VolumePath::parse(path.as_bytes()).unwrap(), walked);
    let resolved = receive.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    assert_eq!(resolved.found.attr.ino, file);
    assert_eq!(cold.counters().requests, 1);
    cold.stop();
}

#[test]
fn a_missing_name_on_a_path_is_absent_only_by_its_owner_s_word() {
    let tree = Tree::new("absent");
    let dir = tree.mkdir(Ino::ROOT, "a");
    tree.mkdir(dir, "b");
    let cold = client(&tree.volume, 101, false);
    for (path, expected) in
        [("/a/b/c", Errno::ENOENT), ("/a/x/c", Errno::ENOENT), ("/nothing", Errno::ENOENT)]
    {
        let (send, receive) = mpsc::sync_channel(1);
        let walked = Box::new(move |result: Result<Resolved, Errno>| send.send(result).unwrap());
        cold.walk(&Caller::ROOT, VolumePath::parse(path.as_bytes()).unwrap(), walked);
        let result = receive.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(result.map(|r| r.depth), Err(expected), "{path}");
    }
    cold.stop();
}
