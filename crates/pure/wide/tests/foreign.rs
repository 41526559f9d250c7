//! Sites that take what others have made: their rows show what the states say, whatever the order in which these came.
//!
//! `ATOLL_SOAK=SEEDS cargo test --release -p atoll-wide --test foreign` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(clippy::disallowed_macros, reason = "a test may print")]

mod drive;
mod quarrel;
mod receiver;
mod replica;
mod site;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_causal::{DirState, FileId, Writer};
use atoll_core::{Encode, Ino, SessionId};
use atoll_model::Rng;
use atoll_shown::Objects;
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::rows::FeedRow;
use atoll_wide::site::Site as Machine;
use drive::{Driver, number};
use quarrel::quarrel;
use receiver::{Plain, Receiver, Tree};
use replica::{Rows, WRITER};
use site::{Memory, Site, opened, rows_for_another};

/// Seeds of a usual run.
const SEEDS: u64 = 12;

type Counts = BTreeMap<&'static str, u64>;

/// All that a site has made behind a position.
fn bundles(site: &Site, after: u64) -> Vec<Bundle> {
    site.beside::<Machine>()
        .author()
        .bundles(after, u64::MAX)
        .expect("all of it is in memory")
        .cloned()
        .collect()
}

/// The whole state of an object, as a site tells it.
fn state_of(rows: &Rows, object: FeedRow) -> BundleChange {
    match object {
        FeedRow::File { id } => BundleChange::FileBorn { id, state: Box::new(rows.files[&id].state.clone()) },
        FeedRow::Dir { id } => BundleChange::DirBorn { id, head: Box::new(rows.dirs[&id].head.clone()) },
        FeedRow::Move { .. } => unreachable!("no move is asked for"),
    }
}

/// The tree of a site's island.
fn tree_of(site: &Site, rows: &Rows) -> Tree {
    let mut plain = Plain::new(site.beside::<Machine>().author().spine());
    plain.files = rows.files.iter().map(|(id, file)| (*id, file.state.clone())).collect();
    plain.dirs = rows.dirs.iter().map(|(id, dir)| (*id, dir.head.clone())).collect();
    plain.index();
    plain.tree()
}

fn author(seed: u64) -> Driver {
    let author = opened(WRITER, []).expect("no rows");
    Driver::new(seed, Memory::Whole, Some(Box::new(author)))
}

/// Operations of a site.
fn work(driver: &mut Driver, operations: usize) {
    for at in 1..=operations {
        driver.operation();
        driver.let_go();
        if at % 100 == 0 {
            driver.site.renew();
        }
    }
}

/// One site writes, the other ones only take.
fn run_one(seed: u64) -> Counts {
    let (mut driver, mut counts) = (author(seed), Counts::new());
    let mut rng = Rng::new(seed ^ 0x5eed);
    let is_swept = seed.is_multiple_of(3);
    let mut receivers = [Receiver::new(is_swept), Receiver::new(false)];
    let mut after = 0;
    let (rounds, operations) = if is_swept { (4, 20) } else { (12, 40) };
    for _ in 0..rounds {
        work(&mut driver, operations);
        let made = bundles(&driver.site, after);
        after = made.last().map_or(after, |bundle| bundle.position);
        let rows = Rows::of(&driver.site);
        let state = |object| state_of(&rows, object);
        let mut order: Vec<&Bundle> = made.iter().collect();
        for bundle in &order {
            assert!(receivers[0].take(&bundle.changes).is_empty(), "in order nothing is missing");
            *counts.entry("in order").or_default() += 1;
            if rng.percent(10) {
                let seq = receivers[0].state.seq();
                assert!(receivers[0].take(&bundle.changes).is_empty());
                assert_eq!(receivers[0].state.seq(), seq, "what is known makes no record");
                *counts.entry("doubled").or_default() += 1;
            }
            if rng.percent(5) {
                receivers[0].check();
                same_tree(&mut receivers[0]);
            }
        }
        for at in 0..order.len() {
            let other = (at + rng.index(4)).min(order.len() - 1);
            order.swap(at, other);
        }
        for bundle in order {
            *counts.entry("asked").or_default() += receivers[1].take_all(&bundle.changes, &state);
            if rng.percent(5) {
                receivers[1].check();
                same_tree(&mut receivers[1]);
            }
        }
        let expected = tree_of(&driver.site, &rows);
        for receiver in &mut receivers {
            receiver.check();
            same_tree(receiver);
            compare(receiver, &rows, &expected);
        }
        island_agrees(&mut receivers[0], &driver.site, &rows);
    }
    *counts.entry("loads").or_default() += receivers[0].loads;
    *counts.entry("paths").or_default() += receivers[0].tree().len() as u64;
    counts
}

/// The rows show what the states in them say.
fn same_tree(receiver: &mut Receiver) {
    let plain = receiver.plain();
    for id in plain.dirs.keys() {
        assert_eq!(receiver.spine.place(*id), plain.spine.place(*id));
    }
    assert_eq!(receiver.tree(), plain.tree(), "rows, and what their states show");
}

/// A receiver has the states and the tree of a site.
fn compare(receiver: &mut Receiver, rows: &Rows, expected: &Tree) {
    assert_eq!(receiver.refused, 0);
    let bytes = receiver.plain().bytes();
    let files = rows.files.iter().map(|(id, file)| (*id, file.state.to_vec()));
    let theirs: BTreeMap<FileId, Vec<u8>> =
        files.chain(rows.dirs.iter().map(|(id, dir)| (*id, dir.head.to_vec()))).collect();
    assert!(bytes.keys().eq(theirs.keys()), "objects");
    assert_eq!(bytes, theirs, "states");
    assert_eq!(receiver.tree(), *expected);
}

/// The tree of a receiver is that of the island whose users made it.
fn island_agrees(receiver: &mut Receiver, site: &Site, rows: &Rows) {
    let mut found = 0;
    let by_ino: BTreeMap<Ino, FileId> = (rows.files.iter().filter_map(|(id, file)| Some((file.ino?, *id))))
        .chain(rows.dirs.iter().filter_map(|(id, dir)| Some((dir.ino?, *id))))
        .collect();
    let tree = receiver.tree();
    let mut dirs = vec![(Ino::ROOT, String::new())];
    while let Some((dir, path)) = dirs.pop() {
        let (names, _) = site.state().entries_after(dir, 0).expect("it is in memory");
        for (_, name, entry) in names {
            let path = format!("{path}/{name}");
            assert_eq!(tree.get(&path).map(|at| at.id), by_ino.get(&entry.ino).copied(), "{path}");
            found += 1;
            if entry.stub.is_some() {
                dirs.push((entry.ino, path));
            }
        }
    }
    assert_eq!(found, tree.len());
}

/// Several sites that know of a beginning only, and of nothing that the others do. What all of them have made reaches idle sites in
/// any order.
fn run_many(seed: u64) -> Counts {
    let mut rng = Rng::new(seed ^ 0xa11);
    let mut driver = author(seed);
    work(&mut driver, 20 + rng.index(60));
    let sites = 2 + rng.index(2);
    let branch = |at: usize, rng: &mut Rng| {
        let mut branch = driver.clone();
        branch.drawn_by(seed * 16 + at as u64 + 1);
        branch.site.set_beside(writer(&branch.site, at));
        work(&mut branch, 10 + rng.index(50));
        branch.site
    };
    let branches = (0..sites).map(|at| branch(at, &mut rng)).collect();
    meet(seed, &mut rng, &driver.site, branches)
}

/// As [`run_many`], with few names.
fn run_quarrel(seed: u64) -> Counts {
    let mut rng = Rng::new(seed ^ 0x009a_44e1);
    let author = opened(WRITER, []).expect("no rows");
    let mut base = Site::new(Memory::Whole, &[SessionId(1)], false, Some(Box::new(author)));
    let work = |site: &mut Site, rng: &mut Rng, most: usize| {
        let mut left = 1 + rng.index(most);
        for _ in 0..400 {
            if left > 0 && quarrel(site, rng) {
                left -= 1;
            }
        }
        site.renew();
    };
    work(&mut base, &mut rng, 25);
    let sites = 2 + rng.index(2);
    let branch = |at: usize, rng: &mut Rng| {
        let mut site = base.clone();
        site.set_beside(writer(&site, at));
        work(&mut site, rng, 20);
        site
    };
    let branches = (0..sites).map(|at| branch(at, &mut rng)).collect();
    meet(seed, &mut rng, &base, branches)
}

/// The author of a site that goes on from the rows of another one.
fn writer(site: &Site, at: usize) -> Machine {
    opened(Writer(100 + at as u64), rows_for_another(site)).expect("it has written them")
}

/// What sites have made since a beginning that all know reaches idle ones.
fn meet(seed: u64, rng: &mut Rng, base: &Site, branches: Vec<Site>) -> Counts {
    let (mut counts, sites, upto) = (Counts::new(), branches.len(), base.state().seq());
    let (base_rows, base) = (Rows::of(base), bundles(base, 0));
    let branches: Vec<_> = branches.into_iter().map(|site| (bundles(&site, upto), Rows::of(&site))).collect();
    let mut done = Vec::new();
    for nth in 0..3 {
        let mut receiver = Receiver::new(nth == 2 && seed.is_multiple_of(4));
        for bundle in &base {
            receiver.take_all(&bundle.changes, &|object| state_of(&base_rows, object));
        }
        let mut next = vec![0; sites];
        // The first site hears of the others one after the other.
        while let Some(at) = pick(rng, &branches, &next, nth == 0) {
            let (bundles, rows) = &branches[at];
            let bundle = &bundles[next[at]];
            next[at] += 1;
            if nth > 0 && rng.percent(5) {
                // It is lost, or comes later.
                *counts.entry("late").or_default() += 1;
                next.push(at);
                next.push(next[at] - 1);
                continue;
            }
            let state = |object| state_of(rows, object);
            *counts.entry("asked").or_default() += receiver.take_all(&bundle.changes, &state);
            *counts.entry("bundles").or_default() += 1;
            if rng.percent(20) {
                receiver.check();
                same_tree(&mut receiver);
            }
        }
        for late in next[sites..].chunks(2) {
            let (bundles, rows) = &branches[late[0]];
            receiver.take_all(&bundles[late[1]].changes, &|object| state_of(rows, object));
        }
        receiver.check();
        same_tree(&mut receiver);
        done.push(receiver);
    }
    let mut expected = Plain::new(&done[0].spine);
    for (_, rows) in &branches {
        for (id, file) in &rows.files {
            let state = expected.files.entry(*id).or_insert_with(|| file.state.clone());
            state.join(&file.state);
        }
        for (id, dir) in &rows.dirs {
            let whole = |head| DirState { head, entries: Default::default(), based: BTreeMap::new() };
            let head = expected.dirs.entry(*id).or_insert_with(|| dir.head.clone());
            let mut state = whole(head.clone());
            state.join(&whole(dir.head.clone()));
            *head = state.head;
        }
    }
    expected.index();
    let tree = expected.tree();
    for receiver in &mut done {
        assert_eq!(receiver.refused, 0);
        assert_eq!(receiver.plain().bytes(), expected.bytes(), "states");
        assert_eq!(receiver.tree(), tree);
    }
    count(&mut counts, &expected, &tree, &done[0]);
    counts
}

/// How often something is shown otherwise than it says itself.
fn count(counts: &mut Counts, expected: &Plain, tree: &Tree, receiver: &Receiver) {
    let mut add = |what, by: usize| *counts.entry(what).or_default() += by as u64;
    add("paths", tree.len());
    add("names beside", tree.keys().filter(|path| path.contains(".~s")).count());
    let near = receiver.sides.keys().filter(|(table, _)| *table == atoll_wide::rows::NEAR).count();
    add("near rows", near);
    let revived = expected.dirs.keys().filter(|id| expected.life(**id) == atoll_shown::Life::Revived);
    add("revived", revived.count());
    let shown = |id: &FileId| atoll_shown::DirGroup::of(expected, *id);
    let hidden = expected.dirs.keys().filter(|id| shown(id).is_some_and(|group| group.first() != **id));
    add("directories shown as one", hidden.count());
    add("moves lost", receiver.spine.lost().count());
    add("moves", receiver.spine.records().len());
}

/// Whose next bundle comes.
fn pick(rng: &mut Rng, branches: &[(Vec<Bundle>, Rows)], next: &[usize], in_turn: bool) -> Option<usize> {
    let left: Vec<usize> = (0..branches.len()).filter(|at| next[*at] < branches[*at].0.len()).collect();
    if left.is_empty() {
        return None;
    }
    Some(if in_turn { left[0] } else { *rng.pick(&left) })
}

fn run_all(test: &str, seeds: u64, run: fn(u64) -> Counts) -> Option<Counts> {
    if let Some(seed) = number("ATOLL_SEED") {
        println!("{:?}", run(seed));
        return None;
    }
    let mut all = Counts::new();
    for seed in 1..=seeds {
        let Ok(counts) = catch_unwind(AssertUnwindSafe(|| run(seed))) else {
            panic!("ATOLL_SEED={seed} cargo test -p atoll-wide --test foreign {test}")
        };
        counts.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
    }
    println!("{seeds} seeds: {all:?}");
    Some(all)
}

#[test]
fn a_site_that_only_takes_has_the_tree_of_the_one_that_writes() {
    let test = "a_site_that_only_takes_has_the_tree_of_the_one_that_writes";
    if let Some(counts) = run_all(test, number("ATOLL_SOAK").unwrap_or(SEEDS), run_one) {
        assert!(counts.len() == 5 && counts.values().all(|count| *count > 10), "{counts:?}");
    }
}

#[test]
fn idle_sites_show_the_same_whatever_the_order_in_which_changes_come() {
    let test = "idle_sites_show_the_same_whatever_the_order_in_which_changes_come";
    if let Some(counts) = run_all(test, number("ATOLL_SOAK").unwrap_or(4 * SEEDS), run_many) {
        assert!(["asked", "late", "moves", "near rows"].iter().all(|what| counts[what] > 0), "{counts:?}");
    }
}

#[test]
fn idle_sites_agree_on_what_others_have_done_to_the_same_names() {
    let test = "idle_sites_agree_on_what_others_have_done_to_the_same_names";
    if let Some(counts) = run_all(test, number("ATOLL_SOAK").unwrap_or(10 * SEEDS), run_quarrel) {
        assert!(counts.values().all(|count| *count > 0), "{counts:?}");
    }
}
