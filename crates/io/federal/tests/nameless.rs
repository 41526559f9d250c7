//! Files without a name (`O_TMPFILE`): where they are made, that they can get a name, and that they go.

mod common;

use std::sync::Arc;

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Attr, Errno, Op};
use atoll_union::{At, NativeCall, NativeReply, PlaceRule, Settings, Who};
use common::{Outcome, moment, name, opened, run, tree};

struct World {
    trees: [Arc<SimTree>; 2],
    union: Arc<Federation>,
}

impl World {
    fn new() -> Self {
        let trees = [1, 2].map(|n| Arc::new(tree(n)));
        let settings = Settings { place: PlaceRule::First, ..Settings::default() };
        let union = Federation::stepped(settings, opened(&trees), moment(0));
        Self { trees, union }
    }

    fn write(&self, op: Op, bytes: &[u8]) -> Outcome {
        run(&self.union, op, bytes)
    }

    fn found(&self, op: Op) -> Result<Attr, Errno> {
        match self.write(op, b"")?.answer {
            Answer::Found { found } => Ok(found.attr),
            other => panic!("{other:?}"),
        }
    }

    fn tmpfile(&self, dir: Ino) -> Result<Attr, Errno> {
        self.found(Op::Tmpfile { dir, mode: 0o640, umask: 0o27 })
    }

    /// How many inodes a member has.
    fn inodes(&self, member: usize) -> u64 {
        match self.trees[member].direct(&Who::Daemon, &NativeCall::Space, &[]).unwrap() {
            NativeReply::Space(space) => space.inodes - space.inodes_free,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_file_without_a_name_is_used_and_named_and_then_like_any_other() {
    let world = World::new();
    let dir = world.found(Op::Mkdir { dir: Ino::ROOT, name: name("d"), mode: 0o755, umask: 0 }).unwrap().ino;
    let made = world.tmpfile(dir).unwrap();
    assert_eq!((made.nlink, made.mode), (0, 0o640));
    let ino = made.ino;
    world.write(Op::Write { ino, offset: 0, append: false, kill_set_id: false }, b"bytes").unwrap();
    assert_eq!(world.found(Op::Lookup { dir, name: name("f") }), Err(Errno::ENOENT));
    let named = world.found(Op::Link { ino, dir, name: name("f") }).unwrap();
    assert_eq!((named.ino, named.nlink, named.size), (ino, 1, 5));
    assert_eq!(world.write(Op::Read { ino, offset: 0, len: 9 }, b"").unwrap().bytes, "bytes");
    // It was let go of: what has a name need not be held open.
    let root = world.trees[0].root().id;
    let look =
        |dir, text| world.trees[0].direct(&Who::Daemon, &NativeCall::Look { dir, name: name(text) }, &[]);
    let Ok(NativeReply::Stat(native)) = look(root, "d") else { panic!("it is made in the first member") };
    let Ok(NativeReply::Stat(file)) = look(native.id, "f") else { panic!("and so is the file") };
    let call = NativeCall::Unlink { dir: native.id, name: name("f"), id: file.id };
    world.trees[0].direct(&Who::Daemon, &call, &[]).unwrap();
    let of = At { id: file.id, seen: None };
    assert!(world.trees[0].direct(&Who::Daemon, &NativeCall::Stat { of }, &[]).is_err());
}

#[test]
fn a_file_that_never_gets_a_name_goes_when_the_frontend_forgets_it() {
    let world = World::new();
    let before = world.inodes(0);
    let ino = world.tmpfile(Ino::ROOT).unwrap().ino;
    assert_eq!(world.inodes(0), before + 1);
    world.union.forget(&[ino]);
    assert_eq!(world.inodes(0), before);
}

#[test]
fn a_full_member_is_passed_over_and_no_member_at_all_is_an_error() {
    let world = World::new();
    world.trees[0].set_faults(|faults| faults.inodes_max = 0);
    let before = world.inodes(1);
    let ino = world.tmpfile(Ino::ROOT).unwrap().ino;
    assert_eq!(world.inodes(1), before + 1);
    world.found(Op::Link { ino, dir: Ino::ROOT, name: name("f") }).unwrap();
    world.trees[1].set_faults(|faults| faults.inodes_max = 0);
    assert_eq!(world.tmpfile(Ino::ROOT), Err(Errno::ENOSPC));
}
