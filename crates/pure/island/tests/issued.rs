//! What an island gives out and never takes back, over its starts and over machines: times of changes, and ids, which wait
//! for a sync.

mod snapshot;

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, Op};
use atoll_proto::{ClientOp, Outcome, Request};
use atoll_state::State;
use bytes::Bytes;
use snapshot::Snapshot;

const MOUNT: SessionId = SessionId(7);
const HOUR_S: i64 = 3_600;

/// An island with its snapshot, and the wall clock of its machine.
struct World {
    island: Island,
    wall: Time,
    ms: u64,
    rows: Snapshot,
    replies: BTreeMap<u64, Outcome>,
    /// A sync that is asked for is made at once.
    syncs: bool,
    next: u64,
}

fn config() -> Config {
    Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)])
}

fn fifo(n: u64) -> Op {
    let (dir, name) = (Ino::ROOT, Name::new(format!("f{n}").as_bytes()).unwrap());
    let (kind, target) = (Kind::Fifo, Bytes::new());
    Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target }
}

impl World {
    /// An island that has just been made, at this second.
    fn new(secs: i64) -> Self {
        Self::begin(secs, true)
    }

    fn begin(secs: i64, syncs: bool) -> Self {
        let wall = Time { secs, nanos: 0 };
        let island = Island::new(config(), State::new(1), PreviousEnd::PowerCut, Now { wall, ms: 0 });
        let mut world =
            Self { island, wall, ms: 0, rows: Snapshot::default(), replies: BTreeMap::new(), syncs, next: 1 };
        world.pass(100);
        world.ask(0, ClientOp::Attach { mount: true });
        world
    }

    /// It starts again, on a machine whose clock shows this second. `checkpoint`: from one of all that was decided, and not
    /// from its log.
    fn restart(&mut self, secs: i64, checkpoint: bool) {
        let mut state = self.island.state().clone();
        if checkpoint {
            self.event(Event::CheckpointWanted);
            state = self.rows.state();
        }
        self.wall.secs = secs;
        self.island = Island::new(config(), state, PreviousEnd::Death, self.now());
        self.pass(100);
        self.ask(0, ClientOp::Dropped);
    }

    fn now(&self) -> Now {
        Now { wall: self.wall, ms: self.ms }
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.event(Event::Tick { bytes_available: 1 << 40 });
        self.island.check();
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(self.now(), event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(Event::Committed(seq)),
                Effect::Sync if !self.syncs => {}
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => _ = self.replies.insert(id, reply.outcome),
                Effect::Load { load, generation } => {
                    let loaded = self.rows.load(&load);
                    self.event(Event::Loaded { load, generation, loaded });
                }
                Effect::Checkpoint { frozen, .. } => {
                    self.rows.commit(frozen);
                    self.event(Event::CheckpointDone);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn ask(&mut self, seq: u64, op: ClientOp) -> u64 {
        self.ask_over(LinkId(1), seq, op)
    }

    fn ask_over(&mut self, link: LinkId, seq: u64, op: ClientOp) -> u64 {
        let id = self.next;
        self.next += 1;
        let (table, vector, caller) = (self.island.config().table.version(), Vec::new(), Caller::ROOT);
        let request = Request { session: MOUNT, seq, acked: 1, table, vector, caller, op };
        self.event(Event::Request { link, id, request, data: Bytes::new() });
        id
    }

    /// Asks for a new fifo of this number.
    fn create(&mut self, n: u64) -> u64 {
        self.ask(n, ClientOp::Fs { op: fifo(n) })
    }

    /// Everything that was decided so far survives a power cut.
    fn sync(&mut self) {
        self.event(Event::Synced(self.island.state().seq()));
        self.island.check();
    }

    fn failed(&self, id: u64) -> Option<Errno> {
        match self.replies.get(&id)? {
            Outcome::Failed { errno } => Some(*errno),
            other => panic!("{other:?}"),
        }
    }

    fn made(&self, id: u64) -> Attr {
        match self.replies.get(&id) {
            Some(Outcome::Ok { answer: Answer::Found { found }, .. }) => found.attr,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn times_never_go_back_when_an_island_starts_where_the_clock_is_behind() {
    for checkpoint in [false, true] {
        let mut world = World::new(100 * HOUR_S);
        let first = world.create(1);
        let mut last = world.made(first).ctime;
        for (n, secs) in (2..).zip([99 * HOUR_S, 90 * HOUR_S, 110 * HOUR_S, 100 * HOUR_S]) {
            world.restart(secs, checkpoint);
            let id = world.create(n);
            let ctime = world.made(id).ctime;
            assert!(ctime > last, "{ctime:?} after {last:?}");
            assert!(ctime.secs <= 110 * HOUR_S, "{ctime:?}");
            last = ctime;
        }
    }
}

#[test]
fn a_clock_that_was_years_ahead_gives_no_times_any_more_after_a_start() {
    let mut world = World::new(100 * HOUR_S);
    let years = 100_000 * HOUR_S;
    world.wall.secs = years;
    let wrong = world.create(1);
    assert_eq!(world.made(wrong).ctime.secs, years);
    // As long as that life lasts, a change is later than the one before.
    world.wall.secs = 100 * HOUR_S;
    let still = world.create(2);
    assert!(world.made(still).ctime > world.made(wrong).ctime);
    world.restart(101 * HOUR_S, true);
    let right = world.create(3);
    assert_eq!(world.made(right).ctime.secs, 101 * HOUR_S);
}

#[test]
fn creates_wait_for_ids_after_a_promotion() {
    let mut world = World::begin(100 * HOUR_S, false);
    let file = world.create(1);
    let name = Name::new(b"d").unwrap();
    let mkdir = Op::Mkdir { dir: Ino::ROOT, name, mode: 0o755, umask: 0 };
    let dir = world.ask(2, ClientOp::Fs { op: mkdir });
    world.pass(1_000);
    assert!(world.replies.len() == 1, "ids that no synced record reserves could be given twice");
    // The first one comes again on another link: one file is made, and the answer goes there.
    let again = world.ask_over(LinkId(2), 1, ClientOp::Fs { op: fifo(1) });
    world.sync();
    assert!(!world.replies.contains_key(&file));
    assert!(world.made(again).ino != world.made(dir).ino);
    let next = world.ask_over(LinkId(2), 3, ClientOp::Fs { op: fifo(3) });
    assert!(world.made(next).ino > world.made(again).ino);
    // So it is in the next life: the rest of a range that was reserved before is not used.
    world.restart(100 * HOUR_S, false);
    let late = world.ask(4, ClientOp::Fs { op: fifo(4) });
    assert!(!world.replies.contains_key(&late));
    world.sync();
    assert!(world.made(late).ino > world.made(again).ino);
}

#[test]
fn ids_are_given_when_their_range_is_synced_whatever_else_waits_for_a_sync() {
    let mut world = World::begin(100 * HOUR_S, false);
    let file = world.create(1);
    let reserved = world.island.state().seq();
    // Another record, and somebody who waits until it is synced.
    let mode = atoll_posix::SetAttr { mode: Some(0o700), ..Default::default() };
    world.ask(2, ClientOp::Fs { op: Op::SetAttr { ino: Ino::ROOT, set: mode } });
    let fsync = world.ask(0, ClientOp::Fs { op: Op::FsyncDir { dir: Ino::ROOT } });
    assert!(world.island.state().seq() > reserved);
    world.event(Event::Synced(reserved));
    assert!(!world.replies.contains_key(&fsync));
    world.made(file);
}

#[test]
fn a_create_for_which_there_will_be_no_id_fails() {
    let mut world = World::begin(100 * HOUR_S, false);
    // The log finds no space: it will not be synced either.
    let stuck = world.create(1);
    world.event(Event::LogStuck(true));
    assert_eq!(world.failed(stuck), Some(Errno::ENOSPC));
    world.event(Event::LogStuck(false));
    // No more wait than may: the client of another one asks again.
    let waits: Vec<u64> = (2..).map(|n| world.create(n)).take(4097).collect();
    let (last, waits) = waits.split_last().unwrap();
    assert_eq!(world.replies.get(last), Some(&Outcome::NotNow));
    world.pass(10_000);
    assert!(waits.iter().all(|id| world.failed(*id).is_none()), "they wait");
    world.pass(100);
    assert!(waits.iter().all(|id| world.failed(*id) == Some(Errno::EIO)), "they have waited for long");
}
