//! One operation between islands, over and over: each island dies at each of its effects, by either
//! fault. Afterwards the tree is as before or as after it, the repeated request was answered
//! accordingly, and the rows hold together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use atoll_core::{H3, Ino, IslandId, Name, NodeId};
use atoll_disk::sim::Fault;
use atoll_model::{Dump, Step, Strictness};
use atoll_posix::{Caller, Errno, Op, RenameMode, SetAttr};
use bytes::Bytes;

use crate::cause::Failure;
use crate::judge::Judge;
use crate::scenario::Run;
use crate::world::{Config, World};

/// Virtual microseconds after the operation in which effects still count: what is told behind the
/// answer is written then.
const AFTER_US: u64 = 1_500_000;

/// A scripted operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// mkdir with another island as the owner.
    Mkdir,
    /// rmdir of a directory that another island owns.
    Rmdir,
    /// chmod of a directory whose stub is elsewhere.
    Chmod,
    /// chown of a directory with others below it.
    Chown,
    /// Rename of a directory within its directory.
    Rename,
    /// Rename over an empty directory.
    RenameOver,
    /// Two directories swap their names.
    Exchange,
    /// A large write and its fsync: one island, body and log.
    Write,
    /// What spans directories of several islands, and homes at others.
    Between(Between),
    /// Rename of a file to another island, to which it follows: several pieces, a hole, an attribute.
    Follow,
    /// A symbolic link to a directory of another island.
    Link(Linked),
}

/// What happens to a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// It is made.
    Make,
    /// It is removed.
    Remove,
    /// It gets another name in its directory.
    Rename,
    /// It gets one in another island's directory.
    Move,
    /// A second one takes its place.
    Replace,
}

/// Where a file is homed: with the directory that the operation is about (of the old name, or the only one),
/// with that of the new name, or at another island.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// With the first directory.
    From,
    /// With the second.
    To,
    /// Elsewhere.
    Third,
}

/// An operation between directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// link of a file that is homed there.
    Link(Home),
    /// unlink of one of two names, or of the last one.
    Unlink {
        /// Of the file.
        home: Home,
        /// It has no other name.
        last: bool,
    },
    /// rename.
    Rename {
        /// Of the file.
        home: Home,
        /// Of what is there, if something is.
        there: Option<Home>,
        /// The two swap.
        swaps: bool,
        /// Both names are in one directory.
        here: bool,
    },
    /// rename of a directory with others below it to another parent.
    Move {
        /// Who owns the directory.
        owner: Home,
        /// What is there.
        onto: Onto,
    },
}

/// What a directory's new name was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// Nothing.
    Nothing,
    /// An empty directory, which goes.
    Empty(Home),
    /// A directory with a file in it, which changes places with it.
    Directory(Home),
    /// A file, which changes places with it.
    File(Home),
}

/// Every operation between directories, wherever the files are homed.
fn all_between() -> Vec<Script> {
    let homes = [Home::From, Home::To, Home::Third];
    let mut all = vec![Between::Link(Home::From), Between::Link(Home::Third)];
    for home in homes {
        all.extend([true, false].map(|last| Between::Unlink { home, last }));
        for here in [false, true] {
            all.push(Between::Rename { home, there: None, swaps: false, here });
            for there in homes {
                let both = [false, true];
                all.extend(both.map(|swaps| Between::Rename { home, there: Some(there), swaps, here }));
            }
        }
    }
    for owner in homes {
        all.push(Between::Move { owner, onto: Onto::Nothing });
        for home in homes {
            let onto = [Onto::Empty(home), Onto::Directory(home), Onto::File(home)];
            all.extend(onto.map(|onto| Between::Move { owner, onto }));
        }
    }
    all.into_iter().map(Script::Between).collect()
}

/// All scripts.
pub fn scripts() -> Vec<Script> {
    let mut all = vec![
        Script::Mkdir,
        Script::Rmdir,
        Script::Chmod,
        Script::Chown,
        Script::Rename,
        Script::RenameOver,
        Script::Exchange,
        Script::Write,
        Script::Follow,
    ];
    all.extend(all_between());
    let linked = [Linked::Make, Linked::Remove, Linked::Rename, Linked::Move, Linked::Replace];
    all.extend(linked.map(Script::Link));
    all
}

/// Where and how to die.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Which machine.
    pub node: NodeId,
    /// At its how-manieth effect from the beginning of the operation, from 1.
    pub effect: u64,
    /// How.
    pub fault: Fault,
}

/// Runs `steps` points, chosen by the seed among all. `power`: power cuts instead of deaths.
/// `lists`: another client lists the tree meanwhile, again and again. `copies`: of each island.
pub(crate) fn run(run: &mut Run, power: bool, lists: bool, copies: u16) -> Result<(), Failure> {
    let mut rng = atoll_model::Rng::new(run.seed);
    let mut counted: BTreeMap<(u16, usize), Vec<u64>> = BTreeMap::new();
    let scripts = scripts();
    for _ in 0..run.steps {
        let which = rng.index(scripts.len());
        let script = scripts[which];
        // So many that each of the machines has some of their copies.
        let islands = if copies > 1 { 3 + rng.below(3) } else { 1 + rng.below(4) } as u16;
        // What happens up to the death depends on the seed, and so does the count.
        let counts = match counted.entry((islands, which)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(count_with(script, islands, run.seed, copies)?),
        };
        let at = rng.index(counts.len());
        if counts[at] == 0 {
            continue;
        }
        let fault = if power { Fault::PowerCut { seed: rng.bits() } } else { Fault::ProcessDeath };
        let point = Point { node: NodeId(at as u16), effect: 1 + rng.below(counts[at]), fault };
        let mut config = config_of(script, islands, run.seed, 1 + usize::from(lists));
        config.drifts = true;
        config.copies = copies;
        let world = run.next_world(World::new(config)?);
        one(world, script, Some(point))
            .map_err(|why| Failure::new(format!("{script:?} with {islands} islands, {point:?}: {why}")))?;
    }
    Ok(())
}

/// A world for one script.
pub fn world(script: Script, islands: u16, seed: u64) -> Result<World, Failure> {
    World::new(config_of(script, islands, seed, 1))
}

/// The second client, if there is one, lists the tree during the script.
const fn config_of(script: Script, islands: u16, seed: u64, clients: usize) -> Config {
    let mut config = Config::new(seed, islands);
    config.clients = clients;
    config.delay_us_max = 500;
    if seed % 2 == 1 {
        // Whoever is away compares when it returns.
        config.outbox_max = 0;
    }
    config.moves = matches!(script, Script::Follow);
    config
}

/// How many effects each machine has during a script that nothing disturbs.
pub fn count(script: Script, islands: u16, seed: u64) -> Result<Vec<u64>, Failure> {
    count_with(script, islands, seed, 1)
}

fn count_with(script: Script, islands: u16, seed: u64, copies: u16) -> Result<Vec<u64>, Failure> {
    let config = Config { copies, ..config_of(script, islands, seed, 1) };
    one(&mut World::new(config)?, script, None)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

/// A name in the root for a directory that this island owns.
fn name_owned_by(world: &World, island: IslandId, but: &[Name]) -> Name {
    let h3 = H3::new(world.config.seed);
    (0..)
        .map(|i| name(&format!("d{i}")))
        .find(|n| {
            let key = h3.path([n]).expect("short").key();
            world.table.owner(key) == island && !but.contains(n)
        })
        .expect("every island owns some")
}

/// Runs a script, with or without a death, and judges it. The effects of each machine.
pub fn one(world: &mut World, script: Script, point: Option<Point>) -> Result<Vec<u64>, Failure> {
    let mut judge = Judge::new(world)?;
    let prepared = match script {
        Script::Between(what) => Some(prepare(world, &mut judge, what)?),
        Script::Link(what) => Some(prepare_link(world, &mut judge, what)?),
        _ => None,
    };
    if let Some(op) = prepared {
        return strike(world, judge, op, Bytes::new(), point);
    }
    if script == Script::Follow {
        let plain = Between::Rename { home: Home::From, there: None, swaps: false, here: false };
        let op = prepare(world, &mut judge, plain)?;
        enlarge(world, &mut judge, &op)?;
        return strike(world, judge, op, Bytes::new(), point);
    }
    let root_owner = world.table.owner(atoll_core::Key(0));
    let other = IslandId((root_owner.0 + 1) % world.config.islands);
    let (a, b) = (name_owned_by(world, other, &[]), name("to"));
    let c = name_owned_by(world, other, std::slice::from_ref(&a));
    let mkdir = |n: &Name| Op::Mkdir { dir: Ino::ROOT, name: n.clone(), mode: 0o755, umask: 0 };
    let mut setup = Vec::new();
    if script != Script::Mkdir {
        setup.push(mkdir(&a));
    }
    if matches!(script, Script::RenameOver | Script::Exchange) {
        setup.push(mkdir(&c));
    }
    for op in setup {
        step(world, &mut judge, op, &[])?;
    }
    let dir = judge.model.children(Ino::ROOT).find(|(n, _)| **n == a).map(|(_, ino)| ino);
    let mut file = None;
    if let Some(dir) = dir
        && !matches!(script, Script::Rmdir)
    {
        // Something below, so that skeletons have a chain to keep.
        for i in 0..3 {
            let below = Op::Mkdir { dir, name: name(&format!("below{i}")), mode: 0o755, umask: 0 };
            step(world, &mut judge, below, &[])?;
        }
        let create = Op::Create {
            dir,
            name: name("file"),
            kind: atoll_posix::Kind::Regular,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            target: Bytes::new(),
        };
        step(world, &mut judge, create, &[])?;
        file = judge.model.children(dir).find(|(n, _)| n.as_bytes() == b"file").map(|(_, ino)| ino);
        let write = Op::Write { ino: file.expect("made"), offset: 0, append: false, kill_set_id: false };
        step(world, &mut judge, write, &[7; 5000])?;
    }
    // Everything so far survives.
    world.settle()?;
    for island in world.islands() {
        world.checkpoint(island);
    }
    world.settle()?;
    let rename = |new_name: &Name, mode| Op::Rename {
        dir: Ino::ROOT,
        name: a.clone(),
        new_dir: Ino::ROOT,
        new_name: new_name.clone(),
        mode,
        meant: None,
        new_meant: None,
    };
    let op = match script {
        Script::Mkdir => mkdir(&a),
        Script::Rmdir => Op::Rmdir { dir: Ino::ROOT, name: a.clone(), meant: None },
        Script::Chmod => {
            Op::SetAttr { ino: dir.expect("made"), set: SetAttr { mode: Some(0o700), ..SetAttr::default() } }
        }
        Script::Chown => Op::SetAttr {
            ino: dir.expect("made"),
            set: SetAttr { uid: Some(1000), gid: Some(1000), ..SetAttr::default() },
        },
        Script::Rename => rename(&b, RenameMode::Replace),
        Script::RenameOver => rename(&c, RenameMode::Replace),
        Script::Exchange => rename(&c, RenameMode::Exchange),
        Script::Write => {
            Op::Write { ino: file.expect("made"), offset: 5000, append: false, kill_set_id: false }
        }
        Script::Between(_) | Script::Follow | Script::Link(_) => unreachable!("returned above"),
    };
    let data = if script == Script::Write { Bytes::from(vec![9; 40_000]) } else { Bytes::new() };
    strike(world, judge, op, data, point)
}

/// Makes directories and files for an operation between directories.
fn prepare(world: &mut World, judge: &mut Judge, what: Between) -> Result<Op, Failure> {
    let islands = world.config.islands;
    let mut names: Vec<Name> = Vec::new();
    for island in 0..3 {
        let next = name_owned_by(world, IslandId(island % islands), &names);
        let mkdir = Op::Mkdir { dir: Ino::ROOT, name: next.clone(), mode: 0o755, umask: 0 };
        step(world, judge, mkdir, &[])?;
        names.push(next);
    }
    let child = |judge: &Judge, dir: Ino, name: &Name| {
        judge.model.children(dir).find(|(n, _)| *n == name).map(|(_, ino)| ino).expect("made")
    };
    let dirs: Vec<Ino> = names.iter().map(|name| child(judge, Ino::ROOT, name)).collect();
    let of = |home: Home| dirs[home as usize];
    // A file that is homed with one directory, and named in another.
    let file = |world: &mut World, judge: &mut Judge, home: Home, dir: Ino, called: &str, spare: bool| {
        let first = name(&format!("first-{called}"));
        let (kind, target) = (atoll_posix::Kind::Regular, Bytes::new());
        let (mode, umask, rdev, exclusive) = (0o644, 0, 0, true);
        let create =
            Op::Create { dir: of(home), name: first.clone(), kind, mode, umask, rdev, exclusive, target };
        step(world, judge, create, &[])?;
        let ino = child(judge, of(home), &first);
        let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        step(world, judge, write, &[7; 5000])?;
        step(world, judge, Op::Link { ino, dir, name: name(called) }, &[])?;
        if !spare {
            step(world, judge, Op::Unlink { dir: of(home), name: first }, &[])?;
        }
        Ok::<Ino, Failure>(ino)
    };
    let (from, old, new) = (dirs[0], name("old"), name("new"));
    // A directory that this island owns, under a name that its path gives it.
    let directory = |world: &mut World, judge: &mut Judge, above: usize, home: Home| {
        let h3 = H3::new(world.config.seed);
        let owns = |n: &Name| {
            let key = h3.path([&names[above], n]).expect("short").key();
            world.table.owner(key) == IslandId(home as u16 % islands)
        };
        let called = (0..).map(|i| name(&format!("m{i}"))).find(owns).expect("every island owns some");
        let mkdir = Op::Mkdir { dir: dirs[above], name: called.clone(), mode: 0o755, umask: 0 };
        step(world, judge, mkdir, &[])?;
        Ok::<(Name, Ino), Failure>((called.clone(), child(judge, dirs[above], &called)))
    };
    let op = match what {
        Between::Move { owner, onto } => {
            let (moved, ino) = directory(world, judge, 0, owner)?;
            for i in 0..3 {
                let below = Op::Mkdir { dir: ino, name: name(&format!("below{i}")), mode: 0o755, umask: 0 };
                step(world, judge, below, &[])?;
            }
            file(world, judge, Home::Third, ino, "in-it", false)?;
            let (new_name, mode) = match onto {
                Onto::Nothing => (new, RenameMode::Replace),
                Onto::Empty(home) => (directory(world, judge, 1, home)?.0, RenameMode::Replace),
                Onto::Directory(home) => {
                    let (called, there) = directory(world, judge, 1, home)?;
                    file(world, judge, Home::From, there, "in-there", false)?;
                    (called, RenameMode::Exchange)
                }
                Onto::File(home) => {
                    file(world, judge, home, dirs[1], "new", false)?;
                    (new, RenameMode::Exchange)
                }
            };
            Op::Rename {
                dir: from,
                name: moved,
                new_dir: dirs[1],
                new_name,
                mode,
                meant: None,
                new_meant: None,
            }
        }
        Between::Link(home) => {
            let ino = file(world, judge, home, of(home), "old", true)?;
            Op::Link { ino, dir: dirs[1], name: new }
        }
        Between::Unlink { home, last } => {
            file(world, judge, home, from, "old", !last)?;
            Op::Unlink { dir: from, name: old }
        }
        Between::Rename { home, there, swaps, here } => {
            let new_dir = if here { from } else { dirs[1] };
            file(world, judge, home, from, "old", false)?;
            if let Some(there) = there {
                file(world, judge, there, new_dir, "new", false)?;
            }
            let mode = if swaps { RenameMode::Exchange } else { RenameMode::Replace };
            Op::Rename { dir: from, name: old, new_dir, new_name: new, mode, meant: None, new_meant: None }
        }
    };
    world.settle()?;
    world.checkpoint_all()?;
    world.settle()?;
    Ok(op)
}

/// Makes the file of a rename one that moves in several pieces.
fn enlarge(world: &mut World, judge: &mut Judge, op: &Op) -> Result<(), Failure> {
    let Op::Rename { dir, name: old, .. } = op else { unreachable!("a rename") };
    let ino = judge.model.children(*dir).find(|(n, _)| *n == old).map(|(_, ino)| ino).expect("made");
    for (offset, len) in [(3_000, 70_000), (200_000, 9_000)] {
        let write = Op::Write { ino, offset, append: false, kill_set_id: false };
        step(world, judge, write, &vec![offset as u8 | 1; len])?;
    }
    step(world, judge, Op::SetAttr { ino, set: SetAttr { size: Some(300_001), ..SetAttr::default() } }, &[])?;
    let (name, value) = (Bytes::from_static(b"user.a"), Bytes::from_static(b"of it"));
    let mode = atoll_posix::XattrMode::Any;
    step(world, judge, Op::SetXattr { ino, name, value, mode, kill_sgid: false }, &[])?;
    step(world, judge, Op::Fsync { ino }, &[])?;
    world.settle()?;
    world.checkpoint_all()?;
    world.settle()
}

/// Makes two directories, and links to one of them, of which all islands know.
fn prepare_link(world: &mut World, judge: &mut Judge, what: Linked) -> Result<Op, Failure> {
    let islands = world.config.islands;
    let mut dirs = Vec::new();
    let mut names: Vec<Name> = Vec::new();
    for island in 0..2 {
        let next = name_owned_by(world, IslandId(island % islands), &names);
        step(world, judge, Op::Mkdir { dir: Ino::ROOT, name: next.clone(), mode: 0o755, umask: 0 }, &[])?;
        dirs.extend(judge.model.children(Ino::ROOT).find(|(n, _)| **n == next).map(|(_, ino)| ino));
        names.push(next);
    }
    let target = Bytes::from([b"../", names[1].as_bytes()].concat());
    let make = |called: &str| Op::Create {
        dir: dirs[0],
        name: name(called),
        kind: atoll_posix::Kind::Symlink,
        mode: 0o777,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: target.clone(),
    };
    if what != Linked::Make {
        step(world, judge, make("old"), &[])?;
    }
    if what == Linked::Replace {
        step(world, judge, make("new"), &[])?;
    }
    world.settle()?;
    world.checkpoint_all()?;
    world.settle()?;
    let (dir, old, new) = (dirs[0], name("old"), name("new"));
    let rename = |new_dir| Op::Rename {
        dir,
        name: old.clone(),
        new_dir,
        new_name: new.clone(),
        mode: RenameMode::Replace,
        meant: None,
        new_meant: None,
    };
    Ok(match what {
        Linked::Make => make("old"),
        Linked::Remove => Op::Unlink { dir, name: old },
        Linked::Rename | Linked::Replace => rename(dir),
        Linked::Move => rename(dirs[1]),
    })
}

fn step(world: &mut World, judge: &mut Judge, op: Op, data: &[u8]) -> Result<(), Failure> {
    let data = Bytes::copy_from_slice(data);
    let step = Step { session: atoll_core::SessionId(1), caller: Caller::ROOT, op, data };
    judge.run(world, 0, &step).map(|_| ())
}

/// Runs the operation, with a death at the point, and judges what is there afterwards.
fn strike(
    world: &mut World,
    judge: Judge,
    op: Op,
    data: Bytes,
    point: Option<Point>,
) -> Result<Vec<u64>, Failure> {
    world.walk_to(0, &judge.model, &op)?;
    let before = world.effects();
    if let Some(point) = point {
        world.arm(point.node, point.effect, point.fault);
    }
    let faults = world.faults;
    let (got, taken) = match world.clients.len() {
        1 => (world.run(0, &Caller::ROOT, op.clone(), data.clone())?, Vec::new()),
        _ => crate::enumerate::run_listed(world, op.clone(), data.clone())?,
    };
    let answered_before_death = point.is_none() || world.faults == faults;
    // Who makes sure of the name makes sure of all of it, also after the power has failed.
    let unsafe_yet = match &op {
        // The power may have failed after the answer.
        _ if world.clients.len() > 1 => true,
        Op::Rename { new_dir: dir, .. } | Op::Link { dir, .. } | Op::Unlink { dir, .. } => {
            let synced = world.run(0, &Caller::ROOT, Op::FsyncDir { dir: *dir }, Bytes::new())?;
            synced.is_err()
        }
        _ => answered_before_death,
    };
    world.run_for(AFTER_US)?;
    let effects = world.effects().iter().zip(&before).map(|(after, before)| after - before).collect();
    world.settle()?;
    // What the client was told must hold, unless the power failed after that.
    let mut after = judge.clone();
    let step = Step { session: atoll_core::SessionId(1), caller: Caller::ROOT, op: op.clone(), data };
    let expected = after.apply(world, &step, &got, world.now_wall());
    let power = point.is_some_and(|p| matches!(p.fault, Fault::PowerCut { .. }));
    let lossy = power && unsafe_yet;
    let dump = world.dump(0)?;
    let strict = Strictness { mtime_ctime: false, ..Strictness::FULL };
    let not_before = Dump::of(&judge.model).differences(&dump, strict);
    let not_after = Dump::of(&after.model).differences(&dump, strict);
    let torn = lossy && matches!(op, Op::Write { .. });
    let fits = match &got {
        Ok(_) if lossy => not_before.is_empty() || not_after.is_empty() || torn,
        Ok(_) => not_after.is_empty(),
        Err(Errno::EIO) => not_before.is_empty(),
        Err(_) => false,
    };
    if !fits {
        return Err(Failure::new(format!(
            "answered {got:?}, the model {expected:?}; the tree is not as before:\n  {}\nand not as after:\n  {}",
            not_before.join("\n  "),
            not_after.join("\n  ")
        )));
    }
    for taken in &taken {
        let [before, after] = [&judge, &after].map(|judge| Dump::of(&judge.model));
        let (not_before, not_after) = (taken.differences(&before, true), taken.differences(&after, true));
        let in_part = match &op {
            // Some of its bytes may be there when the power is back, and the others when it is asked again.
            Op::Write { ino, .. } if torn => taken.differences(&taken.in_part(*ino, &before, after), true),
            _ => not_after.clone(),
        };
        if !not_before.is_empty() && !not_after.is_empty() && !in_part.is_empty() {
            return Err(Failure::new(format!(
                "a listing from {} to {} is not as before:\n  {}\nand not as after:\n  {}",
                taken.began_us,
                taken.ended_us,
                not_before.join("\n  "),
                not_after.join("\n  ")
            )));
        }
    }
    crate::invariants(world)?;
    Ok(effects)
}
