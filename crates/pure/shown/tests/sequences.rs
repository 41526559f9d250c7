//! Sequences that were found or thought of, by hand. Those that need a bug to fail are what `planted.rs` runs.

pub(crate) mod world;

use atoll_causal::FileId;
use atoll_model::Rng;
use atoll_shown::{DirGroup, Life, Objects};
use world::ops::At;
use world::{World, name};

/// So many sites with clocks that are right, none of which has anything.
fn sites(count: usize) -> World {
    World::new(count, 0, &mut Rng::new(1))
}

/// The paths that a site shows.
fn paths(world: &World, at: usize) -> Vec<String> {
    world.tree(at).into_keys().collect()
}

/// The number of the bytes at a path.
fn bytes(world: &World, at: usize, path: &str) -> Option<u64> {
    match world.tree(at).get(path) {
        Some(At::File { bytes, .. }) => Some(*bytes),
        Some(At::Dir | At::Away) | None => None,
    }
}

fn root() -> DirGroup {
    DirGroup::root()
}

#[test]
pub(crate) fn a_removed_directory_is_not_shown_for_a_child_that_the_removal_had_seen() {
    let mut world = sites(2);
    let dir = world.mkdir(0, &root(), &name("d"));
    let inside = world.group(0, "/d");
    let child = world.mkdir(0, &inside, &name("c"));
    world.exchange();
    world.rmdir(0, &inside, &name("c"));
    world.rmdir(0, &root(), &name("d"));
    // The directory's removal comes first.
    world.send_state(0, 1, dir);
    assert_eq!(world.sites[1].life(child), Life::Alive);
    assert_eq!(world.sites[1].life(dir), Life::Dead);
    assert_eq!(paths(&world, 1), [""; 0]);
    world.patch_all(1);
    world.rest();
    assert_eq!(paths(&world, 0), [""; 0]);
}

#[test]
fn whoever_knows_less_of_a_child_does_not_enter_it_anew() {
    let mut world = sites(2);
    let dir = world.mkdir(0, &root(), &name("d"));
    let inside = world.group(0, "/d");
    world.create(0, &inside, &name("f"), 1);
    world.exchange();
    world.unlink_shown(0, &inside, &name("f"));
    world.rmdir(0, &root(), &name("d"));
    world.send_state(0, 1, dir);
    let entries = |world: &World| world.sites[1].held.dirs[&dir].entries.len();
    assert_eq!(entries(&world), 0);
    // It asks, learns that the child is gone, and has nothing to mend.
    assert!(!world.patch_dir(1, dir));
    assert_eq!(entries(&world), 0);
    world.rest();
    assert_eq!(paths(&world, 1), [""; 0]);
}

#[test]
pub(crate) fn a_copy_that_was_removed_stays_removed_whoever_makes_it_again() {
    let mut world = sites(3);
    let file = world.create(0, &root(), &name("f"), 1);
    world.exchange();
    world.write(0, &root(), &name("f"), 2);
    world.write(1, &root(), &name("f"), 3);
    world.send_state(0, 1, file);
    world.settle(1, file);
    let copy = paths(&world, 1).into_iter().find(|path| path.contains('~')).expect("a copy");
    world.unlink_shown(1, &root(), &name(&copy[1..]));
    // A third site sees the two versions, and not that they were settled.
    world.send_state(0, 2, file);
    world.send_change(1, 2, 0);
    assert!(world.settle(2, file));
    world.rest();
    assert_eq!(paths(&world, 0), ["/f"]);
    assert_eq!((paths(&world, 1), paths(&world, 2)), (paths(&world, 0), paths(&world, 0)));
}

#[test]
pub(crate) fn a_file_that_a_removal_had_not_seen_where_it_is_now_makes_its_directory_shown() {
    let mut world = sites(3);
    let dir = world.mkdir(0, &root(), &name("d"));
    let inside = world.group(0, "/d");
    world.create(0, &inside, &name("f"), 1);
    world.exchange();
    // Two renames that do not know of each other; the later one is seen by whoever unlinks the file.
    world.rename(0, (&inside, &name("f")), (&inside, &name("g")));
    world.rename(1, (&inside, &name("f")), (&inside, &name("h")));
    world.send_state(1, 2, dir);
    let file = *world.sites[1].held.files.keys().next().expect("a file");
    world.send_state(1, 2, file);
    world.unlink_shown(2, &inside, &name("h"));
    world.send_state(0, 2, dir);
    // The directory has an entry of the earlier rename. The file is not known to be there, so the directory is empty.
    assert!(world.rmdir(2, &root(), &name("d")));
    world.rest();
    assert_eq!(bytes(&world, 0, "/d/g"), Some(1), "{:?}", world.tree(0));
    assert_eq!(world.tree(0), world.tree(2));
}

#[test]
pub(crate) fn a_file_does_not_go_for_its_twin_before_all_know_of_both() {
    let mut world = sites(3);
    let first = world.create(0, &root(), &name("x"), 1);
    let second = world.create(1, &root(), &name("x"), 1);
    // The third site shows them as one.
    world.send_state(0, 2, FileId::ROOT);
    world.send_state(1, 2, FileId::ROOT);
    world.send_state(0, 2, first);
    world.send_state(1, 2, second);
    assert_eq!(paths(&world, 2), ["/x"]);
    let cleaned = world.clean(2, &root(), &name("x"));
    // One of the others removes what it made, without knowing of the other file.
    world.unlink_shown(1, &root(), &name("x"));
    world.rest();
    assert_eq!(paths(&world, 0), ["/x"], "cleaned: {cleaned}");
    // Behind a cut it goes, and nobody sees that.
    let twins = [world.create(0, &root(), &name("y"), 2), world.create(1, &root(), &name("y"), 2)];
    world.exchange_and_cut();
    assert!(world.clean(2, &root(), &name("y")));
    world.rest();
    assert_eq!(paths(&world, 0), ["/x", "/y"]);
    assert_eq!(twins.iter().filter(|id| world.places(0, **id).is_empty()).count(), 1);
}

#[test]
pub(crate) fn an_edit_that_a_removal_had_not_seen_survives_it() {
    let mut world = sites(2);
    world.create(0, &root(), &name("f"), 1);
    world.exchange();
    world.unlink_shown(0, &root(), &name("f"));
    world.write(1, &root(), &name("f"), 2);
    world.rest();
    assert_eq!(bytes(&world, 0, "/f"), Some(2));
}

#[test]
fn versions_with_equal_bytes_each_keep_the_file() {
    let mut world = sites(3);
    let file = world.create(0, &root(), &name("f"), 1);
    world.exchange();
    world.write(0, &root(), &name("f"), 2);
    world.write(1, &root(), &name("f"), 2);
    world.send_state(0, 2, file);
    world.send_state(1, 2, file);
    assert!(!world.settle(2, file));
    // Whoever removes the file has seen one of the two.
    world.unlink_shown(0, &root(), &name("f"));
    world.rest();
    assert_eq!(bytes(&world, 2, "/f"), Some(2));
}

#[test]
fn a_rescued_file_that_is_used_keeps_its_bytes_wherever_it_was_settled() {
    let mut world = sites(4);
    let file = world.create(0, &root(), &name("f"), 1);
    world.exchange();
    // Two versions: the later one is seen by a removal, the other one is not.
    world.write(1, &root(), &name("f"), 3);
    world.write(0, &root(), &name("f"), 2);
    world.send_state(0, 2, file);
    world.unlink_shown(2, &root(), &name("f"));
    world.send_state(1, 2, file);
    assert_eq!(bytes(&world, 2, "/f"), Some(3));
    // There the file is renamed, and so it gets a link. Elsewhere it has its old link, and both versions.
    world.rename(2, (&root(), &name("f")), (&root(), &name("g")));
    world.rename(0, (&root(), &name("f")), (&root(), &name("h")));
    world.send_state(0, 3, file);
    world.send_state(1, 3, file);
    world.send_state(0, 3, FileId::ROOT);
    world.settle(3, file);
    world.rest();
    let all: Vec<_> = paths(&world, 0).iter().filter_map(|path| bytes(&world, 0, path)).collect();
    assert!(all.contains(&3), "{:?}", world.tree(0));
    assert_eq!(world.tree(0), world.tree(1));
}

#[test]
fn a_version_goes_only_for_a_later_one() {
    let mut world = sites(4);
    // The clock of the first site is ahead by an hour.
    world.sites[0].skew_us = 3_600_000_000;
    let file = world.create(1, &root(), &name("f"), 1);
    world.exchange();
    world.write(0, &root(), &name("f"), 3);
    world.send_state(0, 2, file);
    world.unlink_shown(0, &root(), &name("f"));
    world.write(1, &root(), &name("f"), 4);
    world.send_state(1, 0, file);
    world.write(1, &root(), &name("f"), 5);
    world.send_state(1, 3, file);
    // There the last version loses against that of the first site, which is removed.
    world.send_state(2, 1, file);
    assert!(world.settle(1, file));
    // Here the file is rescued by the version before, and is used. Then it hears of the last one.
    world.rename(0, (&root(), &name("f")), (&root(), &name("g")));
    world.send_state(3, 0, file);
    assert!(world.settle(0, file));
    world.rest();
    let mut all: Vec<_> = paths(&world, 2).iter().filter_map(|path| bytes(&world, 2, path)).collect();
    all.sort_unstable();
    assert!(all.contains(&4) && all.contains(&5), "{:?}", world.tree(2));
}

#[test]
fn two_names_that_two_sites_remove_leave_nothing_and_an_edit_is_rescued() {
    for is_edited in [false, true] {
        let mut world = sites(3);
        world.create(0, &root(), &name("f"), 1);
        world.link(0, (&root(), &name("f")), (&root(), &name("g")));
        world.exchange();
        world.unlink_shown(0, &root(), &name("f"));
        world.unlink_shown(1, &root(), &name("g"));
        if is_edited {
            world.write(2, &root(), &name("f"), 2);
        }
        world.rest();
        let left: Vec<Option<u64>> = paths(&world, 0).iter().map(|path| bytes(&world, 0, path)).collect();
        assert_eq!(left, if is_edited { vec![Some(2)] } else { vec![] }, "{:?}", world.tree(0));
    }
}

#[test]
fn five_writers_make_at_most_four_copies_and_those_that_are_removed_stay_removed() {
    let mut world = sites(5);
    let file = world.create(0, &root(), &name("f"), 0);
    world.exchange();
    (0..5).for_each(|at| world.write(at, &root(), &name("f"), at as u64 + 1));
    // They see each other in different orders, and settle what they see.
    for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 3), (1, 4), (2, 0), (3, 1), (4, 2)] {
        world.send_state(from, to, file);
        world.settle(to, file);
    }
    // Two remove the copies that they see.
    for at in [1, 4] {
        let copies: Vec<String> = paths(&world, at).into_iter().filter(|path| path.contains('~')).collect();
        copies.iter().for_each(|path| world.unlink_shown(at, &root(), &name(&path[1..])));
    }
    let seen: Vec<FileId> = world.unlinked.iter().map(|(id, _)| *id).collect();
    world.rest();
    assert!(!seen.is_empty());
    assert!(world.copies.len() <= 4, "{:?}", world.copies);
    assert!(seen.iter().all(|id| world.places(2, *id).is_empty()));
    assert!((1..5).all(|at| world.tree(at) == world.tree(0)));
}

#[test]
fn the_oldest_copies_go_when_there_are_too_many() {
    let mut world = sites(3);
    let file = world.create(0, &root(), &name("f"), 0);
    world.exchange();
    for nth in 0..2 * atoll_shown::COPIES_MAX as u64 {
        world.write(1, &root(), &name("f"), 100 + nth);
        world.write(0, &root(), &name("f"), 200 + nth);
        world.exchange();
        world.settle(0, file);
        world.exchange();
        let copies: Vec<u64> = paths(&world, 2)
            .iter()
            .filter(|path| path.contains('~'))
            .filter_map(|path| bytes(&world, 2, path))
            .collect();
        let left: Vec<u64> = (0..=nth).rev().take(atoll_shown::COPIES_MAX).map(|nth| 100 + nth).collect();
        assert_eq!(std::collections::BTreeSet::from_iter(copies), left.into_iter().collect());
    }
}

#[test]
fn a_revived_tree_can_be_removed_as_it_is_seen() {
    let mut world = sites(2);
    for path in ["", "/d", "/d/a"] {
        let group = world.group(0, path);
        world.mkdir(0, &group, &name(["d", "a", "b"][path.matches('/').count()]));
    }
    world.exchange();
    let at = |world: &World, site: usize, path: &str| world.group(site, path);
    let (d, a, b) = (at(&world, 0, "/d"), at(&world, 0, "/d/a"), at(&world, 0, "/d/a/b"));
    world.rmdir(0, &a, &name("b"));
    world.rmdir(0, &d, &name("a"));
    world.rmdir(0, &root(), &name("d"));
    world.create(1, &b, &name("f"), 1);
    world.rest();
    assert_eq!(paths(&world, 0), ["/d", "/d/a", "/d/a/b", "/d/a/b/f"]);
    world.unlink_shown(0, &b, &name("f"));
    assert_eq!(paths(&world, 0), ["/d", "/d/a", "/d/a/b"]);
    world.exchange();
    assert!(
        world.rmdir(1, &a, &name("b"))
            && world.rmdir(1, &d, &name("a"))
            && world.rmdir(1, &root(), &name("d"))
    );
    world.rest();
    assert_eq!((paths(&world, 0), paths(&world, 1)), (vec![], vec![]));
}

#[test]
fn directories_of_one_name_are_one_until_one_of_them_was_renamed_apart() {
    let filled = || {
        let mut world = sites(2);
        for (at, file) in [(0, "x"), (1, "y")] {
            world.mkdir(at, &root(), &name("d"));
            let group = world.group(at, "/d");
            world.create(at, &group, &name(file), at as u64);
        }
        world
    };
    let apart =
        |world: &mut World| assert!(world.rename_dir(1, (&root(), &name("d")), (&root(), &name("e"))));
    let mut before = filled();
    apart(&mut before);
    before.rest();
    assert_eq!(paths(&before, 0), ["/d", "/d/x", "/e", "/e/y"]);
    // Renamed after they met, they move together.
    let mut after = filled();
    after.rest();
    assert_eq!(paths(&after, 0), ["/d", "/d/x", "/d/y"]);
    apart(&mut after);
    after.rest();
    assert_eq!(paths(&after, 0), ["/e", "/e/x", "/e/y"]);
}
