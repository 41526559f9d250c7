//! A client that held very much ends: piece by piece, in small records, with few rows read at once, and an island that
//! starts again in between goes on.

mod snapshot;

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{BodyDone, BodyOp, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Kind, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, DaemonLife, Notice, Outcome, Record, Request, Session};
use atoll_state::{RESULTS_MAX, State};
use bytes::Bytes;
use snapshot::Snapshot;

const MOUNT: SessionId = SessionId(7);
const OTHER: SessionId = SessionId(8);
/// Longer than a session lasts of which nothing is heard.
const SESSION_MS: u64 = 130_000;
/// Far below what a log takes; and a lock row of the largest kind fits.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Files of the mount that dies: as many as one record could not take,
const VERY_MANY: u64 = 100_000;
/// and more than one event ends.
const MANY: u64 = 6_000;

/// An island with its snapshot.
struct World {
    island: Island,
    ms: u64,
    rows: Snapshot,
    replies: BTreeMap<u64, Outcome>,
    notices: Vec<Notice>,
    records: usize,
    record_bytes_max: usize,
    /// Rows that are being read, and most of them at once.
    reads: Vec<Event>,
    reads_max: usize,
    dropped: u64,
    next: u64,
    /// Records are not written.
    is_stuck: bool,
    /// The link of each client, if it is not its own number.
    links: BTreeMap<SessionId, LinkId>,
    /// What clients say that they have the results of; all, if none.
    acked: Option<u64>,
}

fn config() -> Config {
    Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)])
}

impl World {
    fn new() -> Self {
        let now = Now { wall: Time::default(), ms: 0 };
        let island = Island::new(config(), State::new(1), PreviousEnd::PowerCut, now);
        let (rows, replies, notices, reads) = (Snapshot::default(), BTreeMap::new(), Vec::new(), Vec::new());
        let (records, record_bytes_max, reads_max, dropped) = (0, 0, 0, 0);
        let mut world = Self {
            island,
            ms: 0,
            rows,
            replies,
            notices,
            records,
            record_bytes_max,
            reads,
            reads_max,
            dropped,
            next: 1,
            is_stuck: false,
            links: BTreeMap::new(),
            acked: None,
        };
        world.pass(100);
        world
    }

    /// The process dies, and starts again with a checkpoint of all that was decided.
    fn restart(&mut self) {
        let life = self.island.config().life;
        self.restart_as(life);
    }

    /// The same, in a process that has this life.
    fn restart_as(&mut self, life: DaemonLife) {
        self.event(Event::CheckpointWanted);
        self.read();
        let state = self.rows.state();
        self.reads.clear();
        let config = Config { life, ..config() };
        self.island = Island::new(config, state, PreviousEnd::Death, self.now());
        self.pass(100);
    }

    fn now(&self) -> Now {
        Now { wall: Time::default(), ms: self.ms }
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    /// Everything that is being read is there, and what is read because of that.
    fn read(&mut self) {
        while !self.reads.is_empty() {
            self.reads_max = self.reads_max.max(self.reads.len());
            for read in std::mem::take(&mut self.reads) {
                self.event(read);
            }
        }
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(self.now(), event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, record, _) => {
                    self.appended(&record);
                    if !self.is_stuck {
                        self.event(Event::Committed(seq));
                    }
                }
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => _ = self.replies.insert(id, reply.outcome),
                Effect::Notice(_, notice) => self.notices.push(notice),
                Effect::Damaged(damage) => panic!("{damage}"),
                Effect::Load { load, generation } => {
                    let loaded = self.rows.load(&load);
                    self.reads.push(Event::Loaded { load, generation, loaded });
                }
                Effect::Body(ticket, BodyOp::Drop { .. }) => {
                    self.dropped += 1;
                    self.event(Event::BodyDone(ticket, Ok(BodyDone::Done)));
                }
                Effect::Checkpoint { frozen, .. } => {
                    self.rows.commit(frozen);
                    self.event(Event::CheckpointDone);
                }
                Effect::Send(..) | Effect::Beside(..) | Effect::Body(..) => {
                    unreachable!("nobody else is there, and no bytes")
                }
            }
        }
    }

    fn appended(&mut self, record: &Record) {
        let mut head = Vec::new();
        let carried: usize = record.encode_head(&mut head).map(<[u8]>::len).sum();
        self.records += 1;
        self.record_bytes_max = self.record_bytes_max.max(head.len() + carried);
    }

    fn ask(&mut self, session: SessionId, op: ClientOp) -> u64 {
        let id = self.next;
        self.next += 1;
        let seq = if matches!(op, ClientOp::Fs { .. }) { id } else { 0 };
        let table = self.island.config().table.version();
        let request = Request {
            session,
            seq,
            acked: self.acked.unwrap_or(seq),
            table,
            vector: Vec::new(),
            caller: Caller::ROOT,
            op,
        };
        let link = self.links.get(&session).copied().unwrap_or(LinkId(session.0));
        self.event(Event::Request { link, id, request, data: Bytes::new() });
        id
    }

    fn ok(&mut self, session: SessionId, op: Op) -> Answer {
        let id = self.ask(session, ClientOp::Fs { op });
        if !self.replies.contains_key(&id) {
            self.read();
        }
        match self.replies.remove(&id) {
            Some(Outcome::Ok { answer, .. }) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn attach(&mut self, session: SessionId) {
        let id = self.ask(session, ClientOp::Attach { mount: true });
        if !self.replies.contains_key(&id) {
            // The only mount must drop what it keeps first.
            self.ask(MOUNT, ClientOp::Dropped);
        }
        assert!(matches!(self.replies[&id], Outcome::Attached { .. }));
    }

    /// A new file, which has lost its name at once: each mount may have it open.
    fn orphan(&mut self, session: SessionId) -> Ino {
        let (dir, name) = (Ino::ROOT, Name::new(b"f").unwrap());
        let (kind, target) = (Kind::Regular, Bytes::new());
        let (mode, umask, rdev, exclusive) = (0o644, 0, 0, true);
        let create = Op::Create { dir, name: name.clone(), kind, mode, umask, rdev, exclusive, target };
        let Answer::Found { found } = self.ok(session, create) else { unreachable!("it is made") };
        self.ok(session, Op::Unlink { dir, name });
        found.attr.ino
    }

    /// A mount with so many files open that have no name.
    fn full(open: u64) -> (Self, Vec<Ino>) {
        let mut world = Self::new();
        world.attach(MOUNT);
        let inos = (0..open).map(|_| world.orphan(MOUNT)).collect();
        world.records = 0;
        (world, inos)
    }

    fn session(&self, session: SessionId) -> Option<&Session> {
        self.island.state().session(session)
    }

    /// Bodies go when their records are synced.
    fn bodies_go(&mut self) {
        (0..4).for_each(|_| self.pass(1_000));
    }

    /// Time passes, but for the mount as if it were dead, until its session is over.
    fn until_over(&mut self) {
        for _ in 0..10_000 {
            self.pass(50);
            self.read();
            if self.session(MOUNT).is_none() {
                return self.bodies_go();
            }
        }
        panic!("it never ends: {} are left", self.session(MOUNT).map_or(0, |row| row.held.len()));
    }
}

#[test]
fn a_mount_that_dies_with_a_hundred_thousand_files_open_ends_in_small_records() {
    let (mut world, _) = World::full(VERY_MANY);
    assert_eq!(world.session(MOUNT).unwrap().held.len() as u64, VERY_MANY);
    world.pass(SESSION_MS);
    world.until_over();
    assert_eq!(world.dropped, VERY_MANY);
    assert!(world.record_bytes_max < RECORD_BYTES_MAX, "a record of {} bytes", world.record_bytes_max);
    assert!(world.records as u64 > VERY_MANY / 1000, "{} records", world.records);
}

#[test]
fn few_rows_are_read_at_once_for_a_session_that_ends() {
    let (mut world, _) = World::full(MANY);
    // All rows go to the snapshot, and leave memory.
    for _ in 0..4 {
        world.ask(MOUNT, ClientOp::Renew);
        world.pass(11_000);
        world.read();
    }
    world.reads_max = 0;
    world.pass(SESSION_MS);
    world.until_over();
    assert_eq!(world.dropped, MANY);
    assert!(world.reads_max > 0, "the rows are not in memory");
    assert!(world.reads_max < 1000, "{} rows at once", world.reads_max);
}

#[test]
fn an_island_that_starts_again_goes_on_to_end_a_session() {
    let (mut world, _) = World::full(MANY);
    world.pass(SESSION_MS);
    assert!(world.session(MOUNT).is_some_and(|row| !row.held.is_empty()), "it takes several ticks");
    world.restart();
    assert!(world.session(MOUNT).is_some());
    world.pass(SESSION_MS);
    world.until_over();
    assert_eq!(world.dropped, MANY, "each file goes once");
}

#[test]
fn a_session_half_ended_is_ended_by_the_next_primary() {
    let (mut world, _) = World::full(MANY);
    world.pass(SESSION_MS);
    assert!(world.session(MOUNT).is_some_and(|row| !row.held.is_empty()), "it takes several ticks");
    world.restart();
    // The mount comes back before the rest is ended. It must not believe that it has everything that it had.
    let (again, new) =
        (world.ask(MOUNT, ClientOp::Dropped), world.ask(MOUNT, ClientOp::Attach { mount: true }));
    assert_eq!((&world.replies[&again], &world.replies[&new]), (&Outcome::NoSession, &Outcome::NotNow));
    // Nobody waits for the time after which a session ends: it has ended already.
    (0..10).for_each(|_| world.pass(50));
    world.read();
    assert_eq!(world.session(MOUNT), None);
    world.bodies_go();
    assert_eq!(world.dropped, MANY, "each file goes once");
    world.attach(MOUNT);
    assert_eq!(world.session(MOUNT).map(|row| row.held.len()), Some(0));
}

#[test]
fn who_is_told_that_its_session_has_ended_is_told_so_by_the_next_life_too() {
    let (mut world, _) = World::full(MANY);
    // All rows go to the snapshot, and leave memory: nothing can be let go of before they are read.
    for _ in 0..4 {
        world.ask(MOUNT, ClientOp::Renew);
        world.pass(11_000);
        world.read();
    }
    world.is_stuck = true;
    world.ask(MOUNT, ClientOp::Detach);
    assert_eq!(world.session(MOUNT).map(|row| row.held.len() as u64), Some(MANY));
    let told = world.ask(MOUNT, ClientOp::Renew);
    assert_eq!(world.replies.get(&told), None, "the next life would know nothing of it");
    world.is_stuck = false;
    world.event(Event::Committed(world.island.state().seq()));
    assert_eq!(world.replies.get(&told), Some(&Outcome::NoSession));
    world.reads.clear();
    world.restart();
    let again = world.ask(MOUNT, ClientOp::Renew);
    assert_eq!(world.replies.get(&again), Some(&Outcome::NoSession));
    world.until_over();
    assert_eq!(world.dropped, MANY);
}

#[test]
fn who_detaches_is_answered_when_all_is_let_go_of() {
    let (mut world, _) = World::full(MANY);
    let id = world.ask(MOUNT, ClientOp::Detach);
    assert!(!world.replies.contains_key(&id), "it holds more than one event ends");
    // Until then nobody uses the session, and none is begun in its place.
    let (read, again) =
        (world.ask(MOUNT, ClientOp::Renew), world.ask(MOUNT, ClientOp::Attach { mount: true }));
    assert_eq!((&world.replies[&read], &world.replies[&again]), (&Outcome::NoSession, &Outcome::NotNow));
    world.until_over();
    assert!(matches!(world.replies[&id], Outcome::Ok { .. }));
    world.attach(MOUNT);
    assert_eq!(world.session(MOUNT).map(|row| row.held.len()), Some(0));
}

#[test]
fn one_release_of_very_many_files_is_small_records() {
    let (mut world, inos) = World::full(MANY);
    let twice = [inos.clone(), inos].concat();
    let id = world.ask(MOUNT, ClientOp::Release { inos: twice });
    world.read();
    assert!(matches!(world.replies[&id], Outcome::Ok { .. }));
    world.bodies_go();
    assert_eq!((world.dropped, world.session(MOUNT).unwrap().held.len()), (MANY, 0));
    assert!(world.record_bytes_max < RECORD_BYTES_MAX, "a record of {} bytes", world.record_bytes_max);
}

#[test]
fn a_mount_is_told_of_its_orphans_again_a_few_at_a_time() {
    let (mut world, inos) = World::full(MANY);
    world.notices.clear();
    let link = LinkId(100);
    let table = world.island.config().table.version();
    let (vector, caller, op) = (Vec::new(), Caller::ROOT, ClientOp::Dropped);
    let request = Request { session: MOUNT, seq: 0, acked: 0, table, vector, caller, op };
    world.event(Event::Request { link, id: 1 << 40, request, data: Bytes::new() });
    let first = world.notices.len();
    assert!(first > 0 && first < 2000, "{first} at once");
    for _ in 0..MANY / 500 {
        world.pass(50);
    }
    let told: Vec<Notice> = inos.iter().map(|ino| Notice::Orphan { ino: *ino }).collect();
    assert_eq!(world.notices, told, "each once, in order");
}

#[test]
fn locks_of_a_session_that_ends_are_let_go_of_in_records_that_fit() {
    let mut world = World::new();
    world.attach(MOUNT);
    world.attach(OTHER);
    // Each row has as many locks as there may be on a file: most of them the other's, so that they stay.
    for n in 0..2u64 {
        let (dir, name) = (Ino::ROOT, Name::new(format!("f{n}").as_bytes()).unwrap());
        let (kind, target) = (Kind::Regular, Bytes::new());
        let create = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
        let Answer::Found { found } = world.ok(MOUNT, create) else { unreachable!("it is made") };
        let ino = found.attr.ino;
        for (session, at) in (0..8191).map(|at| (OTHER, at)).chain([(MOUNT, 8191)]) {
            let (start, end) = (at * 2, at * 2);
            let lock = LockRange { start, end, kind: LockKind::Write, owner: 1, pid: 1, flock: false };
            world.ok(session, Op::SetLock { ino, lock, wait: false });
        }
    }
    let before = world.record_bytes_max;
    world.record_bytes_max = 0;
    world.ask(MOUNT, ClientOp::Detach);
    world.until_over();
    assert_eq!(world.session(OTHER).map(|row| row.held.len()), Some(2));
    assert!(world.record_bytes_max < 2 * before, "{} bytes after {before}", world.record_bytes_max);
    assert!(world.record_bytes_max < RECORD_BYTES_MAX, "a record of {} bytes", world.record_bytes_max);
}

#[test]
fn a_lock_that_is_waited_for_does_not_keep_the_results_of_all_that_is_done_meanwhile() {
    let mut world = World::new();
    world.attach(MOUNT);
    world.attach(OTHER);
    let lock = |kind| LockRange { start: 0, end: 9, kind, owner: 1, pid: 1, flock: false };
    let set = |kind, wait| Op::SetLock { ino: Ino::ROOT, lock: lock(kind), wait };
    world.ok(OTHER, set(LockKind::Write, false));
    let waits = world.ask(MOUNT, ClientOp::Fs { op: set(LockKind::Write, true) });
    world.acked = Some(waits);
    for _ in 0..RESULTS_MAX / 2 + 1 {
        world.orphan(MOUNT);
    }
    let kept = world.session(MOUNT).unwrap().results.len();
    assert!(kept <= RESULTS_MAX && kept > RESULTS_MAX / 2, "{kept} results");
    // On a new link it is asked for again.
    assert!(!world.replies.contains_key(&waits));
    let table = world.island.config().table.version();
    let op = ClientOp::Fs { op: set(LockKind::Write, true) };
    let (vector, caller) = (Vec::new(), Caller::ROOT);
    let request = Request { session: MOUNT, seq: waits, acked: waits, table, vector, caller, op };
    let (link, id) = (LinkId(100), 1 << 40);
    world.event(Event::LinkClosed { link: LinkId(MOUNT.0), ended: false });
    world.event(Event::Request { link, id, request, data: Bytes::new() });
    world.acked = None;
    world.ok(OTHER, set(LockKind::Unlock, false));
    assert!(matches!(world.replies.get(&id), Some(Outcome::Ok { .. })), "{:?}", world.replies.get(&id));
}

#[test]
pub(crate) fn a_local_mount_of_a_deposed_primary_keeps_its_locks() {
    let life = |daemon, incarnation| DaemonLife { daemon, incarnation };
    let lock = LockRange { start: 0, end: 9, kind: LockKind::Write, owner: 1, pid: 1, flock: false };
    let set = Op::SetLock { ino: Ino::ROOT, lock, wait: false };
    // What serves the island next, and whether it proves that the mount's process is dead.
    for (next, is_dead) in [
        (life(1, 5), false),
        (life(1, 6), true),
        (life(1, 4), false),
        (life(2, 1), false),
        (life(2, 9), false),
    ] {
        let mut world = World::new();
        world.restart_as(life(1, 5));
        world.links.insert(MOUNT, LinkId::local(1));
        world.attach(MOUNT);
        world.ok(MOUNT, set.clone());
        world.restart_as(next);
        world.read();
        assert_eq!(world.session(MOUNT).is_none(), is_dead, "{next:?}");
        // The mount lives, and reaches the island from where it is.
        world.links.insert(MOUNT, LinkId(1));
        let again = world.ask(MOUNT, ClientOp::Dropped);
        assert_eq!(world.replies[&again] == Outcome::NoSession, is_dead, "{next:?}");
        world.attach(OTHER);
        let other = world.ask(OTHER, ClientOp::Fs { op: set.clone() });
        world.read();
        let is_free = matches!(world.replies[&other], Outcome::Ok { .. });
        assert_eq!(is_free, is_dead, "{next:?}: {:?}", world.replies[&other]);
    }
}

#[test]
fn a_local_mount_that_does_not_come_back_ends_like_any_other() {
    let mut world = World::new();
    world.restart_as(DaemonLife { daemon: 1, incarnation: 5 });
    world.links.insert(MOUNT, LinkId::local(1));
    world.attach(MOUNT);
    world.restart_as(DaemonLife { daemon: 2, incarnation: 1 });
    world.pass(14_000);
    assert!(world.session(MOUNT).is_some(), "it has time to show up");
    world.pass(2_000);
    world.read();
    assert_eq!(world.session(MOUNT), None);
}
