//! One operation of a union, over and over: its process dies behind each of its native changes, or all members lose their power
//! there. The next union settles what was left.
//!
//! Judged: every path shows what it showed before the operation or what it shows after it, nothing that neither of them removes
//! is lost, and members have nothing of ours.

use std::collections::{BTreeMap, BTreeSet};

use atoll_member::Tree;
use atoll_model::rng::Rng;
use atoll_posix::{Answer, Kind, RenameMode};
use atoll_union::{At, Finished, Intent, NativeCall, SameRule, Settings, UnlinkRule, Who};

use super::job::{Job, NAMES, Next, What, path};
use super::members::{Members, below, is_change, name, split};
use super::process::{Process, settle};
use super::rest;
use super::run::{draw_settings, plant_trees};
use super::spec::{self, Shows};
use crate::cause::Failure;
use crate::scenario::Run;

/// Operations that change something.
const SCRIPTS: [What; 10] = [
    What::Create,
    What::Mkdir,
    What::Write,
    What::Chmod,
    What::Unlink,
    What::Rmdir,
    What::Link,
    What::Rename(RenameMode::Replace),
    What::Rename(RenameMode::NoReplace),
    What::Rename(RenameMode::Exchange),
];

/// One operation, and the trees of before it. All of it follows from the seed, so it can be done again and again.
#[derive(Debug, Clone)]
struct Script {
    seed: u64,
    what: What,
    from: String,
    to: String,
    settings: Settings,
    /// The next union has its members in the other order.
    reverses: bool,
}

/// What a path shows, whichever member has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Sight {
    Nothing,
    Dir,
    File(Vec<u8>),
}

/// What every path shows.
type Sights = BTreeMap<String, Sight>;

fn members_of(seed: u64) -> Members {
    let mut rng = Rng::new(seed);
    let mut members = Members::new(2 + rng.index(3), 1_000);
    plant_trees(&mut rng, &mut members);
    members.now_ns += 50_000_000;
    members
}

fn union_of(number: usize, members: &Members, script: &Script, reversed: bool) -> Process {
    let mut of: Vec<(usize, bool)> = (0..members.len()).map(|at| (at, false)).collect();
    if reversed {
        of.reverse();
    }
    let mut process = Process::new(number, members, of, script.settings, true);
    process.intents = Some(BTreeMap::new());
    process
}

fn draw(rng: &mut Rng, seed: u64) -> Script {
    let members = members_of(seed);
    let all = (0..members.len()).flat_map(|at| members.now(at).all().map(|(path, _)| path.clone()));
    let there: BTreeSet<String> = all.filter(|path| !path.is_empty()).collect();
    let there: Vec<String> = there.into_iter().collect();
    let draw = |rng: &mut Rng| match there.is_empty() || rng.percent(30) {
        true => path(rng),
        false => rng.pick(&there).clone(),
    };
    let (from, mut to) = (draw(rng), draw(rng));
    if rng.percent(30) {
        to = below(split(&draw(rng)).0, NAMES[rng.index(NAMES.len())]);
    }
    let settings = draw_settings(rng);
    Script { seed, what: *rng.pick(&SCRIPTS), from, to, settings, reverses: rng.percent(50) }
}

/// Makes the operation, until so many native changes are made. How many were.
fn drive(members: &mut Members, process: &mut Process, script: &Script, changes_max: u64) -> u64 {
    let mut job = Job::new(0, 0, script.what, &script.from, &script.to);
    job.data = members.fresh_bytes();
    let mut changes = 0;
    while let Next::Op(op, bytes) = job.next() {
        let acts = job.is_acting();
        let task = process.start(members, op, bytes);
        while let Some(at) = process.calls.iter().position(|call| call.task == task) {
            let change = is_change(&process.calls[at].call);
            if change && changes == changes_max {
                return changes;
            }
            process.make(members, at);
            let made = process.calls[at].answer.as_ref().is_some_and(Result::is_ok);
            changes += u64::from(change && made);
            process.tell(members, at);
        }
        let Some((_, outcome)) = process.ended.pop() else { break };
        let Ok(Finished { answer: Answer::Found { found }, .. }) = outcome else { break };
        if acts {
            break;
        }
        job.stepped(found.attr.ino, found.attr.kind == Kind::Directory);
    }
    changes
}

/// What every path shows, by what members have.
fn sights(members: &Members, process: &Process) -> Sights {
    let (mut paths, mut level) = (vec![String::new()], vec![String::new()]);
    for _ in 0..3 {
        level = level.iter().flat_map(|dir| NAMES.map(|name| below(dir, name))).collect();
        paths.extend_from_slice(&level);
    }
    let view = spec::present(members, process);
    let sight = |path: &String| match spec::shown(&view, process.settings.same, path) {
        Shows::Nothing => Sight::Nothing,
        Shows::Dir => Sight::Dir,
        Shows::File(member, _) => {
            let node = members.now(member).file(path).expect("it shows it");
            Sight::File(node.data.to_vec())
        }
    };
    paths.iter().map(|path| (path.clone(), sight(path))).collect()
}

/// The contents of all files, hidden ones too.
fn contents(members: &Members) -> BTreeSet<Vec<u8>> {
    let all = (0..members.len()).flat_map(|at| members.now(at).all());
    all.filter(|(_, node)| !node.is_dir()).map(|(_, node)| node.data.to_vec()).collect()
}

/// The contents of all files of a path.
fn contents_at(members: &Members, path: &str) -> Vec<Sight> {
    let files = (0..members.len()).filter_map(|at| members.now(at).file(path));
    files.map(|node| Sight::File(node.data.to_vec())).collect()
}

/// See the module.
pub(crate) fn run(run: &mut Run, power: bool) -> Result<(), Failure> {
    let mut rng = Rng::new(run.seed);
    let script = draw(&mut rng, run.seed);
    let mut members = members_of(script.seed);
    let mut process = union_of(0, &members, &script, false);
    let (before, had) = (sights(&members, &process), contents(&members));
    let hidden = [&script.from, &script.to].map(|path| contents_at(&members, path));
    let changes = drive(&mut members, &mut process, &script, u64::MAX);
    let (after, has) = (sights(&members, &process), contents(&members));
    let safe: BTreeSet<_> = had.intersection(&has).cloned().collect();
    run.operations += 1;
    run.notes.note(members.now_ns / 1_000, format_args!("{script:?}: {after:?}"));
    for at in 0..=changes {
        let mut members = members_of(script.seed);
        let mut process = union_of(0, &members, &script, false);
        if power {
            sync_all(&members);
        }
        drive(&mut members, &mut process, &script, at);
        let mut intents = process.die();
        if power && at == changes && script.what == What::Create {
            saved(&script, &mut rng)?;
        }
        if power {
            (0..members.len()).for_each(|at| members.all[at].tree.cut_power(&mut || rng.percent(50)));
            members.looked_again();
            run.injected.power_cuts += 1;
        } else {
            run.injected.deaths += 1;
        }
        members.now_ns += 1_000_000_000;
        let why = |what: String| {
            let Script { what: op, from, to, settings, .. } = &script;
            Failure::new(format!(
                "{op:?} {from} {to}, ended behind change {at} of {changes}, {settings:?}: {what}"
            ))
        };
        let mut next = union_of(1, &members, &script, script.reverses);
        settle_all(&mut members, &mut next, &mut intents).map_err(why)?;
        let (now, kept) = (sights(&members, &next), contents(&members));
        run.notes
            .note(members.now_ns / 1_000, format_args!("ended behind change {at} of {changes}: {now:?}"));
        if script.reverses && script.settings.same != SameRule::Newest {
            continue; // Another file is the first one.
        }
        for (path, sight) in &now {
            let mut right = *sight == before[path] || *sight == after[path];
            // What stands behind what was renamed follows it in a change of its own.
            let side = [&script.from, &script.to].iter().position(|of| *of == path);
            // Removals in several members reach the disks in any order.
            let comes_up = power && script.what == What::Unlink && script.settings.unlink == UnlinkRule::All;
            if side.is_some() && (matches!(script.what, What::Rename(_)) || comes_up) {
                right |= hidden.iter().flatten().any(|content| content == sight);
            }
            if !right {
                let (before, after) = (&before[path], &after[path]);
                return Err(why(format!("{path} shows {sight:?}, neither {before:?} nor {after:?}")));
            }
        }
        if let Some(lost) = safe.difference(&kept).next() {
            return Err(why(format!("{:?} is lost", String::from_utf8_lossy(lost))));
        }
        one_place(&script, [&before, &after, &now]).map_err(why)?;
        rest::is_ours_nowhere(&members)?;
        rest::shows_members(&mut members, &mut next, true)?;
    }
    Ok(())
}

/// A new file that was synced, as its directory was, is there after a power cut, also on file systems that keep no order.
fn saved(script: &Script, rng: &mut Rng) -> Result<(), Failure> {
    let mut members = members_of(script.seed);
    sync_all(&members);
    members.all.iter().for_each(|member| member.tree.set_faults(|faults| faults.unordered = true));
    let mut process = union_of(0, &members, script, false);
    let sync_file = Script { what: What::Fsync, ..script.clone() };
    let sync_dir = Script { what: What::FsyncDir, from: split(&script.from).0.to_owned(), ..script.clone() };
    for script in [script, &sync_file, &sync_dir] {
        drive(&mut members, &mut process, script, u64::MAX);
    }
    let before = sights(&members, &process);
    process.die();
    (0..members.len()).for_each(|at| members.all[at].tree.cut_power(&mut || rng.percent(20)));
    members.looked_again();
    let now = sights(&members, &process);
    if now[&script.from] == before[&script.from] {
        return Ok(());
    }
    Err(Failure::new(format!("{} was synced and shows {:?}", script.from, now[&script.from])))
}

/// A rename is made or not: what was renamed has one of its names, and all that is below it is there.
fn one_place(script: &Script, [before, after, now]: [&Sights; 3]) -> Result<(), String> {
    let What::Rename(_) = script.what else { return Ok(()) };
    if before == after {
        return Ok(());
    }
    let below = |sights: &Sights, dir: &String| -> BTreeMap<String, Sight> {
        let inside =
            |path: &&String| path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.starts_with('/'));
        let there = sights.iter().filter(|(path, sight)| inside(path) && **sight != Sight::Nothing);
        there.map(|(path, sight)| (path[dir.len()..].to_owned(), sight.clone())).collect()
    };
    let sides = [&script.from, &script.to];
    let of = |sights: &Sights| sides.map(|side| (sights[side].clone(), below(sights, side)));
    let is_dir = |sights: &Sights| sides.iter().any(|side| sights[*side] == Sight::Dir);
    if (is_dir(before) || is_dir(after)) && of(now) != of(before) && of(now) != of(after) {
        return Err(format!(
            "half of it is made: {:?}, before {:?}, after {:?}",
            of(now),
            of(before),
            of(after)
        ));
    }
    Ok(())
}

fn sync_all(members: &Members) {
    for (at, member) in members.all.iter().enumerate() {
        let sync = |call| member.tree.direct(&Who::Daemon, &call, &[]).expect("a sync");
        sync(NativeCall::FsyncDir { dir: member.tree.root().id });
        for (path, node) in members.now(at).all().filter(|(_, node)| !node.is_dir()) {
            let (above, last) = split(path);
            let dir = members.now(at).get(above).expect("a directory").stat.id;
            sync(NativeCall::Fsync { of: At { id: node.stat.id, seen: Some((dir, name(last))) } });
        }
    }
}

/// The next union settles what was left before it serves.
fn settle_all(
    members: &mut Members,
    next: &mut Process,
    intents: &mut BTreeMap<u64, Intent>,
) -> Result<(), String> {
    for intent in intents.values_mut() {
        let text = format!("{intent:?}");
        if !settle(intent, next.number, members, next.trees()) {
            return Err(format!("it cannot be settled: {text}"));
        }
    }
    Ok(())
}
