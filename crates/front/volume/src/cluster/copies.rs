//! Looks for damage in copies of islands, and compares those of an island with each other. Changes nothing: each copy is opened
//! over an overlay, where its recovery is done in memory ([018](../../../../../docs/design/018-copies.md)).

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use anyhow::Result;
use atoll_check::copies::{Row, compare};
use atoll_control::{ClusterStore, EmbeddedStore, GroupStore};
use atoll_core::{Ino, IslandId, Position};
use atoll_disk::overlay::Overlay;
use atoll_disk::real::RealDisk;
use atoll_dispatch::{Engine, Nobody, SeatStore, is_being_filled};
use atoll_group::{OpenedLog, SeatFile};
use atoll_proto::{ControlPlace, GroupRecord};
use atoll_server::WallClock;

use super::check::{AtRest, Check, Part};
use crate::findings::{Compared, Copy, Outcome, Place};

/// Rows that are read at once.
const PAGE: usize = 4096;

type Disk = Overlay<RealDisk>;

/// A copy that follows, in memory.
struct Opened<'a> {
    part: &'a Part,
    engine: Engine<Disk>,
    log: OpenedLog,
    last: Position,
    /// By the newest record of the group, all that is committed is here.
    has_seat: bool,
}

/// Looks at the copies of islands that these nodes have.
pub(super) fn check(check: &Check<'_>, parts: &[Part], outcome: &mut Outcome) -> Result<()> {
    let config = check.config;
    if check.how.repair {
        outcome.notes.push(format!(
            "volume {}: its islands have copies, so nothing of it is mended by --repair: see the next step of each finding",
            config.name
        ));
    }
    let first = (outcome.wrong.len(), outcome.copies.len());
    let mut current = Vec::new();
    for island in config.islands() {
        let group = config.group_of(island);
        let here: Vec<&Part> = parts.iter().filter(|part| group.contains(&part.member.node)).collect();
        if here.is_empty() {
            continue;
        }
        outcome.islands += 1;
        let is_known = here.len() == group.len() || has_store(check, parts)?;
        let reference = compare_all(check, parts, &here, (island, is_known), outcome)?;
        for (at, part) in here.iter().enumerate() {
            let copy =
                outcome.copies.iter().rev().find(|copy| copy.island == island && copy.place == part.place);
            if copy.is_some_and(|copy| copy.compared == Compared::Filled) {
                continue;
            }
            let in_order = copy.is_some_and(|copy| in_order(part, island, copy.last));
            let Some(looked) = bring_to_rest(check, part, (island, in_order), outcome)? else { continue };
            check.name_paths(&looked, outcome);
            // An older copy knows less than other islands do.
            if is_known && reference == Some(at) {
                current.push(looked);
                continue;
            }
            let counted = (outcome.files, outcome.dirs);
            check.look(config, &mut [looked], outcome);
            if reference != Some(at) {
                (outcome.files, outcome.dirs) = counted;
            }
        }
    }
    check.look(config, &mut current, outcome);
    let alone = outcome.copies[first.1..].iter().filter(|copy| copy.compared == Compared::Alone);
    let alone: Vec<String> = alone.map(|copy| copy.island.to_string()).collect();
    if !alone.is_empty() {
        outcome.notes.push(format!(
            "volume {}: of islands {} one copy is here: nothing was compared with it. Name the data directories of all nodes (--data DIR...)",
            config.name,
            alone.join(", ")
        ));
    }
    name_whole(parts, first, outcome);
    Ok(())
}

/// Whether the control store that has the volume's group records is one of these nodes'.
fn has_store(check: &Check<'_>, parts: &[Part]) -> Result<bool> {
    let store = check.config.copies.as_ref().map(|copies| copies.store);
    let Some(part) = parts.iter().find(|part| Some(part.member.node) == store) else { return Ok(false) };
    let list = EmbeddedStore::open(&part.store)?.cluster()?;
    Ok(list.is_none_or(|list| list.cluster.control == ControlPlace::Nodes))
}

fn bring_to_rest(
    check: &Check<'_>,
    part: &Part,
    (island, in_order): (IslandId, bool),
    outcome: &mut Outcome,
) -> Result<Option<AtRest<Disk>>> {
    outcome.at = part.place.clone();
    // Whatever cannot be opened was told when it was compared.
    let Ok(disk) = part.disk(island) else { return Ok(None) };
    let before = outcome.wrong.len();
    let files = in_order.then(|| Arc::new(Overlay::new(Arc::clone(&disk))));
    let disks = (Arc::new(Overlay::new(disk)), files);
    let looked = check.bring_to_rest(part, part.member.node, island, disks, outcome)?;
    let is_told = |outcome: &Outcome| {
        let told = |at: usize| {
            let wrong = &outcome.wrong[at];
            (&wrong.place, wrong.island, &wrong.rule, &wrong.what)
        };
        (0..before).any(|at| told(at) == told(before))
    };
    if outcome.wrong.len() > before && is_told(outcome) {
        outcome.wrong.truncate(before);
    }
    Ok(looked)
}

// ------------------------------------------------------------------- comparison

/// Compares the copies of an island; which one is the reference. `is_known`: the group's record that counts lies here.
fn compare_all(
    check: &Check<'_>,
    parts: &[Part],
    here: &[&Part],
    (island, is_known): (IslandId, bool),
    outcome: &mut Outcome,
) -> Result<Option<usize>> {
    let seats: Vec<_> = here.iter().map(|part| seat(check, part, island, outcome)).collect();
    let record = newest(check, parts, island, &seats)?;
    let mut opened = Vec::new();
    for (at, (part, seat)) in here.iter().zip(&seats).enumerate() {
        outcome.at = part.place.clone();
        if is_filled(part, island) {
            // What it lacks is no damage, and is not told byte by byte.
            let (volume, place) = (check.config.name.clone(), part.place.clone());
            let (last, has_all, compared) = (Position::default(), false, Compared::Filled);
            outcome.copies.push(Copy { volume, island, place, last, has_all, compared });
            continue;
        }
        let has_seat = record.as_ref().zip(seat.as_ref()).is_some_and(|(record, seat)| {
            record.seat_of(part.member.node).is_some_and(|known| known.tenure == seat.tenure)
        });
        match open(check, part, island, has_seat, outcome) {
            Ok(copy) => opened.push((at, copy)),
            Err(why) => check.add_unopened(island, &why, outcome),
        }
    }
    let place = |(_, copy): &&(usize, Opened<'_>)| (copy.has_seat, copy.last);
    let Some((first, reference)) = opened.iter().max_by_key(place) else { return Ok(None) };
    for (at, copy) in &opened {
        let compared = match () {
            () if here.len() == 1 => Compared::Alone,
            () if at == first => Compared::Reference,
            () => compare_one(check, copy, reference, outcome),
        };
        let (volume, place) = (check.config.name.clone(), copy.part.place.clone());
        let has_all = is_known && copy.has_seat;
        outcome.copies.push(Copy { volume, island, place, last: copy.last, has_all, compared });
    }
    Ok(Some(*first))
}

/// Whether a copy is being filled from another one.
fn is_filled(part: &Part, island: IslandId) -> bool {
    // Whatever cannot be opened is told when it is opened to be compared.
    part.disk(island).is_ok_and(|disk| is_being_filled(&*disk, island).unwrap_or(false))
}

/// The file `seat` of a copy. None: there is none that can be read, as the outcome says.
fn seat(check: &Check<'_>, part: &Part, island: IslandId, outcome: &mut Outcome) -> Option<SeatFile> {
    let name = format!("{island}.seat");
    let load = || {
        let beside = Arc::new(Overlay::new(Arc::new(RealDisk::open(&part.folder)?)));
        SeatStore::new(beside, name.clone().into_bytes()).load()
    };
    let what = match load() {
        Ok(Some(seat)) => return Some(seat),
        Ok(None) if part.options.is_new => return None,
        Ok(None) => format!("its seat ({name} beside its folder) is missing"),
        Err(why) => format!("its seat cannot be read: {why}"),
    };
    outcome.at = part.place.clone();
    outcome.add(check.config, "opens", Some(island), None, what);
    None
}

/// The newest record of the island's group that lies here.
fn newest(
    check: &Check<'_>,
    parts: &[Part],
    island: IslandId,
    seats: &[Option<SeatFile>],
) -> Result<Option<GroupRecord>> {
    let mut all: Vec<(u64, GroupRecord)> =
        seats.iter().flatten().filter_map(|seat| seat.record.clone()).collect();
    let store = check.config.copies.as_ref().map(|copies| copies.store);
    for part in parts.iter().filter(|part| Some(part.member.node) == store) {
        let stored = EmbeddedStore::open(&part.store)?.group(check.config.id, island)?;
        all.extend(stored.map(|stored| (stored.revision.0, stored.record)));
    }
    // Revisions of two stores cannot be compared: a node whose groups are in etcd has their first records too.
    let newest = all.into_iter().max_by_key(|(revision, record)| (record.epoch, *revision));
    Ok(newest.map(|(_, record)| record))
}

/// Whether a copy with this last record was stopped in order: then its node has noted how far it has come, no write is under way,
/// and its plain tree has everything.
fn in_order(part: &Part, island: IslandId, last: Position) -> bool {
    part.options.reached.get(&island).is_some_and(|reached| reached.seq == last.seq)
}

/// Opens a copy in memory.
fn open<'a>(
    check: &Check<'_>,
    part: &'a Part,
    island: IslandId,
    has_seat: bool,
    outcome: &mut Outcome,
) -> Result<Opened<'a>> {
    let disk = Arc::new(Overlay::new(part.disk(island)?));
    let mut setup = atoll_server::setup(check.config, part.member.node, island, &*disk, &part.options);
    setup.log.keep_bytes = atoll_log::KEEP_BYTES;
    let (engine, report, log) =
        Engine::open_following(disk, setup, Arc::new(Nobody), Arc::new(WallClock::default()))?;
    let last = engine.last();
    let stopped = in_order(part, island, last);
    let inos: BTreeSet<Ino> = report.corrected.iter().map(|(ino, _)| *ino).collect();
    for ino in inos {
        let what = "some of its bytes differ from their checksums";
        if stopped {
            outcome.add(check.config, "body-matches", Some(island), Some(ino), what.to_owned());
        } else {
            outcome.notes.push(format!(
                "volume {} island {island} node {}: id {ino}: {what}, as after a write that was under way: it asks the primary for them",
                check.config.name, part.member.node
            ));
        }
    }
    Ok(Opened { part, engine, log, last, has_seat })
}

/// The last record of a copy, if it can be opened.
pub(super) fn opens(check: &Check<'_>, part: &Part, island: IslandId) -> Result<Position> {
    Ok(open(check, part, island, false, &mut Outcome::default())?.last)
}

/// Compares a copy with another one, at the last record of that.
fn compare_one(
    check: &Check<'_>,
    copy: &Opened<'_>,
    reference: &Opened<'_>,
    outcome: &mut Outcome,
) -> Compared {
    let taken = copy.engine.take_from(&copy.log, (&reference.engine, &reference.log));
    let behind = match taken {
        Ok(behind) => behind,
        Err(why) => return Compared::Not { why: why.to_string() },
    };
    let node = reference.part.member.node;
    let compare = || {
        for engine in [&reference.engine, &copy.engine] {
            engine.settle_rows().map_err(|why| io::Error::other(why.why))?;
        }
        compare(copy.engine.id(), rows(&reference.engine), rows(&copy.engine))
    };
    let findings = match compare() {
        Ok(findings) => findings,
        Err(why) => return Compared::Not { why: why.to_string() },
    };
    outcome.at = copy.part.place.clone();
    for finding in findings {
        let what = format!("{}: node {node} has it otherwise", finding.what);
        outcome.add(check.config, finding.rule.name(), Some(finding.island), finding.ino, what);
    }
    Compared::With { node, behind }
}

/// All rows of an engine, in the order of their keys.
fn rows(engine: &Engine<Disk>) -> impl Iterator<Item = io::Result<Row>> + '_ {
    let mut from = Some(Vec::new());
    let pages = std::iter::from_fn(move || {
        let start = from.take()?;
        let page = engine.snapshot().range(&start, &[0xff], PAGE).map_err(io::Error::other);
        if let Ok(page) = &page
            && let (Some((last, _)), PAGE) = (page.last(), page.len())
        {
            from = Some([&last[..], &[0]].concat());
        }
        Some(page)
    });
    pages.flat_map(|page| {
        let (rows, error) = match page {
            Ok(rows) => (rows, None),
            Err(error) => (Vec::new(), Some(Err(error))),
        };
        rows.into_iter().map(Ok).chain(error)
    })
}

// --------------------------------------------------------------------- next steps

/// For a shell: puts a copy whose last record is `last` in the place of another one.
pub(super) fn exchange(damaged: &Part, island: IslandId, whole: &Part, last: Position) -> String {
    let folder = |part: &Part| part.folder.join(island.to_string()).display().to_string();
    let (own, other) = (folder(damaged), folder(whole));
    // It would be refused as an older copy. What it lacks was never acknowledged.
    let is_older = damaged.options.reached.get(&island).is_some_and(|reached| reached.seq > last.seq);
    let forget = match is_older {
        true => format!("rm {}/reached.toml && ", damaged.folder.display()),
        false => String::new(),
    };
    let aside = match damaged.folder.join(island.to_string()).exists() {
        true => format!("mv {own} {own}.damaged && "),
        false => String::new(),
    };
    format!("{forget}{aside}cp -a {other} {own}")
}

/// Tells, for what is wrong with a copy, how another copy of the island in which nothing is wrong gets its place.
fn name_whole(parts: &[Part], first: (usize, usize), outcome: &mut Outcome) {
    let wrong = &outcome.wrong[first.0..];
    let is_damaged =
        |copy: &&Copy| wrong.iter().any(|w| w.island == Some(copy.island) && w.place == copy.place);
    let has_all = |copy: &&Copy| copy.has_all || matches!(copy.compared, Compared::With { behind: 0, .. });
    let copies = outcome.copies[first.1..].iter();
    let whole: Vec<&Copy> = copies.filter(has_all).filter(|copy| !is_damaged(copy)).collect();
    let part_of = |place: &Place| parts.iter().find(|part| part.place == *place);
    let steps: Vec<_> = wrong
        .iter()
        .map(|wrong| {
            let damaged = part_of(&wrong.place)?;
            let copy =
                whole.iter().find(|copy| Some(copy.island) == wrong.island && copy.place != wrong.place)?;
            Some(exchange(damaged, copy.island, part_of(&copy.place)?, copy.last))
        })
        .collect();
    for (wrong, step) in outcome.wrong[first.0..].iter_mut().zip(steps) {
        wrong.exchange = step;
    }
}
