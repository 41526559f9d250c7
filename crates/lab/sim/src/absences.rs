//! Islands that are away for long, while others change directories: past the bound of their outboxes they must
//! compare when they return, and die while they do. In the end all islands' skeletons agree, and all clients see
//! one tree.

use std::collections::BTreeMap;

use atoll_core::{H3, Ino, Key, Name, NodeId};
use atoll_disk::sim::Fault;
use atoll_model::Rng;
use atoll_posix::{Answer, Caller, Kind, Op, RenameMode, SetAttr, XattrMode};
use bytes::Bytes;

use crate::cause::Failure;
use crate::machines::Numbered;
use crate::scenario::Run;
use crate::world::{Config, World};

/// Clients, each with one operation under way.
const CLIENTS: usize = 3;
/// Directories, some of them below others.
const DIRS: usize = 10;
/// Names that directories get: few, so that they meet.
const NAMES: u64 = 6;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Where the directories are, as far as answers tell.
struct Tree {
    dirs: Vec<Ino>,
    at: BTreeMap<Ino, (Ino, Name)>,
}

fn run_one(world: &mut World, client: usize, op: Op) -> Result<Answer, Failure> {
    let shown = format!("{op:?}");
    match world.run(client, &Caller::ROOT, op, Bytes::new())? {
        Ok((answer, _)) => Ok(answer),
        Err(errno) => Err(Failure::new(format!("client {client}: {shown} gave {errno:?}"))),
    }
}

fn prepare(world: &mut World) -> Result<Tree, Failure> {
    let (h3, islands) = (H3::new(world.config.seed), usize::from(world.config.islands));
    let mut tree = Tree { dirs: vec![Ino::ROOT], at: BTreeMap::new() };
    let mut paths: Vec<Vec<Name>> = vec![Vec::new()];
    for n in 0..DIRS {
        // The first ones in the root, others anywhere: each island owns some.
        let above = if n < islands { 0 } else { world.rng.index(tree.dirs.len()) };
        let owner = |name: &Name, table: &atoll_core::Table| {
            let path = paths[above].iter().chain([name]);
            usize::from(table.owner(h3.path(path).map_or(Key(0), |hash| hash.key())).0)
        };
        let chosen = (0..).map(|i| name(&format!("d{n}-{i}")));
        let chosen =
            chosen.into_iter().find(|name| owner(name, &world.table) == n % islands).expect("some name");
        let (dir, path) = (tree.dirs[above], [&paths[above][..], std::slice::from_ref(&chosen)].concat());
        let op = Op::Mkdir { dir, name: chosen.clone(), mode: 0o755, umask: 0 };
        let Answer::Found { found } = run_one(world, 0, op)? else { unreachable!("a directory is made") };
        for client in 1..CLIENTS {
            run_one(world, client, Op::Lookup { dir, name: chosen.clone() })?;
        }
        tree.dirs.push(found.attr.ino);
        tree.at.insert(found.attr.ino, (dir, chosen));
        paths.push(path);
    }
    Ok(tree)
}

fn draw(rng: &mut Rng, tree: &Tree, files: bool) -> Op {
    let some = |rng: &mut Rng| tree.dirs[1 + rng.index(tree.dirs.len() - 1)];
    let ino = some(rng);
    let (dir, at) = tree.at[&ino].clone();
    let new_name = name(&format!("n{}", rng.below(NAMES)));
    match rng.below(if files { 100 } else { 70 }) {
        0..18 => {
            let set = SetAttr { mode: Some(0o700 + rng.below(64) as u32), ..SetAttr::default() };
            Op::SetAttr { ino, set }
        }
        18..24 => {
            let value = Bytes::from(vec![b'v'; rng.below(40) as usize]);
            let (name, mode) = (Bytes::from_static(b"user.x"), XattrMode::Any);
            Op::SetXattr { ino, name, value, mode, kill_sgid: false }
        }
        24..44 => Op::Rename {
            dir,
            name: at,
            new_dir: dir,
            new_name,
            mode: RenameMode::NoReplace,
            meant: None,
            new_meant: None,
        },
        44..62 => {
            let new_dir = tree.dirs[rng.index(tree.dirs.len())];
            Op::Rename {
                dir,
                name: at,
                new_dir,
                new_name,
                mode: RenameMode::NoReplace,
                meant: None,
                new_meant: None,
            }
        }
        62..70 => {
            let (new_dir, new_name) = tree.at[&some(rng)].clone();
            Op::Rename {
                dir,
                name: at,
                new_dir,
                new_name,
                mode: RenameMode::Exchange,
                meant: None,
                new_meant: None,
            }
        }
        70..80 => Op::Mkdir { dir: ino, name: new_name, mode: 0o755, umask: 0 },
        80..86 => Op::Rmdir { dir: ino, name: new_name, meant: None },
        86..94 => Op::Create {
            dir: ino,
            name: name(&format!("f{}", rng.below(NAMES))),
            kind: Kind::Regular,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            target: Bytes::new(),
        },
        _ => {
            let file = name(&format!("f{}", rng.below(NAMES)));
            Op::Rename {
                dir: ino,
                name: file.clone(),
                new_dir: some(rng),
                new_name: file,
                mode: RenameMode::Replace,
                meant: None,
                new_meant: None,
            }
        }
    }
}

/// What an operation that has ended well has done to places.
fn learn(tree: &mut Tree, op: &Op) {
    let Op::Rename { dir, name, new_dir, new_name, mode, .. } = op else { return };
    let find = |tree: &Tree, dir: &Ino, name: &Name| {
        tree.at.iter().find(|(_, (d, n))| d == dir && n == name).map(|(ino, _)| *ino)
    };
    let (one, other) = (find(tree, dir, name), find(tree, new_dir, new_name));
    if let Some(ino) = one {
        tree.at.insert(ino, (*new_dir, new_name.clone()));
    }
    if let Some(ino) = other.filter(|_| *mode == RenameMode::Exchange) {
        tree.at.insert(ino, (*dir, name.clone()));
    }
}

/// What is lost, and what is kept of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Processes die, and outboxes are bounded.
    Death,
    /// Islands that go away lose their power.
    Power,
    /// The same, and outboxes are not bounded: nobody compares but for what is doubted.
    Kept,
}

pub(crate) fn run(run: &mut Run, absence: Absence) -> Result<(), Failure> {
    let power = absence != Absence::Death;
    let islands = 3 + (run.seed % 2) as u16;
    let mut config = Config::new(run.seed, islands);
    (config.clients, config.delay_us_max) = (CLIENTS, 500);
    config.drifts = true;
    if absence != Absence::Kept && run.seed % 3 == 2 {
        // So few that islands that are reached have to compare, too.
        config.outbox_bytes_max = 1 << 10;
    }
    config.outbox_max = if absence == Absence::Kept { usize::MAX } else { (run.seed % 5) as usize };
    config.rows_max = [2, 64][(run.seed / 2 % 2) as usize];
    let steps = run.steps;
    let world = run.world.insert(World::new(config)?);
    let mut tree = prepare(world)?;
    world.settle()?;
    world.checkpoint_all()?;
    let mut under_way: Vec<Option<(u64, Op)>> = (0..CLIENTS).map(|_| None).collect();
    let mut away: Numbered<NodeId, bool> = world.machines.ids().map(|_| false).collect();
    for _ in 0..steps {
        for (client, slot) in under_way.iter_mut().enumerate() {
            if let Some((token, op)) = slot.take() {
                match world.poll(client, token) {
                    Some(Ok(_)) => learn(&mut tree, &op),
                    Some(Err(_)) => {}
                    None => *slot = Some((token, op)),
                }
            }
            if slot.is_none() {
                let op = draw(&mut world.rng, &tree, !power);
                let token = world.call(client, &Caller::ROOT, op.clone(), Bytes::new(), 0);
                *slot = Some((token, op));
            }
        }
        disturb(world, &mut away, power)?;
    }
    world.converge()?;
    let first = world.dump(0)?;
    for client in 1..CLIENTS {
        let other = world.dump(client)?;
        let paths = |dump: &atoll_model::Dump| dump.items.keys().cloned().collect::<Vec<_>>();
        if paths(&first) != paths(&other) {
            return Err(Failure::new(format!("client {client} sees another tree than the first one")));
        }
    }
    Ok(())
}

/// Time passes; machines go away, return, die while they do, and are cut apart.
fn disturb(world: &mut World, away: &mut Numbered<NodeId, bool>, power: bool) -> Result<(), Failure> {
    let node = world.any_machine();
    let fault = if power && world.rng.percent(70) {
        Fault::PowerCut { seed: world.rng.bits() }
    } else {
        Fault::ProcessDeath
    };
    let gone = away.iter().filter(|away| **away).count();
    let is_last = gone + 1 == away.iter().len();
    match world.rng.below(100) {
        0..10 if !away[node] && !is_last => {
            away[node] = true;
            world.stay_away(node, fault);
        }
        10..18 => {
            if let Some(node) = away.ids().find(|node| away[*node]) {
                away[node] = false;
                world.come_back(node);
                if world.rng.percent(40) {
                    // Often in the middle of its comparison.
                    world.run_for(2_000)?;
                    if world.is_up(node) {
                        let effects = 1 + world.rng.below(60);
                        world.arm(node, effects, fault);
                    }
                }
            }
        }
        18..24 => {
            let other = world.any_other(node);
            let cut = world.rng.percent(50);
            world.cut_between(node, other, cut);
        }
        24..27 if !away[node] => {
            let effects = 1 + world.rng.below(40);
            world.arm(node, effects, fault);
        }
        _ => {}
    }
    let pause = if world.rng.percent(10) { world.rng.below(2_500_000) } else { world.rng.below(20_000) };
    world.run_for(pause)
}
