//! A small seeded world: machines with disks and clocks, a control store, and copies of two islands that only the group's
//! machine drives. Its log is a toy: records have an id and nothing else. A judge with a global eye looks at each step.
//!
//! Time is in tenths of a millisecond, as nobody in the world can see it; each machine's boot clock goes by a rate of its own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

mod copy;
mod faults;
mod judge;
mod net;
mod store;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use atoll_core::NodeId;
use atoll_group::{Given, GroupEvent, SwapOutcome};
use atoll_model::Rng;
use atoll_proto::{GroupMessage, GroupRecord, Host, NodeLife};

pub use copy::{Copy, Rec};
pub use judge::Judge;
use store::Store;

/// Machines.
pub const MACHINES: usize = 5;
/// A millisecond.
pub const MS: u64 = 10;

/// What can happen in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chances {
    pub kill: u64,
    pub power: u64,
    pub power_of_all: u64,
    pub freeze: u64,
    pub cut: u64,
    pub store: u64,
    pub disk: u64,
    pub clone: u64,
    pub order: u64,
    /// The store is put back to an earlier epoch.
    pub put_back: u64,
    /// A process dies between two effects.
    pub crash: u64,
    /// Percent of messages that are lost, doubled or late.
    pub loss: u64,
    /// Tenths of milliseconds from one fault to the next, at most.
    pub pause: u64,
    /// Percent of swaps that are late or lose their answer, while the store can be reached.
    pub swaps: u64,
}

impl Chances {
    /// By a seed: everything, or a few things often.
    fn drawn(rng: &mut Rng) -> Self {
        let mut all = Self {
            kill: 10,
            power: 6,
            power_of_all: 2,
            freeze: 8,
            cut: 10,
            store: 8,
            disk: 5,
            clone: 2,
            order: 5,
            put_back: 0,
            crash: 5,
            loss: 2,
            pause: 700 * MS,
            swaps: 30,
        };
        for chance in [
            &mut all.kill,
            &mut all.power,
            &mut all.power_of_all,
            &mut all.freeze,
            &mut all.cut,
            &mut all.store,
            &mut all.disk,
            &mut all.clone,
            &mut all.order,
            &mut all.crash,
        ] {
            *chance *= [0, 1, 1, 4][rng.index(4)];
        }
        all.kill += 1;
        all.loss = [0, 0, 1, 5][rng.index(4)];
        all.swaps = [0, 10, 40, 80][rng.index(4)];
        all.pause = [200 * MS, 700 * MS, 2_000 * MS][rng.index(3)];
        all
    }
}

/// A machine and what is wrong with it.
#[derive(Debug, Clone)]
pub struct Machine {
    pub boot: u128,
    pub inode: u64,
    pub life: u32,
    /// Thousandths: how fast the boot clock goes.
    pub rate: u64,
    pub offset: u64,
    pub is_up: bool,
    pub frozen_until: u64,
    pub disk_until: u64,
    /// Effects until the process dies.
    pub crash_in: Option<u64>,
}

/// What happens at a time.
#[derive(Debug, Clone)]
pub enum What {
    Tick { copy: usize, life: u32 },
    Beat { copy: usize, life: u32 },
    Deliver { to: usize, from: NodeId, link: u64, message: GroupMessage, payload: Vec<Rec> },
    Beacon { to: usize, from: usize, who: NodeLife, sent_ms: u64, epoch: u32 },
    Answer { to: usize, life: u32, node: NodeId, sent_ms: u64, given: Given },
    Written { copy: usize, life: u32, engine: u64, upto: usize },
    Synced { copy: usize, life: u32, engine: u64, round: (u32, u64), seq: u64, upto: usize },
    Opened { copy: usize, life: u32, cut: Option<usize> },
    Fetched { copy: usize, life: u32 },
    Execute { request: u64 },
    Answered { copy: usize, life: u32, request: u64 },
    Client { group: usize },
    Start { machine: usize },
    Fault,
    Reconnect { a: usize, b: usize },
}

impl What {
    /// The machine that must not be frozen for it.
    fn machine(&self, world: &World) -> Option<usize> {
        match self {
            Self::Tick { copy, .. }
            | Self::Beat { copy, .. }
            | Self::Written { copy, .. }
            | Self::Synced { copy, .. }
            | Self::Opened { copy, .. }
            | Self::Fetched { copy, .. }
            | Self::Answered { copy, .. } => Some(world.copies[*copy].machine),
            Self::Deliver { to, .. } | Self::Beacon { to, .. } | Self::Answer { to, .. } => {
                Some(world.copies[*to].machine)
            }
            _ => None,
        }
    }
}

/// See the module.
pub struct World {
    pub seed: u64,
    pub rng: Rng,
    pub now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, What>,
    counter: u64,
    pub machines: Vec<Machine>,
    pub copies: Vec<Copy>,
    /// Of each group its copies.
    pub groups: Vec<Vec<usize>>,
    pub store: Store,
    /// Ways that are cut, from machine to machine, and until when; the last index is the store.
    pub cuts: BTreeMap<(usize, usize), u64>,
    /// When the last frame of a way arrives.
    last_on: BTreeMap<(usize, usize), u64>,
    pub judge: Judge,
    pub chances: Chances,
    /// No more faults.
    pub is_calm: bool,
    pub trace: Option<Vec<String>>,
}

impl World {
    /// A world of two groups, of two and of three copies, which share machines.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let machines = (0..MACHINES)
            .map(|m| Machine {
                boot: 1 + m as u128,
                inode: 100 + m as u64,
                life: 0,
                rate: 1_000 + rng.below(251),
                offset: rng.below(10_000_000),
                is_up: false,
                frozen_until: 0,
                disk_until: 0,
                crash_in: None,
            })
            .collect();
        let mut order: Vec<usize> = (0..MACHINES).collect();
        order.rotate_left(rng.index(MACHINES));
        let members = [order[..3].to_vec(), order[2..4].to_vec()];
        Self::of(seed, rng, machines, &members)
    }

    fn of(seed: u64, mut rng: Rng, machines: Vec<Machine>, members: &[Vec<usize>]) -> Self {
        let mut copies = Vec::new();
        let mut groups = Vec::new();
        let mut records = Vec::new();
        for (group, members) in members.iter().enumerate() {
            let ring: Vec<NodeId> = members.iter().map(|m| NodeId(*m as u16)).collect();
            let mut seats: Vec<_> =
                ring.iter().map(|node| atoll_proto::Seat { node: *node, tenure: 1 }).collect();
            seats.sort_unstable();
            let wanted = members.len() as u8;
            records.push(GroupRecord { epoch: 0, primary: None, in_sync: seats, wanted, power_cut: false });
            groups.push((copies.len()..copies.len() + members.len()).collect());
            copies.extend(members.iter().map(|m| Copy::new(group, *m, ring.clone())));
        }
        let mut chances = Chances::drawn(&mut rng);
        chances.put_back = if seed.is_multiple_of(4) { 3 } else { 0 };
        let mut world = Self {
            seed,
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            counter: 0,
            machines,
            copies,
            judge: Judge::new(members.len()),
            groups,
            store: Store::new(records),
            cuts: BTreeMap::new(),
            last_on: BTreeMap::new(),
            chances,
            is_calm: false,
            trace: None,
        };
        for machine in 0..MACHINES {
            let at = world.rng.below(50 * MS);
            world.at(at, What::Start { machine });
        }
        for group in 0..world.groups.len() {
            world.after(100 * MS, What::Client { group });
        }
        let first = 300 * MS + world.rng.below(1_500 * MS);
        world.at(first, What::Fault);
        world
    }

    /// Own clock of a machine, in milliseconds.
    pub fn clock(&self, machine: usize) -> u64 {
        let m = &self.machines[machine];
        m.offset + self.now * m.rate / (1_000 * MS)
    }

    pub fn at(&mut self, at: u64, what: What) {
        self.counter += 1;
        self.queue.push(Reverse((at.max(self.now), self.counter)));
        self.events.insert(self.counter, what);
    }

    pub fn after(&mut self, pause: u64, what: What) {
        self.at(self.now + pause, what);
    }

    /// A pause of so many milliseconds by a machine's own clock.
    fn after_own(&mut self, machine: usize, ms: u64, what: What) {
        let pause = ms * MS * 1_000 / self.machines[machine].rate + 1;
        self.after(pause, what);
    }

    pub fn who(&self, machine: usize) -> NodeLife {
        let m = &self.machines[machine];
        NodeLife { node: NodeId(machine as u16), life: m.life, host: Host { boot: m.boot, inode: m.inode } }
    }

    pub fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.1} {}", self.now as f64 / MS as f64, text()));
        }
    }

    /// Lets time pass up to then.
    pub fn run_until(&mut self, until: u64) {
        while let Some(Reverse((at, n))) = self.queue.peek().copied() {
            if at > until {
                break;
            }
            self.queue.pop();
            self.now = at;
            let what = self.events.remove(&n).expect("it waits");
            let frozen = what.machine(self).map_or(0, |machine| self.machines[machine].frozen_until);
            if frozen > at {
                self.at(frozen, what);
                continue;
            }
            self.happen(what);
            self.judge_answers();
        }
        self.now = until;
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Tick { copy, life } => {
                if self.is_alive(copy, life) {
                    self.handle(copy, GroupEvent::Tick);
                    self.answer_held(copy);
                    let ms = 40 + self.rng.below(30);
                    self.after_own(self.copies[copy].machine, ms, What::Tick { copy, life });
                }
            }
            What::Beat { copy, life } => {
                if self.is_alive(copy, life) {
                    self.send_beacons(copy);
                    self.after_own(
                        self.copies[copy].machine,
                        atoll_group::BEAT_MS,
                        What::Beat { copy, life },
                    );
                }
            }
            What::Deliver { to, from, link, message, payload } => {
                if self.copies[to].process.is_some() {
                    self.copies[to].process.as_mut().expect("it lives").payload = payload;
                    self.handle(to, GroupEvent::Heard { from, link, message });
                }
            }
            What::Beacon { to, from, who, sent_ms, epoch } => self.take_beacon(to, from, who, sent_ms, epoch),
            What::Answer { to, life, node, sent_ms, given } => {
                if self.is_alive(to, life) {
                    let event = match given {
                        Given::Promise => GroupEvent::Promised { node, sent_ms },
                        Given::Refused(epoch) => GroupEvent::RefusedBeacon { epoch },
                    };
                    self.handle(to, event);
                    self.answer_held(to);
                }
            }
            What::Written { copy, life, engine, upto } => self.written(copy, life, engine, upto),
            What::Synced { copy, life, engine, round, seq, upto } => {
                self.synced(copy, life, engine, round, seq, upto)
            }
            What::Opened { copy, life, cut } => self.opened(copy, life, cut),
            What::Fetched { copy, life } => self.fetched(copy, life),
            What::Execute { request } => self.store.execute(request),
            What::Answered { copy, life, request } => self.store_answers(copy, life, request),
            What::Client { group } => self.client(group),
            What::Start { machine } => self.start(machine),
            What::Fault => self.fault(),
            What::Reconnect { a, b } => self.connect(a, b),
        }
    }

    pub fn is_alive(&self, copy: usize, life: u32) -> bool {
        let c = &self.copies[copy];
        c.process.is_some() && self.machines[c.machine].life == life
    }

    fn store_answers(&mut self, copy: usize, life: u32, request: u64) {
        let Some(asked) = self.store.take(request) else { return };
        if !self.is_alive(copy, life) {
            return;
        }
        let event = match asked {
            store::Answer::Read(number, found) => GroupEvent::ReadDone {
                number,
                found: found.map(|(revision, record)| (revision, Some(record))),
            },
            store::Answer::Swap(number, outcome) => GroupEvent::Swapped { number, outcome },
        };
        if matches!(event, GroupEvent::Swapped { outcome: SwapOutcome::Done(_), .. }) {
            // The watch: a hint to the others, which may be lost.
            let group = self.copies[copy].group;
            for other in self.groups[group].clone() {
                if other != copy && self.copies[other].process.is_some() && self.rng.percent(50) {
                    self.handle(other, GroupEvent::RecordChanged);
                }
            }
        }
        if self.is_alive(copy, life) {
            self.handle(copy, event);
        }
    }

    /// Nodes of a group beside one.
    pub fn others(&self, copy: usize) -> Vec<usize> {
        self.groups[self.copies[copy].group].iter().copied().filter(|other| *other != copy).collect()
    }

    pub fn copy_on(&self, group: usize, node: NodeId) -> usize {
        let on = |copy: &&usize| self.copies[**copy].machine == usize::from(node.0);
        *self.groups[group].iter().find(on).expect("a node of the group")
    }

    /// Faults for a while, then none: every group serves again.
    pub fn run(&mut self) {
        let until = 4_000 * MS + self.rng.below(6_000 * MS);
        self.run_until(until);
        self.calm();
        // L, places, a store that answers late, an engine that is opened, and once more all of it.
        let bound = self.now + 8_000 * MS;
        let before: Vec<u64> = self.judge.groups.iter().map(|group| group.answered).collect();
        self.run_until(bound);
        for (group, before) in before.iter().enumerate() {
            let after = self.judge.groups[group].answered;
            assert!(after > before + 3, "group {group} does not serve: {}", self.describe(group));
        }
    }

    /// After so long all copies are in and the same.
    pub fn run_to_rest(&mut self) {
        let all_in = |world: &Self| {
            (0..world.groups.len()).all(|g| world.store.records[g].1.in_sync.len() == world.groups[g].len())
        };
        let bound = self.now + 150_000 * MS;
        while self.now < bound && !all_in(self) {
            let until = self.now + 500 * MS;
            self.run_until(until);
        }
        self.judge.is_over = true;
        let until = self.now + 2_000 * MS;
        self.run_until(until);
        for group in 0..self.groups.len() {
            assert!(all_in(self), "a copy stays out: {}", self.describe(group));
            let logs: BTreeSet<_> =
                self.groups[group].iter().map(|c| self.copies[*c].disk.log.clone()).collect();
            assert_eq!(logs.len(), 1, "the copies of group {group} differ: {}", self.describe(group));
            assert!(self.groups[group].iter().all(|c| !self.copies[*c].disk.torn), "a body differs");
        }
    }

    pub fn describe(&self, group: usize) -> String {
        let mut text = format!("store {:?}\n", self.store.records[group]);
        for copy in &self.groups[group] {
            let c = &self.copies[*copy];
            let role =
                c.process.as_ref().map(|p| (p.group.role(&p.promise), p.group.last(), p.group.reached()));
            text += &format!("  {}: {role:?} seat {:?} log {}\n", c.machine, c.disk.seat, c.disk.log.len());
        }
        text
    }
}
