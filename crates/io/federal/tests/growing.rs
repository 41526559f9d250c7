//! Files that grow on a full member are moved, and the operation goes on. Nothing is lost or doubled, whatever happens meanwhile.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atoll_core::Ino;
use atoll_federal::{Federation, settle};
use atoll_intents::{Intents, SimIntents};
use atoll_member::{SimTree, Tree};
use atoll_posix::{Allocation, Answer, Errno, Op, RenameMode};
use atoll_union::{At, FrontendId, NativeCall, NativeReply, Settings, Who};
use bytes::Bytes;
use common::{Around, Called, Direct, Outcome, lives, moment, name, opened, run, tree, trees, walk};

/// What a program does in a member just before a call of some kind.
type Beside = (fn(&NativeCall) -> bool, Box<dyn FnOnce(&SimTree) + Send>);

/// A member of a process that dies after so many calls that change something.
struct Member {
    life: Arc<AtomicU64>,
    beside: Mutex<Option<Beside>>,
}

impl Called for Member {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let is_change = matches!(
            call,
            NativeCall::Rename { .. }
                | NativeCall::Unlink { .. }
                | NativeCall::Link { .. }
                | NativeCall::Write { .. }
        );
        if !lives(&self.life, is_change) {
            return Err(Errno::EIO);
        }
        let mut beside = self.beside.lock().unwrap();
        if let Some((_, act)) = beside.take_if(|(when, _)| when(call)) {
            act(tree);
        }
        tree.call(who, call, bytes)
    }
}

struct World {
    members: Vec<Arc<Around<Member>>>,
    intents: Arc<SimIntents>,
    life: Arc<AtomicU64>,
    union: Arc<Federation>,
}

const FULL: u64 = 20_000;

impl World {
    /// Two members, of which the first has `d/f` with these bytes and is full.
    fn new(content: &[u8]) -> Self {
        let life = Arc::new(AtomicU64::new(u64::MAX));
        let member = |n| {
            let called = Member { life: Arc::clone(&life), beside: Mutex::default() };
            Arc::new(Around { tree: tree(n), called })
        };
        let members: Vec<_> = (0..2).map(member).collect();
        let tree = &members[0].tree;
        Direct(tree).mkdir("d");
        Direct(tree).put("d/f", content);
        tree.set_faults(|faults| faults.bytes_max = content.len() as u64);
        let intents = Arc::new(SimIntents::default());
        let union = start(&members, &intents);
        Self { members, intents, life, union }
    }

    fn op(&self, op: Op, bytes: &[u8]) -> Outcome {
        run(&self.union, op, bytes)
    }

    fn walk(&self, path: &str) -> Result<Ino, Errno> {
        walk(&self.union, path)
    }

    fn direct(&self, member: usize) -> Direct<'_> {
        Direct(&self.members[member].tree)
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
            settle(&mut intent, &trees(&self.members), &mut |_| Ok(())).unwrap();
            self.intents.over(id);
        }
        self.union = start(&self.members, &self.intents);
    }
}

fn start(members: &[Arc<Around<Member>>], intents: &Arc<SimIntents>) -> Arc<Federation> {
    let union = Federation::stepped(Settings::default(), opened(members), moment(0));
    union.keep_intents_in(Arc::clone(intents) as Arc<dyn Intents>);
    union
}

fn files(tree: &SimTree) -> BTreeMap<String, Bytes> {
    let direct = Direct(tree);
    let Ok(dir) = direct.look("d") else { return BTreeMap::new() };
    let list = NativeCall::List { dir: dir.id, from: 0, bytes: 1 << 20 };
    let Ok(NativeReply::Names { names, .. }) = direct.call(&list, &[]) else { panic!("no names") };
    let read = |text: &str| {
        let of = At { id: direct.look(&format!("d/{text}")).unwrap().id, seen: None };
        match direct.call(&NativeCall::Read { of, offset: 0, len: 1 << 20 }, &[]) {
            Ok(NativeReply::Data(bytes)) => bytes,
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
    let stat = world.direct(1).look("d/f").unwrap();
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
    let (direct, seen) = (world.direct(0), None);
    let (dir, id) = (direct.look("d").unwrap().id, direct.look("d/f").unwrap().id);
    direct.call(&NativeCall::Link { of: At { id, seen }, dir, name: name("g") }, &[]).unwrap();
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
            let direct = Direct(tree);
            direct.put("d/new", "rewritten");
            let (dir, id) = (direct.look("d").unwrap().id, direct.look("d/new").unwrap().id);
            let (old, new) = (name("new"), name("f"));
            let new_id = direct.look("d/f").ok().map(|stat| stat.id);
            let mode = RenameMode::Replace;
            let call = NativeCall::Rename { dir, name: old, id, new_dir: dir, new_name: new, new_id, mode };
            direct.call(&call, &[]).unwrap();
        };
        *world.members[0].called.beside.lock().unwrap() = Some((when, Box::new(act)));
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
            let names = ["d/f", "d/.atoll-moving-3", "d/.atoll-moving-4", "d/.atoll-moving-5"];
            let id = names.iter().find_map(|path| Direct(tree).look(path).ok()).unwrap().id;
            let write =
                NativeCall::Write { of: At { id, seen: None }, offset: 0, append: false, kill_set_id: false };
            assert_eq!(Direct(tree).call(&write, b"C"), Err(Errno::EAGAIN), "it waits");
        };
        *world.members[0].called.beside.lock().unwrap() = Some((when, Box::new(act)));
        assert_eq!(world.append(ino, b"more"), Err(Errno::ENOSPC));
        assert!(world.members[0].called.beside.lock().unwrap().is_none(), "somebody has waited");
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

#[test]
fn the_handle_of_a_file_that_was_moved_names_it_as_long_as_the_process_lives() {
    let world = World::new(&[7; FULL as usize]);
    let ino = world.walk("d/f").unwrap();
    let (tag, handle) = world.union.handle_of(ino).unwrap();
    let by_handle = |world: &World| world.union.by_handle(FrontendId::default(), tag, handle.clone());
    world.append(ino, b"more").unwrap();
    assert_eq!(world.have()[1].len(), 1, "it was moved");
    // A client has nothing but the handle.
    world.union.forget(&[ino]);
    assert_eq!(by_handle(&world), Ok(ino));
    assert_eq!(world.read(ino)[FULL as usize..], b"more"[..]);
    assert_eq!(world.walk("d/f"), Ok(ino));
    world.op(Op::Unlink { dir: world.walk("d").unwrap(), name: name("f") }, b"").unwrap();
    world.union.forget(&[ino]);
    assert_eq!(by_handle(&world), Err(Errno::ESTALE));
}

#[test]
fn the_handle_of_a_file_that_was_moved_is_stale_after_a_restart() {
    let mut world = World::new(&[7; FULL as usize]);
    let ino = world.walk("d/f").unwrap();
    let (tag, handle) = world.union.handle_of(ino).unwrap();
    world.append(ino, b"more").unwrap();
    world.restart();
    assert_eq!(world.union.by_handle(FrontendId::default(), tag, handle), Err(Errno::ESTALE));
}
