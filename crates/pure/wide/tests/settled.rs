//! Conflicts that are settled without a file beside a name, by sequences: each site remembers each once, and tells it when it is asked.

mod bytes;
mod site;

use atoll_causal::Writer;
use atoll_core::Ino;
use atoll_posix::{Answer, Op, RenameMode};
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::peers::Window;
use atoll_wide::rows::SettledHow;
use bytes::World;
use site::{named, opened_with};

const KEPT: SettledHow = SettledHow::Kept {};
const REVIVED: SettledHow = SettledHow::Revived {};
const RENAMED: SettledHow = SettledHow::Renamed {};
const NOT_MOVED: SettledHow = SettledHow::NotMoved {};

/// A path, how, and by whose changes: the first site's is 1.
type Told = (String, SettledHow, Option<u64>, Option<u64>);

/// Two sites that have the same, and have no link now. The third one is away.
fn apart(before: impl Fn(&mut World)) -> World {
    let mut world = World::new(2);
    before(&mut world);
    world.rest();
    world.link(0, 1, false);
    world
}

/// They meet. What each remembers.
fn met(mut world: World) -> [Vec<Told>; 2] {
    world.passes(10);
    world.link(0, 1, true);
    world.rest();
    [0, 1].map(|at| log(&mut world, at))
}

fn log(world: &mut World, at: usize) -> Vec<Told> {
    let SiteAnswers::Settled { entries, next: None } = world.ask(at, &SiteAsks::Settled { from: 0 }) else {
        panic!("another answer");
    };
    let number = |writer: Option<Writer>| writer.map(|writer| writer.0);
    let told = entries.into_iter().map(|entry| entry.settled);
    told.map(|one| {
        let path = String::from_utf8(one.path.to_vec()).unwrap();
        (path, one.how, number(one.kept), number(one.other))
    })
    .collect()
}

fn both(told: &[(&str, SettledHow, Option<u64>, Option<u64>)]) -> [Vec<Told>; 2] {
    let all: Vec<Told> =
        told.iter().map(|(path, how, kept, other)| ((*path).to_owned(), *how, *kept, *other)).collect();
    [all.clone(), all]
}

fn rename(world: &mut World, at: usize, (dir, name): (Ino, &str), (new_dir, new_name): (Ino, &str)) {
    let (name, new_name, mode) = (named(name), named(new_name), RenameMode::Replace);
    let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
    world.run(at, op, b"").expect("it is renamed");
}

#[test]
fn a_file_that_one_site_removed_and_the_other_one_changed_is_told_at_both() {
    let mut world = apart(|world| world.put(0, "a", b"at first"));
    world.put(0, "a", b"by site 0");
    world.unlink(1, "a");
    assert_eq!(met(world), both(&[("/a", KEPT, Some(1), Some(2))]));
}

#[test]
fn it_is_told_once_and_behind_a_restart_too() {
    let mut world = apart(|world| world.put(0, "a", b"at first"));
    world.put(0, "a", b"by site 0");
    world.unlink(1, "a");
    world.passes(10);
    world.link(0, 1, true);
    world.rest();
    // Another version of a file that is rescued is no other conflict.
    world.link(0, 1, false);
    world.put(1, "b", b"b");
    world.link(0, 1, true);
    world.rest();
    world.link(0, 1, false);
    for at in 0..2 {
        let site = &world.sites[at];
        let rows: Vec<_> =
            site.sides().iter().map(|((table, key), row)| (*table, *key, row.clone())).collect();
        let again = opened_with(Writer(1 + at as u64), site.state().seq(), (Window::MOST, 1 << 20), rows);
        world.sites[at].set_beside(again.expect("these are its rows"));
        assert_eq!(log(&mut world, at), both(&[("/a", KEPT, Some(1), Some(2))])[0]);
    }
}

#[test]
fn of_directories_that_one_site_removed_and_the_other_one_used_each_record_tells_the_topmost() {
    let mut world = apart(|world| {
        let dir = world.sites[0].mkdir(Ino::ROOT, "d");
        world.sites[0].mkdir(dir, "e");
    });
    let [dir, inside] = in_d(&mut world, 0);
    assert_ne!(dir, inside);
    world.sites[0].mkdir(inside, "new");
    let [dir, _] = in_d(&mut world, 1);
    world.run(1, Op::Rmdir { dir, name: named("e"), meant: None }, b"").expect("it is removed");
    world.run(1, Op::Rmdir { dir: Ino::ROOT, name: named("d"), meant: None }, b"").expect("it is removed");
    // The first site hears of two removals, and the other one of what was made.
    let [first, second] = met(world);
    let revived = |path: &str| (path.to_owned(), REVIVED, None, None);
    assert_eq!((first, second), (vec![revived("/d/e"), revived("/d")], vec![revived("/d")]));
}

/// The directories `d` and `d/e` of a site.
fn in_d(world: &mut World, at: usize) -> [Ino; 2] {
    let dir = world.find(at, "d");
    let found = world.run(at, Op::Lookup { dir, name: named("e") }, b"");
    let Ok((Answer::Found { found }, _)) = found else { panic!("{found:?}") };
    [dir, found.attr.ino]
}

#[test]
fn a_file_that_both_have_renamed_is_told_at_both() {
    let mut world = apart(|world| world.put(0, "a", b"at first"));
    world.rename(0, "a", "b");
    world.put(1, "d", b"later");
    world.rename(1, "a", "c");
    assert_eq!(met(world), both(&[("/c", RENAMED, Some(2), Some(1))]));
}

#[test]
fn a_move_that_has_no_effect_is_told_at_both() {
    let mut world = apart(|world| {
        world.sites[0].mkdir(Ino::ROOT, "a");
        world.sites[0].mkdir(Ino::ROOT, "b");
    });
    let to = world.find(0, "b");
    rename(&mut world, 0, (Ino::ROOT, "a"), (to, "a"));
    world.put(1, "c", b"later");
    let to = world.find(1, "a");
    rename(&mut world, 1, (Ino::ROOT, "b"), (to, "b"));
    assert_eq!(met(world), both(&[("/b", NOT_MOVED, Some(1), Some(2))]));
}

#[test]
fn what_one_site_does_alone_and_what_is_beside_a_name_is_not_told() {
    let mut world = apart(|world| world.put(0, "a", b"at first"));
    world.put(0, "a", b"by site 0");
    world.put(1, "a", b"by site 1");
    world.put(1, "b", b"b");
    world.rename(1, "b", "c");
    world.unlink(1, "c");
    assert_eq!(met(world), both(&[]));
}
