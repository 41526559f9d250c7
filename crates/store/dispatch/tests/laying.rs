//! Plain trees of copies of an island that has a group.

mod common;

use std::time::Duration;

use atoll_core::{Ino, Name, NodeId};
use atoll_disk::Disk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Laying, WholeState};
use atoll_island::Event;
use atoll_posix::{Op, SetAttr};
use atoll_proto::ClientOp;
use atoll_view::Source;
use common::group::Group;

/// Trees of a group follow for so long, round by round.
const FOLLOW: usize = 20;

fn open(group: &Group, node: NodeId) -> Laying<SimDisk> {
    Laying::open(group.engine(node), false, false).unwrap()
}

/// Rounds of laying, and what the copies tell each other in between.
fn follow(group: &mut Group, trees: &mut [Laying<SimDisk>]) {
    for _ in 0..FOLLOW {
        for tree in &mut *trees {
            assert_eq!(tree.round().unwrap().conflicts, []);
        }
        group.pass(100);
    }
}

fn names(group: &mut Group, node: NodeId) -> Vec<String> {
    let names = group.machine(node).disk.list(b"tree").unwrap().into_iter();
    let mut names: Vec<String> = names.map(|(name, _)| String::from_utf8(name).unwrap()).collect();
    names.sort();
    names
}

fn unlink(name: &[u8]) -> Op {
    Op::Unlink { dir: Ino::ROOT, name: Name::new(name).unwrap() }
}

#[test]
fn a_primary_lays_nothing_that_a_later_primary_can_cut_off() {
    let mut group = Group::new(3);
    let first = group.attach();
    let ino = group.create(first, b"kept");
    group.write(first, ino, 0, b"bytes");
    let mut tree = [open(&group, first)];
    follow(&mut group, &mut tree);
    assert_eq!(names(&mut group, first), ["kept"]);
    // It decides, and nobody hears of it.
    group.machine(first).is_cut = true;
    let old = group.engine(first);
    for (seq, op) in [unlink(b"kept"), Group::create_of(b"cut")].into_iter().enumerate() {
        group.begin(first, group.seq + 1 + seq as u64, ClientOp::Fs { op }, &[]);
        // As much as it could do before it is known that it is cut off.
        for _ in 0..5 {
            tree[0].round().unwrap();
            group.pump();
            group.skip(20);
        }
    }
    assert_eq!(names(&mut group, first), ["kept"], "laid by the primary that was cut off");
    assert!(group.machine(first).disk.stat(&atoll_body::path_of(b"bodies", ino)).is_ok(), "its body");
    let second = group.attach();
    assert_ne!(first, second);
    group.machine(first).is_cut = false;
    group.pass(5_000);
    assert_eq!(group.store.1.in_sync.len(), 3, "{:?}", group.store);
    // A view of what it was cannot come between.
    assert!(Laying::open(old, false, false).is_err());
    let mut trees = [open(&group, first), open(&group, second)];
    follow(&mut group, &mut trees);
    for node in [first, second] {
        assert_eq!(names(&mut group, node), ["kept"]);
    }
}

#[test]
fn followers_lay_what_is_synced_at_all_copies_soon() {
    let mut group = Group::new(2);
    let leader = group.attach();
    let mut trees = group.nodes().into_iter().map(|node| open(&group, node)).collect::<Vec<_>>();
    for name in ["a", "b"] {
        group.create(leader, name.as_bytes());
        follow(&mut group, &mut trees);
        for node in group.nodes() {
            assert_eq!(names(&mut group, node).last().map(String::as_str), Some(name));
        }
    }
    // What is taken and waits is laid by an orderly stop.
    group.create(leader, b"c");
    trees[0].round().unwrap();
    for (node, tree) in group.nodes().into_iter().zip(&mut trees) {
        assert_eq!(tree.drain().unwrap().conflicts, []);
        assert_eq!(names(&mut group, node), ["a", "b", "c"]);
    }
}

#[test]
fn what_a_view_has_taken_and_not_laid_comes_with_the_next_view() {
    let mut group = Group::new(2);
    let leader = group.attach();
    group.create(leader, b"a");
    let mut tree = open(&group, leader);
    tree.round().unwrap();
    assert_eq!(names(&mut group, leader), [""; 0], "it waits for the other copy");
    drop(tree);
    let mut tree = [open(&group, leader)];
    follow(&mut group, &mut tree);
    assert_eq!(names(&mut group, leader), ["a"]);
}

/// All of a copy is laid while it goes on: what it changes meanwhile is listed, and nothing of it is given up before.
#[test]
fn whoever_lays_all_of_a_copy_is_told_what_is_listed_for_later() {
    let mut group = Group::new(2);
    let leader = group.attach();
    let ino = group.create(leader, b"file");
    let engine = group.engine(leader);
    assert!(WholeState(&engine).waits(ino));
    let mut tree = [open(&group, leader)];
    follow(&mut group, &mut tree);
    assert!(!WholeState(&engine).waits(ino));
}

/// Found as `groups_all --seed 404940`: the native times stayed those of the cut.
#[test]
fn what_is_laid_while_its_bytes_change_is_laid_again_by_the_next_process() {
    let mut group = Group::new(2);
    let leader = group.attach();
    let ino = group.create(leader, b"file");
    group.write(leader, ino, 0, b"some bytes");
    let mut tree = [open(&group, leader)];
    follow(&mut group, &mut tree);
    group.checkpoint();
    // The record is decided, and the body is cut when all have synced it.
    let set = SetAttr { size: Some(4), ..SetAttr::default() };
    group.begin(leader, group.seq + 1, ClientOp::Fs { op: Op::SetAttr { ino, set } }, &[]);
    group.pump();
    assert_eq!(tree[0].drain().unwrap().conflicts, []);
    let size = |group: &mut Group| {
        group.machine(leader).disk.stat(&atoll_body::path_of(b"bodies", ino)).unwrap().size
    };
    assert_eq!(size(&mut group), 10, "it was cut before");
    group.copy(leader).enter(Event::CheckpointWanted);
    group.pass(3_000);
    assert_eq!(size(&mut group), 4);
    drop(tree);
    group.machine(leader).may_fail = true;
    group.end(leader, Fault::ProcessDeath);
    group.start(leader);
    group.wait_for_all();
    let mut tree = [open(&group, leader)];
    follow(&mut group, &mut tree);
    assert_eq!(tree[0].audit().unwrap(), []);
}

/// A change of a body that waits for a sync of another copy is inside of the body, although the file is gone. Found as
/// `groups_all --seed 407512`.
#[test]
fn an_orderly_stop_ends_although_somebody_is_inside_a_body_that_goes() {
    let mut group = Group::new(2);
    let leader = group.wait_for_leader();
    // No mount may have it open.
    group.ask(leader, 0, ClientOp::Attach { mount: false }, &[]);
    let ino = group.create(leader, b"file");
    group.write(leader, ino, 0, b"some bytes");
    let mut trees = vec![open(&group, leader)];
    follow(&mut group, &mut trees);
    group.checkpoint();
    let set = SetAttr { size: Some(4), ..SetAttr::default() };
    for op in [Op::SetAttr { ino, set }, unlink(b"file")] {
        group.seq += 1;
        group.begin(leader, group.seq, ClientOp::Fs { op }, &[]);
        group.pump();
    }
    assert!(group.engine(leader).with_island(|island| island.is_body_used(ino)), "nobody is inside");
    let mut tree = trees.pop().unwrap();
    let (ends, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Nobody waits any more, if this took too long.
        let _ = ends.send(tree.drain().map(|report| report.conflicts));
    });
    let conflicts = ended.recv_timeout(Duration::from_secs(60)).expect("it goes on and on").unwrap();
    assert_eq!(conflicts, []);
    assert_eq!(names(&mut group, leader), [""; 0]);
    let body = atoll_body::path_of(b"bodies", ino);
    assert!(group.machine(leader).disk.stat(&body).is_ok(), "it went while somebody was inside");
    let is_listed = group.engine(leader).with_island(|island| island.state().view_waits_for(ino));
    assert!(is_listed, "the next process does not look at it");
    group.checkpoint();
    // The next process removes what is left of it.
    group.machine(leader).may_fail = true;
    group.end(leader, Fault::ProcessDeath);
    group.start(leader);
    group.wait_for_all();
    let mut trees = [open(&group, leader)];
    follow(&mut group, &mut trees);
    assert_eq!(trees[0].audit().unwrap(), []);
    assert!(group.machine(leader).disk.stat(&body).is_err(), "it is there yet");
}

#[test]
fn a_view_lays_nothing_in_haste_when_it_was_drained() {
    let mut group = Group::new(2);
    let leader = group.attach();
    let mut tree = open(&group, leader);
    tree.drain().unwrap();
    group.create(leader, b"a");
    tree.round().unwrap();
    assert_eq!(names(&mut group, leader), [""; 0], "it waits for the other copy");
}
