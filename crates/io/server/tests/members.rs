//! A node with certificates: whom it lets in, what each may ask, and whom it takes into its cluster.

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use atoll_ca::{Authority, Holder, Key, guest};
use atoll_control::{ClusterStore, EmbeddedStore};
use atoll_core::{Decode, Ino, IslandId, NodeId, SessionId, VolumeId, VolumePath};
use atoll_posix::{Answer, Caller, Errno, Op};
use atoll_proto::cluster::{CertificateFor, Cluster, ClusterClient, ClusterNode, Grant, Invitation, Subtree};
use atoll_proto::group::{GroupRecord, Revision, Swapped};
use atoll_proto::{
    ClientOp, Control, ControlPlace, ControlReply, EntryRef, Extras, FoundBy, Outcome, Reply, Request, Seat,
    SiteOrder, StoredCluster, UnionOrder, VolumeConfig,
};
use atoll_rpc::{
    Address, Closed, Credentials, DaemonId, Frame, FrameKind, Handler, Hello, Link, Listener, Options,
    Outgoing, Role, Security, guest_number,
};
use atoll_server::{Node, Secured, session_prefix};
use common::node::{LONG, VOLUME, config, listen_with, secured_node, shelf};

const ME: u64 = 1;
const OTHER: u64 = 0xb;
const ELSEWHERE: VolumeId = VolumeId(77);

/// A node of a cluster, whose list the test writes.
struct World {
    ca: Authority,
    /// The key of the other node.
    others: Vec<u8>,
    security: Arc<Security>,
    node: Arc<Node>,
    listener: Listener,
    data: tempfile::TempDir,
}

fn credentials(ca: &Authority, holder: Holder, key: Key) -> Credentials {
    let certificate = ca.issue(holder, &key.public(), SystemTime::now()).unwrap();
    key.with(&certificate, ca.certificate())
}

fn of_list(daemon: u64, key: &Key) -> ClusterNode {
    let (name, address) = (format!("n{daemon}"), format!("127.0.0.1:{daemon}"));
    ClusterNode { daemon, name, address, joined: 5, key: key.public().into(), has_ca_key: daemon == ME }
}

fn client(number: u64, grant: Grant) -> ClusterClient {
    ClusterClient { client: number, name: format!("c{number}"), added: 5, grant }
}

fn in_an_hour() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 3600
}

impl World {
    /// With a volume of two nodes, of which the other one is in the list too. Clients 2 to 5 have the grants.
    fn new(grants: Vec<Grant>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let ca = Authority::new(SystemTime::now()).unwrap();
        let (mine, others) = (Key::generate().unwrap(), Key::generate().unwrap());
        let list = Cluster {
            id: 9,
            store: ME,
            nodes: vec![of_list(ME, &mine), of_list(OTHER, &others)],
            clients: grants.into_iter().zip(2..).map(|(grant, number)| client(number, grant)).collect(),
            invitations: Vec::new(),
            control: ControlPlace::Nodes,
        };
        let store = EmbeddedStore::open(&data.path().join(EmbeddedStore::FILE)).unwrap();
        assert!(matches!(store.swap_cluster(Revision::NONE, &list), Swapped::Done { .. }));
        drop(store);
        let security = Arc::new(Security::new(&credentials(&ca, Holder::Node(DaemonId(ME)), mine)).unwrap());
        let authority = Authority::from_parts(ca.certificate(), &ca.key_der()).unwrap();
        let secured = Secured {
            security: Arc::clone(&security),
            ca: ca.certificate().to_vec(),
            authority: Some(authority),
        };
        let node = secured_node(data.path(), 1, shelf(), Some(secured), |own| Arc::new(own));
        let mut config: VolumeConfig = config([&[0, 1], &[]], "127.0.0.1:9");
        config.nodes[0].daemon = ME;
        config.nodes[1].daemon = OTHER;
        node.prepare(&config, NodeId(0)).unwrap();
        node.activate(config.id).unwrap();
        let options = Options { security: Some(Arc::clone(&security)), ..Options::default() };
        let listener = listen_with(&node, options);
        Self { ca, others: others.der(), security, node, listener, data }
    }

    fn holder(&self, holder: Holder) -> Credentials {
        credentials(&self.ca, holder, Key::generate().unwrap())
    }

    /// The other node.
    fn other(&self) -> Credentials {
        credentials(&self.ca, Holder::Node(DaemonId(OTHER)), Key::from_der(&self.others).unwrap())
    }

    fn list(&self) -> StoredCluster {
        (*self.node.cluster_list().unwrap()).clone()
    }

    /// Changes the list, as an administrator of this machine does.
    fn change(&self, change: impl FnOnce(&mut Cluster)) {
        let StoredCluster { revision, cluster: mut next } = self.list();
        change(&mut next);
        let order = Control::SwapCluster { expected: revision, next: Box::new(next) };
        let reply = atoll_server::Desk::answer(&*self.node, order);
        assert!(matches!(reply, ControlReply::Swapped { swapped: Swapped::Done { .. } }), "{reply:?}");
    }

    fn connect(&self, who: &Credentials, role: Role) -> Result<Asker, String> {
        Asker::new(self.listener.address(), who, role)
    }

    fn tool(&self, who: &Credentials) -> Asker {
        self.connect(who, Role::Tool).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.listener.stop();
        self.node.stop();
        let _ = &self.data;
    }
}

/// Whoever asks a node, over a link.
struct Asker {
    link: Arc<Link>,
    heard: Receiver<Frame>,
    _outgoing: Outgoing,
}

struct Ear(Mutex<Sender<Frame>>);

impl Handler for Ear {
    fn frame(&self, _link: &Arc<Link>, frame: Frame) {
        let _ = self.0.lock().unwrap().send(frame);
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Asker {
    fn new(address: &Address, who: &Credentials, role: Role) -> Result<Self, String> {
        let (send, heard) = channel();
        let security = Some(Arc::new(Security::new(who).unwrap()));
        let greeting = Box::new(move || Hello::new(role.clone(), None));
        let ear = Arc::new(Ear(Mutex::new(send)));
        let outgoing =
            Outgoing::new(address.clone(), greeting, ear, Options { security, ..Options::default() });
        let link = outgoing.connect(LONG).map_err(|why| why.to_string())?;
        Ok(Self { link, heard, _outgoing: outgoing })
    }

    /// The answer to an order.
    fn order(&self, order: &Control) -> ControlReply {
        self.link.send(FrameKind::Control, IslandId(0), 1, order, &[]).unwrap();
        loop {
            let frame = self.heard.recv_timeout(LONG).unwrap();
            if frame.kind == FrameKind::ControlReply {
                return frame.decode().unwrap();
            }
        }
    }

    /// How an operation of this session ends at island 0.
    fn request(&self, session: SessionId, seq: u64, caller: Caller, op: ClientOp) -> Outcome {
        self.request_at(0, session, seq, caller, op, b"").0
    }

    /// How an operation of this session ends at an island, and the bytes beside the answer. `data`: beside the request.
    fn request_at(
        &self,
        island: u16,
        session: SessionId,
        seq: u64,
        caller: Caller,
        op: ClientOp,
        data: &[u8],
    ) -> (Outcome, Vec<u8>) {
        let request = Request { session, seq, acked: 0, table: 1, vector: Vec::new(), caller, op };
        loop {
            self.link.send(FrameKind::Request, IslandId(island), 7, &request, data).unwrap();
            let (outcome, bytes) = loop {
                let frame = self.heard.recv_timeout(LONG).unwrap();
                if frame.kind == FrameKind::Reply && frame.id == 7 {
                    break (frame.decode::<Reply>().unwrap().outcome, frame.payload.to_vec());
                }
            };
            match outcome {
                // Its islands have yet to hear of the other node's, which is not there.
                Outcome::NotNow => std::thread::sleep(std::time::Duration::from_millis(20)),
                outcome => return (outcome, bytes),
            }
        }
    }
}

/// A session that the client with this number may have.
fn session_of(number: u64) -> SessionId {
    SessionId(u64::from(session_prefix(number)) << 32 | 5)
}

fn as_client(number: u64, volume: VolumeId) -> Role {
    Role::Client { volume, session: session_of(number) }
}

/// One of each order.
fn orders() -> Vec<Control> {
    let (volume, island) = (VOLUME, IslandId(0));
    let in_sync = vec![Seat { node: NodeId(0), tenure: 1 }, Seat { node: NodeId(1), tenure: 1 }];
    let record = GroupRecord { epoch: 0, primary: None, in_sync, wanted: 2, power_cut: false };
    let all = vec![
        Control::Describe,
        Control::Volume { name: "home".to_owned() },
        Control::Prepare { config: Box::new(config([&[0], &[]], "127.0.0.1:9")), node: NodeId(0) },
        Control::Activate { volume: ELSEWHERE },
        Control::Discard { volume: ELSEWHERE },
        Control::Status,
        Control::Trace { volume, ino: atoll_core::Ino(9) },
        Control::Union { order: UnionOrder::Status },
        Control::Group { volume, island },
        Control::SwapGroup { volume, island, expected: Revision(9), next: record },
        Control::Groups { volume, since: Revision(9), wait_ms: 0 },
        Control::MoveIsland { volume, island, to: NodeId(1) },
        Control::ForceIsland { volume, island, node: NodeId(0) },
        Control::Weigh { volume },
        Control::Seats { volume },
        Control::Site { order: SiteOrder::List { volume: "home".to_owned() } },
        Control::Config { volume },
        Control::SwapConfig { expected: 99, next: Box::new(config([&[0], &[]], "127.0.0.1:9")) },
        Control::Cluster,
        Control::ListAt { address: "127.0.0.1:1".to_owned() },
        Control::SwapCluster { expected: Revision(99), next: Box::default() },
        Control::Certify { purpose: CertificateFor::Renewal, key: Key::generate().unwrap().public().into() },
    ];
    // A new order must come here.
    for order in &all {
        match order {
            Control::Describe
            | Control::Volume { .. }
            | Control::Prepare { .. }
            | Control::Activate { .. }
            | Control::Discard { .. }
            | Control::Status
            | Control::Trace { .. }
            | Control::Union { .. }
            | Control::Site { .. }
            | Control::Group { .. }
            | Control::SwapGroup { .. }
            | Control::Groups { .. }
            | Control::MoveIsland { .. }
            | Control::ForceIsland { .. }
            | Control::Weigh { .. }
            | Control::Seats { .. }
            | Control::Config { .. }
            | Control::SwapConfig { .. }
            | Control::Cluster
            | Control::SwapCluster { .. }
            | Control::ListAt { .. }
            | Control::Certify { .. } => {}
        }
    }
    all
}

fn is_denied(reply: &ControlReply) -> bool {
    matches!(reply, ControlReply::Refused { text } if text.contains("for nodes and administrators"))
}

#[test]
fn a_client_and_a_guest_may_give_no_order_of_an_administrator() {
    let world = World::new(vec![Grant::default()]);
    let (line, key) = guest(&[7; 16], digest(&world.ca)).unwrap();
    world.change(|list| {
        list.invitations.push(Invitation { guest: key.into(), until: in_an_hour(), used_by: None });
    });
    let client = world.tool(&world.holder(Holder::Client(2)));
    let of_client = world.connect(&world.holder(Holder::Client(2)), as_client(2, VOLUME)).unwrap();
    let guest = world.tool(&line);
    for order in orders() {
        let may = matches!(order, Control::Volume { .. } | Control::Certify { .. });
        assert_eq!(!is_denied(&client.order(&order)), may, "{order:?}");
        assert_eq!(!is_denied(&of_client.order(&order)), may, "{order:?}");
        assert!(is_denied(&guest.order(&order)), "{order:?}");
    }
    let certify = |purpose| Control::Certify { purpose, key: Key::generate().unwrap().public().into() };
    assert!(is_denied(&client.order(&certify(CertificateFor::Client { client: 2 }))), "for somebody");
    let joins = CertificateFor::Join { daemon: 3, name: String::new(), address: ":1".to_owned() };
    assert!(is_denied(&client.order(&certify(joins.clone()))));
    assert!(is_denied(&client.order(&certify(CertificateFor::Etcd))), "etcd obeys whoever has one");
    assert!(is_denied(&guest.order(&certify(CertificateFor::Etcd))));
    let node = world.tool(&world.other());
    assert!(is_denied(&node.order(&certify(joins))), "without an invitation");
    assert!(!is_denied(&node.order(&Control::Describe)));
}

fn digest(ca: &Authority) -> [u8; 32] {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ca.certificate()).as_ref().try_into().unwrap()
}

#[test]
fn a_client_sees_the_volume_of_its_grant_and_speaks_for_its_own_sessions() {
    let only = |volume| Grant { volume: Some(volume), ..Grant::default() };
    let world = World::new(vec![only(VOLUME), only(ELSEWHERE)]);
    let (first, second) = (world.holder(Holder::Client(2)), world.holder(Holder::Client(3)));
    world.connect(&first, as_client(2, VOLUME)).unwrap();
    let why = world.connect(&second, as_client(3, VOLUME)).err().unwrap();
    assert!(why.contains("no such volume"), "{why}");
    let why = world.connect(&first, as_client(3, VOLUME)).err().unwrap();
    assert!(why.contains("session belongs to another client"), "{why}");
    let by_relay = Role::Relay { volume: VOLUME, to: NodeId(1) };
    let why = world.connect(&second, by_relay).err().unwrap();
    assert!(why.contains("no such volume"), "{why}");
    // Not even its name is there.
    let ask = Control::Volume { name: "home".to_owned() };
    let reply = world.tool(&second).order(&ask);
    assert!(
        matches!(&reply, ControlReply::Refused { text } if text.contains("There is no volume")),
        "{reply:?}"
    );
    assert!(matches!(world.tool(&first).order(&ask), ControlReply::Volume { .. }));
    let greets = |daemon| Role::Node {
        daemon: DaemonId(daemon),
        incarnation: 1,
        boot: 1,
        directory: 1,
        members: vec![(VOLUME, NodeId(1))],
    };
    assert!(world.connect(&first, greets(OTHER)).is_err(), "a client is no node");
    // A node of the cluster, but not that one of the volume.
    let third = Key::generate().unwrap();
    world.change(|list| list.nodes.push(of_list(0xc, &third)));
    let why = world.connect(&world.holder(Holder::Node(DaemonId(0xc))), greets(0xc)).err().unwrap();
    assert!(why.contains("not in the list of the cluster"), "with another key than the list has: {why}");
    let third = credentials(&world.ca, Holder::Node(DaemonId(0xc)), third);
    let why = world.connect(&third, greets(0xc)).err().unwrap();
    assert!(why.contains("is another node of the cluster"), "{why}");
    world.connect(&world.other(), greets(OTHER)).unwrap();
}

#[test]
fn whoever_was_removed_is_not_let_in_and_its_links_are_known() {
    let world = World::new(vec![Grant::default()]);
    let who = world.holder(Holder::Client(2));
    let asker = world.tool(&who);
    let still = |world: &World| {
        let links = world.listener.links();
        let is_known = world.node.refresh_cluster().unwrap();
        links.iter().filter(|link| is_known(link)).count()
    };
    // The node counts it a moment after it has let it in.
    let until = std::time::Instant::now() + LONG;
    while still(&world) != 1 {
        assert!(std::time::Instant::now() < until);
    }
    world.change(|list| list.clients.clear());
    assert_eq!(still(&world), 0);
    let reply = asker.order(&Control::Volume { name: "home".to_owned() });
    assert!(
        matches!(&reply, ControlReply::Refused { text } if text.contains("not in the list of the cluster")),
        "{reply:?}"
    );
    let why = world.connect(&who, Role::Tool).err().unwrap();
    assert!(why.contains("was removed"), "{why}");
    let stranger = world.holder(Holder::Node(DaemonId(0x99)));
    assert!(world.connect(&stranger, Role::Tool).is_err(), "a certificate is not enough");
}

fn outcome_errno(outcome: &Outcome) -> Option<Errno> {
    match outcome {
        Outcome::Failed { errno } => Some(*errno),
        _ => None,
    }
}

#[test]
fn the_limits_of_a_client_hold_at_the_island_whatever_the_client_says() {
    let reads = Grant { read_only: true, ..Grant::default() };
    let squashed = Grant { squash: Some((1000, 1000)), ..Grant::default() };
    let world = World::new(vec![Grant::default(), reads, squashed]);
    let attached = |number: u64| {
        let asker = world.connect(&world.holder(Holder::Client(number)), as_client(number, VOLUME)).unwrap();
        let session = session_of(number);
        let attach = ClientOp::Attach { mount: false };
        let outcome = asker.request(session, 1, Caller::ROOT, attach);
        assert!(matches!(outcome, Outcome::Attached { .. }), "{outcome:?}");
        move |seq, op| asker.request(session, seq, Caller::ROOT, ClientOp::Fs { op })
    };
    let root = atoll_core::Ino::ROOT;
    let create = |name: &str, mode| Op::Create {
        dir: root,
        name: atoll_core::Name::new(name.as_bytes()).unwrap(),
        kind: atoll_posix::Kind::Regular,
        mode,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: bytes::Bytes::new(),
    };
    let whole = attached(2);
    let made = whole(2, create("secret", 0o600));
    let Outcome::Ok { answer: Answer::Found { found }, .. } = made else { panic!("{made:?}") };
    let ino = found.attr.ino;
    let read = || Op::Read { ino, offset: 0, len: 10 };
    let limited = attached(3);
    assert_eq!(outcome_errno(&limited(2, create("mine", 0o600))), Some(Errno::EROFS));
    assert_eq!(outcome_errno(&limited(0, read())), None);
    let squashed = attached(4);
    assert_eq!(outcome_errno(&squashed(0, read())), Some(Errno::EACCES), "it said that it is root");
    assert_eq!(outcome_errno(&whole(0, read())), None);
}

/// Bytes of all kinds of something, from the files that say how each is written, with other ids in them.
fn all_kinds<T: Decode>(file: &str, ids: [(Ino, Ino); 2]) -> Vec<(String, T)> {
    let path = format!("{}/../../pure/proto/tests/golden/{file}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let samples = text.split("# ").skip(1).map(|sample| {
        let (name, hex) = sample.split_once('\n').unwrap();
        let byte = |hex| u8::from_str_radix(hex, 16).unwrap();
        let mut bytes: Vec<u8> = hex.split_whitespace().map(byte).collect();
        for (old, new) in ids {
            let (old, new) = (old.0.to_le_bytes(), new.0.to_le_bytes());
            for at in 0..bytes.len().saturating_sub(7) {
                if bytes[at..at + 8] == old {
                    bytes[at..at + 8].copy_from_slice(&new);
                }
            }
        }
        (name.to_owned(), T::from_slice(&bytes).unwrap())
    });
    samples.collect()
}

/// The ids of a directory and of a file in those files.
const GOLDEN: [Ino; 2] = [Ino(0x300_0000_0405), Ino(0x2_0000_0000_1234)];

#[test]
fn a_client_of_a_subtree_gets_nothing_outside_whatever_it_sends() {
    const SECRET: &[u8] = b"a secret that is outside";
    let world = World::new(vec![Grant::default()]);
    let whole = world.connect(&world.holder(Holder::Client(2)), as_client(2, VOLUME)).unwrap();
    let attach = || ClientOp::Attach { mount: true };
    let session = session_of(2);
    for island in [0, 1] {
        let attached = whole.request_at(island, session, 0, Caller::ROOT, attach(), b"").0;
        assert!(matches!(attached, Outcome::Attached { .. }), "{attached:?}");
    }
    let seq = std::cell::Cell::new(1);
    // At the island that can answer.
    let does = |op: Op, data: &[u8]| {
        seq.set(seq.get() + 1);
        let number = if op.changes() { seq.get() } else { 0 };
        let at = |island| {
            let op = ClientOp::Fs { op: op.clone() };
            whole.request_at(island, session, number, Caller::ROOT, op, data)
        };
        match at(0) {
            (outcome, _) if outcome_errno(&outcome) == Some(Errno::ESTALE) => at(1),
            told => told,
        }
    };
    let made = |op: Op| match does(op, b"").0 {
        Outcome::Ok { answer: Answer::Found { found }, keys } => (found.attr.ino, keys.first().copied()),
        outcome => panic!("{outcome:?}"),
    };
    let name = |text: &str| atoll_core::Name::new(text.as_bytes()).unwrap();
    let mkdir = |dir, text: &str| made(Op::Mkdir { dir, name: name(text), mode: 0o777, umask: 0 });
    let create = |dir, text: &str| {
        let (name, kind, target) = (name(text), atoll_posix::Kind::Regular, bytes::Bytes::new());
        made(Op::Create { dir, name, kind, mode: 0o666, umask: 0, rdev: 0, exclusive: true, target }).0
    };
    let write = |ino| {
        let op = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        assert!(matches!(does(op, SECRET).0, Outcome::Ok { .. }));
    };
    let (scope, key) = mkdir(Ino::ROOT, "in");
    let (out, _) = mkdir(Ino::ROOT, "out");
    // Directories of both islands, and files in them.
    let outside: Vec<(Ino, Ino)> = (0..4)
        .map(|n| {
            let (dir, _) = mkdir(out, &format!("d{n}"));
            let file = create(dir, "name");
            write(file);
            (dir, file)
        })
        .collect();
    let own = create(scope, "own");
    write(own);
    let path = VolumePath::parse(b"/in").unwrap();
    let subtree = Some(Subtree { dir: scope, key: key.unwrap(), path });
    world.change(|list| {
        let grant = Grant { volume: Some(VOLUME), subtree: subtree.clone(), ..Grant::default() };
        list.clients.push(client(3, grant.clone()));
        list.clients.push(client(4, Grant { read_only: true, squash: Some((1000, 1000)), ..grant }));
    });
    let listed = |dir| does(Op::ReadDir { dir, after: 0, bytes: 9999, plus: true }, b"").0;
    let before: Vec<Outcome> = outside.iter().map(|(dir, _)| listed(*dir)).collect();
    for number in [3, 4] {
        let who = world.holder(Holder::Client(number));
        let asker = world.connect(&who, as_client(number, VOLUME)).unwrap();
        let asks = |island, seq, op: ClientOp| {
            asker.request_at(island, session_of(number), seq, Caller::ROOT, op, b"stolen")
        };
        for island in [0, 1] {
            // Whatever it says, it is attached to its own directory.
            let attached = asks(island, 0, ClientOp::AttachWithin { mount: true, scope: Ino::ROOT }).0;
            assert!(matches!(attached, Outcome::Attached { .. }), "{attached:?}");
        }
        let fails = |what: &str, (outcome, bytes): (Outcome, Vec<u8>)| {
            let errno = outcome_errno(&outcome).unwrap_or_else(|| panic!("{what} tells {outcome:?}"));
            let expected = [Errno::ESTALE, Errno::EPERM, Errno::ENOSYS, Errno::EROFS];
            assert!(expected.contains(&errno) && bytes.is_empty(), "{what}: {errno}");
        };
        let mut seq = 1;
        for (dir, ino) in outside.iter().copied().chain([(Ino::ROOT, Ino::ROOT), (out, own.max(scope))]) {
            // The last one is inside, and its directory is not.
            let is_own = dir == out;
            for island in [0, 1] {
                for (what, op) in all_kinds::<Op>("op", [(GOLDEN[0], dir), (GOLDEN[1], ino)]) {
                    if op == Op::Statfs || (is_own && op.dirs()[0].is_none()) {
                        continue;
                    }
                    let names = |dir, text| {
                        Some(Box::new(FoundBy { file: at(dir, text), from: Some(at(dir, text)) }))
                    };
                    for by in [None, names(dir, "name"), names(scope, "own")] {
                        seq += 1;
                        let extras = Extras { by: by.clone(), ..Extras::default() };
                        for op in [
                            ClientOp::Fs { op: op.clone() },
                            ClientOp::Rename { op: op.clone(), key: key.unwrap() },
                            ClientOp::Link { op: op.clone(), home: IslandId(island) },
                        ] {
                            fails(&what, asks(island, seq, op.with_extras(extras.clone())));
                        }
                    }
                }
                for (what, op) in all_kinds::<ClientOp>("client_op", [(GOLDEN[0], dir), (GOLDEN[1], ino)]) {
                    match op {
                        // About its own session, and what that holds.
                        ClientOp::Attach { .. }
                        | ClientOp::AttachWithin { .. }
                        | ClientOp::Renew
                        | ClientOp::Lease
                        | ClientOp::Dropped
                        | ClientOp::DroppedOf { .. }
                        | ClientOp::Release { .. } => drop(asks(island, 0, op)),
                        // The first has no answer, and the second ends it all.
                        ClientOp::Cancel { .. } | ClientOp::Detach => {}
                        ClientOp::Fs { op: Op::Statfs } => {}
                        op => fails(&what, asks(island, 0, op)),
                    }
                }
            }
        }
        // And it has what is its own.
        let by = Some(Box::new(FoundBy { file: at(scope, "own"), from: None }));
        let read = ClientOp::Fs { op: Op::Read { ino: own, offset: 0, len: 99 } };
        let read = read.with_extras(Extras { by, ..Extras::default() });
        let told: Vec<_> = [0, 1].map(|island| asks(island, 0, read.clone()).1).concat();
        assert_eq!(told, SECRET);
    }
    for ((dir, file), before) in outside.iter().zip(before) {
        assert_eq!(listed(*dir), before, "nothing was changed");
        assert_eq!(does(Op::Read { ino: *file, offset: 0, len: 99 }, b"").1, SECRET);
    }
}

fn at(dir: Ino, text: &str) -> EntryRef {
    EntryRef { dir, name: atoll_core::Name::new(text.as_bytes()).unwrap() }
}

#[test]
fn a_guest_joins_once_and_may_ask_again_with_the_same_key() {
    let world = World::new(Vec::new());
    let (line, key) = guest(&[7; 16], digest(&world.ca)).unwrap();
    let (late, late_key) = guest(&[8; 16], digest(&world.ca)).unwrap();
    world.tool_is_refused(&line);
    world.change(|list| {
        list.invitations.push(Invitation { guest: key.clone().into(), until: in_an_hour(), used_by: None });
        list.invitations.push(Invitation { guest: late_key.into(), until: 1, used_by: None });
    });
    world.tool_is_refused(&late);
    let join = |key: &Key, daemon, name: &str, address: &str| {
        let purpose = CertificateFor::Join { daemon, name: name.to_owned(), address: address.to_owned() };
        world.tool(&line).order(&Control::Certify { purpose, key: key.public().into() })
    };
    let refused = |reply: ControlReply| match reply {
        ControlReply::Refused { text } => text,
        reply => panic!("{reply:?}"),
    };
    let new = Key::generate().unwrap();
    for (name, address, word) in [
        ("n1", ":7", "There is a node n1 already"),
        ("a b", ":7", "cannot name a node"),
        ("", "127.0.0.1:1", "is the address of node n1"),
        ("", "unix:/x", "HOST:PORT"),
        ("", "nonsense", "is not an address"),
    ] {
        let text = refused(join(&new, 0x20, name, address));
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(world.list().cluster.nodes.len(), 2, "nothing is half-made");
    let joined = |reply| match reply {
        ControlReply::Issued { issued } => *issued,
        reply => panic!("{reply:?}"),
    };
    let first = joined(join(&new, 0x20, "", ":7100"));
    // Whoever has taken the line learns nothing by it: the node has yet to show that the key is its own.
    assert!(first.ca_key.is_empty() && first.cluster == StoredCluster::default());
    // The answer was lost.
    let again = joined(join(&new, 0x20, "", ":7100"));
    assert_eq!(world.list().cluster.nodes.len(), 3);
    let other = Key::generate().unwrap();
    assert!(refused(join(&other, 0x20, "", ":7100")).contains("another key"));
    assert!(refused(join(&other, 0x21, "", ":7101")).contains("used already"));
    let mine = new.with(&again.certificate, &again.ca);
    assert!(matches!(world.tool(&mine).order(&Control::Describe), ControlReply::Described { .. }));
    assert_eq!(guest_number(&key), guest_number(&key));
    // It is renewed with its own key only.
    let renew = |key: &Key| {
        world
            .tool(&mine)
            .order(&Control::Certify { purpose: CertificateFor::Renewal, key: key.public().into() })
    };
    assert!(refused(renew(&other)).contains("not the one that this node has joined with"));
    let own = Key::from_der(mine.key.secret_der()).unwrap();
    let told = joined(renew(&own));
    let of_list = told.cluster.cluster.node(0x20).unwrap().clone();
    assert_eq!((of_list.name.as_str(), of_list.address.as_str()), ("node1", "127.0.0.1:7100"));
    assert!(!told.ca_key.is_empty() && of_list.has_ca_key, "the second one that keeps it");
    // It does not come back by its old line when it was removed.
    world.change(|list| list.nodes.retain(|node| node.daemon != 0x20));
    assert!(refused(join(&own, 0x20, "", ":7100")).contains("was removed from the cluster"));
    assert_eq!(world.list().cluster.nodes.len(), 2);
    assert!(world.security.me() == atoll_rpc::Peer::Node(DaemonId(ME)));
}

impl World {
    fn tool_is_refused(&self, who: &Credentials) {
        assert!(self.connect(who, Role::Tool).is_err());
    }
}
