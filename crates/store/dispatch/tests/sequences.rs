//! Dangerous sequences of `docs/design/018-copies.md`, by their names there: those of one island, with copies that have their
//! group, log and bodies.

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Name, NodeId};
use atoll_disk::sim::Fault;
use atoll_group::Role;
use atoll_island::{Event, LinkId, Phase};
use atoll_posix::{Answer, Errno, Op};
use atoll_proto::{ClientOp, GroupMessage, Outcome};
use bytes::Bytes;
use common::group::{Group, LARGE};

/// A primary of so many copies, and a file whose bytes are synced everywhere, and were announced as going since.
fn with_file(copies: u16) -> (Group, NodeId, Ino) {
    let mut group = Group::new(copies);
    let first = group.attach();
    let ino = group.create(first, b"file");
    group.write(first, ino, 0, &[1; LARGE]);
    group.sync(first, ino);
    group.checkpoint();
    group.write(first, ino, 0, &[2; LARGE]);
    (group, first, ino)
}

/// A thread has read rows, or is about to read bytes, and is stopped. When it goes on, another copy leads.
#[test]
fn a_late_thread_answers_nothing() {
    for op in [Op::GetAttr { ino: Ino::ROOT }, Op::Read { ino: Ino::ROOT, offset: 0, len: 10 }] {
        let (mut group, first, ino) = with_file(2);
        let op = if let Op::Read { offset, len, .. } = op { Op::Read { ino, offset, len } } else { op };
        let engine = group.engine(first);
        let request = Group::request(atoll_core::SessionId(1), 0, ClientOp::Fs { op });
        let (link, id, data) = (LinkId(100 + u64::from(first.0)), 1 << 40, Bytes::new());
        let mut work = engine.begin(Event::Request { link, id, request, data });
        assert!(!work.is_done());
        group.machine(first).is_cut = true;
        let second = group.attach();
        group.write(second, ino, 0, b"other");
        while engine.go_on(&mut work) {}
        assert!(!group.mouth(first).has_answered(id), "it answers what was so before");
    }
}

/// A copy has promised, dies, and is back at once, while its primary goes on to answer by that promise.
#[test]
fn a_new_life_keeps_the_old_promise() {
    let (mut group, first, _) = with_file(2);
    let other = group.others(first)[0];
    group.machine(first).has_no_store = true;
    group.pass(200);
    group.end(other, Fault::ProcessDeath);
    group.cut_between(first, other);
    group.skip(50);
    group.start(other);
    assert!(group.copy(first).may_tell(), "by the promise of the life before");
    let mut ms = 0;
    while !matches!(group.copy(other).role(), Role::Leading { .. }) {
        group.pass(50);
        ms += 50;
    }
    assert!(ms >= atoll_group::PROMISE_MS, "it leads after {ms} ms");
}

/// A deposed primary cuts records off whose bytes are in its bodies, and dies before it has the bytes that were there before.
#[test]
fn a_cut_is_remembered_until_fetched() {
    let (mut group, first, ino) = with_file(2);
    group.machine(first).is_cut = true;
    group.write_unheard(first, ino, 100, &[9; LARGE]);
    let second = group.attach();
    group.machine(first).is_cut = false;
    group.loses = Some(Box::new(|_, _, message, _| matches!(message, GroupMessage::Fetched { .. })));
    group.pass(3_000);
    assert_eq!(group.tenure(first), 2, "its seat is void before the cut");
    group.end(first, Fault::ProcessDeath);
    group.start(first);
    group.pass(5_000);
    assert_eq!((group.leader(), group.store.1.in_sync.len()), (Some(second), 1), "it lacks bytes");
    group.loses = None;
    group.wait_for_all();
    group.same();
}

/// A primary gives an id, a time and stamps that nobody hears of. The next one, whose clock is behind, gives others.
#[test]
fn no_number_is_given_by_two_primaries() {
    let mut group = Group::new(2);
    let first = group.attach();
    let other = group.others(first)[0];
    group.machine(first).clock.ahead.store(3_600, Ordering::Relaxed);
    let before = group.create(first, b"before");
    let Outcome::Ok { answer: Answer::Found { found: heard }, .. } = group.lookup(first, b"before") else {
        panic!("it is there")
    };
    group.machine(first).is_cut = true;
    group.begin(first, group.seq + 1, ClientOp::Fs { op: Group::create_of(b"unheard") }, &[]);
    let (unheard, stamp) = group.engine(first).with_island(|island| {
        let name = Name::new(b"unheard").unwrap();
        let entry = island.state().entry(Ino::ROOT, &name).ok().flatten().expect("it was decided");
        (entry.ino, island.gives_after().0)
    });
    assert_eq!(group.attach(), other);
    assert!(group.engine(other).with_island(|island| island.gives_after().0) > stamp);
    let after = group.create(other, b"after");
    assert!(after != before && after != unheard, "{after:?} is given again");
    let Outcome::Ok { answer: Answer::Found { found }, .. } = group.lookup(other, b"after") else {
        panic!("it is there")
    };
    assert!(found.attr.ctime > heard.attr.ctime, "time goes back");
}

/// All copies have lost their power, and the one that has most stays away.
#[test]
fn the_highest_copy_returns_late() {
    let (mut group, first, ino) = with_file(3);
    group.sync(first, ino);
    group.write(first, ino, 7, b"not synced by all");
    let highest = group.others(first)[1];
    let last = group.engine(highest).last();
    group.engine(highest).sync_here(last.seq, &[ino]).unwrap();
    for node in group.nodes() {
        group.end(node, Fault::PowerCut { seed: 5 });
    }
    for node in group.others(highest) {
        group.start(node);
        assert!(group.engine(node).last() < last, "this seed takes the last record of the others");
    }
    group.pass(60_000);
    assert_eq!(group.leader(), None, "nobody knows what the third has");
    group.start(highest);
    assert_eq!(group.attach(), highest);
    assert_eq!(group.read(highest, ino, 7, 17), b"not synced by all");
    group.wait_for_all();
    group.same();
}

/// The disk of a member fails: it says so, and is not waited for until its silence shows.
#[test]
fn a_follower_that_fails_says_so() {
    let (mut group, first, ino) = with_file(3);
    let failing = group.others(first)[0];
    group.mouth(failing).may_fail.store(true, Ordering::Relaxed);
    group.machine(failing).disk.fail_all(Some(rustix::io::Errno::IO));
    let id = group.write_unheard(first, ino, 0, &[3; LARGE]);
    group.seq += 1;
    group.pass(100);
    assert_eq!(group.copy(failing).role(), Role::Halted);
    assert!(group.store.1.seat_of(failing).is_none(), "{:?}", group.store);
    assert!(matches!(group.answer(first, id).0, Outcome::Ok { .. }));
}

/// A member's disk has no room for bytes that a record names: it owes them, and is dropped while others go on.
#[test]
fn a_full_member_is_dropped() {
    let (mut group, first, ino) = with_file(3);
    let full = group.others(first)[0];
    let disk = group.machine(full).disk.clone();
    disk.set_space(Some(disk.used()));
    group.write(first, ino, 1 << 20, &[3; LARGE]);
    assert!(group.store.1.seat_of(full).is_none(), "{:?}", group.store);
    disk.set_space(None);
    group.wait_for_all();
    group.same();
}

/// One member has little space left, less than its log's next segment takes: changes that need some are refused before they are
/// decided, and what makes room goes on. Nobody is dropped.
#[test]
fn one_full_member() {
    let mut group = Group::new(2);
    let first = group.attach();
    let ino = group.create(first, b"file");
    let full = group.others(first)[0];
    let disk = group.machine(full).disk.clone();
    disk.set_space(Some(disk.used() + 200_000));
    let mut refused = 0;
    for _ in 0..60 {
        group.seq += 1;
        let op = ClientOp::Fs { op: Group::write_of(ino, 0) };
        let (outcome, _) = group.ask(first, group.seq, op, &[4; 20_000]);
        refused += u32::from(matches!(outcome, Outcome::Failed { errno: Errno::ENOSPC }));
        group.pass(50);
    }
    assert!(refused > 0, "all were decided");
    group.fs(first, Op::Unlink { dir: Ino::ROOT, name: Name::new(b"file").unwrap() }, &[]);
    assert_eq!(group.store.1.in_sync.len(), 2, "{:?}", group.store);
    disk.set_space(None);
    group.same();
}

/// A follower's checkpoint finds no space, though its log would: it has no room, so its log does not grow for ever.
#[test]
fn a_follower_without_checkpoints_is_bounded() {
    let mut group = Group::new(2);
    let first = group.attach();
    let full = group.others(first)[0];
    for file in 0..200 {
        group.create(first, format!("file {file}").as_bytes());
    }
    let disk = group.machine(full).disk.clone();
    disk.set_space(Some(disk.used() + 8_000));
    group.checkpoint();
    let before = group.engine(full).last();
    for file in 0..3 {
        // Enough for a record and a file, and not for a checkpoint.
        disk.set_space(Some(disk.used() + 8_000));
        group.pass(100);
        group.seq += 1;
        let op = Group::create_of(format!("more {file}").as_bytes());
        let (outcome, _) = group.ask(first, group.seq, ClientOp::Fs { op }, &[]);
        assert!(matches!(outcome, Outcome::Failed { errno: Errno::ENOSPC }), "{outcome:?}");
    }
    group.fs(first, Op::Unlink { dir: Ino::ROOT, name: Name::new(b"file 7").unwrap() }, &[]);
    assert!(group.engine(full).last().seq < before.seq + 10);
    disk.set_space(None);
    group.pass(3_000);
    group.create(first, b"more");
    group.same();
}

/// A primary that is cut off decides, dies, and applies its whole log when it starts again. A follower is at a marker that the
/// third copy never gets, and is cut off then. What the next primary has not goes from the rows of both.
#[test]
fn a_cut_takes_the_rows_back() {
    let (mut group, first, _) = with_file(3);
    let [follower, third] = group.others(first)[..] else { panic!("three copies") };
    let unheard = |group: &mut Group, name: &[u8]| {
        group.seq += 1;
        group.begin(first, group.seq, ClientOp::Fs { op: Group::create_of(name) }, &[]);
    };
    group.cut_ways.insert((first, third));
    unheard(&mut group, b"at two");
    group.copy(first).enter(Event::CheckpointWanted);
    group.pass(200);
    group.machine(follower).is_cut = true;
    unheard(&mut group, b"at one");
    group.pass(200);
    group.machine(first).is_cut = true;
    group.end(first, Fault::ProcessDeath);
    assert_eq!(group.wait_for_leader(), third);
    group.cut_ways.clear();
    group.machine(first).is_cut = false;
    group.start(first);
    group.machine(follower).is_cut = false;
    group.wait_for_all();
    group.same();
    assert_eq!(group.attach(), third);
    for name in [&b"at two"[..], b"at one"] {
        let found = group.lookup(third, name);
        assert!(matches!(found, Outcome::Failed { errno: Errno::ENOENT }), "{found:?}");
    }
}

/// A log that was cut back is shorter than it is known to have been.
#[test]
fn a_copy_that_was_cut_back_opens() {
    let (mut group, first, _) = with_file(2);
    group.machine(first).is_cut = true;
    for file in 0..50 {
        let op = Group::create_of(format!("unheard {file}").as_bytes());
        group.begin(first, group.seq + 1 + file, ClientOp::Fs { op }, &[]);
    }
    let engine = group.engine(first);
    engine.sync_here(engine.last().seq, &[]).unwrap();
    let reached = engine.reached();
    *group.mouth(first).noted.lock().unwrap() = Some(reached);
    drop(engine);
    let second = group.attach();
    group.machine(first).is_cut = false;
    group.wait_for_all();
    assert!(group.engine(second).last().seq < reached.seq, "it was not cut");
    group.end(first, Fault::ProcessDeath);
    group.try_start(first).expect("it is no older copy");
}

/// A member is away while its primary makes checkpoints and starts again: the log still has what it lacks.
#[test]
fn the_log_is_kept_for_a_member_over_a_start() {
    let (mut group, first, ino) = with_file(3);
    let away = group.others(first)[1];
    group.end(away, Fault::ProcessDeath);
    let write = |group: &mut Group, node| {
        for round in 0..3 {
            for part in 0..30 {
                group.write(node, ino, part * 20_000, &[round; 20_000]);
            }
            group.checkpoint();
        }
    };
    write(&mut group, first);
    group.end(first, Fault::ProcessDeath);
    group.start(first);
    let leader = group.attach();
    write(&mut group, leader);
    group.start(away);
    group.wait_for_all();
    group.same();
}

/// A question of the primary is answered late, and its own answers later still: none of them is of a time at which another copy
/// could lead.
#[test]
fn an_answer_outlives_its_primary() {
    let (mut group, first, _) = with_file(2);
    let other = group.others(first)[0];
    group.machine(first).has_no_store = true;
    let asked_ms = group.machine(first).clock.ms();
    group.cut_between(first, other);
    group.skip(800);
    // It has promised when the question came; the answer comes only now.
    let copy = Arc::clone(group.copy(first));
    copy.tell(atoll_group::GroupEvent::Promised { node: other, sent_ms: asked_ms });
    assert!(copy.may_tell());
    let op = ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } };
    let id = group.begin(first, 0, op.clone(), &[]);
    assert!(group.mouth(first).has_answered(id), "it lies in a buffer from here on");
    group.skip(150);
    let late = group.begin(first, 0, op, &[]);
    assert!(!group.mouth(first).has_answered(late), "the lease counts from the question");
    group.pass(2_000);
    assert_eq!(group.leader(), Some(other));
}

/// Clocks run at the worst rates that are allowed: the lease ends before another copy leads.
#[test]
fn leases_hold_at_the_worst_rates() {
    for (slow, fast) in [(75, 100), (100, 133), (86, 100)] {
        let (mut group, first, _) = with_file(2);
        let other = group.others(first)[0];
        group.machine(first).rate = slow;
        group.machine(other).rate = fast;
        group.machine(first).has_no_store = true;
        group.pass(500);
        group.cut_between(first, other);
        for _ in 0..60 {
            // Looks whether two may tell.
            group.pass(50);
        }
        assert_eq!(group.leader(), Some(other), "{slow} {fast}");
    }
}

/// The control store is away: what needs no change of a group goes on, what needs one waits, and goes on when it is back.
#[test]
fn the_store_is_away() {
    let (mut group, first, ino) = with_file(3);
    let away = |group: &mut Group, away| {
        group.nodes().into_iter().for_each(|node| group.machine(node).has_no_store = away);
    };
    away(&mut group, true);
    group.pass(30_000);
    group.write(first, ino, 0, b"without a store");
    // A member dies, perhaps with the store: it cannot be dropped.
    let dead = group.others(first)[0];
    group.end(dead, Fault::ProcessDeath);
    let id = group.write_unheard(first, ino, 0, b"with it again");
    group.seq += 1;
    group.pass(10_000);
    assert!(!group.mouth(first).has_answered(id) && !group.copy(first).may_tell());
    away(&mut group, false);
    assert!(matches!(group.answer(first, id).0, Outcome::Ok { .. }));
    // So does the primary: it needs a swap to lead again, and so does any other copy.
    away(&mut group, true);
    group.end(first, Fault::ProcessDeath);
    group.start(first);
    group.pass(10_000);
    assert_eq!(group.leader(), None);
    away(&mut group, false);
    let leader = group.attach();
    assert_eq!(group.read(leader, ino, 0, 13), b"with it again");
}

/// One way between two, or to the store, is cut: each has one outcome.
#[test]
fn one_way_cuts() {
    let (mut group, first, ino) = with_file(2);
    let other = group.others(first)[0];
    let epoch = group.store.1.epoch;
    // The member is silent: it is dropped, and does not claim, for it hears its primary. Later it is back.
    // Nor does it claim if it hears nothing: its primary has dropped it before that.
    for way in [(other, first), (first, other)] {
        group.cut_ways.insert(way);
        group.pass(5_000);
        assert_eq!((group.leader(), group.store.1.in_sync.len()), (Some(first), 1), "{way:?}");
        group.write(first, ino, 0, b"alone");
        group.cut_ways.clear();
        group.wait_for_all();
    }
    // Whoever cannot ask the store has nothing to ask it.
    for node in [first, other] {
        group.machine(node).has_no_store = true;
        group.pass(30_000);
        group.write(first, ino, 0, b"both");
        group.machine(node).has_no_store = false;
        assert_eq!((group.leader(), group.store.1.in_sync.len()), (Some(first), 2), "{node}");
    }
    assert_eq!(group.store.1.epoch, epoch);
    group.same();
}

/// A thread still has work of an engine that was closed, when the copy leads again.
#[test]
fn a_ticket_of_an_earlier_epoch_is_dropped() {
    let (mut group, first, ino) = with_file(2);
    let engine = group.engine(first);
    let op = ClientOp::Fs { op: Group::write_of(ino, 10) };
    let request = Group::request(atoll_core::SessionId(1), group.seq + 1, op);
    let (link, id, data) = (LinkId(100 + u64::from(first.0)), 1 << 40, Bytes::from_static(&[9; LARGE]));
    let mut work = engine.begin(Event::Request { link, id, request, data });
    group.machine(first).is_cut = true;
    let second = group.attach();
    group.write(second, ino, 10, &[3; LARGE]);
    group.machine(first).is_cut = false;
    group.wait_for_all();
    group.end(second, Fault::ProcessDeath);
    assert_eq!(group.attach(), first);
    while engine.go_on(&mut work) {}
    assert!(!group.mouth(first).has_answered(id));
    group.start(second);
    group.wait_for_all();
    assert_eq!(group.read(first, ino, 9, 2), [2, 3]);
    group.same();
}

/// Frames come on one link before the first of them was dealt with.
#[test]
fn appends_keep_their_order() {
    let (mut group, first, _) = with_file(2);
    let other = group.others(first)[0];
    group.end(other, Fault::ProcessDeath);
    group.machine(other).in_steps = true;
    group.start(other);
    group.wait_for_all();
    let frames = Arc::<Mutex<Vec<(GroupMessage, Bytes)>>>::default();
    let keeps = Arc::clone(&frames);
    group.loses = Some(Box::new(move |_, _, message, payload| {
        let is_frame = matches!(message, GroupMessage::Append { .. }) && !payload.is_empty();
        if is_frame {
            keeps.lock().unwrap().push((message.clone(), payload.clone()));
        }
        is_frame
    }));
    for name in [b"one", b"two"] {
        group.seq += 1;
        group.begin(first, group.seq, ClientOp::Fs { op: Group::create_of(name) }, &[]);
        group.pump();
    }
    let frames = std::mem::take(&mut *frames.lock().unwrap());
    assert_eq!(frames.len(), 2, "{frames:?}");
    for (message, payload) in frames {
        group.copy(other).hear(first, u64::MAX, message, &payload);
    }
    group.do_steps();
    assert_eq!(group.engine(other).last(), group.engine(first).last());
}

/// A copy comes back while clients write all the time. Each write is a record of its own, with bytes.
#[test]
fn a_copy_that_catches_up_gets_what_waits_in_large_frames() {
    let (mut group, first, ino) = with_file(2);
    let other = group.others(first)[0];
    for node in [other, first] {
        group.end(node, Fault::ProcessDeath);
    }
    group.machine(first).in_steps = true;
    group.start(first);
    assert_eq!(group.attach(), first);
    group.write(first, ino, 0, &[1; LARGE]);
    let frames = Arc::<Mutex<u32>>::default();
    let counts = Arc::clone(&frames);
    group.loses = Some(Box::new(move |_, _, message, payload| {
        let is_frame = matches!(message, GroupMessage::Append { .. }) && !payload.is_empty();
        *counts.lock().unwrap() += u32::from(is_frame);
        false
    }));
    group.ships_late = true;
    group.start(other);
    group.pass(1_000);
    for round in 0..100 {
        group.write(first, ino, round * LARGE as u64, &[2; LARGE]);
    }
    assert_eq!((*frames.lock().unwrap(), group.store.1.in_sync.len()), (0, 1), "it waits");
    group.ships_late = false;
    group.wait_for_all();
    assert!(*frames.lock().unwrap() <= 20, "{} frames for 100 records", frames.lock().unwrap());
    group.same();
}

/// A mount may keep what it was told. The next primary has only a row that says so.
#[test]
fn a_mount_that_may_keep_something_is_waited_for_by_the_next_primary() {
    let mut group = Group::new(2);
    let first = group.attach();
    let lease = group.begin_as(1, first, 0, ClientOp::Lease, &[]);
    group.pass(1_000);
    assert!(group.mouth(first).has_answered(lease));
    group.end(first, Fault::ProcessDeath);
    let second = group.wait_for_leader();
    let attached = group.begin_as(2, second, 0, ClientOp::Attach { mount: true }, &[]);
    group.pass(100);
    assert!(group.mouth(second).has_answered(attached), "nobody waits for that");
    let op = Op::Mkdir { dir: Ino::ROOT, name: Name::new(b"d").unwrap(), mode: 0o755, umask: 0 };
    let id = group.begin_as(2, second, 1, ClientOp::Fs { op }, &[]);
    group.pass(13_500);
    assert!(!group.mouth(second).has_answered(id), "the first mount may still believe in what it keeps");
    group.pass(3_000);
    assert!(group.mouth(second).has_answered(id));
}

/// A copy that has lost its power is killed again and again before it has synced anything: it has lost something once. Later all
/// are killed: that is no power cut.
#[test]
fn two_quick_kills_void_no_seat() {
    let (mut group, first, _) = with_file(2);
    let other = group.others(first)[0];
    group.end(other, Fault::PowerCut { seed: 1 });
    group.start(other);
    for _ in 0..3 {
        assert_eq!(group.tenure(other), 2, "it is void, and counts its loss once");
        group.end(other, Fault::ProcessDeath);
        group.start(other);
    }
    group.wait_for_all();
    for _ in 0..3 {
        for node in group.nodes() {
            group.end(node, Fault::ProcessDeath);
        }
        group.nodes().into_iter().for_each(|node| group.start(node));
    }
    group.attach();
    assert_eq!((group.tenure(first), group.tenure(other)), (1, 2));
    assert!(!group.store.1.power_cut, "clients hear of a power cut");
}

/// A copy without a seat has committed more than what all seats have left after a power cut: it is cut back, and has bytes of
/// the cut records in its bodies.
#[test]
fn bytes_of_cut_records_are_fetched() {
    let mut cuts = 0;
    for seed in 0..8 {
        let (mut group, first, ino) = with_file(3);
        group.sync(first, ino);
        let apart = group.others(first)[1];
        // It is silent, so that it is dropped when it has the record, and before others sync that.
        group.cut_ways.insert((apart, first));
        group.pass(500);
        group.write_unheard(first, ino, 100, &[9; LARGE]);
        group.seq += 1;
        group.pass(450);
        assert!(group.store.1.seat_of(apart).is_none());
        group.machine(apart).is_cut = true;
        group.cut_ways.clear();
        for node in group.others(apart) {
            group.end(node, Fault::PowerCut { seed });
        }
        group.others(apart).into_iter().for_each(|node| group.start(node));
        let leader = group.attach();
        group.write(leader, ino, 0, b"perhaps another history");
        group.machine(apart).is_cut = false;
        group.wait_for_all();
        cuts += u32::from(group.tenure(apart) == 2);
        group.same();
    }
    assert!(cuts > 0, "no power cut has taken the last record");
}

/// A copy that leads long after its primary has died gives the other islands the time that a start gives them.
#[test]
fn a_late_promotion_waits_for_all() {
    for (late_ms, least, most) in [(0, 0, 400), (4_000, 2_000, 2_400)] {
        let mut group = Group::with(2, 2);
        let first = group.wait_for_leader();
        let other = group.others(first)[0];
        group.pass(3_000);
        group.machine(other).has_no_store = late_ms > 0;
        group.end(first, Fault::ProcessDeath);
        group.pass(late_ms);
        group.machine(other).has_no_store = false;
        assert_eq!(group.wait_for_leader(), other);
        let mut ms = 0;
        while group.engine(other).phase() != Phase::Normal {
            group.pass(50);
            ms += 50;
        }
        assert!((least..=most).contains(&ms), "{ms} ms after {late_ms}");
    }
}

/// A primary dies somewhere between its bytes and their record: no record says that its body differs from those of others.
#[test]
fn a_deposed_primary_finds_what_differs() {
    let mut lacked = 0;
    for effect in 1..8 {
        let (mut group, first, ino) = with_file(2);
        group.mouth(first).may_fail.store(true, Ordering::Relaxed);
        group.machine(first).disk.die_after(effect);
        group.write_unheard(first, ino, 0, &[9; LARGE]);
        group.end(first, Fault::ProcessDeath);
        let second = group.attach();
        group.start(first);
        group.wait_for_all();
        lacked += u32::from(group.read(second, ino, 0, 1) == [2]);
        group.same();
    }
    assert!(lacked > 0, "the second has all records each time");
}
