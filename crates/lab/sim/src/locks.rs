//! Processes that wait for locks, while islands die, links break and the files get other names. Locks that
//! exclude each other are never held at once, and a waiting process gets the lock when it is free.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Caller, Errno, Kind, LockKind, LockRange, Op, RenameMode};
use bytes::Bytes;

use crate::cause::Failure;
use crate::concurrent::Trouble;
use crate::scenario::Run;
use crate::world::{PATIENCE_US, World};

/// Clients.
const CLIENTS: usize = 4;
/// Processes of each, with one lock at a time: so no two wait for each other.
const PROCESSES: usize = 3;
/// Files that are locked.
const FILES: u64 = 3;
/// Bytes of a file that locks are about.
const BYTES: u64 = 6;
/// How long a lock is held at most.
const HELD_US_MAX: u64 = 15_000;
/// Locks between two faults, about.
const LOCKS_PER_FAULT: u64 = 5;
/// How long a link is cut at most.
const CUT_US_MAX: u64 = 5_000_000;

#[derive(Debug, Clone, Copy)]
struct Lock {
    ino: Ino,
    range: LockRange,
}

impl Lock {
    fn excludes(&self, other: &Self) -> bool {
        let (one, two) = (&self.range, &other.range);
        self.ino == other.ino
            && one.flock == two.flock
            && (one.kind == LockKind::Write || two.kind == LockKind::Write)
            && (one.flock || (one.start <= two.end && two.start <= one.end))
    }

    const fn request(&self, kind: LockKind, wait: bool) -> Op {
        Op::SetLock { ino: self.ino, lock: LockRange { kind, ..self.range }, wait }
    }
}

#[derive(Debug, Clone, Copy)]
enum Doing {
    Nothing,
    Asks {
        token: u64,
        since_us: u64,
        lock: Lock,
    },
    Holds {
        until_us: u64,
        lock: Lock,
    },
    /// From before this is asked for nobody relies on the lock.
    LetsGo {
        token: u64,
        since_us: u64,
        lock: Lock,
    },
}

pub(crate) fn run(run: &mut Run, trouble: Trouble) -> Result<(), Failure> {
    let world = run.world.insert(trouble.world(run.seed, CLIENTS)?);
    let mut mkdir = |n| make(world, Op::Mkdir { dir: Ino::ROOT, name: name(n), mode: 0o755, umask: 0 });
    let dirs = [mkdir("a")?, mkdir("b")?];
    let mut files = Vec::new();
    for n in 0..FILES {
        let (dir, name, target) = (dirs[0], name(&format!("f{n}")), Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        files.push((make(world, Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target })?, 0));
    }
    let mut processes = [Doing::Nothing; CLIENTS * PROCESSES];
    let (mut left, mut cut_us, mut rename) = (run.steps, 0, None);
    while left > 0 || rename.is_some() || processes.iter().any(|doing| !matches!(doing, Doing::Nothing)) {
        for (at, doing) in processes.iter_mut().enumerate() {
            let client = at / PROCESSES;
            match *doing {
                Doing::Nothing if left > 0 => {
                    left -= 1;
                    if world.rng.below(LOCKS_PER_FAULT) == 0 {
                        trouble.disturb(world);
                        cut_us = world.now_us();
                    }
                    let ino = files[world.rng.index(files.len())].0;
                    let lock = draw(world, ino, at as u64);
                    let op = lock.request(lock.range.kind, world.rng.percent(80));
                    *doing = asks(world, client, op, lock);
                }
                Doing::Holds { until_us, lock } if until_us <= world.now_us() => {
                    *doing = lets_go(world, client, lock);
                }
                _ => {}
            }
        }
        if rename.is_none() && left > 0 && world.rng.below(400) == 0 {
            rename = Some(moves_on(world, &dirs, &mut files));
        }
        world.step()?;
        if left == 0 || world.now_us() > cut_us + CUT_US_MAX {
            world.heal();
            cut_us = world.now_us();
        }
        rename = rename.filter(|token| world.poll(0, *token).is_none());
        for at in 0..processes.len() {
            processes[at] = goes_on(world, at / PROCESSES, processes[at])?;
            if let Doing::Holds { lock, .. } = processes[at] {
                let other = processes.iter().enumerate().find(|(other, doing)| {
                    *other != at && matches!(doing, Doing::Holds { lock: held, .. } if lock.excludes(held))
                });
                if let Some((other, doing)) = other {
                    let both = format!("processes {at} and {other} both hold {lock:?} and {doing:?}");
                    return Err(Failure::new(both));
                }
            }
        }
    }
    world.settle()?;
    crate::invariants(world)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn make(world: &mut World, op: Op) -> Result<Ino, Failure> {
    match world.run(0, &Caller::ROOT, op, Bytes::new())? {
        Ok((Answer::Found { found }, _)) => Ok(found.attr.ino),
        other => Err(Failure::new(format!("nothing is made: {other:?}"))),
    }
}

fn draw(world: &mut World, ino: Ino, owner: u64) -> Lock {
    let (one, two) = (world.rng.below(BYTES), world.rng.below(BYTES));
    let kind = if world.rng.percent(60) { LockKind::Write } else { LockKind::Read };
    let flock = world.rng.percent(30);
    let (start, end) = if flock { (0, u64::MAX) } else { (one.min(two), one.max(two)) };
    Lock { ino, range: LockRange { start, end, kind, owner, pid: 1, flock } }
}

fn asks(world: &mut World, client: usize, op: Op, lock: Lock) -> Doing {
    let pause = world.rng.below(40_000);
    let token = world.call(client, &Caller::ROOT, op, Bytes::new(), pause);
    Doing::Asks { token, since_us: world.now_us(), lock }
}

fn lets_go(world: &mut World, client: usize, lock: Lock) -> Doing {
    let token = world.call(client, &Caller::ROOT, lock.request(LockKind::Unlock, false), Bytes::new(), 0);
    Doing::LetsGo { token, since_us: world.now_us(), lock }
}

/// A file gets a name in the other directory, and may follow it to another island.
fn moves_on(world: &mut World, dirs: &[Ino; 2], files: &mut [(Ino, usize)]) -> u64 {
    let n = world.rng.index(files.len());
    let from = files[n].1;
    files[n].1 = 1 - from;
    let name = name(&format!("f{n}"));
    let (dir, new_dir, new_name, mode) = (dirs[from], dirs[1 - from], name.clone(), RenameMode::Replace);
    world.call(
        0,
        &Caller::ROOT,
        Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None },
        Bytes::new(),
        0,
    )
}

/// What a process does when it has been answered.
fn goes_on(world: &mut World, client: usize, doing: Doing) -> Result<Doing, Failure> {
    let (Doing::Asks { token, since_us, lock } | Doing::LetsGo { token, since_us, lock }) = doing else {
        return Ok(doing);
    };
    let Some(done) = world.poll(client, token) else {
        if world.now_us() > since_us + PATIENCE_US {
            return Err(Failure::new(format!("client {client} waits for ever: {doing:?}")));
        }
        return Ok(doing);
    };
    let asked = matches!(doing, Doing::Asks { .. });
    match done {
        Ok(_) if asked => Ok(Doing::Holds { until_us: world.now_us() + world.rng.below(HELD_US_MAX), lock }),
        Ok(_) => Ok(Doing::Nothing),
        Err(Errno::EAGAIN) if asked => Ok(Doing::Nothing),
        // It may have happened, or may have not.
        Err(Errno::EIO) => Ok(lets_go(world, client, lock)),
        Err(errno) => Err(Failure::new(format!("client {client} is told {errno:?}: {doing:?}"))),
    }
}
