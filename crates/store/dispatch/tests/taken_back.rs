//! A large write whose bytes a power cut has taken, although its record is there: whoever has not heard the answer, and
//! asks again, has them written again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::{Ino, IslandId, Name, NodeId, SessionId, Table, Time, VolumeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Clock, Engine, Net, Report, Setup, SpaceState};
use atoll_island::{Config, Event, LinkId, Now};
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_proto::{ClientOp, Notice, Outcome, PeerMessage, Reply, Request};
use bytes::Bytes;

const ISLAND: IslandId = IslandId(0);
/// Runs in which the power cut takes bytes.
const RUNS: u32 = 5;
/// More than a record carries.
const LARGE: usize = 64 * 1024;

/// Time stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { wall: Time { secs: 1000, nanos: 0 }, ms: 1000 }
    }
    fn pass(&self, _: Duration) {}
}

/// What the island answers.
#[derive(Default)]
struct Heard(Mutex<Vec<(u64, Outcome, Vec<u8>)>>);

impl Net for Heard {
    fn reply(&self, _: IslandId, _: LinkId, id: u64, reply: Reply, data: &[u8]) {
        self.0.lock().unwrap().push((id, reply.outcome, data.to_vec()));
    }
    fn notice(&self, _: IslandId, _: LinkId, _: Notice) {}
    fn send(&self, _: IslandId, _: PeerMessage) {}
    fn halted(&self, _: IslandId, why: &str) {
        panic!("{why}");
    }
    fn space(&self, _: IslandId, _: SpaceState) {}
    fn damaged(&self, _: IslandId, why: &str) {
        panic!("{why}");
    }
}

/// A life of the island, and its only client.
struct Life {
    engine: Engine<SimDisk>,
    heard: Arc<Heard>,
    report: Report,
    next: u64,
}

impl Life {
    fn new(disk: SimDisk, is_new: bool, link: u64) -> Self {
        let setup = Setup {
            volume: VolumeId(1),
            node: NodeId(0),
            island: Config::new(ISLAND, 1, Table::new(1), vec![ISLAND]),
            log: atoll_log::Config::default(),
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new,
            reached: None,
        };
        let heard = Arc::new(Heard::default());
        let net = Arc::clone(&heard) as _;
        let (engine, report) = Engine::open(Arc::new(disk), setup, net, Arc::new(Still)).unwrap();
        let mut life = Self { engine, heard, report, next: link << 32 };
        life.tick();
        life.ask(0, ClientOp::Attach { mount: true }, &[]);
        life
    }

    fn tick(&self) {
        self.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    }

    fn ask(&mut self, seq: u64, op: ClientOp, data: &[u8]) -> (Outcome, Vec<u8>) {
        self.next += 1;
        let id = self.next;
        let (session, caller, vector) = (SessionId(1), Caller::ROOT, Vec::new());
        let request = Request { session, seq, acked: 0, table: 1, vector, caller, op };
        let link = LinkId(id >> 32);
        self.engine.enter(Event::Request { link, id, request, data: Bytes::copy_from_slice(data) });
        let mut replies = self.heard.0.lock().unwrap();
        let at = replies.iter().position(|(of, ..)| *of == id).expect("it is answered");
        let (_, outcome, bytes) = replies.remove(at);
        (outcome, bytes)
    }

    fn fs(&mut self, seq: u64, op: Op, data: &[u8]) -> (Outcome, Vec<u8>) {
        self.ask(seq, ClientOp::Fs { op }, data)
    }
}

fn create() -> Op {
    let (name, target) = (Name::new(b"file").unwrap(), Bytes::new());
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target }
}

#[test]
fn a_large_write_whose_bytes_a_power_cut_took_is_done_again_when_it_is_asked_for_again() {
    let mut met = 0;
    for seed in 0..200 {
        if met == RUNS {
            return;
        }
        let disk = SimDisk::new(seed);
        let mut life = Life::new(disk.clone(), true, 1);
        let (made, _) = life.fs(1, create(), &[]);
        let Outcome::Ok { answer: Answer::Found { found }, .. } = made else { panic!("{made:?}") };
        let ino = found.attr.ino;
        life.fs(0, Op::Fsync { ino }, &[]);
        let bytes = vec![7; LARGE];
        let write = || Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        life.fs(2, write(), &bytes);
        // The power fails before the answer arrives.
        drop(life);
        let mut life = Life::new(disk.revive(Fault::PowerCut { seed }), false, 2);
        if life.report.corrected.is_empty() {
            continue;
        }
        met += 1;
        let (again, _) = life.fs(2, write(), &bytes);
        assert!(matches!(again, Outcome::Ok { answer: Answer::Wrote { .. }, .. }), "{again:?}");
        let (_, read) = life.fs(0, Op::Read { ino, offset: 0, len: LARGE as u32 }, &[]);
        assert!(read == bytes, "seed {seed}: it was answered, and {} bytes are not there", {
            LARGE - read.iter().filter(|byte| **byte == 7).count()
        });
    }
    panic!("in {met} runs of 200 the power cut took bytes");
}
