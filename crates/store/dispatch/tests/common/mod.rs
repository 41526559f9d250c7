//! The engine of the only island of a volume on a simulated disk, and what it tells.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod group;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::{IslandId, SessionId, Table, Time, VolumeId};
use atoll_disk::sim::SimDisk;
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_dispatch::{Clock, Engine, Net, OpenError, Report, Setup, SpaceState};
use atoll_island::{Config, Event, LinkId, Now};
use atoll_posix::Caller;
use atoll_proto::{ClientOp, Notice, Outcome, PeerMessage, Reply, Request};
use atoll_state::RowKey;
use bytes::Bytes;

pub(crate) const ISLAND: IslandId = IslandId(0);

/// Time stands still.
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { wall: Time { secs: 1000, nanos: 0 }, ms: 1000 }
    }
    fn boot_ms(&self) -> u64 {
        1000
    }
    fn pass(&self, _: Duration) {}
}

/// What the island says.
#[derive(Default)]
struct Heard {
    replies: Mutex<Vec<(u64, Outcome, Vec<u8>)>>,
    damage: Mutex<Vec<String>>,
    may_halt: AtomicBool,
}

impl Net for Heard {
    fn reply(&self, _: IslandId, _: LinkId, id: u64, reply: Reply, data: &[u8]) {
        self.replies.lock().unwrap().push((id, reply.outcome, data.to_vec()));
    }
    fn notice(&self, _: IslandId, _: LinkId, _: Notice) {}
    fn send(&self, _: IslandId, _: PeerMessage) {}
    fn halted(&self, _: IslandId, why: &str) {
        assert!(self.may_halt.load(Ordering::Relaxed), "{why}");
    }
    fn space(&self, _: IslandId, _: SpaceState) {}
    fn damaged(&self, _: IslandId, why: &str) {
        self.damage.lock().unwrap().push(why.to_owned());
    }
}

/// A life of the island, and its only client.
pub(crate) struct Life {
    pub(crate) engine: Engine<SimDisk>,
    pub(crate) report: Report,
    heard: Arc<Heard>,
    next: u64,
}

impl Life {
    /// Opens the island, or makes it if it `is_new`. `link`: the client's link, another one in each life.
    pub(crate) fn new(disk: SimDisk, is_new: bool, link: u64) -> Self {
        Self { next: link << 32, ..Self::open(disk, is_new).unwrap() }
    }

    /// The same, if it can be opened.
    pub(crate) fn open(disk: SimDisk, is_new: bool) -> Result<Self, OpenError> {
        let (setup, heard) = Self::setup(is_new);
        let net = Arc::clone(&heard) as _;
        let (engine, report) = Engine::open(Arc::new(disk), setup, net, Arc::new(Still))?;
        Ok(Self { engine, report, heard, next: 0 })
    }

    /// Opens a copy of the island that follows, or makes an empty one.
    pub(crate) fn following(disk: SimDisk, is_new: bool, link: u64) -> Self {
        let (setup, heard) = Self::setup(is_new);
        let net = Arc::clone(&heard) as _;
        let (engine, report, _) =
            Engine::open_following(Arc::new(disk), setup, net, Arc::new(Still)).unwrap();
        Self { engine, report, heard, next: link << 32 }
    }

    fn setup(is_new: bool) -> (Setup, Arc<Heard>) {
        (Self::setup_of(is_new), Arc::default())
    }

    /// Options of the island.
    pub(crate) fn setup_of(is_new: bool) -> Setup {
        Setup {
            volume: VolumeId(1),
            island: Config::new(ISLAND, 1, Table::new(1), vec![ISLAND]),
            log: atoll_log::Config {
                segment_bytes: 512 << 10,
                record_bytes_max: 256 << 10,
                ..atoll_log::Config::default()
            },
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new,
            reached: None,
            beside: None,
        }
    }

    pub(crate) fn ask(&mut self, seq: u64, op: ClientOp, data: &[u8]) -> (Outcome, Vec<u8>) {
        self.next += 1;
        let id = self.next;
        let (session, caller, vector) = (SessionId(1), Caller::ROOT, Vec::new());
        let request = Request { session, seq, acked: 0, table: 1, vector, caller, op };
        let link = LinkId(id >> 32);
        self.engine.enter(Event::Request { link, id, request, data: Bytes::copy_from_slice(data) });
        let mut replies = self.heard.replies.lock().unwrap();
        let at = replies.iter().position(|(of, ..)| *of == id).expect("it is answered");
        let (_, outcome, bytes) = replies.remove(at);
        (outcome, bytes)
    }

    /// The damage that the island has told so far.
    pub(crate) fn damage(&self) -> Vec<String> {
        self.heard.damage.lock().unwrap().clone()
    }

    /// Its disk is going to fail.
    pub(crate) fn may_halt(&self) {
        self.heard.may_halt.store(true, Ordering::Relaxed);
    }
}

/// All rows of the snapshot but those of the plain tree, which each copy lays by itself.
pub(crate) fn rows(engine: &Engine<SimDisk>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows = engine.snapshot().range(&[0], &[255], usize::MAX).unwrap();
    let is_own = |key: &[u8]| matches!(RowKey::from_bytes(key), Some(RowKey::View(_) | RowKey::ViewName(..)));
    rows.into_iter().filter(|(key, _)| !is_own(key)).collect()
}

/// The bytes of all bodies.
pub(crate) fn bodies(disk: &SimDisk) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (dir, _) in disk.list(b"bodies").unwrap() {
        let folder = [b"bodies/", &dir[..]].concat();
        for (name, _) in disk.list(&folder).unwrap_or_default() {
            let path = [&folder[..], b"/", &name].concat();
            let file = disk.open(&path, OpenHow::Read).unwrap();
            let mut bytes = vec![0; file.stat().unwrap().size as usize];
            file.read_full(&mut bytes, 0).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}
