//! Random operations on the island of a site: what is watched makes the tree that the model has, after each operation.
//!
//! `ATOLL_SOAK=SEEDS cargo test --release -p atoll-wide --test watch` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(clippy::disallowed_macros, reason = "a test may print")]

mod drive;
mod site;
mod tree;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::Ino;
use atoll_wide::watch::{AttrValue, Happened, LocalObject};
use drive::{Done, Driver, number};
use site::Memory;
use tree::{Counts, Tree};

/// Seeds of a usual run.
const SEEDS: u64 = 20;
/// Operations of each.
const OPERATIONS: usize = 2_000;
/// Seeds of a usual run in which rows leave memory, and operations of each.
const SWEPT: (u64, usize) = (4, 1_000);
/// The operations, and the tree that is watched.
struct World {
    driver: Driver,
    tree: Tree,
}

impl World {
    fn new(seed: u64, memory: Memory) -> Self {
        let driver = Driver::new(seed, memory, None);
        let tree = Tree::new(driver.model.attr(Ino::ROOT).unwrap());
        Self { driver, tree }
    }

    fn operation(&mut self) {
        let Done { op, told, now } = self.driver.operation();
        for happened in &told {
            if let Happened::Written { ino, mtime, .. } = happened {
                let beside = attr_of(*ino, AttrValue::Mtime(*mtime));
                assert!(!told.contains(&beside), "{told:?} of {op:?} tells a time twice");
            }
            self.tree.apply(happened, now);
        }
        let cuts = self.driver.rng.percent(30);
        let site = &self.driver.site;
        self.tree.put_in_place(&told, |ino| site.body(ino), cuts);
        self.driver.let_go();
        let model = &mut self.driver.model;
        self.tree.compare(model);
        op.subjects().into_iter().flatten().for_each(|ino| self.tree.compare_bytes(model, ino));
    }

    /// The island's tree is the model's, and so is that of all bytes.
    fn compare_all(&mut self) {
        self.tree.compare_all_bytes(&mut self.driver.model);
        self.driver.compare_all();
    }
}

const fn attr_of(ino: Ino, to: AttrValue) -> Happened {
    Happened::AttrChanged { object: LocalObject::File(ino), to }
}

/// One seed. How often each thing has happened, and how many records were watched of which all rows were in memory, and rows loaded.
fn run(seed: u64, operations: usize, memory: Memory) -> (Counts, u64, u64) {
    let mut world = World::new(seed, memory);
    for at in 1..=operations {
        world.operation();
        if at % 100 == 0 {
            world.driver.site.renew();
            world.tree.compare_all_bytes(&mut world.driver.model);
        }
        if memory == Memory::Swept && world.driver.rng.percent(10) {
            world.driver.site.forget();
        }
    }
    world.compare_all();
    (world.tree.counts, world.driver.site.watched_in_memory, world.driver.site.loads)
}

/// Runs seeds from 1 on, and adds up.
fn run_all(test: &str, seeds: u64, operations: usize, memory: Memory) -> (Counts, u64, u64) {
    if let Some(seed) = number("ATOLL_SEED") {
        return run(seed, operations, memory);
    }
    let mut all = (Counts::new(), 0, 0);
    for seed in 1..=seeds {
        let Ok((counts, watched, loads)) = catch_unwind(AssertUnwindSafe(|| run(seed, operations, memory)))
        else {
            panic!("ATOLL_SEED={seed} cargo test -p atoll-wide --test watch {test}")
        };
        counts.into_iter().for_each(|(kind, count)| *all.0.entry(kind).or_default() += count);
        (all.1, all.2) = (all.1 + watched, all.2 + loads);
    }
    println!("{seeds} seeds of {operations} operations: {all:?}");
    all
}

#[test]
fn the_tree_that_is_watched_is_the_tree_that_is_there() {
    let seeds = number("ATOLL_SOAK").unwrap_or(SEEDS);
    let test = "the_tree_that_is_watched_is_the_tree_that_is_there";
    let (counts, ..) = run_all(test, seeds, OPERATIONS, Memory::Whole);
    if number("ATOLL_SEED").is_none() && seeds >= SEEDS {
        assert_eq!(counts.len(), KINDS, "not all of it happens: {counts:?}");
        assert!(counts.values().all(|count| *count >= 20), "too little happens: {counts:?}");
    }
}

/// Kinds of things that happen, as the tree counts them.
const KINDS: usize = 27;

#[test]
fn every_row_that_is_needed_is_in_memory_because_the_island_has_read_it() {
    let test = "every_row_that_is_needed_is_in_memory_because_the_island_has_read_it";
    let seeds = number("ATOLL_SOAK").map_or(SWEPT.0, |seeds| seeds / 10).max(SWEPT.0);
    let (_, watched, loads) = run_all(test, seeds, SWEPT.1, Memory::Swept);
    assert!(watched > 300 && loads > 300, "{watched} records watched, and {loads} rows loaded");
}
