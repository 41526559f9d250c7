//! One value of every shape that is written down or sent, with its name in the golden files.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

mod members;
mod messages;
mod records;
mod sites;

use atoll_core::{
    ClockVector, Decode, Encode, Ino, IslandId, Key, Name, NodeId, SessionId, Stamp, Table, Time, TxnId,
    VolumeId,
};
use atoll_posix::{Attr, Kind, NamedObject};
use atoll_proto::group::{GroupRecord, Host, Primary, Seat};
use atoll_proto::{
    Ancestor, Copies, DirPlace, Inode, IslandGroup, NodeConfig, PlaceVersion, SiteSettings, StaticAttrs,
    Stub, VolumeConfig, VolumeKind, Xattrs,
};
use bytes::Bytes;

/// A value's name and bytes.
pub type Sample = (String, Vec<u8>);

/// All of one golden file.
pub struct Samples {
    /// Name of the file, without its ending.
    pub file: &'static str,
    pub samples: Vec<Sample>,
    /// Reads bytes as the type and writes them again.
    pub again: fn(&[u8]) -> Option<Vec<u8>>,
    /// First bytes that must be among the samples': the tags of an enum.
    pub tags: Vec<u8>,
}

/// Every golden file.
pub fn all() -> Vec<Samples> {
    let mut all = records::all();
    all.extend(messages::all());
    all.extend(members::all());
    all
}

pub fn samples<T: Encode + Decode>(
    file: &'static str,
    tags: impl IntoIterator<Item = u8>,
    values: Vec<(&str, T)>,
) -> Samples {
    let samples = values.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
    let again = |bytes: &[u8]| T::from_slice(bytes).ok().map(|value| value.to_vec());
    Samples { file, samples, again, tags: tags.into_iter().collect() }
}

pub const DIR: Ino = Ino::mint(IslandId(2), 0x1234);
pub const FILE: Ino = Ino::mint(IslandId(1), 0x10);
pub const STAMP: Stamp = Stamp::new(3, 0x0405);
pub const TXN: TxnId = TxnId { coordinator: IslandId(4), stamp: STAMP };
pub const SESSION: SessionId = SessionId(0x5e55_1011);
pub const TIME: Time = Time { secs: 1_600_000_000, nanos: 123_456_789 };

pub fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

pub const fn fixed() -> StaticAttrs {
    StaticAttrs { version: STAMP, mode: 0o2755, uid: 1000, gid: 100 }
}

pub fn place() -> DirPlace {
    let version = PlaceVersion { moves: 2, stamp: STAMP };
    DirPlace { version, parent: Ino::ROOT, name: Some(name("dir")) }
}

pub fn xattrs() -> Xattrs {
    Xattrs(vec![(Bytes::from_static(b"user.a"), Bytes::from_static(b"1")), ("user.b".into(), Bytes::new())])
}

pub const fn attr() -> Attr {
    Attr {
        ino: FILE,
        kind: Kind::Regular,
        mode: 0o644,
        nlink: 2,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 5000,
        blocks: 16,
        atime: TIME,
        mtime: Time { secs: -1, nanos: 1 },
        ctime: TIME,
        btime: TIME,
    }
}

pub fn inode() -> Inode {
    Inode {
        attr: attr(),
        target: None,
        has_xattrs: true,
        has_acl: false,
        moves: 0,
        orphan_of: vec![SESSION],
        beside: None,
        is_absent: false,
    }
}

pub const fn stub() -> Stub {
    Stub { key: Key(0xdead_beef), place: PlaceVersion { moves: 2, stamp: STAMP }, fixed: fixed(), time: TIME }
}

pub fn ancestor() -> Ancestor {
    Ancestor {
        ino: DIR,
        key: Key(7),
        birth_bytes: 19,
        place: place(),
        fixed: fixed(),
        xattrs: xattrs(),
        suspected: true,
    }
}

pub const fn found() -> NamedObject {
    NamedObject { attr: attr(), attr_current: true }
}

pub fn table() -> Table {
    Table::with_buckets(3, 4)
}

pub fn vector() -> ClockVector {
    let mut vector = ClockVector::default();
    vector.raise(IslandId(1), STAMP);
    vector
}

pub fn config() -> VolumeConfig {
    VolumeConfig {
        id: VolumeId(7),
        name: "home".to_owned(),
        seed: 9,
        table: table(),
        nodes: vec![NodeConfig {
            daemon: 0,
            node: NodeId(0),
            address: "a:1".to_owned(),
            islands: vec![IslandId(0), IslandId(1), IslandId(2)],
        }],
        kind: VolumeKind::Cluster,
        copies: None,
        site: None,
    }
}

/// Three nodes keep an island, and one leads.
pub fn group() -> GroupRecord {
    let seat = |node: u16, tenure| Seat { node: NodeId(node), tenure };
    let host = Host { boot: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, inode: 0x1112 };
    let primary = Some(Primary { node: NodeId(4), life: 0x0506, host, attempt: 2 });
    let in_sync = vec![seat(0, 1), seat(4, 0x0203), seat(2, 1)];
    GroupRecord { epoch: 0x0708, primary, in_sync, wanted: 3, power_cut: true }
}

/// The first record of a volume that is being made.
pub fn first_group() -> GroupRecord {
    let in_sync = vec![Seat { node: NodeId(1), tenure: 1 }, Seat { node: NodeId(2), tenure: 1 }];
    GroupRecord { epoch: 0, primary: None, in_sync, wanted: 2, power_cut: false }
}

/// Two nodes keep each island, and a third one has the store.
pub fn with_copies() -> VolumeConfig {
    let node = |node: u16, islands: &[u16]| NodeConfig {
        daemon: 0,
        node: NodeId(node),
        address: format!("a{node}:1"),
        islands: islands.iter().map(|island| IslandId(*island)).collect(),
    };
    let group = |island: u16, nodes: [u16; 2]| IslandGroup {
        island: IslandId(island),
        nodes: nodes.map(NodeId).to_vec(),
    };
    let groups = vec![group(0, [1, 2]), group(1, [1, 2]), group(2, [2, 1])];
    let racks = ["r0", "r1", "r2"].map(str::to_owned).to_vec();
    let copies = Some(Copies { wanted: 2, store: NodeId(0), groups, racks, ..Copies::default() });
    let nodes = vec![node(0, &[]), node(1, &[0, 1]), node(2, &[2])];
    VolumeConfig { nodes, copies, ..config() }
}

/// The same when a node is drained, and the grace is another one.
pub fn changed_copies() -> VolumeConfig {
    let mut config = with_copies();
    if let Some(copies) = &mut config.copies {
        copies.groups[0].nodes.reverse();
        (copies.drained, copies.grace_s) = (vec![NodeId(1)], Some(60));
    }
    config
}

/// The nodes have certificates.
pub fn with_daemons() -> VolumeConfig {
    let mut config = with_copies();
    config.nodes.iter_mut().zip(0x0a0b_u64..).for_each(|(node, daemon)| node.daemon = daemon);
    config
}

/// A site of a wide volume.
pub fn with_site() -> VolumeConfig {
    let site = SiteSettings {
        site: 0x0102,
        name: "home".to_owned(),
        listen: "0.0.0.0:7200".to_owned(),
        addresses: vec!["home.example:7200".to_owned()],
        bytes_per_s: 0x0304,
        uid: 5,
        gid: 6,
        hosts: vec![Bytes::from_static(b"host")],
    };
    VolumeConfig { kind: VolumeKind::Wide, site: Some(site), ..config() }
}

pub fn of_kind(kind: VolumeKind) -> VolumeConfig {
    VolumeConfig { kind, ..config() }
}
