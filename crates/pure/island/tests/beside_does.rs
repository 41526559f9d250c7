//! Operations that the machine beside an island has done: each is answered once, and files whose bytes it brings are shown to nobody before.

mod bytes_of;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{
    Beside, BesideEvent, BesideStep, BesideView, Config, Effect, Event, Island, LinkId, Now, PreviousEnd,
};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, SetAttr, Whence};
use atoll_proto::{ClientOp, EntryRef, Outcome, Record, Request};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;
use bytes_of::Bodies;
use snapshot::Snapshot;

const ROOT: Ino = Ino::ROOT;
const SESSION: SessionId = SessionId(1);

/// How an operation has ended.
type Done = Result<(Answer, Bytes), Errno>;

/// Does what it is given, and remembers how it ended.
#[derive(Debug, Clone, Default)]
struct Doing {
    todo: VecDeque<(Op, Bytes)>,
    begun: u64,
    done: Vec<(u64, Done)>,
}

impl Beside for Doing {
    fn witness(&mut self, _: &State, _: Now, _: u64, _: &mut Record) {}

    fn allows_moves(&self, _: &State, _: Now, _: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        Ok(true)
    }

    fn hear(&mut self, event: BesideEvent) {
        if let BesideEvent::Did { id, done } = event {
            self.done.push((id, done));
        }
    }

    fn step(&mut self, _: BesideView<'_>, _: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        match self.todo.pop_front() {
            Some((op, data)) => {
                self.begun += 1;
                BesideStep::Do { id: self.begun, op, data }
            }
            None => BesideStep::Rest,
        }
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

struct World {
    island: Island,
    bodies: Bodies,
    snapshot: Snapshot,
    queue: VecDeque<Event>,
    replies: BTreeMap<u64, (Outcome, Bytes)>,
    ms: u64,
    next: u64,
}

fn config() -> Config {
    let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
    // What has not been used lately leaves memory.
    Config { rows_max: 0, ..config }
}

impl World {
    fn new() -> Self {
        let mut island = Island::new(config(), State::new(1), PreviousEnd::Orderly, Now::default());
        island.set_beside(Box::new(Doing::default()));
        let (bodies, snapshot) = (Bodies::default(), Snapshot::default());
        let (queue, replies) = (VecDeque::new(), BTreeMap::new());
        let mut world = Self { island, bodies, snapshot, queue, replies, ms: 0, next: 0 };
        world.tick();
        world.ask(0, ClientOp::Attach { mount: false }, b"");
        world
    }

    fn now(&self) -> Now {
        Now { wall: Time::from_nanos(self.ms * 1_000_000), ms: self.ms }
    }

    fn tick(&mut self) {
        self.ms += 1_000;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    fn event(&mut self, event: Event) {
        self.queue.push_back(event);
        while let Some(event) = self.queue.pop_front() {
            let mut out = Vec::new();
            self.island.handle(self.now(), event, &mut out);
            self.island.check();
            out.into_iter().for_each(|effect| self.perform(effect));
        }
    }

    fn perform(&mut self, effect: Effect) {
        let event = match effect {
            Effect::Append(seq, ..) => Event::Committed(seq),
            Effect::Sync => Event::Synced(self.island.state().seq()),
            Effect::Reply { link: LinkId::BESIDE, id, reply, data } => {
                Event::Beside(BesideEvent::did(id, reply.outcome, data))
            }
            Effect::Reply { id, reply, data, .. } => {
                assert!(self.replies.insert(id, (reply.outcome, data)).is_none(), "{id} is answered twice");
                return;
            }
            Effect::Body(ticket, op) => {
                let (read, done) = self.bodies.perform(op);
                self.replies.extend(read.map(|(id, reply, data)| (id, (reply.outcome, data))));
                Event::BodyDone(ticket, Ok(done))
            }
            Effect::Load { load, generation } => {
                let loaded = self.snapshot.load(&load);
                Event::Loaded { load, generation, loaded }
            }
            Effect::Checkpoint { frozen, .. } => {
                self.snapshot.commit(frozen);
                Event::CheckpointDone
            }
            other => panic!("{other:?}"),
        };
        self.queue.push_back(event);
    }

    /// A client asks; the number of its request.
    fn ask(&mut self, seq: u64, op: ClientOp, data: &'static [u8]) -> u64 {
        self.next += 1;
        let (id, table, vector, caller) = (self.next, 1, Vec::new(), Caller::ROOT);
        let request = Request { session: SESSION, seq, acked: seq, table, vector, caller, op };
        self.event(Event::Request { link: LinkId(1), id, request, data: Bytes::from_static(data) });
        id
    }

    /// What a client's operation is answered.
    fn client(&mut self, op: Op, data: &'static [u8]) -> (Outcome, Bytes) {
        let seq = if op.changes() { self.next + 1 } else { 0 };
        let id = self.ask(seq, ClientOp::Fs { op }, data);
        self.tick();
        self.replies.remove(&id).expect("it is answered")
    }

    fn create(&mut self, name: &str) -> Ino {
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let (dir, name, target) = (ROOT, named(name), Bytes::new());
        let op = Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target };
        match self.client(op, b"").0 {
            Outcome::Ok { answer: Answer::Found { found }, .. } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    /// The machine is to do these.
    fn give(&mut self, todo: Vec<(Op, Bytes)>) {
        let Doing { begun, done, .. } = self.machine().clone();
        self.island.set_beside(Box::new(Doing { todo: todo.into(), begun, done }));
        self.tick();
    }

    /// The machine does these. How each has ended, in their order.
    fn machine_does(&mut self, ops: Vec<(Op, Bytes)>) -> Vec<Done> {
        let before = self.machine().done.len();
        self.give(ops);
        self.tick();
        let mut done = self.machine().done[before..].to_vec();
        done.sort_by_key(|(id, _)| *id);
        let ids = done.iter().map(|(id, _)| *id);
        assert!(ids.eq(before as u64 + 1..=self.machine().begun), "each is answered once: {done:?}");
        done.into_iter().map(|(_, done)| done).collect()
    }

    fn machine_did(&mut self, op: Op, data: &[u8]) -> Done {
        self.machine_does(vec![(op, Bytes::copy_from_slice(data))]).remove(0)
    }

    fn machine(&self) -> &Doing {
        self.island.beside().expect("it was set")
    }
}

fn named(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

const fn write(ino: Ino, offset: u64) -> Op {
    Op::Write { ino, offset, append: false, kill_set_id: true }
}

const fn read(ino: Ino, len: u32) -> Op {
    Op::Read { ino, offset: 0, len }
}

fn cut(ino: Ino, size: u64) -> Op {
    Op::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() } }
}

#[test]
fn how_each_ends_is_told_once_also_if_it_fails() {
    let mut world = World::new();
    let (a, b) = (world.create("a"), world.create("b"));
    let large = vec![7; 100_000];
    let wrote = |len| Ok((Answer::Wrote { len, offset: 0 }, Bytes::new()));
    assert_eq!(world.machine_did(write(a, 0), b"hello"), wrote(5));
    assert_eq!(world.machine_did(read(a, 99), b""), Ok((Answer::Data, "hello".into())));
    assert_eq!(world.machine_did(write(b, 0), &large), wrote(100_000));
    assert_eq!(world.machine_did(read(b, 200_000), b""), Ok((Answer::Data, large.into())));
    assert!(matches!(world.machine_did(cut(a, 3), b""), Ok((Answer::Attr { attr }, _)) if attr.size == 3));
    let copy = Op::CopyRange { from: a, from_offset: 0, to: b, to_offset: 0, len: 3 };
    assert_eq!(world.machine_did(copy, b""), wrote(3));
    assert_eq!(world.machine_did(Op::Fsync { ino: b }, b""), Ok((Answer::Done, Bytes::new())));
    assert_eq!(world.machine_did(read(b, 4), b""), Ok((Answer::Data, Bytes::from_static(b"hel\x07"))));
    let seek = Op::Seek { ino: a, offset: 9, whence: Whence::Data };
    assert_eq!(world.machine_did(seek, b""), Err(Errno::ENXIO));
    let unknown = Ino(77_777);
    for op in [read(unknown, 1), write(unknown, 0), cut(unknown, 0), Op::Fsync { ino: unknown }] {
        assert_eq!(world.machine_did(op, b"x"), Err(Errno::ESTALE));
    }
    let removes = Op::Unlink { dir: ROOT, name: named("a") };
    assert_eq!(world.machine_did(removes, b""), Err(Errno::EOPNOTSUPP), "it sets names by records");
    let (outcome, data) = world.client(read(a, 9), b"");
    assert!(matches!(outcome, Outcome::Ok { answer: Answer::Data, .. }), "{outcome:?}");
    assert_eq!(data, "hel", "clients see it");
}

#[test]
fn more_of_them_than_one_event_begins_are_all_done() {
    let mut world = World::new();
    let ino = world.create("f");
    let ops = (0..50_u8).map(|n| (write(ino, u64::from(n)), Bytes::copy_from_slice(&[n]))).collect();
    assert!(world.machine_does(ops).into_iter().all(|done| done.is_ok()));
    let reads = (0..50).map(|_| (read(ino, 99), Bytes::new())).collect();
    let bytes: Bytes = (0..50).collect::<Vec<u8>>().into();
    assert!(world.machine_does(reads).into_iter().all(|done| done == Ok((Answer::Data, bytes.clone()))));
}

#[test]
fn what_changes_something_waits_until_changes_may_be_decided() {
    let mut world = World::new();
    let ino = world.create("f");
    world.event(Event::Decides(false));
    world.give(vec![(write(ino, 0), "new".into()), (read(ino, 9), Bytes::new())]);
    world.tick();
    assert_eq!(world.machine().done, [(2, Ok((Answer::Data, Bytes::new())))], "it may read");
    world.event(Event::Decides(true));
    assert_eq!(world.machine().done.len(), 2);
    assert_eq!(world.machine_did(read(ino, 9), b""), Ok((Answer::Data, "new".into())));
    // Also while a listing of everything holds the island.
    world.ask(0, ClientOp::Hold { cut: 1, again: false }, b"");
    let before = world.machine().done.len();
    world.give(vec![(write(ino, 0), "newer".into())]);
    (0..20).for_each(|_| world.tick());
    assert_eq!(world.machine().done.len(), before + 1, "it goes on when the listing has ended");
    assert_eq!(world.machine_did(read(ino, 9), b""), Ok((Answer::Data, "newer".into())));
}

#[test]
fn what_changes_something_fails_while_the_log_finds_no_space() {
    let mut world = World::new();
    let ino = world.create("f");
    world.event(Event::LogStuck(true));
    assert_eq!(world.machine_did(write(ino, 0), b"x"), Err(Errno::ENOSPC));
    world.event(Event::LogStuck(false));
    assert!(world.machine_did(write(ino, 0), b"x").is_ok());
}
