//! Files that grow on a full member are moved, and the operation goes on. Nothing is lost or doubled, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Name, Time};
use atoll_federal::{Federation, Trees, settle};
use atoll_intents::{Intents, SimIntents};
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Allocation, Answer, Caller, Errno, Kind, Op, RenameMode, RequestOptions};
use atoll_union::{
    At, Changes, Finished, Moment, NativeCall, NativeId, NativeReply, NativeStat, Settings, Tag,
    UnionRequest, Who,
};
use bytes::Bytes;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// What a program does in a member just before a call of some kind.
type Beside = (fn(&NativeCall) -> bool, Box<dyn FnOnce(&SimTree) + Send>);

/// A member of a process that dies after so many calls that change something.
struct Member {
    tree: SimTree,
    life: Arc<AtomicU64>,
    beside: Mutex<Option<Beside>>,
}

impl Tree for Member {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let is_change = matches!(
            call,
            NativeCall::Rename { .. }
                | NativeCall::Unlink { .. }
                | NativeCall::Link { .. }
                | NativeCall::Write { .. }
        );
        let by = u64::from(is_change);
        let lives = |left: u64| (left > 0).then(|| left - by);
        if self.life.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lives).is_err() {
            return Err(Errno::EIO);
        }
        let mut beside = self.beside.lock().unwrap();
        if let Some((_, act)) = beside.take_if(|(when, _)| when(call)) {
            act(&self.tree);
        }
        self.tree.call(who, call, bytes)
    }

    fn root(&self) -> NativeStat {
        self.tree.root()
    }

    fn changes(&self) -> Changes {
        self.tree.changes()
    }

    fn backing(&self, open: u64) -> Option<Arc<std::os::fd::OwnedFd>> {
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
    members: Vec<Arc<Member>>,
    intents: Arc<SimIntents>,
    life: Arc<AtomicU64>,
    union: Arc<Federation>,
}

fn moment(ms: u64) -> Moment {
    Moment { ms: ms + 1, wall: Time { secs: 10_000, nanos: 0 }.plus_millis(ms) }
}

const FULL: u64 = 20_000;

impl World {
    /// Two members, of which the first has `d/f` with these bytes and is full.
    fn new(content: &[u8]) -> Self {
        let life = Arc::new(AtomicU64::new(u64::MAX));
        let member = |n: u64| {
            let tree = SimTree::new(n, Time { secs: 1_000 + n as i64, nanos: 0 });
            Arc::new(Member { tree, life: Arc::clone(&life), beside: Mutex::default() })
        };
        let members: Vec<Arc<Member>> = (0..2).map(member).collect();
        let tree = &members[0].tree;
        let root = tree.root().id;
        let NativeReply::Stat(dir) =
            direct(tree, &NativeCall::Mkdir { dir: root, name: name("d"), mode: 0o755, umask: 0 })
        else {
            panic!()
        };
        put(tree, dir.id, "f", content);
        tree.set_faults(|faults| faults.bytes_max = content.len() as u64);
        let intents = Arc::new(SimIntents::default());
        let union = start(&members, &intents);
        Self { members, intents, life, union }
    }

    fn op(&self, op: Op, bytes: &[u8]) -> Result<Finished, Errno> {
        let (send, receive) = sync_channel(1);
        let options = RequestOptions::default();
        let request =
            UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::copy_from_slice(bytes) };
        self.union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
        receive.try_recv().expect("an operation over simulated members ends at once")
    }

    fn walk(&self, path: &str) -> Result<Ino, Errno> {
        path.split('/').try_fold(Ino::ROOT, |dir, part| {
            match self.op(Op::Lookup { dir, name: name(part) }, b"")?.answer {
                Answer::Found { found } => Ok(found.attr.ino),
                other => panic!("{other:?}"),
            }
        })
    }

    fn append(&self, ino: Ino, bytes: &[u8]) -> Result<u64, Errno> {
        match self.op(Op::Write { ino, offset: 0, append: true, kill_set_id: false }, bytes)?.answer {
            Answer::Wrote { offset, len } if len == bytes.len() as u64 => Ok(offset),
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, ino: Ino) -> Bytes {
        self.op(Op::Read { ino, offset: 0, len: 1 << 20 }, b"").unwrap().bytes
    }

    /// The files of `d` in each member, with their bytes.
    fn have(&self) -> Vec<BTreeMap<String, Bytes>> {
        self.members.iter().map(|member| files(&member.tree)).collect()
    }

    fn restart(&mut self) {
        self.life.store(u64::MAX, Ordering::Relaxed);
        self.members.iter().for_each(|member| member.tree.kill_process());
        for (id, mut intent) in self.intents.open() {
            let tree =
                |(n, member): (usize, &Arc<Member>)| (Tag(n as u16 + 1), Arc::clone(member) as Arc<dyn Tree>);
            let trees: Trees = self.members.iter().enumerate().map(tree).collect();
            settle(&mut intent, &trees, &mut |_| Ok(())).unwrap();
            self.intents.over(id);
        }
        self.union = start(&self.members, &self.intents);
    }
}

fn start(members: &[Arc<Member>], intents: &Arc<SimIntents>) -> Arc<Federation> {
    let opened =
        |(n, member): (usize, &Arc<Member>)| (Tag(n as u16 + 1), false, Arc::clone(member) as Arc<dyn Tree>);
    let union =
        Federation::stepped(Settings::default(), members.iter().enumerate().map(opened).collect(), moment(0));
    union.keep_intents_in(Arc::clone(intents) as Arc<dyn Intents>);
    union
}

fn direct(tree: &SimTree, call: &NativeCall) -> NativeReply {
    tree.direct(&Who::Daemon, call, &[]).unwrap()
}

fn put(tree: &SimTree, dir: NativeId, text: &str, content: &[u8]) -> NativeId {
    let (name, target) = (name(text), Bytes::new());
    let make = NativeCall::Make { dir, name, kind: Kind::Regular, mode: 0o640, umask: 0, rdev: 0, target };
    let NativeReply::Stat(stat) = direct(tree, &make) else { panic!() };
    let of = At { id: stat.id, seen: None };
    let write = NativeCall::Write { of, offset: 0, append: false, kill_set_id: false };
    tree.direct(&Who::Daemon, &write, content).unwrap();
    stat.id
}

fn look(tree: &SimTree, dir: NativeId, text: &str) -> Option<NativeStat> {
    match tree.direct(&Who::Daemon, &NativeCall::Look { dir, name: name(text) }, &[]) {
        Ok(NativeReply::Stat(stat)) => Some(stat),
        _ => None,
    }
}

fn files(tree: &SimTree) -> BTreeMap<String, Bytes> {
    let Some(dir) = look(tree, tree.root().id, "d") else { return BTreeMap::new() };
    let NativeReply::Names { names, .. } =
        direct(tree, &NativeCall::List { dir: dir.id, from: 0, bytes: 1 << 20 })
    else {
        panic!()
    };
    let read = |text: &str| {
        let of = At { id: look(tree, dir.id, text).unwrap().id, seen: None };
        match direct(tree, &NativeCall::Read { of, offset: 0, len: 1 << 20 }) {
            NativeReply::Data(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    };
    names.iter().map(|entry| (entry.name.to_string(), read(&entry.name.to_string()))).collect()
}

fn only(text: &str, content: &[u8]) -> BTreeMap<String, Bytes> {
    BTreeMap::from([(text.to_owned(), Bytes::copy_from_slice(content))])
}

/// Bytes with a hole of two blocks in the middle and one at the end.
fn with_holes() -> Vec<u8> {
    let mut bytes = vec![0; FULL as usize];
    bytes[..4096].fill(1);
    bytes[3 * 4096..3 * 4096 + 100].fill(2);
    bytes
}

/// Sequence 18: an append meets ENOSPC.
#[test]
fn a_file_that_grows_on_a_full_member_is_moved_and_grows_once() {
    let content = with_holes();
    let world = World::new(&content);
    let ino = world.walk("d/f").unwrap();
    assert_eq!(world.append(ino, b"more"), Ok(FULL), "at the end of what was there");
    let whole = [&content[..], b"more"].concat();
    assert_eq!(world.have(), [BTreeMap::new(), only("f", &whole)]);
    assert_eq!(world.read(ino), whole);
    assert_eq!(world.walk("d/f"), Ok(ino), "it keeps its number");
    let NativeReply::Stat(stat) = ({
        let tree = &world.members[1].tree;
        let dir = look(tree, tree.root().id, "d").unwrap().id;
        direct(tree, &NativeCall::Look { dir, name: name("f") })
    }) else {
        panic!()
    };
    assert_eq!((stat.mode, stat.blocks), (0o640, 3 * 8), "attributes and holes are as they were");
    assert_eq!(world.append(ino, b"again"), Ok(FULL + 4));
    world.union.step(moment(100));
    assert!(world.intents.open().is_empty());
}

#[test]
fn reserved_space_moves_it_too() {
    let world = World::new(b"content");
    let ino = world.walk("d/f").unwrap();
    let what = Allocation::Allocate { keep_size: false };
    world.op(Op::Fallocate { ino, offset: 0, len: 100, what }, b"").unwrap();
    let whole = [&b"content"[..], &[0; 93]].concat();
    assert_eq!(world.have(), [BTreeMap::new(), only("f", &whole)]);
}

#[test]
fn what_cannot_be_moved_stays_and_is_full() {
    // Somebody has it open for writing.
    let world = World::new(b"content");
    let ino = world.walk("d/f").unwrap();
    world.members[0].tree.set_faults(|faults| faults.writers = true);
    assert_eq!(world.append(ino, b"more"), Err(Errno::ENOSPC));
    // It has another name.
    let world = World::new(b"content");
    let tree = &world.members[0].tree;
    let dir = look(tree, tree.root().id, "d").unwrap().id;
    let of = At { id: look(tree, dir, "f").unwrap().id, seen: None };
    direct(tree, &NativeCall::Link { of, dir, name: name("g") });
    let ino = world.walk("d/f").unwrap();
    assert_eq!(world.append(ino, b"more"), Err(Errno::ENOSPC));
    assert_eq!(world.have()[1], BTreeMap::new());
    // The others are full, too.
    let world = World::new(b"content");
    world.members[1].tree.set_faults(|faults| faults.bytes_max = 3);
    let ino = world.walk("d/f").unwrap();
    assert_eq!(world.append(ino, b"more"), Err(Errno::ENOSPC));
    assert_eq!(world.have(), [only("f", b"content"), BTreeMap::new()]);
}

/// Sequence 19: a program rewrites the file by a rename while it is moved.
#[test]
fn a_file_that_is_replaced_meanwhile_is_not_touched() {
    let whens: [fn(&NativeCall) -> bool; 4] = [
        |call| matches!(call, NativeCall::Read { .. }),
        |call| matches!(call, NativeCall::Stat { .. }),
        |call| matches!(call, NativeCall::Rename { .. }),
        |call| matches!(call, NativeCall::LeaseHolds { .. }),
    ];
    for (n, when) in whens.into_iter().enumerate() {
        let world = World::new(b"content");
        let ino = world.walk("d/f").unwrap();
        let act = move |tree: &SimTree| {
            tree.set_faults(|faults| faults.bytes_max = u64::MAX);
            let dir = look(tree, tree.root().id, "d").unwrap().id;
            let id = put(tree, dir, "new", b"rewritten");
            let (old, new) = (name("new"), name("f"));
            let new_id = look(tree, dir, "f").map(|stat| stat.id);
            let mode = RenameMode::Replace;
            direct(
                tree,
                &NativeCall::Rename { dir, name: old, id, new_dir: dir, new_name: new, new_id, mode },
            );
        };
        *world.members[0].beside.lock().unwrap() = Some((when, Box::new(act)));
        let outcome = world.append(ino, b"more");
        let have = world.have();
        assert_eq!(have[0].get("f"), Some(&Bytes::from_static(b"rewritten")), "{n}: {have:?}");
        assert!(have.iter().all(|files| files.keys().all(|name| name == "f")), "{n}: {have:?}");
        // By then it was moved: what was appended is there, and stands behind or before what was made directly.
        let is_moved = have[1].get("f").is_some_and(|bytes| *bytes == "contentmore");
        assert_eq!(outcome.is_ok(), is_moved, "{n}: {outcome:?} {have:?}");
    }
}

#[test]
fn whoever_waits_to_write_gets_the_file_back() {
    for asks in [true, false] {
        let world = World::new(b"content");
        let ino = world.walk("d/f").unwrap();
        let when: fn(&NativeCall) -> bool = if asks {
            |call| matches!(call, NativeCall::LeaseHolds { .. })
        } else {
            |call| matches!(call, NativeCall::Read { .. })
        };
        let act = |tree: &SimTree| {
            let dir = look(tree, tree.root().id, "d").unwrap().id;
            let names = ["f", ".atoll-moving-3", ".atoll-moving-4", ".atoll-moving-5"];
            let id = names.iter().find_map(|name| look(tree, dir, name)).unwrap().id;
            let write =
                NativeCall::Write { of: At { id, seen: None }, offset: 0, append: false, kill_set_id: false };
            assert_eq!(tree.direct(&Who::Daemon, &write, b"C"), Err(Errno::EAGAIN), "it waits");
        };
        *world.members[0].beside.lock().unwrap() = Some((when, Box::new(act)));
        assert_eq!(world.append(ino, b"more"), Err(Errno::ENOSPC));
        assert!(world.members[0].beside.lock().unwrap().is_none(), "somebody has waited");
        assert_eq!(world.have(), [only("f", b"content"), BTreeMap::new()]);
        assert_eq!(world.walk("d/f"), Ok(ino));
    }
}

#[test]
fn a_process_that_dies_leaves_the_file_whole_and_nothing_of_its_own() {
    let mut moved = 0;
    for changes in 1.. {
        let mut world = World::new(&with_holes());
        let ino = world.walk("d/f").unwrap();
        world.life.store(changes, Ordering::Relaxed);
        let outcome = world.append(ino, b"more");
        world.restart();
        let have = world.have();
        let contents: Vec<&Bytes> = have.iter().flat_map(|files| files.values()).collect();
        assert!(have.iter().all(|files| files.keys().all(|name| name == "f")), "{changes}: {have:?}");
        assert!(contents.iter().all(|bytes| bytes.starts_with(&with_holes())), "{changes}");
        assert!(!contents.is_empty(), "{changes}");
        moved += usize::from(!have[1].is_empty());
        let shown = world.read(world.walk("d/f").unwrap());
        if outcome.is_ok() {
            assert!(shown.ends_with(b"more"));
            break;
        }
    }
    assert!(moved > 1);
}
