//! Many seeds of the small world: whatever fails, nothing that was promised is lost, no two primaries answer, and when faults
//! end every group serves again.
//!
//! `ATOLL_SOAK=SEEDS cargo test --profile sim -p atoll-group --test seeds` runs so many fresh ones; `ATOLL_SEED=N` shows one.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// Seeds of a usual run.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64, is_told: bool) -> Result<World, String> {
    let mut world = World::new(seed);
    if is_told {
        world.trace = Some(Vec::new());
    }
    let done = catch_unwind(AssertUnwindSafe(|| {
        world.run();
        if seed.is_multiple_of(10) {
            world.run_to_rest();
        }
    }));
    if let Some(trace) = &world.trace {
        trace.iter().for_each(|line| println!("{line}"));
    }
    done.map(|()| world).map_err(|why| {
        let text = why.downcast_ref::<String>().cloned();
        text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

#[test]
fn whatever_fails_nothing_is_lost_and_every_group_serves_again() {
    if let Some(seed) = number("ATOLL_SEED") {
        if let Err(why) = run(seed, true) {
            panic!("seed {seed}: {why}");
        }
        return;
    }
    let (first, seeds) = match number("ATOLL_SOAK") {
        Some(seeds) => (1_000_000 + u64::from(std::process::id()) * 100_000, seeds),
        None => (1, SEEDS),
    };
    let (mut answered, mut promotions, mut cold, mut restarts) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        match run(seed, false) {
            Ok(world) => {
                answered += world.judge.groups.iter().map(|group| group.answered).sum::<u64>();
                promotions += world.judge.promotions;
                cold += world.judge.power_cuts;
                restarts += world.judge.restarts;
            }
            Err(why) => panic!("ATOLL_SEED={seed}: {why}"),
        }
    }
    println!(
        "{seeds} seeds from {first}: {answered} answers, {promotions} promotions, {restarts} restarts, {cold} cold starts"
    );
    assert!(promotions > seeds && restarts * 20 > seeds && cold * 20 > seeds, "too little happens");
}
