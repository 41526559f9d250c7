//! One operation after another, each judged by the model; process deaths and broken links between
//! and during them, if asked for.

use atoll_disk::sim::Fault;
use atoll_model::{Strictness, Weights, Workload};

use crate::cause::Failure;
use crate::frontend::sensible;
use crate::judge::Judge;
use crate::scenario::{Faults, Run};
use crate::world::{Choice, Config, World};

/// Operations between two comparisons of the whole tree.
const OPERATIONS_PER_DUMP: u64 = 60;
/// Operations between two checks of all rows.
const OPERATIONS_PER_CHECK: u64 = 150;

/// A world for a seed: islands, mounts and memory as the seed has it.
pub(crate) fn world_of(seed: u64, clients: usize) -> Result<World, Failure> {
    World::new(config_of(seed, clients))
}

/// How such a world is made.
pub(crate) const fn config_of(seed: u64, clients: usize) -> Config {
    let mut config = Config::new(seed, 1 + (atoll_model::rng::mix(seed) % 5) as u16);
    (config.clients, config.drifts, config.relays) = (clients, true, true);
    config.moves = seed.is_multiple_of(2);
    config.mounts = seed % 3 == 1;
    config.rows_max = [2, 20, 1000][(seed / 3 % 3) as usize];
    config
}

/// What the clients of a seed do. In one seed of four they say what they mean by names.
pub(crate) fn workload_of(seed: u64, weights: Weights) -> Workload {
    let workload = Workload::new(seed, weights);
    if seed % 4 == 2 { workload.with_meaning() } else { workload }
}

/// Whether the clients of a seed leave it to the islands what they may do: in one of four.
pub(crate) const fn is_unchecked(seed: u64) -> bool {
    seed % 4 == 1
}

/// Runs it. `faults`: islands die, links break.
pub(crate) fn run(run: &mut Run, faults: Faults) -> Result<(), Failure> {
    let world = run.world.insert(world_of(run.seed, 4)?);
    world.config.unchecked = is_unchecked(run.seed);
    let mut judge = Judge::new(world)?;
    let mut workload = workload_of(run.seed, Weights::default());
    for n in 1..=run.steps {
        if faults == Faults::Yes {
            disturb(world);
        }
        if world.rng.percent(2) {
            let island = world.any_island();
            world.checkpoint(island);
        }
        let mut step = workload.next(&judge.model);
        judge.ask_about_removed(&mut world.rng, &mut step);
        if sensible(&judge.model, world.walker(&step.caller), &step.op) {
            let client = step.session.0 as usize - 1;
            judge.run(world, client, &step)?;
        }
        judge_step(world, &mut judge, n, n == run.steps)?;
    }
    Ok(())
}

/// Ends the `n`th step: perhaps closes a file without a name, and now and then compares the trees and looks at all rows, as behind
/// the last one.
pub(crate) fn judge_step(world: &mut World, judge: &mut Judge, n: u64, last: bool) -> Result<(), Failure> {
    if !judge.orphans.is_empty() && world.rng.percent(20) {
        let at = world.rng.index(judge.orphans.len());
        judge.close_orphan(world, at);
    }
    if last || n.is_multiple_of(OPERATIONS_PER_DUMP) {
        world.settle()?;
        judge.compare_trees(world, Strictness::FULL)?;
    }
    if last || n.is_multiple_of(OPERATIONS_PER_CHECK) {
        world.settle()?;
        crate::invariants(world)?;
    }
    Ok(())
}

/// Perhaps a fault.
pub(crate) fn disturb(world: &mut World) {
    if world.rng.percent(6) {
        let node = world.any_machine();
        if world.is_up(node) {
            let effects = 1 + world.rng.below(12);
            world.arm(node, effects, Fault::ProcessDeath);
        }
    }
    if world.rng.percent(2) {
        let node = world.any_machine();
        if world.is_chosen(Choice::Stops) {
            world.stop_in_order(node);
        } else {
            world.kill(node, Fault::ProcessDeath);
        }
    }
    if world.rng.percent(12) {
        let conn = world.rng.index(world.conns.len());
        let pause = world.rng.below(4_000);
        world.break_later(conn, pause);
    }
}
