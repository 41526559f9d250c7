//! Sites that both write and take: each operation does at its site what POSIX says, whatever is derived there, and all sites agree when
//! they have heard of everything.
//!
//! `ATOLL_SOAK=SEEDS cargo test --release -p atoll-wide --test sites` runs so many; `ATOLL_SEED=N` repeats one.

#![allow(clippy::disallowed_macros, reason = "a test may print")]

mod drive;
mod receiver;
mod replica;
mod site;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_causal::Writer;
use atoll_core::{Ino, Name, SessionId};
use atoll_island::{BesideEvent, BesideSays};
use atoll_model::Rng;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr, XattrMode};
use atoll_shown::Objects;
use atoll_wide::peers::Window;
use atoll_wide::rows::NEAR;
use atoll_wide::site::Site as Machine;
use bytes::Bytes;
use drive::number;
use receiver::{Receiver, Tree};
use site::{Memory, Site, named, opened_at};

/// Seeds of a usual run.
const SEEDS: u64 = 60;
/// Names for which sites quarrel.
const NAMES: [&str; 4] = ["a", "b", "c", "d.txt"];

type Counts = BTreeMap<&'static str, u64>;
/// What each name leads to.
type Entries = BTreeMap<(Ino, Name), (Ino, Kind)>;

/// A site, and a plain reading of its rows.
struct Place {
    writer: Writer,
    window: Window,
    site: Site,
    shadow: Receiver,
}

impl Place {
    fn new(at: usize, memory: Memory, is_mount: bool, window: Window) -> Self {
        let writer = Writer(1 + at as u64);
        let machine = opened_at(writer, 0, window, []).expect("no rows");
        let mut site = Site::new(memory, &[SessionId(1)], is_mount, Some(Box::new(machine)));
        site.watch_no_more();
        Self { writer, window, site, shadow: Receiver::shadow() }
    }

    /// The machine begins anew from its rows. It has no links.
    fn begin_anew(&mut self) {
        self.site.waits();
        self.follow();
        let rows: Vec<_> =
            self.site.sides().iter().map(|((table, id), row)| (*table, *id, row.clone())).collect();
        let (before, position) = (self.machine().author().spine().clone(), self.site.state().seq());
        let machine = opened_at(self.writer, position, self.window, rows).expect("it has written them");
        for dir in before.records().flat_map(|record| record.dirs()) {
            assert_eq!(before.place(dir.dir), machine.author().spine().place(dir.dir));
        }
        self.site.set_beside(machine);
    }

    fn machine(&self) -> &Machine {
        self.site.beside::<Machine>()
    }

    /// Reads on in the log.
    fn follow(&mut self) {
        let spine = self.machine().author().spine().clone();
        for (_, record) in self.site.take_records() {
            self.shadow.follow(&record, &spine);
        }
    }

    /// The rows hold together, and users see what the states say.
    fn check(&mut self) {
        self.follow();
        self.shadow.check();
        let plain = self.shadow.plain();
        let (rows, shown) = (self.shadow.tree(), plain.tree());
        let differ = |one: &Tree, other: &Tree| {
            one.iter()
                .filter(|(path, at)| other.get(*path) != Some(at))
                .map(|(path, at)| (path.clone(), at.clone()))
                .collect()
        };
        let (by_rows, by_states): (Tree, Tree) = (differ(&rows, &shown), differ(&shown, &rows));
        assert_eq!(by_rows, by_states, "where rows, and what their states show, differ");
    }

    fn entries(&self) -> Entries {
        let mut entries = Entries::new();
        let mut dirs = vec![Ino::ROOT];
        while let Some(dir) = dirs.pop() {
            let (names, _) = self.site.state().entries_after(dir, 0).expect("it is in memory");
            for (_, name, entry) in names {
                entries.insert((dir, name.clone()), (entry.ino, entry.kind));
                if entry.kind == Kind::Directory {
                    dirs.push(entry.ino);
                }
            }
        }
        entries
    }

    /// One operation of the superuser among few names. Whether something was done.
    fn operation(&mut self, rng: &mut Rng) -> bool {
        let before = self.entries();
        let is_dir = |(_, kind): &&(Ino, Kind)| *kind == Kind::Directory;
        let dirs: Vec<Ino> =
            std::iter::once(Ino::ROOT).chain(before.values().filter(is_dir).map(|(ino, _)| *ino)).collect();
        let files: Vec<Ino> = before.values().filter(|at| !is_dir(at)).map(|(ino, _)| *ino).collect();
        let (dir, new_dir) = (*rng.pick(&dirs), *rng.pick(&dirs));
        // Names that are there now and then, such as those beside others.
        let mut name = |dir: Ino| {
            let there: Vec<&Name> =
                before.keys().filter(|(at, _)| *at == dir).map(|(_, name)| name).collect();
            let is_there = !there.is_empty() && rng.percent(40);
            if is_there { (*rng.pick(&there)).clone() } else { named(rng.pick::<&str>(&NAMES)) }
        };
        let (name, new_name) = (name(dir), name(new_dir));
        let mode = *rng.pick(&[0o644, 0o600]);
        let (umask, rdev, exclusive, target) = (0, 0, true, Bytes::new());
        let op = match rng.weighted(&[14, 14, 4, 30, 5, 12, 12, 8, 6, 6, 4]) {
            0 => Op::Create { dir, name, kind: Kind::Regular, mode, umask, rdev, exclusive, target },
            1 => Op::Mkdir { dir, name, mode: mode | 0o100, umask },
            2 => {
                let (kind, target) = (Kind::Symlink, Bytes::from(rng.pick(&NAMES).to_string()));
                Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }
            }
            at @ (3 | 4) => {
                let mode = if at == 3 { RenameMode::Replace } else { RenameMode::Exchange };
                Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
            }
            5 => Op::Unlink { dir, name },
            6 => Op::Rmdir { dir, name, meant: None },
            at @ 7..=9 if !files.is_empty() => {
                let ino = *rng.pick(&files);
                match at {
                    7 => Op::Link { ino, dir, name },
                    8 => Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } },
                    _ => {
                        let (name, value) =
                            (Bytes::from_static(b"user.x"), Bytes::from(vec![rng.index(9) as u8]));
                        Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }
                    }
                }
            }
            _ => Op::SetAttr { ino: dir, set: SetAttr { mode: Some(mode | 0o100), ..SetAttr::default() } },
        };
        let done = self.site.run(self.site.session(), &Caller::ROOT, op.clone(), Bytes::new());
        let expected = after(&before, &op, done.as_ref().map(|(answer, _)| answer));
        assert_eq!(self.entries(), expected, "after {op:?}, which was answered {done:?}");
        if number("ATOLL_SEED").is_some() {
            println!("{} {op:?}: {done:?}", self.site.state().seq());
            self.check();
        }
        done.is_ok()
    }
}

/// What names lead to after an operation.
fn after(before: &Entries, op: &Op, done: Result<&Answer, &Errno>) -> Entries {
    let mut entries = before.clone();
    let Ok(answer) = done else { return entries };
    match op {
        Op::Create { dir, name, .. } | Op::Mkdir { dir, name, .. } | Op::Link { dir, name, .. } => {
            let Answer::Found { found } = answer else { panic!("{answer:?}") };
            entries.insert((*dir, name.clone()), (found.attr.ino, found.attr.kind));
        }
        Op::Unlink { dir, name } | Op::Rmdir { dir, name, .. } => {
            entries.remove(&(*dir, name.clone())).expect("it was there");
        }
        Op::Rename { dir, name, new_dir, new_name, mode, .. } => {
            let (from, to) = ((*dir, name.clone()), (*new_dir, new_name.clone()));
            let (old, new) = (entries[&from], entries.get(&to).copied());
            if new.is_none_or(|new| new.0 != old.0) {
                entries.remove(&from);
                entries.insert(to, old);
                if *mode == RenameMode::Exchange {
                    entries.insert(from, new.expect("it was there"));
                }
            }
        }
        _ => {}
    }
    entries
}

/// What is on its way from one site to another, in order; none if there is no link.
type Ways = BTreeMap<(usize, usize), Option<VecDeque<Bytes>>>;

fn number_of(at: usize) -> u64 {
    1 + at as u64
}

/// A link comes up or goes down. What is on its way is lost.
fn link(places: &mut [Place], ways: &mut Ways, (a, b): (usize, usize), up: bool) {
    for (from, to) in [(a, b), (b, a)] {
        ways.insert((from, to), up.then(VecDeque::new));
        places[from].site.hear(BesideEvent::Link { peer: number_of(to), up });
        send(places, ways, from);
    }
}

/// What a site says is on its way.
fn send(places: &mut [Place], ways: &mut Ways, from: usize) {
    for says in places[from].site.take_said() {
        let BesideSays::Send { peer, bytes } = says else { panic!("{says:?}") };
        if let Some(way) = ways.get_mut(&(from, peer as usize - 1)).expect("a site") {
            way.push_back(bytes);
        }
    }
}

/// Messages arrive, some of them or all. How many.
fn deliver(places: &mut [Place], ways: &mut Ways, rng: &mut Rng, all: bool) -> u64 {
    let (mut count, mut idle) = (0, 0);
    while idle < 8 && (all || rng.percent(97)) {
        idle += 1;
        let pairs: Vec<(usize, usize)> = ways.keys().copied().collect();
        for (from, to) in pairs {
            let Some(bytes) = ways.get_mut(&(from, to)).and_then(|way| way.as_mut()?.pop_front()) else {
                continue;
            };
            (count, idle) = (count + 1, 0);
            places[to].site.hear(BesideEvent::Message { peer: number_of(from), bytes });
            send(places, ways, to);
            if number("ATOLL_SEED").is_some() {
                places[to].check();
            }
        }
        for at in 0..places.len() {
            places[at].site.waits();
            send(places, ways, at);
        }
    }
    count
}

fn run(seed: u64) -> Counts {
    let (mut rng, mut counts) = (Rng::new(seed ^ 0x517e5), Counts::new());
    let sites = 2 + rng.index(2);
    let mut places: Vec<Place> = (0..sites)
        .map(|at| {
            let memory = if rng.percent(25) { Memory::Swept } else { Memory::Whole };
            let small = Window { messages: 3, bytes: 600, news: 4 };
            let window = if rng.percent(30) { small } else { Window::MOST };
            Place::new(at, memory, rng.percent(50), window)
        })
        .collect();
    let mut ways = Ways::new();
    for to in 0..sites {
        (0..to).for_each(|from| link(&mut places, &mut ways, (from, to), true));
    }
    for round in 0..6 {
        for at in 0..sites {
            let place = &mut places[at];
            let mut left = 1 + rng.index(12);
            for _ in 0..60 {
                if left > 0 && place.operation(&mut rng) {
                    left -= 1;
                    *counts.entry("operations").or_default() += 1;
                }
            }
            place.site.renew();
            if rng.percent(30) {
                place.site.forget();
            }
            send(&mut places, &mut ways, at);
            if rng.percent(20) {
                (0..sites)
                    .filter(|to| *to != at)
                    .for_each(|to| link(&mut places, &mut ways, (at, to), false));
                places[at].begin_anew();
                *counts.entry("begun anew").or_default() += 1;
            }
        }
        let all = round == 5 || rng.percent(30);
        for to in 0..sites {
            for from in 0..to {
                let is_up = ways[&(from, to)].is_some();
                if is_up && rng.percent(15) {
                    link(&mut places, &mut ways, (from, to), false);
                    *counts.entry("broken links").or_default() += 1;
                } else if !is_up && (all || rng.percent(50)) {
                    link(&mut places, &mut ways, (from, to), true);
                }
            }
        }
        if all {
            for to in 0..sites {
                for from in 0..to {
                    if ways[&(from, to)].is_none() {
                        link(&mut places, &mut ways, (from, to), true);
                    }
                }
            }
        }
        *counts.entry("messages").or_default() += deliver(&mut places, &mut ways, &mut rng, all);
        for place in &mut places {
            place.check();
            let kept = place.site.kept();
            *counts.entry("kept").or_default() += kept.len() as u64;
            if rng.percent(60) && !kept.is_empty() {
                place.site.release(&kept);
                place.check();
            }
            assert_eq!(place.machine().peers().refused(), 0);
        }
        if all {
            let quiet = |place: &Place| {
                let peers = place.machine().peers();
                peers.sites().into_iter().all(|site| peers.is_quiet(site))
            };
            assert!(places.iter().all(quiet), "all is told and acknowledged");
            agree(&mut places);
        }
    }
    let mut add = |what, by: u64| *counts.entry(what).or_default() += by;
    for place in &mut places {
        let plain = place.shadow.plain();
        let tree = place.shadow.tree();
        add("paths", tree.len() as u64);
        add("names beside", tree.keys().filter(|path| path.contains(".~s")).count() as u64);
        add("near rows", place.shadow.sides.keys().filter(|(table, _)| *table == NEAR).count() as u64);
        let revived = plain.dirs.keys().filter(|id| plain.life(**id) == atoll_shown::Life::Revived);
        add("revived", revived.count() as u64);
        add("moves", place.shadow.spine.records().len() as u64);
        add("loads", place.site.loads);
    }
    counts
}

/// All sites have the same states, and show the same.
fn agree(places: &mut [Place]) {
    let (first, others) = places.split_first_mut().expect("there are sites");
    let (bytes, tree) = (first.shadow.plain().bytes(), first.shadow.tree());
    for other in others {
        let theirs = other.shadow.plain().bytes();
        assert!(bytes.keys().eq(theirs.keys()), "objects");
        assert_eq!(bytes, theirs, "states");
        assert_eq!(tree, other.shadow.tree());
    }
}

#[test]
fn sites_that_write_and_take_do_what_posix_says_and_agree() {
    if let Some(seed) = number("ATOLL_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let seeds = number("ATOLL_SOAK").unwrap_or(SEEDS);
    let mut all = Counts::new();
    for seed in 1..=seeds {
        let Ok(counts) = catch_unwind(AssertUnwindSafe(|| run(seed))) else {
            panic!("ATOLL_SEED={seed} cargo test -p atoll-wide --test sites")
        };
        counts.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
    }
    println!("{seeds} seeds: {all:?}");
    assert!(all.values().all(|count| *count > 0), "{all:?}");
}
