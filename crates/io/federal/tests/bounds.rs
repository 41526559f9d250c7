//! What a union keeps of names is bounded in bytes, costs no call, and is never taken for all names there are.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Errno, Op};
use atoll_union::{NamesMax, NativeCall, NativeReply, Settings, Who};
use common::{Around, Called, Direct, Outcome, create, ino, lookup, moment, name, opened, run, tree};

/// A member that counts the calls to it.
struct Counted {
    calls: Arc<AtomicUsize>,
}

impl Called for Counted {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        tree.call(who, call, bytes)
    }
}

struct World {
    trees: Vec<Arc<Around<Counted>>>,
    union: Arc<Federation>,
    calls: Arc<AtomicUsize>,
}

impl World {
    fn new(members: u16) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let member = |n| Arc::new(Around { tree: tree(n), called: Counted { calls: Arc::clone(&calls) } });
        let trees: Vec<_> = (0..members).map(member).collect();
        let opened = opened(&trees);
        let union = Federation::stepped(Settings::default(), opened, moment(0));
        Self { trees, union, calls }
    }

    fn op(&self, op: Op) -> Outcome {
        run(&self.union, op, b"")
    }

    fn lookup(&self, dir: Ino, text: &str) -> Result<Ino, Errno> {
        ino(self.op(lookup(dir, text)))
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

    fn direct(&self, member: usize) -> Direct<'_> {
        Direct(&self.trees[member].tree)
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
        world.direct(n % 2).put(&text, "");
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
    for n in 0..1_000 {
        let text = format!("made{n}");
        world.op(create(Ino::ROOT, &text)).unwrap();
        all.insert(text);
        assert!(world.names_bytes() <= max.of_dir, "{}", world.names_bytes());
    }
    for text in ["f7", "f8", "made9"] {
        world.op(Op::Unlink { dir: Ino::ROOT, name: name(text) }).unwrap();
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
        world.direct(0).mkdir(&dir);
        (0..50).for_each(|n| world.direct(0).put(&format!("{dir}/f{n}"), ""));
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
        world.direct(0).put("there", "");
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
        world.direct(usize::from(members) - 1).put("missing7", "");
        world.union.step(moment(1_100));
        world.lookup(Ino::ROOT, "missing7").unwrap();
    }
}

#[test]
fn a_few_lookups_do_not_read_a_directory() {
    let world = World::new(2);
    (0..1_000).for_each(|n| world.direct(n % 2).put(&format!("f{n}"), ""));
    for n in 0..7 {
        world.lookup(Ino::ROOT, &format!("f{n}")).unwrap();
    }
    assert_eq!(world.names_bytes(), 0);
}
