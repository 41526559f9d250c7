//! Random operations on the island of a site: what is watched makes the tree that the model has, after each operation.
//!
//! `ATOLL_SOAK=SEEDS cargo test --release -p atoll-wide --test watch` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

mod site;
mod tree;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::{Ino, SessionId};
use atoll_model::{AtimeRule, Dump, Model, Outcome, Rng, Step, Strictness, Weights, Workload};
use atoll_posix::acl::ACCESS_XATTR;
use atoll_posix::{Answer, AtimeRule as MarksReads, Caller, Errno, Op, Readings};
use atoll_wide::watch::{AttrValue, Happened, LocalObject};
use bytes::Bytes;
use site::{Memory, Site};
use tree::{Counts, Tree};

/// Seeds of a usual run.
const SEEDS: u64 = 20;
/// Operations of each.
const OPERATIONS: usize = 2_000;
/// Seeds of a usual run in which rows leave memory, and operations of each.
const SWEPT: (u64, usize) = (4, 1_000);
/// The clients of [`Workload::new`].
const SESSIONS: [SessionId; 4] = [SessionId(1), SessionId(2), SessionId(3), SessionId(4)];
/// Files without a name that the clients have open at most.
const ORPHANS_MAX: usize = 12;

/// Mostly changes. The bodies of the test tell of no holes.
const WEIGHTS: Weights = Weights {
    lookup: 1,
    get_attr: 1,
    set_attr: 12,
    create: 14,
    mkdir: 7,
    unlink: 8,
    rmdir: 4,
    rename: 18,
    link: 6,
    read: 3,
    write: 14,
    fallocate: 5,
    copy_range: 3,
    fsync: 2,
    read_dir: 1,
    set_xattr: 6,
    remove_xattr: 3,
    set_lock: 2,
    ..Weights::NONE
};

/// The tree that is watched, the model, and the operations.
struct World {
    site: Site,
    model: Model,
    tree: Tree,
    workload: Workload,
    rng: Rng,
    is_mount: bool,
}

impl World {
    fn new(seed: u64, memory: Memory) -> Self {
        // As mounts, the clients have files and directories open that lose their names.
        let is_mount = !seed.is_multiple_of(3);
        let site = Site::new(memory, &SESSIONS, is_mount);
        let root = Ino::ROOT;
        let row = site.state().dir(root).unwrap().unwrap();
        let made = row.owned.as_ref().unwrap().btime;
        let model = Model::new(made, AtimeRule::Never).walked();
        let tree = Tree::new(model.attr(root).unwrap());
        let workload = Workload::new(seed, WEIGHTS).with_meaning();
        Self { site, model, tree, workload, rng: Rng::new(!seed), is_mount }
    }

    fn step(&mut self) -> Step {
        let mut step = self.workload.next(&self.model);
        if let Op::SetXattr { name, kill_sgid, .. } = &mut step.op {
            // A kernel asks for this with an access ACL only.
            *kill_sgid &= name == ACCESS_XATTR;
        }
        if !self.rng.percent(4) {
            return step;
        }
        let all: Vec<Ino> = self.model.inos().collect();
        let (ino, now) = (*self.rng.pick(&all), self.site.now());
        let access = Readings { first: now, last: now, rule: MarksReads::Strict };
        Step { op: Op::Accessed { ino, access }, data: Bytes::new(), ..step }
    }

    /// One operation, of the island and of the model, and what was watched of it.
    fn operation(&mut self) {
        let Step { session, caller, op, data } = self.step();
        let got = self.site.run(session, &caller, op.clone(), data.clone());
        let now = self.site.now();
        let told = self.site.take_happened();
        if let Ok((Answer::Found { found }, _)) = &got
            && matches!(op, Op::Create { .. } | Op::Mkdir { .. })
            && self.model.attr(found.attr.ino).is_none()
        {
            self.model.set_next_ino(found.attr.ino);
        }
        let expected = self.model.apply(now, session, &caller, &op, &data);
        self.agree(&op, &got, &expected);
        if got.is_err() || !changes_tree(&op) {
            assert_eq!(told, [], "{op:?} changes nothing");
        }
        for happened in &told {
            if let Happened::Written { ino, mtime, .. } = happened {
                let beside = attr_of(*ino, AttrValue::Mtime(*mtime));
                assert!(!told.contains(&beside), "{told:?} of {op:?} tells a time twice");
            }
            self.tree.apply(happened, now);
        }
        let cuts = self.rng.percent(30);
        let site = &self.site;
        self.tree.put_in_place(&told, |ino| site.body(ino), cuts);
        self.let_go();
        self.tree.compare(&mut self.model);
        op.subjects().into_iter().flatten().for_each(|ino| self.tree.compare_bytes(&mut self.model, ino));
    }

    /// The island does what the model does: otherwise nothing is said of what was watched. With which error it refuses, and what it
    /// answers to questions that a kernel does not ask, is judged by the simulator.
    fn agree(&self, op: &Op, got: &Result<(Answer, Bytes), Errno>, expected: &Result<Outcome, Errno>) {
        match (got, expected) {
            (Ok((_, data)), Ok(Outcome::Answered(_, bytes))) if matches!(op, Op::Read { .. }) => {
                assert!(data[..] == bytes[..], "{op:?} reads other bytes");
            }
            // The model only finds the directory that is there.
            (Err(Errno::EISDIR), Ok(_)) if matches!(op, Op::Create { exclusive: false, .. }) => {}
            _ if changes_tree(op) => {
                assert_eq!(got.is_ok(), expected.is_ok(), "{op:?}: {got:?}, {expected:?}")
            }
            _ => {}
        }
    }

    /// What has no name goes: at once if nobody may have it open, otherwise some time.
    fn let_go(&mut self) {
        let nameless = |ino: &Ino| self.model.attr(*ino).is_some_and(|attr| attr.nlink == 0);
        let mut orphans: Vec<Ino> = self.model.inos().filter(nameless).collect();
        if self.is_mount {
            if orphans.len() <= ORPHANS_MAX {
                return;
            }
            orphans.truncate(1 + self.rng.index(ORPHANS_MAX));
            self.site.release(&orphans);
            assert_eq!(self.site.take_happened(), [], "nobody saw {orphans:?} any more");
        }
        orphans.iter().for_each(|ino| self.model.forget(*ino));
    }

    /// The island's tree is the model's, and so is that of all bytes.
    fn compare_all(&mut self) {
        self.tree.compare_all_bytes(&mut self.model);
        let site = &mut self.site;
        let mut run = |op: &Op| {
            let (answer, data) = site.run(SESSIONS[0], &Caller::ROOT, op.clone(), Bytes::new())?;
            Ok((answer, data.to_vec()))
        };
        let got = Dump::walk(&mut run).expect("a tree that can be read");
        let strict = Strictness { apart_ns: 100, ..Strictness::FULL };
        assert_eq!(Dump::of(&self.model).differences(&got, strict), [""; 0]);
        assert_eq!(self.site.take_happened(), [], "nothing has changed");
    }
}

const fn attr_of(ino: Ino, to: AttrValue) -> Happened {
    Happened::AttrChanged { object: LocalObject::File(ino), to }
}

/// Whether an operation can change what is watched.
const fn changes_tree(op: &Op) -> bool {
    op.changes() && !matches!(op, Op::SetLock { .. })
}

/// One seed. How often each thing has happened, and how many records were watched of which all rows were in memory, and rows loaded.
fn run(seed: u64, operations: usize, memory: Memory) -> (Counts, u64, u64) {
    let mut world = World::new(seed, memory);
    for at in 1..=operations {
        world.operation();
        if at % 100 == 0 {
            world.site.renew();
            world.tree.compare_all_bytes(&mut world.model);
        }
        if memory == Memory::Swept && world.rng.percent(10) {
            world.site.forget();
        }
    }
    world.compare_all();
    (world.tree.counts, world.site.watched_in_memory, world.site.loads)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
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
