//! Islands with several copies each, on five machines, and what disturbs them. Whatever fails, clients see what they would see
//! of islands with one copy; and at rest all copies of an island are the same.
//!
//! Beacons have no bytes of their own, and links of
//! clients are read also while there is no lease: what was asked then is held at the door, or dropped and asked again.

use atoll_disk::sim::Fault;
use atoll_model::rng;

use atoll_core::NodeId;

use crate::cause::Failure;
use crate::concurrent::{errors, full, partition, slow};
use crate::scenario::Run;
use crate::sequential::config_of;
use crate::world::{Config, Happening, World};

/// What disturbs the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Links break, and machines stand still for up to seconds.
    Links,
    /// The same, and processes end; some stay away for a while.
    Deaths,
    /// The same, and machines lose their power, so that each island keeps a whole copy.
    Power,
    /// Machines are cut from each other, also in one direction.
    Partitions,
    /// The control store loses requests and answers, does late what it is asked, or is away.
    Store,
    /// Islands are moved, processes stop in order, and some die.
    Moves,
    /// Disks are slow, have no room for a while, or fail to write, to sync and to read: all of one, or the files of one copy.
    Disks,
    /// Other machines shall keep islands, and more or fewer, while links break, processes end and some machines lose their power.
    Rings,
    /// Copies are wiped, or come back when the log has let go of what they lack, and die while they are filled.
    Fill,
    /// Everything of the others.
    All,
}

/// Those of which [`Trouble::All`] draws some each time.
const OTHERS: [Trouble; 8] = [
    Trouble::Links,
    Trouble::Power,
    Trouble::Partitions,
    Trouble::Store,
    Trouble::Moves,
    Trouble::Disks,
    Trouble::Rings,
    Trouble::Fill,
];
/// How many.
const DRAWN: usize = 2;

/// How a world with several copies is made.
pub(crate) const fn groups_of(seed: u64, clients: usize) -> Config {
    let mut config = config_of(seed, clients);
    // Two copies of three islands lie on five machines.
    config.islands = 3 + (rng::mix(seed) % 3) as u16;
    config.copies = 2 + (rng::mix(seed) / 3 % 2) as u16;
    config
}

/// In one seed of three the power of all machines fails at once, of one island: what was synced is there then. Else each island
/// keeps a whole copy, and nothing is lost.
pub(crate) fn run_power(run: &mut Run) -> Result<(), Failure> {
    match run.seed % 3 {
        0 => crate::power::run(run, false, 2 + (run.seed / 3 % 2) as u16),
        _ => crate::concurrent::run(run, crate::concurrent::Trouble::Groups(Trouble::Power)),
    }
}

impl Trouble {
    /// Perhaps something goes wrong now, or right again.
    pub(crate) fn disturb(self, world: &mut World) {
        if world.rng.percent(5) {
            let island = world.any_island();
            world.checkpoint(island);
        }
        match self {
            Self::Links => links(world),
            Self::Deaths => {
                links(world);
                deaths(world);
            }
            Self::Power => {
                links(world);
                deaths(world);
                power(world);
            }
            Self::Partitions => {
                partition(world);
                ways_to_store(world);
            }
            Self::Store => {
                links(world);
                deaths(world);
                store(world);
            }
            Self::Moves => {
                links(world);
                deaths(world);
                moves(world);
            }
            Self::Disks => {
                links(world);
                slow(world);
                full(world);
                errors(world);
                one_copy_fails(world);
            }
            Self::Rings => {
                links(world);
                deaths(world);
                power_of_some(world);
                if world.rng.percent(12) {
                    world.change_rings();
                }
            }
            Self::Fill => {
                links(world);
                deaths(world);
                wipe(world);
                power_of_some(world);
                // What is sent waits for syncs, and clients do not. Not so long that a rename of a directory, which waits for
                // several, is given up.
                match world.rng.below(100) {
                    0..5 => {
                        let node = world.any_machine();
                        let us_max = *world.rng.pick(&[20_000, 200_000]);
                        world.slow_disk(node, us_max);
                    }
                    5..8 => world.mend_disks(),
                    _ => {}
                }
                if world.rng.percent(20) {
                    let island = world.any_island();
                    world.checkpoint(island);
                }
            }
            Self::All => {
                for _ in 0..DRAWN {
                    let other = *world.rng.pick(&OTHERS);
                    other.disturb(world);
                }
            }
        }
    }
}

fn links(world: &mut World) {
    if world.rng.percent(12) {
        let conn = world.rng.index(world.conns.len());
        let pause = world.rng.below(4_000);
        world.break_later(conn, pause);
    }
    if world.rng.percent(12) {
        let node = world.any_machine();
        let us_max = *world.rng.pick(&[200_000, 800_000, 3_000_000]);
        let us = 1 + world.rng.below(us_max);
        // As a rule while something is under way there.
        let pause = world.rng.below(6_000);
        world.schedule(pause, Happening::Freeze { node, us });
    }
}

fn deaths(world: &mut World) {
    match world.rng.below(100) {
        0..10 => {
            let node = world.any_machine();
            let effects = 1 + world.rng.below(30);
            world.arm(node, effects, Fault::ProcessDeath);
        }
        10..13 => {
            let node = world.any_machine();
            world.kill(node, Fault::ProcessDeath);
        }
        13..16 => {
            let node = world.any_machine();
            world.hold_down(node);
        }
        // All at once. Whichever is back first has all that was answered.
        16..18 => {
            if world.rng.percent(60) {
                let node = world.any_machine();
                world.hold_down(node);
            }
            for node in world.machines.ids() {
                world.kill(node, Fault::ProcessDeath);
            }
        }
        18..26 => world.heal(),
        _ => {}
    }
}

fn moves(world: &mut World) {
    match world.rng.below(100) {
        0..15 => world.move_island(),
        15..25 => {
            let (node, pause) = (world.any_machine(), world.rng.below(5_000));
            world.stop_later(node, pause);
        }
        _ => {}
    }
}

/// One machine loses its power, or two do, if each island keeps a copy on another one that is in sync.
fn power(world: &mut World) {
    if !world.rng.percent(8) || !world.are_groups_whole() {
        return;
    }
    let one = world.any_machine();
    let other = if world.rng.percent(30) { world.any_other(one) } else { one };
    let fails = |node: NodeId| node == one || node == other;
    if world.islands().into_iter().all(|island| world.ring_of(island).into_iter().any(|node| !fails(node))) {
        for node in [one, other] {
            let seed = world.rng.bits();
            world.kill(node, Fault::PowerCut { seed });
        }
    }
}

/// The files of one copy fail, once or until the disk is mended: its machine and the other copies there go on.
fn one_copy_fails(world: &mut World) {
    let (island, node) = (world.any_island(), world.any_machine());
    match world.rng.below(100) {
        0..6 => {
            let effects = 1 + world.rng.below(25);
            world.fail_copy(island, node, effects, false);
        }
        6..8 => world.fail_copy(island, node, 1, true),
        _ => {}
    }
}

/// A copy is wiped, or parts of it, if another one is in sync.
fn wipe(world: &mut World) {
    if !world.rng.percent(10) {
        return;
    }
    let (island, node) = (world.any_island(), world.any_machine());
    let Some(copy) = world.copy_at(island, node) else { return };
    if world.keeps_whole(island, &[node]) {
        let parts = world.rng.below(6);
        world.wipe(copy, parts);
    }
}

/// A machine loses its power, if each island has another copy that is in sync.
fn power_of_some(world: &mut World) {
    let node = world.any_machine();
    if world.rng.percent(6) && world.islands().into_iter().all(|island| world.keeps_whole(island, &[node])) {
        let seed = world.rng.bits();
        world.kill(node, Fault::PowerCut { seed });
    }
}

/// A machine cannot ask the store, or not hear it: so it may be another one that changes a group.
fn ways_to_store(world: &mut World) {
    if world.rng.percent(15) {
        world.cut_from_store();
    } else if world.rng.percent(10) {
        world.mend_store();
    }
}

fn store(world: &mut World) {
    if world.rng.percent(15) {
        world.trouble_store();
    } else if world.rng.percent(10) {
        world.mend_store();
    }
}
