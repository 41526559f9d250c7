//! A copy that has to be filled gets rows and bytes from its primary, whatever ends a process meanwhile.

mod common;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use atoll_core::{Ino, NodeId};
use atoll_disk::Disk;
use atoll_disk::sim::Fault;
use atoll_dispatch::LeavesFilling;
use atoll_group::Role;
use atoll_posix::{Op, SetAttr};
use atoll_proto::GroupMessage;
use bytes::Bytes;
use common::group::{Group, LARGE};

/// A group whose logs keep nothing for others, with files of several kinds.
struct Filled {
    group: Group,
    leader: NodeId,
    other: NodeId,
    files: Vec<Ino>,
    rounds: u8,
}

/// Bytes of a record that fill its log.
const FAT: usize = 30 << 10;

impl Filled {
    fn new(copies: u16) -> Self {
        let mut group = Group::new(copies);
        for node in group.nodes() {
            group.end(node, Fault::ProcessDeath);
            group.machine(node).keep_bytes = 0;
            group.start(node);
        }
        let leader = group.attach();
        let other = group.others(leader)[0];
        let files = (0..6u8).map(|n| group.create(leader, &[b'f', b'0' + n])).collect::<Vec<_>>();
        for (n, ino) in files.iter().enumerate() {
            group.write(leader, *ino, 0, &vec![n as u8 + 1; LARGE * (n % 3)]);
            group.write(leader, *ino, 7, b"small");
        }
        let mut filled = Self { group, leader, other, files, rounds: 0 };
        filled.go_on();
        filled
    }

    /// So much happens that the log begins anew.
    fn go_on(&mut self) {
        let leader = self.leader;
        self.rounds += 1;
        for n in 0..20 {
            self.group.write(leader, self.files[0], n * 100, &[n as u8 * 5 + self.rounds; FAT]);
        }
        self.group.checkpoint();
        self.group.write(leader, self.files[1], 100, b"behind the checkpoint");
    }

    /// All copies are in sync, and the same; each of them leads and tells the same.
    fn judge(mut self) {
        self.group.wait_for_all();
        self.group.same();
        let leader = self.group.leader().unwrap();
        let told: Vec<_> = self.files.iter().map(|ino| self.group.read(leader, *ino, 0, 200_000)).collect();
        self.group.machine(leader).may_fail = true;
        self.group.end(leader, Fault::ProcessDeath);
        let next = self.group.attach();
        assert_ne!(leader, next);
        for (ino, told) in self.files.iter().zip(told) {
            assert!(self.group.read(next, *ino, 0, 200_000) == told, "{ino} is another one");
        }
        let mark = self.group.machine(next).disk.stat(b"fill");
        assert!(mark.is_err(), "it is looked at again with each opening");
    }
}

#[test]
pub(crate) fn a_wiped_disk_is_filled() {
    for copies in [2, 3] {
        let mut filled = Filled::new(copies);
        filled.group.wipe(filled.other);
        filled.group.pass(2_000);
        filled.go_on();
        filled.group.start(filled.other);
        filled.group.write(filled.leader, filled.files[2], 5, b"while it is filled");
        filled.judge();
    }
}

/// A disk was wiped and is nearly full: the copy is made in part, and its process ends. Nothing was ever in what is there.
#[test]
fn a_wiped_disk_without_room_is_filled_when_there_is_some() {
    let mut failed = 0;
    for space in (0..900).step_by(20) {
        let mut filled = Filled::new(2);
        let other = filled.other;
        filled.group.wipe(other);
        let disk = filled.group.machine(other).disk.clone();
        disk.set_space(Some(space << 10));
        if filled.group.try_start(other).is_err() {
            failed += 1;
        } else {
            filled.group.end(other, Fault::ProcessDeath);
        }
        filled.group.machine(other).disk = disk.revive(Fault::ProcessDeath);
        filled.group.machine(other).disk.set_space(None);
        filled.group.start(other);
        filled.judge();
    }
    assert!(failed > 10, "{failed}");
}

/// Found as `groups_all --seed 402531`. The disk is nearly full when rows and bytes come: what finds no room is asked for again.
#[test]
fn a_copy_without_room_for_what_comes_is_filled_when_there_is_some() {
    let (mut waited, mut came) = (0, 0);
    for room in (0..1_600).step_by(40) {
        let mut filled = Filled::new(2);
        let other = filled.other;
        filled.group.wipe(other);
        filled.group.start(other);
        let disk = filled.group.machine(other).disk.clone();
        disk.set_space(Some(disk.used() + (room << 10)));
        filled.group.pass(4_000);
        let tenure = filled.group.tenure(other);
        let sits = filled.group.store.1.seat_of(other).is_some_and(|seat| seat.tenure == tenure);
        *(if sits { &mut came } else { &mut waited }) += 1;
        let mouth = filled.group.mouth(other);
        let halted = filled.group.copy(other).role() == Role::Halted;
        assert!(!halted, "with {room} KiB: {:?}", mouth.failures.lock().unwrap());
        disk.set_space(None);
        filled.judge();
    }
    assert!(waited > 10 && came > 0, "{waited} have waited, {came} had room");
}

/// The disk is full while bodies are compared: when what waits for that is to be done, and when the mark is to be moved, because more
/// was compared than may lie behind it.
#[test]
fn a_comparison_that_finds_no_room_goes_on_when_there_is_some() {
    for room in (0..80).step_by(4) {
        let mut filled = Filled::new(2);
        let (leader, other, large) = (filled.leader, filled.other, filled.files[0]);
        let resize = |filled: &mut Filled, size| {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            filled.group.fs(leader, Op::SetAttr { ino: large, set }, &[]);
        };
        resize(&mut filled, 300 << 20);
        filled.group.checkpoint();
        filled.group.wipe(other);
        filled.group.pass(2_000);
        filled.go_on();
        filled.group.start(other);
        let disk = filled.group.machine(other).disk.clone();
        filled.group.loses = Some(Box::new(move |_, to, message, _| {
            if to == other && matches!(message, GroupMessage::Fetched { .. }) {
                disk.set_space(Some(disk.used() + (room << 10)));
            }
            false
        }));
        filled.group.pass(4_000);
        filled.group.loses = None;
        let failures = filled.group.mouth(other).failures.lock().unwrap().clone();
        let halted = filled.group.copy(other).role() == Role::Halted;
        assert!(!halted, "with {room} KiB: {failures:?}");
        filled.group.machine(other).disk.set_space(None);
        resize(&mut filled, 1 << 10);
        filled.judge();
    }
}

#[test]
fn parts_of_a_copy_that_were_wiped_are_filled() {
    for part in 0..3 {
        let mut filled = Filled::new(2);
        let (group, other) = (&mut filled.group, filled.other);
        let (disk, beside) = (group.machine(other).disk.clone(), group.machine(other).beside.clone());
        group.wipe(other);
        let machine = group.machine(other);
        match part {
            // The seat alone is lost.
            0 => machine.disk = disk.revive(Fault::ProcessDeath),
            // The folder alone is.
            1 => machine.beside = beside.revive(Fault::ProcessDeath),
            _ => {
                (machine.disk, machine.beside) =
                    (disk.revive(Fault::ProcessDeath), beside.revive(Fault::ProcessDeath));
                machine.disk.unlink(b"state.redb").unwrap();
            }
        }
        group.start(other);
        filled.judge();
    }
}

#[test]
fn a_copy_that_was_away_for_too_long_is_filled_and_gets_what_differs() {
    let mut filled = Filled::new(2);
    let other = filled.other;
    filled.group.machine(other).may_fail = true;
    filled.group.end(other, Fault::ProcessDeath);
    filled.go_on();
    filled.go_on();
    let sent = Rc::new(RefCell::new(0));
    let counts = Rc::clone(&sent);
    filled.group.loses = Some(Box::new(move |_, _, message, payload| {
        if matches!(message, GroupMessage::Fetched { .. }) {
            *counts.borrow_mut() += payload.len();
        }
        false
    }));
    filled.group.start(other);
    filled.group.wait_for_all();
    assert!((1..LARGE).contains(&*sent.borrow()), "{} bytes were sent", sent.borrow());
    filled.judge();
}

#[test]
fn a_death_of_the_filled_one_at_any_effect_does_no_harm() {
    for power in [false, true] {
        let mut death = 1;
        loop {
            let mut filled = Filled::new(2);
            let other = filled.other;
            filled.group.wipe(other);
            filled.group.start(other);
            filled.group.machine(other).disk.die_after(death);
            for _ in 0..200 {
                let sits = filled.group.store.1.seat_of(other).map(|seat| seat.tenure);
                if filled.group.machine(other).disk.is_dead()
                    || sits > Some(1) && sits == Some(filled.group.tenure(other))
                {
                    break;
                }
                filled.group.pass(50);
            }
            let has_died = filled.group.machine(other).disk.is_dead();
            let fault = if power { Fault::PowerCut { seed: death } } else { Fault::ProcessDeath };
            filled.group.end(other, fault);
            filled.group.start(other);
            filled.judge();
            if !has_died {
                break;
            }
            death += 1 + death / 3;
        }
        assert!(death > 30, "it died at {death} effects only");
    }
}

#[test]
fn a_death_of_the_filler_does_no_harm() {
    for kind in 0..4 {
        let mut filled = Filled::new(3);
        let (leader, other) = (filled.leader, filled.other);
        filled.group.wipe(other);
        filled.group.pass(2_000);
        filled.go_on();
        let is_it = Rc::new(RefCell::new(false));
        let seen = Rc::clone(&is_it);
        filled.group.loses = Some(Box::new(move |_, to, message, _| {
            let is_this = to == other
                && match kind {
                    0 => matches!(message, GroupMessage::Rows { last: false, .. }),
                    1 => matches!(message, GroupMessage::Rows { last: true, .. }),
                    2 => matches!(message, GroupMessage::Fetched { .. }),
                    _ => matches!(message, GroupMessage::SyncTo { number: 0, .. }),
                };
            *seen.borrow_mut() |= is_this;
            // From then on nothing comes from it any more.
            *seen.borrow() && to == other
        }));
        filled.group.start(other);
        for _ in 0..200 {
            if *is_it.borrow() {
                break;
            }
            filled.group.pass(50);
        }
        assert!(*is_it.borrow(), "kind {kind} is never sent");
        filled.group.machine(leader).may_fail = true;
        filled.group.end(leader, Fault::ProcessDeath);
        filled.group.loses = None;
        let next = filled.group.attach();
        assert!(next != leader);
        filled.leader = next;
        filled.group.write(next, filled.files[3], 50, b"of the next epoch");
        filled.group.start(leader);
        filled.judge();
    }
}

/// Has a copy ask for bytes, and takes the answer away.
fn answer_taken(filled: &mut Filled) -> (GroupMessage, Bytes) {
    let taken = Rc::new(RefCell::new(None));
    let takes = Rc::clone(&taken);
    filled.group.loses = Some(Box::new(move |_, _, message, payload| {
        let is_answer = matches!(message, GroupMessage::Fetched { .. });
        if is_answer {
            *takes.borrow_mut() = Some((message.clone(), payload.clone()));
        }
        is_answer
    }));
    filled.group.start(filled.other);
    for _ in 0..100 {
        if taken.borrow().is_some() {
            break;
        }
        filled.group.pass(50);
    }
    let answer = taken.borrow_mut().take();
    answer.expect("bytes were sent")
}

#[test]
pub(crate) fn an_answer_that_is_late_does_not_cover_what_came_since() {
    for kind in 0..3 {
        let mut filled = Filled::new(2);
        let (leader, other) = (filled.leader, filled.other);
        filled.group.wipe(other);
        filled.group.pass(2_000);
        filled.go_on();
        let (message, payload) = answer_taken(&mut filled);
        // Changes of all files come, and are synced there, before the answer does.
        for (n, ino) in filled.files.clone().into_iter().enumerate() {
            match kind {
                0 => filled.group.write(leader, ino, 3, &[0x55; 20]),
                1 => filled.group.write(leader, ino, 3, &[0x55; LARGE]),
                _ => {
                    let set = SetAttr { size: Some(4), ..SetAttr::default() };
                    filled.group.fs(leader, Op::SetAttr { ino, set }, &[]);
                }
            }
            if n == 0 {
                filled.group.pass(100);
            }
        }
        let links = u64::MAX;
        let copy = Arc::clone(filled.group.copy(other));
        copy.hear(leader, links, message, &payload);
        filled.group.loses = None;
        filled.judge();
    }
}

#[test]
pub(crate) fn bytes_leave_when_no_later_primary_can_take_them_back() {
    let mut filled = Filled::new(3);
    let (leader, other) = (filled.leader, filled.other);
    let third = filled.group.others(leader)[1];
    filled.group.wipe(other);
    filled.group.pass(2_000);
    filled.go_on();
    let _ = answer_taken(&mut filled);
    // It asks again in the time in which the third copy hears nothing and is not dropped yet.
    filled.group.pass(600);
    // The primary decides what the third copy does not hear of, and answers the one that is filled.
    let told = Rc::new(RefCell::new(false));
    let tells = Rc::clone(&told);
    filled.group.loses = Some(Box::new(move |_, to, message, _| {
        *tells.borrow_mut() |= matches!(message, GroupMessage::Fetched { .. });
        to == third
    }));
    for ino in filled.files.clone() {
        filled.group.write_unheard(leader, ino, 0, &[0x77; 3 * LARGE]);
    }
    filled.group.pass(700);
    assert!(!*told.borrow(), "the third copy would not have what the bytes are of");
    filled.group.machine(leader).may_fail = true;
    filled.group.end(leader, Fault::ProcessDeath);
    filled.group.loses = None;
    let next = filled.group.attach();
    assert_eq!(next, third);
    filled.leader = next;
    filled.group.start(leader);
    filled.judge();
}

/// The same of a copy that comes back by log: with its records go bytes as bodies have them now.
#[test]
pub(crate) fn bytes_beside_old_records_leave_when_no_later_primary_can_take_them_back() {
    let mut group = Group::new(3);
    let leader = group.attach();
    let (other, third) = (group.others(leader)[0], group.others(leader)[1]);
    let files: Vec<_> = (0..3u8).map(|n| group.create(leader, &[b'f', b'0' + n])).collect();
    group.machine(other).may_fail = true;
    group.end(other, Fault::ProcessDeath);
    for ino in &files {
        group.write(leader, *ino, 0, &[1; 2 * LARGE]);
        group.sync(leader, *ino);
    }
    group.pass(2_000);
    let told = Rc::new(RefCell::new(0));
    let tells = Rc::clone(&told);
    group.loses = Some(Box::new(move |_, to, message, payload| {
        if to == other && matches!(message, GroupMessage::Append { .. }) {
            *tells.borrow_mut() += payload.len();
        }
        to == third
    }));
    // The primary decides what the third copy does not hear of, over the same bytes.
    for ino in &files {
        group.write_unheard(leader, *ino, 0, &[0x77; 2 * LARGE]);
    }
    group.start(other);
    group.pass(700);
    assert!(*told.borrow() < LARGE, "the third copy would not have what the bytes are of");
    group.machine(leader).may_fail = true;
    group.end(leader, Fault::ProcessDeath);
    group.loses = None;
    let next = group.attach();
    assert_eq!(next, third);
    group.start(leader);
    let rounds = 0;
    Filled { group, leader: next, other, files, rounds }.judge();
}

#[test]
pub(crate) fn a_copy_that_was_filled_survives_a_power_cut() {
    for seed in 0..5 {
        let mut filled = Filled::new(2);
        let other = filled.other;
        filled.group.wipe(other);
        filled.group.pass(2_000);
        filled.go_on();
        filled.group.start(other);
        filled.group.wait_for_all();
        filled.group.end(other, Fault::PowerCut { seed });
        filled.group.start(other);
        filled.judge();
    }
}

#[test]
fn a_node_that_is_added_is_filled() {
    let mut filled = Filled::new(2);
    filled.go_on();
    let added = filled.group.add();
    filled.group.pass(500);
    assert_eq!(filled.group.store.1.wanted, 3);
    filled.group.start(added);
    filled.group.write(filled.leader, filled.files[2], 5, b"while it is filled");
    filled.judge();
}

/// One question for each would take as many pauses as there are files.
#[test]
fn small_files_are_asked_for_together() {
    let mut filled = Filled::new(2);
    let (leader, other) = (filled.leader, filled.other);
    for n in 0..60u8 {
        let ino = filled.group.create(leader, &[b'g', n / 10 + b'0', n % 10 + b'0']);
        filled.group.write(leader, ino, 0, &[n; 50]);
        filled.files.push(ino);
    }
    filled.group.wipe(other);
    filled.group.pass(2_000);
    filled.go_on();
    let asked = Rc::new(RefCell::new(Vec::new()));
    let asks = Rc::clone(&asked);
    filled.group.loses = Some(Box::new(move |_, _, message, _| {
        if let GroupMessage::Fetch { number, .. } = message {
            asks.borrow_mut().push(*number);
        }
        false
    }));
    filled.group.start(other);
    filled.group.wait_for_all();
    asked.borrow_mut().dedup();
    assert!((1..10).contains(&asked.borrow().len()), "{} questions", asked.borrow().len());
    filled.judge();
}

/// A copy whose rows take long is not too late for the log that follows on them.
#[test]
fn the_log_behind_the_rows_is_there_when_all_have_come() {
    let mut filled = Filled::new(2);
    let other = filled.other;
    filled.group.wipe(other);
    filled.group.pass(2_000);
    filled.go_on();
    let (begun, may_end) = (Rc::new(RefCell::new(BTreeSet::new())), Rc::new(RefCell::new(false)));
    let (begins, ends) = (Rc::clone(&begun), Rc::clone(&may_end));
    filled.group.loses = Some(Box::new(move |_, _, message, _| match message {
        GroupMessage::Rows { at, last, .. } => {
            begins.borrow_mut().insert(at.seq);
            *last && !*ends.borrow()
        }
        _ => false,
    }));
    filled.group.start(other);
    filled.group.pass(1_000);
    assert_eq!(begun.borrow().len(), 1);
    for _ in 0..4 {
        filled.go_on();
    }
    *may_end.borrow_mut() = true;
    filled.group.wait_for_all();
    assert_eq!(begun.borrow().len(), 1, "it was begun again: {begun:?}");
    filled.judge();
}

#[test]
fn a_copy_that_comes_back_by_log_does_not_wait_for_one_that_is_filled() {
    let mut filled = Filled::new(3);
    let (leader, other) = (filled.leader, filled.other);
    let third = filled.group.others(leader)[1];
    filled.group.wipe(other);
    filled.group.pass(2_000);
    filled.go_on();
    filled.group.machine(third).may_fail = true;
    filled.group.end(third, Fault::ProcessDeath);
    filled.group.pass(2_000);
    let sits = |filled: &Filled, node| filled.group.store.1.seat_of(node).is_some();
    assert!(!sits(&filled, other) && !sits(&filled, third), "one copy is left");
    let may_end = Rc::new(RefCell::new(false));
    let ends = Rc::clone(&may_end);
    filled.group.loses = Some(Box::new(move |_, _, message, _| {
        matches!(message, GroupMessage::Rows { last: true, .. }) && !*ends.borrow()
    }));
    filled.group.start(other);
    filled.group.pass(500);
    filled.group.start(third);
    for _ in 0..200 {
        if sits(&filled, third) {
            break;
        }
        filled.group.pass(50);
    }
    assert!(sits(&filled, third) && !sits(&filled, other), "the one that is near is counted first");
    // With two of three changes are decided again, and the filling goes on until all are in.
    filled.group.write(leader, filled.files[2], 5, b"while it is filled");
    *may_end.borrow_mut() = true;
    filled.judge();
}

/// Waits until these have the seats, one after the other, and there were never fewer than so many.
fn wait_for_seats(group: &mut Group, nodes: &[NodeId], least: usize) {
    for _ in 0..20_000 {
        let seats: Vec<NodeId> = group.store.1.in_sync.iter().map(|seat| seat.node).collect();
        assert!(seats.len() >= least, "{seats:?} have seats");
        if seats == nodes {
            return;
        }
        group.pass(10);
    }
    panic!("{:?} never come to {nodes:?}", group.store);
}

#[test]
fn copies_move_to_another_node_the_primarys_too_and_there_are_never_fewer() {
    let mut filled = Filled::new(2);
    let (p, m) = (filled.leader, filled.other);
    let n = filled.group.add();
    filled.group.want(2, vec![p, n, m]);
    filled.group.start(n);
    filled.group.write(p, filled.files[2], 5, b"while it is filled");
    wait_for_seats(&mut filled.group, &[p.min(n), p.max(n)], 2);
    assert_eq!(filled.group.leader(), Some(p));
    let told: Vec<_> = filled.files.iter().map(|ino| filled.group.read(p, *ino, 0, 200_000)).collect();
    // Now the copy of the primary goes.
    filled.group.want(2, vec![m, n, p]);
    wait_for_seats(&mut filled.group, &[m.min(n), m.max(n)], 2);
    // And one of those that are left, to none.
    filled.group.want(1, vec![n]);
    wait_for_seats(&mut filled.group, &[n], 1);
    let next = filled.group.attach();
    assert_eq!(next, n);
    for (ino, told) in filled.files.iter().zip(told) {
        assert!(filled.group.read(next, *ino, 0, 200_000) == told, "{ino} is another one");
    }
}

#[test]
fn a_move_goes_on_whoever_dies_meanwhile() {
    for dies in 0..3 {
        for after in [200, 700, 1_500, 2_500, 4_000] {
            let mut filled = Filled::new(2);
            let (p, m) = (filled.leader, filled.other);
            let n = filled.group.add();
            filled.group.want(2, vec![n, m, p]);
            filled.group.start(n);
            filled.group.pass(after);
            let node = [p, m, n][dies];
            filled.group.machine(node).may_fail = true;
            filled.group.end(node, Fault::ProcessDeath);
            filled.group.pass(1_500);
            filled.group.start(node);
            wait_for_seats(&mut filled.group, &[m.min(n), m.max(n)], 1);
            let next = filled.group.attach();
            assert_eq!(filled.group.read(next, filled.files[1], 100, 21), b"behind the checkpoint");
        }
    }
}

/// A thread on which other islands wait brings the events: another one has to fill the copy, piece by piece.
#[test]
fn a_thread_that_leaves_filling_to_others_does_all_else() {
    let mut filled = Filled::new(2);
    let (leader, other) = (filled.leader, filled.other);
    filled.group.wipe(other);
    filled.group.pass(2_000);
    filled.go_on();
    filled.group.start(other);
    let leaves = LeavesFilling::begin();
    for _ in 0..20 {
        filled.group.pass(500);
    }
    filled.group.write(leader, filled.files[2], 5, b"while nobody fills it");
    let waits = [leader, other].map(|node| filled.group.copy(node).has_tasks());
    assert!(waits.contains(&true), "nothing is left to others");
    assert!(!filled.group.is_in_sync(other), "it is filled by this thread");
    let mut rounds = 0;
    while !filled.group.is_in_sync(other) {
        rounds += 1;
        assert!(rounds < 10_000, "nobody fills it");
        for node in [leader, other] {
            filled.group.copy(node).run_tasks();
        }
        filled.group.pass(100);
    }
    assert!(rounds > 3, "{rounds} rounds are no pieces");
    drop(leaves);
    filled.judge();
}
