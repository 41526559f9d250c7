//! Listings of the whole tree at one moment while clients change it. Each listing must be the model's tree at
//! some moment between its begin and its end, in an order that explains the answers of the others too. A
//! listing that cannot be complete fails, and no other one does.

use std::collections::BTreeMap;

use atoll_core::{Ino, VolumePath};
use atoll_model::{Dump, Strictness, Weights};
use atoll_posix::{Attr, Caller, Kind, Op};
use atoll_route::{Enumerate, ListConfig, ListError, ListedFile};

use crate::cause::Failure;
use crate::client::Done;
use crate::concurrent::{CLIENTS, Trouble, round};
use crate::judge::Judge;
use crate::links::Party;
use crate::scenario::Run;
use crate::sequential::{workload_of, world_of};
use crate::world::{PATIENCE_US, World};
use bytes::Bytes;

/// Rounds between two comparisons of the whole tree.
const ROUNDS_PER_DUMP: u64 = 10;
/// Milliseconds until a listing must have begun, or say that it cannot.
const PATIENCE_MS: u64 = 10_000;
/// Milliseconds for which an island may be away.
const AWAY_MS: u64 = 3_000;
/// Microseconds for which listings go on behind the answer to an operation.
const LISTED_US: u64 = 4_000_000;
/// Microseconds for which an island that has started again may be kept from the others: longer than it waits
/// for them before it serves.
const ALONE_US: u64 = 4_000_000;
/// Numbers that one listing's attempts may take.
const CUTS_EACH: u64 = 1_000;

/// A listing that is being taken.
#[derive(Debug)]
pub(crate) struct Listing {
    client: usize,
    path: VolumePath,
    begin_us: u64,
    machine: Option<Enumerate>,
    /// What the client's tokens are to the machine.
    tokens: BTreeMap<u64, u64>,
    taken: Option<Taken>,
}

/// A listing that is over.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
    path: VolumePath,
    pub(crate) result: Result<Vec<ListedFile>, ListError>,
}

impl Listing {
    /// A listing by this client that begins in a while.
    pub(crate) fn new(world: &World, client: usize, path: VolumePath, in_us: u64) -> Self {
        let begin_us = world.now_us() + in_us;
        Self { client, path, begin_us, machine: None, tokens: BTreeMap::new(), taken: None }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.taken.is_some()
    }

    pub(crate) fn taken(self) -> Option<Taken> {
        self.taken
    }

    /// Takes what has come to the client to the machine, and what the machine asks to the islands.
    pub(crate) fn advance(&mut self, world: &mut World) {
        let now_us = world.now_us();
        if now_us < self.begin_us || self.is_over() {
            return;
        }
        let (now_ms, client) = (world.client_ms(self.client), self.client);
        let config = || ListConfig {
            table: world.table.clone(),
            islands: world.islands(),
            path: self.path.clone(),
            cut: now_us * CUTS_EACH,
            patience_ms: PATIENCE_MS,
            away_ms: AWAY_MS,
            spread: client as u64,
        };
        let mut machine = self.machine.take().unwrap_or_else(|| Enumerate::new(now_ms, config()));
        machine.tick(now_ms);
        loop {
            for question in machine.questions() {
                let token = world.clients[client].token();
                self.tokens.insert(token, question.token);
                world.with_client(client, &[], |route, out| {
                    route.ask_island(now_ms, question.island, question.op, token, out);
                });
            }
            let told: Vec<_> = std::mem::take(&mut world.clients[client].told);
            if told.is_empty() {
                break;
            }
            for (token, outcome) in told {
                if let Some(token) = self.tokens.remove(&token) {
                    machine.answered(now_ms, token, outcome);
                }
            }
        }
        if let Some(result) = machine.ended() {
            let (began_us, ended_us, path) = (self.begin_us, now_us, self.path.clone());
            let told = result.as_ref().map(Vec::len);
            world.note(format_args!("client {client}: listing of {path:?} begun at {began_us}: {told:?}"));
            self.taken = Some(Taken { began_us, ended_us, path, result });
        }
        self.machine = Some(machine);
    }
}

impl Taken {
    /// In what the listing differs from a tree; none if it shows just that. `disturbed`: an island may have
    /// been away.
    pub(crate) fn differences(&self, tree: &Dump, disturbed: bool) -> Vec<String> {
        let top: Vec<u8> =
            self.path.names().iter().flat_map(|name| [&b"/"[..], name.as_bytes()].concat()).collect();
        let listed = match &self.result {
            Ok(listed) => listed,
            Err(ListError::NoSuchName) if !tree.items.contains_key(&top) => return Vec::new(),
            Err(ListError::NotADirectory) if self.leads_through_a_file(tree) => return Vec::new(),
            Err(ListError::Away(_) | ListError::Busy { .. } | ListError::Lost { .. }) if disturbed => {
                return Vec::new();
            }
            Err(why) => return vec![format!("there is no listing: {why:?}")],
        };
        let below = |path: &[u8]| {
            path == top || path.strip_prefix(&top[..]).is_some_and(|r| r.first() == Some(&b'/'))
        };
        let mut expected: BTreeMap<&[u8], _> =
            tree.items.iter().filter(|(path, _)| below(path)).map(|(path, item)| (&path[..], item)).collect();
        let mut out = Vec::new();
        if expected.is_empty() {
            out.push("it lists what is not there".to_owned());
        }
        for row in listed {
            let slash: &[u8] = if row.path.is_empty() { b"" } else { b"/" };
            let path = [&top[..], slash, &row.path].concat();
            let shown = path.escape_ascii().to_string();
            match expected.remove(&path[..]) {
                None => out.push(format!("{shown} should not be there, or not twice")),
                Some(item) => {
                    let (want, got) = (shows(&item.attr), shows(&row.attr));
                    let target = row.target.as_deref().unwrap_or_default();
                    if want != got || item.target != target {
                        out.push(format!("{shown} should be {want:?}, is {got:?}"));
                    }
                }
            }
        }
        out.extend(expected.keys().map(|path| format!("{} is missing", path.escape_ascii())));
        out
    }

    /// The tree after a write to a file, with as many of its bytes as the listing shows.
    pub(crate) fn in_part(&self, ino: Ino, before: &Dump, mut after: Dump) -> Dump {
        let listed = self.result.iter().flatten().find(|row| row.attr.ino == ino).map(|row| row.attr.size);
        for (path, item) in after.items.iter_mut().filter(|(_, item)| item.attr.ino == ino) {
            let old = before.items.get(path).map_or(0, |item| item.attr.size);
            if let Some(size) = listed.filter(|size| (old..item.attr.size).contains(size)) {
                item.attr.size = size;
            }
        }
        after
    }

    fn leads_through_a_file(&self, tree: &Dump) -> bool {
        let mut path = Vec::new();
        let names = self.path.names();
        names[..names.len().saturating_sub(1)].iter().any(|name| {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
            tree.items.get(&path).is_some_and(|item| item.attr.kind != Kind::Directory)
        })
    }
}

/// What is compared of attributes. Times are not told by all answers, so the model does not know them.
fn shows(attr: &Attr) -> impl PartialEq + std::fmt::Debug {
    let size = if attr.kind == Kind::Directory { 0 } else { attr.size };
    (attr.ino, attr.kind, attr.mode, attr.nlink, attr.uid, attr.gid, attr.rdev, size)
}

pub(crate) fn run(run: &mut Run, trouble: Trouble) -> Result<(), Failure> {
    let world = run.world.insert(world_of(run.seed, CLIENTS + 2)?);
    let mut judge = Judge::new(world)?;
    let weights = Weights { mkdir: 14, rmdir: 6, rename: 30, link: 20, set_attr: 12, ..Weights::default() };
    let mut workload = workload_of(run.seed, weights);
    for n in 1..=run.steps {
        trouble.disturb(world);
        if world.rng.percent(10) {
            let island = world.any_island();
            world.checkpoint(island);
        }
        // Mostly one: with two, many orders are to be tried.
        let lists = if world.rng.percent(20) { 2 } else { 1 };
        round(world, &mut judge, &mut workload, lists)?;
        if n == run.steps || n % ROUNDS_PER_DUMP == 0 {
            world.settle()?;
            at_rest(world)?;
            judge.compare_trees(world, Strictness { mtime_ctime: false, ..Strictness::FULL })?;
            crate::invariants(world)?;
        }
    }
    Ok(())
}

/// Runs an operation of client 0 while client 1 lists the tree again and again, and goes on for a while after
/// it, in which all islands are there again. How it ended, and the listings.
pub(crate) fn run_listed(world: &mut World, op: Op, data: Bytes) -> Result<(Done, Vec<Taken>), Failure> {
    let token = world.call(0, &Caller::ROOT, op, data, 0);
    let (mut done, mut taken) = (None, Vec::new());
    let (mut until_us, give_up_us) = (u64::MAX, world.now_us() + PATIENCE_US);
    let mut listing = Listing::new(world, 1, VolumePath::default(), 0);
    let (alone, mut heal_us) = (world.rng.percent(50), None);
    while world.now_us() < until_us || !listing.is_over() {
        world.step()?;
        let dead = world.machines.ids().find(|node| !world.is_up(*node));
        if let Some(dead) = dead.filter(|_| alone && heal_us.is_none()) {
            // It comes back, and for a while nobody can tell it what it has lost; but clients can ask it.
            world.partition(|end| end != Party::Machine(dead));
            world.let_clients_through();
            heal_us = Some(world.now_us() + ALONE_US);
            until_us = until_us.max(world.now_us().saturating_add(ALONE_US + LISTED_US));
        }
        if heal_us.is_some_and(|heal_us| world.now_us() > heal_us) {
            heal_us = Some(u64::MAX);
            world.heal();
        }
        if done.is_none() {
            done = world.poll(0, token);
            if done.is_some() && until_us == u64::MAX {
                until_us = world.now_us() + LISTED_US;
            }
        }
        listing.advance(world);
        if listing.is_over() && world.now_us() < until_us {
            let pause = world.rng.below(5_000);
            let next = Listing::new(world, 1, VolumePath::default(), pause);
            taken.extend(std::mem::replace(&mut listing, next).taken());
        }
        if world.now_us() > give_up_us {
            return Err(Failure::new(format!("an operation or a listing never ends: {listing:?}")));
        }
    }
    taken.extend(listing.taken());
    done.map(|done| (done, taken)).ok_or_else(|| Failure::new("it was not answered"))
}

/// When nothing happens, a listing shows just what lookups show, times too.
fn at_rest(world: &mut World) -> Result<(), Failure> {
    let tree = world.dump(0)?;
    let mut listing = Listing::new(world, CLIENTS, VolumePath::default(), 0);
    while !listing.is_over() {
        world.step()?;
        listing.advance(world);
    }
    let taken = listing.taken().expect("it is over");
    let mut differ = taken.differences(&tree, false);
    for row in taken.result.iter().flatten() {
        let slash: &[u8] = if row.path.is_empty() { b"" } else { b"/" };
        let attr = tree.items.get(&[slash, &row.path].concat()).map(|item| item.attr);
        if attr != Some(row.attr) {
            differ.push(format!("{}: {attr:?} is listed as {:?}", row.path.escape_ascii(), row.attr));
        }
    }
    if differ.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("a listing at rest differs from the tree:\n  {}", differ.join("\n  "))))
}
