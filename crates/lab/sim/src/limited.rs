//! A client that sees one directory only, beside others that see the whole tree (`docs/design/022-subtrees.md`). What it does inside
//! is judged like everything else. And it sends what no honest client would: ids of what is outside, with names that lie, to any
//! island. Of that nothing may succeed, and the tree must be as it was, which the comparisons with the model show.

use atoll_core::{Ino, IslandId, Key, Name, SessionId, VolumePath};
use atoll_model::{Model, Rng, Step, Weights};
use atoll_posix::{Caller, Errno, Kind, LockKind, Op};
use atoll_proto::{ClientOp, EntryRef, Extras, FoundBy, Outcome};
use bytes::Bytes;

use crate::cause::Failure;
use crate::frontend::{is_at_or_above, name_of, sensible, target_of};
use crate::judge::{Judge, Verdict};
use crate::scenario::{Faults, Run};
use crate::sequential::{disturb, judge_step, workload_of, world_of};
use crate::world::World;

/// Clients of the whole tree; the limited one comes behind them.
const WHOLE: usize = 4;

/// Microseconds in which an island that is there has answered.
const ANSWER_US_MAX: u64 = 30_000_000;

/// Runs it. `faults`: islands die, links break.
pub(crate) fn run(run: &mut Run, faults: Faults) -> Result<(), Failure> {
    let world = run.world.insert(world_of(run.seed, WHOLE + 1)?);
    let mut judge = Judge::new(world)?;
    let mut workload = workload_of(run.seed, Weights::default());
    let scope = begin(world, &mut judge)?;
    for n in 1..=run.steps {
        if faults == Faults::Yes {
            disturb(world);
        }
        let mut step = workload.next(&judge.model);
        match world.rng.below(10) {
            0..4 => {
                let client = step.session.0 as usize - 1;
                if sensible(&judge.model, &step.caller, &step.op) {
                    judge.run(world, client, &step)?;
                }
            }
            4..7 => {
                steer(&mut world.rng, &judge.model, scope, &mut step.op);
                step.session.0 = WHOLE as u64 + 1;
                inside(world, &mut judge, scope, &step)?;
            }
            _ => outside(world, &judge.model, scope, &step)?,
        }
        judge_step(world, &mut judge, n, n == run.steps)?;
    }
    Ok(())
}

/// A directory is made, and the last client sees that only from here on.
fn begin(world: &mut World, judge: &mut Judge) -> Result<Ino, Failure> {
    let name = Name::new(b"scope").expect("a name");
    let op = Op::Mkdir { dir: Ino::ROOT, name: name.clone(), mode: 0o777, umask: 0 };
    let session = SessionId(1);
    let step = Step { session, caller: Caller::ROOT, op, data: Bytes::new() };
    judge.run(world, 0, &step)?;
    let made = judge.model.children(Ino::ROOT).find(|(of, _)| **of == name).map(|(_, ino)| ino);
    let scope = made.ok_or_else(|| Failure::new("the scope is not made".to_owned()))?;
    let key = world.clients[0].route.dirs().get(scope).map_or(Key(0), |known| known.key);
    world.clients[WHOLE].scope = Some((scope, key));
    world.mount_dies(WHOLE);
    world.settle()?;
    Ok(scope)
}

/// Whether the model has a file or directory inside; none of what has no name.
fn is_inside(model: &Model, scope: Ino, ino: Ino) -> Option<bool> {
    let attr = model.attr(ino)?;
    match attr.kind {
        _ if attr.nlink == 0 => None,
        Kind::Directory => Some(is_at_or_above(model, scope, ino)),
        _ => Some(name_of(model, ino, Some(scope)).is_some()),
    }
}

/// The ids that an operation names.
fn ids_of(op: &Op) -> Vec<Ino> {
    let from = if let Op::CopyRange { from, .. } = op { Some(*from) } else { None };
    op.dirs().into_iter().flatten().chain(target_of(op)).chain(from).collect()
}

/// Has an operation be about something inside, mostly.
fn steer(rng: &mut Rng, model: &Model, scope: Ino, op: &mut Op) {
    let all: Vec<Ino> = model.inos().filter(|ino| is_inside(model, scope, *ino) == Some(true)).collect();
    op.change_ids(|ino| {
        let is_dir = |ino: Ino| model.attr(ino).is_some_and(|attr| attr.kind == Kind::Directory);
        let alike: Vec<Ino> = all.iter().copied().filter(|other| is_dir(*other) == is_dir(*ino)).collect();
        if is_inside(model, scope, *ino) != Some(true) && !alike.is_empty() {
            *ino = *rng.pick(&alike);
        }
    });
}

/// An operation of the limited client that an honest one sends.
fn inside(world: &mut World, judge: &mut Judge, scope: Ino, step: &Step) -> Result<(), Failure> {
    let model = &judge.model;
    let sees = ids_of(&step.op).into_iter().all(|ino| is_inside(model, scope, ino) == Some(true));
    // What is in the way of a lock is told without its process.
    let is_told_less = matches!(step.op, Op::GetLock { .. } | Op::Parent { .. });
    if sees && !is_told_less && sensible(model, &step.caller, &step.op) {
        let verdict = judge.run(world, WHOLE, step)?;
        world.injected.limited += u64::from(verdict == Verdict::Same);
    }
    Ok(())
}

/// A request of the limited client that names something outside.
fn outside(world: &mut World, model: &Model, scope: Ino, step: &Step) -> Result<(), Failure> {
    // What it has locked it may unlock wherever the file is. And an island that is cut off has not heard yet of what has left.
    let unlocks = matches!(&step.op, Op::SetLock { lock, .. } if lock.kind == LockKind::Unlock);
    if unlocks || !world.is_calm() {
        return Ok(());
    }
    let named: Vec<Option<bool>> =
        ids_of(&step.op).into_iter().map(|ino| is_inside(model, scope, ino)).collect();
    if named.contains(&None) || !named.contains(&Some(false)) {
        return Ok(());
    }
    let op = lie(&mut world.rng, model, scope, &step.op);
    let outcome = ask(world, op.clone())?;
    world.injected.refused += 1;
    let fails = match &outcome {
        Ok(Outcome::Failed { errno }) => {
            // If all of it is outside, nothing else is told than of an id that never was.
            named.contains(&Some(true)) || [Errno::ESTALE, Errno::EPERM].contains(errno)
        }
        Ok(Outcome::NotNow | Outcome::NoSession | Outcome::StaleTable { .. } | Outcome::Moved { .. }) => true,
        Ok(_) => false,
        Err(_) => true,
    };
    if fails {
        return Ok(());
    }
    Err(Failure::new(format!("a client that sees {scope} only asked {op:?}, and was told {outcome:?}")))
}

/// A request as a liar sends it.
fn lie(rng: &mut Rng, model: &Model, scope: Ino, op: &Op) -> ClientOp {
    let file = target_of(op);
    match rng.below(12) {
        0 => return ClientOp::Resolve { path: VolumePath::default() },
        1 => return ClientOp::Hints { after: Ino(0) },
        2 => {
            if let [Some(dir), _] = op.dirs()
                && is_inside(model, scope, dir) == Some(false)
            {
                return ClientOp::SkeletonAttr { ino: dir };
            }
        }
        3 => {
            if let Op::Lookup { dir, name } = op {
                return ClientOp::Skeleton { parent: *dir, name: name.clone() };
            }
        }
        _ => {}
    }
    let entry = |(dir, name)| EntryRef { dir, name };
    let own = file.and_then(|ino| name_of(model, ino, None)).map(entry);
    let files = || model.inos().filter(|ino| is_inside(model, scope, *ino) == Some(true));
    let others: Vec<EntryRef> =
        files().filter_map(|ino| name_of(model, ino, Some(scope))).map(entry).collect();
    let by = match rng.below(3) {
        0 => own,
        1 if !others.is_empty() => Some(rng.pick(&others).clone()),
        _ => None,
    };
    let by = by.map(|file| Box::new(FoundBy { from: Some(file.clone()), file }));
    let told = match op {
        Op::Rename { .. } => ClientOp::Rename { op: op.clone(), key: Key(rng.below(1 << 32) as u32) },
        Op::Link { .. } => {
            let home = IslandId(rng.below(5) as u16);
            ClientOp::Link { op: op.clone(), home }
        }
        _ => ClientOp::Fs { op: op.clone() },
    };
    told.with_extras(Extras { by, ..Extras::default() })
}

/// Asks any island.
fn ask(world: &mut World, op: ClientOp) -> Result<Result<Outcome, Errno>, Failure> {
    let (island, now_ms) = (world.any_island(), world.client_ms(WHOLE));
    let token = world.clients[WHOLE].token();
    world.note(format_args!("client {WHOLE}: asks {island} {op:?}"));
    world.with_client(WHOLE, &[], |route, out| route.ask_island(now_ms, island, op, token, out));
    let until = world.now_us() + ANSWER_US_MAX;
    loop {
        if let Some(at) = world.clients[WHOLE].told.iter().position(|(of, _)| *of == token) {
            return Ok(world.clients[WHOLE].told.swap_remove(at).1);
        }
        if world.now_us() > until {
            return Ok(Err(Errno::EIO));
        }
        world.step()?;
    }
}
