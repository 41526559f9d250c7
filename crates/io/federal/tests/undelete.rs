//! Files that have lost their last name and are held for a while, over simulated trees.

mod common;

use std::sync::Arc;

use atoll_core::{Ino, VolumePath};
use atoll_federal::{Federation, NotBack};
use atoll_posix::{Answer, Errno, Kind, Op};
use atoll_union::{GRAVES_MAX, Settings};
use bytes::Bytes;
use common::{Outcome, moment, name, opened, run, tree};

struct World(Arc<Federation>);

fn path(text: &str) -> VolumePath {
    VolumePath::parse(text.as_bytes()).unwrap()
}

impl World {
    fn new(grace_s: u16) -> Self {
        let trees = [1, 2].map(|n| Arc::new(tree(n)));
        let settings = Settings { grace_s, ..Settings::default() };
        Self(Federation::stepped(settings, opened(&trees), moment(0)))
    }

    fn op(&self, op: Op, bytes: &[u8]) -> Outcome {
        run(&self.0, op, bytes)
    }

    fn create(&self, text: &str, bytes: &[u8]) -> Ino {
        let (name, target, dir) = (name(text), Bytes::new(), Ino::ROOT);
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o640, 0, 0, true);
        let op = Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target };
        let Answer::Found { found } = self.op(op, b"").unwrap().answer else { panic!() };
        let ino = found.attr.ino;
        self.op(Op::Write { ino, offset: 0, append: false, kill_set_id: false }, bytes).unwrap();
        ino
    }

    fn unlink(&self, text: &str) {
        self.op(Op::Unlink { dir: Ino::ROOT, name: name(text) }, b"").unwrap();
    }

    fn read(&self, text: &str) -> Result<(u32, Bytes), Errno> {
        let Answer::Found { found } = self.op(Op::Lookup { dir: Ino::ROOT, name: name(text) }, b"")?.answer
        else {
            panic!()
        };
        let bytes = self.op(Op::Read { ino: found.attr.ino, offset: 0, len: 4096 }, b"")?.bytes;
        Ok((found.attr.mode, bytes))
    }
}

#[test]
fn a_deleted_file_is_copied_back_until_its_time_is_over() {
    let world = World::new(5);
    let ino = world.create("f", b"content");
    world.unlink("f");
    world.0.forget(&[ino]);
    world.0.step(moment(4_900));
    assert_eq!(world.read("f"), Err(Errno::ENOENT));
    world.0.undelete(&path("/f")).unwrap();
    assert_eq!(world.read("f"), Ok((0o640, Bytes::from_static(b"content"))));
    assert_eq!(world.0.undelete(&path("/f")), Err(NotBack::NotHeld), "it is not held any more");
    world.unlink("f");
    world.0.step(moment(9_900));
    assert_eq!(world.0.undelete(&path("/f")), Err(NotBack::NotHeld));
    assert_eq!(world.read("f"), Err(Errno::ENOENT));
}

#[test]
fn a_name_that_was_taken_meanwhile_is_left_alone() {
    let world = World::new(5);
    world.create("f", b"old");
    world.unlink("f");
    world.create("f", b"new");
    assert_eq!(world.0.undelete(&path("/f")), Err(NotBack::Taken));
    assert_eq!(world.read("f").unwrap().1, "new");
    assert_eq!(world.0.undelete(&path("/none")), Err(NotBack::NotHeld));
}

#[test]
fn nothing_is_held_without_the_setting_or_if_a_name_is_left() {
    let world = World::new(0);
    world.create("f", b"x");
    world.unlink("f");
    assert_eq!(world.0.undelete(&path("/f")), Err(NotBack::NotHeld));
    let world = World::new(5);
    let ino = world.create("f", b"x");
    world.op(Op::Link { ino, dir: Ino::ROOT, name: name("g") }, b"").unwrap();
    world.unlink("f");
    assert_eq!(world.0.undelete(&path("/f")), Err(NotBack::NotHeld));
    assert!(world.read("g").is_ok());
}

#[test]
fn no_more_files_are_held_than_the_bound() {
    let world = World::new(5);
    for n in 0..=GRAVES_MAX {
        let name = format!("f{n}");
        let ino = world.create(&name, b"x");
        world.unlink(&name);
        world.0.forget(&[ino]);
    }
    assert!(world.0.undelete(&path(&format!("/f{}", GRAVES_MAX - 1))).is_ok());
    assert_eq!(world.0.undelete(&path(&format!("/f{GRAVES_MAX}"))), Err(NotBack::NotHeld));
    world.0.step(moment(5_000));
    world.create("after", b"x");
    world.unlink("after");
    assert!(world.0.undelete(&path("/after")).is_ok(), "there is room again");
}
