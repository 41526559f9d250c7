//! A hostile peer over a real socket: whatever it sends is answered with an error or with the end of
//! the connection, the node goes on serving others, and nothing outside the data directory changes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_control::{DataDir, EmbeddedStore};
use atoll_core::{Encode, Ino, IslandId, Key, Name, NodeId, SessionId, Stamp, Table, TxnId, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_posix::{Allocation, Answer, Caller, Kind, LockKind, LockRange, Op, RenameMode, SetAttr};
use atoll_proto::{
    ClientOp, Control, ControlReply, NodeConfig, Outcome, ParticipantWork, PeerMessage, PeerOp, Reply,
    Request, RequestId, TxnPart, TxnStamps, VolumeConfig, VolumeKind,
};
use atoll_rpc::header::{HEADER_BYTES, VERSION_HIGHEST, encode_head};
use atoll_rpc::{DaemonId, Frame, FrameKind, FrameReader, Hello, Listener, Options, Role};
use atoll_server::{Cluster, Node, NodeSetup, VolumeOptions};
use bytes::Bytes;

const VOLUME: VolumeId = VolumeId(0xbad);
const ANSWER: Duration = Duration::from_secs(10);
/// A name that is no name is put in the place of one of this letter.
const LETTER: u8 = b'Z';

/// Another node, with these members of volumes.
const fn node_with(members: Vec<(VolumeId, NodeId)>) -> Role {
    Role::Node { daemon: DaemonId(9), incarnation: 1, boot: 1, directory: 1, members }
}

struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }
}

/// A node with a volume of two islands, in one of two folders that lie beside each other.
struct Victim {
    dir: tempfile::TempDir,
    node: Arc<Node>,
    listener: Listener,
    place: String,
}

impl Victim {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/secret"), b"secret").unwrap();
        let data = dir.path().join("data");
        let data_dir = DataDir::open_or_create(&data).unwrap();
        let daemon = data_dir.identity().node;
        let islands = move || Cluster {
            fills: Arc::default(),
            options: VolumeOptions {
                beside: None,
                sites: Default::default(),
                rows_max: 1000,
                snapshot_cache_bytes: 1 << 20,
                log: atoll_log::Config::default(),
                root: false,
                devices: false,
                owner: (0, 0),
                daemon,
                incarnation: 1,
                directory: 1,
                is_new: true,
                reached: std::collections::BTreeMap::new(),
            },
            shelf: Arc::new(|folder: &Path, island, _| {
                let path = folder.join(island.to_string());
                std::fs::create_dir_all(&path).unwrap();
                Ok(Arc::new(RealDisk::open(&path).unwrap()))
            }),
            beside: Arc::new(|folder: &Path| RealDisk::open(folder).map(Arc::new)),
        };
        let node = Node::new(NodeSetup {
            sites: Default::default(),
            identity: data_dir.identity(),
            incarnation: 1,
            kinds: Box::new(move |_| Ok(Arc::new(islands()))),
            store: Arc::new(EmbeddedStore::open(&data.join("control.redb")).unwrap()),
            prepared: Box::new(EmbeddedStore::open(&data.join("prepared.redb")).unwrap()),
            secured: None,
            data,
        });
        let node = node.unwrap();
        node.prepare(&config("home", VOLUME), NodeId(0)).unwrap();
        node.activate(VOLUME).unwrap();
        let listener =
            Listener::start(&"127.0.0.1:0".parse().unwrap(), Arc::clone(&node) as _, Options::default());
        let listener = listener.unwrap();
        let place = listener.address().to_string();
        Self { dir, node, listener, place }
    }

    fn client(&self, session: u64) -> Peerless {
        let role = Role::Client { volume: VOLUME, session: SessionId(session) };
        let mut peer = Peerless::connect(&self.place);
        peer.greet(role);
        peer.session = session;
        assert!(matches!(peer.ask(0, ClientOp::Attach { mount: false }), Some(Outcome::Attached { .. })));
        assert!(matches!(peer.ask(1, ClientOp::Attach { mount: false }), Some(Outcome::Attached { .. })));
        peer
    }

    /// Stops in order; the plain trees are laid then, if not before. What lies outside of the data
    /// directory afterwards.
    fn stop(mut self) -> Outside {
        self.listener.stop();
        assert_eq!(self.node.stop(), Vec::<String>::new());
        outside(self.dir.path())
    }
}

/// Paths, with inode number, time and content.
type Outside = BTreeMap<PathBuf, (u64, i64, Vec<u8>)>;

/// What lies in a folder, outside of the data directory in it.
fn outside(dir: &Path) -> Outside {
    let data = dir.join("data");
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            let mtime = if path == data { 0 } else { meta.mtime() };
            if meta.is_dir() && path != data {
                left.push(path.clone());
            }
            all.insert(path, (meta.ino(), mtime, content));
        }
    }
    all
}

/// Another node of the volume, and its island.
const OTHER: NodeId = NodeId(1);
const OF_OTHER: IslandId = IslandId(2);

fn config(name: &str, id: VolumeId) -> VolumeConfig {
    let islands = vec![IslandId(0), IslandId(1)];
    VolumeConfig {
        id,
        name: name.to_owned(),
        seed: 4,
        table: Table::new(2),
        nodes: vec![
            NodeConfig { daemon: 0, node: NodeId(0), address: String::new(), islands },
            // Nobody is there: it is played by the tests.
            NodeConfig { daemon: 0, node: OTHER, address: "127.0.0.1:9".to_owned(), islands: vec![OF_OTHER] },
        ],
        kind: VolumeKind::Cluster,
        copies: None,
        site: None,
    }
}

/// Somebody with a socket.
struct Peerless {
    socket: TcpStream,
    reader: FrameReader,
    session: u64,
    next: u64,
}

impl Peerless {
    fn connect(place: &str) -> Self {
        let socket = TcpStream::connect(place).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Self { socket, reader: FrameReader::new(false), session: 0, next: 1 }
    }

    fn greet(&mut self, role: Role) {
        self.frame(FrameKind::Hello, 0, &Hello::new(role, None).to_vec(), b"");
        let answer = self.answer().expect("an answer to a good greeting");
        assert_eq!(answer.kind, FrameKind::HelloOk);
        self.reader.agree(VERSION_HIGHEST);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // It may have been thrown out already.
        let _ = self.socket.write_all(bytes);
    }

    fn frame(&mut self, kind: FrameKind, island: u16, meta: &[u8], payload: &[u8]) -> u64 {
        let mut out = Vec::new();
        self.next += 1;
        let meta = Raw(meta.to_vec());
        encode_head(VERSION_HIGHEST, kind, IslandId(island), self.next, &meta, payload, true, &mut out)
            .unwrap();
        out.extend_from_slice(payload);
        self.bytes(&out);
        self.next
    }

    /// The next frame; none if the connection has ended.
    fn answer(&mut self) -> Option<Frame> {
        let until = Instant::now() + ANSWER;
        let mut buf = [0; 65_536];
        loop {
            match self.reader.next_frame().expect("a node sends frames") {
                Some(frame) if frame.kind == FrameKind::Alive => continue,
                Some(frame) => return Some(frame),
                None => {}
            }
            match self.socket.read(&mut buf) {
                Ok(0) => return None,
                Ok(n) => self.reader.feed(&buf[..n]),
                Err(e)
                    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
                {
                    assert!(Instant::now() < until, "neither an answer nor an end");
                }
                Err(_) => return None,
            }
        }
    }

    /// It is disconnected, perhaps with a word why.
    fn is_thrown_out(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
        while let Some(frame) = self.answer() {
            assert!(matches!(frame.kind, FrameKind::Goodbye | FrameKind::Alive), "{frame:?}");
        }
    }

    fn request(&mut self, op: ClientOp) -> Request {
        self.next += 1;
        Request {
            session: SessionId(self.session),
            seq: self.next,
            acked: 0,
            table: 1,
            vector: Vec::new(),
            caller: Caller::ROOT,
            op,
        }
    }

    /// The outcome of a request; none if that ended the connection.
    fn outcome_of(&mut self, island: u16, meta: &[u8], payload: &[u8]) -> Option<Outcome> {
        let id = self.frame(FrameKind::Request, island, meta, payload);
        loop {
            let frame = self.answer()?;
            match frame.kind {
                FrameKind::Reply if frame.id == id => return Some(frame.decode::<Reply>().unwrap().outcome),
                FrameKind::Reply | FrameKind::Notice | FrameKind::Goodbye | FrameKind::Alive => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn ask(&mut self, island: u16, op: ClientOp) -> Option<Outcome> {
        loop {
            let request = self.request(op.clone());
            match self.outcome_of(island, &request.to_vec(), b"") {
                // The islands have just started.
                Some(Outcome::NotNow) => std::thread::sleep(Duration::from_millis(20)),
                other => return other,
            }
        }
    }

    fn fs(&mut self, op: Op) -> Option<Outcome> {
        self.ask(root_owner(), ClientOp::Fs { op })
    }

    fn made(&mut self, op: Op) -> Ino {
        match self.fs(op) {
            Some(Outcome::Ok { answer: Answer::Found { found }, .. }) => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }
}

fn root_owner() -> u16 {
    Table::new(2).owner(Key(0)).0
}

fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).unwrap()
}

fn create(dir: Ino, name: Name, kind: Kind, target: &[u8]) -> Op {
    let target = Bytes::copy_from_slice(target);
    Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: false, target }
}

/// What a volume must still do: for somebody else, now.
fn serves(victim: &Victim, n: u64) {
    let mut good = victim.client(1000 + n);
    let file = good.made(create(Ino::ROOT, name(format!("good {n}").as_bytes()), Kind::Regular, b""));
    let write = Op::Write { ino: file, offset: 0, append: false, kill_set_id: false };
    let request = good.request(ClientOp::Fs { op: write }).to_vec();
    let wrote = good.outcome_of(root_owner(), &request, b"bytes");
    assert!(matches!(wrote, Some(Outcome::Ok { answer: Answer::Wrote { len: 5, .. }, .. })), "{wrote:?}");
    let found = good.fs(Op::Lookup { dir: Ino::ROOT, name: name(format!("good {n}").as_bytes()) });
    assert!(matches!(found, Some(Outcome::Ok { .. })), "{found:?}");
}

/// Runs a lie against a new node, which must serve on, and have touched nothing outside.
fn against(lie: impl FnOnce(&Victim)) {
    let victim = Victim::start();
    let before = outside(victim.dir.path());
    serves(&victim, 1);
    lie(&victim);
    serves(&victim, 2);
    assert_eq!(victim.stop(), before);
}

fn stream_lies() -> Vec<(&'static str, Vec<u8>)> {
    let good = |kind: FrameKind, meta: &[u8], payload: &[u8]| {
        let mut out = Vec::new();
        let meta = Raw(meta.to_vec());
        encode_head(VERSION_HIGHEST, kind, IslandId(0), 1, &meta, payload, true, &mut out).unwrap();
        out.extend_from_slice(payload);
        out
    };
    let request = good(FrameKind::Request, &[1; 60], b"payload");
    let with = |at: usize, bytes: &[u8]| {
        let mut lie = request.clone();
        lie[at..at + bytes.len()].copy_from_slice(bytes);
        lie
    };
    vec![
        ("another protocol", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("zeros", vec![0; 4096]),
        ("magic", with(0, b"ATOM")),
        ("version", with(4, &[99, 0])),
        ("kind 0", with(6, &[0])),
        ("kind 77", with(6, &[77])),
        ("flags", with(7, &[0xfe])),
        ("a meta part of 4 GiB", with(16, &[0xff; 4])),
        ("a payload of 4 GiB", with(20, &[0xff; 4])),
        ("a meta part of 1 MiB that never comes", with(16, &(1u32 << 20).to_le_bytes())),
        ("reserved bytes", with(26, &[1, 1])),
        ("payload checksum", with(28, &[9; 4])),
        ("head checksum", with(32, &[9; 4])),
        ("cut short", request[..HEADER_BYTES + 9].to_vec()),
        ("a meta part that is none", request.clone()),
        ("a second greeting", good(FrameKind::Hello, &Hello::new(Role::Tool, None).to_vec(), b"")),
        ("an answer", good(FrameKind::Reply, &Reply::bare(Outcome::NotNow).to_vec(), b"")),
        ("a hundred frames that are none", request.repeat(100)),
    ]
}

#[test]
fn bytes_that_are_no_frames_end_the_connection_and_nothing_else() {
    against(|victim| {
        for (what, lie) in stream_lies() {
            for greeted in [false, true] {
                let mut peer = Peerless::connect(&victim.place);
                if greeted {
                    peer.greet(Role::Client { volume: VOLUME, session: SessionId(5) });
                }
                eprintln!("{what}, greeted: {greeted}");
                peer.bytes(&lie);
                // A greeting is none only for who has greeted.
                if greeted || what != "a second greeting" {
                    peer.is_thrown_out();
                }
            }
        }
    });
}

/// Names that are none, of which the codec could make a path that climbs.
const NO_NAMES: &[&[u8]] =
    &[b"..", b".", b"/", b"a/b", b"../../outside/evil", b"/etc/evil", b"a\0b", b"\0", b""];

#[test]
fn names_that_are_none_are_refused_in_every_operation() {
    let z = |n: usize| name(&vec![LETTER; n.max(1)]);
    let ops = |n: usize| {
        let (new_dir, mode) = (Ino::ROOT, RenameMode::Replace);
        vec![
            Op::Lookup { dir: Ino::ROOT, name: z(n) },
            create(Ino::ROOT, z(n), Kind::Regular, b""),
            create(Ino::ROOT, z(n), Kind::Symlink, b"/"),
            Op::Mkdir { dir: Ino::ROOT, name: z(n), mode: 0o755, umask: 0 },
            Op::Unlink { dir: Ino::ROOT, name: z(n) },
            Op::Rmdir { dir: Ino::ROOT, name: z(n), meant: None },
            Op::Rename {
                dir: Ino::ROOT,
                name: name(b"good 1"),
                new_dir,
                new_name: z(n),
                mode,
                meant: None,
                new_meant: None,
            },
            Op::Rename {
                dir: Ino::ROOT,
                name: z(n),
                new_dir,
                new_name: name(b"x"),
                mode,
                meant: None,
                new_meant: None,
            },
            Op::Link { ino: Ino(1 << 48 | 17), dir: Ino::ROOT, name: z(n) },
        ]
    };
    against(|victim| {
        for lie in NO_NAMES {
            for op in ops(lie.len()) {
                let mut peer = victim.client(7);
                let shown = format!("{op:?}");
                let meta = peer.request(ClientOp::Fs { op }).to_vec();
                // In place of the letters, as long as they.
                let at =
                    meta.windows(lie.len().max(1)).rposition(|w| w.iter().all(|b| *b == LETTER)).unwrap();
                let lied = match lie.len() {
                    0 => [&meta[..at - 1], &[0], &meta[at + 1..]].concat(),
                    n => [&meta[..at], lie, &meta[at + n..]].concat(),
                };
                let outcome = peer.outcome_of(root_owner(), &lied, b"");
                assert_eq!(outcome, None, "{} in {shown}", lie.escape_ascii());
            }
        }
    });
}

#[test]
fn who_speaks_for_others_or_to_others_is_thrown_out() {
    against(|victim| {
        let stat = |peer: &mut Peerless| peer.request(ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } });
        let mut peer = victim.client(7);
        let request = stat(&mut peer).to_vec();
        assert_eq!(peer.outcome_of(99, &request, b""), None, "an island that is not there");
        let mut peer = victim.client(7);
        let other = Request { session: SessionId(1001), ..stat(&mut peer) };
        assert_eq!(peer.outcome_of(root_owner(), &other.to_vec(), b""), None, "another's session");
        let mut peer = victim.client(7);
        let message =
            PeerMessage { from: IslandId(0), incarnation: 1, vector: Vec::new(), op: PeerOp::Hello };
        peer.frame(FrameKind::Peer, 0, &message.to_vec(), b"");
        peer.is_thrown_out();
        // As a node, it is none of this node's islands, and none of a third one's.
        for from in [0, 1, 3, u16::MAX] {
            let mut peer = Peerless::connect(&victim.place);
            peer.greet(node_with(vec![(VOLUME, OTHER)]));
            let message = PeerMessage { from: IslandId(from), ..message.clone() };
            peer.frame(FrameKind::Peer, 1 - from.min(1), &message.to_vec(), b"");
            peer.is_thrown_out();
        }
        // Nodes that the volume does not have, and this one.
        for node in [NodeId(9), NodeId(0)] {
            let mut peer = Peerless::connect(&victim.place);
            let role = node_with(vec![(VOLUME, node)]);
            peer.frame(FrameKind::Hello, 0, &Hello::new(role, None).to_vec(), b"");
            peer.is_thrown_out();
        }
        // An unknown volume, a volume of nobody.
        for role in [Role::Client { volume: VolumeId(404), session: SessionId(7) }, node_with(Vec::new())] {
            let mut peer = Peerless::connect(&victim.place);
            peer.frame(FrameKind::Hello, 0, &Hello::new(role, None).to_vec(), b"");
            peer.is_thrown_out();
        }
        let mut tool = Peerless::connect(&victim.place);
        tool.greet(Role::Tool);
        let request = stat(&mut tool).to_vec();
        assert_eq!(tool.outcome_of(root_owner(), &request, b""), None, "a request on a link for no volume");
    });
}

#[test]
fn islands_that_the_volume_does_not_have_are_not_listened_to() {
    against(|victim| {
        let mut peer = Peerless::connect(&victim.place);
        peer.greet(node_with(vec![(VOLUME, OTHER)]));
        let txn = TxnId { coordinator: IslandId(7), stamp: Stamp(u64::MAX) };
        let seal =
            || ParticipantWork::Seal { ino: Ino::ROOT, parent: Ino::ROOT, name: Name::new(b"n").unwrap() };
        let origin = RequestId { session: SessionId(1), seq: 1 };
        let stamps = Some(TxnStamps::default());
        let lies = [
            PeerOp::Hello,
            PeerOp::Prepare { txn, origin, work: seal() },
            PeerOp::Decided { txn, stamps, part: Some(Box::new(TxnPart { request: origin, work: seal() })) },
            PeerOp::Stable { txns: vec![(txn, Stamp(u64::MAX))] },
            PeerOp::CarriedOut {
                txn,
                stamps: TxnStamps::default(),
                part: Box::new(TxnPart { request: origin, work: seal() }),
            },
            PeerOp::ReturnedJournal { entries: Vec::new() },
            PeerOp::JournalDurable { upto: Stamp(u64::MAX) },
            PeerOp::Journal { after: Stamp(0), entries: Vec::new(), private: false },
            PeerOp::Applied { upto: Stamp(u64::MAX), synced: true },
            PeerOp::Resend { after: Stamp(u64::MAX) },
        ];
        for lie in lies {
            let vector = vec![(IslandId(u16::MAX), Stamp(u64::MAX)), (IslandId(0), Stamp(u64::MAX))];
            let message = PeerMessage { from: OF_OTHER, incarnation: 1, vector, op: lie };
            peer.frame(FrameKind::Peer, root_owner(), &message.to_vec(), b"");
        }
        // Handled before whatever comes next on any link.
        std::thread::sleep(Duration::from_millis(100));
    });
}

#[test]
fn ids_and_numbers_that_cannot_be_are_errors() {
    against(|victim| {
        let mut peer = victim.client(7);
        let file = peer.made(create(Ino::ROOT, name(b"file"), Kind::Regular, b""));
        let ids =
            [Ino(0), Ino(2), Ino(u64::MAX), Ino::mint(IslandId(1), 1 << 40), Ino::mint(IslandId(0), 1 << 40)];
        for ino in ids {
            let n = || name(b"x");
            for op in [
                Op::GetAttr { ino },
                Op::SetAttr { ino, set: SetAttr { size: Some(1), ..SetAttr::default() } },
                Op::Lookup { dir: ino, name: n() },
                create(ino, n(), Kind::Regular, b""),
                Op::Mkdir { dir: ino, name: n(), mode: 0, umask: 0 },
                Op::Unlink { dir: ino, name: n() },
                Op::Read { ino, offset: 0, len: 10 },
                Op::Write { ino, offset: 0, append: true, kill_set_id: false },
                Op::ReadDir { dir: ino, after: 0, bytes: u32::MAX, plus: true },
                Op::Link { ino, dir: Ino::ROOT, name: n() },
                Op::Readlink { ino },
            ] {
                let shown = format!("{op:?}");
                let outcome = peer.fs(op);
                assert!(
                    !matches!(outcome, Some(Outcome::Ok { .. } | Outcome::Data { .. })),
                    "{shown}: {outcome:?}"
                );
            }
        }
        let max = u64::MAX;
        let lock =
            |start, end| LockRange { start, end, kind: LockKind::Write, owner: 1, pid: 1, flock: false };
        for op in [
            Op::Write { ino: file, offset: max, append: false, kill_set_id: false },
            Op::Write { ino: file, offset: i64::MAX as u64, append: false, kill_set_id: false },
            Op::SetAttr { ino: file, set: SetAttr { size: Some(max), ..SetAttr::default() } },
            Op::Fallocate {
                ino: file,
                offset: max,
                len: max,
                what: Allocation::Allocate { keep_size: false },
            },
            Op::Fallocate {
                ino: file,
                offset: 1,
                len: max,
                what: Allocation::ZeroRange { keep_size: false },
            },
            Op::SetLock { ino: file, lock: lock(5, 1), wait: false },
            Op::SetXattr {
                ino: file,
                name: Bytes::from(vec![b'u'; 100_000]),
                value: Bytes::new(),
                mode: atoll_posix::XattrMode::Any,
                kill_sgid: false,
            },
            create(file, name(b"below a file"), Kind::Regular, b""),
        ] {
            let shown = format!("{op:?}");
            let request = peer.request(ClientOp::Fs { op }).to_vec();
            match peer.outcome_of(root_owner(), &request, b"bytes") {
                Some(Outcome::Ok { .. } | Outcome::Data { .. }) => {
                    panic!("{} went well", &shown[..shown.len().min(200)])
                }
                Some(_) => {}
                None => peer = victim.client(7),
            }
        }
        // A size that the native file system may take or not, and what goes with it.
        for size in [1 << 40, 1 << 44, 1 << 50, 1 << 60, i64::MAX as u64, 0] {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            let outcome = peer.fs(Op::SetAttr { ino: file, set });
            assert!(outcome.is_some(), "size {size}");
        }
        // These are fine, and must stay within what is there.
        for op in [
            Op::Read { ino: file, offset: max, len: u32::MAX },
            Op::ReadDir { dir: Ino::ROOT, after: max, bytes: u32::MAX, plus: true },
            Op::CopyRange { from: file, from_offset: max, to: file, to_offset: max, len: max },
            Op::Seek { ino: file, offset: max, whence: atoll_posix::Whence::Data },
            Op::Fallocate { ino: file, offset: 1, len: i64::MAX as u64, what: Allocation::PunchHole },
        ] {
            assert!(peer.fs(op.clone()).is_some(), "{op:?}");
        }
        for op in [
            ClientOp::Release { inos: ids.to_vec() },
            ClientOp::SkeletonAttr { ino: Ino(max) },
            ClientOp::Hints { after: Ino(max) },
            ClientOp::Skeleton { parent: Ino(max), name: name(b"x") },
        ] {
            assert!(peer.ask(root_owner(), op.clone()).is_some(), "{op:?}");
        }
        // The largest that is allowed, the body can have.
        let set = SetAttr { size: Some(atoll_posix::perm::FILE_BYTES_MAX), ..SetAttr::default() };
        let outcome = peer.fs(Op::SetAttr { ino: file, set });
        assert!(matches!(outcome, Some(Outcome::Ok { .. })), "{outcome:?}");
    });
}

#[test]
fn links_that_lead_out_of_the_tree_lead_nobody_out() {
    let victim = Victim::start();
    let before = outside(victim.dir.path());
    let mut peer = victim.client(7);
    let there = victim.dir.path().join("outside");
    let targets: [&[u8]; 3] = [there.as_os_str().as_encoded_bytes(), b"../../../../../outside", b"/"];
    for (i, target) in targets.iter().enumerate() {
        let link = peer.made(create(Ino::ROOT, name(format!("out{i}").as_bytes()), Kind::Symlink, target));
        for op in [
            create(link, name(b"evil"), Kind::Regular, b""),
            Op::Mkdir { dir: link, name: name(b"evil"), mode: 0o755, umask: 0 },
            Op::Lookup { dir: link, name: name(b"secret") },
            Op::Unlink { dir: link, name: name(b"secret") },
            Op::Write { ino: link, offset: 0, append: false, kill_set_id: false },
        ] {
            let outcome = peer.fs(op.clone());
            assert!(matches!(outcome, Some(Outcome::Failed { .. })), "{op:?}: {outcome:?}");
        }
    }
    // A directory takes the name of a link that was laid, and gets a file.
    wait_for(&victim.dir.path().join(format!("data/islands/home/{}/tree/out0", root_owner())));
    assert!(matches!(peer.fs(Op::Unlink { dir: Ino::ROOT, name: name(b"out0") }), Some(Outcome::Ok { .. })));
    let dir = peer.made(Op::Mkdir { dir: Ino::ROOT, name: name(b"out0"), mode: 0o755, umask: 0 });
    for island in [0, 1] {
        peer.ask(island, ClientOp::Fs { op: create(dir, name(b"evil"), Kind::Regular, b"") });
    }
    serves(&victim, 3);
    assert_eq!(victim.stop(), before);
}

fn wait_for(path: &Path) {
    let until = Instant::now() + ANSWER;
    while std::fs::symlink_metadata(path).is_err() {
        assert!(Instant::now() < until, "{} is never laid", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn volumes_with_names_that_climb_are_not_made() {
    against(|victim| {
        for (i, evil) in ["../evil", "..", "/evil", "a/../../evil", "", ".new-1", "x\0y"].iter().enumerate() {
            let mut tool = Peerless::connect(&victim.place);
            tool.greet(Role::Tool);
            let order = Control::Prepare { config: Box::new(config(evil, VolumeId(9))), node: NodeId(0) };
            tool.frame(FrameKind::Control, 0, &order.to_vec(), b"");
            let answer = tool.answer().expect("an answer");
            let reply = answer.decode::<ControlReply>().unwrap();
            assert!(matches!(reply, ControlReply::Refused { .. }), "{i}: {reply:?}");
            for order in [Control::Activate { volume: VolumeId(9) }, Control::Discard { volume: VolumeId(9) }]
            {
                tool.frame(FrameKind::Control, 0, &order.to_vec(), b"");
                assert!(tool.answer().is_some());
            }
        }
    });
}
