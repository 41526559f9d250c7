//! Sites tell each other what they have, over links that break, through power cuts, and with hardly any memory: at rest all have the same,
//! and say nothing more.
//!
//! `ATOLL_SOAK=SEEDS cargo test --release -p atoll-wide --test peers` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(clippy::disallowed_macros, reason = "a test may print")]

mod drive;
mod quarrel;
mod receiver;
mod replica;
mod site;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_causal::Writer;
use atoll_core::SessionId;
use atoll_model::Rng;
use atoll_wide::author::Bundle;
use atoll_wide::peers::Window;
use atoll_wide::site::Site as Machine;
use drive::{Driver, number};
use quarrel::quarrel;
use replica::WRITER;
use site::{Memory, Site, opened, rows_for_another};
use world::{Counts, Node, World, bundles};

/// Seeds of a usual run.
const SEEDS: u64 = 12;

fn author() -> Box<Machine> {
    Box::new(opened(WRITER, []).expect("no rows"))
}

/// Bundles of sites that know of a beginning, and nothing of each other; and those of the beginning.
fn branches(seed: u64, rng: &mut Rng, sites: usize) -> (Vec<Bundle>, Vec<Vec<Bundle>>) {
    let mut base = Site::new(Memory::Whole, &[SessionId(1)], false, Some(author()));
    let work = |site: &mut Site, rng: &mut Rng, most: usize| {
        let mut left = 1 + rng.index(most);
        for _ in 0..400 {
            if left > 0 && quarrel(site, rng) {
                left -= 1;
            }
        }
        site.renew();
    };
    work(&mut base, rng, 25);
    let upto = base.state().seq();
    let branch = |at: usize| {
        let mut rng = Rng::new(seed * 16 + at as u64);
        let mut site = base.clone();
        let author = opened(Writer(101 + at as u64), rows_for_another(&site)).expect("it has written them");
        site.set_beside(author);
        work(&mut site, &mut rng, 40);
        bundles(&site, upto)
    };
    let branches = (0..sites).map(branch).collect();
    (bundles(&base, 0), branches)
}

/// Links by which each site hears of each other one, directly or through others.
fn edges(rng: &mut Rng, sites: usize) -> Vec<(usize, usize)> {
    let mut edges: Vec<_> = (1..sites).map(|at| (rng.index(at), at)).collect();
    let all = (0..sites).flat_map(|b| (0..b).map(move |a| (a, b)));
    for edge in all {
        if rng.percent(35) && !edges.contains(&edge) {
            edges.push(edge);
        }
    }
    edges
}

/// How likely cuts of links, power cuts and restarts are.
const TROUBLES: [[u32; 3]; 4] = [[20, 10, 10], [8, 3, 1], [2, 0, 1], [1, 1, 0]];

/// How much a site has in memory, and under way.
fn small(rng: &mut Rng) -> (usize, Window) {
    let memory = *rng.pick(&[0, 1, 3, 10, 4_096]);
    let messages = *rng.pick(&[1, 2, 5, 1_024]);
    (memory, Window { messages, bytes: *rng.pick(&[1, 2_000, 1 << 20]), news: *rng.pick(&[1, 4, 1_024]) })
}

/// Sites of which each has users.
fn run_many(seed: u64) -> Counts {
    let mut rng = Rng::new(seed ^ 0x0bee_5a11);
    let sites = 2 + rng.index(3);
    let (base, branches) = branches(seed, &mut rng, sites);
    let nodes = branches.into_iter().zip(1..).map(|(bundles, id)| {
        let (memory, window) = small(&mut rng);
        let mut node = Node::taker(id, seed.is_multiple_of(5) && id == 1, bundles, memory, window);
        node.knows(&base);
        node
    });
    let nodes = nodes.collect();
    let edges = edges(&mut rng, sites);
    let mut world = World::new(nodes, &edges);
    let troubles = TROUBLES[seed as usize % TROUBLES.len()];
    for _ in 0..1_500 {
        world.happen(&mut rng, troubles);
    }
    world.settle(false);
    world.compare_trees();
    world.settle(true);
    world.compare();
    world.counted()
}

/// One site has an island with users, the others only take: one hears of it through another one.
fn run_one(seed: u64) -> Counts {
    let mut rng = Rng::new(seed ^ 0x0bee_0001);
    let driver = Driver::new(seed, Memory::Whole, Some(author()));
    let (_, window) = small(&mut rng);
    let mut nodes = vec![Node::island(1, driver, window)];
    for id in 2..4 {
        let (memory, window) = small(&mut rng);
        nodes.push(Node::taker(id, seed.is_multiple_of(5) && id == 2, Vec::new(), memory, window));
    }
    let edges = edges(&mut rng, 3);
    let mut world = World::new(nodes, &edges);
    let troubles = TROUBLES[seed as usize % TROUBLES.len()];
    for _ in 0..1_500 {
        world.happen(&mut rng, troubles);
    }
    world.settle(true);
    world.compare();
    world.counted()
}

fn run_all(test: &str, seeds: u64, run: fn(u64) -> Counts) -> Option<Counts> {
    if let Some(seed) = number("ATOLL_SEED") {
        println!("{:?}", run(seed));
        return None;
    }
    let mut all = Counts::new();
    for seed in 1..=seeds {
        let Ok(counts) = catch_unwind(AssertUnwindSafe(|| run(seed))) else {
            panic!("ATOLL_SEED={seed} cargo test -p atoll-wide --test peers {test}")
        };
        counts.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
    }
    println!("{seeds} seeds: {all:?}");
    Some(all)
}

/// What every path through the machine is counted by.
const PATHS: [&str; 11] = [
    "bundles",
    "feeds",
    "acks",
    "wants",
    "states",
    "gaps",
    "moves by want",
    "power cuts",
    "restarts",
    "lost messages",
    "loads",
];

#[test]
fn sites_with_users_have_the_same_at_rest_whatever_links_and_power_do() {
    let test = "sites_with_users_have_the_same_at_rest_whatever_links_and_power_do";
    if let Some(counts) = run_all(test, number("ATOLL_SOAK").unwrap_or(4 * SEEDS), run_many) {
        assert!(PATHS.iter().all(|path| counts[path] > 0), "{counts:?}");
    }
}

#[test]
fn sites_that_only_take_have_at_rest_what_the_one_that_writes_has() {
    let test = "sites_that_only_take_have_at_rest_what_the_one_that_writes_has";
    if let Some(counts) = run_all(test, number("ATOLL_SOAK").unwrap_or(5 * SEEDS), run_one) {
        assert!(PATHS.iter().all(|path| counts[path] > 0), "{counts:?}");
    }
}
