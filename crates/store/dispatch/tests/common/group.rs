//! Copies of an island that has a group: over simulated disks, with a network and a control store in memory that are stepped
//! by hand. They lose only what a test says.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use atoll_core::{Ino, IslandId, Name, NodeId, Position, SessionId, Table, Time, VolumeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::seat::SeatStore;
use atoll_dispatch::{
    BesideMaker, Clock, Engine, GroupCopy, GroupNet, GroupSetup, Net, OpenError, Reached, Setup, SpaceState,
    Task,
};
use atoll_group::{Config, Given, GroupEvent, Role, SwapOutcome};
use atoll_island::{Event, LinkId, Now};
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_proto::{
    ClientOp, GroupMessage, GroupRecord, Host, NodeLife, Notice, Outcome, PeerMessage, Reply, Request, Seat,
};
use atoll_state::RowKey;
use bytes::Bytes;

use super::{ISLAND, bodies, rows};

/// More than a record carries.
pub(crate) const LARGE: usize = 64 * 1024;
/// From one look at everything to the next.
const STEP_MS: u64 = 50;

/// A machine's clock: time passes when the test says so.
#[derive(Default)]
pub(crate) struct ByHand {
    ms: AtomicU64,
    /// Seconds by which its wall clock is ahead.
    pub(crate) ahead: AtomicI64,
}

impl ByHand {
    pub(crate) fn ms(&self) -> u64 {
        self.ms.load(Ordering::Relaxed)
    }
}

impl Clock for ByHand {
    fn now(&self) -> Now {
        let ms = self.boot_ms();
        let secs = 100_000 + ms as i64 / 1000 + self.ahead.load(Ordering::Relaxed);
        Now { wall: Time { secs, nanos: 0 }, ms }
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
pub(crate) struct Mouth {
    said: Mutex<VecDeque<Said>>,
    pub(crate) replies: Mutex<Vec<(u64, Outcome, Vec<u8>)>>,
    pub(crate) led: Mutex<Vec<Option<u32>>>,
    /// What leaves comes back to this copy, by another thread. Whether each of these has ended.
    pub(crate) back: Mutex<Weak<GroupCopy<SimDisk>>>,
    pub(crate) has_ended: Mutex<Vec<bool>>,
    /// It may halt, and meet trouble: what it has said of that.
    pub(crate) may_fail: AtomicBool,
    pub(crate) failures: Mutex<Vec<String>>,
    /// How far its island is known to have come, as a file beside it says.
    pub(crate) noted: Mutex<Option<Reached>>,
}

impl Mouth {
    fn fails(&self, why: String) {
        assert!(self.may_fail.load(Ordering::Relaxed), "{why}");
        self.failures.lock().unwrap().push(why);
    }

    pub(crate) fn has_answered(&self, id: u64) -> bool {
        self.replies.lock().unwrap().iter().any(|(of, ..)| *of == id)
    }
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
    fn cut(&self, _: IslandId, to: Position) {
        if let Some(noted) = &mut *self.noted.lock().unwrap() {
            noted.seq = noted.seq.min(to.seq);
        }
    }
    fn trouble(&self, _: IslandId, why: String) {
        self.fails(why);
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
        self.fails(why.to_owned());
    }
    fn space(&self, _: IslandId, _: SpaceState) {}
    fn damaged(&self, _: IslandId, why: &str) {
        self.fails(why.to_owned());
    }
}

pub(crate) struct Process {
    copy: Arc<GroupCopy<SimDisk>>,
    pub(crate) mouth: Arc<Mouth>,
    me: NodeLife,
}

pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) beside: SimDisk,
    life: u32,
    boot: u128,
    pub(crate) process: Option<Process>,
    /// Nothing comes to it, and nothing from it.
    pub(crate) is_cut: bool,
    /// What it asks the control store is lost.
    pub(crate) has_no_store: bool,
    pub(crate) clock: Arc<ByHand>,
    /// Milliseconds of its clock in a hundred of true time.
    pub(crate) rate: u64,
    noted: Option<Reached>,
    /// What follows from what its copy hears is done later.
    pub(crate) in_steps: bool,
    /// Its copy may halt, and meet trouble.
    pub(crate) may_fail: bool,
    /// Bytes of its log that are kept for others.
    pub(crate) keep_bytes: u64,
}

impl Machine {
    fn new(node: u16) -> Self {
        Self {
            disk: SimDisk::new(u64::from(node) + 1),
            beside: SimDisk::new(u64::from(node) + 100),
            life: 0,
            boot: 1,
            process: None,
            is_cut: false,
            has_no_store: false,
            clock: Arc::default(),
            rate: 100,
            noted: None,
            in_steps: false,
            may_fail: false,
            keep_bytes: atoll_log::KEEP_BYTES,
        }
    }
}

/// Whether a message between these is lost.
type Loses = Box<dyn Fn(NodeId, NodeId, &GroupMessage, &Bytes) -> bool>;

/// See the file.
pub(crate) struct Group {
    pub(crate) machines: Vec<Machine>,
    pub(crate) store: (u64, GroupRecord),
    /// Nothing comes from the first of these to the second.
    pub(crate) cut_ways: BTreeSet<(NodeId, NodeId)>,
    pub(crate) loses: Option<Loses>,
    /// Threads of copies that work in steps do not come to records that have to be read from the disk.
    pub(crate) ships_late: bool,
    /// What they will come to.
    late: Mutex<Vec<(NodeId, Task<SimDisk>)>>,
    /// How many copies are wanted, and on which nodes, if not one on each.
    ring: Option<(u8, Vec<NodeId>)>,
    /// Makes the machine beside the island.
    maker: Option<Arc<dyn BesideMaker>>,
    /// Islands of the volume. Only the first is there.
    islands: u16,
    links: u64,
    pub(crate) seq: u64,
    id: u64,
    true_ms: u64,
}

impl Group {
    pub(crate) fn new(n: u16) -> Self {
        Self::with(n, 1)
    }

    /// Of the first island of so many.
    pub(crate) fn with(n: u16, islands: u16) -> Self {
        Self::beside(n, islands, None)
    }

    /// The same, with machines beside the island that this one makes.
    pub(crate) fn beside(n: u16, islands: u16, maker: Option<Arc<dyn BesideMaker>>) -> Self {
        let in_sync = (0..n).map(|node| Seat { node: NodeId(node), tenure: 1 }).collect();
        let record = GroupRecord { epoch: 0, primary: None, in_sync, wanted: n as u8, power_cut: false };
        let mut group = Self {
            machines: (0..n).map(Machine::new).collect(),
            store: (1, record),
            cut_ways: BTreeSet::new(),
            loses: None,
            ships_late: false,
            late: Mutex::default(),
            ring: None,
            maker,
            islands,
            links: 0,
            seq: 0,
            id: 0,
            true_ms: 0,
        };
        for node in group.nodes() {
            group.start(node);
        }
        group
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        (0..self.machines.len() as u16).map(NodeId).collect()
    }

    /// All but this one.
    pub(crate) fn others(&self, node: NodeId) -> Vec<NodeId> {
        self.nodes().into_iter().filter(|other| *other != node).collect()
    }

    pub(crate) fn machine(&mut self, node: NodeId) -> &mut Machine {
        &mut self.machines[usize::from(node.0)]
    }

    pub(crate) fn copy(&self, node: NodeId) -> &Arc<GroupCopy<SimDisk>> {
        &self.machines[usize::from(node.0)].process.as_ref().unwrap().copy
    }

    pub(crate) fn engine(&self, node: NodeId) -> Arc<Engine<SimDisk>> {
        self.copy(node).engine().unwrap()
    }

    pub(crate) fn mouth(&self, node: NodeId) -> Arc<Mouth> {
        Arc::clone(&self.machines[usize::from(node.0)].process.as_ref().unwrap().mouth)
    }

    pub(crate) fn tenure(&self, node: NodeId) -> u32 {
        self.copy(node).with_group(|group| group.seat().tenure)
    }

    pub(crate) fn start(&mut self, node: NodeId) {
        self.try_start(node).unwrap();
    }

    pub(crate) fn try_start(&mut self, node: NodeId) -> Result<(), OpenError> {
        let all = self.nodes();
        let (wanted, ring) = self.ring.clone().unwrap_or((all.len() as u8, all));
        let islands: Vec<IslandId> = (0..self.islands).map(IslandId).collect();
        let table = Table::new(self.islands);
        let beside = self.maker.clone();
        let machine = self.machine(node);
        machine.life += 1;
        let me = NodeLife { node, life: machine.life, host: Host { boot: machine.boot, inode: 7 } };
        let setup = Setup {
            volume: VolumeId(1),
            island: atoll_island::Config::new(ISLAND, 1, table, islands),
            log: atoll_log::Config {
                segment_bytes: 512 << 10,
                record_bytes_max: 256 << 10,
                boot: machine.boot,
                keep_bytes: machine.keep_bytes,
                ..atoll_log::Config::default()
            },
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new: machine.life == 1,
            reached: machine.noted,
            beside,
        };
        let group = GroupSetup {
            group: Config { me, ring, wanted, tenure_min: 1_000 },
            in_steps: machine.in_steps,
            fills: Arc::default(),
        };
        let (noted, may_fail) = (Mutex::new(machine.noted), machine.may_fail.into());
        let mouth = Arc::new(Mouth { noted, may_fail, ..Mouth::default() });
        let nets = (Arc::clone(&mouth) as Arc<dyn Net>, Arc::clone(&mouth) as Arc<dyn GroupNet>);
        let seats = SeatStore::new(Arc::new(machine.beside.clone()), b"seat".to_vec());
        let (disk, clock) = (Arc::new(machine.disk.clone()), Arc::clone(&machine.clock));
        let (copy, _) = GroupCopy::open(disk, seats, setup, group, nets, clock)?;
        machine.process = Some(Process { copy, mouth, me });
        for other in self.others(node) {
            if self.machine(other).process.is_some() {
                self.link(node, other);
            }
        }
        Ok(())
    }

    fn link(&mut self, a: NodeId, b: NodeId) {
        for (from, to) in [(a, b), (b, a)] {
            self.links += 1;
            let who = self.machine(from).process.as_ref().unwrap().me;
            self.copy(to).tell(GroupEvent::Link { who, link: self.links });
        }
    }

    pub(crate) fn end(&mut self, node: NodeId, fault: Fault) {
        let machine = self.machine(node);
        machine.disk = machine.disk.revive(fault);
        machine.beside = machine.beside.revive(fault);
        if let Fault::PowerCut { .. } = fault {
            machine.boot += 1;
        }
        if let Some(process) = machine.process.take() {
            machine.noted = *process.mouth.noted.lock().unwrap();
        }
    }

    /// One more node, whose copy was not made with the volume. All copies are told that there shall be one on each.
    pub(crate) fn add(&mut self) -> NodeId {
        let node = NodeId(self.machines.len() as u16);
        let machine = Machine { life: 1, may_fail: true, ..Machine::new(node.0) };
        self.machines.push(machine);
        let ring = self.nodes();
        for other in self.others(node) {
            let (copies, ring) = (ring.len() as u8, ring.clone());
            self.copy(other).tell(GroupEvent::Wanted { copies, ring });
        }
        node
    }

    /// So many copies are wanted, on the first of these nodes.
    pub(crate) fn want(&mut self, copies: u8, ring: Vec<NodeId>) {
        let up: Vec<NodeId> = self.nodes().into_iter().filter(|node| self.is_up(*node)).collect();
        for node in &up {
            self.copy(*node).tell(GroupEvent::Wanted { copies, ring: ring.clone() });
        }
        self.ring = Some((copies, ring));
        for (at, a) in up.iter().enumerate() {
            up[at + 1..].iter().for_each(|b| self.link(*a, *b));
        }
    }

    /// The process ends, and all that the copy has is lost.
    pub(crate) fn wipe(&mut self, node: NodeId) {
        self.end(node, Fault::ProcessDeath);
        let seed = 1_000 + self.links;
        let machine = self.machine(node);
        machine.may_fail = true;
        (machine.disk, machine.beside) = (SimDisk::new(seed), SimDisk::new(seed + 1));
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        let machine = &self.machines[usize::from(node.0)];
        machine.process.is_some() && !machine.is_cut
    }

    /// Whether a message gets from one to the other.
    fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        self.is_up(from) && self.is_up(to) && !self.cut_ways.contains(&(from, to))
    }

    /// Nothing gets from one to the other, or back.
    pub(crate) fn cut_between(&mut self, a: NodeId, b: NodeId) {
        self.cut_ways.extend([(a, b), (b, a)]);
    }

    /// Delivers what was said, until nobody says anything more.
    pub(crate) fn pump(&mut self) {
        loop {
            let mut quiet = true;
            for node in self.nodes() {
                let Some(process) = &self.machines[usize::from(node.0)].process else { continue };
                let (copy, mouth) = (Arc::clone(&process.copy), Arc::clone(&process.mouth));
                let Some(said) = mouth.said.lock().unwrap().pop_front() else { continue };
                quiet = false;
                let has_store = self.is_up(node) && !self.machine(node).has_no_store;
                match said {
                    Said::Tell(to, message, payload) => {
                        let is_lost =
                            self.loses.as_ref().is_some_and(|loses| loses(node, to, &message, &payload));
                        if self.reaches(node, to) && !is_lost {
                            self.copy(to).hear(node, self.links, message, &payload);
                        }
                    }
                    Said::Read(number) if has_store => {
                        copy.read_done(number, Some((self.store.0, Some(self.store.1.clone()))));
                    }
                    Said::Read(number) => copy.read_done(number, None),
                    Said::Swap(number, ..) if !has_store => copy.swapped(number, SwapOutcome::Unknown),
                    Said::Swap(number, expect, record) if expect == self.store.0 => {
                        self.store = (expect + 1, record);
                        copy.swapped(number, SwapOutcome::Done(expect + 1));
                        self.hint();
                    }
                    Said::Swap(number, ..) => copy.swapped(number, SwapOutcome::Conflict),
                }
            }
            if quiet && !self.do_steps() {
                return;
            }
        }
    }

    /// Copies that do their work in steps do all of it. False if there was nothing.
    pub(crate) fn do_steps(&self) -> bool {
        let mut late = self.late.lock().unwrap();
        let mut any = false;
        while !self.ships_late
            && let Some((node, task)) = late.pop()
        {
            self.copy(node).perform(task);
            any = true;
        }
        for (machine, node) in self.machines.iter().zip(self.nodes()).filter(|(machine, _)| machine.in_steps)
        {
            let Some(Process { copy, .. }) = &machine.process else { continue };
            loop {
                if copy.do_next() {
                    any = true;
                } else if let Some(task) = copy.take_task() {
                    any = true;
                    match task {
                        Task::Ship(_) if self.ships_late => late.push((node, task)),
                        task => copy.perform(task),
                    }
                } else {
                    break;
                }
            }
        }
        any
    }

    /// Whoever watches the store hears that a record has changed.
    fn hint(&mut self) {
        for node in self.nodes() {
            if self.is_up(node) && !self.machine(node).has_no_store {
                self.copy(node).tell(GroupEvent::RecordChanged);
            }
        }
    }

    /// Time passes, and nothing else.
    pub(crate) fn skip(&mut self, ms: u64) {
        let before = self.true_ms;
        self.true_ms += ms;
        for machine in &self.machines {
            // No clock loses what a division leaves.
            let passed = self.true_ms * machine.rate / 100 - before * machine.rate / 100;
            machine.clock.ms.fetch_add(passed, Ordering::Relaxed);
        }
    }

    /// Beacons go around and time passes, a step at a time. At most one copy may tell others something.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(STEP_MS) {
            self.skip(STEP_MS);
            self.beat();
            for node in self.nodes() {
                if self.machine(node).process.is_some() {
                    let copy = Arc::clone(self.copy(node));
                    copy.tick();
                    copy.housekeep();
                }
            }
            self.pump();
            self.one_tells();
        }
    }

    fn beat(&mut self) {
        for node in self.nodes() {
            if !self.is_up(node) {
                continue;
            }
            let (sent_ms, copy) = (self.machine(node).clock.boot_ms(), Arc::clone(self.copy(node)));
            let me = self.machine(node).process.as_ref().unwrap().me;
            let Some(epoch) = copy.named() else { continue };
            for to in copy.beacons_to().into_iter().filter(|to| self.reaches(node, *to)) {
                let given = self.copy(to).beacon(me, epoch);
                match given {
                    _ if !self.reaches(to, node) => {}
                    Given::Promise => copy.tell(GroupEvent::Promised { node: to, sent_ms }),
                    Given::Refused(epoch) => copy.tell(GroupEvent::RefusedBeacon { epoch }),
                }
            }
        }
    }

    /// The primary invariant.
    pub(crate) fn one_tells(&self) {
        let up = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        let telling: Vec<NodeId> = up.filter(|p| p.copy.may_tell()).map(|p| p.me.node).collect();
        assert!(telling.len() <= 1, "{telling:?} may tell");
    }

    /// The copy that leads, if it may answer.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leads = |node: &NodeId| {
            self.is_up(*node) && matches!(self.copy(*node).role(), Role::Leading { begun: true, .. })
        };
        self.nodes().into_iter().rev().find(|node| leads(node) && self.copy(*node).may_tell())
    }

    /// How long it takes until a copy leads.
    pub(crate) fn ms_to_leader(&mut self) -> u64 {
        for step in 1..=400 {
            self.pass(STEP_MS);
            if self.leader().is_some() {
                return step * STEP_MS;
            }
        }
        let roles: Vec<_> =
            self.nodes().iter().map(|node| self.is_up(*node).then(|| self.copy(*node).role())).collect();
        panic!("nobody leads: {roles:?}, {:?}", self.store);
    }

    pub(crate) fn wait_for_leader(&mut self) -> NodeId {
        self.ms_to_leader();
        self.leader().unwrap()
    }

    pub(crate) fn is_in_sync(&self, node: NodeId) -> bool {
        self.store.1.seat_of(node).is_some_and(|seat| seat.tenure == self.tenure(node))
    }

    /// Waits until all copies are in sync.
    pub(crate) fn wait_for_all(&mut self) {
        for _ in 0..400 {
            if self.nodes().into_iter().all(|node| self.is_in_sync(node)) && self.leader().is_some() {
                return;
            }
            self.pass(STEP_MS);
        }
        for node in self.nodes() {
            let failures = self.mouth(node).failures.lock().unwrap().clone();
            println!("{node}: {:?}, {failures:?}", self.copy(node).status());
        }
        panic!("not all come back: {:?}", self.store);
    }

    // -------------------------------------------------------------------- the client

    pub(crate) fn request(session: SessionId, seq: u64, op: ClientOp) -> Request {
        Request { session, seq, acked: 0, table: 1, vector: Vec::new(), caller: Caller::ROOT, op }
    }

    /// A client asks a copy: the number of its request.
    pub(crate) fn begin_as(
        &mut self,
        session: u64,
        node: NodeId,
        seq: u64,
        op: ClientOp,
        data: &[u8],
    ) -> u64 {
        self.id += 1;
        let id = self.id;
        let request = Self::request(SessionId(session), seq, op);
        let link = LinkId(session * 100 + u64::from(node.0));
        let data = Bytes::copy_from_slice(data);
        self.copy(node).enter(Event::Request { link, id, request, data });
        id
    }

    pub(crate) fn begin(&mut self, node: NodeId, seq: u64, op: ClientOp, data: &[u8]) -> u64 {
        self.begin_as(1, node, seq, op, data)
    }

    pub(crate) fn answer(&mut self, node: NodeId, id: u64) -> (Outcome, Vec<u8>) {
        for _ in 0..200 {
            let mouth = self.mouth(node);
            let mut replies = mouth.replies.lock().unwrap();
            if let Some(at) = replies.iter().position(|(of, ..)| *of == id) {
                let (_, outcome, bytes) = replies.remove(at);
                return (outcome, bytes);
            }
            drop(replies);
            self.pump();
            self.pass(STEP_MS);
        }
        panic!("request {id} is not answered");
    }

    pub(crate) fn ask(&mut self, node: NodeId, seq: u64, op: ClientOp, data: &[u8]) -> (Outcome, Vec<u8>) {
        let id = self.begin(node, seq, op, data);
        self.answer(node, id)
    }

    pub(crate) fn attach(&mut self) -> NodeId {
        let leader = self.wait_for_leader();
        let (outcome, _) = self.ask(leader, 0, ClientOp::Attach { mount: true }, &[]);
        assert!(!matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        leader
    }

    pub(crate) fn fs(&mut self, node: NodeId, op: Op, data: &[u8]) -> Outcome {
        self.seq += 1;
        let (outcome, _) = self.ask(node, self.seq, ClientOp::Fs { op }, data);
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
        outcome
    }

    pub(crate) fn create_of(name: &[u8]) -> Op {
        let (name, target) = (Name::new(name).unwrap(), Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target }
    }

    pub(crate) const fn write_of(ino: Ino, offset: u64) -> Op {
        Op::Write { ino, offset, append: false, kill_set_id: false }
    }

    pub(crate) fn create(&mut self, node: NodeId, name: &[u8]) -> Ino {
        match self.fs(node, Self::create_of(name), &[]) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn write(&mut self, node: NodeId, ino: Ino, offset: u64, bytes: &[u8]) {
        self.fs(node, Self::write_of(ino, offset), bytes);
    }

    /// A copy decides a write of which nobody hears.
    pub(crate) fn write_unheard(&mut self, node: NodeId, ino: Ino, offset: u64, bytes: &[u8]) -> u64 {
        self.unheard(node, Self::write_of(ino, offset), bytes)
    }

    /// A copy decides a change of which nobody hears.
    pub(crate) fn unheard(&mut self, node: NodeId, op: Op, bytes: &[u8]) -> u64 {
        self.begin(node, self.seq + 1, ClientOp::Fs { op }, bytes)
    }

    pub(crate) fn sync(&mut self, node: NodeId, ino: Ino) {
        self.fs(node, Op::Fsync { ino }, &[]);
    }

    pub(crate) fn read(&mut self, node: NodeId, ino: Ino, offset: u64, len: u32) -> Vec<u8> {
        let (outcome, bytes) = self.ask(node, 0, ClientOp::Fs { op: Op::Read { ino, offset, len } }, &[]);
        assert!(!matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        bytes
    }

    pub(crate) fn lookup(&mut self, node: NodeId, name: &[u8]) -> Outcome {
        let op = Op::Lookup { dir: Ino::ROOT, name: Name::new(name).unwrap() };
        self.ask(node, 0, ClientOp::Fs { op }, &[]).0
    }

    // ----------------------------------------------------------------------- judging

    /// Every copy makes a checkpoint.
    pub(crate) fn checkpoint(&mut self) {
        let leader = self.leader().unwrap();
        self.copy(leader).enter(Event::CheckpointWanted);
        self.pass(3_000);
    }

    /// Every copy has made a checkpoint, and all have the same rows and bodies.
    pub(crate) fn same(&mut self) {
        self.checkpoint();
        let rows: Vec<_> = self.nodes().iter().map(|node| rows(&self.engine(*node))).collect();
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
