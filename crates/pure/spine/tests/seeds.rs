//! Many seeds of the small world: each site has at every moment the tree that Kleppmann's algorithm makes of the
//! moves that it knows.
//!
//! `ATOLL_MOVES=1000000 cargo test --release -p atoll-spine --test seeds -- --nocapture` goes on until so many moves are made, with seeds
//! that usual runs do not have. `ATOLL_SEED=N` runs one seed of each variant.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Counts, Variant, World};

/// Moves of a usual run, of each variant.
const MOVES: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64, variant: Variant) -> Counts {
    let mut world = World::new(seed, variant);
    if catch_unwind(AssertUnwindSafe(|| world.run())).is_err() {
        panic!("{variant:?}: ATOLL_SEED={seed} cargo test -p atoll-spine --test seeds");
    }
    world.counts
}

#[test]
fn each_site_has_the_tree_of_the_moves_that_it_knows() {
    if let Some(seed) = number("ATOLL_SEED") {
        Variant::ALL.into_iter().for_each(|variant| println!("{variant:?}: {:?}", run(seed, variant)));
        return;
    }
    let soak = number("ATOLL_MOVES");
    let moves = soak.map_or(MOVES, |moves| moves / Variant::ALL.len() as u64 + 1);
    let mut all = Counts::default();
    for variant in Variant::ALL {
        let first = if soak.is_some() { 1_000_000 } else { 1 };
        let mut counts = Counts::default();
        let seeds = (first..).take_while(|seed| {
            let goes_on = counts.moves < moves;
            if goes_on {
                counts += run(*seed, variant);
            }
            goes_on
        });
        let seeds = seeds.count();
        println!("{variant:?}: {seeds} seeds from {first}: {counts:?}");
        all += counts;
    }
    let often = [all.together, all.late, all.refused, all.cuts, all.dropped];
    assert!(often.into_iter().all(|count| count * 20 > all.moves), "too little happens");
    assert!(all.lost * 300 > all.moves && all.deaths * 50 > all.moves, "too little happens");
    assert!(all.stale > 0, "no evidence comes too late");
}
