//! Mounts that keep what they are told: when they are told so, and what a change of another one waits for.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, SessionId, Table};
use atoll_island::{BodyDone, BodyFault, BodyOpId, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Errno, Kind, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, Notice, Outcome, Record, Request};
use atoll_state::State;
use bytes::Bytes;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
/// A lease, and longer, in milliseconds.
const LEASE_MS: u64 = 15_000;
/// Behind a change nothing is kept for so long.
const QUIET_MS: u64 = 2_000;

struct World {
    island: Island,
    ms: u64,
    next: u64,
    /// Syncs do not end.
    holds_syncs: bool,
    /// Bodies that were written to, and answer nothing while this is held.
    bodies: Option<Vec<BodyOpId>>,
    records: Vec<(u64, Record)>,
    recalled: Vec<SessionId>,
    answers: BTreeMap<u64, Outcome>,
}

fn config() -> Config {
    Config { rows_max: 1 << 40, ..Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]) }
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

impl World {
    fn of(island: Island) -> Self {
        let (records, recalled, answers) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (ms, next, holds_syncs, bodies) = (0, 0, false, None);
        let mut world = Self { island, ms, next, holds_syncs, bodies, records, recalled, answers };
        world.pass(0);
        world
    }

    /// With two mounts, which may keep what they are told.
    fn new() -> Self {
        let mut world = Self::of(Island::new(config(), State::new(1), PreviousEnd::Orderly, Now::default()));
        for mount in [A, B] {
            world.says(mount, ClientOp::Attach { mount: true });
        }
        for mount in [A, B] {
            assert!(world.renews(mount));
        }
        world
    }

    /// The island's process ends, and it is started again.
    fn dies(self) -> Self {
        let mut state = State::new(1);
        for (seq, record) in &self.records {
            record.changes.iter().for_each(|change| state.apply(*seq, change));
        }
        let mut world = Self::of(Island::new(config(), state, PreviousEnd::Death, Now::default()));
        world.next = self.next;
        world
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(Now { ms: self.ms, ..Now::default() }, event, &mut out);
        let mut next = Vec::new();
        for effect in out {
            match effect {
                Effect::Append(seq, record, _) => {
                    self.records.push((seq, record));
                    next.push(Event::Committed(seq));
                }
                Effect::Sync if self.holds_syncs => {}
                Effect::Sync => next.push(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => drop(self.answers.insert(id, reply.outcome)),
                Effect::Notice(link, Notice::Recall) => self.recalled.push(SessionId(link.0)),
                Effect::Body(ticket, _) => match &mut self.bodies {
                    Some(bodies) => bodies.push(ticket),
                    None => next.push(Event::BodyDone(ticket, Ok(BodyDone::Done))),
                },
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    next.push(Event::Loaded { load, generation, loaded });
                }
                Effect::Checkpoint { .. } => next.push(Event::CheckpointDone),
                other => panic!("{other:?}"),
            }
        }
        next.into_iter().for_each(|event| self.event(event));
        self.island.check();
    }

    /// Time passes; both mounts have nothing to say.
    fn pass(&mut self, ms: u64) {
        let until = self.ms + ms;
        while self.ms < until {
            self.ms = until.min(self.ms + 50);
            self.event(Event::Tick { bytes_available: 1 << 40 });
        }
        if ms == 0 {
            self.event(Event::Tick { bytes_available: 1 << 40 });
        }
    }

    /// The same; these mounts go on giving signs of life.
    fn passes_with(&mut self, mounts: &[SessionId], ms: u64) {
        let until = self.ms + ms;
        while self.ms < until {
            self.pass(1_000.min(until - self.ms));
            mounts.iter().for_each(|mount| _ = self.renews(*mount));
        }
    }

    fn asks(&mut self, session: SessionId, op: ClientOp) -> u64 {
        self.next += 1;
        let (id, vector, caller) = (self.next, Vec::new(), Caller::ROOT);
        let seq = if matches!(op, ClientOp::Fs { .. }) { id } else { 0 };
        let writes = matches!(op, ClientOp::Fs { op: Op::Write { .. } });
        let data = Bytes::from(vec![7; if writes { 1 << 20 } else { 0 }]);
        let request = Request { session, seq, acked: 0, table: 1, vector, caller, op };
        self.event(Event::Request { link: LinkId(session.0), id, request, data });
        id
    }

    fn does(&mut self, session: SessionId, op: Op) -> u64 {
        self.asks(session, ClientOp::Fs { op })
    }

    fn mkdir(&mut self, session: SessionId, dir: &str) -> u64 {
        self.does(session, Op::Mkdir { dir: Ino::ROOT, name: name(dir), mode: 0o755, umask: 0 })
    }

    fn is_done(&self, id: u64) -> bool {
        match self.answers.get(&id) {
            None => false,
            Some(Outcome::Ok { .. }) => true,
            other => panic!("{other:?}"),
        }
    }

    /// One makes a file, and the other one keeps nothing.
    fn file(&mut self) -> Ino {
        let (dir, name, target, kind) = (Ino::ROOT, name("file"), Bytes::new(), Kind::Regular);
        let (mode, umask, rdev, exclusive) = (0o644, 0, 0, true);
        let id = self.does(A, Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target });
        self.says(B, ClientOp::Dropped);
        match self.answers.get(&id) {
            Some(Outcome::Ok { answer: Answer::Found { found }, .. }) => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a mount may keep what it is told, by the answer to this.
    fn says(&mut self, mount: SessionId, op: ClientOp) -> bool {
        let id = self.asks(mount, op);
        match self.answers.get(&id) {
            Some(Outcome::Attached { may_keep, .. }) => *may_keep,
            other => panic!("{other:?}"),
        }
    }

    fn renews(&mut self, mount: SessionId) -> bool {
        self.says(mount, ClientOp::Lease)
    }
}

#[test]
fn a_change_waits_until_the_other_mount_has_dropped_what_it_kept_and_looks_go_on() {
    let mut world = World::new();
    let made = world.mkdir(A, "d");
    assert_eq!(world.recalled, [B], "and not who changes it");
    assert!(!world.is_done(made));
    let look = world.does(B, Op::Lookup { dir: Ino::ROOT, name: name("d") });
    assert!(world.answers.contains_key(&look), "looks do not wait");
    assert!(!world.says(B, ClientOp::Lease), "a mere sign of life answers no recall");
    assert!(!world.is_done(made));
    assert!(!world.says(B, ClientOp::Dropped));
    assert!(world.is_done(made));
    assert!(world.renews(A), "nobody else has changed anything");
}

#[test]
fn a_mount_may_keep_nothing_for_a_while_behind_the_change_of_another_one() {
    let mut world = World::new();
    world.mkdir(A, "d");
    world.says(B, ClientOp::Dropped);
    world.passes_with(&[A], QUIET_MS - 1);
    assert!(!world.renews(B));
    world.pass(1);
    assert!(world.renews(B));
    // Who changes something all the time waits once.
    world.mkdir(A, "first");
    world.says(B, ClientOp::Dropped);
    world.recalled.clear();
    for n in 0..10 {
        let made = world.mkdir(A, &format!("d{n}"));
        assert!(world.is_done(made));
        world.passes_with(&[A, B], QUIET_MS / 2);
    }
    assert_eq!(world.recalled, []);
}

#[test]
fn locks_of_others_recall_nothing() {
    let mut world = World::new();
    let file = world.file();
    world.passes_with(&[A, B], 2 * QUIET_MS);
    assert!(world.renews(B));
    world.recalled.clear();
    let lock = LockRange { start: 0, end: 9, kind: LockKind::Write, owner: 1, pid: 1, flock: false };
    let locked = world.does(A, Op::SetLock { ino: file, lock, wait: false });
    assert!(world.is_done(locked));
    assert_eq!(world.recalled, []);
    // Nor does one that is waited for.
    world.does(A, Op::SetLock { ino: file, lock: LockRange { owner: 2, ..lock }, wait: true });
    assert!(world.renews(B));
}

/// Sequence c: what it says of other rows may change yet.
pub(crate) fn while_another_one_changes_something_a_mount_may_keep_nothing() {
    let mut world = World::new();
    let file = world.file();
    world.passes_with(&[A, B], 2 * QUIET_MS);
    assert!(world.renews(B));
    world.bodies = Some(Vec::new());
    let write = Op::Write { ino: file, offset: 0, append: false, kill_set_id: false };
    let id = world.does(A, write);
    world.says(B, ClientOp::Dropped);
    world.passes_with(&[A, B], 2 * QUIET_MS);
    assert!(!world.answers.contains_key(&id), "the disk is slow");
    assert!(!world.renews(B));
    for ticket in world.bodies.take().unwrap() {
        world.event(Event::BodyDone(ticket, Err(BodyFault(Errno::EIO))));
    }
    assert!(world.answers.contains_key(&id));
    assert!(!world.renews(B), "it was changed just now");
    world.passes_with(&[A, B], 2 * QUIET_MS);
    assert!(world.renews(B));
}

/// Sequence e.
pub(crate) fn a_mount_is_told_that_it_may_keep_something_when_that_survives_a_power_cut() {
    let mut world = World::of(Island::new(config(), State::new(1), PreviousEnd::Orderly, Now::default()));
    world.says(A, ClientOp::Attach { mount: true });
    world.holds_syncs = true;
    let asked = [(); 2].map(|()| world.asks(A, ClientOp::Lease));
    world.pass(QUIET_MS);
    assert!(asked.iter().all(|id| !world.answers.contains_key(id)), "it is written down first");
    world.holds_syncs = false;
    world.event(Event::Synced(world.island.state().seq()));
    assert!(asked.iter().all(|id| matches!(world.answers[id], Outcome::Attached { may_keep: true, .. })));
    assert!(world.renews(A));
}

/// Sequence d.
pub(crate) fn an_island_that_starts_waits_for_mounts_that_may_keep_something() {
    let mut world = World::new().dies();
    world.says(A, ClientOp::Dropped);
    let made = world.mkdir(A, "d");
    world.passes_with(&[A], LEASE_MS / 2);
    assert!(!world.is_done(made));
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(made));
    // Or until they can use nothing any more.
    let mut world = World::new().dies();
    world.says(A, ClientOp::Dropped);
    let made = world.mkdir(A, "d");
    world.passes_with(&[A], LEASE_MS + 100);
    assert!(world.is_done(made));
}

#[test]
fn an_island_that_starts_does_not_wait_for_mounts_that_kept_nothing() {
    let mut world = World::new();
    world.mkdir(A, "d");
    world.says(B, ClientOp::Dropped);
    // It is told for a minute that it may not.
    for n in 0..61 {
        world.mkdir(A, &format!("d{n}"));
        world.passes_with(&[A, B], 1_000);
    }
    let mut world = world.dies();
    world.says(A, ClientOp::Dropped);
    let made = world.mkdir(A, "e");
    assert!(world.is_done(made));
}

#[test]
fn a_mount_that_answers_no_recall_holds_others_up_for_a_lease_and_then_not_for_long() {
    let mut world = World::new();
    let made = world.mkdir(A, "d");
    // Its signs of life, and all that it asks for, extend nothing.
    world.passes_with(&[A, B], LEASE_MS - 100);
    assert!(!world.is_done(made));
    world.passes_with(&[A, B], 200);
    assert!(world.is_done(made));
    world.passes_with(&[A, B], 7 * LEASE_MS);
    assert!(!world.says(B, ClientOp::Dropped) && !world.renews(B), "it was slow");
    world.passes_with(&[A, B], 2 * LEASE_MS);
    assert!(world.renews(B));
}

#[test]
fn a_change_whose_link_ends_while_it_waits_is_not_begun() {
    let mut world = World::new();
    let made = world.mkdir(A, "d");
    world.event(Event::LinkClosed { link: LinkId(A.0), ended: true });
    world.says(B, ClientOp::Dropped);
    assert!(!world.answers.contains_key(&made));
    let look = world.does(B, Op::Lookup { dir: Ino::ROOT, name: name("d") });
    assert!(matches!(world.answers[&look], Outcome::Failed { .. }), "{:?}", world.answers[&look]);
}

#[test]
fn a_change_whose_caller_is_interrupted_while_it_waits_is_not_begun() {
    let mut world = World::new();
    let made = world.mkdir(A, "d");
    world.asks(A, ClientOp::Cancel { request: made });
    assert_eq!(world.answers[&made], Outcome::Failed { errno: Errno::EINTR });
    world.says(B, ClientOp::Dropped);
    let look = world.does(B, Op::Lookup { dir: Ino::ROOT, name: name("d") });
    assert_eq!(world.answers[&look], Outcome::Failed { errno: Errno::ENOENT });
}

#[test]
fn what_a_mount_said_before_it_was_told_that_it_may_keep_something_answers_no_recall() {
    let mut world = World::new();
    world.next += 1;
    let early = world.next;
    assert!(world.renews(B));
    let made = world.mkdir(A, "d");
    // Said before, and read only now.
    let last = std::mem::replace(&mut world.next, early - 1);
    world.says(B, ClientOp::Dropped);
    world.next = last;
    assert!(!world.is_done(made));
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(made));
}

#[test]
fn a_mount_that_keeps_nothing_is_waited_for_by_nobody() {
    let mut world = World::new();
    world.mkdir(A, "d");
    world.says(B, ClientOp::Dropped);
    for _ in 0..5 {
        world.pass(1_000);
        assert!(!world.says(B, ClientOp::Renew) && world.renews(A));
    }
    let made = world.mkdir(A, "e");
    assert!(world.is_done(made));
}

#[test]
fn two_mounts_that_change_something_at_once_do_not_wait_for_each_other() {
    let mut world = World::new();
    let first = world.mkdir(A, "a");
    let second = world.mkdir(B, "b");
    assert_eq!(world.recalled, [B, A]);
    world.says(A, ClientOp::Dropped);
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(first) && world.is_done(second));
}

#[test]
fn more_changes_than_may_wait_are_sent_back() {
    let mut world = World::new();
    let made: Vec<u64> = (0..5_000).map(|n| world.mkdir(A, &format!("d{n}"))).collect();
    let sent_back = |id: &&u64| matches!(world.answers.get(id), Some(Outcome::NotNow));
    assert_eq!(made.iter().filter(sent_back).count(), 5_000 - 4_096);
    world.says(B, ClientOp::Dropped);
    assert!(made[..4_096].iter().all(|id| world.is_done(*id)));
}

#[test]
fn what_the_sequences_say_holds() {
    while_another_one_changes_something_a_mount_may_keep_nothing();
    a_mount_is_told_that_it_may_keep_something_when_that_survives_a_power_cut();
    an_island_that_starts_waits_for_mounts_that_may_keep_something();
}
