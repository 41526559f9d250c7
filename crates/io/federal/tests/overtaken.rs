//! Answers of a member that come after a change was made: they must not undo what is known of the change.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RequestOptions};
use atoll_union::{
    Changes, Finished, Moment, NativeCall, NativeReply, NativeStat, Settings, Tag, UnionRequest, Who,
};
use bytes::Bytes;

type Outcome = Result<Finished, Errno>;
type Late = fn(&NativeCall) -> bool;

/// A member whose answer to one call comes late: it is made, and the answer waits until it is let go.
struct Slow {
    tree: SimTree,
    /// Which call, and whether it has been made.
    gate: Mutex<(Option<Late>, bool)>,
    changed: Condvar,
}

impl Tree for Slow {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let told = self.tree.call(who, call, bytes);
        let mut gate = self.gate.lock().unwrap();
        if gate.0.is_some_and(|late| late(call)) && !gate.1 {
            gate.1 = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(gate, |(late, _)| late.is_some()).unwrap());
        }
        told
    }

    fn root(&self) -> NativeStat {
        self.tree.root()
    }

    fn changes(&self) -> Changes {
        self.tree.changes()
    }

    fn backing(&self, open: u64) -> Option<Arc<OwnedFd>> {
        self.tree.backing(open)
    }

    fn state(&self) -> TreeState {
        self.tree.state()
    }

    fn reopen(&self) -> Result<bool, Errno> {
        self.tree.reopen()
    }
}

struct World {
    tree: Arc<Slow>,
    union: Arc<Federation>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn moment(ms: u64) -> Moment {
    Moment { ms, wall: Time { secs: 10_000, nanos: 0 }.plus_millis(ms) }
}

fn list() -> Op {
    Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 4096, plus: false }
}

fn lookup(text: &str) -> Op {
    Op::Lookup { dir: Ino::ROOT, name: name(text) }
}

impl World {
    fn new() -> Self {
        let tree = SimTree::new(1, Time { secs: 1_000, nanos: 0 });
        let tree = Arc::new(Slow { tree, gate: Mutex::default(), changed: Condvar::new() });
        let members = vec![(Tag(1), false, Arc::clone(&tree) as Arc<dyn Tree>)];
        Self { tree, union: Federation::stepped(Settings::default(), members, moment(1)) }
    }

    fn begin(&self, op: Op) -> Receiver<Outcome> {
        let (send, outcome) = channel();
        let (union, options) = (Arc::clone(&self.union), RequestOptions::default());
        let request = UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::new() };
        std::thread::spawn(move || union.submit(request, Box::new(move |told| send.send(told).unwrap())));
        outcome
    }

    fn op(&self, op: Op) -> Outcome {
        self.begin(op).recv().unwrap()
    }

    fn create(&self, text: &str) -> Result<(), Errno> {
        let (name, target) = (name(text), Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        self.op(Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target }).map(|_| ())
    }

    fn names(&self) -> Vec<String> {
        match self.op(list()).unwrap().answer {
            Answer::Entries { entries, .. } => entries.iter().map(|entry| entry.name.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// An operation whose call is overtaken by what happens meanwhile.
    fn overtaken(&self, op: Op, late: Late, meanwhile: impl FnOnce()) -> Outcome {
        *self.tree.gate.lock().unwrap() = (Some(late), false);
        let outcome = self.begin(op);
        let gate = self.tree.gate.lock().unwrap();
        drop(self.tree.changed.wait_while(gate, |(_, made)| !*made).unwrap());
        meanwhile();
        self.tree.gate.lock().unwrap().0 = None;
        self.tree.changed.notify_all();
        outcome.recv().unwrap()
    }
}

const LIST_LATE: Late = |call| matches!(call, NativeCall::List { .. });

#[test]
fn a_listing_that_is_overtaken_by_a_create_hides_no_name() {
    let world = World::new();
    world.create("before").unwrap();
    world.overtaken(list(), LIST_LATE, || world.create("f").unwrap()).unwrap();
    assert!(world.op(lookup("f")).is_ok());
    assert_eq!(world.names().len(), 2);
}

#[test]
fn a_listing_that_is_overtaken_by_an_unlink_brings_no_name_back() {
    let world = World::new();
    world.create("f").unwrap();
    let unlink = || _ = world.op(Op::Unlink { dir: Ino::ROOT, name: name("f") }).unwrap();
    world.overtaken(list(), LIST_LATE, unlink).unwrap();
    assert_eq!(world.op(lookup("f")).unwrap_err(), Errno::ENOENT);
    assert!(world.names().is_empty());
}

#[test]
fn a_look_that_is_overtaken_by_a_create_hides_no_name() {
    let world = World::new();
    assert!(world.names().is_empty());
    // A program makes the name and removes it, so it is looked at.
    let call = NativeCall::Mkdir { dir: world.tree.root().id, name: name("f"), mode: 0o755, umask: 0 };
    let Ok(NativeReply::Stat(stat)) = world.tree.tree.direct(&Who::Daemon, &call, &[]) else { panic!() };
    let call = NativeCall::Rmdir { dir: world.tree.root().id, name: name("f"), id: stat.id };
    world.tree.tree.direct(&Who::Daemon, &call, &[]).unwrap();
    world.union.step(moment(2));
    let look_late: Late = |call| matches!(call, NativeCall::Look { .. });
    // It may say either of the file that is being made.
    let _either = world.overtaken(lookup("f"), look_late, || world.create("f").unwrap());
    assert!(world.op(lookup("f")).is_ok());
    assert_eq!(world.names(), ["f"]);
}
