//! A machine stands still for a while, and then goes on where it was: it has not died, and knows nothing of the pause.

use atoll_disk::sim::Fault;
use atoll_posix::{Errno, Kind, Op};
use atoll_sim::{Config, World};
use bytes::Bytes;

use crate::bench::{Bench, S, T, name, node};

/// Longer than links live in silence, and than islands wait for each other.
const STILL_US: u64 = 20_000_000;

fn create(bench: &Bench, island: usize, n: &str) -> Op {
    let (dir, target) = (bench.dirs[island], Bytes::new());
    Op::Create {
        dir,
        name: name(n),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target,
    }
}

/// A request is at work at S, whose machine stands still then: its token.
fn frozen(seed: u64) -> (Bench, u64) {
    let mut bench = Bench::new(seed, 3);
    bench.rest();
    let asked = bench.call(0, create(&bench, S, "a"));
    bench.wait(seed % 700);
    bench.world.freeze(node(S), STILL_US);
    (bench, asked)
}

#[test]
fn a_machine_that_stood_still_does_what_it_was_asked_and_others_go_on_meanwhile() {
    let mut waited = 0;
    for seed in 0..20 {
        let (mut bench, asked) = frozen(seed);
        let thaws_us = bench.world.now_us() + STILL_US;
        let other = bench.call(1, create(&bench, T, "b"));
        assert!(bench.answer(1, other).is_ok(), "seed {seed}");
        assert!(bench.world.now_us() < thaws_us - STILL_US / 2, "seed {seed}: others wait for it");
        let done = bench.answer(0, asked);
        assert!(done.is_ok(), "seed {seed}: {done:?}");
        waited += u32::from(bench.world.now_us() >= thaws_us);
        bench.settle();
        assert!(bench.at(S, "a").is_ok() && bench.at(T, "b").is_ok(), "seed {seed}");
        assert_eq!(bench.world.injected.deaths, 0, "seed {seed}: it has not died");
    }
    assert!(waited > 5, "{waited}");
}

#[test]
fn its_boot_clock_goes_on() {
    let (mut bench, _) = frozen(1);
    let before = bench.world.boot_ms(node(S));
    bench.wait(STILL_US / 2);
    assert_eq!(bench.world.boot_ms(node(S)), before + STILL_US / 2000);
}

#[test]
fn its_links_end_where_others_hear_nothing_and_are_there_again_when_it_runs() {
    let (mut bench, _) = frozen(3);
    bench.wait(STILL_US / 2);
    assert!(bench.world.tail(3000).contains("has lost its link"), "{}", bench.world.tail(30));
    assert_eq!(bench.world.injected.deaths, 0);
    assert!(bench.step_until(STILL_US, World::is_calm), "{}", bench.world.tail(30));
}

#[test]
fn a_machine_that_dies_while_it_stands_still_starts_again_at_once() {
    for seed in 0..10 {
        let (mut bench, asked) = frozen(seed);
        let thaws_us = bench.world.now_us() + STILL_US;
        bench.wait(1_000_000);
        bench.world.kill(node(S), Fault::ProcessDeath);
        let done = bench.answer(0, asked);
        assert!(matches!(done, Ok(_) | Err(Errno::EEXIST)), "seed {seed}: {done:?}");
        assert!(bench.world.now_us() < thaws_us, "seed {seed}: it waits for a machine that runs");
        bench.wait(STILL_US);
        bench.settle();
    }
}

#[test]
fn a_link_through_another_machine_becomes_a_direct_one_although_its_own_stood_still() {
    let mut bench = Bench::with(Config { relays: true, ..Config::new(1, 3) });
    for us in (0..20).map(|n| n * 500_000) {
        bench.world.cut_between(node(S), node(T), true);
        bench.wait(3_000_000);
        bench.world.cut_between(node(S), node(T), false);
        bench.wait(us);
        bench.world.freeze(node(S), 1_500_000);
        bench.wait(1_500_000);
        // Also: no link goes through another machine any more.
        bench.world.settle().unwrap_or_else(|why| panic!("{us}: {why}"));
    }
}
