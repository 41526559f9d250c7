//! The corpora: for each target a folder of small inputs, made from one value of every shape.
//!
//! `ATOLL_BLESS=1 cargo test -p atoll-fuzz --test seeds` writes the ones that are missing.

#[path = "../../../pure/proto/tests/samples/mod.rs"]
mod samples;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_ca::{Authority, Holder, JoinLine, Key, to_pem};
use atoll_causal::{
    AttrState, Context, DirBirth, DirState, Dot, FileBirth, FileId, FileState, FileVersion, HybridStamp,
    LinkPlace, Writer,
};
use atoll_core::{Encode, Ino, IslandId, Name, SessionId, Time, VolumeId};
use atoll_fuzz::TARGETS;
use atoll_posix::Kind;
use atoll_rpc::header::{VERSION_HIGHEST, encode_head};
use atoll_rpc::{ClusterId, DaemonId, FrameKind, Goodbye, Hello, HelloOk, Reason, Role, Security, hostile};
use atoll_spine::{MovedDir, Spine, SpinePlace};
use atoll_state::RowKey;
use atoll_state::state::Meta;
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::lives::{OwnLife, WriterLife};
use atoll_wide::peers::message::{Hello as SiteHello, KnownObject, Most, WideMessage};
use atoll_wide::rows::FeedRow;
use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;

/// Most bytes that all corpora together may have.
const BYTES_MAX: u64 = 200 << 10;

type Seeds = BTreeMap<String, Vec<u8>>;

struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus")
}

/// The samples of one golden file.
fn of(file: &str) -> Vec<(String, Vec<u8>)> {
    let all = samples::all().into_iter().find(|samples| samples.file == file).expect(file);
    all.samples.into_iter().map(|(name, bytes)| (name.replace(' ', "-"), bytes)).collect()
}

fn one(file: &str) -> Vec<u8> {
    of(file).swap_remove(0).1
}

fn hello() -> Vec<u8> {
    let role = Role::Client { volume: VolumeId(7), session: SessionId(0x5e55_1011) };
    Hello::new(role, Some(ClusterId(5))).to_vec()
}

fn goodbye() -> Vec<u8> {
    Goodbye { reason: Reason::Malformed, text: "why".to_owned() }.to_vec()
}

fn frame_of(kind: FrameKind, meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_head(VERSION_HIGHEST, kind, IslandId(1), 9, &Raw(meta), payload, true, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

fn frames() -> Seeds {
    let hello = frame_of(FrameKind::Hello, &hello(), b"");
    let ok = frame_of(FrameKind::HelloOk, &HelloOk::new(ClusterId(5), DaemonId(6), 7).to_vec(), b"");
    let request = frame_of(FrameKind::Request, &one("request"), b"some bytes");
    let reply = frame_of(FrameKind::Reply, &one("reply"), &[7; 300]);
    let others =
        [(FrameKind::Notice, "notice"), (FrameKind::Peer, "peer_message"), (FrameKind::Control, "control")];
    let others: Vec<u8> = others.iter().flat_map(|(kind, file)| frame_of(*kind, &one(file), b"")).collect();
    let bye = frame_of(FrameKind::Goodbye, &goodbye(), b"");
    // Larger than what is put together in the small buffer.
    let large = frame_of(FrameKind::Reply, &one("reply"), &[0x5a; 20_000]);
    let seed = |how: u8, parts: &[&[u8]]| [&[how, 1, 2][..], &parts.concat()].concat();
    [
        ("greeting", seed(1, &[&hello])),
        ("answer", seed(0, &[&ok, &bye])),
        ("work", seed(7, &[&request, &reply, &others, &bye])),
        ("unmended", seed(3, &[&request, &others])),
        ("large", seed(7, &[&large, &request])),
        ("early", seed(1, &[&request])),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

fn messages() -> Seeds {
    let files = [
        (0, "request"),
        (1, "reply"),
        (2, "notice"),
        (3, "peer_message"),
        (4, "control"),
        (5, "control_reply"),
        (9, "group_message"),
        (10, "beacon"),
        (11, "promised"),
    ];
    let mut seeds = Seeds::new();
    for (kind, file) in files {
        for (name, bytes) in of(file) {
            seeds.insert(format!("{file}-{name}"), [&[kind], &bytes[..]].concat());
        }
    }
    let before_peer =
        samples::samples("peer_before", [], vec![("hello", atoll_proto::PeerOp::Hello)]).samples[0].1.len();
    let mut head = one("peer_message");
    head.truncate(head.len() - before_peer);
    for (name, bytes) in of("peer") {
        seeds.insert(format!("peer-{name}"), [&[3], &head[..], &bytes].concat());
    }
    seeds.insert("hello".to_owned(), [&[6], &hello()[..]].concat());
    seeds.insert(
        "hello_ok".to_owned(),
        [&[7], &HelloOk::new(ClusterId(5), DaemonId(6), 7).to_vec()[..]].concat(),
    );
    seeds.insert("goodbye".to_owned(), [&[8], &goodbye()[..]].concat());
    seeds
}

fn records() -> Seeds {
    let mut seeds: Seeds = of("record").into_iter().collect();
    for (name, change) in of("change") {
        // One change, no bodies.
        seeds.insert(
            format!("change-{name}"),
            [&1u32.to_le_bytes()[..], &change, &0u32.to_le_bytes()].concat(),
        );
    }
    seeds
}

fn rows() -> Seeds {
    let name = Name::new(b"n").unwrap();
    let ino = samples::FILE;
    let keys = [
        (RowKey::Inode(ino), "inode"),
        (RowKey::Dir(Ino::ROOT), "dir"),
        (RowKey::Entry(Ino::ROOT, 99, name.clone()), "entry"),
        (RowKey::Xattrs(ino), "xattrs"),
        (RowKey::Sums(ino, 0), "sums"),
        (RowKey::Locks(ino), "locks"),
        (RowKey::Txn(samples::TXN), "txn"),
        (RowKey::Session(samples::SESSION), "session"),
        (RowKey::Outbox(samples::STAMP), "journal"),
        (RowKey::Inbox(IslandId(1), samples::STAMP), "journal"),
        (RowKey::Delivered(IslandId(1)), "clock"),
        (RowKey::Clock(IslandId(2)), "clock"),
        (RowKey::Link(ino), "link"),
    ];
    let seed = |key: &RowKey, row: &[u8]| {
        let key = key.to_bytes();
        [&[key.len() as u8], &key[..], row].concat()
    };
    let mut seeds = Seeds::new();
    for (i, (key, file)) in keys.iter().enumerate() {
        for (name, row) in of(file) {
            seeds.insert(format!("{i:02}-{file}-{name}"), seed(key, &row));
        }
    }
    let meta = Meta {
        seq: 7,
        mint_limit: 1 << 20,
        incarnation: 3,
        power: 2,
        stamp: samples::STAMP,
        clean: true,
        time: Time::from_nanos(1_800_000_000_000_000_007),
        ..Meta::default()
    };
    seeds.insert("meta".to_owned(), seed(&RowKey::Meta, &meta.to_vec()));
    seeds.insert("view".to_owned(), seed(&RowKey::View(ino), b""));
    seeds.insert("view-name".to_owned(), seed(&RowKey::ViewName(Ino::ROOT, name), b""));
    seeds
}

fn segments() -> Seeds {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../store/log/tests/golden/segment_v1.bin");
    let mut segment = std::fs::read(golden).unwrap();
    let used = segment.iter().rposition(|b| *b != 0).unwrap() + 100;
    segment.truncate(used);
    let with = |how: u8| [&[how], &segment[..]].concat();
    [("golden".to_owned(), with(0)), ("mended".to_owned(), with(1))].into()
}

fn texts() -> (Seeds, Seeds) {
    let node = "format = 1\nnode = \"00000000000000ab\"\ncluster = \"ffffffffffffffff\"\n\
                created = \"2026-11-21T09:30:00Z\"\nincarnation = 7\n";
    let newer = "format = 12\nnode = { uuid = 1 }\n[more]\nx = 1\n";
    let sources = ["node1:7100,[fd00::2]:7101:/home", "node1:/home", "10.0.0.3:7102", "unix:/run/a.sock"];
    let text = |i: usize, text: &str| (i.to_string(), text.as_bytes().to_vec());
    (
        [node, newer].iter().enumerate().map(|(i, t)| text(i, t)).collect(),
        sources.iter().enumerate().map(|(i, t)| text(i, t)).collect(),
    )
}

/// GETATTR by AUTH_SYS, CREATE without credentials, and a rule.
fn nfs_calls() -> Seeds {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    let sys = words(&[1, 0, 2, 100_003, 3, 1, 1, 24, 0, 0, 1000, 100, 1, 50, 0, 0, 8, 1, 2]);
    let none =
        words(&[2, 0, 2, 100_003, 3, 8, 0, 0, 0, 0, 8, 1, 2, 1, 0x6600_0000, 1, 1, 0o644, 0, 0, 0, 0, 0]);
    let rule = b"/projects 10.0.0.0/8(ro,anonuid=7)".to_vec();
    [("getattr", sys), ("create", none), ("rule", rule)].map(|(name, seed)| (name.to_owned(), seed)).into()
}

/// The first bytes of a client and a node. They are drawn, so what was captured once stays.
fn greetings() -> Seeds {
    let folder = corpus().join("greeting");
    let captured = |name: &str, make: &dyn Fn() -> Vec<u8>| {
        let kept = std::fs::read(folder.join(name));
        (name.to_owned(), kept.unwrap_or_else(|_| make()))
    };
    let ca = Authority::new(SystemTime::now()).unwrap();
    let uses = |holder| {
        let key = Key::generate().unwrap();
        let certificate = ca.issue(holder, &key.public(), SystemTime::now()).unwrap();
        Security::new(&key.with(&certificate, ca.certificate())).unwrap()
    };
    let (node, client) = (uses(Holder::Node(DaemonId(5))), uses(Holder::Client(7)));
    let hello = || hostile::handshake(&client, false, b"").0;
    let answer = || hostile::handshake(&node, true, &hello()).0;
    let with = |how: u8, bytes: &[u8]| [&[how], bytes].concat();
    // What is no TLS: a link in the clear, and HTTP.
    let clear = frame_of(FrameKind::Hello, &self::hello(), b"");
    [
        captured("client-hello", &|| with(0, &hello())),
        captured("server-hello", &|| with(1, &answer())),
        ("clear".to_owned(), with(0, &clear)),
        ("clear-answer".to_owned(), with(1, &clear)),
        ("http".to_owned(), with(0, b"GET / HTTP/1.1\r\n\r\n")),
    ]
    .into()
}

/// Certificates of a node, a client and a guest, as they are and changed; and bytes that are none.
fn certificates() -> Seeds {
    let changed = |which: u8, changes: &[[u8; 3]]| [&[which][..], &changes.concat()].concat();
    let pem = [&[9][..], to_pem("PRIVATE KEY", &[1; 48]).as_bytes()].concat();
    [
        ("node", changed(0, &[])),
        ("client", changed(1, &[])),
        ("guest", changed(2, &[])),
        ("changed", changed(0, &[[40, 0, 1], [200, 0, 7]])),
        ("longer", changed(1, &[[3, 0, 0xff]])),
        ("other", [&[9, 0x30, 0x82, 1, 0][..], &[0x30; 40]].concat()),
        ("key", pem),
    ]
    .map(|(name, seed)| (name.to_owned(), seed))
    .into()
}

fn join_lines() -> Seeds {
    let addresses = vec!["10.0.0.1:7100".parse().unwrap(), "[fd00::1]:7100".parse().unwrap()];
    let line = JoinLine { addresses, secret: [7; 16], ca: [9; 32], until: 1_800_000_000 }.to_string();
    let body = BASE64URL_NOPAD.decode(line.rsplit('.').next().unwrap().as_bytes()).unwrap();
    [
        ("line", [b"\0", line.as_bytes()].concat()),
        ("newer", [b"\0", line.replace("-1.", "-2.").as_bytes()].concat()),
        ("body", [b"\x01", &body[..body.len() - 4]].concat()),
    ]
    .map(|(name, seed)| (name.to_owned(), seed))
    .into()
}

fn requests() -> Seeds {
    let get = b"GET /metrics HTTP/1.1\r\nHost: n1:9100\r\n\r\n".to_vec();
    let asks = b"GET /metrics?a=b HTTP/1.0\r\n\r\n".to_vec();
    let post = b"POST / HTTP/1.1\r\n\r\n".to_vec();
    [("get", get), ("asks", asks), ("post", post)].map(|(name, seed)| (name.to_owned(), seed)).into()
}

/// What another site says that has made a directory with a file in it, and asks and answers; and one that lies.
fn sites() -> Seeds {
    let said = |messages: &[WideMessage]| {
        let parts = messages.iter().map(|message| {
            let bytes = message.to_vec();
            [&(bytes.len() as u16).to_le_bytes()[..], &bytes].concat()
        });
        parts.collect::<Vec<_>>().concat()
    };
    let stamp = |time_us| HybridStamp { time_us, writer: Writer(2) };
    let (first, second) = (Dot { writer: Writer(2), n: 1 }, Dot { writer: Writer(2), n: 2 });
    let (dir, file) = (FileId::born(first), FileId::born(second));
    let attrs = |at| AttrState::new(stamp(at), 0o755, 1, 2, Time::default());
    let name = |name: &[u8]| Name::new(name).unwrap();
    let birth = DirBirth { stamp: stamp(1), parent: FileId::ROOT };
    let head = DirState::new(birth, first, attrs(1), name(b"d")).head;
    let birth = FileBirth { kind: Kind::Regular, rdev: 0, target: Bytes::new(), copy_of: None };
    let place = LinkPlace { stamp: stamp(2), dir, name: name(b"f"), entry: second };
    let version = FileVersion { stamp: stamp(2), size: 0, mtime: Time::default(), root: 5 };
    let state = FileState::new(birth, second, attrs(2), place.clone(), version);
    let third = Dot { writer: Writer(2), n: 3 };
    let gone = vec![state.unlink(second), state.bury(third, stamp(3), dir, name(b"f"))];
    let elsewhere = LinkPlace { stamp: stamp(4), name: name(b"g"), ..place };
    let fourth = Dot { writer: Writer(3), n: 1 };
    let renamed = state.change(fourth, vec![state.relink(second, elsewhere)]);
    let removed = head.change(third, head.remove(third));
    // The site has not made this directory, and is about to make one with that dot.
    let later = FileId::born(Dot { writer: Writer(1), n: 2 });
    let mut spine = Spine::default();
    for (dir, letter) in [(dir, b"d"), (later, b"e")] {
        spine.born(dir, SpinePlace { parent: FileId::ROOT, name: name(letter), since: stamp(1) });
    }
    let moved = MovedDir { dir: later, parent: dir, name: name(b"m") };
    let record = spine.decide(Writer(2), vec![moved], |_| stamp(9)).unwrap();
    let lie = BundleChange::DirBorn { id: later, head: Box::new(head.clone()) };
    let born = vec![
        BundleChange::DirBorn { id: dir, head: Box::new(head) },
        BundleChange::FileBorn { id: file, state: Box::new(state.clone()) },
    ];
    let bundle = |position, changes| WideMessage::Bundle { bundle: Bundle { position, changes } };
    let lies = [bundle(1, vec![lie]), bundle(2, vec![BundleChange::DirsMoved { record }])];
    let unlinked = BundleChange::FileChanged { id: file, change: state.change(third, gone) };
    let renamed = BundleChange::FileChanged { id: file, change: renamed };
    let removed = BundleChange::DirChanged { id: dir, change: removed };
    let known = |object, dot| KnownObject { object, known: Context::from_iter([dot]) };
    let objects =
        || Most::new(vec![known(FeedRow::Dir { id: dir }, first), known(FeedRow::File { id: file }, second)]);
    let answer = WideMessage::State {
        changes: Most::new(born.clone()),
        known: Most::default(),
        unknown: Most::new(vec![FeedRow::File { id: FileId(7) }]),
    };
    let hello = SiteHello {
        volume: 1,
        writer: Writer(2),
        n: 3,
        own: Most::new(vec![OwnLife { position: 1, n: 1, life: 21 }]),
        writers: Most::new(vec![(Writer(1), 0), (Writer(3), 2)]),
        lives: Most::new(vec![WriterLife { writer: Writer(3), n: 1, life: 31 }]),
        has: 0,
        life: None,
        synced: 9,
    };
    let begun = OwnLife { position: 10, n: 1, life: 22 };
    let more = WriterLife { writer: Writer(3), n: 3, life: 32 };
    let lives = WideMessage::Lives { own: Most::new(vec![begun]), others: Most::new(vec![more]) };
    [
        ("births", said(&[bundle(1, born.clone())])),
        ("lives", said(&[lives, bundle(11, born.clone())])),
        ("removals", said(&[bundle(1, born.clone()), bundle(2, vec![unlinked]), bundle(3, vec![removed])])),
        ("rename", said(&[bundle(1, born), bundle(2, vec![renamed])])),
        ("news", said(&[WideMessage::Feed { upto: 4, news: objects() }, answer])),
        ("question", said(&[WideMessage::Want { objects: objects() }, WideMessage::Ack { upto: 1 }])),
        ("greeting", said(&[WideMessage::Hello { hello }])),
        ("lies", said(&lies)),
    ]
    .map(|(name, seed)| (name.to_owned(), seed))
    .into()
}

fn all() -> BTreeMap<&'static str, Seeds> {
    let (node_files, sources) = texts();
    let volumes = of("volume").into_iter().chain(of("table")).chain(of("group")).collect();
    [
        ("frame", frames()),
        ("message", messages()),
        ("record", records()),
        ("volume", volumes),
        ("segment", segments()),
        ("row", rows()),
        ("node_file", node_files),
        ("source", sources),
        ("nfs", nfs_calls()),
        ("greeting", greetings()),
        ("certificate", certificates()),
        ("join_line", join_lines()),
        ("metrics", requests()),
        ("site", sites()),
    ]
    .into()
}

#[test]
fn every_target_has_seeds_of_every_shape_and_they_are_few_bytes() {
    let all = all();
    let mut bytes = 0;
    for (target, run) in TARGETS {
        let folder = corpus().join(target);
        for (name, seed) in &all[target] {
            run(seed);
            let path = folder.join(name);
            if std::env::var_os("ATOLL_BLESS").is_some_and(|v| v == "1") {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, seed).unwrap();
            }
            assert_eq!(std::fs::read(&path).ok().as_ref(), Some(seed), "{}", path.display());
        }
        for entry in std::fs::read_dir(&folder).unwrap() {
            bytes += entry.unwrap().metadata().unwrap().len();
        }
    }
    atoll_fuzz::forget_node_file();
    assert!(bytes <= BYTES_MAX, "the corpora have {bytes} bytes");
}
