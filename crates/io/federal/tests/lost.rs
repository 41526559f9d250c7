//! A disk that was away has lost what it had not synced: a sync behind that says so.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RequestOptions};
use atoll_union::{Finished, Moment, PlaceRule, Settings, Tag, UnionRequest};
use bytes::Bytes;

struct World {
    trees: [Arc<SimTree>; 2],
    union: Arc<Federation>,
}

fn moment(ms: u64) -> Moment {
    Moment { ms, wall: Time { secs: 10_000, nanos: 0 }.plus_millis(ms) }
}

impl World {
    fn new() -> Self {
        let trees = [1, 2].map(|fs| Arc::new(SimTree::new(fs, Time { secs: 1_000, nanos: 0 })));
        let member = |n: usize| (Tag(n as u16 + 1), false, Arc::clone(&trees[n]) as Arc<dyn Tree>);
        let settings = Settings { place: PlaceRule::First, ..Settings::default() };
        let union = Federation::stepped(settings, vec![member(0), member(1)], moment(1));
        Self { trees, union }
    }

    fn op(&self, op: Op) -> Result<Finished, Errno> {
        let (send, receive) = sync_channel(1);
        let (options, bytes) = (RequestOptions::default(), Bytes::from_static(b"bytes"));
        let request = UnionRequest { caller: Caller::ROOT, options, op, bytes };
        self.union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
        receive.try_recv().expect("an operation over simulated members ends at once")
    }

    /// A new file in the first member, or in the second one.
    fn create(&self, text: &str, member: usize) -> Ino {
        self.trees[0].set_faults(|faults| faults.inodes_max = if member == 0 { u64::MAX } else { 0 });
        let (name, target) = (Name::new(text.as_bytes()).unwrap(), Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let op = Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target };
        match self.op(op).unwrap().answer {
            Answer::Found { found } => found.attr.ino,
            other => panic!("{other:?}"),
        }
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
