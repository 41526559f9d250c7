//! A mount that is alone and takes its time to drop what it keeps: islands that go and come back while
//! it reads from them, and other mounts that come.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_sim::{Config, Party, World};
use bytes::Bytes;

/// The first client is a mount that has been alone for long, with a file; the second one is cut off.
fn alone(seed: u64, islands: u16, recall_us: u64) -> (World, Ino) {
    let mut config = Config::new(seed, islands);
    (config.clients, config.mounts, config.recall_us) = (2, true, recall_us);
    let mut world = World::new(config).unwrap();
    world.partition(|party| party == Party::Client(1));
    world.run_for(40_000_000).unwrap();
    let (name, target) = (Name::new(b"f").unwrap(), Bytes::new());
    let (dir, kind) = (Ino::ROOT, Kind::Regular);
    let op = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
    let made = world.run(0, &Caller::ROOT, op, Bytes::new()).unwrap().unwrap().0;
    let Answer::Found { found } = made else { panic!("{made:?}") };
    let ino = found.attr.ino;
    let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
    world.run(0, &Caller::ROOT, write, Bytes::from_static(&[7; 9000])).unwrap().unwrap();
    assert!(world.keeps(0), "nobody else is attached");
    (world, ino)
}

#[test]
fn a_mount_that_was_alone_and_read_comes_back_to_an_island_that_was_away() {
    for seed in 0..40 {
        let (mut world, ino) = alone(seed, 1 + (seed % 3) as u16, 1_000_000);
        let reads: Vec<u64> = (0..8)
            .map(|n| {
                let read = Op::Read { ino, offset: n * 1000, len: 1000 };
                world.call(0, &Caller::ROOT, read, Bytes::new(), n * 400)
            })
            .collect();
        world.run_for(seed * 100).unwrap();
        world.partition(|party| matches!(party, Party::Client(_)));
        // Also while what is kept is still being dropped.
        world.run_for(500_000 + seed % 2 * 10_000_000).unwrap();
        let healed_us = world.now_us();
        world.partition(|party| party == Party::Client(1));
        while !world.keeps(0) {
            assert!(world.now_us() < healed_us + 20_000_000, "seed {seed}: it never keeps anything again");
            world.run(0, &Caller::ROOT, Op::GetAttr { ino }, Bytes::new()).unwrap().unwrap();
            world.run_for(100_000).unwrap();
        }
        for read in reads {
            let done = loop {
                if let Some(done) = world.poll(0, read) {
                    break done;
                }
                assert!(world.now_us() < healed_us + 30_000_000, "seed {seed}: never answered");
                world.step().unwrap();
            };
            assert_eq!(done.unwrap().1, [7; 1000], "seed {seed}");
        }
    }
}
