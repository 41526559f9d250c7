//! One way between two parties is cut for long, and nothing else: between two islands, or between a client and an island.
//! All other ways are whole, so everything must go on: no operation fails, and none takes longer than it takes to notice
//! the cut. Every answer is judged by the whole history, as in [`crate::histories`].

use atoll_core::Ino;
use atoll_history::{History, Lenience, Record};
use atoll_posix::Errno;

use crate::cause::Failure;
use crate::histories::{CLIENTS, Clock, PAUSE_US, Party, begin, end};
use crate::links::{Cut, Party as Side, SILENCE_US};
use crate::scenario::Run;
use crate::sequential::config_of;
use crate::world::{PATIENCE_US, World};

/// What is cut, and what else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Both directions.
    Both,
    /// One direction.
    OneWay,
    /// Either; and islands die.
    Deaths,
}

/// Longest pause of a client between two operations, in microseconds: so a run takes some minutes.
const PAUSE_US_MAX: u64 = 15_000_000;
/// The same in one seed of so many, in which it takes an hour.
const LONG_PAUSE_US_MAX: u64 = 180_000_000;
const LONG_EACH: u64 = 8;
/// One operation of so many is followed by another cut in place of the one that there is.
const OPERATIONS_PER_CUT: u64 = 80;
/// One operation of so many comes with a death.
const OPERATIONS_PER_DEATH: u64 = 12;
/// How long an operation may take: until the cut is noticed, until somebody else is asked to pass on what is sent, and
/// until it is asked again.
const STALL_US_MAX: u64 = SILENCE_US + 4_000_000;

pub(crate) fn run(run: &mut Run, trouble: Trouble) -> Result<(), Failure> {
    let mut config = config_of(run.seed, CLIENTS);
    // Somebody has to be there to pass something on.
    config.islands = 3 + (run.seed % 3) as u16;
    let pause_us_max = if run.seed.is_multiple_of(LONG_EACH) { LONG_PAUSE_US_MAX } else { PAUSE_US_MAX };
    let world = run.world.insert(World::new(config)?);
    let mut clock = Clock::default();
    let mut records: Vec<Record> = Vec::new();
    let mut parties: Vec<(Party, u64)> = (0..CLIENTS).map(|_| (Party::new(), 0)).collect();
    let mut left = run.steps;
    while left > 0 || parties.iter().any(|(party, _)| party.under_way.is_some()) {
        for (client, (party, next_us)) in parties.iter_mut().enumerate() {
            if party.under_way.is_some() || left == 0 || world.now_us() < *next_us {
                continue;
            }
            if left == run.steps || world.rng.below(OPERATIONS_PER_CUT) == 0 {
                cut_one(world, trouble);
            }
            if trouble == Trouble::Deaths && world.rng.below(OPERATIONS_PER_DEATH) == 0 {
                crate::concurrent::deaths(world);
            }
            left -= 1;
            begin(world, &mut clock, client, party, (true, PAUSE_US));
        }
        world.step()?;
        for (client, (party, next_us)) in parties.iter_mut().enumerate() {
            let Some(under_way) = &party.under_way else { continue };
            let (token, began_us) = (under_way.token, under_way.began_us);
            let shown = format!("client {client}: {:?}", under_way.asked);
            let limit_us = if trouble == Trouble::Deaths { PATIENCE_US } else { STALL_US_MAX };
            if world.now_us() > began_us + limit_us {
                return Err(Failure::new(format!("{shown} has not ended after {} s", limit_us / 1_000_000)));
            }
            if let Some(done) = world.poll(client, token) {
                if trouble != Trouble::Deaths && matches!(done, Err(Errno::EIO)) {
                    return Err(Failure::new(format!("{shown} has failed, although only one way is cut")));
                }
                end(world, &mut clock, client, party, &mut records, done);
                *next_us = world.now_us() + world.rng.below(pause_us_max);
            }
        }
    }
    world.settle()?;
    crate::invariants(world)?;
    let history = History { root: Ino::ROOT.0, records };
    match atoll_history::check_with(&history, Lenience { stale: true, apart: false }) {
        atoll_history::Verdict::Fits { .. } => Ok(()),
        verdict => Err(Failure::new(verdict.to_string())),
    }
}

/// What was cut is whole again, and another way is cut.
fn cut_one(world: &mut World, trouble: Trouble) {
    world.lose_nothing();
    world.partition(|_| true);
    let one = world.any_machine();
    let other = world.any_other(one);
    let (one, other) = match world.rng.below(3) {
        0 => (Side::Client(world.rng.index(CLIENTS)), Side::Machine(other)),
        1 => (Side::Machine(one), Side::Client(world.rng.index(CLIENTS))),
        _ => (Side::Machine(one), Side::Machine(other)),
    };
    let both = match trouble {
        Trouble::Both => true,
        Trouble::OneWay => false,
        Trouble::Deaths => world.rng.percent(50),
    };
    let cut = if world.rng.percent(50) { Cut::Opening { both } } else { Cut::Losing { both } };
    world.cut_way(one, other, cut);
}
