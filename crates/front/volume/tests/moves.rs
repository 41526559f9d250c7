//! A volume whose nodes change while a daemon and a client use it, over real sockets: an address, and an island's folder.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll_control::{ControlStore, DataDir, EmbeddedStore};
use atoll_core::{H3, Ino, IslandId, Name, NodeId, Table, VolumeId};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode};
use atoll_proto::control::Connection;
use atoll_proto::{NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::{Address, Listener, Options};
use atoll_vfs::call;
use atoll_volume::kind::{Attached, Manner, attach};
use atoll_volume::node::Daemon;
use atoll_volume::reach::{Other, Reached};
use bytes::Bytes;

const VOLUME: &str = "home";
const BYTES: &[u8] = b"written before anything moved";

fn bound(address: &Address) -> atoll_rpc::Bound {
    Listener::bind(address, &Options::default()).unwrap()
}

/// A daemon on a port of its own, which serves nothing yet.
fn daemon(data: &Path) -> (Daemon, Address) {
    let mut daemon = Daemon::take(data).unwrap();
    daemon.listen(Some(bound(&"127.0.0.1:0".parse().unwrap()))).unwrap();
    let address = daemon.tcp.clone().unwrap();
    (daemon, address)
}

fn node(node: u16, address: &Address, islands: &[u16]) -> NodeConfig {
    let islands = islands.iter().map(|island| IslandId(*island)).collect();
    NodeConfig { daemon: 0, node: NodeId(node), address: address.to_string(), islands }
}

fn volume(nodes: Vec<NodeConfig>) -> VolumeConfig {
    let islands: usize = nodes.iter().map(|node| node.islands.len()).sum();
    let (id, name, table) = (VolumeId(77), VOLUME.to_owned(), Table::new(islands as u16));
    VolumeConfig { id, name, seed: 42, table, nodes, kind: VolumeKind::Cluster, copies: None, site: None }
}

/// The next configuration, with other nodes.
fn next(config: &VolumeConfig, nodes: Vec<NodeConfig>) -> VolumeConfig {
    VolumeConfig { table: config.table.doubled(), nodes, ..config.clone() }
}

/// A client in a process of its own, as far as sockets go.
fn client(config: &VolumeConfig) -> Arc<dyn Attached> {
    let other = |n: &NodeConfig| {
        let address = n.address.parse().unwrap();
        Other { node: n.node, address, alive: true, place: None }
    };
    let others = config.nodes.iter().map(other).collect();
    let manner = Manner::tool(60_000);
    attach(Reached { config: config.clone(), here: None, others, root: None }, manner).unwrap()
}

/// A directory on each island, with a file in each.
struct Tree {
    attached: Arc<dyn Attached>,
    dirs: Vec<(Ino, Ino)>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Tree {
    fn new(config: &VolumeConfig) -> Self {
        let mut tree = Self { attached: client(config), dirs: Vec::new() };
        let h3 = H3::new(config.seed);
        for island in config.islands() {
            let of_island =
                |name: &Name| h3.path([name]).is_some_and(|hash| config.owner(hash.key()) == island);
            let dir = (0..).map(|i| name(&format!("d{i}"))).find(of_island).unwrap();
            let dir = tree.found(Op::Mkdir { dir: Ino::ROOT, name: dir, mode: 0o755, umask: 0 });
            let file = tree.create(dir, "file").unwrap();
            tree.call(Op::Write { ino: file, offset: 0, append: false, kill_set_id: false }, BYTES).unwrap();
            tree.dirs.push((dir, file));
        }
        tree
    }

    fn call(&self, op: Op, data: &'static [u8]) -> Result<(Answer, Vec<u8>), Errno> {
        call(&*self.attached.files(), &Caller::ROOT, op, Bytes::from_static(data))
    }

    fn found(&self, op: Op) -> Ino {
        match self.call(op, b"") {
            Ok((Answer::Found { found }, _)) => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn create_op(dir: Ino, n: &str) -> Op {
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target: Bytes::new() }
    }

    fn create(&self, dir: Ino, n: &str) -> Result<Ino, Errno> {
        match self.call(Self::create_op(dir, n), b"")? {
            (Answer::Found { found }, _) => Ok(found.attr.ino),
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a new file in the directory of an island, and waits for nothing.
    fn begin_create(&self, island: usize, n: &str) -> Receiver<Result<Answer, Errno>> {
        let (send, receive) = sync_channel(1);
        let op = Self::create_op(self.dirs[island].0, n);
        let done = Box::new(move |result: Result<Answer, Errno>, _: atoll_posix::AnswerExtras<'_>| {
            send.send(result).unwrap();
        });
        self.attached.files().submit(&Caller::ROOT, op, Bytes::new(), done);
        receive
    }

    /// Everything is there, can be read, and changes, on one island and between each two.
    fn works(&self, round: &str) {
        for (i, (dir, file)) in self.dirs.iter().enumerate() {
            let (_, bytes) = self.call(Op::Read { ino: *file, offset: 0, len: 100 }, b"").unwrap();
            assert_eq!(bytes, BYTES, "{round}: island {i}");
            self.create(*dir, &format!("{round}-{i}")).unwrap();
            for (j, (new_dir, _)) in self.dirs.iter().enumerate().filter(|(j, _)| *j != i) {
                let n = name(&format!("{round}-{i}-{j}"));
                self.create(*dir, &format!("{round}-{i}-{j}")).unwrap();
                let (dir, new_dir, mode) = (*dir, *new_dir, RenameMode::Replace);
                let (meant, new_meant) = (None, None);
                let op = Op::Rename { dir, name: n.clone(), new_dir, new_name: n, mode, meant, new_meant };
                self.call(op, b"").unwrap_or_else(|e| panic!("{round}: from island {i} to {j}: {e}"));
            }
        }
    }

    fn connections(&self) -> Vec<(u16, Connection)> {
        self.attached.status().nodes.iter().map(|n| (n.node.0, n.connection)).collect()
    }
}

/// Makes one file after the other in the directory of an island until it is told to end. Each is made once: one that was
/// asked for again, and made twice, would be there already.
struct Busy {
    made: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Busy {
    fn begin(tree: &Tree, island: usize) -> Self {
        let (files, dir) = (tree.attached.files(), tree.dirs[island].0);
        let (made, ends) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (count, until) = (Arc::clone(&made), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            while !until.load(SeqCst) {
                let n = format!("busy-{}", count.load(SeqCst));
                call(&*files, &Caller::ROOT, Tree::create_op(dir, &n), Bytes::new())
                    .unwrap_or_else(|e| panic!("{n}: {e}"));
                count.fetch_add(1, SeqCst);
                // What is made is laid out when the daemon stops.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let busy = Self { made, ends, thread };
        busy.goes_on();
        busy
    }

    /// It makes some more.
    fn goes_on(&self) {
        let before = self.made.load(SeqCst);
        until("nothing is made", || self.made.load(SeqCst) > before + 3);
    }

    fn end(self) {
        self.goes_on();
        self.ends.store(true, SeqCst);
        self.thread.join().unwrap();
    }
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn serve(daemon: &Daemon, config: &VolumeConfig, node: u16) {
    daemon.node.prepare(config, NodeId(node)).unwrap();
    daemon.node.activate(config.id).unwrap();
}

/// The control store of a daemon that does not run has this configuration.
fn store(data: &Path, config: &VolumeConfig) {
    let dir = DataDir::open_or_create(data).unwrap();
    let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE)).unwrap();
    match store.volume(&config.id.into()) {
        Ok(old) => store.replace_volume(config, old.table.version()).unwrap(),
        Err(_) => store.create_volume(config).unwrap(),
    }
}

/// Node 1's data go to another daemon, with another address. Node 0 and a client go on, and hear of it while a request for
/// node 1 waits.
#[test]
fn a_node_that_comes_back_at_another_address_is_found_by_a_node_and_a_client_that_go_on() {
    let place = tempfile::tempdir().unwrap();
    let (stays, first) = daemon(&place.path().join("a"));
    let (leaves, second) = daemon(&place.path().join("b"));
    let config = volume(vec![node(0, &first, &[0]), node(1, &second, &[1])]);
    serve(&stays, &config, 0);
    serve(&leaves, &config, 1);
    let tree = Tree::new(&config);
    tree.works("before");
    let busy: Vec<Busy> = (0..tree.dirs.len()).map(|island| Busy::begin(&tree, island)).collect();

    leaves.stop().unwrap();
    let waits = tree.begin_create(1, "waits");
    let (comes, third) = daemon(&place.path().join("c"));
    let moved = next(&config, vec![node(0, &first, &[0]), node(1, &third, &[1])]);
    comes.stop().unwrap();
    let folder = |data: &str| place.path().join(data).join("islands").join(VOLUME);
    std::fs::create_dir_all(place.path().join("c").join("islands")).unwrap();
    std::fs::rename(folder("b"), folder("c")).unwrap();
    store(&place.path().join("c"), &moved);
    assert!(waits.try_recv().is_err(), "nobody can have answered");

    // The port is this machine's to give: the daemon listens where the configuration says.
    let mut comes = Daemon::take(&place.path().join("c")).unwrap();
    assert!(comes.node.serve_all().unwrap().is_empty());
    comes.listen(Some(bound(&third))).unwrap();
    stays.node.take_config(&moved).unwrap();
    tree.attached.take_config(&moved).unwrap();
    let created = waits.recv_timeout(Duration::from_secs(30)).expect("it is asked again at the new address");
    assert!(created.is_ok(), "{created:?}");
    tree.works("after");
    busy.into_iter().for_each(Busy::end);
    assert_eq!(tree.connections(), [(0, Connection::Direct), (1, Connection::Direct)]);
    assert_eq!(tree.attached.config().table.version(), 2);
    assert_eq!(stays.node.volume(VOLUME).unwrap().config().nodes, moved.nodes);

    // The same again, and the old one, change nothing; what cannot change is refused, and nothing is kept of it.
    stays.node.take_config(&moved).unwrap();
    stays.node.take_config(&config).unwrap();
    tree.attached.take_config(&config).unwrap();
    assert_eq!(tree.connections(), [(0, Connection::Direct), (1, Connection::Direct)]);
    let taken = next(&moved, vec![node(0, &first, &[0, 1]), node(1, &third, &[])]);
    let why = stays.node.take_config(&taken).unwrap_err().to_string();
    assert!(why.contains("islands of node 0 of volume home cannot come or go"), "{why}");
    let bucket = atoll_core::table::Bucket(0);
    let given = VolumeConfig { table: moved.table.reassigned([(bucket, IslandId(1))]), ..moved.clone() };
    let why = stays.node.take_config(&given).unwrap_err().to_string();
    assert!(why.contains("directories do not move to other islands"), "{why}");
    assert!(tree.attached.take_config(&given).is_err());
    tree.attached.stop();
    stays.stop().unwrap();
    comes.stop().unwrap();

    // It counts after a restart too.
    let again = Daemon::take(&place.path().join("a")).unwrap();
    assert!(again.node.serve_all().unwrap().is_empty());
    assert_eq!(again.node.volume(VOLUME).unwrap().config().nodes, moved.nodes);
    again.stop().unwrap();
}

/// Island 1's folder goes from node 1, which ends, to node 2, which is started anew for it. Node 0 and a client go on.
#[test]
fn an_island_whose_folder_is_put_on_another_node_is_found_there_by_a_node_and_a_client_that_go_on() {
    let place = tempfile::tempdir().unwrap();
    let (stays, first) = daemon(&place.path().join("a"));
    let (leaves, second) = daemon(&place.path().join("b"));
    let (takes, third) = daemon(&place.path().join("c"));
    let config = volume(vec![node(0, &first, &[0]), node(1, &second, &[1]), node(2, &third, &[2])]);
    serve(&stays, &config, 0);
    serve(&leaves, &config, 1);
    serve(&takes, &config, 2);
    let tree = Tree::new(&config);
    tree.works("before");
    let busy: Vec<Busy> = (0..tree.dirs.len()).map(|island| Busy::begin(&tree, island)).collect();

    leaves.stop().unwrap();
    takes.stop().unwrap();
    let waits = [1, 2].map(|island| tree.begin_create(island, "waits"));
    let folder = |data: &str| place.path().join(data).join("islands").join(VOLUME).join("1");
    std::fs::rename(folder("b"), folder("c")).unwrap();
    let moved = next(&config, vec![node(0, &first, &[0]), node(2, &third, &[1, 2])]);
    stays.node.take_config(&moved).unwrap();
    tree.attached.take_config(&moved).unwrap();
    store(&place.path().join("c"), &moved);
    let mut takes = Daemon::take(&place.path().join("c")).unwrap();
    assert!(takes.node.serve_all().unwrap().is_empty());
    takes.listen(Some(bound(&third))).unwrap();
    for created in waits {
        let created = created.recv_timeout(Duration::from_secs(30)).expect("it is asked again at node 2");
        assert!(created.is_ok(), "{created:?}");
    }
    until("both nodes are connected", || {
        tree.connections() == [(0, Connection::Direct), (2, Connection::Direct)]
    });
    tree.works("after");
    busy.into_iter().for_each(Busy::end);
    tree.attached.stop();
    stays.stop().unwrap();
    takes.stop().unwrap();
}

/// Node 1 listens at two addresses. All hear of the second one while links to the first are up and in use.
#[test]
fn a_node_gets_another_address_while_all_go_on() {
    let place = tempfile::tempdir().unwrap();
    let (a, first) = daemon(&place.path().join("a"));
    let (b, second) = daemon(&place.path().join("b"));
    let any = "127.0.0.1:0".parse().unwrap();
    let mut other = Listener::start(&any, Arc::clone(&b.node) as _, Options::default()).unwrap();
    let config = volume(vec![node(0, &first, &[0]), node(1, other.address(), &[1])]);
    serve(&a, &config, 0);
    serve(&b, &config, 1);
    let tree = Tree::new(&config);
    let busy: Vec<Busy> = (0..tree.dirs.len()).map(|island| Busy::begin(&tree, island)).collect();
    tree.works("before");
    let moved = next(&config, vec![node(0, &first, &[0]), node(1, &second, &[1])]);
    for daemon in [&b, &a] {
        daemon.node.take_config(&moved).unwrap();
    }
    tree.attached.take_config(&moved).unwrap();
    tree.works("after");
    // Nobody needs the first address any more.
    until("a link to the first address is left", || other.links().is_empty());
    other.stop();
    busy.into_iter().for_each(Busy::end);
    assert_eq!(tree.connections(), [(0, Connection::Direct), (1, Connection::Direct)]);
    tree.attached.stop();
    a.stop().unwrap();
    b.stop().unwrap();
}

/// The node dies when it has stored the first configuration with groups, and before its islands have seats.
#[test]
fn islands_that_were_alone_are_not_taken_for_wiped_copies_after_a_crash_in_their_first_change() {
    let place = tempfile::tempdir().unwrap();
    let (daemon, address) = daemon(place.path());
    let config = volume(vec![node(0, &address, &[0, 1])]);
    serve(&daemon, &config, 0);
    let tree = Tree::new(&config);
    tree.works("before");
    daemon.stop().unwrap();
    store(place.path(), &config.with_wanted(1, false, &|_| false, &|_, _| true).unwrap());
    for round in ["after", "and once more"] {
        let mut again = Daemon::take(place.path()).unwrap();
        assert!(again.node.serve_all().unwrap().is_empty());
        again.listen(Some(bound(&address))).unwrap();
        tree.works(round);
        let folder = place.path().join("islands").join(VOLUME);
        assert!(["0.seat", "1.seat"].iter().all(|seat| folder.join(seat).exists()));
        again.stop().unwrap();
    }
}
