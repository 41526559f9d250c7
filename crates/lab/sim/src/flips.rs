//! Bits that flip at rest, while an island is down. The island may refuse to start, stop, or answer `EIO`,
//! because it has found the damage. Every other answer must be right.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, NodeId, SessionId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_model::{Step, Weights, Workload};
use atoll_posix::{Caller, Kind, Op};
use bytes::Bytes;

use crate::cause::Failure;
use crate::frontend::sensible;
use crate::judge::Judge;
use crate::scenario::Run;
use crate::sequential::config_of;
use crate::world::World;

/// Bits that change together at most.
const FLIPS_MAX: u64 = 3;
/// Virtual microseconds within which an island has started, or has said why not.
const START_US: u64 = 5_000_000;

/// What is kept in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Log,
    State,
    Body,
    /// Names and permission bits of bodies and of the plain tree.
    Names,
}

/// What was told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The island does not start, or has stopped.
    Refused,
    /// The log ends earlier: its last record cannot be told from one that was never written whole.
    Cut,
    /// A recovery has found bytes that are not what the log says, and has taken them as they are.
    Corrected,
    /// It serves.
    Serves,
}

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let mut config = config_of(run.seed, 1);
    config.mounts = false;
    let world = run.world.insert(World::new(config)?);
    let mut judge = Judge::new(world)?;
    let weights = Weights { write: 25, set_lock: 0, ..Weights::default() };
    let mut workload = Workload::new(run.seed, weights).with_clients(vec![(SessionId(1), Caller::ROOT)]);
    for n in 0..run.steps {
        let step = workload.next(&judge.model);
        if sensible(&judge.model, &step.caller, &step.op) {
            judge.run(world, 0, &step)?;
        }
        if n == run.steps / 2 && world.rng.percent(70) {
            world.settle()?;
            world.checkpoint_all()?;
        }
    }
    world.settle()?;
    world.run_for(1_000_000)?;
    let island = world.any_island();
    let node = world.machine_of(island);
    let part = *world.rng.pick(&[Part::Log, Part::State, Part::Body, Part::Names]);
    world.stay_away(node, Fault::ProcessDeath);
    let flipped = flip(world, island, part);
    world.machines[node].ailment.flipped = true;
    world.come_back(node);
    let told = started(world, island)?;
    world.note(format_args!("island {island}: {part:?} flipped, {told:?}"));
    let is_over = match told {
        Told::Refused => {
            // Nothing was changed: when the bits are right again, so is everything.
            flip_back(world, island, &flipped);
            world.machines[node].ailment.flipped = false;
            world.come_back(node);
            world.settle()?;
            judge.compare_trees(world, atoll_model::Strictness::FULL)?;
            false
        }
        Told::Cut if part == Part::Log => true,
        Told::Corrected if part == Part::Body => true,
        Told::Cut | Told::Corrected => {
            return Err(Failure::new(format!("flips in {part:?} led to {told:?}")));
        }
        Told::Serves => {
            let stopped = look(world, &mut judge, node)?;
            // A file that was in use when its island ended is laid again, by the audit at the latest.
            if world.config.lays
                && has_other_modes(world, island, &flipped)
                && world.audit_all().is_ok()
                && has_other_modes(world, island, &flipped)
            {
                return Err(Failure::new("the plain tree looks as it should, with other modes"));
            }
            if !stopped && part == Part::Body {
                flip_back(world, island, &flipped);
                judge.compare_trees(world, atoll_model::Strictness::FULL)?;
            }
            stopped || part != Part::Body
        }
    };
    if is_over {
        // There is nothing that it could come back to.
        run.end_world();
    }
    Ok(())
}

/// Whether a mode that was changed is so still: two flips may be of one bit.
fn has_other_modes(world: &World, island: IslandId, flipped: &[Flip]) -> bool {
    flipped.iter().any(|flip| match flip {
        Flip::Mode(path, _, was) => world.leader(island).disk.stat(path).is_ok_and(|stat| stat.mode != *was),
        Flip::Bit(..) => false,
    })
}

/// A change at rest that can be taken back.
enum Flip {
    /// File, byte, bit, and what the byte was before all flips.
    Bit(Vec<u8>, u64, u8, u8),
    /// File, bit, and what its mode was before all flips.
    Mode(Vec<u8>, u8, u32),
}

fn flip(world: &mut World, island: IslandId, part: Part) -> Vec<Flip> {
    let mut flipped = Vec::new();
    let files: Vec<(Vec<u8>, u64)> = world
        .leader(island)
        .files()
        .into_iter()
        .filter(|path| match part {
            Part::Log => path.starts_with(b"log/") && path.ends_with(b".log"),
            Part::State => path == b"state.redb",
            Part::Body | Part::Names => path.starts_with(b"bodies/"),
        })
        .filter_map(|path| {
            let size = world.leader(island).disk.stat(&path).ok()?.size;
            (size > 0).then_some((path, size))
        })
        .collect();
    if files.is_empty() {
        return flipped;
    }
    for _ in 0..=world.rng.below(FLIPS_MAX) {
        let (path, size) = files[world.rng.index(files.len())].clone();
        let used = used(world, island, &path, size);
        let (byte, bit) = (world.rng.below(used), world.rng.below(12) as u8);
        world.note(format_args!("island {island}: flips {} at {byte} of {used}", path.escape_ascii()));
        world.injected.flips += 1;
        let disk = &world.leader(island).disk;
        if part == Part::Names {
            let before = |flip: &Flip| match flip {
                Flip::Mode(of, _, was) if *of == path => Some(*was),
                _ => None,
            };
            let is = disk.stat(&path).expect("it was listed").mode;
            let was = flipped.iter().find_map(before).unwrap_or(is);
            disk.flip_mode(&path, bit).expect("it was listed");
            flipped.push(Flip::Mode(path, bit, was));
        } else if disk.flip(&path, byte, bit).expect("it was listed") {
            let before = |flip: &Flip| match flip {
                Flip::Bit(of, at, _, was) if *of == path && *at == byte => Some(*was),
                _ => None,
            };
            let is = byte_at(disk, &path, byte).expect("it was listed");
            let was = flipped.iter().find_map(before).unwrap_or(is ^ 1 << (bit % 8));
            flipped.push(Flip::Bit(path, byte, bit % 8, was));
        }
    }
    flipped
}

/// Bytes up to the last one that is not zero: what lies behind is space that was reserved.
fn used(world: &World, island: IslandId, path: &[u8], size: u64) -> u64 {
    let Ok(file) = world.leader(island).disk.open(path, OpenHow::Read) else { return size };
    let mut bytes = vec![0; size as usize];
    let _ = file.read_at(&mut bytes, 0);
    bytes.iter().rposition(|byte| *byte != 0).map_or(size, |at| at as u64 + 1)
}

fn byte_at(disk: &SimDisk, path: &[u8], byte: u64) -> Option<u8> {
    let mut found = [0];
    let n = disk.open(path, OpenHow::Read).ok()?.read_at(&mut found, byte).ok()?;
    (n == 1).then_some(found[0])
}

fn flip_back(world: &World, island: IslandId, flipped: &[Flip]) {
    let disk = &world.leader(island).disk;
    // The last one first: two may be in one byte.
    for flip in flipped.iter().rev() {
        // What the bit was in may be gone by now.
        let _ = match flip {
            // A recovery may have written it again.
            Flip::Bit(path, byte, _, was) if byte_at(disk, path, *byte) == Some(*was) => Ok(()),
            Flip::Bit(path, byte, bit, _) => disk.flip(path, *byte, *bit).map(|_| ()),
            Flip::Mode(path, bit, _) => disk.flip_mode(path, *bit),
        };
    }
}

fn started(world: &mut World, island: IslandId) -> Result<Told, Failure> {
    let until = world.now_us() + START_US;
    while world.now_us() < until {
        world.run_for(50_000)?;
        let copy = world.leader(island);
        if copy.refused {
            return Ok(Told::Refused);
        }
        if copy.torn_bytes > 0 {
            return Ok(Told::Cut);
        }
        if copy.corrected {
            return Ok(Told::Corrected);
        }
        if world.is_calm() {
            return Ok(Told::Serves);
        }
    }
    Err(Failure::new(format!("island {island} neither starts nor says why")))
}

/// Asks for all that there is. True if the island has stopped over it.
fn look(world: &mut World, judge: &mut Judge, node: NodeId) -> Result<bool, Failure> {
    let kinds: BTreeMap<Ino, Kind> = judge
        .model
        .inos()
        .filter_map(|ino| judge.model.attr(ino).filter(|a| a.nlink > 0).map(|a| (ino, a.kind)))
        .collect();
    for (ino, kind) in kinds {
        let size = judge.model.attr(ino).map_or(0, |attr| attr.size);
        let more = match kind {
            Kind::Directory => Op::ReadDir { dir: ino, after: 0, bytes: 1 << 20, plus: true },
            Kind::Regular => Op::Read { ino, offset: 0, len: size as u32 },
            _ => Op::GetAttr { ino },
        };
        for op in [Op::GetAttr { ino }, Op::ListXattr { ino }, more] {
            let life = world.machines[node].life;
            let step = Step { session: SessionId(1), caller: Caller::ROOT, op, data: Bytes::new() };
            let judged = judge.run(world, 0, &step);
            if world.machines[node].life != life {
                return Ok(true);
            }
            judged?;
        }
    }
    Ok(false)
}
