//! Every order in which two promotions, a drop and an admission can meet. Only the machines run. Their states are branched
//! wherever more than one thing can happen next.
//!
//! A step is the arrival of the first message between two copies, a swap at the store, the answer to a swap (which may
//! be lost), a record that the primary decides, or a moment in which a copy hears nothing for long: then a primary drops, and a
//! member claims. A process may die, and begins again at once: what it has sent may still arrive, and its swaps may still be done.
//! Records are written and synced, and the store is read, at once. Clocks are not compared: what is committed must hold however late
//! anybody is. Time passes for all, with beacons, only when nothing else can happen, and only a few times.
//!
//! Leases need clocks that can be compared. So in states of their own nobody is silent by itself: time passes for all at any
//! moment, with one copy cut off or none, and no two copies may tell something at once.
//!
//! `ATOLL_SOAK=1` explores more: a swap whose answer is lost beside a decision, three promotions, and three copies with such a
//! swap, more deaths, and leases of three copies.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use atoll_core::{NodeId, Position};
use atoll_group::{
    Config, Epochs, Given, Group, GroupEffect, GroupEvent, OpenedLog, Promise, Role, SeatFile, SwapOutcome,
};
use atoll_proto::{EpochTable, GroupMessage, GroupRecord, Host, NodeLife, Seat};

/// How long a copy hears nothing.
const LONG_MS: u64 = 1_750;

/// Time that passes at once for all.
const PASS_MS: u64 = 300;

fn life_of(node: NodeId, life: u32) -> NodeLife {
    NodeLife { node, life, host: Host { boot: 1, inode: node.0.into() } }
}

fn life(node: NodeId) -> NodeLife {
    life_of(node, FIRST_LIFE)
}

/// The lives that begin with.
const FIRST_LIFE: u32 = 5;

/// What is on its way on the links between two copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sent {
    Message(u64, GroupMessage),
    /// A link from this process.
    Link(NodeLife, u64),
}

/// A swap at the store.
#[derive(Debug, Clone, Hash)]
struct Asked {
    number: u64,
    expect: u64,
    record: GroupRecord,
    /// It is done, and how that went.
    outcome: Option<SwapOutcome>,
    /// Its answer is waited for.
    is_waited_for: bool,
}

#[derive(Debug, Clone, Hash)]
struct Copy {
    group: Group,
    promise: Promise,
    life: u32,
    /// As it is on its disk.
    seat: SeatFile,
    now: u64,
    /// The epoch of each record.
    log: Vec<u32>,
    swaps: Vec<Asked>,
    /// The ends of the frame that is being handled.
    ends: Vec<Position>,
}

/// What may still happen by the explorer's will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    silences: u8,
    decisions: u8,
    unknowns: u8,
    rests: u8,
    deaths: u8,
    passes: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Deliver(usize, usize),
    Swap(usize, usize),
    Answer(usize, usize),
    Lose(usize, usize),
    Decide(usize),
    Silence(usize),
    Rest,
    Die(usize),
    /// Time passes; this one hears nothing, and is not heard.
    Pass(Option<usize>),
}

#[derive(Debug, Clone, Hash)]
struct State {
    copies: Vec<Copy>,
    ways: BTreeMap<(usize, usize), VecDeque<Sent>>,
    /// All have the same time.
    is_timed: bool,
    store: (u64, GroupRecord),
    budget: Budget,
    /// Records that were called committed, by their epochs.
    committed: Vec<u32>,
    led: Vec<u32>,
    admitted: u8,
    /// Reads that are answered within the same step.
    reads: Vec<(usize, u64)>,
}

/// What was covered.
#[derive(Debug, Default)]
struct Covered {
    states: u64,
    promotions: u64,
    admissions: u64,
    drops: u64,
    deaths: u64,
    /// States in which a copy may tell something, and is not the first one.
    leases: u64,
}

fn position(log: &[u32], seq: usize) -> Position {
    Position { epoch: if seq == 0 { 0 } else { log[seq - 1] }, seq: seq as u64 }
}

fn opened(log: &[u32]) -> OpenedLog {
    let ends = (1..=log.len()).filter(|seq| log.get(*seq) != log.get(seq - 1)).map(|seq| position(log, seq));
    let epochs = Epochs::new(EpochTable { base: Position::default(), ends: ends.collect() }).unwrap();
    OpenedLog { whole: true, epochs, checkpoint: 0, first: 1, last_body: 0, differs: 0 }
}

impl State {
    fn new(copies: u16, budget: Budget) -> Self {
        let ring: Vec<NodeId> = (0..copies).map(NodeId).collect();
        let seats = ring.iter().map(|node| Seat { node: *node, tenure: 1 }).collect();
        let old = NodeLife { life: 4, ..life(NodeId(0)) };
        let primary = Some(old.as_primary(1));
        let record =
            GroupRecord { epoch: 1, primary, in_sync: seats, wanted: copies as u8, power_cut: false };
        let mut state = Self {
            copies: Vec::new(),
            ways: BTreeMap::new(),
            is_timed: false,
            store: (1, record),
            // Nobody dies before all follow.
            budget: Budget { deaths: 0, ..budget },
            committed: Vec::new(),
            led: Vec::new(),
            admitted: 0,
            reads: Vec::new(),
        };
        let mut starts = Vec::new();
        for node in &ring {
            let config =
                Config { me: life(*node), ring: ring.clone(), wanted: copies as u8, tenure_min: 1_000 };
            let (mut promise, mut out, log) = (Promise::default(), Vec::new(), vec![1]);
            let file = SeatFile { host: Some(life(*node).host), ..SeatFile::of_a_new_member() };
            let group = Group::new(config, file.clone(), opened(&log), &mut promise, 10_000, &mut out);
            let (swaps, ends, now, life, seat) = (Vec::new(), Vec::new(), 10_000, FIRST_LIFE, file);
            state.copies.push(Copy { group, promise, life, seat, now, log, swaps, ends });
            starts.push(out);
        }
        for (copy, out) in starts.into_iter().enumerate() {
            state.perform(copy, out);
        }
        state.read();
        for copy in 0..state.copies.len() {
            for other in ring.iter().filter(|other| usize::from(other.0) != copy) {
                state.handle(copy, GroupEvent::Link { who: life(*other), link: 1 });
            }
        }
        // The first one leads again, and all follow.
        for _ in 0..8 {
            state.settle();
            state.rest();
        }
        state.settle();
        assert!(matches!(
            state.copies[0].group.role(&state.copies[0].promise),
            Role::Leading { begun: true, .. }
        ));
        state.budget = budget;
        state.is_timed = budget.passes > 0;
        state
    }

    fn life(&self, copy: usize) -> NodeLife {
        life_of(NodeId(copy as u16), self.copies[copy].life)
    }

    /// The number of a link between two: that of the process which has begun last.
    fn link(&self, a: usize, b: usize) -> u64 {
        let count = |copy: usize| u64::from(self.copies[copy].life - FIRST_LIFE);
        1 + count(a) + count(b)
    }

    /// The process of a copy dies, and the next one begins. What was on its way to it is lost.
    fn die(&mut self, copy: usize) {
        let others: Vec<usize> = (0..self.copies.len()).filter(|other| *other != copy).collect();
        for other in &others {
            self.ways.remove(&(*other, copy));
        }
        let ring: Vec<NodeId> = (0..self.copies.len() as u16).map(NodeId).collect();
        let c = &mut self.copies[copy];
        c.life += 1;
        // What it has asked for may still be done.
        c.swaps.retain(|swap| swap.outcome.is_none());
        c.swaps.iter_mut().for_each(|swap| swap.is_waited_for = false);
        let wanted = ring.len() as u8;
        let config = Config { me: life_of(NodeId(copy as u16), c.life), ring, wanted, tenure_min: 1_000 };
        let (mut promise, mut out) = (Promise::default(), Vec::new());
        c.group = Group::new(config, c.seat.clone(), opened(&c.log), &mut promise, c.now, &mut out);
        c.promise = promise;
        self.perform(copy, out);
        for other in others {
            let link = self.link(copy, other);
            let (who, from) = (self.life(other), self.life(copy));
            self.handle(copy, GroupEvent::Link { who, link });
            self.ways.entry((copy, other)).or_default().push_back(Sent::Link(from, link));
        }
    }

    /// Time passes for all, and beacons of all but one are answered.
    fn pass(&mut self, cut: Option<usize>) {
        for _ in 0..PASS_MS / 100 {
            self.beat(cut);
        }
    }

    /// No two copies may tell something at once.
    fn judge_leases(&self) -> usize {
        let may = |copy: &usize| {
            self.copies[*copy].group.lease_until().is_some_and(|at| self.copies[*copy].now < at)
        };
        let all: Vec<usize> = (0..self.copies.len()).filter(may).collect();
        assert!(!self.is_timed || all.len() <= 1, "{all:?} may tell something: {self:#?}");
        all.first().copied().unwrap_or(0)
    }

    fn settle(&mut self) {
        while let Some(choice) = self.choices().into_iter().find(|choice| {
            !matches!(choice, Choice::Decide(_) | Choice::Silence(_) | Choice::Lose(..) | Choice::Rest)
        }) {
            self.step(choice);
        }
    }

    fn handle(&mut self, copy: usize, event: GroupEvent) {
        let c = &mut self.copies[copy];
        let mut out = Vec::new();
        c.group.handle(&mut c.promise, c.now, event, &mut out);
        self.perform(copy, out);
    }

    fn perform(&mut self, copy: usize, effects: Vec<GroupEffect>) {
        for effect in effects {
            match effect {
                GroupEffect::Read { number } => self.reads.push((copy, number)),
                GroupEffect::Swap { number, expect, record } => {
                    let asked = Asked { number, expect, record, outcome: None, is_waited_for: true };
                    self.copies[copy].swaps.push(asked);
                }
                GroupEffect::Tell { to, message } => {
                    // Hints decide nothing that may not be decided without them.
                    if matches!(message, GroupMessage::Standing { .. } | GroupMessage::Refused { .. }) {
                        continue;
                    }
                    let sent = Sent::Message(self.link(copy, usize::from(to.0)), message);
                    let way = self.ways.entry((copy, usize::from(to.0))).or_default();
                    // What is said twice in a row arrives once.
                    if way.back() != Some(&sent) {
                        way.push_back(sent);
                    }
                }
                GroupEffect::Take { upto, .. } => {
                    let c = &mut self.copies[copy];
                    while (c.log.len() as u64) < upto.seq {
                        let seq = c.log.len() as u64 + 1;
                        let end = c.ends.iter().find(|end| end.seq >= seq).expect("the frame has it");
                        c.log.push(end.epoch);
                    }
                    self.wrote(copy);
                }
                GroupEffect::Committed { seq } => {
                    let log = &self.copies[copy].log[..seq as usize];
                    let n = self.committed.len().min(log.len());
                    assert_eq!(log[..n], self.committed[..n], "{copy} calls something else committed");
                    if log.len() > n {
                        self.committed = log.to_vec();
                    }
                }
                GroupEffect::Sync { epoch, number, seq: upto, .. } => {
                    let seq = self.copies[copy].log.len() as u64;
                    self.handle(copy, GroupEvent::Synced { seq });
                    self.handle(copy, GroupEvent::SyncDone { epoch, number, seq: upto });
                }
                GroupEffect::Lead { epoch, .. } => {
                    assert!(!self.led.contains(&epoch), "epoch {epoch} is led twice");
                    if self.led.iter().all(|led| *led < epoch) {
                        let log = &self.copies[copy].log;
                        assert!(
                            log.starts_with(&self.committed),
                            "{copy} leads without {:?}: {log:?}",
                            self.committed
                        );
                    }
                    self.led.push(epoch);
                    self.decide(copy, epoch);
                }
                GroupEffect::Close => self.open(copy),
                GroupEffect::CutTo { to } => {
                    self.copies[copy].log.truncate(to.seq as usize);
                    self.open(copy);
                }
                GroupEffect::FillAnew
                | GroupEffect::Refill
                | GroupEffect::StoreWentBack { .. }
                | GroupEffect::TwoHosts { .. } => {
                    panic!("{effect:?} at {copy}")
                }
                GroupEffect::SaveSeat(seat) => self.copies[copy].seat = seat,
                GroupEffect::NoteWhole | GroupEffect::SyncedAll { .. } | GroupEffect::RoundDone { .. } => {}
            }
        }
    }

    fn open(&mut self, copy: usize) {
        let log = opened(&self.copies[copy].log);
        self.handle(copy, GroupEvent::Opened { log });
    }

    fn decide(&mut self, copy: usize, epoch: u32) {
        self.copies[copy].log.push(epoch);
        let seq = self.copies[copy].log.len() as u64;
        self.handle(copy, GroupEvent::Decided { seq });
        self.wrote(copy);
    }

    fn wrote(&mut self, copy: usize) {
        let seq = self.copies[copy].log.len() as u64;
        self.handle(copy, GroupEvent::Written { seq, last_body: 0 });
        self.handle(copy, GroupEvent::Synced { seq });
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices: Vec<Choice> = self
            .ways
            .iter()
            .filter(|(_, way)| !way.is_empty())
            .map(|((a, b), _)| Choice::Deliver(*a, *b))
            .collect();
        for (copy, c) in self.copies.iter().enumerate() {
            for (nth, swap) in c.swaps.iter().enumerate() {
                match swap.outcome {
                    None => choices.push(Choice::Swap(copy, nth)),
                    Some(_) if swap.is_waited_for => choices.push(Choice::Answer(copy, nth)),
                    Some(_) => {}
                }
                if swap.is_waited_for && self.budget.unknowns > 0 {
                    choices.push(Choice::Lose(copy, nth));
                }
            }
        }
        let is_busy = !choices.is_empty();
        for (copy, c) in self.copies.iter().enumerate() {
            if matches!(c.group.role(&c.promise), Role::Leading { .. }) && self.budget.decisions > 0 {
                choices.push(Choice::Decide(copy));
            }
            if self.budget.silences > 0
                && !matches!(c.group.role(&c.promise), Role::Claiming | Role::Standing)
            {
                choices.push(Choice::Silence(copy));
            }
            if self.budget.deaths > 0 {
                choices.push(Choice::Die(copy));
            }
        }
        if self.budget.passes > 0 {
            // With two copies it is the same which one is cut.
            let cut = if self.copies.len() == 2 { 1 } else { self.copies.len() };
            choices.extend((0..cut).map(Some).chain([None]).map(Choice::Pass));
        }
        if !is_busy && self.budget.rests > 0 {
            choices.push(Choice::Rest);
        }
        choices
    }

    fn step(&mut self, choice: Choice) {
        self.step_by(choice);
        self.read();
    }

    fn read(&mut self) {
        while let Some((copy, number)) = self.reads.pop() {
            let found = Some((self.store.0, Some(self.store.1.clone())));
            self.handle(copy, GroupEvent::ReadDone { number, found });
        }
    }

    fn step_by(&mut self, choice: Choice) {
        match choice {
            Choice::Deliver(a, b) => {
                let sent = self.ways.get_mut(&(a, b)).and_then(VecDeque::pop_front).expect("there is one");
                let (link, message) = match sent {
                    Sent::Message(link, message) => (link, message),
                    Sent::Link(who, link) => return self.handle(b, GroupEvent::Link { who, link }),
                };
                if let GroupMessage::Append { ends, .. } = &message {
                    self.copies[b].ends.clone_from(ends);
                }
                self.handle(b, GroupEvent::Heard { from: NodeId(a as u16), link, message });
                self.copies[b].ends.clear();
            }
            Choice::Swap(copy, nth) => {
                let swap = &mut self.copies[copy].swaps[nth];
                if swap.expect == self.store.0 {
                    let (before, after) = (&self.store.1, &swap.record);
                    if before.epoch == after.epoch && after.in_sync.len() > before.in_sync.len() {
                        self.admitted += 1;
                    }
                    self.store = (swap.expect + 1, swap.record.clone());
                    swap.outcome = Some(SwapOutcome::Done(self.store.0));
                } else {
                    swap.outcome = Some(SwapOutcome::Conflict);
                }
                if !swap.is_waited_for {
                    self.copies[copy].swaps.remove(nth);
                }
            }
            Choice::Answer(copy, nth) => {
                let swap = self.copies[copy].swaps.remove(nth);
                let outcome = swap.outcome.expect("it is done");
                self.handle(copy, GroupEvent::Swapped { number: swap.number, outcome });
            }
            Choice::Lose(copy, nth) => {
                self.budget.unknowns -= 1;
                let swap = &mut self.copies[copy].swaps[nth];
                swap.is_waited_for = false;
                let number = swap.number;
                if swap.outcome.is_some() {
                    self.copies[copy].swaps.remove(nth);
                }
                self.handle(copy, GroupEvent::Swapped { number, outcome: SwapOutcome::Unknown });
            }
            Choice::Decide(copy) => {
                self.budget.decisions -= 1;
                if let Role::Leading { epoch, .. } = self.copies[copy].group.role(&self.copies[copy].promise)
                {
                    self.decide(copy, epoch);
                }
            }
            Choice::Silence(copy) => {
                self.budget.silences -= 1;
                for _ in 0..LONG_MS / 250 {
                    self.copies[copy].now += 250;
                    self.handle(copy, GroupEvent::Tick);
                    self.read();
                }
            }
            Choice::Rest => self.rest(),
            Choice::Die(copy) => {
                self.budget.deaths -= 1;
                self.die(copy);
            }
            Choice::Pass(cut) => {
                self.budget.passes -= 1;
                self.pass(cut);
            }
        }
    }

    /// Time passes for all, and beacons are answered.
    fn rest(&mut self) {
        self.budget.rests = self.budget.rests.saturating_sub(1);
        for _ in 0..4 {
            self.beat(None);
        }
    }

    fn beat(&mut self, cut: Option<usize>) {
        for c in &mut self.copies {
            c.now += 100;
        }
        for copy in 0..self.copies.len() {
            let now = self.copies[copy].now;
            self.handle(copy, GroupEvent::Tick);
            self.read();
            let Some(epoch) = self.copies[copy].promise.named(now) else { continue };
            let others = (0..self.copies.len()).filter(|other| *other != copy);
            for other in others.filter(|other| cut != Some(copy) && cut != Some(*other)) {
                let from = self.life(copy);
                let c = &mut self.copies[other];
                let given = c.promise.beacon(c.now, from, epoch);
                let event = match given {
                    Given::Promise => GroupEvent::Promised { node: NodeId(other as u16), sent_ms: now },
                    Given::Refused(epoch) => GroupEvent::RefusedBeacon { epoch },
                };
                self.handle(copy, event);
            }
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

fn explore(copies: u16, budget: Budget) -> Covered {
    let mut covered = Covered::default();
    let mut seen = HashSet::new();
    let first = State::new(copies, budget);
    seen.insert(first.digest());
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        covered.states += 1;
        for choice in state.choices() {
            let mut next = state.clone();
            next.step(choice);
            covered.promotions = covered.promotions.max(next.led.len() as u64 - 1);
            covered.admissions += u64::from(next.admitted > state.admitted);
            covered.drops += u64::from(next.store.1.in_sync.len() < state.store.1.in_sync.len());
            covered.deaths += u64::from(next.budget.deaths < state.budget.deaths);
            covered.leases += u64::from(next.judge_leases() > 0);
            if seen.insert(next.digest()) {
                open.push(next);
            }
        }
    }
    covered
}

fn in_every_order(copies: u16, budgets: &[Budget]) {
    for budget in budgets {
        let covered = explore(copies, *budget);
        println!("{copies} copies, {budget:?}: {covered:?}");
        assert!(covered.promotions >= 2 && covered.admissions > 0 && covered.drops > 0, "{covered:?}");
    }
}

/// Whether there is time for some minutes more.
fn is_soak() -> bool {
    std::env::var_os("ATOLL_SOAK").is_some()
}

const fn budget(silences: u8, decisions: u8, unknowns: u8, rests: u8) -> Budget {
    Budget { silences, decisions, unknowns, rests, deaths: 0, passes: 0 }
}

const fn with_deaths(deaths: u8, budget: Budget) -> Budget {
    Budget { deaths, ..budget }
}

const fn timed(passes: u8, decisions: u8, unknowns: u8, deaths: u8) -> Budget {
    Budget { silences: 0, decisions, unknowns, rests: 0, deaths, passes }
}

#[test]
fn two_copies_in_every_order() {
    in_every_order(2, &[budget(2, 1, 0, 6), budget(2, 0, 1, 6)]);
    if is_soak() {
        in_every_order(2, &[budget(2, 1, 1, 6), budget(3, 0, 0, 5), budget(3, 1, 0, 5)]);
    }
}

#[test]
fn three_copies_in_every_order() {
    in_every_order(3, &[budget(2, 0, 0, 4)]);
    if is_soak() {
        in_every_order(3, &[budget(2, 0, 1, 4)]);
    }
}

#[test]
fn two_copies_that_die_in_every_order() {
    in_every_order(2, &[with_deaths(1, budget(2, 0, 0, 6))]);
    if is_soak() {
        in_every_order(2, &[with_deaths(1, budget(2, 1, 0, 6)), with_deaths(2, budget(2, 0, 0, 6))]);
    }
}

#[test]
fn leases_of_two_copies_in_every_order() {
    let covered = explore(2, timed(8, 0, 0, 0));
    println!("{covered:?}");
    assert!(covered.promotions >= 1 && covered.leases > 0, "{covered:?}");
    if is_soak() {
        for (copies, budget) in [(2, timed(8, 1, 1, 0)), (2, timed(8, 0, 0, 1)), (3, timed(6, 0, 0, 0))] {
            println!("{copies} copies, {budget:?}: {:?}", explore(copies, budget));
        }
    }
}
