//! A mount that has been alone keeps what it has seen, and takes its time to drop it when another one changes something: that
//! waits for it.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Caller, Kind, Op, SetAttr};
use bytes::Bytes;

use crate::cause::Failure;
use crate::links::Party;
use crate::scenario::Run;
use crate::world::{Config, World};

/// After so long an island takes a mount for the only one, in microseconds.
const ALONE_US: u64 = 40_000_000;
/// How long a mount takes to drop what it keeps: longer than the pause between two signs of life, shorter than that
/// would last.
const RECALL_US: u64 = 4_500_000;
/// Before the other comes, at most.
const PAUSE_US: u64 = 22_500_000;
/// By then it is let in.
const PATIENCE_US: u64 = 60_000_000;

/// The first client is a mount that has been alone for long, with a file; the second one is cut off.
pub fn alone(mut config: Config) -> Result<(World, Ino), Failure> {
    (config.clients, config.mounts, config.caches) = (2, true, true);
    let mut world = World::new(config)?;
    world.partition(|party| party == Party::Client(1));
    world.run_for(ALONE_US)?;
    let (name, target) = (Name::new(b"f").expect("a name"), Bytes::new());
    let (dir, kind) = (Ino::ROOT, Kind::Regular);
    let op = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
    let made = world.run(0, &Caller::ROOT, op, Bytes::new())?;
    let Ok((Answer::Found { found }, _)) = made else {
        return Err(Failure::new(format!("no file is made: {made:?}")));
    };
    let ino = found.attr.ino;
    let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
    let written = world.run(0, &Caller::ROOT, write, Bytes::from_static(&[7; 9000]))?;
    if written.is_err() || !world.keeps(0) {
        return Err(Failure::new(format!("nobody else is attached: {written:?}")));
    }
    Ok((world, ino))
}

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let mut config = Config::new(run.seed, 1 + (run.seed % 3) as u16);
    (config.recall_us, config.drifts) = (RECALL_US, true);
    let (world, ino) = alone(config)?;
    let world = run.world.insert(world);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let change = world.call(1, &Caller::ROOT, Op::SetAttr { ino, set }, Bytes::new(), 0);
    let pause = world.rng.below(PAUSE_US);
    world.run_for(pause)?;
    let seen = world.run(0, &Caller::ROOT, Op::GetAttr { ino }, Bytes::new())?;
    if seen.is_err() {
        return Err(Failure::new(format!("who is alone sees nothing: {seen:?}")));
    }
    world.heal();
    let until = world.now_us() + PATIENCE_US;
    let mut kept = false;
    let done = loop {
        if let Some(done) = world.poll(1, change) {
            break done;
        }
        if world.now_us() > until {
            return Err(Failure::new("the second mount is never let in"));
        }
        kept = world.keeps(0);
        world.step()?;
    };
    if done.is_err() || kept || world.keeps(0) {
        return Err(Failure::new(format!("changed while another mount kept it as it was: {done:?}")));
    }
    world.converge()
}
