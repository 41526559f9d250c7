//! Members of a union that is shown, over simulated trees: how they are, and how they come and go.

mod common;

use std::sync::Arc;

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Errno, Kind, Op};
use atoll_union::{MemberState, NativeCall, NativeReply, Settings, Tag, Who};
use bytes::Bytes;
use common::{Outcome, list, moment, name, opened, run, tree, walk};

struct World {
    trees: Vec<Arc<SimTree>>,
    union: Arc<Federation>,
}

impl World {
    /// A union whose clock stands until the test sets it.
    fn new(members: u16) -> Self {
        let trees: Vec<_> = (0..members).map(|n| Arc::new(tree(n))).collect();
        let union = Federation::stepped(Settings::default(), opened(&trees), moment(0));
        Self { trees, union }
    }

    fn join(&mut self) -> Tag {
        let tag = Tag(self.trees.len() as u16 + 1);
        self.trees.push(Arc::new(tree(tag.0 - 1)));
        let joined = self.trees.last().unwrap();
        self.union.join((tag, false, Arc::clone(joined) as Arc<dyn Tree>));
        tag
    }

    fn op(&self, op: Op) -> Outcome {
        run(&self.union, op, b"")
    }

    fn walk(&self, path: &str) -> Result<Ino, Errno> {
        walk(&self.union, path)
    }

    fn list(&self, dir: Ino) -> Result<Vec<String>, Errno> {
        let (names, end) = list(&self.union, dir);
        end.map(|()| names)
    }

    /// Makes directories and a file in a member, without the union.
    fn make(&self, member: usize, path: &str) {
        let tree = &self.trees[member];
        let (mut dir, mut parts) = (tree.root().id, path.split('/').peekable());
        while let Some(part) = parts.next() {
            let name = name(part);
            let call = match parts.peek() {
                Some(_) => NativeCall::Mkdir { dir, name: name.clone(), mode: 0o755, umask: 0 },
                None => {
                    let (kind, mode, umask, rdev, target) = (Kind::Regular, 0o644, 0, 0, Bytes::new());
                    NativeCall::Make { dir, name: name.clone(), kind, mode, umask, rdev, target }
                }
            };
            let stat = match tree.direct(&Who::Daemon, &call, b"") {
                Err(Errno::EEXIST) => tree.direct(&Who::Daemon, &NativeCall::Look { dir, name }, b""),
                told => told,
            };
            let Ok(NativeReply::Stat(stat)) = stat else { panic!("{stat:?}") };
            dir = stat.id;
        }
    }
}

#[test]
fn it_is_known_since_when_a_member_is_away() {
    let world = World::new(2);
    let state = || {
        let machine = world.union.machine();
        let member = machine.members().get(Tag(2)).unwrap();
        (member.state, member.since)
    };
    assert_eq!(state(), (MemberState::Serving, moment(0).ms));
    world.trees[1].set_faults(|faults| faults.away = true);
    world.union.step(moment(300));
    assert_eq!(state(), (MemberState::Away, moment(300).ms));
    world.union.step(moment(900));
    assert_eq!(state(), (MemberState::Away, moment(300).ms), "it has been away since then");
}

#[test]
fn what_a_member_has_that_comes_is_seen_at_once_also_in_directories_that_are_known() {
    let mut world = World::new(2);
    world.make(0, "a/b/old");
    let dir = world.walk("a/b").unwrap();
    assert_eq!(world.list(dir), Ok(vec!["old".into()]));
    assert_eq!(world.walk("a/b/new"), Err(Errno::ENOENT));
    assert_eq!(world.walk("only"), Err(Errno::ENOENT));
    let tag = world.join();
    world.make(2, "a/b/new");
    world.make(2, "only/f");
    assert_eq!(world.union.machine().members().rank(tag), 2, "it is the last one");
    // The clock stands: nothing that was known has become too old.
    assert!(world.walk("a/b/new").is_ok() && world.walk("only/f").is_ok());
    assert_eq!(world.walk("a/b"), Ok(dir), "the directory is the same");
    assert_eq!(world.list(dir), Ok(vec!["new".into(), "old".into()]));
}

#[test]
fn a_member_that_comes_and_is_away_makes_absence_uncertain() {
    let mut world = World::new(2);
    world.make(0, "a/f");
    let dir = world.walk("a").unwrap();
    world.join();
    world.trees[2].set_faults(|faults| faults.away = true);
    world.union.step(moment(300));
    assert!(world.walk("a/f").is_ok());
    assert_eq!(world.walk("a/g"), Err(Errno::EIO), "it may have it");
    assert_eq!(world.list(dir), Err(Errno::EIO));
}

#[test]
fn a_member_that_leaves_takes_along_what_only_it_has() {
    let mut world = World::new(2);
    world.make(0, "both/one");
    world.make(1, "both/two");
    world.make(1, "alone/inner/f");
    let (both, alone) = (world.walk("both").unwrap(), world.walk("alone").unwrap());
    let inner = world.walk("alone/inner").unwrap();
    let file = world.walk("both/two").unwrap();
    assert_eq!(world.list(both), Ok(vec!["one".into(), "two".into()]));
    assert_eq!(world.list(inner), Ok(vec!["f".into()]));
    world.union.leave(Tag(2), false).unwrap();
    assert_eq!(world.list(both), Ok(vec!["one".into()]));
    assert_eq!(world.walk("both"), Ok(both), "the directory is the same");
    assert_eq!(world.walk("alone"), Err(Errno::ENOENT));
    for gone in [alone, inner, file] {
        assert_eq!(world.op(Op::GetAttr { ino: gone }), Err(Errno::ESTALE));
    }
    assert_eq!(Arc::strong_count(&world.trees[1]), 1, "nothing holds it");
    assert_eq!(world.union.leave(Tag(2), false), Err(Errno::ENOENT));
    assert_eq!(world.union.leave(Tag(1), true), Err(Errno::EINVAL), "the last one stays");
    // The same member comes back.
    let back = Arc::clone(&world.trees[1]) as Arc<dyn Tree>;
    back.call(&Who::Daemon, &NativeCall::ForgetDirs { dirs: Vec::new() }, b"").unwrap();
    world.union.join((Tag(2), false, back));
    assert!(world.walk("alone/inner/f").is_ok());
    assert_eq!(world.walk("both/two"), Ok(file), "its files have the numbers that they had");
    assert_eq!(world.join(), Tag(3));
}

#[test]
fn a_member_that_is_away_can_leave_and_then_nothing_is_uncertain() {
    let world = World::new(2);
    world.make(1, "f");
    world.trees[1].set_faults(|faults| faults.away = true);
    world.union.step(moment(300));
    assert_eq!(world.walk("f"), Err(Errno::EIO));
    world.union.leave(Tag(2), false).unwrap();
    assert_eq!(world.walk("f"), Err(Errno::ENOENT));
    assert_eq!(world.list(Ino::ROOT), Ok(Vec::new()));
}
