//! A mount that is alone and takes its time to drop what it keeps: islands that go and come back while
//! it reads from them, and other mounts that come.

use atoll_posix::{Caller, Op};
use atoll_sim::{Config, Mishap, Party, alone, happens};
use bytes::Bytes;

#[test]
fn a_mount_that_was_alone_and_read_comes_back_to_an_island_that_was_away() {
    for seed in 0..40 {
        let mut config = Config::new(seed, 1 + (seed % 3) as u16);
        config.recall_us = 1_000_000;
        let (mut world, ino) = alone(config).unwrap();
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

/// A mount that keeps a file as it is, and its world.
fn keeping(seed: u64) -> (atoll_sim::World, atoll_core::Ino) {
    let config = Config { drifts: true, ..Config::new(seed, 1 + (seed % 3) as u16) };
    alone(config).unwrap()
}

/// Its clock counts the time for which it did nothing, and a sign of life counts from when it was given.
#[test]
fn a_mount_that_was_suspended_uses_nothing_that_it_kept_before() {
    for seed in 0..40 {
        let (mut world, ino) = keeping(seed);
        let slept = Mishap::Suspended(1_000_000 * (1 + seed));
        happens(&mut world, ino, slept, 200_000 * seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// The lease that an island gives goes on: the mount may not know yet that its link has ended.
#[test]
fn a_link_that_is_reset_at_the_island_alone_shortens_no_lease() {
    for seed in 0..20 {
        let (mut world, ino) = keeping(seed);
        happens(&mut world, ino, Mishap::ResetAtIslands, 50_000 * seed)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
