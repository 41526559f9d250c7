//! A mount beside a machine keeps what it knows if it is alone, and is told of everything that no client has changed.

use atoll_core::{Decode, Encode, Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{
    Beside, BesideEvent, BesideRecord, BesideStep, BesideView, Config, Effect, Event, Island, LinkId, Now,
    PreviousEnd,
};
use atoll_posix::{Answer, CHANGED_MAX, Caller, Kind, Op, SetAttr};
use atoll_proto::{ClientOp, EntryRef, Lease, Notice, Outcome, Record, Request, RowChange, Xattrs};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

const ROOT: Ino = Ino::ROOT;
const MOUNT: SessionId = SessionId(1);
const SECOND: SessionId = SessionId(2);

/// Decides what comes, and adds to records and before operations what it was given.
#[derive(Debug, Clone, Default)]
struct Giving {
    queue: Vec<Record>,
    before: Vec<RowChange>,
    with: Vec<RowChange>,
}

fn decide(changes: Vec<RowChange>) -> BesideStep {
    let record = Record { changes, bodies: Vec::new() };
    BesideStep::Decide(BesideRecord { record, made: Vec::new() })
}

impl Beside for Giving {
    fn witness(&mut self, _: &State, _: Now, _: u64, _: &mut Record) {}

    fn allows_moves(&self, _: &State, _: Now, _: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        Ok(true)
    }

    fn prepare(&mut self, _: BesideView<'_>, _: &Op, _: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        match std::mem::take(&mut self.before) {
            before if before.is_empty() => BesideStep::Rest,
            before => decide(before),
        }
    }

    fn first(&mut self, _: BesideView<'_>, _: &Record) -> Vec<RowChange> {
        std::mem::take(&mut self.with)
    }

    fn hear(&mut self, event: BesideEvent) {
        if let BesideEvent::Message { bytes, .. } = event {
            let changes = Vec::<RowChange>::from_slice(&bytes).expect("it is a record");
            self.queue.push(Record { changes, bodies: Vec::new() });
        }
    }

    fn step(&mut self, _: BesideView<'_>, _: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        self.queue.pop().map_or(BesideStep::Rest, |record| decide(record.changes))
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

struct World {
    island: Island,
    notices: Vec<(LinkId, Notice)>,
    /// Records are committed when this is false.
    holds: bool,
    next: u64,
}

impl World {
    fn new() -> Self {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let config = Config { rows_max: 1 << 40, ..config };
        let mut island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
        island.set_beside(Box::new(Giving::default()));
        let mut world = Self { island, notices: Vec::new(), holds: false, next: 0 };
        world.event(Event::Tick { bytes_available: 1 << 40 });
        world
    }

    /// With a mount that is alone.
    fn mounted() -> Self {
        let mut world = Self::new();
        assert!(world.attach(MOUNT, true), "it is alone");
        world
    }

    fn event(&mut self, event: Event) -> Option<Outcome> {
        let (mut out, mut answer) = (Vec::new(), None);
        self.island.handle(Now::default(), event, &mut out);
        for effect in out {
            let more = match effect {
                Effect::Append(seq, ..) if !self.holds => self.event(Event::Committed(seq)),
                Effect::Append(..) => None,
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { reply, .. } => Some(reply.outcome),
                Effect::Notice(link, notice) => {
                    self.notices.push((link, notice));
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

    fn ask(&mut self, session: SessionId, op: ClientOp) -> Option<Outcome> {
        self.next += 1;
        let (id, link) = (self.next, LinkId(session.0));
        let request =
            Request { session, seq: id, acked: id, table: 1, vector: Vec::new(), caller: Caller::ROOT, op };
        self.event(Event::Request { link, id, request, data: Bytes::new() })
    }

    /// Whether it may keep what it is told, when its row is synced.
    fn attach(&mut self, session: SessionId, mount: bool) -> bool {
        self.may_keep(session, ClientOp::Attach { mount });
        self.may_keep(session, ClientOp::Lease);
        self.may_keep(session, ClientOp::Lease)
    }

    /// By the answer to this sign of life.
    fn may_keep(&mut self, session: SessionId, op: ClientOp) -> bool {
        match self.ask(session, op) {
            Some(Outcome::Attached { lease, .. }) => lease != Lease::No,
            other => panic!("{other:?}"),
        }
    }

    fn does(&mut self, op: Op) -> Option<Ino> {
        match self.ask(MOUNT, ClientOp::Fs { op }).expect("it is answered") {
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

    fn mkdir(&mut self, name: &str) -> Ino {
        self.does(Op::Mkdir { dir: ROOT, name: named(name), mode: 0o755, umask: 0 }).expect("it is made")
    }

    /// The machine decides this. What mounts are told.
    fn decided(&mut self, changes: Vec<RowChange>) -> Vec<Notice> {
        let bytes = changes.to_vec().into();
        self.event(Event::Beside(BesideEvent::Message { peer: 9, bytes }));
        self.told()
    }

    fn told(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices).into_iter().map(|(_, notice)| notice).collect()
    }

    /// The row of a file, changed.
    fn file(&self, ino: Ino, change: impl FnOnce(&mut atoll_proto::Inode)) -> RowChange {
        let mut row = self.island.state().inode(ino).unwrap().unwrap().clone();
        change(&mut row);
        RowChange::Inode { ino, row: Some(Box::new(row)) }
    }

    fn dir(&self, ino: Ino, change: impl FnOnce(&mut atoll_proto::Dir)) -> RowChange {
        let mut row = self.island.state().dir(ino).unwrap().unwrap().clone();
        change(&mut row);
        RowChange::Dir { ino, row: Some(Box::new(row)) }
    }

    /// The name of the root gets what another one of it has.
    fn renamed(&self, from: &str, to: &str) -> Vec<RowChange> {
        let row = self.island.state().entry(ROOT, &named(from)).unwrap().cloned();
        let entry = |name, row| RowChange::Entry { dir: ROOT, name: named(name), row };
        vec![entry(from, None), entry(to, row)]
    }
}

fn named(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn changed(inos: &[Ino], names: &[&str]) -> Notice {
    let name = |name: &&str| EntryRef { dir: ROOT, name: named(name) };
    Notice::Changed { inos: inos.to_vec(), names: names.iter().map(name).collect() }
}

#[test]
fn a_mount_that_is_alone_is_told_what_each_kind_of_record_changes() {
    let mut world = World::mounted();
    let (file, dir) = (world.create("f"), world.mkdir("d"));
    assert_eq!(world.told(), [], "it has made these itself");

    let touched = world.file(file, |row| row.attr.mtime = Time { secs: 7, nanos: 0 });
    assert_eq!(world.decided(vec![touched]), [changed(&[file], &[])]);
    let absent = world.file(file, |row| (row.attr.size, row.is_absent) = (9, true));
    assert_eq!(world.decided(vec![absent]), [changed(&[file], &[])]);
    let opened = world.dir(dir, |row| row.fixed.mode = 0o777);
    assert_eq!(world.decided(vec![opened]), [changed(&[dir], &[])]);
    let row = Some(Xattrs(vec![(Bytes::from_static(b"user.a"), Bytes::new())]));
    assert_eq!(world.decided(vec![RowChange::Xattrs { ino: dir, row }]), [changed(&[dir], &[])]);
    let moved = world.renamed("f", "g");
    assert_eq!(world.decided(moved), [changed(&[ROOT], &["f", "g"])]);

    // What has lost its names may be open.
    let gone = vec![
        RowChange::Entry { dir: ROOT, name: named("g"), row: None },
        RowChange::Inode { ino: file, row: None },
        world.dir(ROOT, |row| row.owned.as_mut().unwrap().entries -= 1),
    ];
    let told = world.decided(gone);
    assert!(told.contains(&changed(&[ROOT, file], &["g"])) && told.contains(&Notice::Orphan { ino: file }));
    assert_eq!(told.len(), 2);
}

#[test]
fn what_the_machine_writes_down_for_itself_is_told_to_nobody() {
    let mut world = World::mounted();
    let (file, dir) = (world.create("f"), world.mkdir("d"));
    let beside = Some(Bytes::from_static(b"what it keeps"));
    let rows = vec![
        world.file(file, |row| row.beside = beside.clone()),
        world.dir(dir, |row| row.beside = beside.clone()),
        RowChange::Side { table: b'z', id: 1, row: beside },
    ];
    assert_eq!(world.decided(rows), []);
}

#[test]
fn what_comes_before_an_operation_and_with_it_is_told_too() {
    let mut world = World::mounted();
    let (file, other) = (world.create("f"), world.create("other"));
    let chmod = |ino| Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } };
    let before = world.renamed("other", "named");
    world.island.set_beside(Box::new(Giving { before, ..Giving::default() }));
    world.does(chmod(file));
    assert_eq!(world.told(), [changed(&[ROOT], &["named", "other"])]);
    let with = vec![world.file(other, |row| row.attr.ctime.secs += 1)];
    world.island.set_beside(Box::new(Giving { with, ..Giving::default() }));
    world.does(chmod(file));
    assert_eq!(world.told(), [changed(&[other], &[])]);
    world.does(chmod(file));
    assert_eq!(world.told(), []);
}

#[test]
fn a_notice_leaves_when_its_record_is_committed() {
    let mut world = World::mounted();
    let file = world.create("f");
    world.holds = true;
    let touched = world.file(file, |row| row.attr.mtime = Time { secs: 7, nanos: 0 });
    assert_eq!(world.decided(vec![touched]), []);
    world.event(Event::Committed(world.island.state().seq()));
    assert_eq!(world.told(), [changed(&[file], &[])]);
}

#[test]
fn if_more_has_changed_than_a_notice_may_have_everything_is_recalled() {
    let mut world = World::mounted();
    world.create("f");
    let entry = world.island.state().entry(ROOT, &named("f")).unwrap().unwrap().clone();
    // The directory is one of them.
    let names = |count: usize, length: usize| -> Vec<RowChange> {
        let name = |n| named(&format!("{n:0length$}"));
        let row = |name| RowChange::Entry { dir: ROOT, name, row: Some(entry.clone()) };
        (0..count).map(|n| row(name(n))).collect()
    };
    match &world.decided(names(CHANGED_MAX - 1, 10))[..] {
        [Notice::Changed { inos, names }] => assert_eq!((inos.len(), names.len()), (1, CHANGED_MAX - 1)),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.decided(names(CHANGED_MAX, 11)), [Notice::Recall]);
    // Or long ones, although they are few.
    assert_eq!(world.decided(names(CHANGED_MAX / 2, 250)), [Notice::Recall]);
    world.may_keep(MOUNT, ClientOp::Dropped);
    assert!(world.may_keep(MOUNT, ClientOp::Lease), "it keeps again");
}

#[test]
fn who_keeps_nothing_is_told_nothing() {
    let mut world = World::new();
    assert!(!world.attach(SessionId(5), false));
    world.attach(SessionId(6), false);
    let touched = world.dir(ROOT, |row| row.fixed.mode = 0o700);
    assert_eq!(world.decided(vec![touched]), [], "they are no mounts");
    assert!(world.attach(MOUNT, true));
    let opened = world.dir(ROOT, |row| row.fixed.mode = 0o755);
    let bytes = vec![opened].to_vec().into();
    world.event(Event::Beside(BesideEvent::Message { peer: 9, bytes }));
    assert_eq!(std::mem::take(&mut world.notices), [(LinkId(MOUNT.0), changed(&[ROOT], &[]))]);
    // A second mount hears of it, too. If it changes something, the first one drops everything before, and hears nothing then.
    assert!(world.attach(SECOND, true));
    let touched = |world: &World, mode| world.dir(ROOT, |row| row.fixed.mode = mode);
    let change = touched(&world, 0o700);
    assert_eq!(world.decided(vec![change]), [changed(&[ROOT], &[]), changed(&[ROOT], &[])]);
    let mkdir = Op::Mkdir { dir: ROOT, name: named("d"), mode: 0o755, umask: 0 };
    assert!(world.ask(SECOND, ClientOp::Fs { op: mkdir }).is_none(), "it waits");
    assert_eq!(std::mem::take(&mut world.notices), [(LinkId(MOUNT.0), Notice::Recall)]);
    let made = world.ask(MOUNT, ClientOp::Dropped);
    assert!(matches!(made, Some(Outcome::Ok { .. })), "it goes on: {made:?}");
    assert!(world.may_keep(MOUNT, ClientOp::Lease), "but nothing of what has just changed");
}

#[test]
fn a_mount_that_sees_a_part_of_the_tree_keeps_nothing_and_hears_of_nothing() {
    let mut world = World::new();
    let mkdir = Op::Mkdir { dir: ROOT, name: named("d"), mode: 0o755, umask: 0 };
    world.attach(SessionId(5), false);
    let made = world.ask(SessionId(5), ClientOp::Fs { op: mkdir }).expect("it is answered");
    let Outcome::Ok { answer: Answer::Found { found }, .. } = made else { panic!("{made:?}") };
    let attach = ClientOp::AttachWithin { mount: true, scope: found.attr.ino };
    world.may_keep(MOUNT, attach);
    world.may_keep(MOUNT, ClientOp::Lease);
    assert!(!world.may_keep(MOUNT, ClientOp::Lease));
    let opened = world.dir(found.attr.ino, |row| row.fixed.mode = 0o777);
    assert_eq!(world.decided(vec![opened]), []);
}
