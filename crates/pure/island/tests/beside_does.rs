//! Operations that the machine beside an island has done: each is answered once, and files whose bytes it brings are shown to nobody before.

mod bytes_of;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{
    Beside, BesideEvent, BesideRecord, BesideStep, BesideView, Config, Effect, Event, Island, LinkId, Now,
    PreviousEnd,
};
use atoll_posix::{
    Allocation, Answer, Attr, Caller, Errno, Kind, Op, RenameMode, SetAttr, Whence, XattrMode, xattr,
};
use atoll_proto::{ClientOp, Entry, EntryRef, Inode, Outcome, Record, Request, RowChange};
use atoll_state::{NotInMemory, RowLoad, State};
use bytes::Bytes;
use bytes_of::Bodies;
use snapshot::Snapshot;

const ROOT: Ino = Ino::ROOT;
const SESSION: SessionId = SessionId(1);

/// How an operation has ended.
type Done = Result<(Answer, Bytes), Errno>;

/// What the machine is to do.
#[derive(Debug, Clone)]
enum Todo {
    Do(Op, Bytes),
    /// A file of these attributes, with a name in the root or without one.
    Make(Inode, Option<Name>),
    Decide(Vec<RowChange>),
}

impl Todo {
    /// A row that must be in memory first.
    fn lacks(&self, state: &State) -> Option<NotInMemory> {
        let goes = |change: &RowChange| match change {
            RowChange::Inode { ino, row: None } => state.inode(*ino).err(),
            _ => None,
        };
        match self {
            Self::Do(..) => None,
            Self::Make(..) => state.dir(ROOT).err(),
            Self::Decide(changes) => changes.iter().find_map(goes),
        }
    }
}

/// Does what it is given, and remembers how it ended.
#[derive(Debug, Clone, Default)]
struct Doing {
    todo: VecDeque<Todo>,
    begun: u64,
    made: Option<Ino>,
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

    fn step(&mut self, view: BesideView<'_>, mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        if let Some(NotInMemory(load)) = self.todo.front().and_then(|todo| todo.lacks(view.state)) {
            return BesideStep::Load(vec![load]);
        }
        match self.todo.pop_front() {
            Some(Todo::Do(op, data)) => {
                self.begun += 1;
                BesideStep::Do { id: self.begun, op, data }
            }
            Some(Todo::Make(mut row, name)) => {
                let ino = mint().expect("there are ids");
                row.attr.ino = ino;
                let mut changes = vec![RowChange::Inode { ino, row: Some(Box::new(row)) }];
                changes.extend(name.into_iter().flat_map(|name| named_by(view.state, &name, ino, 1)));
                self.made = Some(ino);
                let record = Record { changes, bodies: Vec::new() };
                BesideStep::Decide(BesideRecord { record, made: vec![ino] })
            }
            Some(Todo::Decide(changes)) => {
                let record = Record { changes, bodies: Vec::new() };
                BesideStep::Decide(BesideRecord { record, made: Vec::new() })
            }
            None => BesideStep::Rest,
        }
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

/// A name in the root leads to this file, and the root has so many more.
fn named_by(state: &State, name: &Name, ino: Ino, more: u64) -> [RowChange; 2] {
    let mut root = state.dir(ROOT).expect("it is used all the time").expect("it is there").clone();
    root.owned.as_mut().expect("it is owned").entries += more;
    let entry = Entry { ino, kind: Kind::Regular, home: IslandId(0), stub: None };
    let name = name.clone();
    [
        RowChange::Entry { dir: ROOT, name, row: Some(entry) },
        RowChange::Dir { ino: ROOT, row: Some(Box::new(root)) },
    ]
}

/// A file with so many names, whose bytes are to come.
fn brought(nlink: u32, size: u64) -> Inode {
    let attr = Attr { mode: 0o6755, nlink, size, ..Attr::blank(Ino(0), Kind::Regular) };
    Inode {
        attr,
        target: None,
        has_xattrs: false,
        has_acl: false,
        moves: 0,
        orphan_of: Vec::new(),
        beside: Some("state".into()),
        is_absent: true,
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
        Self::with(false)
    }

    fn with(mount: bool) -> Self {
        let mut island = Island::new(config(), State::new(1), PreviousEnd::Orderly, Now::default());
        island.set_beside(Box::new(Doing::default()));
        let (bodies, snapshot) = (Bodies::default(), Snapshot::default());
        let (queue, replies) = (VecDeque::new(), BTreeMap::new());
        let mut world = Self { island, bodies, snapshot, queue, replies, ms: 0, next: 0 };
        world.tick();
        world.ask(0, ClientOp::Attach { mount }, b"");
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
            Effect::Notice(..) => return,
            Effect::Body(ticket, op) => {
                let (read, done) = self.bodies.perform(op);
                self.replies.extend(read.map(|(id, reply, data)| (id, (reply.outcome, data))));
                Event::BodyDone(ticket, Ok(done))
            }
            Effect::Load { load, generation } => {
                let loaded = match &load {
                    RowLoad::Names { dir, .. } => self.snapshot.names(*dir),
                    other => self.snapshot.load(other),
                };
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
        self.ask(0, ClientOp::Renew, b"");
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
    fn give(&mut self, todo: Vec<Todo>) {
        let before = self.machine().clone();
        self.island.set_beside(Box::new(Doing { todo: todo.into(), ..before }));
        self.tick();
        self.tick();
    }

    /// The machine makes a file.
    fn make(&mut self, row: Inode, name: Option<&str>) -> Ino {
        self.give(vec![Todo::Make(row, name.map(named))]);
        self.machine().made.expect("it is made")
    }

    /// Takes a name away.
    fn unlink(&mut self, name: &str) {
        let (outcome, _) = self.client(Op::Unlink { dir: ROOT, name: named(name) }, b"");
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    }

    /// The row of a file.
    fn row(&mut self, ino: Ino) -> Option<Inode> {
        // It is read, so it is in memory.
        self.client(Op::GetAttr { ino }, b"");
        self.island.state().inode(ino).expect("it is in memory").cloned()
    }

    /// The machine says that the bytes of a file are here.
    fn arrives(&mut self, ino: Ino) {
        let row = Inode { is_absent: false, ..self.row(ino).expect("it is there") };
        self.give(vec![Todo::Decide(vec![RowChange::Inode { ino, row: Some(Box::new(row)) }])]);
    }

    /// The process ends, and another one goes on.
    fn restart(&mut self) {
        self.event(Event::CheckpointWanted);
        self.tick();
        let machine = self.machine().clone();
        let ended = PreviousEnd::PowerCut;
        self.island = Island::new(config(), self.snapshot.state(), ended, self.now());
        self.island.set_beside(Box::new(machine));
        self.tick();
    }

    /// The machine does these. How each has ended, in their order.
    fn machine_does(&mut self, ops: Vec<(Op, Bytes)>) -> Vec<Done> {
        let before = self.machine().done.len();
        self.give(ops.into_iter().map(|(op, data)| Todo::Do(op, data)).collect());
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
    let (a, b) = (world.make(brought(0, 0), None), world.make(brought(0, 0), None));
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
    let of_users = world.create("f");
    assert_eq!(world.machine_did(write(of_users, 0), b"x"), Err(Errno::ESTALE), "it would show a half");
    assert_eq!(world.machine_did(cut(of_users, 7), b""), Err(Errno::ESTALE));
}

#[test]
fn more_of_them_than_one_event_begins_are_all_done() {
    let mut world = World::new();
    let ino = world.make(brought(0, 0), None);
    let ops = (0..50_u8).map(|n| (write(ino, u64::from(n)), Bytes::copy_from_slice(&[n]))).collect();
    assert!(world.machine_does(ops).into_iter().all(|done| done.is_ok()));
    let reads = (0..50).map(|_| (read(ino, 99), Bytes::new())).collect();
    let bytes: Bytes = (0..50).collect::<Vec<u8>>().into();
    assert!(world.machine_does(reads).into_iter().all(|done| done == Ok((Answer::Data, bytes.clone()))));
}

#[test]
fn what_changes_something_waits_until_changes_may_be_decided() {
    let mut world = World::new();
    let ino = world.make(brought(0, 0), None);
    world.event(Event::Decides(false));
    world.give(vec![Todo::Do(write(ino, 0), "new".into()), Todo::Do(read(ino, 9), Bytes::new())]);
    world.tick();
    assert_eq!(world.machine().done, [(2, Ok((Answer::Data, Bytes::new())))], "it may read");
    world.event(Event::Decides(true));
    assert_eq!(world.machine().done.len(), 2);
    assert_eq!(world.machine_did(read(ino, 9), b""), Ok((Answer::Data, "new".into())));
    // Also while a listing of everything holds the island.
    world.ask(0, ClientOp::Hold { cut: 1, again: false }, b"");
    let before = world.machine().done.len();
    world.give(vec![Todo::Do(write(ino, 0), "newer".into())]);
    (0..20).for_each(|_| world.tick());
    assert_eq!(world.machine().done.len(), before + 1, "it goes on when the listing has ended");
    assert_eq!(world.machine_did(read(ino, 9), b""), Ok((Answer::Data, "newer".into())));
}

#[test]
fn what_changes_something_fails_while_the_log_finds_no_space() {
    let mut world = World::new();
    let ino = world.make(brought(0, 0), None);
    world.event(Event::LogStuck(true));
    assert_eq!(world.machine_did(write(ino, 0), b"x"), Err(Errno::ENOSPC));
    world.event(Event::LogStuck(false));
    assert!(world.machine_did(write(ino, 0), b"x").is_ok());
}

/// Operations that use the bytes of a file, and those of another one.
fn using(ino: Ino, other: Ino) -> Vec<Op> {
    let what = Allocation::PunchHole;
    vec![
        read(ino, 9),
        write(ino, 0),
        cut(ino, 5),
        Op::Seek { ino, offset: 0, whence: Whence::Hole },
        Op::Fallocate { ino, offset: 0, len: 4_096, what },
        Op::CopyRange { from: ino, from_offset: 0, to: other, to_offset: 0, len: 3 },
        Op::CopyRange { from: other, from_offset: 0, to: ino, to_offset: 0, len: 3 },
    ]
}

#[test]
fn the_bytes_of_an_absent_file_wait_until_they_are_here_and_all_else_is_as_always() {
    let mut world = World::new();
    let other = world.create("other");
    world.client(write(other, 0), b"other");
    let ino = world.make(brought(1, 100_000), Some("f"));
    let capability = Op::SetXattr {
        ino,
        name: Bytes::from_static(xattr::CAPABILITY),
        value: "set".into(),
        mode: XattrMode::Any,
        kill_sgid: false,
    };
    assert!(matches!(world.client(capability, b"").0, Outcome::Ok { .. }));
    let before = world.row(ino).unwrap();
    assert_eq!((before.attr.size, before.attr.mode, before.has_xattrs), (100_000, 0o6755, true));
    for op in using(ino, other) {
        let (outcome, _) = world.client(op.clone(), b"x");
        assert!(matches!(outcome, Outcome::NotNow), "{op:?}: {outcome:?}");
    }
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    // They come in any order, in large and in small pieces.
    for (offset, end) in [(70_000, 100_000), (0, 10), (10, 70_000)] {
        assert!(world.machine_did(write(ino, offset), &bytes[offset as usize..end]).is_ok());
    }
    assert_eq!(world.machine_did(read(ino, 200_000), b""), Ok((Answer::Data, bytes.clone().into())));
    assert!(world.machine_did(cut(ino, 50_000), b"").is_ok());
    assert!(world.machine_did(cut(ino, 100_000), b"").is_ok());
    assert!(world.machine_did(write(ino, 50_000), &bytes[50_000..]).is_ok());
    let punch = Op::Fallocate { ino, offset: 0, len: 3, what: Allocation::PunchHole };
    assert!(world.machine_did(punch, b"").is_ok());
    let copy = Op::CopyRange { from: other, from_offset: 0, to: ino, to_offset: 0, len: 3 };
    assert!(world.machine_did(copy, b"").is_ok());
    assert!(world.machine_did(Op::Fsync { ino }, b"").is_ok());
    let mut after = world.row(ino).unwrap();
    assert!(after.attr.blocks > before.attr.blocks);
    after.attr.blocks = before.attr.blocks;
    assert_eq!(after, before, "nobody has changed it");
    // Its name and attributes are its users'.
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert!(matches!(world.client(Op::SetAttr { ino, set }, b"").0, Outcome::Ok { .. }));
    assert!(matches!(world.client(Op::Link { ino, dir: ROOT, name: named("g") }, b"").0, Outcome::Ok { .. }));
    let (name, new_name, mode) = (named("g"), named("h"), RenameMode::Replace);
    let (meant, new_meant) = (None, None);
    let rename = Op::Rename { dir: ROOT, name, new_dir: ROOT, new_name, mode, meant, new_meant };
    assert!(matches!(world.client(rename, b"").0, Outcome::Ok { .. }));
    world.unlink("f");
    assert!(matches!(world.client(read(ino, 9), b"").0, Outcome::NotNow));
    world.arrives(ino);
    let (_, data) = world.client(read(ino, 200_000), b"");
    assert_eq!((&data[..3], &data[3..]), (&b"oth"[..], &bytes[3..]));
    for op in using(ino, other) {
        let (outcome, _) = world.client(op.clone(), b"x");
        assert!(matches!(outcome, Outcome::Ok { .. }), "{op:?}: {outcome:?}");
    }
    world.unlink("h");
    assert_eq!((world.row(ino), world.bodies.0.get(&ino)), (None, None));
}

#[test]
fn what_is_cut_off_need_not_come_and_the_machine_writes_into_it_no_more() {
    let mut world = World::new();
    let ino = world.make(brought(1, 9), Some("f"));
    world.machine_did(write(ino, 4), b"part").unwrap();
    let before = world.row(ino).unwrap();
    let (outcome, _) = world.client(cut(ino, 0), b"");
    assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    let after = world.row(ino).unwrap();
    assert!(!after.is_absent && after.attr.size == 0);
    assert!(after.attr.mtime > before.attr.mtime && after.attr.ctime > before.attr.ctime);
    world.client(write(ino, 0), b"mine");
    assert_eq!(world.machine_did(write(ino, 0), b"late"), Err(Errno::ESTALE));
    assert_eq!(world.client(read(ino, 9), b"").1, "mine");
}

#[test]
fn a_file_without_a_name_is_the_machines_until_it_gives_it_one_or_removes_it() {
    let mut world = World::with(true);
    let old = world.create("f");
    world.client(write(old, 0), b"old");
    let (kept, goes) = (world.make(brought(0, 0), None), world.make(brought(0, 0), None));
    let large = vec![3; 100_000];
    for ino in [kept, goes] {
        world.machine_did(write(ino, 0), &large).unwrap();
        world.machine_did(Op::Fsync { ino }, b"").unwrap();
    }
    world.restart();
    assert_eq!(world.machine_did(read(kept, 200_000), b""), Ok((Answer::Data, large.clone().into())));
    assert!(world.machine_did(cut(kept, 10), b"").is_ok());
    // It gets the name, and what had it goes. A mount may have that open.
    let row = Inode { is_absent: false, ..brought(1, 10) };
    let row = Inode { attr: Attr { ino: kept, ..row.attr }, ..row };
    assert!(world.row(old).is_some());
    world.client(Op::GetAttr { ino: ROOT }, b"");
    let mut changes = named_by(world.island.state(), &named("f"), kept, 0).to_vec();
    changes.push(RowChange::Inode { ino: kept, row: Some(Box::new(row)) });
    changes.push(RowChange::Inode { ino: old, row: None });
    world.give(vec![Todo::Decide(changes)]);
    let found = world.client(Op::Lookup { dir: ROOT, name: named("f") }, b"").0;
    assert!(
        matches!(&found, Outcome::Ok { answer: Answer::Found { found }, .. } if found.attr.ino == kept),
        "{found:?}"
    );
    assert_eq!(world.client(read(kept, 99), b"").1, large[..10]);
    assert_eq!(world.client(read(old, 9), b"").1, "old", "who has it open reads on");
    let row = world.row(old).unwrap();
    assert_eq!((&row.orphan_of[..], row.beside), (&[SESSION][..], None));
    world.ask(0, ClientOp::Release { inos: vec![old] }, b"");
    world.tick();
    assert_eq!((world.row(old), world.bodies.0.get(&old)), (None, None));
    // The other one is removed, with its bytes.
    assert!(world.bodies.0.contains_key(&goes));
    world.row(goes);
    world.give(vec![Todo::Decide(vec![RowChange::Inode { ino: goes, row: None }])]);
    assert_eq!((world.row(goes), world.bodies.0.get(&goes)), (None, None));
    assert_eq!(world.machine_did(read(goes, 1), b""), Err(Errno::ESTALE));
}

#[test]
fn a_file_that_a_mount_keeps_may_get_a_name_again() {
    let mut world = World::with(true);
    let ino = world.make(Inode { is_absent: false, ..brought(1, 0) }, Some("f"));
    world.client(write(ino, 0), b"mine");
    world.row(ino);
    world.client(Op::GetAttr { ino: ROOT }, b"");
    let [mut entry, root] = named_by(world.island.state(), &named("f"), ino, 0);
    let with_names = |entries| {
        let RowChange::Dir { row: Some(row), .. } = &root else { unreachable!("it is the root") };
        let mut row = row.clone();
        row.owned.as_mut().unwrap().entries = entries;
        RowChange::Dir { ino: ROOT, row: Some(row) }
    };
    let no_entry = RowChange::Entry { dir: ROOT, name: named("f"), row: None };
    world.give(vec![Todo::Decide(vec![no_entry, with_names(0), RowChange::Inode { ino, row: None }])]);
    let row = world.row(ino).unwrap();
    assert_eq!((row.attr.nlink, &row.orphan_of[..]), (0, &[SESSION][..]));
    assert_eq!(row.beside, Some("state".into()), "the machine is to know what it was");
    let row = Inode { attr: Attr { nlink: 1, ..row.attr }, ..row };
    if let RowChange::Entry { name, .. } = &mut entry {
        *name = named("g");
    }
    let row = RowChange::Inode { ino, row: Some(Box::new(row)) };
    world.give(vec![Todo::Decide(vec![entry, with_names(1), row])]);
    assert_eq!(world.row(ino).unwrap().orphan_of, []);
    assert_eq!(world.island.state().session(SESSION).unwrap().held, []);
    world.ask(0, ClientOp::Release { inos: vec![ino] }, b"");
    world.tick();
    assert_eq!(world.client(read(ino, 9), b"").1, "mine", "it has a name");
}

#[test]
fn what_has_lost_its_names_and_is_the_machines_stays_for_who_has_it_open_when_the_machine_removes_it() {
    let mut world = World::with(true);
    let ino = world.create("f");
    world.client(write(ino, 0), b"old");
    let before = world.row(ino).unwrap();
    let attr = Attr { nlink: 0, ..before.attr };
    let row = Inode { attr, beside: Some("rests".into()), ..before };
    let mut root = world.island.state().dir(ROOT).unwrap().unwrap().clone();
    root.owned.as_mut().unwrap().entries -= 1;
    world.give(vec![Todo::Decide(vec![
        RowChange::Entry { dir: ROOT, name: named("f"), row: None },
        RowChange::Dir { ino: ROOT, row: Some(Box::new(root)) },
        RowChange::Inode { ino, row: Some(Box::new(row)) },
    ])]);
    assert_eq!(world.client(read(ino, 9), b"").1, "old");
    assert_eq!(world.row(ino).unwrap().orphan_of, []);
    world.give(vec![Todo::Decide(vec![RowChange::Inode { ino, row: None }])]);
    assert_eq!(world.client(read(ino, 9), b"").1, "old");
    let row = world.row(ino).unwrap();
    assert_eq!(row.orphan_of, [SESSION]);
    assert_eq!(row.beside, Some("rests".into()), "the machine is to know what it was");
    world.ask(0, ClientOp::Release { inos: vec![ino] }, b"");
    world.tick();
    assert_eq!((world.row(ino), world.bodies.0.get(&ino)), (None, None));
}
