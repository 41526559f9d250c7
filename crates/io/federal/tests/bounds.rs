//! What a union keeps of names is bounded in bytes, costs no call, and is never taken for all names there are.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RequestOptions};
use atoll_union::{
    Changes, Finished, Moment, NamesMax, NativeCall, NativeReply, NativeStat, Settings, Tag, UnionRequest,
    Who,
};
use bytes::Bytes;

/// A member that counts the calls to it.
struct Counted {
    tree: SimTree,
    calls: Arc<AtomicUsize>,
}

impl Tree for Counted {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        self.calls.fetch_add(1, Ordering::Relaxed);
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

struct World {
    trees: Vec<Arc<Counted>>,
    union: Arc<Federation>,
    calls: Arc<AtomicUsize>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn moment(ms: u64) -> Moment {
    Moment { ms: ms + 1, wall: Time { secs: 10_000, nanos: 0 }.plus_millis(ms) }
}

fn make(dir: atoll_union::NativeId, text: &str, kind: Kind) -> NativeCall {
    let (name, mode, target) = (name(text), 0o755, Bytes::new());
    match kind {
        Kind::Directory => NativeCall::Mkdir { dir, name, mode, umask: 0 },
        kind => NativeCall::Make { dir, name, kind, mode, umask: 0, rdev: 0, target },
    }
}

impl World {
    fn new(members: u16) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let tree = |n: u16| {
            let tree = SimTree::new(u64::from(n), Time { secs: 1_000 + i64::from(n), nanos: 0 });
            Arc::new(Counted { tree, calls: Arc::clone(&calls) })
        };
        let trees: Vec<Arc<Counted>> = (0..members).map(tree).collect();
        let member =
            |(n, tree): (usize, &Arc<Counted>)| (Tag(n as u16 + 1), false, Arc::clone(tree) as Arc<dyn Tree>);
        let opened = trees.iter().enumerate().map(member).collect();
        let union = Federation::stepped(Settings::default(), opened, moment(0));
        Self { trees, union, calls }
    }

    fn op(&self, op: Op) -> Result<Finished, Errno> {
        let (send, receive) = sync_channel(1);
        let options = RequestOptions::default();
        let request = UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::new() };
        self.union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
        receive.try_recv().expect("an operation over simulated members ends at once")
    }

    fn lookup(&self, dir: Ino, text: &str) -> Result<Ino, Errno> {
        match self.op(Op::Lookup { dir, name: name(text) })?.answer {
            Answer::Found { found } => Ok(found.attr.ino),
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, dir: Ino) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let told = self.op(Op::ReadDir { dir, after, bytes: 4_000, plus: false }).unwrap();
            let Answer::Entries { entries, eof } = told.answer else { panic!("{told:?}") };
            assert!(eof || !entries.is_empty());
            after = entries.last().map_or(after, |entry| entry.cookie);
            names.extend(entries.into_iter().map(|entry| entry.name.to_string()));
            if eof {
                return names;
            }
        }
    }

    fn made_directly(&self, member: usize, path: &[&str], kind: Kind) {
        let tree = &self.trees[member].tree;
        let mut dir = tree.root().id;
        let (last, above) = path.split_last().unwrap();
        for part in above {
            let look = NativeCall::Look { dir, name: name(part) };
            let Ok(NativeReply::Stat(stat)) = tree.direct(&Who::Daemon, &look, &[]) else { panic!("{part}") };
            dir = stat.id;
        }
        tree.direct(&Who::Daemon, &make(dir, last, kind), &[]).unwrap();
    }

    fn names_bytes(&self) -> usize {
        self.union.machine().known().names_bytes()
    }
}

#[test]
fn a_directory_with_more_names_than_are_kept_is_listed_whole_and_each_name_is_found() {
    let world = World::new(2);
    let max = NamesMax { of_dir: 20_000, of_all: 40_000 };
    world.union.machine().bound_names(max);
    let mut all = BTreeSet::new();
    for n in 0..3_000 {
        let text = format!("f{n}");
        world.made_directly(n % 2, &[&text], Kind::Regular);
        all.insert(text);
    }
    // The listing comes in sections, each from all members.
    for _ in 0..2 {
        let listed = world.list(Ino::ROOT);
        assert_eq!(listed.len(), all.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), all);
        assert!(world.names_bytes() <= max.of_dir, "{}", world.names_bytes());
    }
    for text in &all {
        world.lookup(Ino::ROOT, text).unwrap();
    }
    assert_eq!(world.lookup(Ino::ROOT, "absent"), Err(Errno::ENOENT));
    let (dir, kind, target) = (Ino::ROOT, Kind::Regular, Bytes::new());
    for n in 0..1_000 {
        let text = format!("made{n}");
        let (name, target) = (name(&text), target.clone());
        world
            .op(Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target })
            .unwrap();
        all.insert(text);
        assert!(world.names_bytes() <= max.of_dir, "{}", world.names_bytes());
    }
    for text in ["f7", "f8", "made9"] {
        world.op(Op::Unlink { dir, name: name(text) }).unwrap();
        all.remove(text);
    }
    assert_eq!(world.list(Ino::ROOT).into_iter().collect::<BTreeSet<_>>(), all);
}

#[test]
fn the_names_that_were_read_longest_ago_are_forgotten_first() {
    let world = World::new(1);
    let max = NamesMax { of_dir: 20_000, of_all: 40_000 };
    world.union.machine().bound_names(max);
    for n in 0..50 {
        let dir = format!("d{n}");
        world.made_directly(0, &[&dir], Kind::Directory);
        (0..50).for_each(|n| world.made_directly(0, &[&dir, &format!("f{n}")], Kind::Regular));
    }
    for n in 0..50 {
        world.union.step(moment(1_000 * (n + 1)));
        let dir = world.lookup(Ino::ROOT, &format!("d{n}")).unwrap();
        assert_eq!(world.list(dir).len(), 50);
        assert!(world.names_bytes() <= max.of_all, "{}", world.names_bytes());
        let before = world.calls.load(Ordering::Relaxed);
        assert_eq!(world.list(dir).len(), 50);
        assert_eq!(world.calls.load(Ordering::Relaxed), before, "it was read last");
    }
}

#[test]
fn a_missing_name_costs_no_call_whatever_the_number_of_members() {
    for members in [2, 8, 64] {
        let world = World::new(members);
        world.made_directly(0, &["there"], Kind::Regular);
        for n in 0..10 {
            assert_eq!(world.lookup(Ino::ROOT, &format!("absent{n}")), Err(Errno::ENOENT));
        }
        let calls = world.calls.load(Ordering::Relaxed);
        for n in 0..100 {
            assert_eq!(world.lookup(Ino::ROOT, &format!("missing{n}")), Err(Errno::ENOENT));
        }
        assert_eq!(world.calls.load(Ordering::Relaxed), calls, "{members} members");
        world.lookup(Ino::ROOT, "there").unwrap();
        assert_eq!(world.calls.load(Ordering::Relaxed), calls + 1, "its attributes");
        world.made_directly(usize::from(members) - 1, &["missing7"], Kind::Regular);
        world.union.step(moment(1_100));
        world.lookup(Ino::ROOT, "missing7").unwrap();
    }
}

#[test]
fn a_few_lookups_do_not_read_a_directory() {
    let world = World::new(2);
    (0..1_000).for_each(|n| world.made_directly(n % 2, &[&format!("f{n}")], Kind::Regular));
    for n in 0..7 {
        world.lookup(Ino::ROOT, &format!("f{n}")).unwrap();
    }
    assert_eq!(world.names_bytes(), 0);
}
