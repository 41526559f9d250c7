//! Records of the machine beside an island: they are decided between two requests, and what they remove stays for mounts that may have it
//! open.

use std::collections::VecDeque;

use atoll_core::{Decode, Encode, Ino, IslandId, Name, SessionId, Table};
use atoll_island::{
    Beside, BesideEvent, BesideRecord, BesideSays, BesideStep, BesideView, Config, Effect, Event, Island,
    LinkId, Now, PreviousEnd,
};
use atoll_posix::{Answer, Caller, Errno, Kind, LockKind, LockRange, Op};
use atoll_proto::{BodyChange, ClientOp, EntryRef, Lease, Notice, Outcome, Record, Request, RowChange};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

const ROOT: Ino = Ino::ROOT;
const SESSION: SessionId = SessionId(1);

/// Decides the records that come as messages, and tells when it has.
#[derive(Debug, Clone, Default)]
struct Deciding {
    queue: VecDeque<Record>,
    told: VecDeque<Bytes>,
    /// Before an operation.
    first: Option<Record>,
    /// Ids that the next step uses.
    mints: u64,
    witnessed: u64,
    steps: u64,
}

impl Beside for Deciding {
    fn witness(&mut self, _: &State, _: Now, _: u64, _: &mut Record) {
        self.witnessed += 1;
    }

    fn allows_moves(&self, _: &State, _: Now, _: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        Ok(true)
    }

    fn prepare(&mut self, view: BesideView<'_>, _: &Op, mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        assert!(view.may_decide && mint().is_some());
        self.first
            .take()
            .map_or(BesideStep::Rest, |record| BesideStep::Decide(BesideRecord { record, made: Vec::new() }))
    }

    fn hear(&mut self, event: BesideEvent) {
        if let BesideEvent::Message { bytes, .. } = event {
            let changes = Vec::<RowChange>::from_slice(&bytes).expect("it is a record");
            self.queue.push_back(Record { changes, bodies: Vec::new() });
        }
    }

    fn step(&mut self, view: BesideView<'_>, mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        self.steps += 1;
        if let Some(bytes) = self.told.pop_front() {
            return BesideStep::Say(BesideSays::Send { peer: 9, bytes });
        }
        if !view.may_decide {
            return BesideStep::Rest;
        }
        match self.queue.pop_front() {
            Some(record) => {
                (0..std::mem::take(&mut self.mints)).for_each(|_| assert!(mint().is_some()));
                self.told.push_back(view.position().to_vec().into());
                BesideStep::Decide(BesideRecord { record, made: Vec::new() })
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
    records: Vec<(u64, Record)>,
    notices: Vec<Notice>,
    sent: Vec<u64>,
    may_keep: bool,
    ms: u64,
    next: u64,
}

impl World {
    fn new(mount: bool) -> Self {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let config = Config { rows_max: 1 << 40, ..config };
        let mut island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
        island.set_beside(Box::new(Deciding::default()));
        let (records, notices, sent) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = Self { island, records, notices, sent, may_keep: false, ms: 0, next: 0 };
        world.tick(1);
        world.ask(ClientOp::Attach { mount });
        world.ask(ClientOp::Lease);
        match world.ask(ClientOp::Lease) {
            Outcome::Attached { lease, .. } => world.may_keep = lease != Lease::No,
            other => panic!("{other:?}"),
        }
        world
    }

    fn tick(&mut self, ms: u64) {
        self.ms += ms;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    fn event(&mut self, event: Event) -> Option<Outcome> {
        let (mut out, mut answer) = (Vec::new(), None);
        let now = Now { ms: self.ms, ..Now::default() };
        self.island.handle(now, event, &mut out);
        for effect in out {
            let more = match effect {
                Effect::Append(seq, record, _) => {
                    self.records.push((seq, record));
                    self.event(Event::Committed(seq))
                }
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { reply, .. } => Some(reply.outcome),
                Effect::Notice(_, notice) => {
                    self.notices.push(notice);
                    None
                }
                Effect::Beside(_, BesideSays::Send { peer, bytes }) => {
                    assert_eq!(peer, 9);
                    self.sent.push(u64::from_slice(&bytes).expect("a position"));
                    None
                }
                Effect::Body(ticket, _) => {
                    self.event(Event::BodyDone(ticket, Ok(atoll_island::BodyDone::Done)))
                }
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    self.event(Event::Loaded { load, generation, loaded })
                }
                other => panic!("{other:?}"),
            };
            answer = more.or(answer);
        }
        self.island.check();
        answer
    }

    fn ask(&mut self, op: ClientOp) -> Outcome {
        self.next += 1;
        let (id, caller) = (self.next, Caller::ROOT);
        let request =
            Request { session: SESSION, seq: id, acked: id, table: 1, vector: Vec::new(), caller, op };
        let event = Event::Request { link: LinkId(1), id, request, data: Bytes::new() };
        self.event(event).expect("it is answered")
    }

    fn does(&mut self, op: Op) -> Option<Ino> {
        match self.ask(ClientOp::Fs { op }) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => Some(found.attr.ino),
            Outcome::Ok { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, name: &str) -> Ino {
        let (kind, mode, umask, rdev, exclusive) = (Kind::Fifo, 0o644, 0, 0, true);
        let (dir, name, target) = (ROOT, named(name), Bytes::new());
        self.does(Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }).expect("it is made")
    }

    /// The machine takes a name of the root away, and what has it.
    fn remove(&mut self, name: &str) -> Vec<RowChange> {
        let entry = self.island.state().entry(ROOT, &named(name)).unwrap().unwrap().clone();
        let mut root = self.island.state().dir(ROOT).unwrap().unwrap().clone();
        let owned = root.owned.as_mut().unwrap();
        owned.entries -= 1;
        let gone = if entry.kind == Kind::Directory {
            owned.subdirs -= 1;
            root.children -= 1;
            RowChange::Dir { ino: entry.ino, row: None }
        } else {
            RowChange::Inode { ino: entry.ino, row: None }
        };
        let name = RowChange::Entry { dir: ROOT, name: named(name), row: None };
        vec![name, RowChange::Dir { ino: ROOT, row: Some(Box::new(root)) }, gone]
    }

    fn message(&mut self, changes: &[RowChange]) {
        let bytes = changes.to_vec().to_vec().into();
        self.event(Event::Beside(BesideEvent::Message { peer: 9, bytes }));
    }

    fn beside(&self) -> &Deciding {
        self.island.beside().expect("it was set")
    }

    fn witnessed(&self) -> u64 {
        self.beside().witnessed
    }
}

fn named(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

#[test]
fn a_record_of_the_machine_is_decided_at_its_position_and_not_shown_to_it() {
    let mut world = World::new(false);
    let ino = world.create("f");
    let (before, witnessed) = (world.island.state().seq(), world.witnessed());
    let changes = world.remove("f");
    world.message(&changes);
    assert_eq!((world.island.state().seq(), world.witnessed()), (before + 1, witnessed));
    let (seq, record) = world.records.last().unwrap();
    assert_eq!((*seq, &record.changes[..]), (before + 1, &changes[..]));
    assert_eq!(record.bodies, [BodyChange::Drop { ino }], "its bytes go with it");
    assert_eq!(world.sent, [before + 1], "what it sends leaves");
    assert_eq!(world.island.state().inode(ino), Ok(None));
}

/// Who made a file would wait for what other sites have done.
#[test]
fn the_thread_of_a_client_does_nothing_for_the_machine() {
    let mut world = World::new(false);
    let steps = world.beside().steps;
    let ino = world.create("f");
    assert_eq!(world.does(Op::Fsync { ino }), None);
    assert_eq!(world.beside().steps, steps);
    world.tick(50);
    assert!(world.beside().steps > steps);
}

#[test]
fn what_it_removes_stays_for_a_mount_until_that_has_let_go_of_it() {
    let mut world = World::new(true);
    assert!(world.may_keep);
    let file = world.create("f");
    let dir = world.does(Op::Mkdir { dir: ROOT, name: named("d"), mode: 0o755, umask: 0 }).unwrap();
    for name in ["f", "d"] {
        let changes = world.remove(name);
        world.message(&changes);
    }
    let orphans = |notice: &&Notice| matches!(notice, Notice::Orphan { .. });
    let orphans: Vec<&Notice> = world.notices.iter().filter(orphans).collect();
    assert_eq!(orphans, [&Notice::Orphan { ino: file }, &Notice::Orphan { ino: dir }]);
    for ino in [file, dir] {
        let row = world.island.state().inode(ino).unwrap().expect("it stays");
        assert_eq!((row.attr.nlink, &row.orphan_of[..]), (0, &[SESSION][..]));
        assert!(world.does(Op::GetAttr { ino }).is_none());
    }
    assert_eq!(world.island.state().dir(dir), Ok(None));
    assert!(matches!(world.ask(ClientOp::Release { inos: vec![file, dir] }), Outcome::Ok { .. }));
    for ino in [file, dir] {
        assert_eq!(world.island.state().inode(ino), Ok(None));
    }
}

#[test]
fn locks_go_with_what_it_removes() {
    let mut world = World::new(false);
    let ino = world.create("f");
    let lock = LockRange { kind: LockKind::Write, start: 0, end: 9, owner: 1, pid: 1, flock: false };
    world.does(Op::SetLock { ino, lock, wait: false });
    assert_eq!(world.island.state().session(SESSION).unwrap().held, [ino]);
    let changes = world.remove("f");
    world.message(&changes);
    assert!(world.island.state().session(SESSION).unwrap().held.is_empty());
    assert_eq!(world.island.state().locks(ino), Ok(None));
}

#[test]
fn it_decides_nothing_while_changes_of_clients_wait() {
    let mut world = World::new(false);
    world.create("f");
    let (changes, before) = (world.remove("f"), world.island.state().seq());
    world.event(Event::Decides(false));
    world.message(&changes);
    assert_eq!(world.island.state().seq(), before);
    world.event(Event::Decides(true));
    assert_eq!(world.island.state().seq(), before + 1);
    // Nor while a listing of everything holds the island.
    world.create("g");
    let (changes, before) = (world.remove("g"), world.island.state().seq());
    world.ask(ClientOp::Hold { cut: 1, again: false });
    world.message(&changes);
    assert_eq!(world.island.state().seq(), before);
    world.tick(1_000);
    assert_eq!(world.island.state().seq(), before + 1);
}

#[test]
fn what_comes_before_an_operation_is_decided_before_it() {
    let mut world = World::new(false);
    world.create("f");
    let first = Some(Record { changes: world.remove("f"), bodies: Vec::new() });
    world.island.set_beside(Box::new(Deciding { first, ..Deciding::default() }));
    let op = Op::Unlink { dir: ROOT, name: named("f") };
    let outcome = world.ask(ClientOp::Fs { op });
    assert!(matches!(outcome, Outcome::Failed { errno: Errno::ENOENT }), "{outcome:?}");
    assert_eq!(world.witnessed(), 0);
    world.create("f");
    assert_eq!(world.witnessed(), 1);
}

#[test]
fn a_record_is_decided_at_the_position_for_which_it_was_made_also_if_ids_run_low() {
    let mut world = World::new(false);
    world.create("f");
    world.island.set_beside(Box::new(Deciding { mints: 600_000, ..Deciding::default() }));
    let changes = world.remove("f");
    world.message(&changes);
    let is_it = |(_, record): &&(u64, Record)| record.changes.first() == changes.first();
    let at = world.records.iter().find(is_it).expect("it is decided").0;
    assert_eq!(world.sent, [at]);
    let reserves = |(_, record): &(u64, Record)| matches!(record.changes[..], [RowChange::MintLimit { .. }]);
    assert!(world.records.iter().skip_while(|record| record.0 <= at).any(reserves), "more ids are reserved");
}
