//! Every order in which a few renames of directories can meet. Only the islands' machines run, without disks,
//! threads and clocks. Their states are branched wherever more than one thing can happen next.
//!
//! A step is the arrival of a request, the arrival of the first message between two islands, or a sync of a
//! log. Records are written at once. Time passes only when nothing else can happen. No island dies and no
//! message is lost: other scenarios do that.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use atoll_core::{H3, Ino, IslandId, Key, Name, SessionId, Stamp, Table, Time, TxnId};
use atoll_island::{BodyDone, Config, Effect, Event, Island, LinkId, Now, Phase, PreviousEnd};
use atoll_model::Rng;
use atoll_posix::{Answer, Caller, Errno, Op, RenameMode};
use atoll_proto::{
    Chain, ClientOp, JournalEntry, Outcome, ParticipantWork, PeerMessage, PeerOp, RenameSpec, Request, Vote,
    VoteInfo,
};
use atoll_state::State;

use crate::cause::Failure;

mod brief;
mod judge;

use brief::brief;

/// Islands.
pub const ISLANDS: usize = 3;
/// Buckets of the table: few, so that a state is quickly copied.
const BUCKETS: usize = 16;
const SEED: u64 = 7;
/// Milliseconds from one tick to the next when no request is put off: longer than every other pause after
/// which something is tried again.
const TICK_MS: u64 = 250;
/// Milliseconds until everything must be at rest: before the islands lose their patience.
const REST_MS: u64 = 9_500;

/// A tree: for each directory below the root the one that it is in (0 is the root, the first of these is 1),
/// and the island that owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(pub Vec<(usize, u16)>);

/// How a rename treats the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum To {
    /// Into this directory, by the name that it has; into the one where it is, by a new one.
    Into(usize),
    /// It takes the name of this one, which must be empty.
    Over(usize),
    /// The two swap their names.
    Swap(usize),
}

/// A rename of a directory, each by its number in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rename {
    /// What moves: not the root.
    pub what: usize,
    /// Where.
    pub to: To,
}

/// Something that can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A request arrives.
    Ask(usize),
    /// The first message from one island to another arrives.
    Deliver(usize, usize),
    /// An island's log is synced.
    Sync(usize),
    /// Nothing else can happen: time passes.
    Tick,
}

/// What an exploration has covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Covered {
    /// States.
    pub states: u64,
    /// Events that islands have taken.
    pub events: u64,
    /// Different states at rest.
    pub ends: u64,
    /// All there is was covered.
    pub complete: bool,
    /// Outcomes of requests at those ends.
    pub done: u64,
    /// Of them those that were refused because a directory would have come below itself.
    pub circles: u64,
    /// Of them those that failed otherwise.
    pub failed: u64,
}

impl Covered {
    /// Adds another exploration.
    pub fn add(&mut self, other: &Self) {
        self.states += other.states;
        self.events += other.events;
        self.ends += other.ends;
        self.complete &= other.complete;
        self.done += other.done;
        self.circles += other.circles;
        self.failed += other.failed;
    }
}

/// A directory of the tree as it was made.
#[derive(Debug, Clone)]
struct Made {
    ino: Ino,
    key: Key,
    parent: usize,
    name: Name,
}

/// Where a name is: directory and name.
type Spot = (Ino, Name);
/// Each directory's only name.
type Tree = BTreeMap<Ino, Spot>;

/// One request, as the tree of one island sees it.
#[derive(Debug, Clone)]
struct Asked {
    from: Spot,
    to: Spot,
    mode: RenameMode,
    island: usize,
    op: ClientOp,
}

/// Three islands, what is between them, and what is asked of them.
#[derive(Clone)]
struct World {
    islands: Vec<Rc<Island>>,
    digests: [u64; ISLANDS],
    /// By sender, then receiver.
    queues: Vec<VecDeque<(u64, Rc<PeerMessage>)>>,
    written: [u64; ISLANDS],
    sync: [bool; ISLANDS],
    asked: u32,
    /// Not now, these were told: they are asked again when time passes.
    again: u32,
    replies: Vec<Option<Outcome>>,
    ms: u64,
    /// When the exploration began; making the tree took the time before.
    begun_ms: u64,
    events: u64,
}

/// What stays the same while a world is explored.
struct Scene {
    table: Table,
    dirs: Vec<Made>,
    names: Vec<Name>,
    requests: Vec<Asked>,
}

/// Takes text, and gives the hash of it without times, attempts and the like, which mean nothing.
#[derive(Default)]
struct Digest {
    hasher: DefaultHasher,
    skip: u32,
}

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        if matches!(text, "nanos" | "attempts" | "since_ms" | "upto" | "retell_ms" | "stalled_ms") {
            // The colon and the number.
            self.skip = 2;
        }
        self.hasher.write(text.as_bytes());
        Ok(())
    }
}

impl Digest {
    fn of(value: &impl std::fmt::Debug) -> u64 {
        let mut digest = Self::default();
        write!(digest, "{value:?}").expect("a hash takes all");
        digest.hasher.finish()
    }
}

const fn index(island: IslandId) -> usize {
    island.0 as usize
}

impl World {
    fn new(table: &Table) -> Self {
        let now = Now { wall: Time::default(), ms: 0 };
        let config = |id| Config {
            rows_max: usize::MAX / 8,
            ..Config::new(IslandId(id), SEED, table.clone(), (0..ISLANDS as u16).map(IslandId).collect())
        };
        let island = |id| Rc::new(Island::new(config(id), State::new(SEED), PreviousEnd::PowerCut, now));
        Self {
            islands: (0..ISLANDS as u16).map(island).collect(),
            digests: [0; ISLANDS],
            queues: vec![VecDeque::new(); ISLANDS * ISLANDS],
            written: [0; ISLANDS],
            sync: [false; ISLANDS],
            asked: 0,
            again: 0,
            replies: Vec::new(),
            ms: 0,
            begun_ms: 0,
            events: 0,
        }
    }

    /// An island takes an event, and all that can be done for it at once is done.
    fn take(&mut self, at: usize, event: Event) {
        let now = Now { wall: Time::default(), ms: self.ms };
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.events += 1;
            let mut out = Vec::new();
            let island = Rc::make_mut(&mut self.islands[at]);
            island.handle(now, event, &mut out);
            island.check();
            let mut written = None;
            for effect in out {
                match effect {
                    Effect::Append(seq, ..) => written = Some(seq),
                    Effect::Sync => self.sync[at] = true,
                    Effect::Reply { id, reply, .. } if reply.outcome == Outcome::NotNow => {
                        self.again |= 1 << id;
                    }
                    Effect::Reply { id, reply, .. } => {
                        let id = id as usize;
                        if self.replies.len() <= id {
                            self.replies.resize(id + 1, None);
                        }
                        assert!(self.replies[id].is_none(), "request {id} is answered twice");
                        self.replies[id] = Some(reply.outcome);
                    }
                    Effect::Send(to, message) => {
                        let digest = Digest::of(&message);
                        self.queues[at * ISLANDS + index(to)].push_back((digest, Rc::new(message)));
                    }
                    Effect::Load { load, generation } => {
                        let loaded = load.nothing();
                        events.push_back(Event::Loaded { load, generation, loaded });
                    }
                    Effect::Body(ticket, _) => events.push_back(Event::BodyDone(ticket, Ok(BodyDone::Done))),
                    Effect::Checkpoint { .. } => events.push_back(Event::CheckpointDone),
                    Effect::Notice(..) => {}
                    Effect::Beside(..) => unreachable!("no machine is beside it"),
                    Effect::Damaged(damage) => panic!("{damage}"),
                }
            }
            if let Some(seq) = written {
                self.written[at] = seq;
                events.push_back(Event::Committed(seq));
            }
        }
    }

    fn happen(&mut self, scene: &Scene, choice: Choice) {
        match choice {
            Choice::Ask(n) => {
                self.asked |= 1 << n;
                let asked = &scene.requests[n];
                self.ask(asked.island, n, 2, asked.op.clone(), &scene.table);
                self.look(scene, asked.island);
            }
            Choice::Deliver(from, to) => {
                let (_, message) =
                    self.queues[from * ISLANDS + to].pop_front().expect("only what is there is chosen");
                self.take(to, Event::Peer(PeerMessage::clone(&message)));
                self.look(scene, to);
            }
            Choice::Sync(at) => {
                self.sync[at] = false;
                self.take(at, Event::Synced(self.written[at]));
                self.look(scene, at);
            }
            Choice::Tick => {
                // Whoever is put off begins again in its turn, or two would meet for ever.
                let next = self.islands.iter().filter_map(|island| island.next_retry_ms()).min();
                self.ms = next.map_or(self.ms + TICK_MS, |at| at.max(self.ms + 1));
                for at in 0..ISLANDS {
                    self.take(at, Event::Tick { bytes_available: 1 << 40 });
                    self.look(scene, at);
                }
                let again = std::mem::take(&mut self.again);
                for n in (0..scene.requests.len()).filter(|n| again & (1 << n) != 0) {
                    self.happen(scene, Choice::Ask(n));
                }
            }
        }
    }

    fn ask(&mut self, island: usize, id: usize, seq: u64, op: ClientOp, table: &Table) {
        let request = Request {
            session: SessionId(1 + id as u64),
            seq,
            acked: 0,
            table: table.version(),
            vector: Vec::new(),
            caller: Caller::ROOT,
            op,
        };
        let event = Event::Request { link: LinkId(1), id: id as u64, request, data: bytes::Bytes::new() };
        self.take(island, event);
    }

    /// The island has changed: so does its digest.
    fn look(&mut self, scene: &Scene, at: usize) {
        let island = &self.islands[at];
        let state = island.state();
        let mut digest = Digest::default();
        for made in &scene.dirs {
            let Ok(Some(dir)) = state.dir(made.ino) else {
                digest.hasher.write_u8(0);
                continue;
            };
            write!(digest, "{dir:?}").expect("a hash takes all");
            for name in &scene.names {
                write!(digest, "{:?}", state.entry(made.ino, name)).expect("a hash takes all");
            }
        }
        for txn in state.txn_ids() {
            write!(digest, "{txn:?}{:?}", state.txn(txn)).expect("a hash takes all");
        }
        for other in (0..ISLANDS as u16).map(IslandId) {
            write!(digest, "{:?}", state.delivered(other)).expect("a hash takes all");
            state.inbox(other).for_each(|row| write!(digest, "{row:?}").expect("a hash takes all"));
        }
        state.outbox(island.id()).for_each(|row| write!(digest, "{row:?}").expect("a hash takes all"));
        let rest = (state.clocks(), state.moved(), state.meta().stamp, island.under_way());
        write!(digest, "{rest:?}").expect("a hash takes all");
        state.begin_reads();
        self.digests[at] = digest.hasher.finish();
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for digest in self.digests {
            hasher.write_u64(digest);
        }
        for queue in &self.queues {
            hasher.write_usize(queue.len());
            queue.iter().for_each(|(digest, _)| hasher.write_u64(*digest));
        }
        hasher.write_u64(Digest::of(&(self.sync, self.asked, self.again, &self.replies, self.ms)));
        hasher.finish()
    }

    /// What can happen, time aside.
    fn choices(&self, scene: &Scene) -> Vec<Choice> {
        let mut out = Vec::new();
        for from in 0..ISLANDS {
            for to in 0..ISLANDS {
                if !self.queues[from * ISLANDS + to].is_empty() {
                    out.push(Choice::Deliver(from, to));
                }
            }
        }
        out.extend((0..ISLANDS).filter(|at| self.sync[*at]).map(Choice::Sync));
        out.extend((0..scene.requests.len()).filter(|n| self.asked & (1 << n) == 0).map(Choice::Ask));
        out
    }

    /// A message that only tells what may be forgotten: when it arrives makes no difference to any other,
    /// so it does at once.
    fn idle_talk(&self) -> Option<Choice> {
        for from in 0..ISLANDS {
            for to in 0..ISLANDS {
                let first = self.queues[from * ISLANDS + to].front();
                let idle = |peer: &PeerOp| {
                    matches!(
                        peer,
                        PeerOp::JournalDurable { .. } | PeerOp::Stable { .. } | PeerOp::Applied { .. }
                    )
                };
                if first.is_some_and(|(_, message)| idle(&message.op)) {
                    return Some(Choice::Deliver(from, to));
                }
            }
        }
        None
    }

    fn is_at_rest(&self) -> bool {
        self.again == 0 && self.islands.iter().all(|island| island.is_at_rest())
    }

    /// Everything happens in one order, until nothing is left.
    fn settle(&mut self, scene: &Scene) -> Result<(), Failure> {
        let until = self.ms + REST_MS;
        while self.ms < until {
            while let Some(choice) = self.choices(scene).first().copied() {
                self.happen(scene, choice);
            }
            if self.is_at_rest() && self.islands.iter().all(|i| i.phase() == Phase::Normal) {
                return Ok(());
            }
            self.happen(scene, Choice::Tick);
        }
        Err(Failure::new("the islands do not come to rest before anything is asked"))
    }
}

impl Scene {
    /// Makes the tree, and what is to be asked.
    fn new(shape: &Shape, renames: &[Rename]) -> Result<(Self, World), Failure> {
        let table = Table::with_buckets(ISLANDS as u16, BUCKETS);
        let h3 = H3::new(SEED);
        let root = Name::new(b"root").expect("a name");
        let mut scene = Self {
            dirs: vec![Made { ino: Ino::ROOT, key: Key(0), parent: 0, name: root }],
            names: Vec::new(),
            requests: Vec::new(),
            table,
        };
        let mut world = World::new(&scene.table);
        for (at, to) in (0..ISLANDS).flat_map(|at| (0..ISLANDS).map(move |to| (at, to))) {
            if at != to {
                world.take(at, Event::PeerReachable { island: IslandId(to as u16), up: true });
            }
        }
        // A tick tells the islands that there is room.
        world.happen(&scene, Choice::Tick);
        world.settle(&scene)?;
        let links = shape.0.len().max(renames.len());
        for (island, id) in (0..ISLANDS).flat_map(|island| (0..links).map(move |id| (island, id))) {
            world.replies.clear();
            world.ask(island, id, 0, ClientOp::Attach { mount: false }, &scene.table);
        }
        for (n, (parent, owner)) in shape.0.iter().enumerate() {
            let above: Vec<Name> = scene.path(*parent);
            let named = |i: u32| {
                Name::new(
                    format!(
                        "d{}{}",
                        n + 1,
                        "abcdefghijklmnopqrstuvwxyz".chars().nth(i as usize).expect("one of 26")
                    )
                    .as_bytes(),
                )
                .expect("a name")
            };
            let key_of = |name: &Name| h3.path(above.iter().chain([name])).expect("a short path").key();
            let name = (0..26)
                .map(named)
                .find(|name| scene.table.owner(key_of(name)) == IslandId(*owner))
                .ok_or_else(|| Failure::new("no name belongs to that island"))?;
            let key = key_of(&name);
            let op = Op::Mkdir { dir: scene.dirs[*parent].ino, name: name.clone(), mode: 0o755, umask: 0 };
            world.replies.clear();
            let island = index(scene.table.owner(scene.dirs[*parent].key));
            world.ask(island, n, 1, ClientOp::Fs { op }, &scene.table);
            world.settle(&scene)?;
            let Some(Some(Outcome::Ok { answer: Answer::Found { found }, .. })) = world.replies.get(n) else {
                return Err(Failure::new(format!("mkdir: {:?}", world.replies)));
            };
            scene.dirs.push(Made { ino: found.attr.ino, key, parent: *parent, name });
        }
        for (n, rename) in renames.iter().enumerate() {
            let asked = scene.request(n, *rename);
            scene.requests.push(asked);
        }
        let mut names: BTreeSet<Name> = scene.dirs.iter().map(|made| made.name.clone()).collect();
        names.extend(scene.requests.iter().map(|asked| asked.to.1.clone()));
        scene.names = names.into_iter().collect();
        world.replies = vec![None; renames.len()];
        (world.begun_ms, world.events) = (world.ms, 0);
        (0..ISLANDS).for_each(|at| world.look(&scene, at));
        Ok((scene, world))
    }

    fn path(&self, dir: usize) -> Vec<Name> {
        if dir == 0 {
            return Vec::new();
        }
        let mut path = self.path(self.dirs[dir].parent);
        path.push(self.dirs[dir].name.clone());
        path
    }

    fn request(&self, n: usize, rename: Rename) -> Asked {
        let what = &self.dirs[rename.what];
        let (dir, name, mode) = match rename.to {
            To::Into(dir) if dir == what.parent => {
                (dir, Name::new(format!("new{n}").as_bytes()).expect("a name"), RenameMode::Replace)
            }
            To::Into(dir) => (dir, what.name.clone(), RenameMode::Replace),
            To::Over(other) => (self.dirs[other].parent, self.dirs[other].name.clone(), RenameMode::Replace),
            To::Swap(other) => (self.dirs[other].parent, self.dirs[other].name.clone(), RenameMode::Exchange),
        };
        let (parent, into) = (&self.dirs[what.parent], &self.dirs[dir]);
        let op = Op::Rename {
            dir: parent.ino,
            name: what.name.clone(),
            new_dir: into.ino,
            new_name: name.clone(),
            mode,
            meant: None,
            new_meant: None,
        };
        let op =
            if parent.ino == into.ino { ClientOp::Fs { op } } else { ClientOp::Rename { op, key: into.key } };
        Asked {
            from: (parent.ino, what.name.clone()),
            to: (into.ino, name),
            mode,
            island: index(self.table.owner(parent.key)),
            op,
        }
    }
}

/// An exploration under way.
struct Explorer {
    scene: Scene,
    visited: HashSet<u64>,
    covered: Covered,
    states_max: u64,
    trail: Vec<Choice>,
}

impl Explorer {
    fn step(&mut self, world: &mut World, choice: Choice) -> Result<(), Failure> {
        self.trail.push(choice);
        world.happen(&self.scene, choice);
        self.scene.hangs_together(world)
    }

    /// Goes on until there is a choice or an end: then false.
    fn advance(&mut self, world: &mut World) -> Result<bool, Failure> {
        loop {
            while let Some(choice) = world.idle_talk() {
                self.step(world, choice)?;
            }
            if !world.choices(&self.scene).is_empty() {
                return Ok(true);
            }
            if world.is_at_rest() {
                return Ok(false);
            }
            if world.ms - world.begun_ms >= REST_MS {
                let under_way: Vec<_> =
                    world.islands.iter().map(|i| format!("{:?}", i.under_way())).collect();
                return Err(Failure::new(format!("there is no rest: {}", under_way.join("\n"))));
            }
            self.step(world, Choice::Tick)?;
        }
    }

    fn end(&mut self, world: &World) -> Result<(), Failure> {
        self.scene.judge(world)?;
        self.covered.ends += 1;
        for reply in world.replies.iter().flatten() {
            match reply {
                Outcome::Failed { errno: Errno::EINVAL } => self.covered.circles += 1,
                Outcome::Failed { .. } => self.covered.failed += 1,
                _ => self.covered.done += 1,
            }
        }
        Ok(())
    }

    fn explore(&mut self, mut world: World) -> Result<(), Failure> {
        let before = world.events;
        let goes_on = self.advance(&mut world)?;
        self.covered.events += world.events - before;
        if !self.visited.insert(world.key()) {
            return Ok(());
        }
        self.covered.states += 1;
        if !goes_on {
            return self.end(&world);
        }
        for choice in world.choices(&self.scene) {
            if self.covered.states >= self.states_max {
                self.covered.complete = false;
                return Ok(());
            }
            let len = self.trail.len();
            let mut next = world.clone();
            next.events = 0;
            self.step(&mut next, choice)?;
            self.explore(next)?;
            self.trail.truncate(len);
        }
        Ok(())
    }

    /// One order: each source of events has a rank, the first that can go goes, and ranks change at some
    /// moments. So something can wait for a long while.
    fn walk(&mut self, mut world: World, rng: &mut Rng, changes: u64) -> Result<(), Failure> {
        const SOURCES: usize = ISLANDS * ISLANDS + ISLANDS + 8;
        const STEPS: u64 = 90;
        /// From here on by chance: islands that ask each other for something would go on for ever while the
        /// one that could tell it waits.
        const UNFAIR: u64 = 200;
        /// No order is so long.
        const ENDLESS: u64 = 1500;
        let source = |choice: &Choice| match choice {
            Choice::Deliver(from, to) => from * ISLANDS + to,
            Choice::Sync(at) => ISLANDS * ISLANDS + at,
            Choice::Ask(n) => ISLANDS * ISLANDS + ISLANDS + n,
            Choice::Tick => unreachable!("not chosen"),
        };
        let mut ranks: Vec<u64> = (0..SOURCES).map(|_| rng.below(1 << 30)).collect();
        let moments: Vec<u64> = (0..changes).map(|_| rng.below(STEPS)).collect();
        world.events = 0;
        let mut n = 0;
        while self.advance(&mut world)? {
            let choices = world.choices(&self.scene);
            let first = *choices.iter().min_by_key(|c| ranks[source(c)]).expect("there is one");
            let choice = if n < UNFAIR { first } else { *rng.pick(&choices) };
            if moments.contains(&n) {
                ranks[source(&choice)] = (1 << 30) + n;
            }
            n += 1;
            if n == ENDLESS {
                return Err(Failure::new("the islands talk for ever"));
            }
            self.step(&mut world, choice)?;
            self.covered.states += u64::from(self.visited.insert(world.key()));
        }
        self.covered.events += world.events;
        self.end(&world)
    }

    /// Tells what has happened on the way to a failure.
    fn tell(&self, mut world: World) -> String {
        let mut text = String::new();
        for choice in &self.trail {
            let what = match choice {
                Choice::Ask(n) => {
                    let asked = &self.scene.requests[*n];
                    format!("request {n} at island {}: {:?}", asked.island, asked.op)
                }
                Choice::Deliver(from, to) => {
                    let first = world.queues[from * ISLANDS + to].front();
                    let what = first.map(|(_, message)| brief(&message.op)).unwrap_or_default();
                    format!("island {to} hears of island {from}: {what}")
                }
                Choice::Sync(at) => format!("island {at} is synced"),
                Choice::Tick => String::from("time passes"),
            };
            writeln!(text, "  {what}").expect("text grows");
            let answered = |world: &World| world.replies.iter().flatten().count();
            let before = answered(&world);
            let _ = catch_unwind(AssertUnwindSafe(|| world.happen(&self.scene, *choice)));
            if answered(&world) > before {
                writeln!(text, "    answers are {:?}", world.replies).expect("text grows");
            }
        }
        text
    }
}

fn run(
    shape: &Shape,
    renames: &[Rename],
    states_max: u64,
    go: impl FnOnce(&mut Explorer, World) -> Result<(), Failure>,
) -> Result<Covered, Failure> {
    let (scene, world) = Scene::new(shape, renames)?;
    let covered = Covered { complete: true, ..Covered::default() };
    let mut explorer = Explorer { scene, visited: HashSet::new(), covered, states_max, trail: Vec::new() };
    let first = world.clone();
    let done = catch_unwind(AssertUnwindSafe(|| go(&mut explorer, first)))
        .unwrap_or_else(|_| Err(Failure::new("an island has panicked")));
    match done {
        Ok(()) => Ok(explorer.covered),
        Err(why) => Err(Failure::new(format!("{why}\n{shape:?}\n{renames:?}\n{}", explorer.tell(world)))),
    }
}

/// Every order in which these renames can meet, up to so many states.
///
/// # Errors
/// The sequence that ends badly, and how.
pub fn every_order(shape: &Shape, renames: &[Rename], states_max: u64) -> Result<Covered, Failure> {
    run(shape, renames, states_max, |explorer, world| explorer.explore(world))
}

/// So many orders of these renames, drawn so that some things wait for long: one is every source of
/// events by rank, with up to `changes` moments at which the first becomes the last.
///
/// # Errors
/// As [`every_order`].
pub fn some_orders(
    shape: &Shape,
    renames: &[Rename],
    seed: u64,
    orders: u64,
    changes: u64,
) -> Result<Covered, Failure> {
    let mut covered = run(shape, renames, u64::MAX, |explorer, world| {
        let mut rng = Rng::new(seed);
        for _ in 0..orders {
            explorer.trail.clear();
            explorer.walk(world.clone(), &mut rng, changes)?;
        }
        Ok(())
    })?;
    covered.complete = false;
    Ok(covered)
}

/// Every rename of a directory of a tree: into each directory, and in the place of each.
pub fn renames_of(shape: &Shape) -> Vec<Rename> {
    let dirs = shape.0.len();
    let mut all = Vec::new();
    for what in 1..=dirs {
        all.extend((0..=dirs).map(|dir| Rename { what, to: To::Into(dir) }));
        for other in (1..=dirs).filter(|other| *other != what) {
            all.push(Rename { what, to: To::Over(other) });
            if other > what {
                all.push(Rename { what, to: To::Swap(other) });
            }
        }
    }
    all
}

/// A tree of two to five directories, and so many renames in it.
pub fn drawn(rng: &mut Rng, renames: usize) -> (Shape, Vec<Rename>) {
    let dirs = 2 + rng.index(4);
    let shape = Shape((0..dirs).map(|n| (rng.index(n + 1), rng.below(ISLANDS as u64) as u16)).collect());
    let all = renames_of(&shape);
    let renames = (0..renames).map(|_| *rng.pick(&all)).collect();
    (shape, renames)
}

/// For so long: trees and renames drawn from the seed, so many orders of each. Every order, if `orders` is 0,
/// up to so many states of each.
///
/// # Errors
/// The first sequence that ends badly.
pub fn by_hand(
    seed: u64,
    time: std::time::Duration,
    renames: usize,
    orders: u64,
    states_max: u64,
) -> Result<(u64, u64, Covered), Failure> {
    let began = std::time::Instant::now();
    let mut rng = Rng::new(seed);
    let mut all = Covered { complete: true, ..Covered::default() };
    let (mut sets, mut complete) = (0, 0);
    while began.elapsed() < time {
        let (shape, renames) = drawn(&mut rng, renames);
        let covered = if orders == 0 {
            every_order(&shape, &renames, states_max)?
        } else {
            let changes = rng.below(7);
            some_orders(&shape, &renames, rng.bits(), orders, changes)?
        };
        sets += 1;
        complete += u64::from(covered.complete);
        all.add(&covered);
    }
    Ok((sets, complete, all))
}
