//! Copies that conflicts make of one file, by sequences: how many stay, which go, and that nothing is lost.

mod bytes;
mod site;

use std::collections::BTreeSet;

use atoll_core::Ino;
use atoll_posix::{Op, RenameMode};
use atoll_shown::COPIES_MAX;
use bytes::World;
use site::named;

/// Two sites change the file `a` without knowing of each other, the second one later.
fn quarrel(world: &mut World, (one, other): (usize, usize), nth: usize) {
    world.link(one.min(other), one.max(other), false);
    world.put(one, "a", format!("{one} in {nth}").as_bytes());
    world.passes(10);
    // The clock of each site goes on with what its users do.
    (0..4).for_each(|_| world.put(other, "b", format!("{nth}").as_bytes()));
    world.put(other, "a", format!("{other} in {nth}").as_bytes());
    world.passes(10);
    world.link(one.min(other), one.max(other), true);
    world.rest_of(&[one, other]);
}

fn copies(world: &mut World, at: usize) -> BTreeSet<String> {
    let files = world.files(at).into_iter().filter(|(name, _)| name.starts_with("a.~"));
    files.map(|(_, bytes)| String::from_utf8(bytes).expect("a text")).collect()
}

fn resting(world: &mut World, at: usize) -> BTreeSet<String> {
    let rests = world.rests(at).into_iter().filter(|(path, _)| path.starts_with("/a.~"));
    rests.map(|(_, bytes)| String::from_utf8(bytes).expect("a text")).collect()
}

fn texts(site: usize, which: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    which.into_iter().map(|nth| format!("{site} in {nth}")).collect()
}

#[test]
fn the_oldest_of_too_many_copies_rests_at_all_sites() {
    let mut world = World::new(2);
    world.put(0, "a", b"at first");
    world.rest();
    (0..COPIES_MAX + 3).for_each(|nth| quarrel(&mut world, (0, 1), nth));
    world.rest();
    for at in 0..2 {
        assert_eq!(copies(&mut world, at), texts(0, 3..COPIES_MAX + 3));
        assert_eq!(resting(&mut world, at), texts(0, 0..3));
    }
    assert_eq!(world.files(0), world.files(1));
    // Nothing more is decided for it, when the last is acknowledged.
    world.passes(20);
    let decided = world.sites[0].records;
    world.passes(20);
    assert_eq!(world.sites[0].records, decided);
}

#[test]
fn a_copy_that_somebody_has_used_counts_no_more_and_stays() {
    let mut world = World::new(2);
    world.put(0, "a", b"at first");
    world.rest();
    (0..COPIES_MAX).for_each(|nth| quarrel(&mut world, (0, 1), nth));
    let of = |world: &mut World, text: &str| {
        let files = world.files(1).into_iter().find(|(_, bytes)| bytes == text.as_bytes());
        files.expect("the copy is there").0
    };
    let (dir, new_dir, name) = (Ino::ROOT, Ino::ROOT, named(&of(&mut world, "0 in 0")));
    let (new_name, mode, meant, new_meant) = (named("mine"), RenameMode::Replace, None, None);
    let op = Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant };
    world.run(1, op, b"").expect("it is renamed");
    let name = of(&mut world, "0 in 1");
    world.put(1, &name, b"changed");
    world.rest();
    (COPIES_MAX..COPIES_MAX + 3).for_each(|nth| quarrel(&mut world, (0, 1), nth));
    world.rest();
    for at in 0..2 {
        let files = world.files(at);
        assert_eq!(files["mine"], b"0 in 0");
        assert_eq!(files[&name], b"changed");
        assert_eq!(resting(&mut world, at), texts(0, 2..3).into_iter().chain(changed(at)).collect());
        let mut left = texts(0, 3..COPIES_MAX + 3);
        left.insert("changed".to_owned());
        assert_eq!(copies(&mut world, at), left);
    }
}

#[test]
fn a_file_in_which_somebody_goes_on_who_has_it_open_is_no_copy_of_a_conflict() {
    let mut world = World::new(2);
    world.put(0, "a", b"at first");
    world.rest();
    (0..COPIES_MAX).for_each(|nth| quarrel(&mut world, (0, 1), nth));
    world.rest();
    let open = world.find(0, "a");
    world.put(1, "a", b"replaced");
    world.rest();
    // The other site hears of the file before it has bytes.
    world.write(0, open, 0, b"by who has it open");
    world.rest();
    let mut wanted = texts(0, 0..COPIES_MAX);
    wanted.insert("by who has it open".to_owned());
    for at in 0..2 {
        assert_eq!(copies(&mut world, at), wanted, "site {at}");
    }
}

/// What site 1 has written over rests at the other one.
fn changed(at: usize) -> BTreeSet<String> {
    if at == 0 { texts(0, 1..2) } else { BTreeSet::new() }
}

#[test]
fn sites_that_let_copies_go_without_knowing_of_each_others_keep_the_same() {
    let mut world = World::new(4);
    world.put(0, "a", b"at first");
    world.rest();
    let between = |world: &mut World, up| {
        [(0, 2), (0, 3), (1, 2), (1, 3)].into_iter().for_each(|(one, other)| world.link(one, other, up));
    };
    between(&mut world, false);
    (0..COPIES_MAX - 2).for_each(|nth| quarrel(&mut world, (0, 1), nth));
    between(&mut world, true);
    world.rest();
    between(&mut world, false);
    (20..24).for_each(|nth| quarrel(&mut world, (0, 1), nth));
    (30..34).for_each(|nth| quarrel(&mut world, (2, 3), nth));
    assert_eq!((copies(&mut world, 0).len(), copies(&mut world, 2).len()), (COPIES_MAX, COPIES_MAX));
    between(&mut world, true);
    world.rest();
    let all: BTreeSet<String> = texts(0, (0..COPIES_MAX - 2).chain(20..24))
        .into_iter()
        .chain(texts(2, 30..34))
        .chain(["1 in 23".to_owned(), "3 in 33".to_owned()])
        .collect();
    let kept = copies(&mut world, 0);
    assert_eq!(kept.len(), COPIES_MAX);
    for at in 0..4 {
        assert_eq!(copies(&mut world, at), kept, "site {at}");
        let mut there = resting(&mut world, at);
        there.extend(kept.iter().cloned());
        there.extend(world.files(at).into_values().map(|bytes| String::from_utf8(bytes).unwrap()));
        assert!(all.is_subset(&there), "site {at} has only {there:?}");
    }
}
