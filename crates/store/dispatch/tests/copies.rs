//! Copies of an island that has a group: over simulated disks, with a network and a control store in memory that lose nothing
//! and are stepped by hand.

mod common;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use atoll_core::{Ino, IslandId, Name, NodeId, SessionId, Table, Time, VolumeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::seat::SeatStore;
use atoll_dispatch::{Clock, GroupCopy, GroupNet, GroupSetup, Net, Setup, SpaceState};
use atoll_group::{Config, Given, GroupEvent, Role, SwapOutcome};
use atoll_island::{Event, LinkId, Now};
use atoll_log::Position;
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_proto::{
    ClientOp, GroupMessage, GroupRecord, Host, NodeLife, Notice, Outcome, PeerMessage, Reply, Request, Seat,
};
use atoll_state::RowKey;
use bytes::Bytes;
use common::{bodies, rows};

const ISLAND: IslandId = IslandId(0);
/// More than a record carries.
const LARGE: usize = 64 * 1024;

/// Time passes when the test says so.
#[derive(Default)]
struct ByHand(AtomicU64);

impl ByHand {
    fn ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clock for ByHand {
    fn now(&self) -> Now {
        Now { wall: Time { secs: 1000 + self.ms() as i64 / 1000, nanos: 0 }, ms: self.ms() }
    }
    fn boot_ms(&self) -> u64 {
        self.ms()
    }
    fn pass(&self, _: Duration) {}
}

/// What a copy wants of others.
enum Said {
    Tell(NodeId, GroupMessage, Bytes),
    Read(u64),
    Swap(u64, u64, GroupRecord),
}

/// What one process says.
#[derive(Default)]
struct Mouth {
    said: Mutex<VecDeque<Said>>,
    replies: Mutex<Vec<(u64, Outcome, Vec<u8>)>>,
    led: Mutex<Vec<Option<u32>>>,
    /// What leaves comes back to this copy, by another thread. Whether each of these has ended.
    back: Mutex<Weak<GroupCopy<SimDisk>>>,
    has_ended: Mutex<Vec<bool>>,
}

impl GroupNet for Mouth {
    fn tell(&self, _: IslandId, to: NodeId, message: GroupMessage, payload: Bytes) {
        self.said.lock().unwrap().push_back(Said::Tell(to, message, payload));
    }
    fn read(&self, _: IslandId, number: u64) {
        self.said.lock().unwrap().push_back(Said::Read(number));
    }
    fn swap(&self, _: IslandId, number: u64, expect: u64, record: GroupRecord) {
        self.said.lock().unwrap().push_back(Said::Swap(number, expect, record));
    }
    fn leads(&self, _: IslandId, epoch: Option<u32>) {
        self.led.lock().unwrap().push(epoch);
    }
    fn cut(&self, _: IslandId, _: Position) {}
    fn trouble(&self, _: IslandId, why: String) {
        panic!("{why}");
    }
}

impl Net for Mouth {
    fn reply(&self, _: IslandId, _: LinkId, id: u64, reply: Reply, data: &[u8]) {
        self.replies.lock().unwrap().push((id, reply.outcome, data.to_vec()));
        let Some(copy) = self.back.lock().unwrap().upgrade() else { return };
        let (ends, ended) = channel();
        std::thread::spawn(move || {
            copy.housekeep();
            // Nobody waits any more, if this took too long.
            let _ = ends.send(());
        });
        self.has_ended.lock().unwrap().push(ended.recv_timeout(Duration::from_secs(5)).is_ok());
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

struct Process {
    copy: Arc<GroupCopy<SimDisk>>,
    mouth: Arc<Mouth>,
    me: NodeLife,
}

struct Machine {
    disk: SimDisk,
    beside: SimDisk,
    life: u32,
    boot: u128,
    process: Option<Process>,
    /// Nothing comes to it, and nothing from it.
    is_cut: bool,
}

/// See the file.
struct Group {
    clock: Arc<ByHand>,
    machines: Vec<Machine>,
    store: (u64, GroupRecord),
    links: u64,
    seq: u64,
    id: u64,
}

impl Group {
    fn new(n: u16) -> Self {
        let in_sync = (0..n).map(|node| Seat { node: NodeId(node), tenure: 1 }).collect();
        let record = GroupRecord { epoch: 0, primary: None, in_sync, wanted: n as u8, power_cut: false };
        let machine = |node: u16| Machine {
            disk: SimDisk::new(u64::from(node) + 1),
            beside: SimDisk::new(u64::from(node) + 100),
            life: 0,
            boot: 1,
            process: None,
            is_cut: false,
        };
        let mut group = Self {
            clock: Arc::default(),
            machines: (0..n).map(machine).collect(),
            store: (1, record),
            links: 0,
            seq: 0,
            id: 0,
        };
        for node in group.nodes() {
            group.start(node);
        }
        group
    }

    fn nodes(&self) -> Vec<NodeId> {
        (0..self.machines.len() as u16).map(NodeId).collect()
    }

    fn machine(&mut self, node: NodeId) -> &mut Machine {
        &mut self.machines[usize::from(node.0)]
    }

    fn copy(&self, node: NodeId) -> &Arc<GroupCopy<SimDisk>> {
        &self.machines[usize::from(node.0)].process.as_ref().unwrap().copy
    }

    fn start(&mut self, node: NodeId) {
        let ring = self.nodes();
        let clock = Arc::clone(&self.clock);
        let machine = self.machine(node);
        machine.life += 1;
        let me = NodeLife { node, life: machine.life, host: Host { boot: machine.boot, inode: 7 } };
        let setup = Setup {
            volume: VolumeId(1),
            island: atoll_island::Config::new(ISLAND, 1, Table::new(1), vec![ISLAND]),
            log: atoll_log::Config {
                segment_bytes: 512 << 10,
                record_bytes_max: 256 << 10,
                boot: machine.boot,
                ..atoll_log::Config::default()
            },
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new: machine.life == 1,
            reached: None,
        };
        let wanted = ring.len() as u8;
        let group = GroupSetup { group: Config { me, ring, wanted }, in_steps: false };
        let mouth = Arc::<Mouth>::default();
        let nets = (Arc::clone(&mouth) as Arc<dyn Net>, Arc::clone(&mouth) as Arc<dyn GroupNet>);
        let seats = SeatStore::new(Arc::new(machine.beside.clone()), b"seat".to_vec());
        let (copy, _) =
            GroupCopy::open(Arc::new(machine.disk.clone()), seats, setup, group, nets, clock).unwrap();
        machine.process = Some(Process { copy, mouth, me });
        for other in self.nodes() {
            if other != node && self.machine(other).process.is_some() {
                self.link(node, other);
            }
        }
    }

    fn link(&mut self, a: NodeId, b: NodeId) {
        for (from, to) in [(a, b), (b, a)] {
            self.links += 1;
            let who = self.machine(from).process.as_ref().unwrap().me;
            self.copy(to).tell(GroupEvent::Link { who, link: self.links });
        }
    }

    fn end(&mut self, node: NodeId, fault: Fault) {
        let machine = self.machine(node);
        machine.disk = machine.disk.revive(fault);
        machine.beside = machine.beside.revive(fault);
        if let Fault::PowerCut { .. } = fault {
            machine.boot += 1;
        }
        machine.process = None;
    }

    fn is_up(&self, node: NodeId) -> bool {
        let machine = &self.machines[usize::from(node.0)];
        machine.process.is_some() && !machine.is_cut
    }

    /// Delivers what was said, until nobody says anything more.
    fn pump(&mut self) {
        loop {
            let mut quiet = true;
            for node in self.nodes() {
                let Some(process) = &self.machines[usize::from(node.0)].process else { continue };
                let (copy, mouth) = (Arc::clone(&process.copy), Arc::clone(&process.mouth));
                let Some(said) = mouth.said.lock().unwrap().pop_front() else { continue };
                quiet = false;
                if !self.is_up(node) {
                    continue;
                }
                match said {
                    Said::Tell(to, message, payload) => {
                        if self.is_up(to) {
                            self.copy(to).hear(node, self.links, message, &payload);
                        }
                    }
                    Said::Read(number) => {
                        copy.read_done(number, Some((self.store.0, Some(self.store.1.clone()))));
                    }
                    Said::Swap(number, expect, record) if expect == self.store.0 => {
                        self.store = (expect + 1, record);
                        copy.swapped(number, SwapOutcome::Done(expect + 1));
                    }
                    Said::Swap(number, ..) => copy.swapped(number, SwapOutcome::Conflict),
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// Beacons go around and time passes, 50 ms at a time.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            self.clock.0.fetch_add(50, Ordering::Relaxed);
            for node in self.nodes() {
                if !self.is_up(node) {
                    continue;
                }
                let (sent_ms, copy) = (self.clock.ms(), Arc::clone(self.copy(node)));
                let me = self.machine(node).process.as_ref().unwrap().me;
                let Some(epoch) = copy.named() else { continue };
                for to in copy.beacons_to().into_iter().filter(|to| self.is_up(*to)) {
                    match self.copy(to).beacon(me, epoch) {
                        Given::Promise => copy.tell(GroupEvent::Promised { node: to, sent_ms }),
                        Given::Refused(epoch) => copy.tell(GroupEvent::RefusedBeacon { epoch }),
                    }
                }
            }
            for node in self.nodes() {
                if self.machine(node).process.is_some() {
                    let copy = Arc::clone(self.copy(node));
                    copy.tick();
                    copy.housekeep();
                }
            }
            self.pump();
        }
    }

    /// The copy that leads, if it may answer.
    fn leader(&self) -> Option<NodeId> {
        let leads = |node: &NodeId| {
            self.is_up(*node) && matches!(self.copy(*node).role(), Role::Leading { begun: true, .. })
        };
        self.nodes().into_iter().rev().find(leads)
    }

    fn wait_for_leader(&mut self) -> NodeId {
        for _ in 0..200 {
            self.pass(50);
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        let roles: Vec<_> =
            self.nodes().iter().map(|node| self.is_up(*node).then(|| self.copy(*node).role())).collect();
        panic!("nobody leads: {roles:?}, {:?}", self.store);
    }

    fn ask(&mut self, node: NodeId, seq: u64, op: ClientOp, data: &[u8]) -> (Outcome, Vec<u8>) {
        self.id += 1;
        let id = self.id;
        let (session, caller, vector) = (SessionId(1), Caller::ROOT, Vec::new());
        let request = Request { session, seq, acked: 0, table: 1, vector, caller, op };
        let link = LinkId(1 + u64::from(node.0));
        let data = Bytes::copy_from_slice(data);
        self.copy(node).enter(Event::Request { link, id, request, data });
        for _ in 0..200 {
            let mouth = Arc::clone(&self.machine(node).process.as_ref().unwrap().mouth);
            let mut replies = mouth.replies.lock().unwrap();
            if let Some(at) = replies.iter().position(|(of, ..)| *of == id) {
                let (_, outcome, bytes) = replies.remove(at);
                return (outcome, bytes);
            }
            drop(replies);
            self.pump();
            self.pass(50);
        }
        panic!("request {id} is not answered");
    }

    fn attach(&mut self) -> NodeId {
        let leader = self.wait_for_leader();
        let (outcome, _) = self.ask(leader, 0, ClientOp::Attach { mount: true }, &[]);
        assert!(!matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        leader
    }

    fn fs(&mut self, node: NodeId, op: Op, data: &[u8]) -> Outcome {
        self.seq += 1;
        let (outcome, _) = self.ask(node, self.seq, ClientOp::Fs { op }, data);
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
        outcome
    }

    fn create(&mut self, node: NodeId, name: &[u8]) -> Ino {
        let (name, target) = (Name::new(name).unwrap(), Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let op = Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target };
        match self.fs(node, op, &[]) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, node: NodeId, ino: Ino, offset: u64, bytes: &[u8]) {
        self.fs(node, Op::Write { ino, offset, append: false, kill_set_id: false }, bytes);
    }

    fn read(&mut self, node: NodeId, ino: Ino, offset: u64, len: u32) -> Vec<u8> {
        let (outcome, bytes) = self.ask(node, 0, ClientOp::Fs { op: Op::Read { ino, offset, len } }, &[]);
        assert!(!matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        bytes
    }

    /// Every copy has made a checkpoint, and all have the same rows and bodies.
    fn same(&mut self) {
        let leader = self.leader().unwrap();
        self.copy(leader).enter(Event::CheckpointWanted);
        self.pass(3_000);
        let rows: Vec<_> =
            self.nodes().iter().map(|node| rows(&self.copy(*node).engine().unwrap())).collect();
        let bodies: Vec<_> = self.machines.iter().map(|machine| bodies(&machine.disk)).collect();
        for node in 1..self.machines.len() {
            for (key, row) in &rows[0] {
                assert_eq!(Some(row), rows[node].get(key), "{:?} at {node}", RowKey::from_bytes(key));
            }
            assert_eq!(rows[0].len(), rows[node].len());
            assert!(bodies[0] == bodies[node], "bodies of {node} are others");
        }
    }
}

#[test]
fn what_is_answered_is_at_every_copy() {
    for copies in [1, 2, 3] {
        let mut group = Group::new(copies);
        let leader = group.attach();
        let ino = group.create(leader, b"file");
        group.write(leader, ino, 0, b"small");
        group.write(leader, ino, 3, &[1; LARGE]);
        group.fs(leader, Op::Fsync { ino }, &[]);
        let last = group.copy(leader).engine().unwrap().last();
        for node in group.nodes() {
            assert_eq!(group.copy(node).engine().unwrap().last(), last);
        }
        assert_eq!(group.read(leader, ino, 0, 5), [b's', b'm', b'a', 1, 1]);
        group.same();
    }
}

#[test]
fn another_copy_leads_when_the_primary_has_died_and_the_dead_one_comes_back() {
    let mut group = Group::new(2);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.write(first, ino, 0, &[7; LARGE]);
    group.end(first, Fault::ProcessDeath);
    let second = group.attach();
    assert_ne!(first, second);
    assert_eq!(group.read(second, ino, 10, 2), [7, 7]);
    group.write(second, ino, 10, b"alone");
    group.start(first);
    group.pass(5_000);
    assert_eq!(group.store.1.in_sync.len(), 2, "{:?}", group.store);
    group.write(second, ino, 100, b"both again");
    group.same();
    group.end(second, Fault::ProcessDeath);
    let third = group.attach();
    assert_eq!(third, first);
    assert_eq!(group.read(third, ino, 100, 10), b"both again");
    assert_eq!(group.read(third, ino, 10, 6), b"alone\x07");
}

#[test]
fn a_primary_that_is_cut_off_tells_nothing_and_is_cut_back() {
    let mut group = Group::new(3);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.machine(first).is_cut = true;
    // It decides, and nobody hears of it.
    let request = Request {
        session: SessionId(1),
        seq: group.seq + 1,
        acked: 0,
        table: 1,
        vector: Vec::new(),
        caller: Caller::ROOT,
        op: ClientOp::Fs { op: Op::Write { ino, offset: 0, append: false, kill_set_id: false } },
    };
    let data = Bytes::from_static(&[9; LARGE]);
    group.copy(first).enter(Event::Request {
        link: LinkId(1 + u64::from(first.0)),
        id: 1 << 40,
        request,
        data,
    });
    let second = group.attach();
    assert_ne!(first, second);
    group.write(second, ino, 0, b"other");
    let mouth = Arc::clone(&group.machine(first).process.as_ref().unwrap().mouth);
    assert!(!mouth.replies.lock().unwrap().iter().any(|(id, ..)| *id == 1 << 40), "it was answered");
    group.machine(first).is_cut = false;
    group.pass(5_000);
    assert_eq!(group.store.1.in_sync.len(), 3, "{:?}", group.store);
    assert_eq!(mouth.led.lock().unwrap().last(), Some(&None));
    group.same();
    assert_eq!(group.read(second, ino, 0, 10), b"other");
}

/// Clients that were told nothing must be told to ask again, and what is held is bounded in number and in bytes.
#[test]
fn what_the_door_drops_is_asked_again() {
    let mut group = Group::new(2);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.write(first, ino, 0, &[7; 1 << 20]);
    let mouth = Arc::clone(&group.machine(first).process.as_ref().unwrap().mouth);
    for (len, asked, held) in [(1_u32 << 20, 40_u64, 16), (1, 5_000, 4_096)] {
        let led = mouth.led.lock().unwrap().clone();
        // The lease ends, and the other copy does not lead yet.
        group.machine(first).is_cut = true;
        group.pass(1_000);
        for id in 0..asked {
            let op = ClientOp::Fs { op: Op::Read { ino, offset: 0, len } };
            let (session, caller, vector) = (SessionId(1), Caller::ROOT, Vec::new());
            let request = Request { session, seq: 0, acked: 0, table: 1, vector, caller, op };
            let link = LinkId(1 + u64::from(first.0));
            group.copy(first).enter(Event::Request { link, id: id | 1 << 40, request, data: Bytes::new() });
        }
        assert!(mouth.replies.lock().unwrap().is_empty(), "it has no lease");
        group.machine(first).is_cut = false;
        group.pass(500);
        assert_eq!(mouth.replies.lock().unwrap().drain(..).count(), held);
        let again = mouth.led.lock().unwrap()[led.len()..].to_vec();
        assert_eq!(again, [led.last().copied().unwrap()], "it says once more that it leads");
    }
}

/// As when a message to another island of the process brings an answer: all threads of a copy waited for one that waited for itself.
#[test]
fn what_was_held_leaves_without_the_lock_of_the_door() {
    let mut group = Group::new(2);
    let leader = group.attach();
    let mouth = Arc::clone(&group.machine(leader).process.as_ref().unwrap().mouth);
    // Longer than the lease, and too short for another copy to lead.
    group.clock.0.fetch_add(1_000, Ordering::Relaxed);
    let request = Request {
        session: SessionId(1),
        seq: 0,
        acked: 0,
        table: 1,
        vector: Vec::new(),
        caller: Caller::ROOT,
        op: ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } },
    };
    let (link, data) = (LinkId(1 + u64::from(leader.0)), Bytes::new());
    group.copy(leader).enter(Event::Request { link, id: 1 << 40, request, data });
    assert!(mouth.replies.lock().unwrap().is_empty(), "it is held");
    *mouth.back.lock().unwrap() = Arc::downgrade(group.copy(leader));
    group.pass(200);
    assert!(mouth.replies.lock().unwrap().iter().any(|(id, ..)| *id == 1 << 40), "it has not left");
    assert_eq!(*mouth.has_ended.lock().unwrap(), [true]);
}
