//! Each thing that a whole world can have wrong, alone and in pairs: mended, or left as it is, and nothing lost.

#[path = "../../check/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_check::{Rows, Rule, check};
use atoll_core::{Ino, IslandId, Name, Time};
use atoll_posix::{Attr, Kind};
use atoll_proto::{Inode, TxnState};
use atoll_repair::{Lying, Native, Options, Plan, Stray, plan};
use atoll_state::RowKey;
use common::{HERE, THERE, World, file, plants};

/// Bodies as the whole world has them.
struct Disks {
    bodies: Vec<Attr>,
    empty_dirs: bool,
}

impl Disks {
    fn of(world: &World) -> Self {
        let bodies = world.islands.iter().flat_map(|rows| rows.inodes.values().map(|row| row.attr));
        Self { bodies: bodies.collect(), empty_dirs: false }
    }
}

impl Native for Disks {
    fn body(&self, island: IslandId, ino: Ino) -> Option<Lying> {
        let attr = self.bodies.iter().find(|attr| attr.ino == ino && ino.minted_by() == island)?;
        Some(Lying { kind: attr.kind, size: attr.size })
    }

    fn is_empty_dir(&self, _: IslandId, _: &[Name]) -> bool {
        self.empty_dirs
    }
}

fn options() -> Options {
    Options { now: Time { secs: 1000, nanos: 0 }, forget: false }
}

fn planned(whole: &World, broken: &World) -> Plan {
    plan(&broken.volume, broken.islands.clone(), &Disks::of(whole), Vec::new(), &options())
}

fn again(whole: &World, before: &Plan) -> Plan {
    plan(&whole.volume, before.rows.clone(), &Disks::of(whole), Vec::new(), &options())
}

fn rules(world: &World, rows: &[Rows]) -> BTreeSet<Rule> {
    check(&world.volume, rows).into_iter().map(|finding| finding.rule).collect()
}

/// What was done, to be told when something is wrong.
fn told(what: &str, plan: &Plan) -> String {
    let fixes =
        plan.fixes.iter().map(|f| format!("\n  island {} {:?}: {} [{}]", f.island, f.ino, f.what, f.rule));
    format!("{what}:{}", fixes.collect::<String>())
}

/// Files by directory, as somebody has them there under some name, if they are there at all.
fn names(rows: &[Rows]) -> BTreeSet<(Ino, Ino)> {
    let files: BTreeSet<Ino> = rows.iter().flat_map(|rows| rows.inodes.keys().copied()).collect();
    let all =
        rows.iter().flat_map(|rows| &rows.names).flat_map(|(dir, names)| names.iter().map(|n| (*dir, n)));
    let all = all.filter(|(_, (_, _, entry))| files.contains(&entry.ino) && entry.kind != Kind::Directory);
    all.map(|(dir, (_, _, entry))| (dir, entry.ino)).collect()
}

/// The files of an island. A removed directory, which has nothing to lose, is none.
fn files_of(rows: &Rows) -> impl Iterator<Item = (&Ino, &Inode)> {
    rows.inodes.iter().filter(|(_, row)| row.attr.kind != Kind::Directory)
}

/// What must be there afterwards, whatever was wrong.
fn assert_nothing_lost(before: &[Rows], after: &[Rows], context: &str) {
    let files =
        |rows: &[Rows]| -> BTreeSet<Ino> { rows.iter().flat_map(files_of).map(|(ino, _)| *ino).collect() };
    let (had, has) = (files(before), files(after));
    assert!(had.is_subset(&has), "{context}: a file is gone");
    let (had, has) = (names(before), names(after));
    assert!(had.is_subset(&has), "{context}: a name is gone: {had:?}, {has:?}");
    let dirs = |rows: &[Rows]| -> BTreeSet<Ino> {
        let owned = rows.iter().flat_map(|r| r.dirs.iter().filter(|(_, d)| d.owned.is_some()));
        owned.map(|(ino, _)| *ino).collect()
    };
    assert!(dirs(before).is_subset(&dirs(after)), "{context}: a directory is gone");
    let sums = |rows: &[Rows]| -> BTreeSet<Ino> {
        rows.iter()
            .flat_map(|r| r.sums_end.keys().filter(|ino| r.inodes.contains_key(ino)).copied())
            .collect()
    };
    assert!(sums(before).is_subset(&sums(after)), "{context}: checksums are gone");
    for (old, new) in before.iter().zip(after) {
        for (ino, row) in files_of(old) {
            let now = &new.inodes[ino].attr;
            let names = after.iter().flat_map(|r| r.names.iter().map(move |n| (r.island, n)));
            let count: BTreeSet<_> = names
                .flat_map(|(_, (dir, names))| names.iter().map(move |(_, name, e)| (dir, name, e.ino)))
                .filter(|(_, _, named)| named == ino)
                .collect();
            let is_low = now.nlink < row.attr.nlink && (now.nlink as usize) < count.len();
            assert!(!is_low, "{context}: {ino} counts fewer names than there are");
        }
    }
}

/// Of the plants, those that cannot be mended, and what is left of them.
fn left(what: &str) -> BTreeSet<Rule> {
    let left: &[Rule] = match what {
        // Nobody knows what an unreadable row has said.
        "a row that is too short" | "a row of another file" => &[Rule::RowReadable, Rule::FileThere],
        "permissions that are none" => {
            &[Rule::RowReadable, Rule::DirNamedOnce, Rule::BelowCounted, Rule::DirThere]
        }
        "a row of no kind" => &[Rule::RowReadable],
        // No record can take away a row whose key is wrong.
        "another's cookie" => &[Rule::CookieOfName],
        // The name is all that is left.
        "a file that is gone" => &[Rule::FileThere, Rule::SumsFit],
        "a dangling pointer" => &[Rule::FileThere],
        // Its other side may have committed it.
        "a coordinator that waits for an outcome" => &[Rule::TxnCaused],
        _ => &[],
    };
    left.iter().copied().collect()
}

#[test]
fn what_is_broken_is_mended_or_left_and_a_second_time_nothing_is_done() {
    let whole = World::new();
    assert_eq!(planned(&whole, &whole).fixes, []);
    for plant in plants() {
        let mut world = whole.clone();
        (plant.breaks)(&mut world);
        let first = planned(&whole, &world);
        let context = told(plant.what, &first);
        assert_eq!(rules(&world, &first.rows), left(plant.what), "{context}");
        assert_eq!(told("", &again(&whole, &first)), ":", "{context}");
        assert_nothing_lost(&world.islands, &first.rows, &context);
        assert!(first.fixes.iter().all(|fix| !fix.what.is_empty() && !fix.changes.is_empty()), "{context}");
    }
}

#[test]
fn two_things_that_are_wrong_together_lose_nothing_and_are_done_with_at_once() {
    let whole = World::new();
    let hush = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let all = plants();
    let mut worlds = Vec::new();
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            let mut world = whole.clone();
            // What the second needs the first may have taken away.
            let broken = catch_unwind(AssertUnwindSafe(|| {
                (one.breaks)(&mut world);
                (other.breaks)(&mut world);
            }));
            if broken.is_ok() {
                worlds.push((format!("{} and {}", one.what, other.what), world));
            }
        }
    }
    std::panic::set_hook(hush);
    assert!(worlds.len() > all.len() * all.len() / 4, "{} of {}", worlds.len(), all.len());
    let mut clean = 0;
    for (what, world) in &worlds {
        let first = planned(&whole, world);
        let context = told(what, &first);
        assert_eq!(told("", &again(&whole, &first)), ":", "{context}");
        assert_nothing_lost(&world.islands, &first.rows, &context);
        clean += usize::from(rules(world, &first.rows).is_empty());
    }
    assert!(clean > worlds.len() / 2, "{clean} of {} are clean then", worlds.len());
}

#[test]
fn where_an_island_is_missing_nothing_is_taken_away() {
    let whole = World::new();
    for plant in plants() {
        for keep in 0..2 {
            let mut world = whole.clone();
            (plant.breaks)(&mut world);
            world.islands.remove(1 - keep);
            let first = planned(&whole, &world);
            let context = told(&format!("{}, island {keep} alone", plant.what), &first);
            assert_nothing_lost(&world.islands, &first.rows, &context);
            for (old, new) in world.islands.iter().zip(&first.rows) {
                for (ino, row) in files_of(old) {
                    assert!(new.inodes[ino].attr.nlink >= row.attr.nlink, "{context}");
                }
            }
            assert_eq!(told("", &again(&whole, &first)), ":", "{context}");
        }
    }
}

#[test]
fn what_a_transaction_is_about_is_left_to_it() {
    let whole = World::new();
    for half in [World::forget_foreign, World::forget_pointer] {
        for state in [TxnState::Prepared, TxnState::Committed] {
            let mut world = whole.clone();
            half(&mut world);
            assert_ne!(planned(&whole, &world).fixes, []);
            let work = world.count("also");
            world.begin(0, state, work);
            assert_eq!(planned(&whole, &world).fixes, []);
        }
    }
}

#[test]
fn an_empty_directory_is_made_again_only_if_the_plain_tree_shows_that_it_was_empty() {
    let whole = World::new();
    let mut world = whole.clone();
    // Nothing is left of it but its name.
    world.forget_foreign();
    world.islands[1].names.remove(&world.sub);
    world.islands[1].dirs.remove(&world.sub);
    world.islands[1].dirs.get_mut(&Ino::ROOT).unwrap().children = 0;
    for empty_dirs in [false, true] {
        let disks = Disks { empty_dirs, ..Disks::of(&whole) };
        let plan = plan(&world.volume, world.islands.clone(), &disks, Vec::new(), &options());
        let again = plan.rows[1].dirs.get(&world.sub).and_then(|dir| dir.owned.as_ref());
        assert_eq!(again.map(|owned| owned.entries), empty_dirs.then_some(0));
        assert_eq!(rules(&world, &plan.rows).contains(&Rule::DirThere), !empty_dirs);
    }
}

#[test]
fn names_that_lead_to_nothing_go_only_when_told_so_and_with_all_islands_there() {
    let whole = World::new();
    let forget = Options { forget: true, ..options() };
    for plant in plants().iter().filter(|plant| left(plant.what).contains(&Rule::FileThere)) {
        let mut world = whole.clone();
        (plant.breaks)(&mut world);
        let is_read = world.islands.iter().all(|rows| rows.bad.is_empty());
        let plan = plan(&world.volume, world.islands.clone(), &Disks::of(&whole), Vec::new(), &forget);
        assert_eq!(rules(&world, &plan.rows).contains(&Rule::FileThere), !is_read, "{}", plant.what);
        assert_nothing_lost(&world.islands, &plan.rows, plant.what);
    }
}

/// A body that no file has.
fn stray(island: IslandId, ino: Ino, size: u64) -> Stray {
    let attr = Attr { nlink: 0, ..file(ino, size).attr };
    Stray { island, attr, target: None, sums: vec![(0, vec![7, 8])] }
}

#[test]
fn bytes_without_a_file_are_found_again_under_their_names_or_in_lost_and_found() {
    let whole = World::new();
    // It has its names yet.
    let mut world = whole.clone();
    world.islands[0].inodes.remove(&world.in_root);
    let strays = vec![stray(HERE, world.in_root, 5000)];
    let plan_of = |world: &World, strays| {
        plan(&world.volume, world.islands.clone(), &Disks::of(&whole), strays, &options())
    };
    let plan = plan_of(&world, strays);
    assert_eq!(rules(&world, &plan.rows), BTreeSet::new(), "{}", told("", &plan));
    let attr = plan.rows[0].inodes[&world.in_root].attr;
    assert_eq!((attr.nlink, attr.size), (2, 5000));
    // It has none.
    for island in [HERE, THERE] {
        let ino = Ino::mint(island, 99);
        let plan = plan_of(&whole, vec![stray(island, ino, 5000)]);
        assert_eq!(rules(&whole, &plan.rows), BTreeSet::new(), "{}", told("", &plan));
        let found = atoll_check::paths(&plan.rows, &BTreeSet::from([ino]));
        assert_eq!(found[&ino], [format!("/lost+found/atoll-{:x}", ino.0)]);
        // Another one later goes to the same place.
        let next = Ino::mint(THERE, 100);
        let world = World { islands: plan.rows, ..whole.clone() };
        let plan = plan_of(&world, vec![stray(THERE, next, 1)]);
        assert_eq!(rules(&whole, &plan.rows), BTreeSet::new(), "{}", told("", &plan));
        let found = atoll_check::paths(&plan.rows, &BTreeSet::from([next]));
        assert_eq!(found[&next], [format!("/lost+found/atoll-{:x}", next.0)]);
    }
    // Somebody who is not here may have a name of it.
    let alone = World { islands: vec![whole.islands[0].clone()], ..whole.clone() };
    assert_eq!(plan_of(&alone, vec![stray(HERE, Ino::mint(HERE, 99), 1)]).fixes, []);
    // An id that this island cannot have minted tells of something else.
    assert_eq!(plan_of(&whole, vec![stray(HERE, Ino::mint(THERE, 99), 1)]).fixes, []);
}

#[test]
fn a_directory_is_made_before_its_name_is_there() {
    let whole = World::new();
    let plan = plan(
        &whole.volume,
        whole.islands.clone(),
        &Disks::of(&whole),
        vec![stray(HERE, Ino::mint(HERE, 99), 1)],
        &options(),
    );
    let named = plan.fixes.iter().position(|fix| fix.rule == Rule::DirNamed.name()).unwrap();
    assert!(plan.fixes[named].after_all);
    assert!(plan.fixes[..named].iter().any(|fix| fix.what.contains("lost+found is made")));
}

#[test]
fn what_is_kept_of_links_is_what_their_homes_tell() {
    let whole = World::with_link();
    for (rule, breaks) in common::broken_links() {
        let mut world = World::with_link();
        breaks(&mut world);
        let done = planned(&whole, &world);
        assert_eq!(rules(&world, &done.rows), BTreeSet::new(), "{}", told(rule.name(), &done));
        assert!(done.rows[1].inodes.contains_key(&common::LINK), "the link itself stays");
        assert_eq!(again(&whole, &done).fixes.len(), 0);
    }
}

#[test]
fn nothing_is_mended_of_a_site_of_a_wide_volume() {
    let whole = World::new();
    let mut site = Rows::new(HERE);
    site.take(&RowKey::Side(b'w', 7).to_bytes(), b"row");
    assert!(site.has_beside);
    for plant in plants() {
        let mut broken = World::new();
        (plant.breaks)(&mut broken);
        broken.islands[0].has_beside = true;
        let plan = planned(&whole, &broken);
        assert_eq!((plan.refused, plan.fixes.len()), (Some(broken.islands[0].island), 0), "{}", plant.what);
    }
    assert_eq!(planned(&whole, &whole).refused, None);
}
