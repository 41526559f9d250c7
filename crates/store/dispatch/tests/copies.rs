//! Copies of an island that has a group: what is answered is at all of them, and any of them can lead.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use atoll_core::{Ino, Name};
use atoll_disk::Disk;
use atoll_disk::sim::Fault;
use atoll_group::GroupEvent;
use atoll_posix::{Allocation, Op, SetAttr};
use atoll_proto::ClientOp;
use common::group::{Group, LARGE};
use rustix::io::Errno;

#[test]
fn what_is_answered_is_at_every_copy() {
    for copies in [1, 2, 3] {
        let mut group = Group::new(copies);
        let leader = group.attach();
        let ino = group.create(leader, b"file");
        group.write(leader, ino, 0, b"small");
        group.write(leader, ino, 3, &[1; LARGE]);
        group.fs(leader, Op::Fsync { ino }, &[]);
        let last = group.engine(leader).last();
        for node in group.nodes() {
            assert_eq!(group.engine(node).last(), last);
        }
        assert_eq!(group.read(leader, ino, 0, 5), [b's', b'm', b'a', 1, 1]);
        group.same();
    }
}

#[test]
fn another_copy_leads_when_the_primary_has_died_and_the_dead_one_comes_back() {
    let mut group = Group::new(2);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.write(first, ino, 0, &[7; LARGE]);
    group.end(first, Fault::ProcessDeath);
    let second = group.attach();
    assert_ne!(first, second);
    assert_eq!(group.read(second, ino, 10, 2), [7, 7]);
    group.write(second, ino, 10, b"alone");
    group.start(first);
    group.pass(5_000);
    assert_eq!(group.store.1.in_sync.len(), 2, "{:?}", group.store);
    group.write(second, ino, 100, b"both again");
    group.same();
    group.end(second, Fault::ProcessDeath);
    let third = group.attach();
    assert_eq!(third, first);
    assert_eq!(group.read(third, ino, 100, 10), b"both again");
    assert_eq!(group.read(third, ino, 10, 6), b"alone\x07");
}

#[test]
fn a_primary_that_is_cut_off_tells_nothing_and_is_cut_back() {
    let mut group = Group::new(3);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.machine(first).is_cut = true;
    // It decides, and nobody hears of it.
    let id = group.write_unheard(first, ino, 0, &[9; LARGE]);
    let second = group.attach();
    assert_ne!(first, second);
    group.write(second, ino, 0, b"other");
    let mouth = group.mouth(first);
    assert!(!mouth.has_answered(id), "it was answered");
    group.machine(first).is_cut = false;
    group.pass(5_000);
    assert_eq!(group.store.1.in_sync.len(), 3, "{:?}", group.store);
    assert_eq!(mouth.led.lock().unwrap().last(), Some(&None));
    group.same();
    assert_eq!(group.read(second, ino, 0, 10), b"other");
}

/// A copy is made to lead that has lost a file in a power cut, of which the other one has bytes. False if it has not lost it.
fn loses_a_file(seed: u64) -> bool {
    let mut group = Group::new(2);
    let first = group.attach();
    let other = group.others(first)[0];
    let kept = group.create(first, b"kept");
    group.write(first, kept, 0, &[3; LARGE]);
    group.sync(first, kept);
    let lost = group.create(first, b"lost");
    group.write(first, lost, 0, &[9; LARGE]);
    group.end(first, Fault::ProcessDeath);
    group.end(other, Fault::PowerCut { seed });
    group.start(other);
    group.copy(other).tell(GroupEvent::Force);
    assert_eq!(group.attach(), other);
    let inode = |island: &mut atoll_island::Island| island.state().inode(lost).is_ok_and(|row| row.is_some());
    if group.engine(other).with_island(inode) {
        return false;
    }
    let disk = group.machine(first).disk.clone();
    let has = |ino| disk.stat(&atoll_body::path_of(b"bodies", ino)).is_ok();
    assert!(has(kept) && has(lost));
    group.start(first);
    group.pass(5_000);
    assert_eq!(group.store.1.in_sync.len(), 2, "{:?}", group.store);
    assert!(has(kept) && !has(lost), "the body of a file that nobody knows is left");
    assert!(disk.stat(b"log.cut").is_err(), "all bodies are looked at again with each opening");
    true
}

#[test]
fn a_cut_takes_the_bodies_of_files_that_only_cut_records_had_made() {
    assert!((0..20).any(loses_a_file), "no power cut has taken it");
}

/// Found by torture: a write was told EIO by a primary whose disk had become read-only.
#[test]
fn a_primary_whose_disk_fails_stops_and_another_copy_answers() {
    let mut group = Group::new(2);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.write(first, ino, 0, &[1; LARGE]);
    group.sync(first, ino);
    group.machine(first).disk.fail_all(Some(Errno::ROFS));
    group.mouth(first).may_fail.store(true, Ordering::Relaxed);
    let id = group.unheard(
        first,
        Op::Fallocate { ino, offset: 1 << 20, len: 4096, what: Allocation::Allocate { keep_size: false } },
        b"",
    );
    assert!(!group.mouth(first).has_answered(id), "it has told its client of its disk");
    let second = group.attach();
    assert_ne!(first, second);
    group.write(second, ino, 5, &[2; LARGE]);
    assert_eq!(group.read(second, ino, 4, 2), [1, 2]);
}

/// A start does again what its whole log says, and what was not at all copies is cut off behind that. Found as `groups_history
/// --seed 300700 --steps 9000`.
#[test]
fn a_cut_brings_back_the_bodies_that_cut_records_had_changed() {
    for change in ["removed", "overwritten", "shorter"] {
        let mut group = Group::new(2);
        let first = group.attach();
        let ino = group.create(first, b"file");
        group.write(first, ino, 0, b"kept");
        group.sync(first, ino);
        // No record that is left names it.
        group.checkpoint();
        group.create(first, b"other");
        group.machine(first).is_cut = true;
        match change {
            "removed" => {
                group.unheard(first, Op::Unlink { dir: Ino::ROOT, name: Name::new(b"file").unwrap() }, b"")
            }
            "overwritten" => group.unheard(first, Group::write_of(ino, 0), b"gone"),
            _ => group.unheard(
                first,
                Op::SetAttr { ino, set: SetAttr { size: Some(1), ..SetAttr::default() } },
                b"",
            ),
        };
        group.end(first, Fault::ProcessDeath);
        let second = group.attach();
        assert_ne!(first, second);
        group.machine(first).is_cut = false;
        group.start(first);
        group.pass(5_000);
        assert_eq!(group.store.1.in_sync.len(), 2, "{:?}", group.store);
        group.same();
        group.end(second, Fault::ProcessDeath);
        assert_eq!(group.attach(), first);
        assert_eq!(group.read(first, ino, 0, 10), b"kept", "{change}");
    }
}

#[test]
fn a_copy_that_leads_stops_in_order_although_the_others_are_gone() {
    for seed in 0..8 {
        let mut group = Group::new(2);
        let leader = group.attach();
        let ino = group.create(leader, b"file");
        group.write(leader, ino, 0, &[7; LARGE]);
        group.write(leader, ino, 10, b"carried");
        let other = group.others(leader)[0];
        group.end(other, Fault::ProcessDeath);
        let copy = Arc::clone(group.copy(leader));
        let last = copy.engine().unwrap().last();
        copy.stop().unwrap();
        drop(copy);
        // What it has survives a power cut.
        group.end(leader, Fault::PowerCut { seed });
        group.start(leader);
        assert!(group.copy(leader).engine().unwrap().last() >= last);
        group.start(other);
        let leader = group.attach();
        assert_eq!(group.read(leader, ino, 8, 11), b"\x07\x07carried\x07\x07");
    }
}

/// Clients that were told nothing must be told to ask again, and what is held is bounded in number and in bytes.
#[test]
fn what_the_door_drops_is_asked_again() {
    let mut group = Group::new(2);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.write(first, ino, 0, &[7; 1 << 20]);
    let mouth = group.mouth(first);
    for (len, asked, held) in [(1_u32 << 20, 40, 16), (1, 5_000, 4_096)] {
        let led = mouth.led.lock().unwrap().clone();
        // Longer than the lease, and too short for another copy to lead.
        group.skip(1_000);
        for _ in 0..asked {
            group.begin(first, 0, ClientOp::Fs { op: Op::Read { ino, offset: 0, len } }, &[]);
        }
        assert!(mouth.replies.lock().unwrap().is_empty(), "it has no lease");
        group.pass(200);
        assert_eq!(mouth.replies.lock().unwrap().drain(..).count(), held);
        let again = mouth.led.lock().unwrap()[led.len()..].to_vec();
        assert_eq!(again, [led.last().copied().unwrap()], "it says once more that it leads");
    }
}

/// As when a message to another island of the process brings an answer: all threads of a copy waited for one that waited for itself.
#[test]
fn what_was_held_leaves_without_the_lock_of_the_door() {
    let mut group = Group::new(2);
    let leader = group.attach();
    let mouth = group.mouth(leader);
    // Longer than the lease, and too short for another copy to lead.
    group.skip(1_000);
    let id = group.begin(leader, 0, ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } }, &[]);
    assert!(!mouth.has_answered(id), "it is held");
    *mouth.back.lock().unwrap() = Arc::downgrade(group.copy(leader));
    group.pass(200);
    assert!(mouth.has_answered(id), "it has not left");
    assert_eq!(*mouth.has_ended.lock().unwrap(), [true]);
}

/// Found as `groups_disks --seed 237`: the last copy had no room for bytes that its records carry, when it was to lead, and stopped
/// for good.
#[test]
fn a_full_copy_leads_when_there_is_room() {
    let mut group = Group::new(2);
    let p = group.attach();
    let m = group.others(p)[0];
    let ino = group.create(p, b"file");
    group.write(p, ino, 0, b"old");
    group.pass(1_000);
    let disk = group.machine(m).disk.clone();
    disk.set_space(Some(disk.used()));
    group.write(p, ino, 100_000, b"carried");
    group.end(p, Fault::ProcessDeath);
    let mouth = group.mouth(m);
    mouth.may_fail.store(true, Ordering::Relaxed);
    group.pass(10_000);
    assert_eq!(group.leader(), None, "its bytes have no room");
    assert_ne!(*mouth.failures.lock().unwrap(), [""; 0], "it says so");
    disk.set_space(None);
    assert_eq!(group.attach(), m);
    assert_eq!(group.read(m, ino, 100_000, 7), b"carried");
}
