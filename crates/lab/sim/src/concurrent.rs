//! Several clients at once. In each round every client has one operation under way; afterwards some
//! order of them must explain all answers. With few in a round, all orders are tried.

use atoll_core::{Ino, SessionId};
use atoll_disk::sim::Fault;
use atoll_model::{Dump, Model, Step, Strictness, Weights, Workload};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::enumerate::{Listing, Taken};
use crate::frontend::{sensible, target_of};
use crate::judge::{Judge, as_if_here, is_refused, verdict};
use crate::links::Party;
use crate::scenario::Run;
use crate::sequential::{config_of, is_unchecked, workload_of};
use crate::world::{Choice, Config, PATIENCE_US, TROUBLE_US_MAX, World};

/// What disturbs the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    Deaths,
    Partitions,
    /// Machines stand still, and some die.
    Frozen,
    /// Disks are slow.
    Slow,
    /// Disks are full.
    Full,
    /// Disks fail.
    Errors,
    /// Islands have several copies.
    Groups(crate::groups::Trouble),
}

impl Trouble {
    /// A world that can be disturbed so.
    pub(crate) fn world(self, seed: u64, clients: usize) -> Result<World, Failure> {
        self.world_of(self.config(seed, clients))
    }

    /// How such a world is made.
    pub(crate) fn config(self, seed: u64, clients: usize) -> Config {
        let mut config = match self {
            Self::Groups(_) => crate::groups::groups_of(seed, clients),
            _ => config_of(seed, clients),
        };
        use crate::groups::Trouble::{All, Disks, Fill, Rings};
        if matches!(self, Self::Full | Self::Groups(Disks | All)) {
            config.reserve_bytes = RESERVE_BYTES;
        }
        config.short_logs = matches!(self, Self::Groups(Fill | All));
        config.rings = matches!(self, Self::Groups(Rings | All));
        config
    }

    /// A world made so.
    pub(crate) fn world_of(self, config: Config) -> Result<World, Failure> {
        let mut world = World::new(config)?;
        if self == Self::Partitions && world.is_chosen(Choice::Doubles) {
            world.config.doubles = 5;
        }
        Ok(world)
    }

    /// Perhaps something goes wrong now, or right again.
    pub(crate) fn disturb(self, world: &mut World) {
        match self {
            Self::None => {}
            Self::Deaths => deaths(world),
            Self::Partitions => partition(world),
            Self::Frozen => frozen(world),
            Self::Slow => slow(world),
            Self::Full => full(world),
            Self::Errors => errors(world),
            Self::Groups(trouble) => trouble.disturb(world),
        }
    }
}

/// Rounds between two comparisons of the whole tree.
const ROUNDS_PER_DUMP: u64 = 20;
/// Bytes of a disk that are left for logs and checkpoints: some segments of a log.
const RESERVE_BYTES: u64 = 6 << 20;
/// Clients.
pub(crate) const CLIENTS: usize = 4;
/// Times are not told by all answers, so they are not compared.
pub(crate) const STRICT: Strictness = Strictness { mtime_ctime: false, ..Strictness::FULL };

/// An operation of a round, with its answer.
struct Played {
    client: usize,
    step: Step,
    token: u64,
    began_us: u64,
    /// The client's links when it began.
    links: Option<u64>,
    done: Option<(u64, Done)>,
    /// An island could not be reached for a while: what was asked may have been asked again, or of others.
    cut_off: bool,
}

pub(crate) fn run(run: &mut Run, trouble: Trouble) -> Result<(), Failure> {
    let world = run.world.insert(trouble.world(run.seed, CLIENTS)?);
    world.config.unchecked = is_unchecked(run.seed);
    let mut judge = Judge::new(world)?;
    let weights = Weights { mkdir: 12, rmdir: 9, rename: 22, set_attr: 14, ..Weights::default() };
    let mut workload = workload_of(run.seed, weights);
    for n in 1..=run.steps {
        trouble.disturb(world);
        round(world, &mut judge, &mut workload, 0)?;
        if n == run.steps || n % ROUNDS_PER_DUMP == 0 {
            world.settle()?;
            judge.compare_trees(world, STRICT)?;
            crate::invariants(world)?;
        }
    }
    Ok(())
}

pub(crate) fn deaths(world: &mut World) {
    if world.rng.percent(25) {
        let node = world.any_machine();
        if world.is_up(node) {
            let effects = 1 + world.rng.below(20);
            if effects > 12 && world.is_chosen(Choice::Stops) {
                let pause = world.rng.below(5_000);
                return world.stop_later(node, pause);
            }
            world.arm(node, effects, Fault::ProcessDeath);
        }
    }
}

pub(crate) fn partition(world: &mut World) {
    if world.rng.percent(20) {
        let sides = world.rng.bits();
        // Clients reach everybody: what is cut are islands from each other.
        let side = |end| match end {
            Party::Client(_) => true,
            Party::Machine(node) => sides >> node.0 & 1 == 0,
        };
        // Some clients, too, are on the other side.
        let any_side = |end| match end {
            Party::Client(i) => sides >> (16 + i) & 1 == 0,
            Party::Machine(_) => side(end),
        };
        match sides >> 56 & 3 {
            kind @ 0..3 if world.is_chosen(Choice::OneWay) => {
                world.partition(|_| true);
                world.lose_nothing();
                match kind {
                    0 => world.cut_from(side),
                    1 => world.lose_between(any_side, true),
                    _ => world.lose_between(any_side, false),
                }
            }
            _ => {
                world.partition(side);
            }
        }
        world.let_clients_through();
    } else if world.rng.percent(40) {
        world.heal();
    }
}

/// A machine stands still: for a moment, until others notice, or for long. Some die then, or others.
fn frozen(world: &mut World) {
    match world.rng.below(100) {
        0..15 => {
            let node = world.any_machine();
            let us_max = *world.rng.pick(&[300_000, 6_000_000, 20_000_000]);
            let us = 1 + world.rng.below(us_max);
            world.freeze(node, us);
        }
        15..19 => {
            let node = world.any_machine();
            world.kill(node, Fault::ProcessDeath);
        }
        _ => {}
    }
}

/// An island's disk takes up to seconds for a sync, or for a body.
pub(crate) fn slow(world: &mut World) {
    let node = world.any_machine();
    match world.rng.below(100) {
        0..15 => {
            let us_max = *world.rng.pick(&[20_000, 400_000, 4_000_000]);
            world.slow_disk(node, us_max);
        }
        15..25 => world.mend_disks(),
        _ => {}
    }
}

/// An island's disk fills up: as far as the volume may fill it, or further, because others do.
pub(crate) fn full(world: &mut World) {
    let node = world.any_machine();
    match world.rng.below(100) {
        0..12 => {
            let left = match world.rng.below(4) {
                0 => world.rng.below(64 << 10),
                1 => world.rng.below(RESERVE_BYTES),
                _ => RESERVE_BYTES + world.rng.below(300 << 10),
            };
            world.fill_disk(node, left);
            if world.rng.percent(40) {
                world.checkpoint_on(node);
            }
        }
        12..30 => world.mend_disks(),
        _ => {}
    }
}

/// An effect of an island's disk fails, or all do for a while, or a part of a file cannot be read.
pub(crate) fn errors(world: &mut World) {
    let node = world.any_machine();
    match world.rng.below(100) {
        0..12 if world.is_up(node) => {
            let effects = 1 + world.rng.below(25);
            world.fail_disk(node, effects, false);
        }
        12..14 => world.fail_disk(node, 1, true),
        14..20 => world.spoil_disk(node),
        20..40 => world.mend_disks(),
        40..44 => world.kill(node, Fault::ProcessDeath),
        _ => {}
    }
}

/// A round, during which other clients take so many listings of the tree.
pub(crate) fn round(
    world: &mut World,
    judge: &mut Judge,
    workload: &mut Workload,
    lists: usize,
) -> Result<(), Failure> {
    let mut played: Vec<Played> = Vec::new();
    for client in 0..CLIENTS {
        let mut step = workload.next(&judge.model);
        judge.ask_about_removed(&mut world.rng, &mut step);
        step.session = SessionId(client as u64 + 1);
        // One client at a time does what is about locks: they are told apart by sessions.
        let known = world.knows_files(client, &judge.model, &step.op);
        if known && sensible(&judge.model, world.walker(&step.caller), &step.op) {
            world.walk_to(client, &judge.model, &step.op)?;
            let (token, began_us, links, done, cut_off) = (0, 0, None, None, false);
            played.push(Played { client, step, token, began_us, links, done, cut_off });
        }
    }
    let (faults, calm, ended) = (world.faults, world.is_calm(), (world.halts, world.injected.deaths));
    let puts: Vec<Option<Put>> = played.iter().map(|p| Put::by(&p.step, &judge.model)).collect();
    for p in &mut played {
        let pause = world.rng.below(3_000);
        p.began_us = world.now_us() + pause;
        p.links = world.links_of(p.client);
        let known = Caller {
            groups: Some(p.step.caller.groups.clone().unwrap_or_default()),
            ..p.step.caller.clone()
        };
        p.token = world.call(p.client, &known, p.step.op.clone(), p.step.data.clone(), pause);
    }
    let mut listings: Vec<Listing> = (0..lists)
        .map(|n| {
            let path = judge.some_directory(&mut world.rng);
            let pause = world.rng.below(10_000);
            Listing::new(world, CLIENTS + n, path, pause)
        })
        .collect();
    let until = world.now_us() + PATIENCE_US;
    let mut heal_us = world.now_us() + TROUBLE_US_MAX;
    while played.iter().any(|p| p.done.is_none()) || !listings.iter().all(Listing::is_over) {
        world.step()?;
        listings.iter_mut().for_each(|listing| listing.advance(world));
        let now = world.now_us();
        if now > heal_us {
            // Whoever needs two islands waits for both: then it must be done.
            heal_us = u64::MAX;
            world.heal();
        }
        for p in played.iter_mut().filter(|p| p.done.is_none()) {
            p.done = world.poll(p.client, p.token).map(|done| (now, done));
            p.cut_off = p.links.is_none() || p.links != world.links_of(p.client);
        }
        if now > until {
            return Err(Failure::new(match played.iter().find(|p| p.done.is_none()) {
                Some(stuck) => format!("client {} waits for ever: {:?}", stuck.client, stuck.step.op),
                None => format!("a listing never ends: {listings:?}"),
            }));
        }
    }
    let disturbed = !calm || faults != world.faults || !world.is_calm() || world.is_ailing();
    let taken: Vec<Taken> = listings.into_iter().filter_map(Listing::taken).collect();
    let may_be_torn = ended != (world.halts, world.injected.deaths);
    let cut_off = played.iter().zip(puts).filter(|(p, _)| p.cut_off && may_be_torn);
    let torn: Vec<Put> = cut_off.filter_map(|(_, put)| put).collect();
    explain(world, judge, &played, &taken, disturbed, &torn)
}

/// Finds an order that explains all answers, and has the model follow it. Of `torn`, a part may have been
/// seen before it was answered.
fn explain(
    world: &mut World,
    judge: &mut Judge,
    played: &[Played],
    taken: &[Taken],
    disturbed: bool,
    torn: &[Put],
) -> Result<(), Failure> {
    let answered = |p: &Played| p.done.as_ref().expect("the round is over").1.clone();
    let fits = |judge: &mut Judge, p: &Played, is_done: bool, world: &mut World| {
        let got = answered(p);
        if is_done {
            let now = world.now_wall();
            let _ = judge.apply_in_round(world, &p.step, &got, now);
            return true;
        }
        let is_full = world.excuses(&got, p.began_us);
        let may_fail = disturbed || world.may_have_lost(&p.step.op);
        if is_full || is_refused(&p.step.op, &got, may_fail, &judge.model) {
            return true;
        }
        let is_copied = matches!(p.step.op, Op::CopyRange { to, .. } if got.is_ok() && !judge.is_gone(to));
        if walked_into_nothing(judge, &p.step.op) && !is_copied {
            // What a kernel finds gone, it looks up again. What goes while an island has not heard what all
            // others know is kept that long; and a file without a name, until it is safe that it has none.
            let may_be = match p.step.op {
                Op::Fsync { .. } | Op::FsyncDir { .. } => true,
                // As if it were open; nobody sees it.
                Op::Write { .. } | Op::Fallocate { .. } | Op::CopyRange { .. } => true,
                Op::GetAttr { .. } => is_nameless(&got),
                Op::Read { .. } | Op::GetLock { .. } | Op::GetXattr { .. } | Op::ListXattr { .. } => {
                    let now = world.now_wall();
                    let expected = judge.apply_in_round(world, &p.step, &got, now);
                    verdict(&expected, &got, disturbed, STRICT).is_empty()
                }
                _ => false,
            };
            return got.is_err() || may_be || world.faults > 0;
        }
        let now = world.now_wall();
        let expected = judge.apply_in_round(world, &p.step, &got, now);
        let got = as_if_here(world, p.client, &judge.model, &p.step.op, &expected, got);
        let got = as_if_whole(torn, &p.step.op, &expected, got);
        if p.cut_off
            && matches!(p.step.op, Op::Lookup { .. })
            && told(&got).is_some_and(|(_, kind)| matches!(kind, Kind::Directory | Kind::Symlink))
        {
            // What a skeleton tells while the owner cannot be asked may be as old as the cut, and so are links.
            return true;
        }
        let later = matches!(p.step.op, Op::Lookup { .. } | Op::Create { exclusive: false, .. });
        if later
            && told(&expected).is_some_and(|(ino, kind)| elsewhere(world, p, ino) && kind != Kind::Directory)
        {
            // Its home tells the attributes, a moment after the name's owner has told which file it is.
            return told(&expected) == told(&got);
        }
        if disturbed && p.step.op.changes() && told(&expected).is_some() {
            // A repeated request is answered with the attributes at its repetition.
            return told(&expected) == told(&got);
        }
        verdict(&expected, &got, disturbed, STRICT).is_empty()
    };
    // Orders that lead to the same tree are one.
    let mut found: Vec<Judge> = Vec::new();
    let mut dumps: Vec<(Model, Dump)> = Vec::new();
    let mut order: Vec<usize> = (0..played.len() + taken.len()).collect();
    // What was asked again because its answer was lost, and then could not be answered, may have been done.
    let is_unknown = |p: &Played| p.cut_off && p.step.op.changes() && matches!(answered(p), Err(Errno::EIO));
    let unknown: Vec<usize> = (0..played.len()).filter(|i| is_unknown(&played[*i])).collect();
    permutations(&mut order, 0, &mut |order| {
        if !in_time(played, taken, order) {
            return;
        }
        for done in 0..1_u32 << unknown.len() {
            let is_done =
                |i: usize| unknown.iter().position(|of| *of == i).is_some_and(|at| done >> at & 1 == 1);
            let mut copy = judge.clone();
            let mut fit = |i: &usize| match taken.get(i.wrapping_sub(played.len())) {
                Some(taken) => {
                    let known = dumps.iter().position(|(model, _)| *model == copy.model);
                    let at = known.unwrap_or_else(|| {
                        dumps.push((copy.model.clone(), Dump::of(&copy.model)));
                        dumps.len() - 1
                    });
                    taken.differences(&dumps[at].1, disturbed).is_empty()
                }
                None => fits(&mut copy, &played[*i], is_done(*i), world),
            };
            if order.iter().all(&mut fit) && !found.contains(&copy) {
                found.push(copy);
            }
        }
    });
    if found.len() > 1 && unknown.is_empty() && played.iter().filter(|p| p.step.op.changes()).count() < 2 {
        found.truncate(1);
    }
    let mut found: Vec<(Judge, Dump)> = found
        .into_iter()
        .map(|judge| {
            let tree = Dump::of(&judge.model);
            (judge, tree)
        })
        .collect();
    for at in (1..found.len()).rev() {
        if found[..at].iter().any(|(_, other)| other.differences(&found[at].1, STRICT).is_empty()) {
            found.swap_remove(at);
        }
    }
    let next = match found.len() {
        0 | 1 => found.pop().map(|(judge, _)| judge),
        _ => {
            // The answers leave open which one it was; the tree tells.
            world.settle()?;
            let got = world.dump(0)?;
            let at = found.iter().position(|(_, tree)| tree.differences(&got, STRICT).is_empty());
            let Some(at) = at else {
                let differ = found[0].1.differences(&got, STRICT);
                let why = format!("{} orders explain the answers, none the tree: {differ:?}", found.len());
                return Err(Failure::new(why));
            };
            Some(found.swap_remove(at).0)
        }
    };
    match next {
        Some(next) => {
            *judge = next;
            judge.forget_removed(world);
            judge.forget_nameless();
            // Which change was the last is not seen in a tree.
            let changed: Vec<Ino> =
                played.iter().filter(|p| p.step.op.changes()).filter_map(|p| target_of(&p.step.op)).collect();
            let is_untold = |(at, p): (usize, &Played)| {
                let ino = target_of(&p.step.op)?;
                let often = changed.iter().filter(|other| **other == ino).count() > 1;
                (often || unknown.contains(&at)).then_some(ino)
            };
            let untold: Vec<Ino> = played.iter().enumerate().filter_map(is_untold).collect();
            judge.close_most_orphans(world, &untold);
            Ok(())
        }
        None => {
            let lines: Vec<String> = played
                .iter()
                .map(|p| {
                    let answer = answered(p).map(|(answer, bytes)| (answer, bytes.len()));
                    format!("client {} uid {}: {:?} gave {answer:?}", p.client, p.step.caller.uid, p.step.op)
                })
                .collect();
            let alone = played.iter().map(|p| {
                let mut copy = judge.clone();
                let now = world.now_wall();
                let expected = copy.apply(world, &p.step, &answered(p), now);
                format!(
                    "client {} alone: {:?}",
                    p.client,
                    verdict(&expected, &answered(p), disturbed, STRICT)
                )
            });
            let lists = taken.iter().map(|taken| {
                let differ = taken.differences(&Dump::of(&judge.model), disturbed);
                format!("listing {} to {}: {differ:?}", taken.began_us, taken.ended_us)
            });
            let lines: Vec<String> = lines.into_iter().chain(alone).chain(lists).collect();
            Err(Failure::new(format!("no order explains these answers:\n  {}", lines.join("\n  "))))
        }
    }
}

/// Bytes that an operation puts into a file.
struct Put {
    ino: Ino,
    at: u64,
    bytes: Bytes,
}

impl Put {
    fn by(step: &Step, model: &Model) -> Option<Self> {
        match step.op {
            Op::Write { ino, offset: at, .. } => Some(Self { ino, at, bytes: step.data.clone() }),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let bytes = model.bytes(from, from_offset, len).into();
                Some(Self { ino: to, at: to_offset, bytes })
            }
            _ => None,
        }
    }
}

/// The bytes, as they would be if nothing had been seen of what an island began to put and did not end: it takes
/// a file as it finds it, and the rest is put when it is asked again.
fn as_if_whole(torn: &[Put], op: &Op, expected: &Done, mut got: Done) -> Done {
    let (Op::Read { ino, offset, .. }, Ok((_, bytes)), Ok((_, old))) = (op, &mut got, expected) else {
        return got;
    };
    for put in torn.iter().filter(|put| put.ino == *ino) {
        let new = |i: u64| i.checked_sub(put.at).and_then(|i| put.bytes.get(usize::try_from(i).ok()?));
        for ((at, byte), old) in (*offset..).zip(&mut *bytes).zip(old) {
            if new(at) == Some(byte) {
                *byte = *old;
            }
        }
    }
    got
}

/// The operation is about something that another one of the round has removed.
fn walked_into_nothing(judge: &Judge, op: &Op) -> bool {
    let gone = |ino| judge.is_gone(ino);
    let about = crate::frontend::target_of(op);
    let from = match op {
        Op::CopyRange { from, .. } => Some(*from),
        _ => None,
    };
    // In a removed directory kernels look for no names.
    let takes_no_names = |ino| gone(ino) || judge.is_removed_dir(ino);
    about.into_iter().chain(from).any(gone) || op.dirs().into_iter().flatten().any(takes_no_names)
}

/// Whether a file is homed at another island than the one that owns the directory of its name.
fn elsewhere(world: &World, p: &Played, ino: Ino) -> bool {
    let (Op::Lookup { dir, .. } | Op::Create { dir, .. }) = &p.step.op else { return false };
    let known = world.clients[p.client].route.dirs().get(*dir);
    known.is_some_and(|known| world.may_be_pointer(ino, world.table.owner(known.key)))
}

/// What an answer with attributes tells of.
pub(crate) fn told(done: &Done) -> Option<(Ino, Kind)> {
    match done {
        Ok((Answer::Found { found }, _)) => Some((found.attr.ino, found.attr.kind)),
        Ok((Answer::Attr { attr }, _)) => Some((attr.ino, attr.kind)),
        _ => None,
    }
}

/// The answer tells of a file without a name.
fn is_nameless(got: &Done) -> bool {
    matches!(got, Ok((Answer::Attr { attr }, _)) if attr.kind != Kind::Directory && attr.nlink == 0)
}

/// What ended before another began comes before it.
fn in_time(played: &[Played], taken: &[Taken], order: &[usize]) -> bool {
    let listing = |i: usize| taken.get(i.wrapping_sub(played.len()));
    let began = |i: usize| listing(i).map_or_else(|| played[i].began_us, |taken| taken.began_us);
    let ended = |i: usize| match listing(i) {
        Some(taken) => taken.ended_us,
        None => played[i].done.as_ref().expect("the round is over").0,
    };
    order
        .iter()
        .enumerate()
        .all(|(at, later)| order[..at].iter().all(|earlier| ended(*later) >= began(*earlier)))
}

fn permutations(items: &mut Vec<usize>, from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == items.len() {
        return visit(items);
    }
    for i in from..items.len() {
        items.swap(from, i);
        permutations(items, from + 1, visit);
        items.swap(from, i);
    }
}
