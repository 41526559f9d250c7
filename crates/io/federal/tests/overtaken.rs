//! Answers of a member that come after a change was made: they must not undo what is known of the change.

mod common;

use std::sync::{Arc, Condvar, Mutex};

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Errno, Op};
use atoll_union::{NativeCall, NativeReply, Settings, Who};
use common::{Around, Called, Outcome, begin, create, lookup, moment, name, opened, tree};

type Late = fn(&NativeCall) -> bool;

/// A member whose answer to one call comes late: it is made, and the answer waits until it is let go.
struct Slow {
    /// Which call, and whether it has been made.
    gate: Mutex<(Option<Late>, bool)>,
    changed: Condvar,
}

impl Called for Slow {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let told = tree.call(who, call, bytes);
        let mut gate = self.gate.lock().unwrap();
        if gate.0.is_some_and(|late| late(call)) && !gate.1 {
            gate.1 = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(gate, |(late, _)| late.is_some()).unwrap());
        }
        told
    }
}

struct World {
    tree: Arc<Around<Slow>>,
    union: Arc<Federation>,
}

fn list() -> Op {
    Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 4096, plus: false }
}

impl World {
    fn new() -> Self {
        let tree = Arc::new(Around {
            tree: tree(1),
            called: Slow { gate: Mutex::default(), changed: Condvar::new() },
        });
        let union = Federation::stepped(Settings::default(), opened(&[Arc::clone(&tree)]), moment(0));
        Self { tree, union }
    }

    fn op(&self, op: Op) -> Outcome {
        begin(&self.union, op, b"").recv().unwrap()
    }

    fn create(&self, text: &str) -> Result<(), Errno> {
        self.op(create(Ino::ROOT, text)).map(|_| ())
    }

    fn names(&self) -> Vec<String> {
        match self.op(list()).unwrap().answer {
            Answer::Entries { entries, .. } => entries.iter().map(|entry| entry.name.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// An operation whose call is overtaken by what happens meanwhile.
    fn overtaken(&self, op: Op, late: Late, meanwhile: impl FnOnce()) -> Outcome {
        *self.tree.called.gate.lock().unwrap() = (Some(late), false);
        let outcome = begin(&self.union, op, b"");
        let gate = self.tree.called.gate.lock().unwrap();
        drop(self.tree.called.changed.wait_while(gate, |(_, made)| !*made).unwrap());
        meanwhile();
        self.tree.called.gate.lock().unwrap().0 = None;
        self.tree.called.changed.notify_all();
        outcome.recv().unwrap()
    }
}

const LIST_LATE: Late = |call| matches!(call, NativeCall::List { .. });

#[test]
fn a_listing_that_is_overtaken_by_a_create_hides_no_name() {
    let world = World::new();
    world.create("before").unwrap();
    world.overtaken(list(), LIST_LATE, || world.create("f").unwrap()).unwrap();
    assert!(world.op(lookup(Ino::ROOT, "f")).is_ok());
    assert_eq!(world.names().len(), 2);
}

#[test]
fn a_listing_that_is_overtaken_by_an_unlink_brings_no_name_back() {
    let world = World::new();
    world.create("f").unwrap();
    let unlink = || _ = world.op(Op::Unlink { dir: Ino::ROOT, name: name("f") }).unwrap();
    world.overtaken(list(), LIST_LATE, unlink).unwrap();
    assert_eq!(world.op(lookup(Ino::ROOT, "f")).unwrap_err(), Errno::ENOENT);
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
    let _either = world.overtaken(lookup(Ino::ROOT, "f"), look_late, || world.create("f").unwrap());
    assert!(world.op(lookup(Ino::ROOT, "f")).is_ok());
    assert_eq!(world.names(), ["f"]);
}
