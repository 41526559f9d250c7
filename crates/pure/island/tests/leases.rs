//! Mounts that keep what they are told: when they are told so, and what a change of another one waits for.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, SessionId, Table};
use atoll_island::{BodyDone, BodyFault, BodyOpId, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Errno, Kind, LockKind, LockRange, Op, RenameMode, SetAttr};
use atoll_proto::{ClientOp, Lease, MayKeep, Notice, Outcome, Record, Request};
use atoll_state::State;
use bytes::Bytes;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
/// A lease, and longer, in milliseconds.
const LEASE_MS: u64 = 15_000;
/// Behind a change nothing is kept for so long.
const QUIET_MS: u64 = 2_000;
/// Without changes by others for so long a mount counts as keeping everything.
const WHOLE_MS: u64 = 10_000;

struct World {
    island: Island,
    ms: u64,
    next: u64,
    /// Syncs do not end.
    holds_syncs: bool,
    /// Bodies that were written to, and answer nothing while this is held.
    bodies: Option<Vec<BodyOpId>>,
    records: Vec<(u64, Record)>,
    /// Mounts that were told to drop something, or everything.
    recalled: Vec<SessionId>,
    /// What they were told to drop, with the recalls' numbers, if not everything.
    recalled_of: Vec<(SessionId, u64, Vec<Ino>)>,
    answers: BTreeMap<u64, Outcome>,
    /// Whether each answer may be kept.
    kept: BTreeMap<u64, MayKeep>,
    /// Files of which a mount was told that they have changed.
    changed: Vec<(SessionId, Vec<Ino>)>,
}

fn config() -> Config {
    Config { rows_max: 1 << 40, ..Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]) }
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn chmod(ino: Ino) -> Op {
    Op::SetAttr { ino, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }
}

impl World {
    fn of(island: Island) -> Self {
        let (records, recalled, answers, kept) = (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (ms, next, holds_syncs, bodies, changed) = (0, 0, false, None, Vec::new());
        let recalled_of = Vec::new();
        let mut world = Self {
            island,
            ms,
            next,
            holds_syncs,
            bodies,
            records,
            recalled,
            recalled_of,
            answers,
            kept,
            changed,
        };
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
                Effect::Reply { id, reply, .. } => {
                    self.kept.insert(id, reply.may_keep);
                    self.answers.insert(id, reply.outcome);
                }
                Effect::Notice(link, Notice::Changed { inos, .. }) => {
                    self.changed.push((SessionId(link.0), inos));
                }
                Effect::Notice(link, Notice::Recall) => self.recalled.push(SessionId(link.0)),
                Effect::Notice(link, Notice::RecallOf { recall, inos }) => {
                    self.recalled.push(SessionId(link.0));
                    self.recalled_of.push((SessionId(link.0), recall, inos));
                }
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
        self.found(id)
    }

    /// Whether a mount may keep the answer to this.
    fn keeps(&mut self, mount: SessionId, op: Op) -> bool {
        let id = self.does(mount, op);
        self.kept[&id] == MayKeep::Yes
    }

    /// Two mounts that may keep what they are told, of which is noted what that is.
    fn noted() -> Self {
        let mut world = Self::new();
        world.mkdir(A, "of-a");
        world.says(B, ClientOp::Dropped);
        world.mkdir(B, "of-b");
        world.says(A, ClientOp::Dropped);
        world.passes_with(&[A, B], QUIET_MS);
        assert!(world.renews(A) && world.renews(B));
        world.recalled.clear();
        world
    }

    /// A new file in a directory.
    fn makes(&mut self, session: SessionId, dir: Ino, text: &str) -> Ino {
        let (name, target, kind) = (name(text), Bytes::new(), Kind::Regular);
        let (mode, umask, rdev, exclusive) = (0o644, 0, 0, true);
        let id = self.does(session, Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target });
        self.found(id)
    }

    fn found(&self, id: u64) -> Ino {
        match self.answers.get(&id) {
            Some(Outcome::Ok { answer: Answer::Found { found }, .. }) => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    /// The directory that a mount has made under this name.
    fn dir(&mut self, session: SessionId, text: &str) -> Ino {
        let id = self.does(session, Op::Lookup { dir: Ino::ROOT, name: name(text) });
        self.found(id)
    }

    /// What a mount is allowed to keep, by the answer to its next sign of life.
    fn lease(&mut self, mount: SessionId) -> Lease {
        let id = self.asks(mount, ClientOp::Lease);
        match self.answers.get(&id) {
            Some(Outcome::Attached { lease, .. }) => *lease,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a mount may keep what it is told, by the answer to this.
    fn says(&mut self, mount: SessionId, op: ClientOp) -> bool {
        let id = self.asks(mount, op);
        match self.answers.get(&id) {
            Some(Outcome::Attached { lease, .. }) => *lease != Lease::No,
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
fn a_mount_may_keep_nothing_for_a_while_of_what_another_one_has_changed() {
    let mut world = World::new();
    world.mkdir(A, "d");
    world.says(B, ClientOp::Dropped);
    assert!(world.renews(B));
    let look = || Op::Lookup { dir: Ino::ROOT, name: name("d") };
    let listing = |dir| Op::ReadDir { dir, after: 0, bytes: 1 << 16, plus: true };
    let dir = world.dir(B, "d");
    world.passes_with(&[A, B], QUIET_MS - 1);
    assert!(!world.keeps(B, look()) && world.keeps(B, listing(dir)));
    world.pass(1);
    assert!(world.keeps(B, look()));
    world.recalled.clear();
    // Who changes something all the time waits once.
    world.mkdir(A, "first");
    assert_eq!(world.recalled, [B]);
    world.says(B, ClientOp::Dropped);
    world.recalled.clear();
    for n in 0..10 {
        let made = world.mkdir(A, &format!("d{n}"));
        assert!(world.is_done(made));
        world.passes_with(&[A, B], QUIET_MS / 2);
        assert!(!world.keeps(B, look()));
    }
    assert_eq!(world.recalled, []);
}

/// Sequence j.
pub(crate) fn a_change_waits_for_those_who_were_told_what_it_changes_and_for_nobody_else() {
    let mut world = World::noted();
    let [of_a, of_b] = [(A, "of-a"), (B, "of-b")].map(|(mount, dir)| world.dir(mount, dir));
    let files = [(A, of_a), (B, of_b)].map(|(mount, dir)| world.makes(mount, dir, "f"));
    for n in 0..3 {
        for (mount, dir, file) in [(A, of_a, files[0]), (B, of_b, files[1])] {
            world.does(mount, chmod(file));
            world.makes(mount, dir, &format!("f{n}"));
            assert!(world.keeps(mount, Op::GetAttr { ino: file }));
        }
    }
    assert_eq!(world.recalled, []);
    // B is told of the file alone, and of its name.
    assert!(world.keeps(B, Op::GetAttr { ino: files[0] }));
    world.makes(A, of_a, "more");
    assert_eq!(world.recalled, []);
    let changed = world.does(A, chmod(files[0]));
    assert_eq!(world.recalled, [B]);
    assert!(!world.is_done(changed));
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(changed));
    assert!(world.renews(B));
    world.recalled.clear();
    assert!(world.keeps(B, Op::Lookup { dir: of_a, name: name("absent") }));
    let made = world.does(A, Op::Mkdir { dir: of_a, name: name("absent"), mode: 0o755, umask: 0 });
    assert_eq!(world.recalled, [B]);
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(made));
}

/// Sequence p.
pub(crate) fn a_recall_names_what_changes_and_what_else_is_kept_is_kept() {
    let mut world = World::noted();
    let dir = world.dir(A, "of-a");
    let [first, second] = ["f1", "f2"].map(|text| world.makes(A, dir, text));
    for ino in [first, second] {
        assert!(world.keeps(B, Op::GetAttr { ino }));
    }
    let changed = world.does(A, chmod(first));
    assert_eq!(world.recalled_of, [(B, 1, vec![first])]);
    assert!(!world.is_done(changed));
    assert!(!world.keeps(B, Op::GetAttr { ino: first }) && world.keeps(B, Op::GetAttr { ino: second }));
    assert!(world.says(B, ClientOp::DroppedOf { recall: 1 }), "its lease goes on");
    assert!(world.is_done(changed));
    let again = world.does(A, chmod(first));
    assert!(world.is_done(again), "B keeps nothing of it");
    let other = world.does(A, chmod(second));
    assert_eq!(world.recalled_of[1..], [(B, 2, vec![second])]);
    // The answer to an earlier recall, once more.
    world.says(B, ClientOp::DroppedOf { recall: 1 });
    assert!(!world.is_done(other));
    world.says(B, ClientOp::DroppedOf { recall: 2 });
    assert!(world.is_done(other));
}

/// Sequence q: its kernel asks for attributes before it gives these bytes to anybody.
#[test]
fn a_change_does_not_wait_for_who_reads_the_same_bytes_again_and_again() {
    let mut world = World::noted();
    let dir = world.dir(A, "of-a");
    let file = world.makes(A, dir, "f");
    let read = || Op::Read { ino: file, offset: 0, len: 0 };
    assert!(world.keeps(B, read()));
    let changed = world.does(A, chmod(file));
    assert!(!world.keeps(B, read()) && !world.is_done(changed));
    world.says(B, ClientOp::DroppedOf { recall: 1 });
    assert!(world.is_done(changed));
    assert_eq!(world.changed, [(B, vec![file])], "it may have read them before");
    assert_eq!(world.recalled, [B]);
}

/// Sequence r.
#[test]
fn a_mount_that_answers_no_recall_of_a_file_holds_others_up_for_a_lease_and_is_known_to_live() {
    let mut world = World::noted();
    let dir = world.dir(A, "of-a");
    let [file, other] = ["f1", "f2"].map(|text| world.makes(A, dir, text));
    assert!(world.keeps(B, Op::GetAttr { ino: file }));
    let changed = world.does(A, chmod(file));
    world.passes_with(&[A, B], QUIET_MS);
    assert!(!world.renews(B), "what it says extends nothing");
    world.passes_with(&[A, B], LEASE_MS - 2_000);
    assert!(!world.is_done(changed));
    world.passes_with(&[A, B], 2_000);
    assert!(world.is_done(changed));
    assert!(!world.renews(B), "it was slow");
    world.passes_with(&[A, B], 9 * LEASE_MS);
    assert!(world.renews(B) && world.keeps(B, Op::GetAttr { ino: other }), "it begins anew");
}

#[test]
fn a_mount_that_was_slow_to_drop_something_may_keep_nothing_for_eight_times_as_long() {
    let mut world = World::noted();
    let dir = world.dir(A, "of-a");
    let [file, other] = ["f1", "f2"].map(|text| world.makes(A, dir, text));
    assert!(world.keeps(B, Op::GetAttr { ino: file }));
    let changed = world.does(A, chmod(file));
    world.passes_with(&[A, B], 1_000);
    world.says(B, ClientOp::DroppedOf { recall: 1 });
    assert!(world.is_done(changed));
    world.passes_with(&[A, B], 8_000 - 1);
    assert!(!world.keeps(B, Op::GetAttr { ino: other }));
    world.pass(1);
    assert!(world.keeps(B, Op::GetAttr { ino: other }));
}

#[test]
fn who_attaches_anew_has_dropped_what_it_was_told_to_drop() {
    let mut world = World::noted();
    let dir = world.dir(A, "of-a");
    let file = world.makes(A, dir, "f");
    assert!(world.keeps(B, Op::GetAttr { ino: file }));
    let changed = world.does(A, chmod(file));
    assert!(!world.is_done(changed));
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(changed));
}

#[test]
fn a_change_of_which_is_not_known_what_it_changes_waits_for_all_who_keep_anything() {
    let mut world = World::noted();
    let [dir, new_dir] = ["of-a", "of-b"].map(|dir| world.dir(A, dir));
    let sub = Op::Mkdir { dir, name: name("sub"), mode: 0o755, umask: 0 };
    world.does(A, sub);
    let rename = |name: &str| {
        let (name, new_name) = (self::name(name), self::name("to"));
        let (mode, meant, new_meant) = (RenameMode::Replace, None, None);
        Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }
    };
    let moved = world.does(A, rename("sub"));
    assert_eq!(world.recalled, [B]);
    world.says(B, ClientOp::Dropped);
    assert!(world.is_done(moved));
    assert!(!world.renews(B), "all islands may tell of it");
    world.passes_with(&[A, B], QUIET_MS);
    assert!(world.renews(B));
}

#[test]
fn of_a_mount_that_is_alone_in_changing_things_nothing_is_noted() {
    let mut world = World::noted();
    assert_eq!((world.lease(A), world.lease(B)), (Lease::Noted, Lease::Noted));
    world.passes_with(&[A, B], WHOLE_MS);
    assert_eq!((world.lease(A), world.lease(B)), (Lease::Whole, Lease::Whole));
    // It is recalled for anything then, once.
    world.mkdir(A, "d");
    assert_eq!(world.recalled, [B]);
    world.says(B, ClientOp::Dropped);
    assert_eq!((world.lease(A), world.lease(B)), (Lease::Whole, Lease::Noted));
}

/// A kernel keeps bytes of a file that is open, whatever it is told of its attributes.
#[test]
fn who_has_read_bytes_while_they_changed_is_told_so() {
    let mut world = World::noted();
    let dir = world.dir(A, "of-a");
    let file = world.makes(A, dir, "f");
    world.bodies = Some(Vec::new());
    let id = world.does(A, Op::Write { ino: file, offset: 0, append: false, kill_set_id: false });
    assert!(!world.answers.contains_key(&id), "the disk is slow");
    assert!(!world.keeps(B, Op::GetAttr { ino: file }));
    let read = Op::Read { ino: file, offset: 0, len: 0 };
    assert!(!world.keeps(B, read));
    for ticket in world.bodies.take().unwrap() {
        world.event(Event::BodyDone(ticket, Err(BodyFault(Errno::EIO))));
    }
    assert!(world.answers.contains_key(&id));
    assert_eq!(world.changed, [(B, vec![file])]);
    world.does(A, chmod(file));
    assert_eq!(world.recalled, [B], "it has them still");
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
    let look = || Op::GetAttr { ino: file };
    assert!(world.renews(B) && !world.keeps(B, look()));
    for ticket in world.bodies.take().unwrap() {
        world.event(Event::BodyDone(ticket, Err(BodyFault(Errno::EIO))));
    }
    assert!(world.answers.contains_key(&id));
    assert!(world.keeps(B, look()));
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
    assert!(
        asked.iter().all(|id| matches!(
            world.answers[id],
            Outcome::Attached { lease: Lease::Noted | Lease::Whole, .. }
        ))
    );
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
    let mut world = World::of(Island::new(config(), State::new(1), PreviousEnd::Orderly, Now::default()));
    for mount in [A, B] {
        world.says(mount, ClientOp::Attach { mount: true });
    }
    assert!(world.renews(A) && !world.says(B, ClientOp::Renew));
    let mut world = world.dies();
    world.says(A, ClientOp::Dropped);
    let made = world.mkdir(A, "d");
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
    a_change_waits_for_those_who_were_told_what_it_changes_and_for_nobody_else();
    a_recall_names_what_changes_and_what_else_is_kept_is_kept();
    while_another_one_changes_something_a_mount_may_keep_nothing();
    a_mount_is_told_that_it_may_keep_something_when_that_survives_a_power_cut();
    an_island_that_starts_waits_for_mounts_that_may_keep_something();
}

#[test]
fn nobody_is_recalled_for_what_a_limited_client_may_not_ask_for() {
    let mut world = World::new();
    let outside = world.file();
    let made = world.mkdir(A, "dir");
    let scope = world.found(made);
    world.asks(B, ClientOp::Detach);
    let limited = B;
    world.says(limited, ClientOp::AttachWithin { mount: true, scope });
    assert!(world.renews(A));
    world.passes_with(&[A], QUIET_MS);
    assert!(world.keeps(A, Op::GetAttr { ino: outside }));
    world.recalled.clear();
    let id = world.does(limited, chmod(outside));
    assert!(matches!(world.answers.get(&id), Some(Outcome::Failed { errno: Errno::ESTALE })));
    assert_eq!(world.recalled, []);
    // What it sees it may change, and that is waited for.
    assert!(world.keeps(A, Op::GetAttr { ino: scope }));
    world.does(limited, chmod(scope));
    assert_eq!(world.recalled, [A]);
}
