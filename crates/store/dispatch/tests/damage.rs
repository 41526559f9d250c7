//! A row of the snapshot that cannot be read: it is told once, what needs it fails, and the island goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::{Ino, IslandId, NodeId, SessionId, Table, Time, VolumeId};
use atoll_disk::sim::SimDisk;
use atoll_dispatch::{Clock, Engine, Net, Setup, SpaceState};
use atoll_island::{Config, Event, LinkId, Now};
use atoll_posix::{Caller, Errno, Op};
use atoll_proto::{ClientOp, Notice, Outcome, PeerMessage, Reply, Request};
use atoll_state::RowKey;
use bytes::Bytes;

const ISLAND: IslandId = IslandId(0);
const FILE: Ino = Ino::mint(ISLAND, 77);

/// Time stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { wall: Time { secs: 1000, nanos: 0 }, ms: 1000 }
    }
    fn pass(&self, _: Duration) {}
}

/// What the island says.
#[derive(Default)]
struct Heard {
    replies: Mutex<Vec<(u64, Outcome)>>,
    damage: Mutex<Vec<String>>,
}

impl Net for Heard {
    fn reply(&self, _: IslandId, _: LinkId, id: u64, reply: Reply, _: &[u8]) {
        self.replies.lock().unwrap().push((id, reply.outcome));
    }
    fn notice(&self, _: IslandId, _: LinkId, _: Notice) {}
    fn send(&self, _: IslandId, _: PeerMessage) {}
    fn halted(&self, _: IslandId, why: &str) {
        panic!("{why}");
    }
    fn space(&self, _: IslandId, _: SpaceState) {}
    fn damaged(&self, _: IslandId, why: &str) {
        self.damage.lock().unwrap().push(why.to_owned());
    }
}

#[test]
fn a_damaged_row_is_told_once_and_what_needs_it_fails() {
    let setup = Setup {
        volume: VolumeId(1),
        node: NodeId(0),
        island: Config::new(ISLAND, 1, Table::new(1), vec![ISLAND]),
        log: atoll_log::Config::default(),
        snapshot_cache_bytes: 1 << 20,
        root: false,
        is_new: true,
        reached: None,
    };
    let heard = Arc::new(Heard::default());
    let disk = Arc::new(SimDisk::new(1));
    let (engine, _) = Engine::open(disk, setup, Arc::clone(&heard) as _, Arc::new(Still)).unwrap();
    engine.snapshot().commit([(RowKey::Inode(FILE).to_bytes(), Some(vec![0xff; 3]))]).unwrap();
    let ask = |id, op| {
        let (session, caller, vector) = (SessionId(1), Caller::ROOT, Vec::new());
        let request = Request { session, seq: 0, acked: 0, table: 1, vector, caller, op };
        engine.enter(Event::Request { link: LinkId(1), id, request, data: Bytes::new() });
        let mut replies = heard.replies.lock().unwrap();
        let at = replies.iter().position(|(of, _)| *of == id).expect("it is answered");
        replies.remove(at).1
    };
    ask(1, ClientOp::Attach { mount: false });
    for id in 2..5 {
        let outcome = ask(id, ClientOp::Fs { op: Op::GetAttr { ino: FILE } });
        assert!(matches!(outcome, Outcome::Failed { errno: Errno::EIO }), "{outcome:?}");
    }
    let root = ask(5, ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } });
    assert!(matches!(root, Outcome::Ok { .. }), "it goes on: {root:?}");
    let damage = heard.damage.lock().unwrap();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].contains("snapshot is damaged") && damage[0].contains("EIO"), "{damage:?}");
}
