//! Random operations on the island of a site with an author beside it: the states that it keeps make the tree that the model has, and
//! what it tells other sites makes the same states.
//!
//! `ATOLL_SOAK=SEEDS cargo test --release -p atoll-wide --test histories` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(clippy::disallowed_macros, reason = "a test may print")]

mod drive;
mod replica;
mod site;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::{Encode, Ino};
use atoll_proto::RowChange;
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::rows::WRITERS;
use drive::{Done, Driver, number};
use replica::{Pair, Replica, Rows, note_mtime, reopened, strict, strict_rows};
use site::Memory;

/// Seeds of a usual run.
const SEEDS: u64 = 20;
/// Operations of each.
const OPERATIONS: usize = 1_200;
/// Seeds of a usual run in which rows leave memory, and operations of each.
const SWEPT: (u64, usize) = (6, 800);

/// How often each kind of thing was done.
type Counts = BTreeMap<&'static str, u64>;

struct World {
    driver: Driver,
    replica: Replica,
    /// Those whose mtime is in their state.
    exact: BTreeSet<Ino>,
    counts: Counts,
}

impl World {
    fn new(seed: u64, memory: Memory) -> Self {
        let mut driver = Driver::new(seed, memory, Some(Box::new(Pair::new())));
        let mode = driver.model.attr(Ino::ROOT).unwrap().mode;
        let records = driver.site.take_records();
        assert!(!records.is_empty(), "an island begins with records");
        let world =
            Self { driver, replica: Replica::new(mode), exact: BTreeSet::new(), counts: Counts::new() };
        assert_eq!(world.driver.site.sides().len(), 0, "nothing is written of the root");
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn operation(&mut self) {
        let Done { told, .. } = self.driver.operation();
        told.iter().for_each(|happened| note_mtime(&mut self.exact, happened));
        self.take_bundles();
        self.driver.let_go();
        self.take_bundles();
        self.compare();
    }

    /// The replica takes what the records since the last call have made.
    fn take_bundles(&mut self) {
        let records = self.driver.site.take_records();
        let Some((last, _)) = records.last() else { return };
        let machine = &self.driver.site.beside::<Pair>().machine;
        let bundles = machine.author().bundles(self.replica.position, *last).expect("all of it is in memory");
        let bundles: Vec<_> = bundles.cloned().collect();
        for (seq, record) in &records {
            let own = |change: &&RowChange| matches!(change, RowChange::Side { table: WRITERS, .. });
            let written = record.changes.iter().filter(own).count();
            let made = bundles.iter().filter(|bundle| bundle.position == *seq).count();
            assert_eq!(written, made, "a record that changes objects says which dots were given");
        }
        for bundle in &bundles {
            self.replica.take(bundle);
            if self.driver.rng.percent(5) {
                let refused = strict::<Bundle>(&bundle.to_vec(), &mut self.driver.rng);
                *self.counts.entry("bundle refused").or_default() += refused;
            }
            for change in &bundle.changes {
                self.count(match change {
                    BundleChange::FileBorn { .. } => "file born",
                    BundleChange::FileChanged { .. } => "file changed",
                    BundleChange::DirBorn { .. } => "directory born",
                    BundleChange::DirChanged { change, .. } if change.parts.is_empty() => "directory entered",
                    BundleChange::DirChanged { .. } => "directory changed",
                    BundleChange::DirsMoved { record } if record.dirs().len() > 1 => "directories exchanged",
                    BundleChange::DirsMoved { .. } => "directory moved",
                });
            }
        }
    }

    /// A power cut takes some operations, of which nobody has heard. Their dots are given again.
    fn lose_some(&mut self) {
        let synced = self.driver.clone();
        for _ in 0..1 + self.driver.rng.index(6) {
            self.driver.operation();
            self.driver.let_go();
        }
        let lost =
            self.driver.site.beside::<Pair>().machine.author().bundles(self.replica.position, u64::MAX);
        let is_any = lost.expect("all of it is in memory").next().is_some();
        self.driver.go_back(synced);
        let machine = reopened(&self.driver.site);
        self.driver.site.set_beside(Pair { again: machine.clone(), machine });
        if is_any {
            self.count("power cut that took changes");
        }
    }

    fn compare(&mut self) {
        let site = &self.driver.site;
        let rows = Rows::of(site);
        rows.compare(&self.replica);
        let spine = self.driver.site.beside::<Pair>().machine.author().spine();
        for id in rows.dirs.keys() {
            assert_eq!(spine.place(*id), self.replica.spine.place(*id), "place of {id:?}");
        }
        rows.compare_tree(spine, site, &self.driver.model, &self.exact);
        if rows.compare_orphans(site, &self.driver.model) > 0 {
            self.count("operation with an orphan");
        }
        if self.driver.rng.percent(5) {
            self.reopen(&rows);
        }
    }

    /// An author begins anew from rows. It is compared with the one before from here on, or also takes its place.
    fn reopen(&mut self, rows: &Rows) {
        let again = reopened(&self.driver.site);
        again.author().spine().check();
        for id in rows.dirs.keys() {
            assert_eq!(again.author().spine().place(*id), self.replica.spine.place(*id), "place of {id:?}");
        }
        assert!(again.author().spine().records().eq(self.replica.spine.records()), "moves");
        let bundles = again.author().bundles(self.replica.position, u64::MAX).expect("there are none");
        assert_eq!(bundles.count(), 0);
        assert!(
            self.replica.position == 0
                || again.author().bundles(self.replica.position - 1, u64::MAX).is_none()
        );
        let takes_place = self.driver.rng.percent(50);
        let machine =
            if takes_place { again.clone() } else { self.driver.site.beside::<Pair>().machine.clone() };
        self.driver.site.set_beside(Pair { machine, again });
        self.count(if takes_place { "author begun anew" } else { "author compared" });
    }

    fn end(&mut self) {
        self.driver.compare_all();
        self.take_bundles();
        self.compare();
        let rows = Rows::of(&self.driver.site);
        self.replica.spine.check();
        for _ in 0..rows.files.values().filter(|file| file.ino.is_none()).count() {
            self.count("dead file");
        }
        for _ in 0..rows.dirs.values().filter(|dir| dir.ino.is_none()).count() {
            self.count("dead directory");
        }
        let refused = strict_rows(&self.driver.site, &rows, &mut self.driver.rng);
        *self.counts.entry("row refused").or_default() += refused;
    }
}

/// One seed. How often each thing was done.
fn run(seed: u64, operations: usize, memory: Memory) -> Counts {
    let mut world = World::new(seed, memory);
    for at in 1..=operations {
        world.operation();
        if world.driver.rng.percent(2) {
            world.lose_some();
        }
        if at % 100 == 0 {
            world.driver.site.renew();
        }
        if memory == Memory::Swept && world.driver.rng.percent(10) {
            world.driver.site.forget();
            world.take_bundles();
        }
    }
    world.end();
    world.counts
}

/// Runs seeds from 1 on, and adds up.
fn run_all(test: &str, seeds: u64, operations: usize, memory: Memory) -> Option<Counts> {
    if let Some(seed) = number("ATOLL_SEED") {
        println!("{:?}", run(seed, operations, memory));
        return None;
    }
    let mut all = Counts::new();
    for seed in 1..=seeds {
        let Ok(counts) = catch_unwind(AssertUnwindSafe(|| run(seed, operations, memory))) else {
            panic!("ATOLL_SEED={seed} cargo test -p atoll-wide --test histories {test}")
        };
        counts.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
    }
    println!("{seeds} seeds of {operations} operations: {all:?}");
    Some(all)
}

/// Kinds of things that are done.
const KINDS: usize = 15;

#[test]
fn states_make_the_tree_that_is_there_and_bundles_make_the_states() {
    let test = "states_make_the_tree_that_is_there_and_bundles_make_the_states";
    let seeds = number("ATOLL_SOAK").unwrap_or(SEEDS);
    let counts = run_all(test, seeds, OPERATIONS, Memory::Whole);
    if let Some(counts) = counts.filter(|_| seeds >= SEEDS) {
        assert_eq!(counts.len(), KINDS, "not all of it is done: {counts:?}");
        assert!(counts.values().all(|count| *count >= 5), "too little is done: {counts:?}");
    }
}

#[test]
fn what_an_author_needs_is_in_memory_because_the_island_has_read_it() {
    let test = "what_an_author_needs_is_in_memory_because_the_island_has_read_it";
    let seeds = number("ATOLL_SOAK").map_or(SWEPT.0, |seeds| seeds / 10).max(SWEPT.0);
    if let Some(counts) = run_all(test, seeds, SWEPT.1, Memory::Swept) {
        assert!(counts["directory moved"] > 5 && counts["author begun anew"] > 20, "{counts:?}");
    }
}
