//! Random histories of a small world: whatever users do at sites that hear of each other late, in any order, or not at all, and
//! whose power fails, all come to show the same, and that is what the oracle says.
//!
//! `ATOLL_SOAK=HISTORIES cargo test --release -p atoll-shown --test histories` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Histories of a usual run.
const HISTORIES: u64 = 800;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn all_sites_come_to_show_what_the_oracle_says() {
    if let Some(seed) = number("ATOLL_SEED") {
        world::random::run(seed);
        return;
    }
    let histories = number("ATOLL_SOAK").unwrap_or(HISTORIES);
    let mut told = world::random::Counts::default();
    for seed in 1..=histories {
        match catch_unwind(AssertUnwindSafe(|| world::random::run(seed))) {
            Ok(counts) => told.add(counts),
            Err(_) => panic!("ATOLL_SEED={seed} cargo test -p atoll-shown --test histories"),
        }
    }
    println!("{histories} histories: {told:?}");
    assert!(told.is_rich(), "too little happens: {told:?}");
}
