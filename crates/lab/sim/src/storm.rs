//! Listings under load: every client changes files and directories of its own without a pause, in directories
//! of all islands, while others list the whole tree again and again.
//!
//! The files of a client show how many of its operations a listing includes. One moment explains these
//! numbers if every operation is included that was answered before an included one began, or before the
//! listing began.

use std::collections::BTreeMap;

use atoll_core::{H3, Ino, Key, Name, SessionId, Time, VolumePath};
use atoll_disk::sim::Fault;
use atoll_model::{Dump, Rng, Step};
use atoll_posix::{Attr, Caller, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_route::{ListError, ListedFile};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::enumerate::Listing;
use crate::judge::Judge;
use crate::scenario::{Faults, Run};
use crate::world::{Config, PATIENCE_US, World};

/// Clients that change their own.
const CLIENTS: usize = 4;
/// Clients that list.
const LISTERS: usize = 2;
/// Directories that all share: several on each island.
const SHARED: usize = 6;
/// Names of its own that a client keeps at most.
const NAMES_MAX: usize = 14;

/// Time at the end in which everything that is told from time to time is told.
const REST_US: u64 = 5_000_000;

/// What a client owns, as a listing shows it, behind so many of its operations.
#[derive(Debug)]
struct Moment {
    /// The operation that led to it.
    began_us: u64,
    /// Its answer; none while it is under way, so that it may be shown or not.
    ended_us: Option<u64>,
    tree: BTreeMap<Vec<u8>, Shown>,
    /// Of what has changed: no earlier time of change may be shown.
    changed: BTreeMap<Ino, Time>,
}

/// What is compared of a name.
type Shown = (Ino, Kind, u32, u32, u64, Vec<u8>);

fn shown(attr: &Attr, target: &[u8]) -> Shown {
    let size = if attr.kind == Kind::Directory { 0 } else { attr.size };
    (attr.ino, attr.kind, attr.mode, attr.nlink, size, target.to_vec())
}

/// A client with its own part of the tree.
struct Owner {
    client: usize,
    judge: Judge,
    history: Vec<Moment>,
    /// Its operation that is under way.
    step: Option<(Step, u64)>,
    next: u64,
}

impl Owner {
    /// All names of its own begin so.
    fn prefix(&self) -> String {
        format!("c{}_", self.client)
    }

    fn is_own(&self, path: &[u8]) -> bool {
        let prefix = self.prefix();
        path.split(|c| *c == b'/').any(|part| part.starts_with(prefix.as_bytes()))
    }

    /// Its own part of a tree.
    fn tree(&self) -> BTreeMap<Vec<u8>, Shown> {
        let all = Dump::of(&self.judge.model).items.into_iter();
        let own = all.filter(|(path, _)| self.is_own(path));
        own.map(|(path, item)| (path, shown(&item.attr, &item.target))).collect()
    }

    /// The directories that have names of its own, and those names: (directory, name, what).
    fn own(&self, dirs: &[Ino]) -> Vec<(Ino, Name, Attr)> {
        let of = |dir: &Ino| {
            let names = self.judge.model.children(*dir);
            let own = names.filter(|(name, _)| name.as_bytes().starts_with(self.prefix().as_bytes()));
            own.map(|(name, ino)| (*dir, name.clone(), *self.judge.model.attr(ino).expect("it has a name")))
                .collect::<Vec<_>>()
        };
        let top: Vec<_> = dirs.iter().flat_map(of).collect();
        let own_dirs: Vec<Ino> =
            top.iter().filter(|(.., attr)| attr.kind == Kind::Directory).map(|(.., attr)| attr.ino).collect();
        top.into_iter().chain(own_dirs.iter().flat_map(of)).collect()
    }

    /// Its next operation, which the model says is possible.
    fn draw(&mut self, rng: &mut Rng, dirs: &[Ino]) -> Op {
        let own = self.own(dirs);
        self.next += 1;
        let new = Name::new(format!("{}{}", self.prefix(), self.next).as_bytes()).expect("a name");
        let (files, subdirs): (Vec<_>, Vec<_>) =
            own.iter().cloned().partition(|(.., attr)| attr.kind != Kind::Directory);
        let mut to = dirs[rng.index(dirs.len())];
        if !subdirs.is_empty() && rng.percent(25) {
            to = subdirs[rng.index(subdirs.len())].2.ino;
        }
        let dir = dirs[rng.index(dirs.len())];
        let file = (!files.is_empty()).then(|| files[rng.index(files.len())].clone());
        let subdir = (!subdirs.is_empty()).then(|| subdirs[rng.index(subdirs.len())].clone());
        let many = own.len() >= NAMES_MAX;
        match (rng.below(100), file, subdir) {
            (0..30, Some((dir, name, _)), _) => Op::Rename {
                dir,
                name,
                new_dir: to,
                new_name: new,
                mode: RenameMode::Replace,
                meant: None,
                new_meant: None,
            },
            (30..45, Some((.., attr)), _) if !many => Op::Link { ino: attr.ino, dir: to, name: new },
            (45..60, Some((dir, name, _)), _) => Op::Unlink { dir, name },
            (60..68, Some((.., attr)), _) => {
                let mode = Some(0o600 + (self.next % 64) as u32);
                Op::SetAttr { ino: attr.ino, set: SetAttr { mode, ..SetAttr::default() } }
            }
            (68..74, Some((.., attr)), _) => {
                Op::Write { ino: attr.ino, offset: attr.size, append: false, kill_set_id: false }
            }
            (74..80, _, Some((.., attr))) => {
                let mode = Some(0o700 + (self.next % 64) as u32);
                Op::SetAttr { ino: attr.ino, set: SetAttr { mode, ..SetAttr::default() } }
            }
            (80..86, _, Some((dir, name, _))) => Op::Rename {
                dir,
                name,
                new_dir: dir,
                new_name: new,
                mode: RenameMode::Replace,
                meant: None,
                new_meant: None,
            },
            (86..90, _, Some((dir, name, attr))) if self.judge.model.children(attr.ino).next().is_none() => {
                Op::Rmdir { dir, name, meant: None }
            }
            (86..95, ..) if !many => Op::Mkdir { dir, name: new, mode: 0o755, umask: 0 },
            (_, Some((dir, name, _)), _) if many => Op::Unlink { dir, name },
            _ => {
                let (kind, target) = (Kind::Regular, Bytes::new());
                Op::Create {
                    dir: to,
                    name: new,
                    kind,
                    mode: 0o644,
                    umask: 0,
                    rdev: 0,
                    exclusive: true,
                    target,
                }
            }
        }
    }

    fn begin(&mut self, world: &mut World, dirs: &[Ino]) {
        let op = self.draw(&mut world.rng, dirs);
        let data = Bytes::from_static(if matches!(op, Op::Write { .. }) { b"bytes" } else { b"" });
        let step = Step { session: SessionId(self.client as u64 + 1), caller: Caller::ROOT, op, data };
        let (began_us, began) = (world.now_us(), world.walls().0);
        let token = world.call(self.client, &Caller::ROOT, step.op.clone(), step.data.clone(), 0);
        // What it will have led to, as the model says; a new id is known with the answer only.
        let moment = self.after(world, &step, None, began_us, began);
        self.history.push(moment);
        self.step = Some((step, token));
    }

    /// The state behind an operation. With its answer, the model follows.
    fn after(
        &mut self,
        world: &mut World,
        step: &Step,
        done: Option<&Done>,
        began_us: u64,
        began: Time,
    ) -> Moment {
        let before = self.judge.clone();
        let mut changed = self.history.last().map(|moment| moment.changed.clone()).unwrap_or_default();
        let about = match &step.op {
            Op::Rename { dir, name, .. } | Op::Unlink { dir, name } => {
                self.judge.model.children(*dir).find(|(n, _)| *n == name).map(|(_, ino)| ino)
            }
            Op::SetAttr { ino, .. } | Op::Link { ino, .. } | Op::Write { ino, .. } => Some(*ino),
            _ => None,
        };
        changed.extend(about.map(|ino| (ino, began)));
        let unknown = Err(Errno::EIO);
        let _ = self.judge.apply(world, step, done.unwrap_or(&unknown), began);
        let tree = self.tree();
        match done {
            Some(_) => self.judge.forget_removed(world),
            None => self.judge = before,
        }
        Moment { began_us, ended_us: None, tree, changed }
    }

    /// Its operation has ended.
    fn end(&mut self, world: &mut World, step: &Step, done: &Done) {
        let now_us = world.now_us();
        let last = self.history.pop().expect("it was begun");
        let changed = last.changed.clone();
        let mut moment = self.after(world, step, Some(done), last.began_us, Time::default());
        (moment.ended_us, moment.changed) = (Some(now_us), changed);
        self.history.push(moment);
        self.judge.close_orphans(world);
    }

    /// How many of its operations a listing may show: what comes and goes leaves the tree as it was. Why
    /// none, if so. The id of what is being made is not known yet.
    fn counts(&self, seen: &Seen) -> Result<Vec<usize>, String> {
        let tree: BTreeMap<&[u8], &Shown> =
            seen.rows.iter().filter(|(path, _)| self.is_own(path)).map(|(p, row)| (&p[..], row)).collect();
        let same = |moment: &Moment| {
            let under_way = moment.ended_us.is_none();
            moment.tree.len() == tree.len()
                && moment.tree.iter().zip(&tree).all(|((a, want), (b, got))| {
                    let is_new = || !self.history.iter().any(|m| m.tree.values().any(|s| s.0 == got.0));
                    a == b && (want == *got || (under_way && want.1 == got.1 && is_new()))
                })
        };
        let late = |moment: &Moment| {
            let late =
                |(ino, changed): (&Ino, &Time)| seen.times.get(ino).is_some_and(|shown| shown < changed);
            moment.changed.iter().any(late)
        };
        let states: Vec<usize> = (0..self.history.len()).filter(|at| same(&self.history[*at])).collect();
        let counts: Vec<usize> = states.iter().copied().filter(|at| !late(&self.history[*at])).collect();
        if !counts.is_empty() {
            return Ok(counts);
        }
        let near: Vec<String> = self.history.iter().rev().take(3).map(|m| format!("{:?}", m.tree)).collect();
        let what = if states.is_empty() { "is no state" } else { "has older times of change than it may" };
        Err(format!("{tree:?}\n  {what} of client {}: lately\n  {}", self.client, near.join("\n  ")))
    }
}

/// A listing as it is compared.
struct Seen {
    began_us: u64,
    ended_us: u64,
    rows: BTreeMap<Vec<u8>, Shown>,
    times: BTreeMap<Ino, Time>,
}

impl Seen {
    fn new(listed: &[ListedFile], began_us: u64, ended_us: u64) -> Self {
        let row = |row: &ListedFile| {
            let path = [&b"/"[..], &row.path].concat();
            (path, shown(&row.attr, row.target.as_deref().unwrap_or_default()))
        };
        let times = listed.iter().map(|row| (row.attr.ino, row.attr.ctime)).collect();
        Self { began_us, ended_us, rows: listed.iter().map(row).collect(), times }
    }

    /// The listing shows one moment between its begin and its end.
    fn judge(&self, owners: &[Owner]) -> Result<(), Failure> {
        let counts: Vec<Vec<usize>> =
            owners.iter().map(|owner| owner.counts(self)).collect::<Result<_, _>>().map_err(Failure::new)?;
        let mut chosen = Vec::new();
        if self.explains(owners, &counts, &mut chosen) {
            return Ok(());
        }
        let lines: Vec<String> = owners
            .iter()
            .zip(&counts)
            .map(|(owner, counts)| {
                let about = |at: &usize| {
                    let next = owner.history.get(at + 1).map(|next| (next.began_us, next.ended_us));
                    format!("shows what began at {}, not {next:?}", owner.history[*at].began_us)
                };
                format!(
                    "client {}: {}",
                    owner.client,
                    counts.iter().map(about).collect::<Vec<_>>().join(", or ")
                )
            })
            .collect();
        let (began, ended) = (self.began_us, self.ended_us);
        Err(Failure::new(format!(
            "a listing from {began} to {ended} is no moment:\n  {}",
            lines.join("\n  ")
        )))
    }

    /// Whether some choice of how much of each client is shown leaves out nothing that ended before
    /// something else began that is shown.
    fn explains(&self, owners: &[Owner], counts: &[Vec<usize>], chosen: &mut Vec<usize>) -> bool {
        let Some(mine) = counts.get(chosen.len()) else {
            let shown = owners.iter().zip(chosen.iter()).map(|(owner, at)| owner.history[*at].began_us);
            let latest = shown.max().unwrap_or(0);
            let mut missing =
                owners.iter().zip(chosen.iter()).filter_map(|(o, at)| o.history.get(at + 1)?.ended_us);
            return latest <= self.ended_us && missing.all(|ended| ended >= latest.max(self.began_us));
        };
        mine.iter().any(|at| {
            chosen.push(*at);
            let explains = self.explains(owners, counts, chosen);
            chosen.pop();
            explains
        })
    }
}

/// A world with shared directories on all islands, which every client knows.
fn prepare(run: &mut Run) -> Result<(Judge, Vec<Ino>), Failure> {
    let mut config = Config::new(run.seed, 2 + (run.seed % 3) as u16);
    config.drifts = true;
    config.clients = CLIENTS + LISTERS;
    config.moves = run.seed.is_multiple_of(2);
    config.mounts = run.seed % 4 == 1;
    config.rows_max = [2, 20, 1000][(run.seed / 3 % 3) as usize];
    let world = run.world.insert(World::new(config)?);
    let mut judge = Judge::new(world)?;
    let (h3, islands) = (H3::new(run.seed), usize::from(world.config.islands));
    let owner = |name: &Name| usize::from(world.table.owner(h3.path([name]).map_or(Key(0), |h| h.key())).0);
    let names = (0..).map(|n| Name::new(format!("d{n}").as_bytes()).expect("a name"));
    let mut wanted: Vec<usize> = (0..SHARED).map(|n| n % islands).collect();
    let mut chosen = Vec::new();
    for name in names {
        if let Some(at) = wanted.iter().position(|island| *island == owner(&name)) {
            wanted.swap_remove(at);
            chosen.push(name);
        }
        if wanted.is_empty() {
            break;
        }
    }
    for name in &chosen {
        let op = Op::Mkdir { dir: Ino::ROOT, name: name.clone(), mode: 0o755, umask: 0 };
        let step = Step { session: SessionId(1), caller: Caller::ROOT, op, data: Bytes::new() };
        judge.run(world, 0, &step)?;
    }
    let dirs: Vec<Ino> = judge.model.children(Ino::ROOT).map(|(_, ino)| ino).collect();
    for client in 0..CLIENTS {
        for dir in &dirs {
            world.walk_to(client, &judge.model, &Op::FsyncDir { dir: *dir })?;
        }
    }
    Ok((judge, dirs))
}

pub(crate) fn run(run: &mut Run, faults: Faults) -> Result<(), Failure> {
    let (judge_of_all, dirs) = prepare(run)?;
    let steps = run.steps;
    let world = run.world.as_mut().expect("just made");
    let owner = |client| {
        let (judge, history) = (judge_of_all.clone(), Vec::new());
        let mut owner = Owner { client, judge, history, step: None, next: 0 };
        let tree = owner.tree();
        owner.history.push(Moment { began_us: 0, ended_us: Some(0), tree, changed: BTreeMap::new() });
        owner
    };
    let mut owners: Vec<Owner> = (0..CLIENTS).map(owner).collect();
    let mut listings: Vec<Listing> =
        (0..LISTERS).map(|n| Listing::new(world, CLIENTS + n, VolumePath::default(), 0)).collect();
    let (mut done, mut refused) = (0, 0);
    let (mut until_us, mut fault_us) = (world.now_us() + PATIENCE_US, 0);
    while done < steps {
        if faults == Faults::Yes && world.now_us() > fault_us {
            disturb(world);
            fault_us = world.now_us() + 100_000 + world.rng.below(3_000_000);
        }
        world.step()?;
        for owner in &mut owners {
            advance(world, owner, &dirs, faults)?;
        }
        for (n, listing) in listings.iter_mut().enumerate() {
            listing.advance(world);
            if !listing.is_over() {
                continue;
            }
            let pause = world.rng.below(150_000);
            let next = Listing::new(world, CLIENTS + n, VolumePath::default(), pause);
            let Some(taken) = std::mem::replace(listing, next).taken() else { continue };
            match &taken.result {
                Ok(listed) => {
                    Seen::new(listed, taken.began_us, taken.ended_us).judge(&owners)?;
                    done += 1;
                    until_us = world.now_us() + PATIENCE_US;
                }
                Err(ListError::Away(_) | ListError::Busy { .. } | ListError::Lost { .. })
                    if faults == Faults::Yes =>
                {
                    refused += 1;
                }
                Err(why) => return Err(Failure::new(format!("there is no listing: {why:?}"))),
            }
        }
        if world.now_us() > until_us {
            return Err(Failure::new(format!("no listing came about: {refused} were refused")));
        }
    }
    world.settle()?;
    // What is told to be safe is told a moment later.
    world.run_for(REST_US)?;
    world.settle()?;
    crate::invariants(world)
}

fn disturb(world: &mut World) {
    let node = world.any_machine();
    if world.is_up(node) {
        let effects = 1 + world.rng.below(30);
        world.arm(node, effects, Fault::ProcessDeath);
    }
}

/// Takes in what came of a client's operation, and begins the next.
fn advance(world: &mut World, owner: &mut Owner, dirs: &[Ino], faults: Faults) -> Result<(), Failure> {
    let Some((step, token)) = owner.step.take() else {
        owner.begin(world, dirs);
        return Ok(());
    };
    match world.poll(owner.client, token) {
        None => owner.step = Some((step, token)),
        Some(done @ Ok(_)) => owner.end(world, &step, &done),
        // It may have happened or not: the same is asked again until that is known.
        Some(Err(errno)) if faults == Faults::Yes => {
            owner.end_in_doubt(world, &step, errno)?;
        }
        Some(Err(errno)) => {
            return Err(Failure::new(format!("client {}: {:?} gave {errno:?}", owner.client, step.op)));
        }
    }
    Ok(())
}

impl Owner {
    /// An operation failed because an island was away, or was done before it was asked again: the tree tells.
    fn end_in_doubt(&mut self, world: &mut World, step: &Step, errno: Errno) -> Result<(), Failure> {
        world.note(format_args!("client {}: {:?} gave {errno:?}", self.client, step.op));
        world.settle()?;
        let got = world.dump(self.client)?;
        let own = got.items.iter().filter(|(path, _)| self.is_own(path));
        let tree: BTreeMap<Vec<u8>, Shown> =
            own.map(|(path, item)| (path.clone(), shown(&item.attr, &item.target))).collect();
        let last = self.history.pop().expect("it was begun");
        if self.history.last().is_some_and(|before| before.tree == tree) {
            return Ok(());
        }
        self.history.push(last);
        let made = tree.values().map(|s| s.0).find(|ino| self.judge.model.attr(*ino).is_none());
        let attr =
            made.map(|ino| got.items.values().find(|item| item.attr.ino == ino).expect("just seen").attr);
        let answer = match attr {
            Some(attr) => {
                let found = atoll_posix::NamedObject { attr, attr_current: true };
                Ok((atoll_posix::Answer::Found { found }, Vec::new()))
            }
            None => Ok((atoll_posix::Answer::Done, Vec::new())),
        };
        self.end(world, step, &answer);
        if self.history.last().is_some_and(|after| after.tree == tree) {
            return Ok(());
        }
        Err(Failure::new(format!("client {}: {:?} gave {errno:?} and left {tree:?}", self.client, step.op)))
    }
}
