//! A participant dies about its vote, and is back while the coordinator is away: a name that was told to be there is
//! not taken for one that is not.

use atoll_core::{H3, Ino, IslandId, Name, Table};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode};
use bytes::Bytes;

use crate::cause::Failure;
use crate::scenario::Run;
use crate::world::{Config, World};

/// The coordinator owns the old name, the participant the new one.
const COORDINATOR: IslandId = IslandId(0);
const PARTICIPANT: IslandId = IslandId(1);
/// Until then it has died, or does not.
const DEATH_US: u64 = 500_000;
/// An answer is on its way for less.
const ANSWER_US: u64 = 300_000;
/// By then an island serves, and a request is answered.
const PATIENCE_US: u64 = 60_000_000;
/// Effects of a disk that a vote takes, and some more.
const EFFECTS: u64 = 5;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub(crate) fn ask(world: &mut World, client: usize, op: Op) -> Result<Ino, Failure> {
    match world.run(client, &Caller::ROOT, op.clone(), Bytes::new())? {
        Ok((Answer::Found { found }, _)) => Ok(found.attr.ino),
        other => Err(Failure::new(format!("{op:?}: {other:?}"))),
    }
}

/// A directory in the root that an island owns, known to all clients.
pub(crate) fn directory(world: &mut World, config: &Config, island: IslandId) -> Result<Ino, Failure> {
    let (table, h3) = (Table::new(config.islands), H3::new(config.seed));
    let owner = |n: &Name| table.owner(h3.path([n]).expect("a path").key());
    let of = (0..).map(|i| name(&format!("d{i}"))).find(|n| owner(n) == island).expect("some are");
    let ino = ask(world, 0, Op::Mkdir { dir: Ino::ROOT, name: of.clone(), mode: 0o755, umask: 0 })?;
    for client in 1..config.clients {
        ask(world, client, Op::Lookup { dir: Ino::ROOT, name: of.clone() })?;
    }
    Ok(ino)
}

fn file(world: &mut World, dir: Ino, n: &str) -> Result<Ino, Failure> {
    let (kind, target) = (Kind::Regular, Bytes::new());
    let create =
        Op::Create { dir, name: name(n), kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
    ask(world, 0, create)
}

fn rename(dir: Ino, from: &str, new_dir: Ino, to: &str) -> Op {
    let mode = RenameMode::Replace;
    Op::Rename { dir, name: name(from), new_dir, new_name: name(to), mode, meant: None, new_meant: None }
}

fn serve(world: &mut World, island: IslandId) -> Result<(), Failure> {
    world.come_back(world.machine_of(island));
    let until = world.now_us() + PATIENCE_US;
    while !world.serves(island) {
        if world.now_us() > until {
            return Err(Failure::new(format!("island {island} never serves")));
        }
        world.step()?;
    }
    Ok(())
}

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let mut config = Config::new(run.seed, 3);
    (config.clients, config.delay_us_max) = (2, 300);
    let world = run.world.insert(World::new(config.clone())?);
    let (old, new) = (directory(world, &config, COORDINATOR)?, directory(world, &config, PARTICIPANT)?);
    // The first name that is lent to a directory is synced.
    if world.rng.percent(75) {
        file(world, old, "first")?;
        world.run(0, &Caller::ROOT, rename(old, "first", new, "first"), Bytes::new())?.ok();
    }
    if world.rng.percent(50) {
        file(world, new, "b")?;
    }
    let ino = file(world, old, "a")?;
    let links = world.rng.percent(30);
    let op = match links {
        true => Op::Link { ino, dir: new, name: name("b") },
        false => rename(old, "a", new, "b"),
    };
    world.settle()?;
    let effect = 1 + world.rng.below(EFFECTS);
    let (coordinator, participant) = (world.machine_of(COORDINATOR), world.machine_of(PARTICIPANT));
    world.arm(participant, effect, Fault::ProcessDeath);
    let token = world.call(0, &Caller::ROOT, op, Bytes::new(), 0);
    let until = world.now_us() + DEATH_US;
    while world.is_up(participant) && world.now_us() < until {
        world.step()?;
    }
    world.stay_away(participant, Fault::ProcessDeath);
    world.run_for(ANSWER_US)?;
    let told = world.poll(0, token);
    world.stay_away(coordinator, Fault::ProcessDeath);
    serve(world, PARTICIPANT)?;
    let look = Op::Lookup { dir: new, name: name("b") };
    let seen = world.run(1, &Caller::ROOT, look.clone(), Bytes::new())?;
    let is_there = match &seen {
        Ok((Answer::Found { found }, _)) => found.attr.ino == ino,
        other => matches!(other, Err(Errno::EIO)),
    };
    if matches!(told, Some(Ok(_))) && !is_there {
        return Err(Failure::new(format!("it was told to be there, and is {seen:?}")));
    }
    serve(world, COORDINATOR)?;
    let until = world.now_us() + PATIENCE_US;
    let done = loop {
        if let Some(done) = told.clone().or_else(|| world.poll(0, token)) {
            break done;
        }
        if world.now_us() > until {
            return Err(Failure::new("it is never answered"));
        }
        world.step()?;
    };
    let there = ask(world, 1, look);
    let is_whole = match &done {
        Ok(_) => there.as_ref().is_ok_and(|there| *there == ino),
        Err(Errno::EEXIST) => links,
        Err(_) => true,
    };
    if !is_whole {
        return Err(Failure::new(format!("{done:?}, and in the end {there:?}")));
    }
    world.converge()
}
