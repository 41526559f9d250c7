//! Several clients save files as careful programs do: a new file, its bytes, `fsync`, a rename over the old
//! one, `fsync` of the directory. Islands lose their power at any effect. A file that was told to be safe is
//! there, whole, at every look. If an island may have lost it, the island says so, and does not show less.

use std::collections::BTreeMap;

use atoll_core::{Ino, Name, NodeId};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::scenario::Run;
use crate::votes::{directory, name};
use crate::world::{Config, PATIENCE_US, World};

const CLIENTS: usize = 3;
/// Names that a client saves to.
const SLOTS: usize = 2;
/// Bytes of a file: some are carried by a record, others are put in place.
const BYTES_MAX: u64 = 90_000;
/// How often all comes to rest and is looked at.
const LOOKS: u64 = 3;
/// Effects within which a fault comes.
const EFFECTS_MAX: u64 = 40;
/// Longest that an island stays away.
const AWAY_US_MAX: u64 = 15_000_000;
const READ_BYTES: u32 = 1 << 20;

/// What a file may hold.
#[derive(Debug, Clone)]
struct Content {
    bytes: Bytes,
    /// What it held before; none of a new file.
    before: Option<Bytes>,
    /// An `fsync` has said that it is these bytes.
    synced: bool,
}

impl Content {
    fn allows(&self, got: &[u8]) -> bool {
        if self.synced {
            return got == self.bytes;
        }
        // What is new may end early.
        let is_short = self.before.is_none() && got.len() < self.bytes.len();
        let before = |at: usize| self.before.as_ref().map_or(0, |before| before[at]);
        (is_short || got.len() == self.bytes.len())
            && got.iter().enumerate().all(|(at, byte)| [self.bytes[at], before(at)].contains(byte))
    }
}

/// A name of one client's.
struct Slot {
    dir: Ino,
    name: Name,
    /// What it may lead to, none for nothing: what was told to be safe, and what was begun since.
    possible: Vec<Option<Content>>,
    /// Of some of it, nobody knows whether it will still be done.
    is_unanswered: bool,
    /// Something that was answered has been seen not to be there. It must stay away.
    is_lost: bool,
    /// The file, if it is known for sure.
    file: Option<(Ino, Bytes)>,
}

impl Slot {
    /// Somebody has seen what it leads to. What came after that is lost, if all of it was answered.
    fn seen(&mut self, fits: impl Fn(Option<&Content>) -> bool) -> Option<()> {
        let last = self.possible.iter().rposition(|may| fits(may.as_ref()))?;
        if !self.is_unanswered && last + 1 < self.possible.len() {
            self.possible.truncate(last + 1);
            self.is_lost = true;
        }
        Some(())
    }

    /// Somebody has read what it leads to, or found nothing.
    fn read(&mut self, got: Option<&[u8]>) -> Result<(), Failure> {
        let fits = |may: Option<&Content>| match (may, got) {
            (None, None) => true,
            (Some(content), Some(got)) => content.allows(got),
            _ => false,
        };
        self.seen(fits).ok_or_else(|| {
            let brief = |bytes: &[u8]| format!("{} bytes of {:?}", bytes.len(), bytes.first());
            let may = self.possible.iter().map(|may| match may {
                Some(content) if content.synced => brief(&content.bytes),
                Some(content) => format!("{}, unsynced", brief(&content.bytes)),
                None => "nothing".to_owned(),
            });
            let (name, dir, may) = (&self.name, self.dir, may.collect::<Vec<_>>().join("; "));
            let got = got.map_or_else(|| "nothing".to_owned(), brief);
            Failure::new(format!("{name} in {dir} is {got}, and may be {may}"))
        })
    }

    /// Somebody has found the name, or has not.
    fn found(&mut self, is_there: bool) -> Result<(), Failure> {
        self.seen(|may| may.is_some() == is_there).ok_or_else(|| {
            let what = if is_there { "is there, and should not" } else { "is missing" };
            Failure::new(format!("{} in {} {what}", self.name, self.dir))
        })
    }

    /// It was told to be this, and safe.
    fn is_safe(&mut self, now: Option<Content>, ino: Option<Ino>) {
        self.file = now.as_ref().filter(|now| now.synced).and_then(|now| Some((ino?, now.bytes.clone())));
        self.possible = vec![now];
        self.is_unanswered = false;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Save,
    Remove,
    Overwrite,
    Look,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Create,
    Write,
    Fsync,
    Name,
    FsyncDir,
    Lookup,
    Read,
    List,
    Over,
}

/// What a client does.
struct Job {
    what: What,
    stage: Stage,
    slot: usize,
    ino: Ino,
    /// Where the new file is made.
    from: (Ino, Name),
    content: Content,
    syncs_file: bool,
    syncs_dir: bool,
    token: u64,
}

struct Saver {
    client: usize,
    slots: Vec<Slot>,
    job: Option<Job>,
    next: u64,
    /// How often it makes sure, in percent: whoever does also makes safe what others have done.
    careful: u64,
}

impl Saver {
    fn draw(&mut self, world: &mut World, dirs: &[Ino]) -> Job {
        self.next += 1;
        let rng = &mut world.rng;
        let slot = rng.index(SLOTS);
        let (at, known) = (&self.slots[slot], self.slots[slot].file.clone());
        let drawn = if at.is_lost { 25 + rng.below(35) } else { rng.below(100) };
        let (what, stage) = match (drawn, &known) {
            (0..15, Some(_)) => (What::Overwrite, Stage::Write),
            (15..25, _) => (What::Remove, Stage::Name),
            (25..40, _) => (What::Look, Stage::Lookup),
            (40..50, _) => (What::List, Stage::List),
            _ => (What::Save, Stage::Create),
        };
        let old = known.filter(|_| what == What::Overwrite);
        let len = old.as_ref().map_or_else(|| 1 + rng.below(BYTES_MAX) as usize, |(_, old)| old.len());
        let bytes = Bytes::from(vec![(self.next * 8 + self.client as u64) as u8 | 1; len]);
        let temp = name(&format!("c{}_t{}", self.client, self.next));
        // Within a directory, or from any other.
        let from = if rng.percent(40) { at.dir } else { dirs[rng.index(dirs.len())] };
        Job {
            what,
            stage,
            slot,
            ino: old.as_ref().map_or(Ino(0), |(ino, _)| *ino),
            from: (from, temp),
            content: Content { bytes, before: old.map(|(_, bytes)| bytes), synced: false },
            syncs_file: rng.percent(self.careful),
            syncs_dir: rng.percent(self.careful),
            token: 0,
        }
    }

    /// Takes in what came of an operation, and begins the next.
    fn advance(&mut self, world: &mut World, dirs: &[Ino]) -> Result<bool, Failure> {
        let mut job = match self.job.take() {
            None => self.draw(world, dirs),
            Some(mut job) => {
                let Some(done) = world.poll(self.client, job.token) else {
                    self.job = Some(job);
                    return Ok(false);
                };
                self.done(world, &mut job, done)?;
                if job.stage == Stage::Over {
                    return Ok(true);
                }
                job
            }
        };
        let (op, data) = self.op(&job);
        let pause = world.rng.below(2_000);
        job.token = world.call(self.client, &Caller::ROOT, op, data, pause);
        self.job = Some(job);
        Ok(false)
    }

    /// The operation of a stage; what it may lead to is possible from now on.
    fn op(&mut self, job: &Job) -> (Op, Bytes) {
        let slot = &mut self.slots[job.slot];
        let (dir, new_name) = (slot.dir, slot.name.clone());
        let op = match job.stage {
            Stage::Create => {
                let ((dir, name), kind, target) = (job.from.clone(), Kind::Regular, Bytes::new());
                Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target }
            }
            Stage::Write => {
                if job.what == What::Overwrite {
                    slot.file = None;
                    slot.possible.push(Some(job.content.clone()));
                }
                let op = Op::Write { ino: job.ino, offset: 0, append: false, kill_set_id: false };
                return (op, job.content.bytes.clone());
            }
            Stage::Fsync => Op::Fsync { ino: job.ino },
            Stage::Name => {
                slot.file = None;
                slot.possible.push((job.what == What::Save).then(|| job.content.clone()));
                match job.what {
                    What::Remove => Op::Unlink { dir, name: new_name },
                    _ => {
                        let ((from, name), mode) = (job.from.clone(), RenameMode::Replace);
                        Op::Rename {
                            dir: from,
                            name,
                            new_dir: dir,
                            new_name,
                            mode,
                            meant: None,
                            new_meant: None,
                        }
                    }
                }
            }
            Stage::FsyncDir => Op::FsyncDir { dir },
            Stage::Lookup => Op::Lookup { dir, name: new_name },
            Stage::Read => Op::Read { ino: job.ino, offset: 0, len: READ_BYTES },
            Stage::List => Op::ReadDir { dir, after: 0, bytes: READ_BYTES, plus: false },
            Stage::Over => unreachable!("it has no operation"),
        };
        (op, Bytes::new())
    }

    /// The stage that follows on an answer.
    fn done(&mut self, world: &mut World, job: &mut Job, done: Done) -> Result<(), Failure> {
        let slot = &mut self.slots[job.slot];
        if let Ok((Answer::Removed { orphan: Some(ino) }, _)) = &done {
            world.forget_all(&[*ino]);
        }
        let after_bytes = if job.what == What::Save { Stage::Name } else { Stage::Over };
        job.stage = match (job.stage, done) {
            (Stage::Create, Ok((Answer::Found { found }, _))) => {
                job.ino = found.attr.ino;
                Stage::Write
            }
            (Stage::Write, Ok(_)) if job.syncs_file => Stage::Fsync,
            (Stage::Write, Ok(_)) => after_bytes,
            (Stage::Fsync, Ok(_)) => {
                job.content.synced = true;
                if job.what == What::Overwrite {
                    slot.is_safe(Some(job.content.clone()), Some(job.ino));
                }
                after_bytes
            }
            (Stage::Name, Ok(_)) if job.syncs_dir => Stage::FsyncDir,
            (Stage::FsyncDir, Ok(_)) => {
                let now = slot.possible.pop().expect("it was named");
                slot.is_safe(now, Some(job.ino));
                Stage::Over
            }
            (Stage::Lookup, Ok((Answer::Found { found }, _))) => {
                slot.found(true)?;
                job.ino = found.attr.ino;
                Stage::Read
            }
            (Stage::Lookup, Err(Errno::ENOENT)) => {
                slot.found(false)?;
                Stage::Over
            }
            (Stage::Read, Ok((Answer::Data, bytes))) => {
                slot.read(Some(&bytes))?;
                Stage::Over
            }
            // It was found a moment ago. What is not synced may be lost since, and the name lead to what it did before.
            (Stage::Read, Err(Errno::ENOENT | Errno::ESTALE)) if slot.file.is_some() => {
                return Err(Failure::new(format!("{} in {} is lost, and was safe", slot.name, slot.dir)));
            }
            (Stage::List, Ok((Answer::Entries { entries, .. }, _))) => {
                let dir = slot.dir;
                for slot in self.slots.iter_mut().filter(|slot| slot.dir == dir) {
                    slot.found(entries.iter().any(|entry| entry.name == slot.name))?;
                }
                Stage::Over
            }
            // Nobody goes on with a file of which he does not know whether it is safe.
            (Stage::Name | Stage::Write, _) => {
                slot.is_unanswered = true;
                Stage::Over
            }
            _ => Stage::Over,
        };
        Ok(())
    }

    /// What its names lead to is what they may lead to.
    fn look(&mut self, world: &mut World, names: &mut BTreeMap<Ino, (Ino, Name)>) -> Result<(), Failure> {
        for slot in &mut self.slots {
            let Slot { dir, name, .. } = &*slot;
            let found =
                world.run(0, &Caller::ROOT, Op::Lookup { dir: *dir, name: name.clone() }, Bytes::new())?;
            let got = match found {
                Err(Errno::ENOENT) => None,
                Ok((Answer::Found { found }, _)) => {
                    let ino = found.attr.ino;
                    names.insert(ino, (*dir, name.clone()));
                    let read = Op::Read { ino, offset: 0, len: READ_BYTES };
                    match world.run(0, &Caller::ROOT, read, Bytes::new())? {
                        Ok((Answer::Data, bytes)) => Some(bytes),
                        other => {
                            return Err(Failure::new(format!("{name} in {dir} cannot be read: {other:?}")));
                        }
                    }
                }
                other => return Err(Failure::new(format!("{name} in {dir} cannot be found: {other:?}"))),
            };
            slot.read(got.as_deref())?;
            slot.is_lost = false;
        }
        Ok(())
    }
}

/// All has come to rest: what was promised is there, and no file has two names, since none was given two.
fn look(world: &mut World, savers: &mut [Saver], dirs: &[Ino]) -> Result<(), Failure> {
    world.settle()?;
    let mut names = BTreeMap::new();
    for saver in savers {
        saver.look(world, &mut names)?;
    }
    for dir in dirs {
        let list = Op::ReadDir { dir: *dir, after: 0, bytes: READ_BYTES, plus: false };
        let (entries, is_all) = match world.run(0, &Caller::ROOT, list, Bytes::new())? {
            Ok((Answer::Entries { entries, eof }, _)) => (entries, eof),
            other => return Err(Failure::new(format!("{dir} cannot be listed: {other:?}"))),
        };
        assert!(is_all, "there are few names");
        for entry in entries {
            let at = (*dir, entry.name);
            if let Some(other) = names.insert(entry.ino, at.clone()).filter(|other| *other != at) {
                return Err(Failure::new(format!("file {} has two names: {other:?} and {at:?}", entry.ino)));
            }
        }
    }
    crate::invariants(world)
}

/// `away`: a machine that is, and until when.
fn disturb(world: &mut World, away: &mut Option<(NodeId, u64)>) {
    if let Some((node, until_us)) = *away
        && world.now_us() > until_us
    {
        world.come_back(node);
        *away = None;
    }
    let node = world.any_machine();
    if !world.is_up(node) {
        return;
    }
    let (effects, seed) = (1 + world.rng.below(EFFECTS_MAX), world.rng.bits());
    match world.rng.below(100) {
        0..55 => world.arm(node, effects, Fault::PowerCut { seed }),
        55..70 => world.arm(node, effects, Fault::ProcessDeath),
        70..80 => {
            // One of them may not come back with the power.
            let stays = (seed % 2 == 0 && away.is_none()).then_some(node);
            for node in world.machines.ids() {
                match (Some(node) == stays, Fault::PowerCut { seed }) {
                    (true, fault) => stay_away(world, away, node, fault),
                    (false, fault) => world.kill(node, fault),
                }
            }
        }
        80..90 if away.is_none() => {
            let fault = if seed % 2 == 0 { Fault::ProcessDeath } else { Fault::PowerCut { seed } };
            stay_away(world, away, node, fault);
        }
        _ => world.checkpoint_on(node),
    }
}

fn stay_away(world: &mut World, away: &mut Option<(NodeId, u64)>, node: NodeId, fault: Fault) {
    world.stay_away(node, fault);
    *away = Some((node, world.now_us() + world.rng.below(AWAY_US_MAX)));
}

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let mut config = Config::new(run.seed, 2 + (run.seed % 3) as u16);
    (config.clients, config.drifts, config.moves) = (CLIENTS, true, run.seed.is_multiple_of(2));
    config.rows_max = [2, 20, 1000][(run.seed / 3 % 3) as usize];
    let islands = usize::from(config.islands);
    let world = run.world.insert(World::new(config.clone())?);
    let dirs = world
        .islands()
        .into_iter()
        .map(|island| directory(world, &config, island))
        .collect::<Result<Vec<Ino>, Failure>>()?;
    for dir in dirs.iter().chain([&Ino::ROOT]) {
        if let Err(errno) = world.run(0, &Caller::ROOT, Op::FsyncDir { dir: *dir }, Bytes::new())? {
            return Err(Failure::new(format!("{dir} is not synced: {errno:?}")));
        }
    }
    let careful = [85, 50, 10][(run.seed / 9 % 3) as usize];
    let slot = |client: usize, n: usize| Slot {
        dir: dirs[(client + n) % islands],
        name: name(&format!("c{client}_s{n}")),
        possible: vec![None],
        is_unanswered: false,
        is_lost: false,
        file: None,
    };
    let saver = |client| {
        let slots = (0..SLOTS).map(|n| slot(client, n)).collect();
        Saver { client, slots, job: None, next: 0, careful }
    };
    let mut savers: Vec<Saver> = (0..CLIENTS).map(saver).collect();
    for _ in 0..LOOKS {
        let (mut over, mut fault_us, mut away) = (0, world.now_us(), None);
        let mut until_us = world.now_us() + PATIENCE_US;
        while over < run.steps / LOOKS {
            if world.now_us() > fault_us {
                disturb(world, &mut away);
                fault_us = world.now_us() + 5_000 + world.rng.below(300_000);
            }
            world.step()?;
            for saver in &mut savers {
                if saver.advance(world, &dirs)? {
                    over += 1;
                    until_us = world.now_us() + PATIENCE_US;
                }
            }
            if world.now_us() > until_us {
                return Err(Failure::new("nobody gets anything done"));
            }
        }
        if let Some((node, _)) = away {
            world.come_back(node);
        }
        // What is under way ends, and nothing new begins.
        while let Some(saver) = savers.iter_mut().find(|saver| saver.job.is_some()) {
            world.step()?;
            saver.advance(world, &dirs)?;
            if world.now_us() > until_us {
                return Err(Failure::new("what was begun never ends"));
            }
        }
        look(world, &mut savers, &dirs)?;
    }
    Ok(())
}
