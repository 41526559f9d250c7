//! What members keep open for a union: it ends when the frontend forgets it, and never while it is used again.

use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Op, RequestOptions};
use atoll_union::{
    Changes, Finished, Moment, NativeCall, NativeId, NativeReply, NativeStat, Settings, Tag, UnionRequest,
    Who,
};
use bytes::Bytes;

type Hook = Box<dyn FnOnce() + Send>;

/// A member that tells which directories it has let go of, and calls back before it does.
struct Told {
    tree: SimTree,
    forgotten: Mutex<Vec<NativeId>>,
    before: Mutex<Option<Hook>>,
}

impl Tree for Told {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        if let NativeCall::ForgetDirs { dirs } = call {
            self.forgotten.lock().unwrap().extend(dirs);
            let before = self.before.lock().unwrap().take();
            before.into_iter().for_each(|hook| hook());
        }
        self.tree.call(who, call, bytes)
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

fn union() -> (Arc<Told>, Arc<Federation>) {
    let tree = SimTree::new(0, Time { secs: 1_000, nanos: 0 });
    let told = Arc::new(Told { tree, forgotten: Mutex::default(), before: Mutex::default() });
    let members = vec![(Tag(1), false, Arc::clone(&told) as Arc<dyn Tree>)];
    let now = Moment { ms: 1, wall: Time { secs: 10_000, nanos: 0 } };
    (told, Federation::stepped(Settings::default(), members, now))
}

fn run(union: &Federation, op: Op) -> Result<Finished, Errno> {
    let (send, receive) = sync_channel(1);
    let options = RequestOptions::default();
    let request = UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::new() };
    union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
    receive.recv().unwrap()
}

fn found(union: &Federation, op: Op) -> Result<Ino, Errno> {
    match run(union, op)?.answer {
        Answer::Found { found } => Ok(found.attr.ino),
        other => panic!("{other:?}"),
    }
}

fn mkdir(union: &Federation, dir: Ino, name: &str) -> Ino {
    let name = Name::new(name.as_bytes()).unwrap();
    found(union, Op::Mkdir { dir, name, mode: 0o755, umask: 0 }).unwrap()
}

fn lookup(union: &Federation, dir: Ino, name: &str) -> Result<Ino, Errno> {
    found(union, Op::Lookup { dir, name: Name::new(name.as_bytes()).unwrap() })
}

#[test]
fn a_directory_that_is_looked_up_while_it_is_forgotten_stays_open() {
    let (member, union) = union();
    let dir = mkdir(&union, Ino::ROOT, "dir");
    let inner = mkdir(&union, dir, "inner");
    let (send, looked_up) = sync_channel(1);
    let theirs = Arc::clone(&union);
    *member.before.lock().unwrap() = Some(Box::new(move || {
        let (begun, wait) = sync_channel::<()>(0);
        std::thread::spawn(move || {
            send.send(lookup(&theirs, Ino::ROOT, "dir")).unwrap();
            drop(begun);
        });
        // It ends now if nothing keeps it back, and would be undone by what follows.
        let _ended = wait.recv_timeout(Duration::from_millis(200));
    }));
    union.forget(&[inner, dir]);
    let again = looked_up.recv().unwrap().unwrap();
    assert!(lookup(&union, again, "inner").is_ok(), "it is open again");
}

#[test]
fn a_removed_directory_is_let_go_of() {
    let (member, union) = union();
    let dir = mkdir(&union, Ino::ROOT, "dir");
    run(&union, Op::Rmdir { dir: Ino::ROOT, name: Name::new(b"dir").unwrap(), meant: None }).unwrap();
    union.forget(&[dir]);
    assert_eq!(member.forgotten.lock().unwrap().len(), 1);
}
