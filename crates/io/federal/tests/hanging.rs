//! A native call that does not return: its operation is answered by somebody else, and what it did is known afterwards.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Caller, Errno, LockKind, LockRange, Op, RenameMode};
use atoll_union::{LONG_MS, NativeCall, NativeReply, SOFT_MS, Settings, Tag, Who};
use common::{Around, Called, Outcome, begin, create, ino, lookup, moment, name, opened, tree};

type Hangs = fn(&NativeCall) -> bool;

/// A member in which some calls do not return until they are let go. Then they are made.
struct Blocking {
    /// Which calls hang, and how many do.
    gate: Mutex<(Option<Hangs>, usize)>,
    changed: Condvar,
}

impl Blocking {
    fn hang(&self, hangs: Option<Hangs>) {
        self.gate.lock().unwrap().0 = hangs;
        self.changed.notify_all();
    }

    /// Returns when so many calls hang.
    fn wait(&self, calls: usize) {
        let gate = self.gate.lock().unwrap();
        drop(self.changed.wait_while(gate, |(_, hanging)| *hanging != calls).unwrap());
    }
}

impl Called for Blocking {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let mut gate = self.gate.lock().unwrap();
        if gate.0.is_some_and(|hangs| hangs(call)) {
            gate.1 += 1;
            self.changed.notify_all();
            gate =
                self.changed.wait_while(gate, |(hangs, _)| hangs.is_some_and(|hangs| hangs(call))).unwrap();
            gate.1 -= 1;
            self.changed.notify_all();
        }
        drop(gate);
        tree.call(who, call, bytes)
    }
}

/// A union of a member that can hang, which is placed first, and one that cannot.
struct World {
    first: Arc<Around<Blocking>>,
    union: Arc<Federation>,
}

fn unlink(text: &str) -> Op {
    Op::Unlink { dir: Ino::ROOT, name: name(text) }
}

impl World {
    fn new() -> Self {
        let called = Blocking { gate: Mutex::default(), changed: Condvar::new() };
        let first = Arc::new(Around { tree: tree(1), called });
        let mut members = opened(&[Arc::clone(&first)]);
        members.push((Tag(2), false, Arc::new(tree(2))));
        let settings = Settings { place: atoll_union::PlaceRule::First, ..Settings::default() };
        Self { first, union: Federation::stepped(settings, members, moment(0)) }
    }

    fn begin(&self, op: Op) -> Receiver<Outcome> {
        begin(&self.union, op, b"bytes")
    }

    /// The same for one that does not end yet. Returns when it is under way.
    fn begin_late(&self, op: Op) -> Receiver<Outcome> {
        let before = self.union.machine().under_way();
        let outcome = self.begin(op);
        while self.union.machine().under_way() == before {
            std::thread::yield_now();
        }
        outcome
    }

    /// An operation that does not hang.
    fn op(&self, op: Op) -> Outcome {
        self.begin(op).recv().unwrap()
    }

    fn ino(&self, text: &str) -> Result<Ino, Errno> {
        ino(self.op(lookup(Ino::ROOT, text)))
    }

    /// The calls go on. Returns when what they did was taken in.
    fn let_go(&self) {
        self.first.called.hang(None);
        while self.union.machine().under_way() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_create_that_hangs_is_answered_after_the_soft_time_and_its_file_is_shown_when_it_is_made() {
    let world = World::new();
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Make { .. })));
    let late = world.begin_late(create(Ino::ROOT, "f"));
    world.first.called.wait(1);
    world.union.step(moment(SOFT_MS - 1));
    assert!(late.try_recv().is_err(), "it may come yet");
    let other = world.begin_late(create(Ino::ROOT, "f"));
    assert_eq!(world.ino("f"), Err(Errno::ENOENT), "lookups do not wait");
    assert!(other.try_recv().is_err(), "the name is in doubt");
    world.union.step(moment(SOFT_MS));
    assert_eq!(late.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.union.step(moment(3 * SOFT_MS));
    assert_eq!(other.recv().unwrap(), Err(Errno::ETIMEDOUT), "it never came so far");
    world.let_go();
    assert_eq!(world.op(create(Ino::ROOT, "f")), Err(Errno::EEXIST));
    assert!(world.ino("f").is_ok());
    world.op(unlink("f")).unwrap();
    assert_eq!(world.ino("f"), Err(Errno::ENOENT), "it was made once");
    assert!(late.recv().is_err() && other.recv().is_err(), "each was answered once");
}

#[test]
fn what_only_looks_or_waits_changes_nothing_after_it_was_given_up() {
    let world = World::new();
    world.op(create(Ino::ROOT, "f")).unwrap();
    world.ino("f").unwrap();
    // The file is opened before its name goes.
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Open { .. })));
    let opens = world.begin_late(unlink("f"));
    world.first.called.wait(1);
    world.union.step(moment(SOFT_MS));
    assert_eq!(opens.recv().unwrap(), Err(Errno::ETIMEDOUT));
    let waits = world.begin_late(unlink("f"));
    world.union.step(moment(2 * SOFT_MS));
    world.union.step(moment(3 * SOFT_MS));
    assert_eq!(waits.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.let_go();
    // What is not known any more is looked at.
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Look { .. } | NativeCall::List { .. })));
    world.union.step(moment(5 * SOFT_MS));
    let looks = world.begin_late(unlink("f"));
    world.first.called.wait(1);
    world.union.step(moment(6 * SOFT_MS));
    assert_eq!(looks.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.let_go();
    assert!(world.ino("f").is_ok());
    world.op(unlink("f")).unwrap();
    assert_eq!(world.ino("f"), Err(Errno::ENOENT));
}

#[test]
fn a_rename_that_hangs_half_way_is_ended_when_the_call_returns() {
    let world = World::new();
    world.op(create(Ino::ROOT, "new")).unwrap();
    // The replaced file lies in the other member: it is unlinked there when the rename has been made here.
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Rename { .. })));
    world.first.tree.set_faults(|faults| faults.inodes_max = 0);
    world.op(create(Ino::ROOT, "old")).unwrap();
    world.first.tree.set_faults(|faults| faults.inodes_max = u64::MAX);
    let (source, replaced) = (world.ino("new").unwrap(), world.ino("old").unwrap());
    let (dir, new_dir, meant, new_meant) = (Ino::ROOT, Ino::ROOT, None, None);
    let mode = RenameMode::Replace;
    let op = Op::Rename { dir, name: name("new"), new_dir, new_name: name("old"), mode, meant, new_meant };
    let late = world.begin_late(op);
    world.first.called.wait(1);
    world.union.step(moment(SOFT_MS));
    assert_eq!(late.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.let_go();
    assert_eq!(world.op(create(Ino::ROOT, "old")), Err(Errno::EEXIST));
    assert_eq!((world.ino("new"), world.ino("old")), (Err(Errno::ENOENT), Ok(source)));
    assert_ne!(source, replaced);
    world.op(unlink("old")).unwrap();
    assert_eq!(world.ino("old"), Err(Errno::ENOENT), "nothing stands behind it");
}

#[test]
fn the_other_member_goes_on_and_a_call_that_takes_long_has_more_time() {
    let world = World::new();
    world.op(create(Ino::ROOT, "f")).unwrap();
    let ino = world.ino("f").unwrap();
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Fsync { .. } | NativeCall::Write { .. })));
    let synced = world.begin_late(Op::Fsync { ino });
    let write = world.begin_late(Op::Write { ino, offset: 0, append: false, kill_set_id: false });
    world.first.called.wait(2);
    world.first.tree.set_faults(|faults| faults.inodes_max = 0);
    world.op(create(Ino::ROOT, "elsewhere")).unwrap();
    let other = world.ino("elsewhere").unwrap();
    world.op(Op::Write { ino: other, offset: 0, append: false, kill_set_id: false }).unwrap();
    world.union.step(moment(SOFT_MS));
    assert_eq!(write.recv().unwrap(), Err(Errno::ETIMEDOUT));
    assert!(synced.try_recv().is_err());
    world.union.step(moment(LONG_MS));
    assert_eq!(synced.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.let_go();
    assert_eq!(world.op(Op::Read { ino, offset: 0, len: 9 }).unwrap().bytes, "bytes");
}

#[test]
fn an_open_that_hangs_is_answered_and_closed_when_it_has_been_made() {
    let world = World::new();
    world.op(create(Ino::ROOT, "f")).unwrap();
    let ino = world.ino("f").unwrap();
    let begin = || {
        let (send, outcome) = channel();
        let union = Arc::clone(&world.union);
        let done =
            Box::new(move |told: Result<(u64, _), Errno>| send.send(told.map(|(open, _)| open)).unwrap());
        (std::thread::spawn(move || union.open(&Caller::ROOT, ino, true, done)), outcome)
    };
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Open { .. })));
    let (thread, late) = begin();
    world.first.called.wait(1);
    world.union.step(moment(SOFT_MS - 1));
    assert!(late.try_recv().is_err(), "it may come yet");
    world.union.step(moment(SOFT_MS));
    assert_eq!(late.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.first.called.hang(None);
    thread.join().unwrap();
    let (_, soon) = begin();
    let open = soon.recv().unwrap().unwrap();
    world.union.close(ino, open);
    // Nothing holds the file open: it goes with its name.
    world.union.forget(&[ino]);
    world.op(unlink("f")).unwrap();
    let space = |tree: &SimTree| match tree.direct(&Who::Daemon, &NativeCall::Space, &[]) {
        Ok(NativeReply::Space(space)) => space.inodes - space.inodes_free,
        other => panic!("{other:?}"),
    };
    assert_eq!(space(&world.first.tree), 1, "the root alone");
}

fn lock(ino: Ino, owner: u64, kind: LockKind) -> Op {
    let lock = LockRange { start: 0, end: u64::MAX, kind, owner, pid: 1, flock: false };
    Op::SetLock { ino, lock, wait: false }
}

#[test]
fn a_lock_that_is_granted_too_late_is_let_go() {
    let world = World::new();
    world.op(create(Ino::ROOT, "f")).unwrap();
    let ino = world.ino("f").unwrap();
    world.first.called.hang(Some(|call| matches!(call, NativeCall::Lock { .. })));
    let late = world.begin_late(lock(ino, 1, LockKind::Write));
    world.first.called.wait(1);
    world.union.step(moment(SOFT_MS));
    assert_eq!(late.recv().unwrap(), Err(Errno::ETIMEDOUT));
    world.let_go();
    world.op(lock(ino, 2, LockKind::Write)).unwrap();
}

#[test]
fn an_unlock_that_a_hanging_member_missed_is_made_up_for() {
    let world = World::new();
    world.op(create(Ino::ROOT, "f")).unwrap();
    let ino = world.ino("f").unwrap();
    world.op(lock(ino, 1, LockKind::Write)).unwrap();
    world.first.tree.set_faults(|faults| faults.hung = true);
    assert_eq!(world.op(lock(ino, 1, LockKind::Unlock)), Err(Errno::ETIMEDOUT));
    world.first.tree.set_faults(|faults| faults.hung = false);
    assert_eq!(world.op(lock(ino, 2, LockKind::Write)), Err(Errno::ETIMEDOUT), "it is not known to answer");
    world.union.step(moment(1));
    world.op(lock(ino, 2, LockKind::Write)).unwrap();
    world.union.step(moment(2));
    assert_eq!(world.op(lock(ino, 1, LockKind::Write)), Err(Errno::EAGAIN), "nothing is let go twice");
}
