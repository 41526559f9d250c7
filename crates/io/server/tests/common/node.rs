//! A node of a volume of two nodes in this process, and the other ends of its links, which say what a test has them say.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use atoll_control::{ControlStore, EmbeddedStore, Identity};
use atoll_core::{Encode, IslandId, NodeId, SessionId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_posix::Caller;
use atoll_proto::{Beacon, ClientOp, NodeConfig, PeerMessage, PeerOp, Request, VolumeConfig, VolumeKind};
use atoll_rpc::{
    Address, Closed, ClusterId, DaemonId, Frame, FrameKind, Handler, Hello, Link, Listener, Options,
    Outgoing, Role,
};
use atoll_server::{Beside, Cluster, Node, NodeSetup, Secured, Serve, Shelf, VolumeOptions};

use super::options;

pub const VOLUME: VolumeId = VolumeId(7);
pub const SESSION: SessionId = SessionId(98);
/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(20);

/// A volume with these islands on node 0 and on node 1, which has this address.
pub fn config(islands: [&[u16]; 2], node_1: &str) -> VolumeConfig {
    let node = |node: u16, address: &str| NodeConfig {
        daemon: 0,
        node: NodeId(node),
        address: address.to_owned(),
        islands: islands[usize::from(node)].iter().map(|island| IslandId(*island)).collect(),
    };
    let table = Table::new((islands[0].len() + islands[1].len()) as u16);
    let nodes = vec![node(0, ""), node(1, node_1)];
    VolumeConfig {
        id: VOLUME,
        name: "home".into(),
        seed: 42,
        table,
        nodes,
        kind: VolumeKind::Cluster,
        copies: None,
        site: None,
    }
}

/// Opens folders at once.
pub fn shelf() -> Shelf<RealDisk> {
    Arc::new(|folder, island, _| {
        let folder = folder.join(island.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        Ok(Arc::new(RealDisk::open(&folder).unwrap()))
    })
}

/// A node that serves nothing yet, in a data directory. `shelf` opens the folders of its islands.
pub fn node(data: &Path, incarnation: u32, shelf: Shelf<RealDisk>) -> Arc<Node> {
    secured_node(data, incarnation, shelf, None, |own| Arc::new(own))
}

/// The same. `store` makes its control store of its own one.
pub fn node_with(
    data: &Path,
    incarnation: u32,
    shelf: Shelf<RealDisk>,
    store: impl FnOnce(EmbeddedStore) -> Arc<dyn ControlStore>,
) -> Arc<Node> {
    secured_node(data, incarnation, shelf, None, store)
}

/// The same with certificates.
pub fn secured_node(
    data: &Path,
    incarnation: u32,
    shelf: Shelf<RealDisk>,
    secured: Option<Secured>,
    store: impl FnOnce(EmbeddedStore) -> Arc<dyn ControlStore>,
) -> Arc<Node> {
    let own = |name: &str| EmbeddedStore::open(&data.join(name)).unwrap();
    let options = VolumeOptions { incarnation, ..options() };
    let beside: Beside<_> = Arc::new(|folder: &Path| RealDisk::open(folder).map(Arc::new));
    let cluster: Arc<dyn Serve> = Arc::new(Cluster { options, shelf, beside, fills: Arc::default() });
    let (node, cluster_id) = (DaemonId(1), ClusterId(1));
    Node::new(NodeSetup {
        sites: Default::default(),
        identity: Identity { node, cluster: cluster_id, created: 0, incarnation, ca: None },
        data: data.to_owned(),
        store: store(own(EmbeddedStore::FILE)),
        prepared: Box::new(own("prepared.redb")),
        secured,
        incarnation,
        kinds: Box::new(move |_| Ok(Arc::clone(&cluster))),
    })
    .unwrap()
}

/// A node with node 0's part of a volume, and where it listens.
pub fn serve(data: &Path, config: &VolumeConfig) -> (Arc<Node>, Listener) {
    let node = node(data, 1, shelf());
    node.prepare(config, NodeId(0)).unwrap();
    node.activate(config.id).unwrap();
    let listener = listen(&node);
    (node, listener)
}

pub fn listen(node: &Arc<Node>) -> Listener {
    listen_with(node, Options::default())
}

pub fn listen_with(node: &Arc<Node>, options: Options) -> Listener {
    let any = "127.0.0.1:0".parse().unwrap();
    Listener::start(&any, Arc::clone(node) as _, options).unwrap()
}

/// The other end of a link, which keeps what it is told.
pub struct Other {
    outgoing: Outgoing,
    heard: Receiver<Heard>,
}

#[derive(Debug)]
pub enum Heard {
    Frame(Frame),
    Closed(Closed),
}

struct Ear(Sender<Heard>);

impl Handler for Ear {
    fn frame(&self, _: &Arc<Link>, frame: Frame) {
        let _ = self.0.send(Heard::Frame(frame));
    }

    fn closed(&self, _: &Arc<Link>, why: &Closed) {
        let _ = self.0.send(Heard::Closed(why.clone()));
    }
}

impl Other {
    fn without_link(address: &Address, role: Role) -> Self {
        Self::with(address, role, Options::default())
    }

    /// Its link is made when something is sent.
    pub fn with(address: &Address, role: Role, options: Options) -> Self {
        let (send, heard) = channel();
        let greeting = Box::new(move || Hello::new(role.clone(), None));
        let outgoing = Outgoing::new(address.clone(), greeting, Arc::new(Ear(send)), options);
        Self { outgoing, heard }
    }

    pub fn new(address: &Address, role: Role) -> Self {
        let other = Self::without_link(address, role);
        other.outgoing.connect(LONG).unwrap();
        other
    }

    /// Whether a client is not let in.
    pub fn refused(address: &Address) -> bool {
        let client = Self::without_link(address, Role::Client { volume: VOLUME, session: SESSION });
        client.outgoing.connect(Duration::from_millis(500)).is_err()
    }

    /// Which life of the node answered the greeting.
    pub fn incarnation(&self) -> u32 {
        match self.outgoing.link().expect("it is up").remote() {
            atoll_rpc::Remote::Connected(hello) => hello.incarnation,
            atoll_rpc::Remote::Accepted(_) => unreachable!("this side connects"),
        }
    }

    pub fn client(address: &Address) -> Self {
        Self::new(address, Role::Client { volume: VOLUME, session: SESSION })
    }

    /// Node 1, in some life.
    pub fn node(address: &Address, incarnation: u32) -> Self {
        let (daemon, members) = (DaemonId(2), vec![(VOLUME, NodeId(1))]);
        Self::new(address, Role::Node { daemon, incarnation, boot: 1, directory: 1, members })
    }

    /// As a client, asks an island.
    pub fn ask(&self, island: u16, id: u64, op: ClientOp) {
        let (session, seq, acked, table) = (SESSION, 0, 0, 1);
        let request = Request { session, seq, acked, table, vector: Vec::new(), caller: Caller::ROOT, op };
        self.send(FrameKind::Request, island, id, &request);
    }

    /// As a node, has an island of it greet another one.
    pub fn greet(&self, from: u16, to: u16) {
        let (from, op) = (IslandId(from), PeerOp::Hello);
        self.send(FrameKind::Peer, to, 0, &PeerMessage { from, incarnation: 1, vector: Vec::new(), op });
    }

    /// As a node, says that it leads an island in this epoch.
    pub fn beacon(&self, token: u64, island: IslandId, epoch: u32) {
        self.send(FrameKind::Beacon, 0, 0, &Beacon { token, leads: vec![(VOLUME, (island, epoch))] });
    }

    fn send(&self, kind: FrameKind, island: u16, id: u64, meta: &impl Encode) {
        self.outgoing.send(kind, IslandId(island), id, meta, &[]).unwrap();
    }

    /// The next word about an island: a frame's kind, its island and its id. A link that ends is a failure.
    pub fn next(&self) -> (FrameKind, u16, u64) {
        match self.heard.recv_timeout(LONG).expect("something is said") {
            // It concerns no island.
            Heard::Frame(frame) if frame.kind == FrameKind::Config => self.next(),
            Heard::Frame(frame) => (frame.kind, frame.island.0, frame.id),
            Heard::Closed(why) => panic!("the link has ended: {why}"),
        }
    }

    /// Nothing is said of an island for a moment.
    pub fn hears_nothing(&self) {
        match self.heard.recv_timeout(Duration::from_millis(300)) {
            Err(_) => {}
            Ok(Heard::Frame(frame)) if frame.kind == FrameKind::Config => self.hears_nothing(),
            Ok(heard) => panic!("{heard:?}"),
        }
    }

    pub fn is_up(&self) -> bool {
        self.outgoing.link().is_some()
    }
}
