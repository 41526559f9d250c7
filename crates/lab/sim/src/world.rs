//! The world: islands, clients, links and time. One event at a time, chosen by time and seed; between
//! any two effects of an island others may come, as threads of a daemon would.
//!
//! Never judges: that is for the scenarios.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::{Ino, IslandId, NodeId, SessionId, Table, Time};

use atoll_group::Given;
use atoll_model::{Rng, Strictness};
use atoll_posix::{Caller, Op};
use atoll_route::{RecallOf, Route, RouteOut};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::{Client, Done};
use crate::clocks::{Pace, Paces, TrueTime};
use crate::copies::{Beat, GroupTask, Recorded, StoreTold};
use crate::injected::Injected;
use crate::links::Party;
use crate::machines::{CopyId, Group, IslandCopy, Layout, MACHINES, Machine, Numbered};
use crate::net::{Conn, Frame, ToClient, ToIsland, link_id};
use crate::rings::Rings;
use crate::thread::Thread;
use crate::transcript::Transcript;
use crate::wire::Wire;

/// Microseconds between two rounds of an island's housekeeping.
pub(crate) const TICK_US: u64 = 50_000;
/// Microseconds between two ticks of a client.
const CLIENT_TICK_US: u64 = 100_000;
/// Virtual time within which every operation ends when nothing is in its way.
pub(crate) const PATIENCE_US: u64 = 120_000_000;
/// How much later than another an island may do its part of an operation.
const LATER_NS: u64 = 2_000_000_000;
/// How long something stays broken at most while somebody waits for that to end.
pub(crate) const TROUBLE_US_MAX: u64 = 30_000_000;
/// One seed of so many lays plain trees, which takes longer.
const LAYS_EACH: u64 = 4;

/// What only some seeds have: the others are what they would be without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Partitions in which one direction fails, and such that nobody is told of.
    OneWay = 1,
    /// Messages that arrive twice.
    Doubles = 2,
    /// Clocks that run at their own rates.
    Drift = 3,
    /// Threads of islands that come between an effect and what the machine is told of it.
    Apart = 4,
    /// Islands that are stopped in order, where others would die.
    Stops = 5,
}

const fn is_chosen(seed: u64, choice: Choice) -> bool {
    !atoll_model::rng::mix(seed ^ ((choice as u64) << 56)).is_multiple_of(3)
}

/// How a world is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Decides everything.
    pub seed: u64,
    /// Islands.
    pub islands: u16,
    /// Clients; their sessions are 1, 2, ...
    pub clients: usize,
    /// Clients are mounts, which keep orphans alive.
    pub mounts: bool,
    /// Longest delay of a message in microseconds.
    pub delay_us_max: u64,
    /// Rows that an island may keep in memory although its snapshot has them.
    pub rows_max: usize,
    /// Plain trees are laid.
    pub lays: bool,
    /// How long a client takes to drop what it keeps, in microseconds; 0: no time.
    pub recall_us: u64,
    /// Entries of its journal that an island keeps for one that is away.
    pub outbox_max: usize,
    /// Encoded bytes of these, also for one that is reached.
    pub outbox_bytes_max: u64,
    /// Files follow their names to other islands, soon.
    pub moves: bool,
    /// Bytes of each disk that are left for logs and checkpoints.
    pub reserve_bytes: u64,
    /// In two of three seeds the clocks of islands and clients run at rates of their own.
    pub drifts: bool,
    /// How many of a hundred messages between islands arrive twice.
    pub doubles: u64,
    /// Links that cannot be opened directly are opened through other islands.
    pub relays: bool,
    /// Copies of each island. With more than one there are five machines, on which they lie.
    pub copies: u16,
    /// What a caller may do who is not root is left to the islands: nobody has walked for it.
    pub unchecked: bool,
    /// Records may be as long, and segments are as large, as in a daemon. Disks hold as few extended attributes as ext4.
    pub limits_of_product: bool,
    /// Segments of logs are so small that each checkpoint lets go of some.
    pub short_logs: bool,
    /// Which machines keep which island, and how many, changes.
    pub rings: bool,
    /// Mounts answer by themselves what they may have kept.
    pub caches: bool,
}

impl Config {
    /// A world of `islands` with one client.
    pub const fn new(seed: u64, islands: u16) -> Self {
        let lays = seed.is_multiple_of(LAYS_EACH);
        let (delay_us_max, rows_max, recall_us, outbox_max) = (2_000, 64, 0, atoll_island::OUTBOX_MAX);
        let (moves, doubles, reserve_bytes, drifts, relays, unchecked) = (false, 0, 0, false, false, false);
        let (limits_of_product, short_logs, rings, caches) = (false, false, false, false);
        Self {
            seed,
            islands,
            clients: 1,
            mounts: false,
            delay_us_max,
            rows_max,
            lays,
            recall_us,
            outbox_max,
            outbox_bytes_max: atoll_island::OUTBOX_BYTES_MAX,
            moves,
            drifts,
            doubles,
            reserve_bytes,
            relays,
            copies: 1,
            unchecked,
            limits_of_product,
            short_logs,
            rings,
            caches,
        }
    }
}

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A machine's process stops in order.
    Stop {
        node: NodeId,
        life: u64,
    },
    Break {
        conn: usize,
    },
    /// A machine begins to stand still, for so long.
    Freeze {
        node: NodeId,
        us: u64,
    },
    Open {
        conn: usize,
    },
    /// A link's dialer has something to try.
    Dial {
        conn: usize,
    },
    /// A link is opened through another machine.
    OpenRelayed {
        conn: usize,
        relay: NodeId,
    },
    Opened {
        conn: usize,
        generation: u64,
    },
    Closed {
        conn: usize,
        generation: u64,
    },
    /// A machine learns that a link that another party has opened is gone.
    LinkGone {
        conn: usize,
        generation: u64,
        life: u64,
        ended: bool,
    },
    /// Nothing has come on a link for so long that its ends give it up.
    Silence {
        conn: usize,
        generation: u64,
        since_us: u64,
    },
    /// Messages arrive again on a link of a client.
    Heard {
        conn: usize,
        since_us: u64,
    },
    /// What was lost on a link is sent again.
    Again {
        conn: usize,
        generation: u64,
    },
    ToIsland {
        conn: usize,
        generation: u64,
        frame: Frame<ToIsland>,
    },
    ToClient {
        conn: usize,
        generation: u64,
        frame: Frame<ToClient>,
    },
    /// A thread of a copy does its next effect.
    Go {
        copy: CopyId,
        life: u64,
    },
    Tick {
        copy: CopyId,
        life: u64,
    },
    ClientTick {
        client: usize,
    },
    /// A machine's process starts.
    Start {
        node: NodeId,
        life: u64,
    },
    /// A slow disk has got around to what a thread waits for.
    DiskDone {
        copy: CopyId,
        life: u64,
        thread: Box<Thread>,
    },
    Call {
        client: usize,
        token: u64,
        caller: Caller,
        op: Box<Op>,
        data: Bytes,
    },
    /// A client's machine, or one with islands, runs again.
    Woken {
        party: Party,
    },
    /// One end of a link gives up the other one, which stands still.
    GivenUp {
        conn: usize,
        generation: u64,
    },
    /// A client has dropped what it kept.
    Recalled {
        client: usize,
    },
    /// A client's process has dropped what it kept of single files and directories.
    RecalledOf {
        client: usize,
        session: SessionId,
        recall: RecallOf,
    },
    /// A machine sends beacons for the islands that it leads.
    SendBeats {
        node: NodeId,
        life: u64,
    },
    /// A beacon arrives.
    Beat(Beat),
    /// Its answer does.
    Answered {
        beat: Beat,
        given: Given,
    },
    /// A thread of a copy gets around to what takes long.
    Perform {
        copy: CopyId,
        life: u64,
        task: Box<GroupTask>,
    },
    /// Something happens at the control store.
    Store,
    /// A machine's process hears of the control store.
    Told {
        node: NodeId,
        life: u64,
        told: Box<StoreTold>,
    },
    /// A message between two islands that one machine leads.
    Local {
        node: NodeId,
        life: u64,
        frame: Box<Frame<ToIsland>>,
    },
    /// A machine's process that stops in order looks whether other copies lead.
    Leaves {
        node: NodeId,
        life: u64,
        until_us: u64,
    },
    /// An island could not be asked for a while.
    Away {
        node: NodeId,
        life: u64,
        island: IslandId,
        since_us: u64,
    },
}

/// See the module.
#[derive(Debug)]
pub struct World {
    /// How it was made.
    pub config: Config,
    pub(crate) table: Table,
    pub(crate) time: Arc<TrueTime>,
    pub(crate) rng: Rng,
    /// What happens, and when. Boxed, so that nodes of the map stay small.
    agenda: BTreeMap<(u64, u64), Box<Happening>>,
    next_event: u64,
    pub(crate) machines: Numbered<NodeId, Machine>,
    pub(crate) copies: Numbered<CopyId, IslandCopy>,
    pub(crate) groups: Numbered<IslandId, Group>,
    pub(crate) clients: Vec<Client>,
    pub(crate) conns: Vec<Conn>,
    /// Of the groups' records, in worlds with several copies of each island.
    pub(crate) store: Option<Recorded>,
    /// Which machines keep which island, if that changes.
    pub(crate) rings: Option<Rings>,
    pub(crate) wire: Wire,
    pub(crate) transcript: Transcript,
    /// When the power of one machine fails, that of all does.
    pub(crate) fails_together: bool,
    /// Counts faults, so that a judge knows whether there was one meanwhile.
    pub(crate) faults: u64,
    /// Counts islands that stopped over their disks, perhaps half way through a write.
    pub(crate) halts: u64,
    /// What was done to it so far.
    pub injected: Injected,
    /// Until then clients may be told that there is no space.
    pub(crate) full_until_us: u64,
    pub(crate) failure: Option<Failure>,
    /// Operations that clients were given.
    pub(crate) operations: u64,
}

impl World {
    /// Whether a file may be homed at another island than `owner`, which owns the directory of its name.
    pub(crate) fn may_be_pointer(&self, ino: Ino, owner: IslandId) -> bool {
        ino.minted_by() != owner || (self.config.moves && self.config.islands > 1)
    }

    /// A new volume, served and attached.
    pub fn new(config: Config) -> Result<Self, Failure> {
        let table = Table::new(config.islands);
        let mut rng = Rng::new(config.seed);
        let time = Arc::<TrueTime>::default();
        let drifts = config.drifts && is_chosen(config.seed, Choice::Drift);
        let mut pace = Paces::new(config.seed, drifts);
        let mut layout = match config.copies {
            1 => Layout::one_each(config.islands, config.limits_of_product, &time, &mut pace, &mut rng),
            _ if config.rings => Layout::with_copies(config.islands, MACHINES, &time, &mut pace, &mut rng),
            several => Layout::with_copies(config.islands, several, &time, &mut pace, &mut rng),
        };
        let rings = config.rings.then(|| Rings::new(&mut layout, config.copies));
        let Layout { machines, copies, groups } = layout;
        let nodes = || machines.ids();
        let mut conns = Vec::new();
        let relays = |from: Option<NodeId>, to: NodeId| {
            let others = nodes().filter(|other| config.relays && Some(*other) != from && *other != to);
            others.collect()
        };
        for client in 0..config.clients {
            conns.extend(nodes().map(|to| Conn::new(Party::Client(client), to, relays(None, to))));
        }
        for from in nodes() {
            let others = nodes().filter(|to| *to != from);
            conns.extend(others.map(|to| Conn::new(Party::Machine(from), to, relays(Some(from), to))));
        }
        let mut world = Self {
            table,
            time,
            rng,
            agenda: BTreeMap::new(),
            next_event: 0,
            machines,
            copies,
            groups,
            clients: Vec::new(),
            conns,
            store: None,
            rings,
            wire: Wire::default(),
            transcript: Transcript::default(),
            fails_together: false,
            faults: 0,
            halts: 0,
            injected: Injected::default(),
            full_until_us: 0,
            failure: None,
            operations: 0,
            config,
        };
        for client in 0..world.config.clients {
            let route = world.route_of(SessionId(client as u64 + 1), None);
            world.clients.push(Client::new(route, pace.next()));
            let at = world.delay();
            world.schedule(at, Happening::ClientTick { client });
        }
        if world.has_groups() {
            world.make_records();
        }
        for node in world.machines.ids() {
            world.schedule(0, Happening::Start { node, life: 0 });
        }
        world.settle()?;
        world.faults = 0;
        world.injected = Injected::default();
        let paces = world
            .machines
            .iter()
            .map(|machine| machine.clock.pace)
            .chain(world.clients.iter().map(|c| c.pace));
        world.injected.drifted = paces.filter(|pace| *pace != Pace::TRUE).count() as u64;
        Ok(world)
    }

    /// Whether this seed has it: two of three do. Draws nothing.
    pub(crate) const fn is_chosen(&self, choice: Choice) -> bool {
        is_chosen(self.config.seed, choice)
    }

    /// All islands.
    pub fn islands(&self) -> Vec<IslandId> {
        self.groups.ids().collect()
    }

    /// Virtual microseconds since the beginning.
    pub fn now_us(&self) -> u64 {
        self.time.us()
    }

    pub(crate) fn now_wall(&self) -> Time {
        self.machines[NodeId(0)].clock.wall()
    }

    /// The earliest and the latest time that a wall clock of a machine shows.
    pub(crate) fn walls(&self) -> (Time, Time) {
        let walls = || self.machines.iter().map(|machine| machine.clock.wall());
        (walls().min().expect("there are machines"), walls().max().expect("there are machines"))
    }

    /// What is compared where islands' clocks differ: an operation of several islands has the time of one of
    /// them, and what was changed later by its home's clock keeps that time.
    pub(crate) fn strict(&self, strict: Strictness) -> Strictness {
        // Clocks that drift are furthest apart at the beginning or now.
        let apart = |us: u64| {
            let walls = || self.machines.iter().map(|machine| machine.clock.pace.wall(us));
            walls().max().zip(walls().min()).map_or(0, |(last, first)| last.nanos_from(first))
        };
        let apart_ns = match apart(0).max(apart(self.now_us())) {
            0 => 0,
            // And one of the islands does its part later.
            apart_ns => apart_ns + LATER_NS,
        };
        Strictness { apart_ns, ..strict }
    }

    /// Milliseconds by a client's clock.
    pub(crate) fn client_ms(&self, client: usize) -> u64 {
        self.clients[client].pace.ms(self.now_us())
    }

    /// A hash of everything that happened so far: equal for equal runs.
    pub const fn hash(&self) -> u64 {
        self.transcript.hash()
    }

    /// Lines of the transcript so far.
    pub const fn lines(&self) -> u64 {
        self.transcript.len()
    }

    /// The last things that happened.
    pub fn tail(&self, lines: usize) -> String {
        self.transcript.tail(lines)
    }

    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let now = self.now_us();
        self.transcript.note(now, what);
    }

    pub(crate) fn delay(&mut self) -> u64 {
        // Mostly short, so that orders of many kinds come about.
        let max = self.config.delay_us_max;
        1 + if self.rng.percent(10) { self.rng.below(max * 10) } else { self.rng.below(max) }
    }

    pub(crate) fn schedule(&mut self, in_us: u64, what: Happening) {
        let at = self.now_us() + in_us;
        self.schedule_at(at, what);
    }

    pub(crate) fn schedule_at(&mut self, at_us: u64, what: Happening) {
        self.next_event += 1;
        self.agenda.insert((at_us, self.next_event), Box::new(what));
    }

    // ------------------------------------------------------------------ running

    /// Has the next thing happen.
    pub fn step(&mut self) -> Result<(), Failure> {
        let ((at, _), what) = self.agenda.pop_first().expect("clocks tick for ever");
        self.time.set(at.max(self.now_us()));
        self.happen(*what);
        if self.has_groups() {
            self.judge_groups();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Has everything happen of the next so many microseconds.
    pub fn run_for(&mut self, us: u64) -> Result<(), Failure> {
        let until = self.now_us() + us;
        while self.agenda.first_key_value().is_some_and(|((at, _), _)| *at <= until) {
            self.step()?;
        }
        self.time.set(until);
        Ok(())
    }

    fn happen(&mut self, what: Happening) {
        let Some(what) = self.unless_still(what) else { return };
        match what {
            Happening::Woken { party } => self.woken(party),
            Happening::GivenUp { conn, generation } => self.given_up(conn, generation),
            Happening::Start { node, life } => self.start(node, life),
            Happening::SendBeats { node, life } => self.send_beats(node, life),
            Happening::Beat(beat) => self.beat(beat),
            Happening::Answered { beat, given } => self.beat_answered(&beat, given),
            Happening::Perform { copy, life, task } => self.perform_task(copy, life, *task),
            Happening::Store => self.store_goes_on(),
            Happening::Told { node, life, told } => self.told_by_store(node, life, *told),
            Happening::Local { node, life, frame } => self.local(node, life, *frame),
            Happening::Away { node, life, island, since_us } => self.away(node, life, island, since_us),
            Happening::Leaves { node, life, until_us } => self.leaves(node, life, until_us),
            Happening::DiskDone { copy, life, thread } => self.disk_done(copy, life, *thread),
            Happening::Tick { copy, life } => self.tick(copy, life),
            Happening::Go { copy, life } => self.go(copy, life),
            Happening::ClientTick { client } => {
                let now_ms = self.client_ms(client);
                self.with_client(client, &[], |route, out| route.tick(now_ms, out));
                self.schedule(CLIENT_TICK_US, Happening::ClientTick { client });
            }
            Happening::Call { client, token, caller, op, data } => {
                let (now_ms, options) = (self.client_ms(client), self.options(&caller, token));
                self.note(format_args!("client {client}: call {token} {:?} {op:?}", caller.uid));
                if self.config.caches
                    && let Some(done) = self.clients[client].kept.answer(token, &op, now_ms)
                {
                    self.injected.kept += 1;
                    return self.clients[client].answers(token, done);
                }
                self.with_client(client, &[], |route, out| {
                    route.call_with_options(now_ms, &caller, options, *op, data, token, out);
                });
            }
            Happening::Recalled { client } => {
                self.note(format_args!("client {client}: keeps nothing any more"));
                self.clients[client].drops_all();
                self.with_client(client, &[], |route, out| route.recalled(out));
            }
            Happening::RecalledOf { client, session, recall } => {
                // Another process may have taken its place.
                if self.clients[client].route.session() == session {
                    self.note(format_args!("client {client}: keeps nothing any more of {:?}", recall.inos));
                    let mut out = RouteOut::default();
                    self.clients[client].drops_of(&recall, &mut out);
                    self.with_client(client, &[], |_, all| *all = out);
                }
            }
            Happening::Stop { node, life } if self.machines[node].life == life => self.stop_in_order(node),
            Happening::Stop { .. } => {}
            Happening::Freeze { node, us } => self.freeze(node, us),
            Happening::Break { conn } => self.break_conn(conn),
            Happening::Open { conn } => self.open_conn(conn),
            Happening::Dial { conn } => self.dial(conn),
            Happening::OpenRelayed { conn, relay } => self.open_relayed(conn, relay),
            Happening::Opened { conn, generation } => self.opened(conn, generation),
            Happening::Closed { conn, generation } => self.closed(conn, generation),
            Happening::LinkGone { conn, generation, life, ended } => {
                self.link_gone(conn, generation, life, ended);
            }
            Happening::Silence { conn, generation, since_us } => self.silence(conn, generation, since_us),
            Happening::Heard { conn, since_us } => {
                let c = &self.conns[conn];
                if c.is_deaf() && c.deaf_since_us == since_us {
                    self.heard(conn);
                }
            }
            Happening::Again { conn, generation } => self.again(conn, generation),
            Happening::ToIsland { conn, generation, frame } => {
                let c = &mut self.conns[conn];
                let late = c.is_replaced(generation) && matches!(frame.message, ToIsland::Leads { .. });
                if late || !c.arrives(generation, self.time.us(), true) {
                    self.injected.dropped += 1;
                } else if let Some(frame) = c.loses_to(generation, frame) {
                    self.machine_takes(conn, frame);
                }
            }
            Happening::ToClient { conn, generation, frame } => {
                let now = self.now_us();
                let c = &mut self.conns[conn];
                if !c.arrives(generation, now, false) {
                    self.injected.dropped += 1;
                } else if let Some(frame) = c.loses_from(generation, frame) {
                    self.client_takes(conn, frame);
                }
            }
        }
    }

    // ------------------------------------------------------------------ clients

    pub(crate) fn with_client<R>(
        &mut self,
        client: usize,
        data: &[u8],
        event: impl FnOnce(&mut Route<u64>, &mut RouteOut<u64>) -> R,
    ) -> R {
        let mut out = RouteOut::default();
        let result = event(&mut self.clients[client].route, &mut out);
        self.clients[client].route.check();
        if let Some(misfit) = out.misfits.first() {
            self.fail(format!("client {client}: an honest answer is not believed: {misfit:?}"));
        }
        let (now_ms, at_once) = (self.client_ms(client), self.config.recall_us == 0);
        let (sends, recalls, recall_of) = self.clients[client].perform(now_ms, out, data, at_once);
        if recalls {
            self.schedule(self.config.recall_us, Happening::Recalled { client });
        }
        if let Some(recall) = recall_of {
            let session = self.clients[client].route.session();
            self.schedule(self.config.recall_us, Happening::RecalledOf { client, session, recall });
        }
        for (island, sent) in sends {
            let Some(conn) = self.way_to(Party::Client(client), island) else { continue };
            if self.conns[conn].open {
                let link = link_id(conn, self.conns[conn].generation);
                let (id, request, data) = (sent.id, sent.request, sent.data);
                let message = ToIsland::Request { link, id, request, data };
                self.send_to_island(conn, Frame { island, message });
            }
        }
        let Client { orphans, closed, .. } = &mut self.clients[client];
        let late: Vec<Ino> = std::mem::take(orphans).into_iter().filter(|ino| closed.contains(ino)).collect();
        if !late.is_empty() {
            self.forget(client, &late);
        }
        result
    }

    /// Begins an operation after a pause. Ends when [`World::poll`] says so.
    pub fn call(&mut self, client: usize, caller: &Caller, op: Op, data: Bytes, in_us: u64) -> u64 {
        self.operations += 1;
        let token = self.clients[client].begin();
        let (caller, op) = (caller.clone(), Box::new(op));
        self.schedule(in_us, Happening::Call { client, token, caller, op, data });
        token
    }

    /// Whether a client may still use an answer that it was told before.
    pub fn keeps(&self, client: usize) -> bool {
        self.clients[client].kept_until_ms > self.client_ms(client)
    }

    /// How an operation ended, if it has; told once.
    pub fn poll(&mut self, client: usize, token: u64) -> Option<Done> {
        self.clients[client].take(token)
    }

    /// Runs one operation to its end.
    pub fn run(&mut self, client: usize, caller: &Caller, op: Op, data: Bytes) -> Result<Done, Failure> {
        // Cheap: its bytes are shared.
        let asked = op.clone();
        let token = self.call(client, caller, op, data, 0);
        let until = self.now_us() + PATIENCE_US;
        let mut heal_us = self.now_us() + TROUBLE_US_MAX;
        loop {
            if let Some(done) = self.poll(client, token) {
                return Ok(done);
            }
            if self.now_us() > heal_us {
                heal_us = u64::MAX;
                self.heal();
            }
            if self.now_us() > until {
                let shown: String = format!("{asked:?}").chars().take(200).collect();
                return Err(Failure::new(format!("client {client} waits for ever: {shown}")));
            }
            self.step()?;
        }
    }

    /// The frontend no longer knows these files.
    pub fn forget(&mut self, client: usize, inos: &[Ino]) {
        let now_ms = self.client_ms(client);
        self.clients[client].closed.extend(inos);
        self.with_client(client, &[], |route, out| route.forget(now_ms, inos, out));
    }

    /// No frontend knows these files and directories any more.
    pub(crate) fn forget_all(&mut self, inos: &[Ino]) {
        for client in 0..self.clients.len() {
            self.forget(client, inos);
        }
    }

    pub(crate) fn fail(&mut self, why: String) {
        self.note(format_args!("FAILURE {why}"));
        self.failure.get_or_insert(Failure::new(why));
    }
}

/// A message to a client without its bytes.
pub(crate) struct Short<'a>(pub(crate) &'a ToClient);

impl std::fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ToClient::Leads { epoch } => write!(f, "leads {epoch:?}"),
            ToClient::Reply { id, reply, data } => {
                write!(f, "reply {id} {:?} {} bytes", reply.outcome, data.len())
            }
            ToClient::Notice(notice) => write!(f, "{notice:?}"),
        }
    }
}
