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
use atoll_core::{Decode, Encode, Ino, Name, SessionId};
use atoll_island::{Beside, BesideEvent, BesideStep, BesideView, Now};
use atoll_model::Rng;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr, XattrMode};
use atoll_proto::{EntryRef, Record};
use atoll_shown::Objects;
use atoll_state::{NotInMemory, State};
use atoll_wide::author::{Bundle, BundleChange};
use atoll_wide::foreign::Waits;
use atoll_wide::rows::{FeedRow, NEAR};
use atoll_wide::site::Site as Machine;
use bytes::Bytes;
use drive::number;
use receiver::{Receiver, Tree};
use site::{Memory, Site, named, opened};

/// Seeds of a usual run.
const SEEDS: u64 = 60;
/// Names for which sites quarrel.
const NAMES: [&str; 4] = ["a", "b", "c", "d.txt"];

type Counts = BTreeMap<&'static str, u64>;
/// What each name leads to.
type Entries = BTreeMap<(Ino, Name), (Ino, Kind)>;

/// A machine that takes what comes, in order.
#[derive(Debug, Clone)]
struct Taking {
    site: Machine,
    queue: VecDeque<Vec<BundleChange>>,
    wants: Vec<FeedRow>,
    loads: u64,
    prepared: u64,
}

impl Taking {
    fn open(writer: Writer, rows: Vec<(u8, u128, Bytes)>) -> Self {
        let site = opened(writer, rows).expect("it has written them");
        Self { site, queue: VecDeque::new(), wants: Vec::new(), loads: 0, prepared: 0 }
    }
}

impl Beside for Taking {
    fn witness(&mut self, state: &State, now: Now, seq: u64, record: &mut Record) {
        self.site.witness(state, now, seq, record);
    }

    fn allows_moves(&self, state: &State, now: Now, moves: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        self.site.allows_moves(state, now, moves)
    }

    fn prepare(
        &mut self,
        view: BesideView<'_>,
        op: &Op,
        mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> BesideStep {
        let step = self.site.prepare(view, op, mint);
        self.prepared += u64::from(matches!(step, BesideStep::Decide(_)));
        step
    }

    fn hear(&mut self, event: BesideEvent) {
        let BesideEvent::Message { bytes, .. } = event else { unreachable!("there are no links") };
        self.queue.push_back(Vec::from_slice(&bytes).expect("it is read again"));
    }

    fn step(&mut self, view: BesideView<'_>, mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        while let Some(changes) = self.queue.front().filter(|_| view.may_decide) {
            match self.site.take(view, changes, mint) {
                Ok(taken) => {
                    assert!(taken.refused == 0 && !taken.is_busy, "{taken:?} of {changes:?}");
                    self.wants.extend(taken.wants.into_keys());
                    self.queue.pop_front();
                    if let Some(record) = taken.record {
                        return BesideStep::Decide(record);
                    }
                }
                Err(Waits::Rows(loads)) => {
                    self.loads += 1;
                    return BesideStep::Load(loads);
                }
                Err(Waits::Numbers) => return BesideStep::Ids,
                Err(waits) => panic!("{waits:?}"),
            }
        }
        BesideStep::Rest
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

/// A site, and a plain reading of its rows.
struct Place {
    writer: Writer,
    site: Site,
    shadow: Receiver,
    /// What it has made.
    made: Vec<Bundle>,
}

impl Place {
    fn new(at: usize, memory: Memory, is_mount: bool) -> Self {
        let writer = Writer(1 + at as u64);
        let beside = Taking::open(writer, Vec::new());
        let mut site = Site::new(memory, &[SessionId(1)], is_mount, Some(Box::new(beside)));
        site.watch_no_more();
        Self { writer, site, shadow: Receiver::shadow(), made: Vec::new() }
    }

    /// The machine begins anew from its rows.
    fn begin_anew(&mut self) {
        self.follow();
        let rows = self.site.sides().iter().map(|((table, id), row)| (*table, *id, row.clone())).collect();
        let (before, mut machine) = (self.machine().clone(), Taking::open(self.writer, rows));
        for dir in before.site.author().spine().records().flat_map(|record| record.dirs()) {
            let place = |machine: &Taking| machine.site.author().spine().place(dir.dir).cloned();
            assert_eq!(place(&before), place(&machine));
        }
        (machine.wants, machine.loads, machine.prepared) = (before.wants, before.loads, before.prepared);
        self.site.set_beside(machine);
    }

    fn machine(&self) -> &Taking {
        self.site.beside::<Taking>()
    }

    /// Reads on in the log.
    fn follow(&mut self) {
        let spine = self.machine().site.author().spine().clone();
        for (_, record) in self.site.take_records() {
            self.shadow.follow(&record, &spine);
        }
        let after = self.made.last().map_or(0, |bundle| bundle.position);
        let new = self.machine().site.author().bundles(after, u64::MAX).expect("all of it is in memory");
        let new: Vec<Bundle> = new.cloned().collect();
        self.made.extend(new);
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

/// What of one site's bundles has reached another site.
#[derive(Default)]
struct Way {
    /// The next one in order.
    next: usize,
    /// Earlier ones that are on their way still.
    late: Vec<usize>,
}

/// Some bundles of each site reach others, or all of them. How many states were asked for.
fn deliver(places: &mut [Place], ways: &mut BTreeMap<(usize, usize), Way>, rng: &mut Rng, all: bool) -> u64 {
    let mut asked = 0;
    for ((from, to), way) in ways {
        let mut come = Vec::new();
        while way.next < places[*from].made.len() && (all || rng.percent(85)) {
            if !all && rng.percent(12) {
                way.late.push(way.next)
            } else {
                come.push(way.next)
            }
            way.next += 1;
        }
        if all || rng.percent(30) {
            come.append(&mut way.late);
        }
        for bundle in come {
            let changes = places[*from].made[bundle].changes.clone();
            asked += take(places, *from, *to, &changes);
        }
    }
    asked
}

/// A site takes changes, and the states that it asks for because of them.
fn take(places: &mut [Place], from: usize, to: usize, changes: &[BundleChange]) -> u64 {
    let mut asked = 0;
    let tell = |places: &mut [Place], changes: &[BundleChange]| {
        let before = places[to].machine().wants.len();
        places[to].site.hear(changes.to_vec().to_vec().into());
        (0..200).for_each(|_| {
            if !places[to].machine().queue.is_empty() {
                places[to].site.hear(Vec::<BundleChange>::new().to_vec().into());
            }
        });
        assert!(places[to].machine().queue.is_empty(), "it is not taken");
        if number("ATOLL_SEED").is_some() {
            println!("{from} to {to}: {changes:?}");
            places[to].check();
        }
        places[to].machine().wants[before..].to_vec()
    };
    let mut wants = tell(places, changes);
    while let Some(want) = wants.pop() {
        asked += 1;
        assert!(asked < 10_000, "no end of questions: {want:?}");
        places[from].follow();
        let plain = places[from].shadow.plain();
        let state = match want {
            FeedRow::File { id } => BundleChange::FileBorn { id, state: Box::new(plain.files[&id].clone()) },
            FeedRow::Dir { id } => BundleChange::DirBorn { id, head: Box::new(plain.dirs[&id].clone()) },
            FeedRow::Move { stamp } => panic!("{stamp:?} is asked for"),
        };
        let more = tell(places, &[state]);
        if !more.is_empty() {
            wants.insert(0, want);
            wants.extend(more.into_iter().filter(|more| *more != want));
        }
    }
    asked
}

fn run(seed: u64) -> Counts {
    let (mut rng, mut counts) = (Rng::new(seed ^ 0x517e5), Counts::new());
    let sites = 2 + rng.index(2);
    let mut places: Vec<Place> = (0..sites)
        .map(|at| {
            let memory = if rng.percent(25) { Memory::Swept } else { Memory::Whole };
            Place::new(at, memory, rng.percent(50))
        })
        .collect();
    let pairs = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
    let mut ways: BTreeMap<(usize, usize), Way> =
        pairs.filter(|(from, to)| from != to).map(|pair| (pair, Way::default())).collect();
    for round in 0..6 {
        for place in &mut places {
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
            place.follow();
            if rng.percent(20) {
                place.begin_anew();
                *counts.entry("begun anew").or_default() += 1;
            }
        }
        let all = round == 5 || rng.percent(30);
        *counts.entry("asked").or_default() += deliver(&mut places, &mut ways, &mut rng, all);
        for place in &mut places {
            place.check();
            let kept = place.site.kept();
            *counts.entry("kept").or_default() += kept.len() as u64;
            if rng.percent(60) && !kept.is_empty() {
                place.site.release(&kept);
                place.check();
            }
        }
        if all {
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
        add("loads", place.machine().loads);
        add("prepared", place.machine().prepared);
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
