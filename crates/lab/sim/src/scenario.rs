//! The scenarios by name, and how one run of one is made and told of.

use crate::absences::Absence;
use crate::cause::Failure;
use crate::concurrent::Trouble::Groups;
use crate::injected::Injected;
use crate::transcript::Transcript;
use crate::union;
use crate::world::World;

/// Whether islands die and links break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    No,
    Yes,
}

/// A kind of run.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// As it is asked for.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// How many steps a run has unless told otherwise.
    pub steps: u64,
    body: fn(&mut Run) -> Result<(), Failure>,
}

/// One run under way: its world outlives a failure, so that it can be looked at.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) world: Option<World>,
    /// Operations of worlds that came before the last one.
    pub(crate) operations: u64,
    /// Hash of their transcripts.
    pub(crate) hash: u64,
    /// Virtual microseconds that passed in them.
    pub(crate) virtual_us: u64,
    /// What was done to them.
    pub(crate) injected: Injected,
    /// What happened, in a run that has no such world.
    pub(crate) notes: Transcript,
}

impl Run {
    /// Ends a world of this run; the next one takes its place.
    pub(crate) fn next_world(&mut self, world: World) -> &mut World {
        self.end_world();
        self.world.insert(world)
    }

    pub(crate) fn end_world(&mut self) {
        if let Some(mut old) = self.world.take() {
            old.copies.ids().for_each(|copy| old.hash_files(copy));
            self.operations += old.operations;
            self.virtual_us += old.now_us();
            self.injected += old.injected;
            self.injected.failed += old.failed_effects();
            self.hash = self.hash.rotate_left(7) ^ old.hash();
        }
    }
}

/// Every scenario.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "sequential",
        what: "one operation after another, no faults",
        steps: 300,
        body: |run| crate::sequential::run(run, Faults::No),
    },
    Scenario {
        name: "faults",
        what: "one operation after another; islands die at any effect, links break",
        steps: 200,
        body: |run| crate::sequential::run(run, Faults::Yes),
    },
    Scenario {
        name: "limited",
        what: "a client that sees one directory only, and lies, beside others; no faults",
        steps: 300,
        body: |run| crate::limited::run(run, Faults::No),
    },
    Scenario {
        name: "limited_deaths",
        what: "the same; islands die at any effect, links break",
        steps: 200,
        body: |run| crate::limited::run(run, Faults::Yes),
    },
    Scenario {
        name: "power",
        what: "one island, one operation after another, then the power fails at any effect",
        steps: 60,
        body: |run| crate::power::run(run, false, 1),
    },
    Scenario {
        name: "concurrent",
        what: "several clients at once, judged by trying all orders",
        steps: 100,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::None),
    },
    Scenario {
        name: "deaths",
        what: "several clients at once, and islands die",
        steps: 80,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::Deaths),
    },
    Scenario {
        name: "partition",
        what: "several clients at once, and links between islands are cut",
        steps: 80,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::Partitions),
    },
    Scenario {
        name: "histories",
        what: "several clients that never wait for each other, judged by the whole history",
        steps: 600,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::None),
    },
    Scenario {
        name: "history_deaths",
        what: "the same, and islands die",
        steps: 400,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::Deaths),
    },
    Scenario {
        name: "history_partition",
        what: "the same, and links between islands are cut",
        steps: 400,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::Partitions),
    },
    Scenario {
        name: "history_frozen",
        what: "the same, and machines stand still for up to 20 seconds",
        steps: 400,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::Frozen),
    },
    Scenario {
        name: "history_slow",
        what: "the same, and disks that take up to seconds",
        steps: 300,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::Slow),
    },
    Scenario {
        name: "history_full",
        what: "the same, and disks that have no room left, for a while",
        steps: 300,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::Full),
    },
    Scenario {
        name: "history_errors",
        what: "the same, and disks that fail to write, to sync and to read",
        steps: 300,
        body: |run| crate::histories::run(run, crate::concurrent::Trouble::Errors),
    },
    Scenario {
        name: "history_caches",
        what: "the same with mounts that answer by themselves what they have kept; islands die, links are cut, or the power fails",
        steps: 600,
        body: crate::histories::run_caches,
    },
    Scenario {
        name: "frozen",
        what: "several clients at once, and machines stand still for up to 20 seconds",
        steps: 80,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::Frozen),
    },
    Scenario {
        name: "slow",
        what: "several clients at once, and disks that take up to seconds",
        steps: 60,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::Slow),
    },
    Scenario {
        name: "full",
        what: "several clients at once, and disks that have no room left, for a while",
        steps: 80,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::Full),
    },
    Scenario {
        name: "errors",
        what: "several clients at once, and disks that fail to write, to sync and to read",
        steps: 80,
        body: |run| crate::concurrent::run(run, crate::concurrent::Trouble::Errors),
    },
    Scenario {
        name: "errors_power",
        what: "one island whose disk fails to write and to sync, then the power fails at any effect",
        steps: 80,
        body: |run| crate::power::run(run, true, 1),
    },
    Scenario {
        name: "flips",
        what: "one operation after another, then bits change at rest in log, state, bodies or names",
        steps: 60,
        body: crate::flips::run,
    },
    Scenario {
        name: "locks",
        what: "processes that wait for locks, on files that get other names",
        steps: 300,
        body: |run| crate::locks::run(run, crate::concurrent::Trouble::None),
    },
    Scenario {
        name: "lock_deaths",
        what: "the same, and islands die",
        steps: 200,
        body: |run| crate::locks::run(run, crate::concurrent::Trouble::Deaths),
    },
    Scenario {
        name: "lock_partition",
        what: "the same, and links between islands are cut",
        steps: 200,
        body: |run| crate::locks::run(run, crate::concurrent::Trouble::Partitions),
    },
    Scenario {
        name: "recalls",
        what: "a mount that was alone takes its time to drop what it keeps, and another one comes",
        steps: 1,
        body: crate::recalls::run,
    },
    Scenario {
        name: "leases",
        what: "a mount that was alone is suspended, or its link is reset on one side only, and another one comes",
        steps: 1,
        body: crate::leases::run,
    },
    Scenario {
        name: "votes",
        what: "an island dies about its vote, and is back while the one that asked for it is away",
        steps: 1,
        body: crate::votes::run,
    },
    Scenario {
        name: "saves",
        what: "clients save files as careful programs do, and islands lose their power at any effect",
        steps: 60,
        body: crate::saves::run,
    },
    Scenario {
        name: "link",
        what: "one way between two parties is cut for long, and everything goes on",
        steps: 200,
        body: |run| crate::link::run(run, crate::link::Trouble::Both),
    },
    Scenario {
        name: "link_one_way",
        what: "the same, in one direction",
        steps: 200,
        body: |run| crate::link::run(run, crate::link::Trouble::OneWay),
    },
    Scenario {
        name: "unanswered",
        what: "an island hears another one and cannot answer, and nobody waits for that",
        steps: 1,
        body: crate::unanswered::run,
    },
    Scenario {
        name: "link_deaths",
        what: "the same, in one direction or both, and islands die",
        steps: 200,
        body: |run| crate::link::run(run, crate::link::Trouble::Deaths),
    },
    Scenario {
        name: "large",
        what: "something very long, or very often, up to the limits; islands die, and mounts that hold much",
        steps: 1,
        body: crate::large::run,
    },
    Scenario {
        name: "listings",
        what: "several clients at once, and listings of the tree at one moment",
        steps: 60,
        body: |run| crate::enumerate::run(run, crate::concurrent::Trouble::None),
    },
    Scenario {
        name: "listing_deaths",
        what: "the same, and islands die",
        steps: 50,
        body: |run| crate::enumerate::run(run, crate::concurrent::Trouble::Deaths),
    },
    Scenario {
        name: "listing_partition",
        what: "the same, and links between islands are cut",
        steps: 40,
        body: |run| crate::enumerate::run(run, crate::concurrent::Trouble::Partitions),
    },
    Scenario {
        name: "storm",
        what: "clients change their own without a pause, others list the tree again and again",
        steps: 40,
        body: |run| crate::storm::run(run, Faults::No),
    },
    Scenario {
        name: "storm_deaths",
        what: "the same, and islands die",
        steps: 25,
        body: |run| crate::storm::run(run, Faults::Yes),
    },
    Scenario {
        name: "absences",
        what: "directories change while islands are away for long, and compare when they return",
        steps: 250,
        body: |run| crate::absences::run(run, Absence::Death),
    },
    Scenario {
        name: "absences_power",
        what: "the same, and islands lose their power",
        steps: 250,
        body: |run| crate::absences::run(run, Absence::Power),
    },
    Scenario {
        name: "absences_kept",
        what: "the same, and the others keep their whole journals for them",
        steps: 250,
        body: |run| crate::absences::run(run, Absence::Kept),
    },
    Scenario {
        name: "crash_points",
        what: "one operation between islands, each island dying at each effect of it",
        steps: 40,
        body: |run| crate::crash_points::run(run, false, false, 1),
    },
    Scenario {
        name: "power_points",
        what: "the same, each island losing its power at each effect of it",
        steps: 40,
        body: |run| crate::crash_points::run(run, true, false, 1),
    },
    Scenario {
        name: "listing_points",
        what: "the same, while another client lists the tree again and again",
        steps: 30,
        body: |run| crate::crash_points::run(run, true, true, 1),
    },
    Scenario {
        name: "groups",
        what: "two or three copies of each island; links break, and machines stand still for a moment",
        steps: 60,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Links)),
    },
    Scenario {
        name: "groups_deaths",
        what: "the same, and processes end, or stay away for a while",
        steps: 60,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Deaths)),
    },
    Scenario {
        name: "groups_power",
        what: "the same, and machines lose their power, so that each island keeps a whole copy, or all of them",
        steps: 60,
        body: crate::groups::run_power,
    },
    Scenario {
        name: "groups_partition",
        what: "two or three copies of each island, and machines are cut from each other",
        steps: 60,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Partitions)),
    },
    Scenario {
        name: "groups_store",
        what: "two or three copies of each island, and the control store is slow, loses answers, or is away",
        steps: 60,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Store)),
    },
    Scenario {
        name: "groups_moves",
        what: "two or three copies of each island; islands are moved, processes stop in order, and some die",
        steps: 60,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Moves)),
    },
    Scenario {
        name: "groups_disks",
        what: "two or three copies of each island, and disks that are slow, have no room left for a while, or fail to write, to sync and to read",
        steps: 60,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Disks)),
    },
    Scenario {
        name: "groups_fill",
        what: "two or three copies of each island, with short logs; disks are wiped, and what was lost is filled meanwhile",
        steps: 140,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Fill)),
    },
    Scenario {
        name: "groups_rings",
        what: "one to three copies of each island, and other machines shall keep them, or more or fewer, while links break and processes end",
        steps: 100,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::Rings)),
    },
    Scenario {
        name: "groups_all",
        what: "everything of groups_power to groups_rings at once",
        steps: 100,
        body: |run| crate::concurrent::run(run, Groups(crate::groups::Trouble::All)),
    },
    Scenario {
        name: "groups_history",
        what: "two or three copies of each island; processes end, and the whole history is judged",
        steps: 300,
        body: |run| crate::histories::run(run, Groups(crate::groups::Trouble::Deaths)),
    },
    Scenario {
        name: "groups_points",
        what: "one operation between islands with copies, each machine dying at each effect of it",
        steps: 20,
        body: |run| crate::crash_points::run(run, false, false, 2 + (run.seed % 2) as u16),
    },
    Scenario {
        name: "union",
        what: "several clients of a union at once; members are full or read-only for a while",
        steps: 500,
        body: |run| union::run(run, union::Kind::Alone),
    },
    Scenario {
        name: "union_direct",
        what: "the same, and programs use the members directly",
        steps: 500,
        body: |run| union::run(run, union::Kind::Direct),
    },
    Scenario {
        name: "union_two",
        what: "the same, and another union shows some of the members, too",
        steps: 800,
        body: |run| union::run(run, union::Kind::Two),
    },
    Scenario {
        name: "union_away",
        what: "several clients of a union at once, and members go away and come back",
        steps: 500,
        body: |run| union::run(run, union::Kind::Away),
    },
    Scenario {
        name: "union_hang",
        what: "several clients of a union at once, and members hang",
        steps: 500,
        body: |run| union::run(run, union::Kind::Hang),
    },
    Scenario {
        name: "union_points",
        what: "one operation of a union, whose process dies behind each of its native changes",
        steps: 40,
        body: |run| union::run_points(run, false),
    },
    Scenario {
        name: "union_power",
        what: "the same, all members losing their power there",
        steps: 40,
        body: |run| union::run_points(run, true),
    },
    Scenario {
        name: "wide_sites",
        what: "two to five sites of a wide volume; links break, processes die, power fails, clocks are hours off, disks are full or older copies",
        steps: 300,
        body: crate::wide::run,
    },
];

impl Scenario {
    /// The scenario of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|s| s.name == name)
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// The line that repeats it.
    pub command: String,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// The last things that happened.
    pub tail: String,
    /// Hash of everything that happened.
    pub hash: u64,
    /// Operations of clients.
    pub operations: u64,
    /// Virtual microseconds that passed.
    pub virtual_us: u64,
    /// What was done to the world.
    pub injected: Injected,
}

/// Runs a scenario once. A panic of a machine is a failure like any other.
pub fn run(scenario: &Scenario, seed: u64, steps: Option<u64>) -> Report {
    let steps = steps.unwrap_or(scenario.steps);
    let mut run = Run {
        seed,
        steps,
        world: None,
        operations: 0,
        hash: 0,
        virtual_us: 0,
        injected: Injected::default(),
        notes: Transcript::default(),
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        (scenario.body)(&mut run)?;
        // What a scenario has judged is safety; now nothing fails any more.
        run.world.as_mut().map_or(Ok(()), World::converge)
    }));
    let failure = match caught {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Some(Failure::new(format!("panic: {}", text.unwrap_or_default())))
        }
    };
    let command = format!("cargo xtask sim {} --seed {seed} --steps {steps}", scenario.name);
    let tail = run.world.as_ref().map_or_else(|| run.notes.tail(3000), |world| world.tail(3000));
    run.end_world();
    let Run { hash, operations, virtual_us, injected, notes, .. } = run;
    let hash = if notes.len() == 0 { hash } else { notes.hash() };
    Report { command, failure, tail, hash, operations, virtual_us, injected }
}
