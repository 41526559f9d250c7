//! Bugs that are planted in the spine, one at a time: the small world finds each of them.
//!
//! `cargo test --profile sim -p atoll-spine --features planted --test planted` runs it; so does `cargo xtask
//! planted`.
#![cfg(feature = "planted")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::planted::{Bug, plant};
use world::{Variant, World};

/// The bugs of the spine, each with the variant that finds it soonest, and a seed not far before one that does.
const BUGS: &[(Bug, Variant, u64)] = &[
    (Bug::NoCycleCheck, Variant::Dense, 1),
    (Bug::FoldsByAge, Variant::Dense, 1),
    (Bug::ChainOnly, Variant::Dense, 1),
    (Bug::BaseNotKept, Variant::Dense, 700),
];

/// Seeds in which a bug is looked for.
const SEEDS: u64 = 400;

fn failure(seed: u64, variant: Variant) -> Option<String> {
    let done = catch_unwind(AssertUnwindSafe(|| World::new(seed, variant).run()));
    done.err().map(|why| {
        let text = why.downcast_ref::<String>().cloned();
        text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// `ATOLL_BUG=NAME` looks for one of them; `ATOLL_SEEDS=N` in so many seeds from 1 on, in every variant.
#[test]
fn the_small_world_finds_each_planted_bug() {
    let wanted = std::env::var("ATOLL_BUG").ok();
    let seeds = std::env::var("ATOLL_SEEDS").ok().and_then(|seeds| seeds.parse::<u64>().ok());
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let is_wanted = |bug: Bug| wanted.as_ref().is_none_or(|name| *name == bug.to_string());
    for (bug, soonest, first) in BUGS.iter().copied().filter(|(bug, ..)| is_wanted(*bug)) {
        let runs = match seeds {
            Some(seeds) => Variant::ALL.map(|variant| (variant, 1..=seeds)).to_vec(),
            None => vec![(soonest, first..=first + SEEDS)],
        };
        for (variant, mut seeds) in runs {
            plant(Some(bug));
            let found = seeds.find_map(|seed| failure(seed, variant).map(|why| (seed, why)));
            plant(None);
            let Some((seed, why)) = found else {
                missed.push((bug, variant));
                continue;
            };
            let why = why.lines().take(3).collect::<Vec<_>>().join(" ");
            println!("{bug}: {variant:?} {seed}: {}", why.chars().take(150).collect::<String>());
            assert_eq!(failure(seed, variant), None, "{bug}: seed {seed} fails without it");
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found: {missed:?}");
}
