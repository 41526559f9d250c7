//! What tests of unions share: operations and how they are run, simulated members, members whose calls a test sees, and programs
//! that use a member directly.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Once};

use atoll_core::{Ino, Name, Time};
use atoll_federal::{Federation, Opened, Trees};
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, RequestOptions};
use atoll_union::{
    At, Changes, Finished, Moment, NativeCall, NativeId, NativeReply, NativeStat, Tag, UnionRequest, Who,
};
use bytes::Bytes;

/// How an operation has ended.
pub type Outcome = Result<Finished, Errno>;

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// So long after the beginning of a test.
pub fn moment(ms: u64) -> Moment {
    Moment { ms: ms + 1, wall: Time { secs: 10_000, nanos: 0 }.plus_millis(ms) }
}

/// A simulated member. One with a greater number has a younger root. When the test ends, it must have nothing of ours.
pub fn tree(n: u16) -> SimTree {
    let tree = SimTree::new(u64::from(n), Time { secs: 1_000 + i64::from(n), nanos: 0 });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            // A test that has failed has left its members as they were.
            MADE.with_borrow_mut(|made| made.0.clear());
            before(why);
        }));
    });
    MADE.with_borrow_mut(|made| made.0.push(tree.another()));
    tree
}

thread_local! {
    /// The members that the test of this thread has made.
    static MADE: RefCell<Made> = const { RefCell::new(Made(Vec::new())) };
}

struct Made(Vec<SimTree>);

impl Drop for Made {
    fn drop(&mut self) {
        let left: Vec<String> = self.0.iter().flat_map(ours).collect();
        if !left.is_empty() {
            // The test has ended already: nobody would hear of a panic.
            eprintln!("{:?} leaves in its members: {}", std::thread::current().name(), left.join(", "));
            std::process::abort();
        }
    }
}

/// What a member has that no user made: our names, our extended attributes, an empty directory that is closed still.
fn ours(tree: &SimTree) -> Vec<String> {
    let all = tree.everything();
    let is_ours = |(path, stat, _): &(Vec<Name>, NativeStat, Arc<Vec<u8>>)| {
        let of = At { id: stat.id, seen: None };
        let xattrs = match tree.direct(&Who::Daemon, &NativeCall::ListXattr { of }, &[]) {
            Ok(NativeReply::Data(names)) => String::from_utf8_lossy(&names).contains("atoll"),
            other => panic!("{other:?}"),
        };
        let is_empty = || all.iter().all(|(other, ..)| !other.starts_with(path) || other == path);
        let is_closed = stat.kind == Kind::Directory && stat.mode & 0o7777 == 0o700 && is_empty();
        xattrs || is_closed || path.iter().any(|name| name.to_string().contains(".atoll-"))
    };
    all.iter().filter(|one| is_ours(one)).map(|(path, stat, _)| format!("{path:?} {:o}", stat.mode)).collect()
}

/// These members, the first one with the tag 1.
pub fn opened<T: Tree + 'static>(trees: &[Arc<T>]) -> Vec<Opened> {
    trees.iter().zip(1..).map(|(tree, n)| (Tag(n), false, Arc::clone(tree) as Arc<dyn Tree>)).collect()
}

/// These members as a settling has them.
pub fn trees<T: Tree + 'static>(trees: &[Arc<T>]) -> Trees {
    opened(trees).into_iter().map(|(tag, _, tree)| (tag, tree)).collect()
}

/// Whether a process lives that dies after so many changes. A change takes one from what it has left.
pub fn lives(life: &AtomicU64, is_change: bool) -> bool {
    let by = u64::from(is_change);
    life.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| (left > 0).then(|| left - by)).is_ok()
}

pub fn request(op: Op, bytes: &[u8]) -> UnionRequest {
    let (caller, options) = (Caller::ROOT, RequestOptions::default());
    UnionRequest { caller, options, op, bytes: Bytes::copy_from_slice(bytes) }
}

/// Runs an operation on this thread. Over simulated members it ends at once.
pub fn run(union: &Federation, op: Op, bytes: &[u8]) -> Outcome {
    let (send, outcome) = channel();
    union.submit(request(op, bytes), Box::new(move |told| send.send(told).unwrap()));
    outcome.try_recv().expect("an operation over simulated members ends at once")
}

/// Begins an operation on a thread of its own. Its outcome comes from whoever gives it.
pub fn begin(union: &Arc<Federation>, op: Op, bytes: &[u8]) -> Receiver<Outcome> {
    let ((send, outcome), union, request) = (channel(), Arc::clone(union), request(op, bytes));
    std::thread::spawn(move || union.submit(request, Box::new(move |told| send.send(told).unwrap())));
    outcome
}

/// What an operation has found or made.
pub fn ino(outcome: Outcome) -> Result<Ino, Errno> {
    match outcome?.answer {
        Answer::Found { found } => Ok(found.attr.ino),
        other => panic!("{other:?}"),
    }
}

pub fn lookup(dir: Ino, text: &str) -> Op {
    Op::Lookup { dir, name: name(text) }
}

pub fn create(dir: Ino, text: &str) -> Op {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir, name: name(text), kind, mode, umask, rdev, exclusive, target: Bytes::new() }
}

pub fn mkdir(dir: Ino, text: &str) -> Op {
    Op::Mkdir { dir, name: name(text), mode: 0o755, umask: 0 }
}

/// The directory or file of a path.
pub fn walk(union: &Federation, path: &str) -> Result<Ino, Errno> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.into_iter().try_fold(Ino::ROOT, |dir, part| ino(run(union, lookup(dir, part), b"")))
}

/// The names of a directory, sorted, and whether its listing has an end. Several answers are needed for some names.
pub fn list(union: &Federation, dir: Ino) -> (Vec<String>, Result<(), Errno>) {
    let (mut names, mut after) = (Vec::new(), 0);
    let end = loop {
        match run(union, Op::ReadDir { dir, after, bytes: 200, plus: false }, b"") {
            Err(errno) => break Err(errno),
            Ok(Finished { answer: Answer::Entries { entries, eof }, .. }) => {
                after = entries.last().map_or(after, |entry| entry.cookie);
                names.extend(entries.into_iter().map(|entry| entry.name.to_string()));
                if eof {
                    break Ok(());
                }
            }
            other => panic!("{other:?}"),
        }
    };
    names.sort();
    (names, end)
}

/// What happens when a member is called.
pub trait Called: Send + Sync + 'static {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno>;
}

/// A simulated member whose calls a test sees.
pub struct Around<C> {
    pub tree: SimTree,
    pub called: C,
}

impl<C: Called> Tree for Around<C> {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        self.called.call(&self.tree, who, call, bytes)
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

/// A program that uses a member directly.
pub struct Direct<'a>(pub &'a SimTree);

impl Direct<'_> {
    pub fn call(&self, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        self.0.direct(&Who::Daemon, call, bytes)
    }

    pub fn look(&self, path: &str) -> Result<NativeStat, Errno> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(self.0.root(), |above, part| {
            stat(self.call(&NativeCall::Look { dir: above.id, name: name(part) }, &[]))
        })
    }

    pub fn has(&self, path: &str) -> bool {
        self.look(path).is_ok()
    }

    fn split<'p>(&self, path: &'p str) -> (NativeId, &'p str) {
        let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
        (self.look(above).unwrap().id, last)
    }

    pub fn mkdir(&self, path: &str) {
        let (dir, last) = self.split(path);
        self.call(&NativeCall::Mkdir { dir, name: name(last), mode: 0o755, umask: 0 }, &[]).unwrap();
    }

    pub fn rmdir(&self, path: &str) {
        let ((dir, last), id) = (self.split(path), self.look(path).unwrap().id);
        self.call(&NativeCall::Rmdir { dir, name: name(last), id }, &[]).unwrap();
    }

    /// Renames to a name that is free.
    pub fn rename(&self, from: &str, to: &str) {
        let ((dir, old), (new_dir, new), id) =
            (self.split(from), self.split(to), self.look(from).unwrap().id);
        let (name, new_name, mode) = (name(old), name(new), RenameMode::NoReplace);
        let call = NativeCall::Rename { dir, name, id, new_dir, new_name, new_id: None, mode };
        self.call(&call, &[]).unwrap();
    }

    /// Makes a file. Its mode is not the one that [`create`] gives.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let (dir, last) = self.split(path);
        let (kind, mode, umask, rdev, target) = (Kind::Regular, 0o640, 0, 0, Bytes::new());
        let make = NativeCall::Make { dir, name: name(last), kind, mode, umask, rdev, target };
        let made = stat(self.call(&make, &[])).unwrap();
        let of = At { id: made.id, seen: Some((dir, name(last))) };
        let write = NativeCall::Write { of, offset: 0, append: false, kill_set_id: false };
        self.call(&write, content.as_ref()).unwrap();
    }
}

fn stat(told: Result<NativeReply, Errno>) -> Result<NativeStat, Errno> {
    match told? {
        NativeReply::Stat(stat) => Ok(stat),
        other => panic!("{other:?}"),
    }
}
