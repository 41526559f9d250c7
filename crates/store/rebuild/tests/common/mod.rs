//! A volume in a temporary folder: served, changed by requests, stopped, looked at natively.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use atoll_body::Bodies;
use atoll_check::{Rows, Volume as Checked, check};
use atoll_client::{Client, Wire};
use atoll_core::{Ino, IslandId, Name, NodeId, SessionId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_posix::{Answer, AnswerExtras, Caller, Errno, Kind, Op, RenameMode, SetAttr, SetTime, XattrMode};
use atoll_proto::{Dir, Entry, Inode, NodeConfig, VolumeConfig, VolumeKind, Xattrs};
use atoll_rebuild::{Options, RebuildError, Summary, rebuild};
use atoll_rpc::DaemonId;
use atoll_server::{Local, LocalWay, Volume, VolumeOptions};
use atoll_snapshot::Snapshot;
use atoll_view::{Source, View, Whole};
use bytes::Bytes;

pub const LOG: atoll_log::Config = atoll_log::Config {
    segment_bytes: 4 << 20,
    record_bytes_max: 2 << 20,
    buffer_bytes_max: 8 << 20,
    keep_bytes: 0,
    boot: 0,
};

/// A volume's folder, with one folder for each island.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub config: VolumeConfig,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Place {
    pub fn new(islands: u16) -> Self {
        let config = VolumeConfig {
            id: VolumeId(0xa7011),
            name: "home".to_owned(),
            seed: 0x5eed,
            table: Table::new(islands),
            nodes: vec![NodeConfig {
                daemon: 0,
                node: NodeId(0),
                address: String::new(),
                islands: (0..islands).map(IslandId).collect(),
            }],
            kind: VolumeKind::Cluster,
            copies: None,
            site: None,
        };
        let dir = tempfile::tempdir().unwrap();
        for island in 0..islands {
            std::fs::create_dir(dir.path().join(island.to_string())).unwrap();
        }
        Self { dir, config }
    }

    pub fn island(&self, island: u16) -> PathBuf {
        self.dir.path().join(island.to_string())
    }

    pub fn islands(&self) -> Vec<u16> {
        self.config.islands().iter().map(|i| i.0).collect()
    }

    fn disk(&self, island: u16) -> Arc<RealDisk> {
        Arc::new(RealDisk::open(&self.island(island)).unwrap())
    }

    pub fn start(&self) -> Served {
        let options = VolumeOptions {
            beside: None,
            sites: Default::default(),
            rows_max: 10_000,
            snapshot_cache_bytes: 1 << 20,
            log: LOG,
            root: is_root(),
            devices: is_root(),
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            daemon: DaemonId(1),
            incarnation: 1,
            directory: 1,
            is_new: !self.island(0).join("state.redb").exists(),
            reached: BTreeMap::new(),
        };
        let volume =
            Volume::open(self.config.clone(), NodeId(0), &options, |island| Ok(self.disk(island.0))).unwrap();
        let local = volume.local();
        let wires = self.config.islands().into_iter();
        let wires: BTreeMap<_, _> = wires.map(|i| (i, Arc::clone(&local) as Arc<dyn Wire>)).collect();
        let route = atoll_route::Config {
            seed: self.config.seed,
            table: self.config.table.clone(),
            islands: self.config.islands(),
            session: SessionId(77),
            mount: true,
            keeps: false,
            patience_ms: Some(10_000),
            scope: None,
        };
        let client = Client::new(route, wires);
        local.connect(Arc::clone(&client) as _);
        assert!(client.wait_ready(Duration::from_secs(20)), "the islands do not get ready");
        Served { volume, local, client }
    }

    pub fn options(&self) -> Options {
        Options { root: is_root(), devices: is_root(), log: LOG }
    }

    pub fn rebuild_with(&self, options: &Options) -> Result<Summary, RebuildError> {
        let islands = self.islands().into_iter().map(|i| (IslandId(i), self.disk(i))).collect();
        rebuild(&self.config, &islands, options, &mut |_| {})
    }

    pub fn rebuild(&self) -> Summary {
        self.rebuild_with(&self.options()).unwrap()
    }

    /// Loses everything but trees and bodies.
    pub fn lose_states(&self) {
        for island in self.islands() {
            let folder = self.island(island);
            std::fs::remove_file(folder.join("state.redb")).unwrap();
            std::fs::remove_dir_all(folder.join("log")).unwrap();
        }
    }

    /// All trees in one: what each path is. What two trees have must agree.
    pub fn united(&self) -> BTreeMap<String, Thing> {
        let mut all = BTreeMap::new();
        for island in self.islands() {
            walk(&self.island(island).join("tree"), "", &mut all);
        }
        all
    }

    fn rows(&self, island: u16) -> Rows {
        let snapshot = Snapshot::open(&*self.disk(island), b"state.redb", 1 << 20).unwrap();
        let mut rows = Rows::new(IslandId(island));
        for (key, row) in snapshot.range(&[], &[0xff], usize::MAX).unwrap() {
            rows.take(&key, &row);
        }
        rows
    }

    /// The plain trees and bodies are what the states say.
    pub fn audit(&self) {
        for island in self.islands() {
            let disk = self.disk(island);
            let bodies = atoll_body::Options { root: is_root(), ..Default::default() };
            let bodies = Arc::new(Bodies::open(Arc::clone(&disk), b"bodies", bodies).unwrap());
            let how = atoll_view::Options { island: IslandId(island), root: is_root(), devices: is_root() };
            let view = View::open(disk, bodies, how).unwrap();
            assert!(!view.index_was_lost());
            assert_eq!(view.audit(&Plain(self.rows(island))).unwrap(), [], "island {island}");
        }
    }

    /// Nothing is wrong with the rows of all islands, and bodies are what checksums say.
    pub fn check(&self) {
        let all: Vec<Rows> = self.islands().into_iter().map(|island| self.rows(island)).collect();
        let volume = Checked { table: self.config.table.clone(), seed: self.config.seed };
        let findings = check(&volume, &all);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

/// Rows as the view reads them.
struct Plain(Rows);

impl Source for Plain {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        Ok(self.0.inodes.get(&ino).cloned())
    }
    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        Ok(self.0.dirs.get(&ino).cloned())
    }
    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        let found = self.0.names_of(dir).iter().find(|(_, n, _)| n == name);
        Ok(found.map(|(_, _, entry)| entry.clone()))
    }
    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        Ok(self.0.xattrs.get(&ino).cloned())
    }
}

impl Whole for Plain {
    fn inodes(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        Box::new(self.0.inodes.keys().copied().map(Ok))
    }
    fn dirs(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        Box::new(self.0.dirs.keys().copied().map(Ok))
    }
    fn names(&self, dir: Ino) -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>> + '_> {
        Box::new(self.0.names_of(dir).iter().map(|(_, name, entry)| Ok((name.clone(), entry.clone()))))
    }
}

/// What a path is, as far as a native tree can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    pub kind: char,
    pub mode: u32,
    pub owner: (u32, u32),
    /// Content, target, or nothing.
    pub content: Vec<u8>,
    /// Of files only: a directory's are its owner's.
    pub mtime: (i64, i64),
    /// Names of a file.
    pub nlink: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn walk(path: &Path, shown: &str, all: &mut BTreeMap<String, Thing>) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let (tag, content) = if kind.is_dir() {
        ('d', Vec::new())
    } else if kind.is_symlink() {
        ('l', std::fs::read_link(path).unwrap().into_os_string().into_vec())
    } else if kind.is_fifo() {
        ('p', Vec::new())
    } else if kind.is_socket() {
        ('s', Vec::new())
    } else if kind.is_char_device() {
        ('c', meta.rdev().to_le_bytes().to_vec())
    } else {
        ('f', std::fs::read(path).unwrap())
    };
    let xattrs = native_xattrs(path);
    let thing = Thing {
        kind: tag,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        content,
        mtime: if tag == 'd' { (0, 0) } else { (meta.mtime(), meta.mtime_nsec()) },
        // One more among the bodies.
        nlink: if tag == 'd' { 0 } else { meta.nlink() - 1 },
        xattrs,
    };
    match all.get_mut(shown) {
        None => drop(all.insert(shown.to_owned(), thing)),
        Some(before) => {
            // Only the tree of a directory's owner has others than its ACLs, as `cp -a` lays them together.
            let (mut one, mut other) = (before.clone(), thing);
            for xattrs in [&mut one.xattrs, &mut other.xattrs].into_iter().filter(|_| tag == 'd') {
                let is_acl = |name: &[u8]| name.starts_with(b"system.");
                before.xattrs.extend(xattrs.clone().into_iter().filter(|(name, _)| !is_acl(name)));
                xattrs.retain(|name, _| is_acl(name));
            }
            assert_eq!(one, other, "two trees have different things at {shown}");
        }
    }
    if tag == 'd' {
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            walk(&entry.path(), &format!("{shown}/{name}"), all);
        }
    }
}

fn native_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut buf = vec![0; 4096];
    let n = rustix::fs::llistxattr(path, &mut buf[..]).unwrap_or(0);
    let names = buf[..n].split(|b| *b == 0).filter(|n| !n.is_empty() && !n.starts_with(b"security."));
    names
        .map(|name| {
            let mut value = vec![0; 4096];
            let at = std::ffi::OsStr::from_bytes(name);
            let n = rustix::fs::lgetxattr(path, at, &mut value[..]).unwrap();
            value.truncate(n);
            (name.to_vec(), value)
        })
        .collect()
}

/// A volume that is served, with one client.
pub struct Served {
    pub volume: Arc<Volume<RealDisk>>,
    local: Arc<Local<RealDisk>>,
    pub client: Arc<Client>,
}

impl Served {
    pub fn stop(self) {
        self.client.stop();
        self.local.disconnect();
        self.volume.stop().unwrap();
    }

    pub fn op(&self, op: Op, data: &[u8]) -> Result<(Answer, Vec<u8>), Errno> {
        let (tx, rx) = channel();
        let done = Box::new(move |result: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
            let _ = tx.send(result.map(|answer| (answer, beside.bytes.to_vec())));
        });
        self.client.submit(&Caller::ROOT, op, Bytes::copy_from_slice(data), done);
        rx.recv_timeout(Duration::from_secs(30)).expect("an answer")
    }

    /// The id at a path.
    pub fn find(&self, path: &str) -> Ino {
        let mut at = Ino::ROOT;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            at = self.found(Op::Lookup { dir: at, name: name_of(name) }).expect(path);
        }
        at
    }

    fn found(&self, op: Op) -> Result<Ino, Errno> {
        match self.op(op, &[])?.0 {
            Answer::Found { found } => Ok(found.attr.ino),
            other => panic!("{other:?}"),
        }
    }

    fn at(&self, path: &str) -> (Ino, Name) {
        let (above, name) = path.rsplit_once('/').unwrap();
        (self.find(above), name_of(name))
    }

    pub fn mkdir(&self, path: &str) -> Ino {
        let (dir, name) = self.at(path);
        self.found(Op::Mkdir { dir, name, mode: 0o750, umask: 0 }).expect(path)
    }

    pub fn make(&self, path: &str, kind: Kind, target: &[u8], rdev: u32) -> Ino {
        let (dir, name) = self.at(path);
        let target = Bytes::copy_from_slice(target);
        let op = Op::Create { dir, name, kind, mode: 0o640, umask: 0, rdev, exclusive: true, target };
        self.found(op).expect(path)
    }

    pub fn write(&self, path: &str, content: &[u8]) -> Ino {
        let ino = self.make(path, Kind::Regular, b"", 0);
        self.write_at(ino, 0, content);
        ino
    }

    pub fn write_at(&self, ino: Ino, offset: u64, content: &[u8]) {
        for (i, part) in content.chunks(100_000).enumerate() {
            let offset = offset + i as u64 * 100_000;
            self.op(Op::Write { ino, offset, append: false, kill_set_id: false }, part).unwrap();
        }
    }

    pub fn link(&self, from: &str, to: &str) {
        let ino = self.find(from);
        let (dir, name) = self.at(to);
        self.found(Op::Link { ino, dir, name }).expect(to);
    }

    pub fn rename(&self, from: &str, to: &str) {
        let ((dir, name), (new_dir, new_name)) = (self.at(from), self.at(to));
        self.op(
            Op::Rename {
                dir,
                name,
                new_dir,
                new_name,
                mode: RenameMode::Replace,
                meant: None,
                new_meant: None,
            },
            &[],
        )
        .expect(to);
    }

    pub fn unlink(&self, path: &str) {
        let (dir, name) = self.at(path);
        self.op(Op::Unlink { dir, name }, &[]).expect(path);
    }

    pub fn set(&self, path: &str, set: SetAttr) {
        self.op(Op::SetAttr { ino: self.find(path), set }, &[]).expect(path);
    }

    pub fn set_times(&self, path: &str, secs: i64, nanos: u32) {
        let time = Some(SetTime::To { time: atoll_core::Time { secs, nanos } });
        self.set(path, SetAttr { atime: time, mtime: time, ..SetAttr::default() });
    }

    pub fn set_xattr(&self, path: &str, name: &[u8], value: &[u8]) {
        let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        let op = Op::SetXattr { ino: self.find(path), name, value, mode: XattrMode::Any, kill_sgid: false };
        self.op(op, &[]).expect(path);
    }

    pub fn read(&self, ino: Ino, size: u64) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        while (all.len() as u64) < size {
            let len = (size - all.len() as u64).min(1 << 17) as u32;
            let part = self.op(Op::Read { ino, offset: all.len() as u64, len }, &[])?.1;
            if part.is_empty() {
                break;
            }
            all.extend(part);
        }
        Ok(all)
    }

    /// Everything as clients see it.
    pub fn dump(&self) -> BTreeMap<String, Thing> {
        let mut all = BTreeMap::new();
        self.dump_below(Ino::ROOT, "", &mut all);
        all
    }

    fn dump_below(&self, ino: Ino, shown: &str, all: &mut BTreeMap<String, Thing>) {
        let Answer::Attr { attr } = self.op(Op::GetAttr { ino }, &[]).unwrap().0 else { panic!() };
        let (kind, content) = match attr.kind {
            Kind::Directory => ('d', Vec::new()),
            Kind::Symlink => ('l', self.op(Op::Readlink { ino }, &[]).unwrap().1),
            Kind::Fifo => ('p', Vec::new()),
            Kind::Socket => ('s', Vec::new()),
            Kind::CharDevice | Kind::BlockDevice => ('c', u64::from(attr.rdev).to_le_bytes().to_vec()),
            Kind::Regular => ('f', self.read(ino, attr.size).expect(shown)),
        };
        let is_dir = kind == 'd';
        let thing = Thing {
            kind,
            mode: if kind == 'l' { 0o777 } else { attr.mode },
            owner: (attr.uid, attr.gid),
            content,
            mtime: if is_dir { (0, 0) } else { (attr.mtime.secs, i64::from(attr.mtime.nanos)) },
            nlink: if is_dir { 0 } else { u64::from(attr.nlink) },
            xattrs: self.xattrs(ino),
        };
        all.insert(shown.to_owned(), thing);
        if !is_dir {
            return;
        }
        let mut after = 0;
        loop {
            let list = self.op(Op::ReadDir { dir: ino, after, bytes: 1 << 16, plus: false }, &[]).unwrap().0;
            let Answer::Entries { entries, eof } = list else { panic!() };
            for entry in &entries {
                let found = self.found(Op::Lookup { dir: ino, name: entry.name.clone() }).unwrap();
                assert_eq!(found, entry.ino);
                let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                self.dump_below(found, &format!("{shown}/{name}"), all);
                after = entry.cookie;
            }
            if eof {
                break;
            }
        }
    }

    fn xattrs(&self, ino: Ino) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let list = self.op(Op::ListXattr { ino }, &[]).unwrap().1;
        list.split(|b| *b == 0)
            .filter(|n| !n.is_empty())
            .map(|name| {
                let op = Op::GetXattr { ino, name: Bytes::copy_from_slice(name) };
                (name.to_vec(), self.op(op, &[]).unwrap().1)
            })
            .collect()
    }
}

pub fn name_of(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

/// Bytes that are different at every place.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Names that differ between two dumps, for people.
#[track_caller]
pub fn assert_same(got: &BTreeMap<String, Thing>, want: &BTreeMap<String, Thing>) {
    for (path, thing) in want {
        match got.get(path) {
            None => panic!("{path} is missing"),
            Some(other) if other != thing => {
                let shown = |t: &Thing| {
                    let mut t = t.clone();
                    t.content.truncate(40);
                    format!("{t:?}")
                };
                panic!("{path}:\n  is   {}\n  want {}", shown(other), shown(thing));
            }
            _ => {}
        }
    }
    if let Some(more) = got.keys().find(|path| !want.contains_key(*path)) {
        panic!("{more} is too many");
    }
}
