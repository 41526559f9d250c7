//! Sizes up to every limit that a user or another node can reach, while islands die, lose their power, and mounts die
//! that hold very much.
//!
//! A run does one thing very often, or with something very long. How much of it is drawn from the seed: mostly little
//! enough for a run to take a moment, in one seed of `FAR_EACH` rounds as much as there may be.
//!
//! Where nothing fails, in one seed of four, the model judges each answer, and the whole tree in the end. Where islands die
//! or lose their power, nothing may be left that nobody can account for.

use std::collections::VecDeque;

use atoll_core::{Ino, Name, SessionId};
use atoll_disk::sim::Fault;
use atoll_model::{Rng, Step};
use atoll_posix::{Answer, Caller, Errno, Kind, LockKind, LockRange, Op, RenameMode, XattrMode};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::concurrent::{STRICT, told};
use crate::judge::{Judge, as_if_here, verdict};
use crate::scenario::{Faults, Run};
use crate::world::{Config, PATIENCE_US, World};

/// The mount that does it, and dies; and one that looks afterwards.
const DOES: usize = 0;
const LOOKS: usize = 1;
/// Operations that a mount has under way at once.
const WINDOW: usize = 16;
/// One round of seeds of so many reaches the limits.
const FAR_EACH: u64 = 40;
/// How many of a hundred operations meet a fault.
const FAULTS_PERCENT: u64 = 2;
/// Longer than a session lasts whose mount has ended its link, and than its end takes.
const GONE_US: u64 = 40_000_000;
/// Bytes of the longest name and target of Linux.
const NAME_BYTES: usize = 255;
const TARGET_BYTES: usize = 4095;
/// Names whose paths are compared with the model's in the end, if their levels are no more: a path has all of them.
const LEVELS_COMPARED_MAX: u64 = 100;

/// What is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Large {
    /// Files that are open and have no name, when their mount dies.
    Open,
    /// Locks on one file, when their mount dies.
    Locks,
    /// Names of one file.
    Links,
    /// Directories below each other, with the longest names.
    Levels,
    /// Directories below each other with extended attributes of 60,000 bytes.
    Xattrs,
    /// Symbolic links with the longest targets.
    Targets,
    /// Longest names in one directory, made by a user with 64 groups.
    Names,
    /// Entries of ACLs, which directories hand on to what is made in them.
    Acls,
}

impl Large {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Open,
        Self::Locks,
        Self::Links,
        Self::Levels,
        Self::Xattrs,
        Self::Targets,
        Self::Names,
        Self::Acls,
    ];

    /// As many, or as much, as there may be.
    pub const fn most(self) -> u64 {
        match self {
            Self::Open => 100_000,
            Self::Locks => 8_192,
            Self::Links => 60_000,
            Self::Levels => 1_000,
            Self::Xattrs => 24,
            Self::Targets | Self::Names => 10_000,
            Self::Acls => (atoll_posix::acl::ACL_BYTES_MAX / 8) as u64,
        }
    }

    /// As many as a seed does that goes far: with faults each start reads what there is.
    const fn far(self) -> u64 {
        match self {
            Self::Open => self.most() / 4,
            _ => self.most(),
        }
    }

    /// As many as a seed does as a rule.
    const fn usual(self) -> u64 {
        match self {
            Self::Open => 1_500,
            Self::Locks | Self::Links => 300,
            Self::Levels => 60,
            Self::Xattrs => 14,
            Self::Targets | Self::Names => 400,
            Self::Acls => self.most(),
        }
    }
}

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let kinds = Large::ALL.len() as u64;
    let (what, round) = (Large::ALL[(run.seed % kinds) as usize], run.seed / kinds);
    let mut rng = Rng::new(run.seed);
    let is_far = round % FAR_EACH == FAR_EACH - 1;
    let count = if is_far { what.far() } else { 1 + rng.below(what.usual()) };
    let faults = if rng.percent(75) { Faults::Yes } else { Faults::No };
    let world = run.world.insert(world_of(run.seed)?);
    one(world, what, count, faults)
}

/// A volume with two mounts, and the product's own limits of records.
fn world_of(seed: u64) -> Result<World, Failure> {
    let mut config = Config::new(seed, 1 + (atoll_model::rng::mix(seed) % 4) as u16);
    (config.clients, config.mounts, config.drifts, config.lays) = (2, true, true, false);
    (config.limits_of_product, config.moves) = (true, seed.is_multiple_of(2));
    config.rows_max = [20, 1000][(seed / 3 % 2) as usize];
    World::new(config)
}

/// Does one thing so often, in a world of its own; then all comes to rest, and the islands' rows hold together.
///
/// # Errors
/// An island stops, an operation never ends, or something is not as it should be.
pub fn alone(seed: u64, what: Large, count: u64) -> Result<(), Failure> {
    let mut world = world_of(seed)?;
    one(&mut world, what, count, Faults::No)?;
    world.converge()
}

fn one(world: &mut World, what: Large, count: u64, faults: Faults) -> Result<(), Failure> {
    let judge = match faults {
        Faults::No => Some(Judge::new(world)?),
        Faults::Yes => None,
    };
    let mut user = User { world, faults, judge };
    let dir = user.mkdir(Ino::ROOT, &name("large"))?.expect("the root directory is always there");
    user.attempt(LOOKS, Op::Lookup { dir: Ino::ROOT, name: name("large") })?;
    match what {
        Large::Open => user.open(dir, count)?,
        Large::Locks => user.locks(dir, count)?,
        Large::Links => user.links(dir, count)?,
        Large::Levels => user.levels(dir, count)?,
        Large::Xattrs => user.xattrs(dir, count)?,
        Large::Targets => user.targets(dir, count)?,
        Large::Names => user.names(dir, count)?,
        Large::Acls => user.acls(dir, count)?,
    }
    let User { world, judge, .. } = user;
    world.settle()?;
    if let Some(judge) = judge.filter(|_| what != Large::Levels || count <= LEVELS_COMPARED_MAX) {
        judge.compare_trees(world, STRICT)?;
    }
    crate::invariants(world)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// A name of 255 bytes.
fn long_name(n: u64) -> Name {
    name(&format!("{n:0>NAME_BYTES$}"))
}

fn create(dir: Ino, name: Name) -> Op {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target: Bytes::new() }
}

/// In the group that the root directory lets in, as the last of as many as callers of a frontend have.
fn caller() -> Caller {
    let groups = (0..64).map(|n| 5000 + n).collect();
    Caller { uid: 0, gid: 1000, groups: Some(groups) }
}

fn lock(kind: LockKind, start: u64, end: u64) -> LockRange {
    LockRange { start, end, kind, owner: 1, pid: 1, flock: false }
}

fn set_xattr(ino: Ino, name: &str, value: Bytes) -> Op {
    let (name, mode) = (Bytes::copy_from_slice(name.as_bytes()), XattrMode::Any);
    Op::SetXattr { ino, name, value, mode, kill_sgid: false }
}

/// The value of an ACL with so many entries: the owner, users, the group, the mask and the others.
fn acl(entries: u64) -> Bytes {
    let entry = |tag: u16, id: u32| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&tag.to_le_bytes());
        bytes[2..4].copy_from_slice(&7u16.to_le_bytes());
        bytes[4..].copy_from_slice(&id.to_le_bytes());
        bytes
    };
    let users = (0..entries.saturating_sub(4)).map(|n| entry(2, 1000 + n as u32));
    let ends = [entry(4, u32::MAX), entry(16, u32::MAX), entry(32, u32::MAX)];
    let all = [entry(1, u32::MAX)].into_iter().chain(users).chain(ends);
    Bytes::from([2u32.to_le_bytes().to_vec(), all.flatten().collect()].concat())
}

/// Somebody without rights who does very much.
struct User<'a> {
    world: &'a mut World,
    faults: Faults,
    /// Where nothing fails.
    judge: Option<Judge>,
}

/// Whether something else was under way with an operation: what others change may be in its answer then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    Together,
}

impl User<'_> {
    /// Perhaps an island dies soon.
    fn disturb(&mut self) {
        let world = &mut *self.world;
        if self.faults == Faults::No || !world.rng.percent(FAULTS_PERCENT) {
            return;
        }
        let node = world.any_machine();
        let power = Fault::PowerCut { seed: world.rng.bits() };
        let fault = if world.rng.percent(30) { power } else { Fault::ProcessDeath };
        match world.rng.below(10) {
            0..6 if world.is_up(node) => {
                let effects = 1 + world.rng.below(40);
                world.arm(node, effects, fault);
            }
            6..9 => {
                let conn = world.rng.index(world.conns.len());
                world.break_later(conn, 1_000);
            }
            _ => world.kill(node, fault),
        }
    }

    /// Where nothing fails an operation does what the model does, or ends with an error that is `allowed`: the model has
    /// other limits.
    fn judge(
        &mut self,
        client: usize,
        op: &Op,
        done: &Done,
        allowed: &[Errno],
        way: Way,
    ) -> Result<(), Failure> {
        let Some(judge) = &mut self.judge else { return Ok(()) };
        if done.as_ref().is_err_and(|errno| allowed.contains(errno)) {
            return Ok(());
        }
        let (session, caller) = (SessionId(client as u64 + 1), caller());
        let step = Step { session, caller, op: op.clone(), data: Bytes::new() };
        let now = self.world.now_wall();
        let expected = judge.apply(self.world, &step, done, now);
        let got = as_if_here(self.world, client, &judge.model, op, &expected, done.clone());
        if way == Way::Together && told(&expected).is_some() && told(&expected) == told(&got) {
            return Ok(());
        }
        let differ = verdict(&expected, &got, false, STRICT);
        if differ.is_empty() {
            return Ok(());
        }
        let short = |text: String| text.chars().take(400).collect::<String>();
        Err(Failure::new(format!("{}: {}", short(format!("{op:?}")), short(differ.join(", ")))))
    }

    fn run(&mut self, client: usize, op: Op) -> Result<Done, Failure> {
        self.disturb();
        let done = self.world.run(client, &caller(), op.clone(), Bytes::new())?;
        self.judge(client, &op, &done, &[], Way::Alone)?;
        Ok(done)
    }

    /// The same, where nothing depends on what came of it.
    fn attempt(&mut self, client: usize, op: Op) -> Result<(), Failure> {
        self.run(client, op).map(drop)
    }

    /// Runs many operations, some at once; what came of each.
    fn many(&mut self, ops: impl Iterator<Item = Op>, allowed: &[Errno]) -> Result<Vec<Done>, Failure> {
        let (mut ops, mut under_way, mut all) = (ops, VecDeque::new(), Vec::new());
        let caller = caller();
        loop {
            while under_way.len() < WINDOW
                && let Some(op) = ops.next()
            {
                self.disturb();
                let token = self.world.call(DOES, &caller, op.clone(), Bytes::new(), 0);
                under_way.push_back((token, op));
            }
            let Some((token, op)) = under_way.pop_front() else { return Ok(all) };
            let until = self.world.now_us() + PATIENCE_US;
            let done = loop {
                if let Some(done) = self.world.poll(DOES, token) {
                    break done;
                }
                if self.world.now_us() > until {
                    self.world.heal();
                }
                if self.world.now_us() > until + PATIENCE_US {
                    return Err(Failure::new("an operation never ends"));
                }
                self.world.step()?;
            };
            self.judge(DOES, &op, &done, allowed, Way::Together)?;
            all.push(done);
        }
    }

    /// Until what `op` makes as `name` is there, whatever dies meanwhile. None: a power cut took the directory, which
    /// nobody had synced.
    fn make(&mut self, dir: Ino, name: &Name, op: &Op) -> Result<Option<Ino>, Failure> {
        loop {
            for op in [op.clone(), Op::Lookup { dir, name: name.clone() }] {
                if let Ok((Answer::Found { found }, _)) = self.run(DOES, op)? {
                    return Ok(Some(found.attr.ino));
                }
            }
            self.world.settle()?;
            if self.faults == Faults::Yes
                && matches!(self.run(LOOKS, Op::GetAttr { ino: dir })?, Err(Errno::ENOENT | Errno::ESTALE))
            {
                return Ok(None);
            }
        }
    }

    fn mkdir(&mut self, dir: Ino, name: &Name) -> Result<Option<Ino>, Failure> {
        self.make(dir, name, &Op::Mkdir { dir, name: name.clone(), mode: 0o777, umask: 0 })
    }

    fn file(&mut self, dir: Ino, name: &Name) -> Result<Option<Ino>, Failure> {
        self.make(dir, name, &create(dir, name.clone()))
    }

    /// The mount dies. When its session is over nobody holds anything any more.
    fn dies(&mut self) -> Result<(), Failure> {
        let session = self.world.mount_dies(DOES);
        if let Some(judge) = &mut self.judge {
            judge.mount_died(SessionId(DOES as u64 + 1));
        }
        let until = self.world.now_us() + GONE_US;
        while self.world.now_us() < until {
            self.disturb();
            self.world.run_for(200_000)?;
        }
        self.world.settle()?;
        self.world.run_for(GONE_US)?;
        for island in self.world.islands() {
            if let Some(held) = self.world.held_by(island, session) {
                return Err(Failure::new(format!(
                    "island {island} still has session {session} with {held} files"
                )));
            }
        }
        Ok(())
    }

    fn open(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        let names = || (0..count).map(|n| name(&format!("o{n}")));
        self.many(names().map(|name| create(dir, name)), &[])?;
        self.many(names().map(|name| Op::Unlink { dir, name }), &[])?;
        self.dies()
    }

    fn locks(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        let Some(ino) = self.file(dir, &name("locked"))? else { return Ok(()) };
        // Ranges that do not touch.
        let one = |n: u64| Op::SetLock { ino, lock: lock(LockKind::Write, 2 * n, 2 * n), wait: false };
        self.many((0..count).map(one), &[])?;
        if count >= Large::Locks.most() {
            let more = self.many([one(count)].into_iter(), &[Errno::ENOLCK])?;
            if self.faults == Faults::No && !matches!(more[..], [Err(Errno::ENOLCK)]) {
                return Err(Failure::new(format!("one lock more than there may be: {more:?}")));
            }
        }
        self.dies()?;
        let all = Op::SetLock { ino, lock: lock(LockKind::Write, 0, u64::MAX), wait: false };
        // A power cut may have taken the file.
        match self.run(LOOKS, all)? {
            Err(Errno::EAGAIN) => Err(Failure::new("locks of a mount that is gone are held")),
            _ => Ok(()),
        }
    }

    fn links(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        let Some(other) = self.mkdir(dir, &name("other"))? else { return Ok(()) };
        let Some(ino) = self.file(dir, &name("linked"))? else { return Ok(()) };
        // One in twenty lies in a directory that may be another island's.
        let at = |n: u64| (if n % 20 == 19 { other } else { dir }, name(&format!("l{n}")));
        let link = |n: u64| {
            let (dir, name) = at(n);
            Op::Link { ino, dir, name }
        };
        self.many((1..count).map(link), &[])?;
        if count >= Large::Links.most() {
            let more = self.many([link(count)].into_iter(), &[Errno::EMLINK])?;
            if self.faults == Faults::No && !matches!(more[..], [Err(Errno::EMLINK)]) {
                return Err(Failure::new(format!("one name more than there may be: {more:?}")));
            }
        }
        self.attempt(DOES, Op::ReadDir { dir, after: 0, bytes: 1 << 20, plus: true })?;
        let unlink = |n: u64| {
            let (dir, name) = at(n);
            Op::Unlink { dir, name }
        };
        self.many((1..count).step_by(2).map(unlink), &[Errno::ENOENT])?;
        self.world.settle()?;
        crate::invariants(self.world)
    }

    /// The first of some directories below each other gets another name, and back.
    fn rename(&mut self, dir: Ino) -> Result<(), Failure> {
        let (name, new_name) = (long_name(0), name("renamed"));
        let (mode, meant, new_meant) = (RenameMode::NoReplace, None, None);
        let there = Op::Rename {
            dir,
            name: name.clone(),
            new_dir: Ino::ROOT,
            new_name: new_name.clone(),
            mode,
            meant,
            new_meant,
        };
        let back = Op::Rename {
            dir: Ino::ROOT,
            name: new_name,
            new_dir: dir,
            new_name: name,
            mode,
            meant,
            new_meant,
        };
        self.attempt(DOES, there)?;
        self.attempt(DOES, back)?;
        Ok(())
    }

    fn levels(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        let mut last = dir;
        for n in 0..count {
            let Some(made) = self.mkdir(last, &long_name(n))? else { return Ok(()) };
            last = made;
        }
        let Some(ino) = self.file(last, &name("file"))? else { return Ok(()) };
        self.attempt(DOES, Op::Link { ino, dir, name: name("link") })?;
        self.rename(dir)
    }

    fn xattrs(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        let mut last = dir;
        for n in 0..count {
            let Some(made) = self.mkdir(last, &long_name(n))? else { return Ok(()) };
            last = made;
            for value in 0..4u8 {
                let op = set_xattr(last, &format!("user.{value}"), Bytes::from(vec![value; 60_000]));
                self.attempt(DOES, op)?;
            }
        }
        let Some(ino) = self.file(last, &name("file"))? else { return Ok(()) };
        self.attempt(DOES, Op::Link { ino, dir, name: name("link") })?;
        self.rename(dir)
    }

    fn targets(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        // Every other one leads to a directory: all islands keep such links.
        let here = b"./".repeat(TARGET_BYTES / 2);
        let nowhere = vec![b'x'; TARGET_BYTES];
        let link = |n: u64| {
            let target = Bytes::from(if n.is_multiple_of(2) { here.clone() } else { nowhere.clone() });
            let (kind, mode, umask, rdev, exclusive) = (Kind::Symlink, 0o777, 0, 0, true);
            Op::Create { dir, name: name(&format!("s{n}")), kind, mode, umask, rdev, exclusive, target }
        };
        self.many((0..count).map(link), &[])?;
        self.attempt(LOOKS, Op::ReadDir { dir, after: 0, bytes: 1 << 20, plus: true })?;
        Ok(())
    }

    fn names(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        self.many((0..count).map(|n| create(dir, long_name(n))), &[])?;
        self.attempt(LOOKS, Op::ReadDir { dir, after: 0, bytes: 1 << 20, plus: true })?;
        self.many((0..count).map(|n| Op::Unlink { dir, name: long_name(n) }), &[Errno::ENOENT])?;
        Ok(())
    }

    fn acls(&mut self, dir: Ino, count: u64) -> Result<(), Failure> {
        let value = acl(count.max(5));
        for which in [atoll_posix::acl::ACCESS_XATTR, atoll_posix::acl::DEFAULT_XATTR] {
            let which = std::str::from_utf8(which).expect("a name of Linux's");
            self.attempt(DOES, set_xattr(dir, which, value.clone()))?;
        }
        // What is made there inherits both.
        let Some(inner) = self.mkdir(dir, &name("inner"))? else { return Ok(()) };
        self.file(inner, &name("file"))?;
        let Some(last) = self.mkdir(inner, &name("last"))? else { return Ok(()) };
        self.file(last, &name("file"))?;
        Ok(())
    }
}
