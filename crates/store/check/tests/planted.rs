//! A whole state has nothing wrong, and each thing that is broken in it is found, by its rules alone.

mod common;

use std::collections::BTreeSet;

use atoll_check::{Rule, check};
use atoll_core::cookie_of;
use atoll_core::{Ino, SessionId, Stamp, Time};
use atoll_posix::{Caller, Kind, RenameMode};
use atoll_proto::{DirPlace, Entry, EntryRef, Inode, ParticipantWork, PlaceVersion, RenameSpec, TxnState};
use common::{AT_REST, HERE, LINK, SEED, World, broken_links, file, name, plants};

#[test]
fn a_whole_state_has_nothing_wrong() {
    let world = World::new();
    assert_eq!(check(&world.volume, &world.islands), []);
}

#[test]
fn a_rename_that_its_directory_has_not_heard_of_yet_is_nothing_wrong() {
    let mut world = World::new();
    let (_, called, entry) = &mut world.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0];
    *called = name("renamed");
    entry.stub.as_mut().unwrap().place = PlaceVersion { moves: 0, stamp: Stamp::new(1, 5) };
    let cookie = cookie_of(SEED, b"renamed");
    world.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].0 = cookie;
    // The island that renames it has it so in its own skeleton at once.
    let place = DirPlace {
        version: PlaceVersion { moves: 0, stamp: Stamp::new(1, 5) },
        parent: Ino::ROOT,
        name: Some(name("renamed")),
    };
    world.sub_at_home().place = place;
    assert_eq!(check(&world.volume, &world.islands), []);
}

#[test]
fn one_island_alone_is_not_blamed_for_what_others_know() {
    for keep in 0..2 {
        let mut world = World::new();
        world.islands.remove(1 - keep);
        assert_eq!(check(&world.volume, &world.islands), []);
    }
}

#[test]
fn what_is_broken_is_found_by_its_rules_and_no_others() {
    let mut never: BTreeSet<Rule> = Rule::ALL.iter().copied().collect();
    let mut others = Vec::new();
    for plant in plants() {
        let mut world = World::new();
        (plant.breaks)(&mut world);
        let finds: BTreeSet<Rule> = plant.finds.iter().copied().collect();
        let found = check(&world.volume, &world.islands);
        if world.rules() != finds {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            others.push(format!("{}: {finds:?}, but found {found:#?}", plant.what));
        }
        never.retain(|rule| !finds.contains(rule));
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    never.retain(|rule| !AT_REST.contains(rule));
    // These need a world of their own.
    never.retain(|rule| !broken_links().iter().any(|(planted, _)| planted == rule));
    never.remove(&Rule::CopiesAgree);
    assert_eq!(never, BTreeSet::new(), "nothing is planted for these rules");
}

#[test]
fn what_a_transaction_is_about_may_be_seen_half() {
    let renamed = |w: &World| ParticipantWork::MoveName {
        ino: w.in_root,
        from: w.entry_ref("before"),
        to: w.entry_ref("also"),
        by: None,
        had: true,
        time: Time::default(),
        chain: w.chain(),
    };
    let lend = |w: &World| ParticipantWork::BorrowName {
        renaming: Box::new(RenameSpec {
            from: EntryRef { dir: Ino::ROOT, name: name("before") },
            to: w.entry_ref("also"),
            file: Entry { ino: w.in_root, kind: Kind::Regular, home: HERE, stub: None },
            there: None,
            mode: RenameMode::Replace,
            by: None,
            time: Time::default(),
        }),
        caller: Caller::ROOT,
        new_meant: None,
        denied: None,
        chain: None,
        wants_chain: false,
        scope: None,
    };
    let dropped = |w: &World| ParticipantWork::RemoveName {
        ino: w.in_root,
        at: w.entry_ref("also"),
        by: None,
        had: true,
        time: Time::default(),
    };
    // Told at one of the two: the other is behind, or has lost it in a power cut.
    for half in [World::forget_foreign, World::forget_pointer] {
        for (island, state) in [
            (0, TxnState::Prepared),
            (0, TxnState::Committed),
            (1, TxnState::Prepared),
            (1, TxnState::Committed),
        ] {
            for work in [&|w: &World| w.count("also"), &renamed, &lend, &dropped]
                as [&dyn Fn(&World) -> ParticipantWork; 4]
            {
                let mut world = World::new();
                half(&mut world);
                assert!(!check(&world.volume, &world.islands).is_empty());
                let work = work(&world);
                world.begin(island, state, work);
                assert_eq!(check(&world.volume, &world.islands), [], "island {island}, {state:?}");
            }
        }
    }
    // What it is not about is as wrong as ever.
    for half in [World::forget_foreign, World::forget_pointer] {
        let mut world = World::new();
        half(&mut world);
        let other = ParticipantWork::RemoveName {
            ino: world.in_sub,
            at: world.entry_ref("file"),
            by: None,
            had: true,
            time: Time::default(),
        };
        world.begin(1, TxnState::Prepared, other);
        assert!(!world.rules().is_empty());
    }
}

#[test]
fn a_name_that_is_promised_counts_until_its_outcome_is_known() {
    for (state, wrong) in [(TxnState::Prepared, false), (TxnState::Committed, true)] {
        let mut world = World::new();
        world.sub_at_home().foreign_names = 2;
        let count = world.count("third");
        world.begin(0, state, count);
        assert_eq!(world.rules().contains(&Rule::HomesCounted), wrong, "{state:?}");
        // Never fewer than there are.
        world.sub_at_home().foreign_names = 0;
        assert!(world.rules().contains(&Rule::HomesCounted));
    }
    // Pinned for a name that is not there yet.
    let mut world = World::new();
    world.forget_foreign();
    world.forget_pointer();
    let mut pinned = world.islands[1].dirs[&world.sub].clone();
    (pinned.owned, pinned.foreign_names) = (None, 1);
    world.islands[0].dirs.insert(world.sub, pinned);
    world.islands[0].dirs.get_mut(&Ino::ROOT).unwrap().children = 1;
    assert_eq!(world.rules(), BTreeSet::from([Rule::HomesCounted]));
    let count = world.count("also");
    world.begin(0, TxnState::Prepared, count);
    assert_eq!(check(&world.volume, &world.islands), []);
}

#[test]
fn a_name_that_another_file_took_counts_until_its_loss_is_carried_out() {
    let mut world = World::new();
    let third = Ino::mint(HERE, 17);
    world.islands[0].inodes.insert(third, file(third, 0));
    (world.foreign().ino, world.pointer().ino) = (third, third);
    world.sub_at_home().foreign_names = 2;
    assert_eq!(world.rules(), BTreeSet::from([Rule::HomesCounted, Rule::LinksCounted]));
    let work = ParticipantWork::RemoveName {
        ino: world.in_root,
        at: world.entry_ref("also"),
        by: None,
        had: true,
        time: Time::default(),
    };
    world.begin(0, TxnState::Prepared, work);
    assert_eq!(check(&world.volume, &world.islands), []);
    world.islands[0].inodes.get_mut(&world.in_root).unwrap().attr.nlink = 0;
    assert!(world.rules().contains(&Rule::LinksCounted), "more names than it counts");
}

#[test]
fn a_file_that_moves_is_at_its_old_home_at_its_new_one_or_under_way() {
    let arrival = |w: &World| {
        let file = Box::new(file(w.in_root, 0));
        ParticipantWork::ReceiveFile { at: w.entry_ref("also"), file, xattrs: None, mounts: Vec::new() }
    };
    // Bytes of it are there already.
    let mut world = World::new();
    let mut half = file(world.in_root, 0);
    half.attr.nlink = 0;
    world.islands[1].inodes.insert(world.in_root, half);
    assert_eq!(world.rules(), BTreeSet::from([Rule::OrphanHeld]));
    let work = arrival(&world);
    world.begin(1, TxnState::Prepared, work);
    assert_eq!(check(&world.volume, &world.islands), []);
    // It has left, and has not arrived.
    world.forget_foreign();
    let work = arrival(&world);
    world.begin(0, TxnState::Committed, work);
    let rules: Vec<Rule> = check(&world.volume, &world.islands).into_iter().map(|f| f.rule).collect();
    assert!(!rules.contains(&Rule::FileThere) && !rules.contains(&Rule::NameAtHome), "{rules:?}");
}

#[test]
fn a_file_without_a_name_may_be_that_of_the_machine_beside_the_island() {
    let mut world = World::new();
    let ino = Ino::mint(HERE, 17);
    let mut row = file(ino, 9);
    row.attr.nlink = 0;
    row.beside = Some("state".into());
    world.islands[0].inodes.insert(ino, row.clone());
    world.islands[0].meta.mint_limit = 100;
    assert_eq!(check(&world.volume, &world.islands), []);
    // A client is said to have it, which it has not.
    let held = Inode { orphan_of: vec![SessionId(7)], ..row.clone() };
    world.islands[0].inodes.insert(ino, held);
    assert_eq!(world.rules(), BTreeSet::from([Rule::OrphanHeld]));
    world.islands[0].inodes.insert(ino, Inode { beside: None, ..row });
    assert_eq!(world.rules(), BTreeSet::from([Rule::OrphanHeld]));
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
    assert!(Rule::ALL.iter().all(|rule| !rule.text().is_empty()));
}

#[test]
fn files_and_directories_are_found_by_their_paths_and_what_leads_nowhere_has_none() {
    let mut world = World::new();
    let (sub, in_root, in_sub) = (world.sub, world.in_root, world.in_sub);
    let wanted = BTreeSet::from([Ino::ROOT, sub, in_root, in_sub, Ino::mint(HERE, 99)]);
    let paths = atoll_check::paths(&world.islands, &wanted);
    let called = world.islands[1].dirs[&sub].place.name.clone().unwrap();
    assert_eq!(paths[&Ino::ROOT], ["/"]);
    assert_eq!(paths[&sub], [format!("/{called}")]);
    let elsewhere = format!("/{called}/also");
    assert_eq!(paths[&in_root], ["/file".to_owned(), elsewhere]);
    assert_eq!(paths[&in_sub], [format!("/{called}/file")]);
    assert_eq!(paths.len(), 4);
    // A directory in itself has no path, and neither has what is in it.
    for island in &mut world.islands {
        island.dirs.get_mut(&sub).unwrap().place.parent = sub;
    }
    let paths = atoll_check::paths(&world.islands, &wanted);
    assert_eq!(paths.keys().copied().collect::<Vec<_>>(), [Ino::ROOT, in_root]);
}

#[test]
fn a_link_that_is_not_as_all_were_told_is_found() {
    let whole = World::with_link();
    assert_eq!(check(&whole.volume, &whole.islands), []);
    for (rule, breaks) in broken_links() {
        let mut world = World::with_link();
        breaks(&mut world);
        assert!(world.rules().contains(&rule), "{rule} was not found, only {:?}", world.rules());
    }
    let mut gone = World::with_link();
    gone.islands[1].inodes.remove(&LINK);
    assert!(gone.rules().contains(&Rule::LinkThere));
}

#[test]
fn a_link_of_which_not_all_have_heard_yet_is_nothing_wrong() {
    let mut world = World::with_link();
    world.islands[0].links.clear();
    world.islands[1].links_told.clear();
    assert_eq!(check(&world.volume, &world.islands), []);
    // After an unclean end the home looks at it again.
    let mut world = World::with_link();
    world.islands[1].meta.clean = false;
    world.link(1).names[0].name = name("before");
    assert_eq!(check(&world.volume, &world.islands), []);
}
