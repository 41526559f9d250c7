//! Files that may not go yet, since somebody writes to them: all else that comes does not wait for them.

mod bytes;
mod site;

use atoll_core::Ino;
use atoll_posix::{Answer, Kind, Op, SetAttr};
use atoll_proto::Outcome;
use bytes::World;
use site::named;

const fn write(ino: Ino) -> Op {
    Op::Write { ino, offset: 0, append: false, kill_set_id: false }
}

fn unlink(world: &mut World, at: usize, name: &str) {
    world.run(at, Op::Unlink { dir: Ino::ROOT, name: named(name) }, b"").expect("it is removed");
}

/// The names in the root of a site.
fn names(world: &World, at: usize) -> Vec<String> {
    let entries = world.sites[at].state().entries_after(Ino::ROOT, 0).expect("all are in memory").0;
    entries.map(|(_, name, _)| String::from_utf8(name.as_bytes().to_vec()).expect("it is text")).collect()
}

#[test]
fn while_somebody_writes_to_a_file_that_is_to_go_all_else_comes() {
    let mut world = World::new(2);
    world.put(0, "a", b"at first");
    world.rest();
    let ino = world.find(0, "a");
    // More than a record carries: it is put in place before it is decided.
    let begun = world.sites[0].begins(write(ino), vec![7; 100_000]);
    unlink(&mut world, 1, "a");
    world.put(1, "b", b"something else");
    world.put(1, "a", b"another one");
    for nth in 0..20 {
        world.create(1, &format!("c{nth}"));
    }
    world.passes(20);
    let there = names(&world, 0);
    assert!(there.iter().any(|name| name == "b") && there.iter().any(|name| name == "c19"), "{there:?}");
    let links = world.sites[0].state().inode(ino).expect("it is in memory").map(|row| row.attr.nlink);
    assert_eq!(links, Some(1), "it is there still");
    let done = world.sites[0].ends(begun);
    assert!(matches!(done, Outcome::Ok { .. }), "{done:?}");
    world.rest();
    let files = world.files(1);
    assert_eq!(files.len(), 23, "{:?}", files.keys());
    assert!(files.values().any(|bytes| *bytes == [7; 100_000]), "what was written is there");
    assert!(files.values().any(|bytes| bytes == b"another one"));
    assert_eq!(files, world.files(0));
}

/// Two directories of different names have equal files. Each site gives one of them the same new name: then they are shown as one directory,
/// and the files as one file.
#[test]
fn while_somebody_writes_to_a_file_that_a_directory_would_bring_together_with_another_all_else_comes() {
    let mut world = World::new(2);
    for (nth, dir) in ["x", "y"].into_iter().enumerate() {
        let dir = world.sites[0].mkdir(Ino::ROOT, dir);
        let file = world.sites[0].create(dir, "f", Kind::Regular, b"");
        world.write(0, file, 0, b"the same");
        world.sites[0].mkdir(Ino::ROOT, &format!("d{nth}"));
    }
    world.rest();
    world.rename(0, "y", "z");
    let (dir, name) = (world.find(0, "z"), named("f"));
    let (found, _) = world.run(0, Op::Lookup { dir, name }, b"").expect("it is there");
    let Answer::Found { found } = found else { panic!("{found:?}") };
    let begun = world.sites[0].begins(write(found.attr.ino), vec![7; 100_000]);
    world.rename(1, "x", "z");
    world.rename(1, "d0", "e0");
    world.put(1, "b", b"something else");
    world.rename(1, "d1", "e1");
    world.passes(20);
    let there = names(&world, 0);
    let has = |name: &str| there.iter().any(|there| there == name);
    assert!(has("b") && has("e0") && has("e1") && has("x"), "{there:?}");
    let done = world.sites[0].ends(begun);
    assert!(matches!(done, Outcome::Ok { .. }), "{done:?}");
    world.rest();
    let names = names(&world, 1);
    assert_eq!(names, self::names(&world, 0));
    assert!(!names.iter().any(|name| name == "x"), "{names:?}");
}

#[test]
fn what_waits_for_a_file_comes_by_another_site_too_and_with_what_was_done_to_it_before() {
    let mut world = World::new(3);
    world.link(0, 1, false);
    world.put(0, "a", b"at first");
    world.rest();
    let ino = world.find(0, "a");
    let begun = world.sites[0].begins(write(ino), vec![7; 100_000]);
    let there = world.find(1, "a");
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.run(1, Op::SetAttr { ino: there, set }, b"").expect("it is done");
    unlink(&mut world, 1, "a");
    world.put(1, "b", b"something else");
    world.passes(40);
    assert!(names(&world, 0).iter().any(|name| name == "b"));
    let done = world.sites[0].ends(begun);
    assert!(matches!(done, Outcome::Ok { .. }), "{done:?}");
    world.rest();
    world.all_have(&[("a", &[7; 100_000]), ("b", b"something else")]);
    let mode = world.sites[0].state().inode(ino).expect("it is in memory").map(|row| row.attr.mode);
    assert_eq!(mode, Some(0o600));
}
