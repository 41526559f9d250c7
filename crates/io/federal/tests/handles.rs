//! Handles, while directories move.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Op, RenameMode, RequestOptions};
use atoll_union::{
    Changes, FrontendId, Moment, NativeCall, NativeReply, NativeStat, Settings, Tag, UnionRequest, Who,
};
use bytes::Bytes;

/// A member in which a program renames directories right after it was asked where a handle's directory is.
struct Moving {
    tree: SimTree,
    moves: Mutex<Vec<[&'static str; 2]>>,
    /// How often it was asked what a handle names.
    asked: AtomicUsize,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Moving {
    fn direct(&self, call: &NativeCall) -> Result<NativeReply, Errno> {
        self.tree.direct(&Who::Daemon, call, &[])
    }

    fn look(&self, text: &str) -> NativeStat {
        match self.direct(&NativeCall::Look { dir: self.root().id, name: name(text) }).unwrap() {
            NativeReply::Stat(stat) => stat,
            other => panic!("{other:?}"),
        }
    }
}

impl Tree for Moving {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let told = self.tree.call(who, call, bytes);
        if let NativeCall::ByHandle { .. } = call {
            self.asked.fetch_add(1, Ordering::Relaxed);
            for [from, to] in self.moves.lock().unwrap().drain(..) {
                let (root, id) = (self.root().id, self.look(from).id);
                let (name, new_name, mode) = (name(from), name(to), RenameMode::NoReplace);
                let rename =
                    NativeCall::Rename { dir: root, name, id, new_dir: root, new_name, new_id: None, mode };
                self.direct(&rename).unwrap();
            }
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

fn member() -> Arc<Moving> {
    let tree = SimTree::new(1, Time { secs: 1_000, nanos: 0 });
    Arc::new(Moving { tree, moves: Mutex::default(), asked: AtomicUsize::new(0) })
}

fn union(tree: &Arc<Moving>) -> Arc<Federation> {
    let now = Moment { ms: 1, wall: Time { secs: 10_000, nanos: 0 } };
    Federation::stepped(Settings::default(), vec![(Tag(1), false, Arc::clone(tree) as Arc<dyn Tree>)], now)
}

fn lookup(union: &Federation, text: &str) -> Ino {
    let (send, receive) = sync_channel(1);
    let op = Op::Lookup { dir: Ino::ROOT, name: name(text) };
    let options = RequestOptions::default();
    let request = UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::new() };
    union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
    match receive.try_recv().unwrap().unwrap().answer {
        Answer::Found { found } => found.attr.ino,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handle_means_its_directory_though_another_one_takes_its_name_meanwhile() {
    let tree = member();
    for text in ["d", "other"] {
        let call = NativeCall::Mkdir { dir: tree.root().id, name: name(text), mode: 0o755, umask: 0 };
        tree.direct(&call).unwrap();
    }
    let first = union(&tree);
    let (tag, handle) = first.handle_of(lookup(&first, "d")).unwrap();
    // A process that starts later knows nothing but the handle.
    for (moves, is_at) in [(vec![["d", "e"]], "e"), (vec![["e", "f"], ["other", "e"]], "f")] {
        *tree.moves.lock().unwrap() = moves;
        let later = union(&tree);
        let ino = later.by_handle(FrontendId::default(), tag, handle.clone()).unwrap();
        assert_eq!(ino, lookup(&later, is_at));
        *tree.moves.lock().unwrap() = Vec::new();
        assert_eq!(later.by_handle(FrontendId::default(), tag, handle.clone()), Ok(ino));
    }
}

#[test]
fn what_a_handle_of_a_directory_names_is_asked_once_until_the_directory_is_gone() {
    let tree = member();
    let (root, d) = (tree.root().id, name("d"));
    tree.direct(&NativeCall::Mkdir { dir: root, name: d.clone(), mode: 0o755, umask: 0 }).unwrap();
    let first = union(&tree);
    let (tag, handle) = first.handle_of(lookup(&first, "d")).unwrap();
    let later = union(&tree);
    let by_handle = || later.by_handle(FrontendId::default(), tag, handle.clone());
    let ino = by_handle().unwrap();
    *tree.moves.lock().unwrap() = vec![["d", "e"]];
    assert_eq!([by_handle(), by_handle()], [Ok(ino), Ok(ino)]);
    assert_eq!(tree.asked.load(Ordering::Relaxed), 1);
    // Others use it by its handle after the frontend has forgotten it.
    later.forget(&[ino]);
    assert_eq!(by_handle(), Ok(ino));
    // Removed directly, and made again.
    let (e, id) = (name("e"), tree.look("e").id);
    tree.direct(&NativeCall::Rmdir { dir: root, name: e.clone(), id }).unwrap();
    tree.direct(&NativeCall::Mkdir { dir: root, name: e, mode: 0o755, umask: 0 }).unwrap();
    assert_eq!(by_handle(), Err(Errno::ESTALE));
}
