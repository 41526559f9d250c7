//! Several clients that never wait for each other, judged by the whole history: some order of all operations,
//! each between its start and its end, must explain every answer (`atoll-history`).
//!
//! They know what they were told, and nothing else: names that others made they have to look up.

use std::collections::BTreeSet;

use atoll_core::{Ino, Name};
use atoll_disk::sim::Fault;
use atoll_history::{
    Answer as Told, Found, History, How, Kind as Shape, Lenience, Listed, Op as Asked, Record,
};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::concurrent::Trouble;
use crate::links::Party as Side;
use crate::scenario::Run;
use crate::world::{PATIENCE_US, World};

/// Clients.
pub(crate) const CLIENTS: usize = 5;
/// Names used in each directory.
const NAMES: u64 = 6;
/// Directories and files that a client remembers.
const KNOWN_MAX: usize = 6;
/// Bytes of a block of data, which holds one number.
const BLOCK: u64 = 8;
/// Operations between two faults, about.
const OPERATIONS_PER_FAULT: u64 = 6;
/// Longest pause before an operation, in microseconds.
pub(crate) const PAUSE_US: u64 = 2_000;
/// The same of those who only look for a while, so that they are allowed to keep answers.
const LONG_PAUSE_US: u64 = 1_500_000;
/// How long a mount stands still at most, in microseconds.
const SLEEP_US_MAX: u64 = 20_000_000;
/// Operations of all clients while some change things, and while all look.
const BUSY: u64 = 40;
const QUIET: u64 = 40;
/// How long a mount takes to drop what it keeps, in microseconds.
const RECALLS_US: [u64; 3] = [0, 30_000, 1_500_000];
/// How long a link is cut at most while somebody waits.
const CUT_US_MAX: u64 = 30_000_000;

/// A client, with its operation under way.
pub(crate) struct Party {
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    pub(crate) under_way: Option<UnderWay>,
    writes: u64,
}

impl Party {
    /// One that knows the root only.
    pub(crate) fn new() -> Self {
        Self { dirs: vec![Ino::ROOT], files: Vec::new(), under_way: None, writes: 0 }
    }
}

pub(crate) struct UnderWay {
    pub(crate) token: u64,
    pub(crate) began_us: u64,
    start: u64,
    pub(crate) asked: Asked,
    /// Requests that the client had sent before.
    requests: u64,
    /// The names of a listing until now.
    listed: Vec<Listed>,
}

/// The clock of the history: no two moments of it are the same.
#[derive(Default)]
pub(crate) struct Clock(u64);

impl Clock {
    fn now(&mut self, world: &World) -> u64 {
        self.0 = (self.0 + 1).max(world.now_us() * 1000);
        self.0
    }
}

/// What clients do in turn when they are mounts that keep answers: some change things, then all look at them for a while.
struct Phase {
    /// Operations that are left of it.
    left: u64,
    /// Who changes something.
    changing: [bool; CLIENTS],
}

impl Phase {
    /// The first one: everybody changes something.
    const fn first() -> Self {
        Self { left: BUSY, changing: [true; CLIENTS] }
    }

    /// Another operation begins: whether the client may change something, and the pause before it, in microseconds, at most.
    fn next(&mut self, world: &mut World, client: usize) -> (bool, u64) {
        if self.left == 0 {
            let was_busy = self.changing.contains(&true);
            self.left = if was_busy { QUIET } else { BUSY };
            self.changing.iter_mut().for_each(|changes| *changes = !was_busy && world.rng.percent(40));
        }
        self.left -= 1;
        let is_busy = self.changing.contains(&true);
        (self.changing[client], if is_busy { PAUSE_US } else { LONG_PAUSE_US })
    }
}

/// With mounts that keep answers, in a trouble that the seed has.
pub(crate) fn run_caches(run: &mut Run) -> Result<(), Failure> {
    use crate::groups::Trouble::{Deaths, Links, Power};
    let trouble = match run.seed % 8 {
        0 => Trouble::None,
        1 => Trouble::Deaths,
        2 => Trouble::Partitions,
        3 => Trouble::Frozen,
        4 => Trouble::Slow,
        5 => Trouble::Groups(Links),
        6 => Trouble::Groups(Deaths),
        _ => Trouble::Groups(Power),
    };
    let mut config = trouble.config(run.seed, CLIENTS);
    (config.mounts, config.caches) = (true, true);
    config.recall_us = RECALLS_US[(run.seed / 8 % 3) as usize];
    run.world = Some(trouble.world_of(config)?);
    go_on(run, trouble, Some(Phase::first()))
}

/// A mount hears nothing for a while, of some islands longer than of others, and does not know it; or it stands still. An island may
/// start anew meanwhile.
fn disturb_mounts(world: &mut World) {
    let client = world.rng.index(CLIENTS);
    match world.rng.below(100) {
        0..20 => {
            world.lose_between(|end| end == Side::Client(client), true);
            if world.rng.percent(60) {
                let node = world.any_machine();
                world.kill(node, Fault::ProcessDeath);
            }
        }
        20..28 => {
            let us = 1 + world.rng.below(SLEEP_US_MAX);
            world.suspend(client, us);
        }
        _ => {}
    }
}

pub(crate) fn run(run: &mut Run, trouble: Trouble) -> Result<(), Failure> {
    run.world = Some(trouble.world(run.seed, CLIENTS)?);
    go_on(run, trouble, None)
}

fn go_on(run: &mut Run, trouble: Trouble, mut phase: Option<Phase>) -> Result<(), Failure> {
    let world = run.world.as_mut().expect("it was made");
    let mut clock = Clock::default();
    let mut records: Vec<Record> = Vec::new();
    let mut parties: Vec<Party> = (0..CLIENTS).map(|_| Party::new()).collect();
    let mut left = run.steps;
    let mut cut_us = 0;
    while left > 0 || parties.iter().any(|party| party.under_way.is_some()) {
        // Whoever has waited through several troubles sees the last of them end.
        let long_ago = world.now_us().saturating_sub(PATIENCE_US / 2);
        let waits_long = parties.iter().filter_map(|p| p.under_way.as_ref()).any(|u| u.began_us < long_ago);
        for (client, party) in parties.iter_mut().enumerate() {
            if party.under_way.is_none() && left > 0 {
                left -= 1;
                if world.rng.below(OPERATIONS_PER_FAULT) == 0 && !waits_long {
                    trouble.disturb(world);
                    if phase.is_some() {
                        disturb_mounts(world);
                    }
                    cut_us = world.now_us();
                }
                let (changes, pause_us) =
                    phase.as_mut().map_or((true, PAUSE_US), |phase| phase.next(world, client));
                begin(world, &mut clock, client, party, (changes, pause_us));
            }
        }
        world.step()?;
        let is_last = left == 0 && cut_us != u64::MAX;
        if is_last || world.now_us() > cut_us.saturating_add(CUT_US_MAX) {
            world.heal();
            cut_us = if is_last { u64::MAX } else { world.now_us() };
        }
        for (client, party) in parties.iter_mut().enumerate() {
            if let Some(under_way) = &party.under_way {
                if world.now_us() > under_way.began_us + PATIENCE_US {
                    return Err(Failure::new(format!(
                        "client {client} waits for ever: {:?}",
                        under_way.asked
                    )));
                }
                if let Some(done) = world.poll(client, under_way.token) {
                    end(world, &mut clock, client, party, &mut records, done);
                }
            }
        }
    }
    world.settle()?;
    crate::invariants(world)?;
    let history = History { root: Ino::ROOT.0, records };
    // A client is told that a directory has moved by ESTALE, as a kernel is, which asks once more.
    match atoll_history::check_with(&history, Lenience { stale: true, apart: false }) {
        atoll_history::Verdict::Fits { .. } => Ok(()),
        verdict => Err(Failure::new(verdict.to_string())),
    }
}

fn name(world: &mut World) -> Name {
    Name::new(format!("n{}", world.rng.below(NAMES)).as_bytes()).expect("a name")
}

fn dir(world: &mut World, party: &Party) -> Ino {
    if world.rng.percent(35) { Ino::ROOT } else { party.dirs[world.rng.index(party.dirs.len())] }
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

/// Draws an operation, and calls it.
pub(crate) fn begin(
    world: &mut World,
    clock: &mut Clock,
    client: usize,
    party: &mut Party,
    (changes, pause_us): (bool, u64),
) {
    let (op, asked, data) = loop {
        let drawn = draw(world, client, party);
        if changes || !drawn.0.changes() {
            break drawn;
        }
    };
    let pause = world.rng.below(pause_us);
    let (start, began_us) = (clock.now(world), world.now_us());
    let requests = world.clients[client].route.counters().requests;
    let token = world.call(client, &Caller::ROOT, op, data, pause);
    party.under_way = Some(UnderWay { token, began_us, start, asked, requests, listed: Vec::new() });
}

fn draw(world: &mut World, client: usize, party: &mut Party) -> (Op, Asked, Bytes) {
    let (at, n) = (dir(world, party), name(world));
    let (id, named) = (at.0, text(&n));
    let none = Bytes::new();
    let file = (!party.files.is_empty()).then(|| party.files[world.rng.index(party.files.len())]);
    match (world.rng.below(100), file) {
        (0..12, _) => {
            let exclusive = world.rng.percent(60);
            let kind = if exclusive && world.rng.percent(20) { Kind::Symlink } else { Kind::Regular };
            let target = if kind == Kind::Symlink { Bytes::from_static(b"target") } else { Bytes::new() };
            let shape = if kind == Kind::Symlink { Shape::Symlink } else { Shape::File };
            let asked = Asked::Make { dir: id, name: named, kind: shape, exclusive, mode: None };
            (
                Op::Create { dir: at, name: n, kind, mode: 0o644, umask: 0, rdev: 0, exclusive, target },
                asked,
                none,
            )
        }
        (12..20, _) => {
            let asked =
                Asked::Make { dir: id, name: named, kind: Shape::Directory, exclusive: true, mode: None };
            (Op::Mkdir { dir: at, name: n, mode: 0o755, umask: 0 }, asked, none)
        }
        (20..32, _) => (Op::Lookup { dir: at, name: n }, Asked::Lookup { dir: id, name: named }, none),
        (32..40, _) => (Op::Unlink { dir: at, name: n }, Asked::Unlink { dir: id, name: named }, none),
        (40..46, _) => {
            (Op::Rmdir { dir: at, name: n, meant: None }, Asked::Rmdir { dir: id, name: named }, none)
        }
        (46..66, _) => {
            let (new_dir, new_name) = (dir(world, party), name(world));
            let (mode, how) = match world.rng.below(6) {
                0 => (RenameMode::NoReplace, How::NoReplace),
                1 => (RenameMode::Exchange, How::Exchange),
                _ => (RenameMode::Replace, How::Replace),
            };
            let new = text(&new_name);
            let asked = Asked::Rename { dir: id, name: named, new_dir: new_dir.0, new_name: new, how };
            (
                Op::Rename { dir: at, name: n, new_dir, new_name, mode, meant: None, new_meant: None },
                asked,
                none,
            )
        }
        (66..72, Some(ino)) => {
            (Op::Link { ino, dir: at, name: n }, Asked::Link { file: ino.0, dir: id, name: named }, none)
        }
        (72..78, Some(ino)) => (Op::GetAttr { ino }, Asked::Stat { file: ino.0 }, none),
        (78..81, Some(ino)) => {
            let mode = 0o600 + world.rng.below(64) as u32;
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            (Op::SetAttr { ino, set }, Asked::SetMode { file: ino.0, mode }, none)
        }
        (81..83, Some(ino)) => {
            let size = world.rng.below(4);
            let set = SetAttr { size: Some(size * BLOCK), ..SetAttr::default() };
            (Op::SetAttr { ino, set }, Asked::Truncate { file: ino.0, size }, none)
        }
        (83..89, Some(ino)) => {
            party.writes += 1;
            let number = (client as u64 + 1) << 32 | party.writes;
            let (block, len) = (world.rng.below(4), 1 + world.rng.below(3));
            let append = world.rng.percent(30);
            let numbers = vec![number; len as usize];
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let asked = match append {
                true => Asked::Append { file: ino.0, data: numbers },
                false => Asked::Write { file: ino.0, at: block, data: numbers },
            };
            let op = Op::Write { ino, offset: block * BLOCK, append, kill_set_id: false };
            (op, asked, Bytes::from(bytes))
        }
        (89..95, Some(ino)) => {
            let (block, len) = (world.rng.below(4), 1 + world.rng.below(4));
            let op = Op::Read { ino, offset: block * BLOCK, len: (len * BLOCK) as u32 };
            (op, Asked::Read { file: ino.0, at: block, len }, none)
        }
        _ => (list(at, 0), Asked::List { dir: id, atomic: false }, none),
    }
}

fn list(dir: Ino, after: u64) -> Op {
    Op::ReadDir { dir, after, bytes: 1 << 14, plus: false }
}

/// An operation has ended; of a listing perhaps only a part.
pub(crate) fn end(
    world: &mut World,
    clock: &mut Clock,
    client: usize,
    party: &mut Party,
    records: &mut Vec<Record>,
    done: Done,
) {
    let mut under_way = party.under_way.take().expect("it was under way");
    if let (Asked::List { dir, .. }, Ok((Answer::Entries { entries, eof }, _))) = (&under_way.asked, &done) {
        let listed = entries.iter().map(|entry| Listed { name: text(&entry.name), id: Some(entry.ino.0) });
        under_way.listed.extend(listed);
        if !eof && let Some(last) = entries.last() {
            let op = list(Ino(*dir), last.cookie);
            under_way.token = world.call(client, &Caller::ROOT, op, Bytes::new(), 0);
            party.under_way = Some(under_way);
            return;
        }
    }
    if let Ok((Answer::Found { found }, _)) = &done
        && !is_last_known(&under_way, &done)
    {
        let known = match found.attr.kind {
            Kind::Directory => Some(&mut party.dirs),
            Kind::Regular => Some(&mut party.files),
            _ => None,
        };
        if let Some(known) = known.filter(|known| !known.contains(&found.attr.ino)) {
            if known.len() == KNOWN_MAX {
                known.remove(world.rng.index(KNOWN_MAX));
            }
            known.push(found.attr.ino);
        }
    }
    let mut orphans: BTreeSet<Ino> = std::mem::take(&mut world.clients[client].orphans).into_iter().collect();
    if let Ok((Answer::Removed { orphan: Some(ino) }, _)) = &done {
        orphans.insert(*ino);
    }
    // Sooner or later every kernel closes what has no name.
    let orphans: Vec<Ino> = orphans.into_iter().collect();
    world.forget_all(&orphans);
    if done.is_err() && nothing_happened(world, client, &under_way) {
        return;
    }
    let answer = told(&under_way, done);
    let UnderWay { start, asked, .. } = under_way;
    // What nobody knows of may still happen.
    let end = Some(clock.now(world)).filter(|_| answer != Told::Unknown);
    records.push(Record { client: client as u32, start, end, op: asked, answer });
}

/// What has failed was not even sent, since its island had not answered for long; or its island has said so of
/// what is one record, when it was asked for the first time. What was asked again may have been done before.
fn nothing_happened(world: &World, client: usize, under_way: &UnderWay) -> bool {
    let client = &world.clients[client];
    let is_one_record =
        !matches!(under_way.asked, Asked::Write { .. } | Asked::Append { .. } | Asked::Truncate { .. });
    match client.route.counters().requests - under_way.requests {
        0 => true,
        1 => client.refused && is_one_record,
        _ => false,
    }
}

fn told(under_way: &UnderWay, done: Done) -> Told {
    let found = |attr: &atoll_posix::Attr| {
        let kind = match attr.kind {
            Kind::Directory => Shape::Directory,
            Kind::Symlink => Shape::Symlink,
            _ => Shape::File,
        };
        Found { kind: Some(kind), ..Found::only(attr.ino.0) }
    };
    match (&under_way.asked, done) {
        (_, done) if is_last_known(under_way, &done) => Told::Error(Errno::ESTALE.name().to_owned()),
        // Its home tells the attributes, a moment after the name's owner has told which file it is.
        (_, Ok((Answer::Found { found: at }, _))) if !matches!(under_way.asked, Asked::Link { .. }) => {
            Told::Found(found(&at.attr))
        }
        (Asked::Stat { .. }, Ok((Answer::Attr { attr }, _))) => {
            let (nlink, size) = (Some(u64::from(attr.nlink)), Some(attr.size / BLOCK));
            Told::Found(Found { nlink, size, mode: Some(attr.mode & 0o7777), ..found(&attr) })
        }
        (Asked::List { .. }, Ok(_)) => Told::Names(under_way.listed.clone()),
        (Asked::Read { .. }, Ok((_, bytes))) => {
            let numbers = bytes.chunks(BLOCK as usize).map(|block| {
                let mut whole = [0xff; BLOCK as usize];
                whole[..block.len()].copy_from_slice(block);
                u64::from_le_bytes(whole)
            });
            Told::Data(numbers.collect())
        }
        (_, Ok(_)) => Told::Ok,
        (_, Err(Errno::EIO)) => Told::Unknown,
        (_, Err(errno)) => Told::Error(errno.name().to_owned()),
    }
}

/// The owner of a name is away, and others tell what they last knew of it, which says nothing about now.
fn is_last_known(under_way: &UnderWay, done: &Done) -> bool {
    let looks = matches!(under_way.asked, Asked::Lookup { .. });
    looks
        && matches!(done, Ok((Answer::Found { found }, _))
            if !found.attr_current && found.attr.kind == Kind::Directory)
}
