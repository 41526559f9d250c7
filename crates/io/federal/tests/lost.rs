//! A disk that was away has lost what it had not synced: a sync behind that says so.

mod common;

use std::sync::Arc;

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::SimTree;
use atoll_posix::{Errno, Op};
use atoll_union::{PlaceRule, Settings};
use common::{Outcome, create, ino, moment, opened, run, tree};

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

    fn op(&self, op: Op) -> Outcome {
        run(&self.union, op, b"bytes")
    }

    /// A new file in the first member, or in the second one.
    fn create(&self, text: &str, member: usize) -> Ino {
        self.trees[0].set_faults(|faults| faults.inodes_max = if member == 0 { u64::MAX } else { 0 });
        ino(self.op(create(Ino::ROOT, text))).unwrap()
    }

    fn write(&self, ino: Ino) {
        self.op(Op::Write { ino, offset: 0, append: false, kill_set_id: false }).unwrap();
    }

    fn sync(&self, ino: Ino) -> Result<(), Errno> {
        self.op(Op::Fsync { ino }).map(|_| ())
    }

    /// The first member is away and comes back.
    fn away(&self, ms: u64) {
        self.trees[0].set_faults(|faults| faults.away = true);
        self.union.step(moment(ms));
        self.trees[0].set_faults(|faults| faults.away = false);
        self.union.step(moment(ms + 1));
    }
}

#[test]
fn a_sync_fails_once_after_the_disk_was_away_and_only_for_what_was_written() {
    let world = World::new();
    let [written, synced, read] = ["written", "synced", "read"].map(|text| world.create(text, 0));
    let other = world.create("other", 1);
    [written, synced, other].into_iter().for_each(|ino| world.write(ino));
    assert_eq!(world.sync(synced), Ok(()));
    world.away(1_000);
    assert_eq!([world.sync(other), world.sync(read)], [Ok(()), Ok(())]);
    assert_eq!(world.sync(written), Err(Errno::EIO));
    assert_eq!(world.sync(written), Ok(()), "it is told once");
    world.write(written);
    assert_eq!(world.sync(written), Ok(()));
    world.away(2_000);
    assert_eq!(world.sync(written), Err(Errno::EIO), "what a kernel writes by itself is not seen here");
}

#[test]
fn the_number_of_losses_is_that_of_the_files_home() {
    let world = World::new();
    let (first, second) = (world.create("first", 0), world.create("second", 1));
    let losses = || [first, second].map(|ino| world.union.machine().losses(ino));
    let before = losses();
    world.away(1_000);
    let after = losses();
    assert!(before[0] != after[0] && before[1] == after[1]);
    world.away(2_000);
    assert_ne!(losses()[0], after[0]);
}
