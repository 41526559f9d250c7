//! Objects that have lost their last name and are known to a frontend: nothing is made in a directory, and nothing else gets their
//! numbers. And numbers that stay: what a frontend has forgotten has the same one when it is found again.

mod common;

use std::sync::Arc;

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Errno, Kind, Op, RenameMode};
use atoll_union::Settings;
use bytes::Bytes;
use common::{Direct, create, ino, lookup, mkdir, moment, name, opened, run, tree};

fn world(members: u16) -> (Arc<Federation>, Vec<Arc<SimTree>>) {
    let trees: Vec<Arc<SimTree>> = (1..=members).map(|n| Arc::new(tree(n))).collect();
    (Federation::stepped(Settings::default(), opened(&trees), moment(0)), trees)
}

fn made(union: &Federation, op: Op) -> Ino {
    ino(run(union, op, b"")).unwrap()
}

fn rename(from: (Ino, &str), to: (Ino, &str)) -> Op {
    let (dir, new_dir) = (from.0, to.0);
    let (name, new_name, mode) = (name(from.1), name(to.1), RenameMode::Replace);
    Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
}

fn rmdir(dir: Ino, text: &str) -> Op {
    Op::Rmdir { dir, name: name(text), meant: None }
}

fn symlink(dir: Ino, text: &str) -> Op {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Symlink, 0o777, 0, 0, true);
    let target = Bytes::from_static(b"target");
    Op::Create { dir, name: name(text), kind, mode, umask, rdev, exclusive, target }
}

fn listed(union: &Federation, dir: Ino) -> Vec<(String, Ino)> {
    match run(union, Op::ReadDir { dir, after: 0, bytes: 65_536, plus: false }, b"").unwrap().answer {
        Answer::Entries { entries, eof: true } => {
            entries.iter().map(|entry| (entry.name.to_string(), entry.ino)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// A directory that is gone refuses each of these names, in whichever member they would be.
fn takes_no_name(union: &Federation, dir: Ino) {
    let file = made(union, create(Ino::ROOT, "other"));
    for n in 0..16 {
        let text = format!("n{n}");
        let link = Op::Link { ino: file, dir, name: name(&text) };
        let moves = rename((Ino::ROOT, "other"), (dir, &text));
        let tmpfile = Op::Tmpfile { dir, mode: 0o644, umask: 0 };
        for op in [mkdir(dir, &text), create(dir, &text), link, moves, tmpfile] {
            assert_eq!(run(union, op.clone(), b"").err(), Some(Errno::ENOENT), "{op:?}");
        }
        assert_eq!(run(union, lookup(dir, &text), b"").err(), Some(Errno::ENOENT));
    }
    assert_eq!(listed(union, dir), []);
    let Answer::Attr { attr } = run(union, Op::GetAttr { ino: dir }, b"").unwrap().answer else { panic!() };
    assert_eq!(attr.nlink, 0);
}

#[test]
fn a_directory_that_a_rename_has_replaced_takes_no_name() {
    let (union, trees) = world(2);
    let old = made(&union, mkdir(Ino::ROOT, "d"));
    let new = made(&union, mkdir(Ino::ROOT, "e"));
    run(&union, rename((Ino::ROOT, "e"), (Ino::ROOT, "d")), b"").unwrap();
    takes_no_name(&union, old);
    assert_eq!(listed(&union, new), []);
    assert_eq!(trees.iter().filter(|tree| Direct(tree).has("d")).count(), 1);
}

#[test]
fn a_directory_of_several_members_that_a_rename_has_replaced_takes_no_name() {
    let (union, trees) = world(2);
    trees.iter().for_each(|tree| Direct(tree).mkdir("d"));
    let old = made(&union, lookup(Ino::ROOT, "d"));
    let new = made(&union, mkdir(Ino::ROOT, "e"));
    run(&union, rename((Ino::ROOT, "e"), (Ino::ROOT, "d")), b"").unwrap();
    takes_no_name(&union, old);
    assert_eq!(made(&union, lookup(Ino::ROOT, "d")), new);
}

#[test]
fn a_directory_that_is_removed_takes_no_name_and_keeps_its_number() {
    let (union, _trees) = world(2);
    let old = made(&union, mkdir(Ino::ROOT, "d"));
    run(&union, rmdir(Ino::ROOT, "d"), b"").unwrap();
    takes_no_name(&union, old);
    let others: Vec<Ino> = (0..16).map(|n| made(&union, mkdir(Ino::ROOT, &format!("n{n}")))).collect();
    assert!(!others.contains(&old));
    // It goes with the frontend that knows it.
    union.forget(&[old]);
    assert_eq!(run(&union, Op::GetAttr { ino: old }, b""), Err(Errno::ESTALE));
}

#[test]
fn a_directory_that_a_program_has_removed_is_not_made_again() {
    let (union, trees) = world(2);
    let old = made(&union, mkdir(Ino::ROOT, "d"));
    let at = trees.iter().find(|tree| Direct(tree).has("d")).unwrap();
    Direct(at).rmdir("d");
    for n in 0..16 {
        run(&union, mkdir(old, &format!("n{n}")), b"").unwrap_err();
    }
    assert!(trees.iter().all(|tree| !Direct(tree).has("d")));
}

#[test]
fn what_is_removed_keeps_its_number_as_long_as_a_frontend_knows_it() {
    let (union, _trees) = world(1);
    let link = made(&union, symlink(Ino::ROOT, "link"));
    run(&union, Op::Unlink { dir: Ino::ROOT, name: name("link") }, b"").unwrap();
    let dir = made(&union, mkdir(Ino::ROOT, "d"));
    assert_ne!(dir, link);
    assert_eq!(run(&union, Op::Readlink { ino: link }, b"").unwrap().bytes, &b"target"[..]);
    run(&union, rmdir(Ino::ROOT, "d"), b"").unwrap();
    let file = made(&union, create(Ino::ROOT, "f"));
    assert!(file != dir && file != link);
}

#[test]
fn a_number_that_another_object_had_goes_to_none_that_is_known() {
    let (union, trees) = world(1);
    let direct = Direct(&trees[0]);
    // A program gives the number of a directory to a file, and back, while a frontend knows the one before.
    direct.mkdir("d");
    let dir = made(&union, lookup(Ino::ROOT, "d"));
    direct.rmdir("d");
    direct.put("f", b"");
    union.step(moment(200));
    let file = made(&union, lookup(Ino::ROOT, "f"));
    assert_ne!(file, dir);
}

#[test]
fn what_a_frontend_has_forgotten_has_the_same_number_when_it_is_found_again() {
    let (union, trees) = world(1);
    let direct = Direct(&trees[0]);
    direct.put("old", b"");
    let old = made(&union, lookup(Ino::ROOT, "old"));
    // A program gives the number to another file while a frontend knows the one before.
    let (root, id) = (Tree::root(&*trees[0]).id, direct.look("old").unwrap().id);
    let unlink = atoll_union::NativeCall::Unlink { dir: root, name: name("old"), id };
    direct.call(&unlink, &[]).unwrap();
    direct.put("new", b"");
    assert_eq!(direct.look("new").unwrap().id.ino, id.ino);
    union.step(moment(200));
    let new = made(&union, lookup(Ino::ROOT, "new"));
    assert_ne!(new, old);
    union.forget(&[old, new]);
    assert_eq!(listed(&union, Ino::ROOT), [("new".to_owned(), new)]);
    assert_eq!(made(&union, lookup(Ino::ROOT, "new")), new);
}

#[test]
fn a_directory_of_several_members_that_were_made_at_once_keeps_its_number() {
    let (union, trees) = world(2);
    trees.iter().for_each(|tree| tree.set_clock(moment(500).wall, 0));
    for n in 0..8 {
        let text = format!("d{n}");
        let dir = made(&union, mkdir(Ino::ROOT, &text));
        for file in 0..16 {
            made(&union, mkdir(dir, &format!("n{file}")));
        }
        assert!(trees.iter().all(|tree| Direct(tree).has(&text)));
        let below: Vec<Ino> = listed(&union, dir).into_iter().map(|(_, ino)| ino).collect();
        union.forget(&below);
        union.forget(&[dir]);
        assert_eq!(made(&union, lookup(Ino::ROOT, &text)), dir, "{text}");
    }
}
