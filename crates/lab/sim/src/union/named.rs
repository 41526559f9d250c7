//! Orders of calls and answers that seeds have found, each with its name.

use atoll_core::Ino;
use atoll_posix::{Answer, Errno, Kind, Op};
use atoll_union::{Finished, PlaceRule, Settings};
use bytes::Bytes;

use super::members::{Members, name};
use super::process::Process;
use super::rest::ask;

fn union(members: &mut Members, settings: Settings) -> Process {
    members.now_ns += 1_000_000_000;
    let of = (0..members.len()).map(|at| (at, false)).collect();
    Process::new(0, members, of, settings, true)
}

fn look(dir: Ino, text: &str) -> Op {
    Op::Lookup { dir, name: name(text) }
}

fn create(dir: Ino, text: &str) -> Op {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir, name: name(text), kind, mode, umask, rdev, exclusive, target: Bytes::new() }
}

fn ino(found: Result<Finished, Errno>) -> Ino {
    match found.map(|finished| finished.answer) {
        Ok(Answer::Found { found }) => found.attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Starts an operation and makes its first calls. Nothing is told of their answers yet.
fn begin(members: &mut Members, process: &mut Process, op: Op) -> u64 {
    let task = process.start(members, op, Bytes::new());
    for at in 0..process.calls.len() {
        if process.calls[at].task == task {
            process.make(members, at);
        }
    }
    task
}

/// Tells of these answers, and does the rest.
fn end(members: &mut Members, process: &mut Process, task: u64) -> Result<Finished, Errno> {
    while let Some(at) = process.calls.iter().position(|call| call.task == task) {
        if process.calls[at].answer.is_none() {
            process.make(members, at);
        }
        process.tell(members, at);
    }
    let at = process.ended.iter().position(|(ended, _)| *ended == task).expect("it has ended");
    process.ended.remove(at).1
}

#[test]
fn a_name_that_is_made_while_its_directory_is_read_is_not_hidden() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    let list = Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 1_000, plus: false };
    let listing = begin(&mut members, &mut process, list);
    ask(&mut members, &mut process, create(Ino::ROOT, "a")).unwrap();
    end(&mut members, &mut process, listing).unwrap();
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn a_name_that_a_program_makes_while_its_directory_is_read_is_seen_as_soon_as_it_is_told_of() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    let list = Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 1_000, plus: false };
    let listing = begin(&mut members, &mut process, list);
    members.put(0, "a", None).unwrap();
    process.keep_house(&mut members);
    end(&mut members, &mut process, listing).unwrap();
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn a_listing_that_is_told_of_late_does_not_hide_what_was_read_since() {
    let mut members = Members::new(1, 1_000);
    // No member tells of changes, so what was read counts for a while.
    let mut process = Process::new(0, &members, vec![(0, false)], Settings::default(), false);
    let list = || Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 1_000, plus: false };
    let late = begin(&mut members, &mut process, list());
    members.now_ns += 1_000_000_000;
    members.put(0, "a", None).unwrap();
    members.now_ns += 1_000_000_000;
    ask(&mut members, &mut process, list()).unwrap();
    end(&mut members, &mut process, late).unwrap();
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn an_old_lookup_does_not_undo_that_a_name_was_made() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    let list = Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 1_000, plus: false };
    ask(&mut members, &mut process, list).unwrap();
    // The name must be looked at: a program has made and removed it.
    members.put(0, "a", None).unwrap();
    members.remove(0, "a").unwrap();
    process.keep_house(&mut members);
    let lookup = begin(&mut members, &mut process, look(Ino::ROOT, "a"));
    ask(&mut members, &mut process, create(Ino::ROOT, "a")).unwrap();
    // Either answer is right: the lookup began before the name was made.
    let _ = end(&mut members, &mut process, lookup);
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn an_old_lookup_does_not_take_a_directory_from_the_member_where_it_was_made_since() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(1, "a", 0o755).unwrap();
    let mut process = union(&mut members, Settings { place: PlaceRule::First, ..Settings::default() });
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    members.now_ns += 600_000_000;
    let lookup = begin(&mut members, &mut process, look(Ino::ROOT, "a"));
    // The first member gets the directory now, with this file in it.
    let making = begin(&mut members, &mut process, create(dir, "b"));
    while members.now(0).get("a/b").is_none() {
        let at = process.calls.iter().position(|call| call.task == making).expect("a call");
        if process.calls[at].answer.is_none() {
            process.make(&mut members, at);
        } else {
            process.tell(&members, at);
        }
    }
    assert_eq!(ino(end(&mut members, &mut process, lookup)), dir);
    ino(end(&mut members, &mut process, making));
}

#[test]
fn a_name_that_no_member_can_take_now_is_refused_because_of_the_disk() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(0, "a", 0o755).unwrap();
    let mut process = union(&mut members, Settings { place: PlaceRule::Existing, ..Settings::default() });
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let list = Op::ReadDir { dir, after: 0, bytes: 1_000, plus: false };
    ask(&mut members, &mut process, list).unwrap();
    members.set_away(0, true);
    process.keep_house(&mut members);
    assert_eq!(ask(&mut members, &mut process, create(dir, "b")), Err(Errno::EIO));
}

#[test]
fn an_open_file_that_a_program_removed_is_not_the_one_that_gets_its_number() {
    let mut members = Members::new(1, 1_000);
    members.put(0, "a", None).unwrap();
    let mut process = union(&mut members, Settings::default());
    let old = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let number = members.now(0).get("a").map(|node| node.stat.id.ino);
    members.remove(0, "a").unwrap();
    members.now_ns += 2_000_000_000;
    members.put(0, "b", None).unwrap();
    assert_eq!(members.now(0).get("b").map(|node| node.stat.id.ino), number, "the number is used again");
    let new = ino(ask(&mut members, &mut process, look(Ino::ROOT, "b")));
    assert_ne!(old, new);
    let read = |ino| Op::Read { ino, offset: 0, len: 100 };
    assert_eq!(ask(&mut members, &mut process, read(old)), Err(Errno::ESTALE));
    ask(&mut members, &mut process, read(new)).unwrap();
    process.forget(&mut members, &[old]);
    assert_eq!(ino(ask(&mut members, &mut process, look(Ino::ROOT, "b"))), new, "it keeps its id");
}
