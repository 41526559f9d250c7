//! One operation after another on one island, then the power fails at some effect. The tree that comes back
//! must be the one of a single moment, not before the last `fsync`. Bytes that no `fsync` covered may be old
//! or new, each by itself, but never others.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, IslandId, NodeId, SessionId};
use atoll_disk::sim::Fault;
use atoll_model::{Dump, Model, Outcome, Step, Strictness, Weights, Workload};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::frontend::{sensible, target_of};
use crate::judge::Judge;
use crate::scenario::Run;
use crate::world::{Config, World};

/// The one machine.
const NODE: NodeId = NodeId(0);
/// Times of the operation under way are not known.
const STRICT: Strictness = Strictness { mtime_ctime: false, ..Strictness::FULL };
/// Effects within which the power fails once it is going to.
const EFFECTS_MAX: u64 = 25;

/// `errors`: before that, effects of the disk fail, and the island starts again. `copies`: the island has so many, and the
/// power of all their machines fails at once.
pub(crate) fn run(run: &mut Run, errors: bool, copies: u16) -> Result<(), Failure> {
    let mut config = Config::new(run.seed, 1);
    config.drifts = true;
    config.copies = copies;
    config.rows_max = [2, 20, 1000][(run.seed % 3) as usize];
    let world = run.world.insert(World::new(config)?);
    world.fails_together = true;
    let mut judge = Judge::new(world)?;
    let weights = Weights {
        fsync: 3,
        write: 30,
        read: 1,
        fallocate: 6,
        copy_range: 5,
        set_attr: 12,
        ..Weights::default()
    };
    let clients = vec![(SessionId(1), Caller::ROOT)];
    let mut workload = Workload::new(run.seed, weights).with_clients(clients);
    let mut history =
        History { all: vec![judge.clone()], synced: 0, files: BTreeMap::new(), failed: Vec::new() };
    let quiet = run.steps * 3 / 4;
    for n in 0.. {
        if n == quiet {
            if errors {
                world.settle()?;
            }
            let fault = Fault::PowerCut { seed: world.rng.bits() };
            let effects = 1 + world.rng.below(EFFECTS_MAX);
            let node = if copies > 1 { world.any_machine() } else { NODE };
            world.arm(node, effects, fault);
        }
        if world.rng.percent(3) {
            world.checkpoint(IslandId(0));
        }
        if world.rng.percent(5) {
            let pause = world.rng.below(2_000_000);
            world.run_for(pause)?;
        }
        if errors && n < quiet {
            fail(world)?;
        }
        let step = workload.next(&judge.model);
        if world.injected.power_cuts > 0 {
            return judge_after(world, &history, None);
        }
        if !sensible(&judge.model, &step.caller, &step.op) {
            continue;
        }
        world.walk_to(0, &judge.model, &step.op)?;
        if world.injected.power_cuts > 0 {
            return judge_after(world, &history, None);
        }
        let got = world.run(0, &step.caller, step.op.clone(), step.data.clone())?;
        if world.injected.power_cuts > 0 {
            return judge_after(world, &history, Some((&step, &got)));
        }
        let now = world.now_wall();
        let disturbed = world.is_ailing() || world.may_have_lost(&step.op);
        if !crate::judge::is_refused(&step.op, &got, disturbed, &judge.model) {
            let expected = judge.apply(world, &step, &got, now);
            judge.forget_removed(world);
            let got = crate::judge::as_if_here(world, 0, &judge.model, &step.op, &expected, got.clone());
            let differ = crate::judge::verdict(&expected, &got, errors, STRICT);
            if !differ.is_empty() {
                return Err(Failure::new(format!("{:?}:\n  {}", step.op, differ.join("\n  "))));
            }
        }
        history.all.push(judge.clone());
        if matches!(step.op, Op::Write { .. } | Op::CopyRange { .. }) && is_disks(&got) {
            let mut done = judge.clone();
            let _ = done.apply(world, &step, &got, now);
            history.failed.push((history.all.len() - 1, done));
        }
        if matches!(step.op, Op::Fsync { .. } | Op::FsyncDir { .. }) && got.is_ok() {
            history.synced = history.all.len() - 1;
        }
        if let (Op::Fsync { ino }, Ok(_)) = (&step.op, &got) {
            history.files.insert(*ino, history.synced);
        }
        if n > quiet + run.steps {
            // Nothing that it did was an effect: the next one comes by itself.
            world.run_for(20_000_000)?;
        }
    }
    Ok(())
}

/// Perhaps an effect of the disk will fail, or the disk is mended, which starts the island again.
fn fail(world: &mut World) -> Result<(), Failure> {
    match world.rng.below(100) {
        0..15 if world.is_up(NODE) => {
            let effects = 1 + world.rng.below(12);
            world.fail_disk(NODE, effects, false);
        }
        15..25 if world.is_ailing() => world.settle()?,
        25..28 => world.kill(NODE, Fault::ProcessDeath),
        _ => {}
    }
    Ok(())
}

/// What the tree was after each operation.
struct History {
    all: Vec<Judge>,
    /// The island's log is synced up to this one.
    synced: usize,
    /// A file's bytes are synced up to this one.
    files: BTreeMap<Ino, usize>,
    /// What it would have been if a write had not failed then: some of its bytes may be there.
    failed: Vec<(usize, Judge)>,
}

/// Judges what came back. `last` was under way, and was repeated.
fn judge_after(world: &mut World, history: &History, last: Option<(&Step, &Done)>) -> Result<(), Failure> {
    world.settle()?;
    let got = world.dump(0)?;
    let window = &history.all[history.synced..];
    let mut candidates: Vec<Judge> = window.to_vec();
    if let Some((step, done)) = last {
        for before in window {
            let mut after = before.clone();
            let now = world.now_wall();
            let _ = after.apply(world, step, done, now);
            candidates.push(after);
        }
    }
    let free = last.filter(|(step, _)| step.op.changes()).and_then(|(step, _)| target_of(&step.op));
    let bytes_only = |line: &String| line.contains(": content:") || line.contains(": size:");
    let mut nearest: Option<Vec<String>> = None;
    let mut fitting = None;
    // The latest first: as a rule little is lost.
    for candidate in candidates.iter().rev() {
        let differ = Dump::of(&candidate.model).differences(&got, STRICT);
        if differ.iter().all(bytes_only) {
            fitting = Some(differ);
            break;
        }
        if nearest.as_ref().is_none_or(|n| n.len() > differ.len()) {
            nearest = Some(differ);
        }
    }
    let Some(differ) = fitting else {
        let lines = nearest.unwrap_or_default().join("\n  ");
        let count = candidates.len();
        return Err(Failure::new(format!(
            "none of {count} states came back; the nearest differs in:\n  {lines}"
        )));
    };
    let mut judged = BTreeSet::new();
    for item in got.items.values().filter(|item| item.attr.kind == Kind::Regular) {
        let ino = item.attr.ino;
        if Some(ino) == free || !judged.insert(ino) {
            continue;
        }
        // Who is told that all is safe now has lost nothing.
        let fsync = world.run(0, &Caller::ROOT, Op::Fsync { ino }, Bytes::new())?;
        // One that is back from its removal nobody had open.
        let was_there = history.all.last().is_some_and(|last| last.model.attr(ino).is_some());
        // It is told once, perhaps to the one that was under way.
        let is_told = matches!(last, Some((Step { op: Op::Fsync { ino: of }, .. }, Err(_))) if *of == ino);
        let is_safe = fsync.is_ok() && was_there && !is_told;
        let from =
            if is_safe { history.all.len() - 1 } else { history.files.get(&ino).copied().unwrap_or(0) };
        if is_safe || !differ.is_empty() {
            let versions: Vec<&Judge> =
                history.all[from..].iter().chain(&candidates[window.len()..]).collect();
            let failed = history.failed.iter().filter(|(at, _)| *at >= from).map(|(_, would)| would);
            bytes_of(world, &versions, failed, ino, item.attr.size)?;
        }
    }
    crate::invariants(world)
}

/// Every byte of a file is one that it had since the last sync, or that a write wanted to put there which failed.
fn bytes_of<'a>(
    world: &mut World,
    versions: &[&Judge],
    failed: impl Iterator<Item = &'a Judge>,
    ino: Ino,
    size: u64,
) -> Result<(), Failure> {
    let read = Op::Read { ino, offset: 0, len: u32::try_from(size).unwrap_or(u32::MAX) };
    let got = match world.run(0, &Caller::ROOT, read.clone(), Bytes::new())? {
        Ok((Answer::Data, bytes)) => bytes,
        other => return Err(Failure::new(format!("file {ino} cannot be read: {other:?}"))),
    };
    let had: Vec<Vec<u8>> = versions.iter().filter_map(|v| content(&v.model, ino)).collect();
    let (least, most) = (had.iter().map(Vec::len).min(), had.iter().map(Vec::len).max());
    if least.is_none_or(|l| got.len() < l) || most.is_none_or(|m| got.len() > m) {
        let why = format!("file {ino} came back with {} bytes; it had {least:?} to {most:?}", got.len());
        return Err(Failure::new(why));
    }
    let had: Vec<Vec<u8>> = had.into_iter().chain(failed.filter_map(|f| content(&f.model, ino))).collect();
    for (at, byte) in got.iter().enumerate() {
        if !had.iter().any(|bytes| bytes.get(at).copied().unwrap_or(0) == *byte) {
            return Err(Failure::new(format!("byte {at} of file {ino} is {byte}, which it never was")));
        }
    }
    Ok(())
}

/// Failed by the disk, which may have done a part of it.
fn is_disks(done: &Done) -> bool {
    matches!(done, Err(Errno::EIO | Errno::ENOSPC))
}

fn content(model: &Model, ino: Ino) -> Option<Vec<u8>> {
    let size = model.attr(ino)?.size;
    let mut copy = model.clone();
    let read = Op::Read { ino, offset: 0, len: size as u32 };
    match copy.apply(atoll_core::Time::default(), SessionId(1), &Caller::ROOT, &read, &[]) {
        Ok(Outcome::Answered(_, bytes)) => Some(bytes),
        _ => None,
    }
}
