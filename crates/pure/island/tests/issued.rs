//! What an island gives out and never takes back: times of changes, over its starts and over machines.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Attr, Caller, Kind, Op};
use atoll_proto::{ClientOp, Outcome, Request};
use atoll_state::{RowKey, State};
use bytes::Bytes;

const MOUNT: SessionId = SessionId(7);
const HOUR_S: i64 = 3_600;

/// An island with its snapshot, and the wall clock of its machine.
struct World {
    island: Island,
    wall: Time,
    ms: u64,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    replies: BTreeMap<u64, Outcome>,
    next: u64,
}

fn config() -> Config {
    Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)])
}

impl World {
    /// An island that has just been made, at this second.
    fn new(secs: i64) -> Self {
        let wall = Time { secs, nanos: 0 };
        let island = Island::new(config(), State::new(1), PreviousEnd::PowerCut, Now { wall, ms: 0 });
        let mut world =
            Self { island, wall, ms: 0, rows: BTreeMap::new(), replies: BTreeMap::new(), next: 1 };
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
            state = State::new(1);
            for (key, row) in &self.rows {
                let key = RowKey::from_bytes(key).expect("it was written by this code");
                state.open_row(&key, row).expect("it was written by this code");
            }
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
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(self.now(), event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, _) => self.event(Event::Committed(seq)),
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => _ = self.replies.insert(id, reply.outcome),
                Effect::Load { load, generation } => {
                    let row = match &load {
                        atoll_state::RowLoad::Row(key) => self.rows.get(&key.to_bytes()).cloned(),
                        _ => None,
                    };
                    let loaded =
                        row.map_or_else(|| load.nothing(), |row| atoll_state::LoadedRows::Row(Some(row)));
                    self.event(Event::Loaded { load, generation, loaded });
                }
                Effect::Checkpoint { frozen, .. } => {
                    for (key, row) in frozen.rows {
                        match row {
                            Some(row) => _ = self.rows.insert(key, row),
                            None => _ = self.rows.remove(&key),
                        }
                    }
                    self.event(Event::CheckpointDone);
                }
                other => panic!("{other:?}"),
            }
        }
        self.island.check();
    }

    fn ask(&mut self, seq: u64, op: ClientOp) -> u64 {
        let id = self.next;
        self.next += 1;
        let (table, vector, caller) = (self.island.config().table.version(), Vec::new(), Caller::ROOT);
        let request = Request { session: MOUNT, seq, acked: seq, table, vector, caller, op };
        self.event(Event::Request { link: LinkId(1), id, request, data: Bytes::new() });
        id
    }

    /// Asks for a new fifo of this number.
    fn create(&mut self, n: u64) -> u64 {
        let (dir, name) = (Ino::ROOT, Name::new(format!("f{n}").as_bytes()).unwrap());
        let (kind, target) = (Kind::Fifo, Bytes::new());
        let op = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
        self.ask(n, ClientOp::Fs { op })
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
