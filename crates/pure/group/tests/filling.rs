//! The dangerous sequences of `docs/design/020-filling.md` that concern the group's machine, by their names there.

#![allow(dead_code, reason = "the tests of planted bugs use a part of it")]

mod one;

use atoll_group::{Given, GroupEffect, GroupEvent, OpenedLog, Role, SeatFile, SwapOutcome};
use atoll_proto::GroupMessage;
use one::{
    M, N, One, P, append, at, join, life, log, pass_with, primary, record, seat, standing, three, two,
};

/// A copy on this node whose disk was wiped, with links to the others of the ring.
fn wiped(node: atoll_core::NodeId, ring: &[atoll_core::NodeId]) -> One {
    let mut one = One::new(node, ring, SeatFile::of_an_empty_copy(), log(&[]));
    for other in ring.iter().filter(|other| **other != node) {
        one.link(life(*other, 5));
    }
    one
}

fn tells_join(one: &mut One, to: atoll_core::NodeId) -> Option<u32> {
    one.told(to).into_iter().find_map(|message| match message {
        GroupMessage::Join { tenure, .. } => Some(tenure),
        _ => None,
    })
}

#[test]
pub(crate) fn a_wiped_copy_has_no_seat() {
    let known = record(7, P, &two());
    let mut m = wiped(M, &[P, M]);
    m.beacon(P, 7);
    m.pass(400);
    m.hear(P, append(7, at(0, 0), &[at(7, 3)], 0));
    assert_eq!(m.told(P), [], "it says nothing before it has read the record");
    m.knows(&known);
    assert_eq!(m.saved().map(|seat| (seat.tenure, seat.lacks)), Some((1_000, true)));
    m.beacon(P, 7);
    m.pass(400);
    assert_eq!(tells_join(&mut m, P), Some(1_000), "its data is another one than its seat is for");
    m.pass(20_000);
    m.answer_reads(&known);
    assert_eq!((m.role(), m.swap()), (Role::Void, None), "however long nothing is heard");
    // A tenure above the clock's seconds is not given again either.
    let mut m = wiped(M, &[P, M]);
    m.knows(&record(7, P, &[seat(P, 1), seat(M, 5_000)]));
    assert_eq!(m.saved().map(|seat| seat.tenure), Some(5_001));
}

/// Found as `groups_all --seed 403673`. M has led epochs of which P has not heard, which leads epoch 7 yet, and was wiped.
#[test]
fn a_copy_that_knows_no_record_promises_nothing() {
    let mut m = wiped(M, &[P, M, N]);
    assert_eq!(m.beacon(P, 7), Given::Refused(0), "P would have a lease by it");
    m.pass(400);
    m.knows(&record(9, N, &[seat(M, 1), seat(N, 1)]));
    assert_eq!(m.beacon(P, 7), Given::Refused(9));
    assert_eq!(m.beacon(N, 9), Given::Promise);
    m.pass(400);
    assert_eq!(tells_join(&mut m, N), Some(1_000), "it hears its primary");
    // Its next life remembers the record.
    let mut m = One::new(M, &[P, M, N], m.group.seat().clone(), log(&[]));
    assert_eq!((m.beacon(P, 7), m.beacon(N, 9)), (Given::Refused(9), Given::Promise));
    // Also a copy that the volume begins with has to read the first record.
    let mut m = One::member(M, &[P, M], &[]);
    assert_eq!(m.beacon(P, 7), Given::Refused(0));
    m.knows(&record(7, P, &two()));
    assert_eq!(m.beacon(P, 7), Given::Promise);
}

#[test]
pub(crate) fn a_copy_that_is_filled_is_another_one() {
    let known = record(7, P, &[seat(P, 1)]);
    let mut m = wiped(M, &[P, M]);
    m.knows(&known);
    m.hear(P, append(7, at(7, 40), &[], 40));
    assert_eq!(m.group.fills_from(), None);
    m.hear(P, GroupMessage::Released { epoch: 7, common: None });
    assert_eq!(m.group.fills_from(), Some((P, 7)));
    m.out.clear();
    m.event(GroupEvent::Filled);
    let lacks = m.saved().expect("before its files are changed");
    assert_eq!((lacks.tenure, lacks.lacks), (1_001, true));
    assert!(matches!(m.out.last(), Some(GroupEffect::Refill)));
    let epochs = atoll_proto::EpochTable { base: at(7, 30), ends: Vec::new() };
    let epochs = atoll_group::Epochs::new(epochs).unwrap();
    let filled = OpenedLog { whole: true, epochs, checkpoint: 30, first: 31, last_body: 0, differs: 1 };
    m.event(GroupEvent::Opened { log: filled });
    assert_eq!((m.group.fills_from(), m.committed(), m.synced()), (None, 30, 30));
    m.hear(P, append(7, at(7, 30), &[at(7, 40)], 40));
    assert_eq!(m.committed(), 40, "it follows");
    // What it lacks ends with its seat.
    m.revision += 1;
    m.knows(&record(7, P, &[seat(P, 1), seat(M, 1_001)]));
    assert!(!m.group.seat().lacks);
}

#[test]
pub(crate) fn a_copy_that_lacks_bytes_leads_no_cold_start() {
    // Both seats are void: P has lost its power, and the log of M, which was filled and lacks bytes, is longer.
    let known = record(7, P, &three()[..2]);
    let file =
        SeatFile { tenure: 1_001, lacks: true, record: Some((9, known.clone())), ..SeatFile::of_one() };
    let file = SeatFile { grouped: true, ..file };
    let mut m = One::new(M, &[P, M], file, log(&[at(7, 40)]));
    m.link(life(P, 6));
    m.knows(&known);
    m.hear(P, standing(at(7, 35), 2, true, false));
    m.pass(5_000);
    m.answer_reads(&known);
    m.pass(1_000);
    assert_eq!(m.swap(), None);
    m.out.clear();
    m.hear(P, GroupMessage::Standing { last: at(7, 35), tenure: 2, void: true, cut: false, asks: true });
    assert_eq!(m.told(P), [standing(at(0, 0), 1_001, true, true)], "so P knows itself the better one");
    // An order does not make it one.
    m.event(GroupEvent::Force);
    m.pass(5_000);
    m.answer_reads(&known);
    m.pass(1_000);
    assert_eq!(m.swap(), None);
}

#[test]
pub(crate) fn the_better_history_is_not_thrown_away() {
    // M was made to lead with record 8; N, which has no seat any more, has synced 10 with the others.
    let mut n = One::member(N, &[P, M, N], &[at(6, 10)]);
    n.knows(&record(6, P, &three()));
    let (after, ends, keep) = (at(6, 10), Vec::new(), 1);
    n.hear(P, GroupMessage::Append { epoch: 6, after, ends, commit: 10, synced: 10, keep });
    n.revision += 1;
    n.knows(&record(7, M, &[seat(P, 1), seat(M, 1)]));
    n.beacon(M, 7);
    n.pass(400);
    n.hear(M, GroupMessage::Released { epoch: 7, common: Some(at(6, 8)) });
    assert_eq!((n.group.must_be_filled(), n.group.fills_from()), (true, None));
    n.hear(M, GroupMessage::Released { epoch: 7, common: Some(at(6, 10)) });
    assert_eq!(n.group.fills_from(), Some((M, 7)), "nothing of it is thrown away");
}

/// Found as `groups_fill --seed 2271`: it was not heard any more.
#[test]
fn a_copy_that_is_wiped_twice_within_a_second_is_heard() {
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, expect, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.hear(N, join(1_001, &[at(7, 10), at(8, 11)]));
    p.told(N);
    p.link(life(N, 6));
    p.hear(N, join(1_000, &[]));
    assert!(matches!(
        p.told(N).as_slice(),
        [.., GroupMessage::Append { after, ends, .. }] if after.seq == 0 && ends.len() == 2
    ));
    p.has(N, 8, 1_000, 11, 11);
    pass_with(&mut p, 1_200, &[M, N]);
    assert!(p.told(N).iter().any(|m| matches!(m, GroupMessage::SyncTo { number: 0, .. })), "it is counted");
}

#[test]
fn what_a_copy_needs_of_the_log_is_held_while_it_is_heard_of() {
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, expect, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(p.group.needed_from(), None);
    p.hear(N, join(1_001, &[at(7, 10)]));
    assert_eq!(p.group.needed_from(), Some(11));
    p.decide(200);
    p.has(M, 8, 1, 200, 200);
    p.has(N, 8, 1_001, 15, 15);
    pass_with(&mut p, 1_000, &[M, N]);
    assert_eq!(p.group.needed_from(), Some(16));
    pass_with(&mut p, 29_000, &[M]);
    assert_eq!(p.group.needed_from(), Some(16));
    pass_with(&mut p, 2_000, &[M]);
    assert_eq!(p.group.needed_from(), None, "it is gone");
}

#[test]
fn a_copy_that_differs_is_not_counted() {
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, expect, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.hear(N, join(1_001, &[at(7, 10), at(8, 11)]));
    let has = |differs| GroupMessage::Has {
        epoch: 8,
        tenure: 1_001,
        written: 11,
        synced: 11,
        room: u64::MAX,
        stuck: false,
        differs,
    };
    p.hear(N, has(1));
    pass_with(&mut p, 3_000, &[M, N]);
    assert!(!p.told(N).iter().any(|m| matches!(m, GroupMessage::SyncTo { .. })));
    p.hear(N, has(0));
    pass_with(&mut p, 100, &[M, N]);
    assert!(p.told(N).iter().any(|m| matches!(m, GroupMessage::SyncTo { number: 0, .. })));
}

#[test]
fn another_node_gets_a_seat_when_more_copies_are_wanted() {
    let mut p = primary(&[P, M]);
    p.link(life(N, 5));
    p.hear(N, join(1_000, &[]));
    assert_eq!(p.told(N), [], "N is not of this group");
    p.event(GroupEvent::Wanted { copies: 3, ring: vec![P, M, N] });
    pass_with(&mut p, 50, &[M]);
    let (number, expect, record) = p.swap().expect("the record says so");
    assert_eq!((record.wanted, record.in_sync), (3, two()));
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.link(life(N, 5));
    p.hear(N, join(1_000, &[]));
    p.has(N, 8, 1_000, 11, 11);
    pass_with(&mut p, 100, &[M, N]);
    p.event(GroupEvent::Synced { seq: 11 });
    p.has(M, 8, 1, 11, 11);
    p.all_synced(N, 8, 1_000, 11);
    pass_with(&mut p, 100, &[M, N]);
    let (_, _, record) = p.swap().expect("it gets its seat");
    assert_eq!(record.seat_of(N), Some(seat(N, 1_000)));
}

#[test]
fn the_last_of_the_ring_goes_when_fewer_copies_are_wanted() {
    let mut p = primary(&[P, M, N]);
    p.event(GroupEvent::Wanted { copies: 2, ring: vec![P, M, N] });
    pass_with(&mut p, 50, &[M, N]);
    let (number, expect, record) = p.swap().expect("the record says so");
    assert_eq!((record.wanted, record.in_sync), (2, three()));
    p.swapped(number, SwapOutcome::Done(expect + 1));
    pass_with(&mut p, 50, &[M, N]);
    let (number, expect, record) = p.swap().expect("one goes");
    assert_eq!(record.in_sync, two());
    p.decide(12);
    p.has(M, 8, 1, 12, 11);
    assert_eq!(p.committed(), 11, "it is counted until it is known to be out");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(p.committed(), 12);
    pass_with(&mut p, 5_000, &[M, N]);
    assert_eq!(p.swap(), None, "and no other");
}

/// N gets its seat at the primary P, in place of whatever the ring says.
fn n_gets_its_seat(p: &mut One, others: &[atoll_core::NodeId]) -> atoll_proto::GroupRecord {
    p.link(life(N, 5));
    p.hear(N, join(1_000, &[]));
    p.has(N, 8, 1_000, 11, 11);
    let all: Vec<_> = others.iter().copied().chain([N]).collect();
    pass_with(p, 100, &all);
    p.event(GroupEvent::Synced { seq: 11 });
    others.iter().for_each(|node| p.has(*node, 8, 1, 11, 11));
    p.all_synced(N, 8, 1_000, 11);
    pass_with(p, 100, &all);
    let (number, expect, record) = p.swap().expect("it gets its seat");
    assert_eq!(record.seat_of(N), Some(seat(N, 1_000)));
    p.swapped(number, SwapOutcome::Done(expect + 1));
    record
}

#[test]
pub(crate) fn a_copy_goes_when_the_one_in_its_place_has_a_seat() {
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Wanted { copies: 2, ring: vec![P, N, M] });
    pass_with(&mut p, 3_000, &[M]);
    assert_eq!(p.swap(), None, "M stays");
    assert!(!p.group.is_full(), "what N lacks is kept");
    let record = n_gets_its_seat(&mut p, &[M]);
    assert_eq!(record.in_sync, [seat(P, 1), seat(M, 1), seat(N, 1_000)]);
    pass_with(&mut p, 50, &[M, N]);
    let (number, expect, record) = p.swap().expect("M goes");
    assert_eq!(record.in_sync, [seat(P, 1), seat(N, 1_000)]);
    p.swapped(number, SwapOutcome::Done(expect + 1));
    pass_with(&mut p, 5_000, &[N]);
    assert_eq!((p.swap(), p.group.is_full()), (None, true));
}

#[test]
fn whoever_has_a_seat_is_of_the_group_whatever_else_was_told() {
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Wanted { copies: 2, ring: vec![P, N] });
    pass_with(&mut p, 3_000, &[M]);
    assert_eq!(p.swap(), None, "M is heard as before");
    p.decide(12);
    p.has(M, 8, 1, 12, 11);
    p.event(GroupEvent::Written { seq: 12, last_body: 0 });
    assert_eq!(p.committed(), 12);
}

/// Found as `groups_rings --seed 1026`: N leads and is to go, and M was started again. Its configuration does not name N, and
/// its link came before the record was read.
#[test]
fn a_primary_that_the_ring_does_not_name_is_heard_although_its_link_came_before_the_record() {
    let mut m = One::member(M, &[P, M], &[at(6, 10)]);
    m.link(life(N, 5));
    m.knows(&record(7, N, &[seat(P, 1), seat(N, 1)]));
    m.beacon(N, 7);
    m.pass(400);
    assert_eq!(tells_join(&mut m, N), Some(1));
    m.hear(N, append(7, at(6, 10), &[at(7, 12)], 12));
    assert_eq!(m.committed(), 12);
}

#[test]
fn a_primary_that_is_to_go_has_another_one_lead_first() {
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Wanted { copies: 2, ring: vec![M, N, P] });
    pass_with(&mut p, 3_000, &[M]);
    assert!(matches!(p.role(), Role::Leading { .. }), "its copy is needed");
    n_gets_its_seat(&mut p, &[M]);
    p.has(M, 8, 1, 11, 11);
    p.has(N, 8, 1_000, 11, 11);
    pass_with(&mut p, 100, &[M, N]);
    assert!(p.told(M).iter().any(|m| matches!(m, GroupMessage::Resign { to: Some(to), .. } if *to == M)));
    assert_eq!(p.role(), Role::Closing, "it leads no more");
}

#[test]
fn of_three_copies_those_of_the_first_places_stay() {
    // The copy of the primary is the one that is too many: it goes itself, and no other one in its place.
    let mut p = primary(&[P, M, N]);
    p.event(GroupEvent::Wanted { copies: 2, ring: vec![M, N, P] });
    pass_with(&mut p, 50, &[M, N]);
    let (number, expect, record) = p.swap().expect("the record says so");
    assert_eq!((record.wanted, record.in_sync.len()), (2, 3));
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.event(GroupEvent::Synced { seq: 11 });
    p.has(M, 8, 1, 11, 11);
    p.has(N, 8, 1, 11, 11);
    pass_with(&mut p, 200, &[M, N]);
    assert_eq!(p.swap(), None);
    assert_eq!(p.role(), Role::Closing, "it leads no more");
}

#[test]
fn an_island_that_is_alone_gets_a_record_when_its_copy_is_to_be_elsewhere() {
    let mut p = One::new(P, &[P], SeatFile::of_one(), log(&[]));
    p.event(GroupEvent::Wanted { copies: 1, ring: vec![N, P] });
    p.event(GroupEvent::Decided { seq: 1 });
    p.event(GroupEvent::Written { seq: 1, last_body: 0 });
    p.event(GroupEvent::Synced { seq: 1 });
    p.pass(100);
    let (_, expect, record) = p.swap().expect("there is none yet");
    assert_eq!((expect, record.in_sync, record.wanted), (0, vec![seat(P, 1)], 1));
}

#[test]
pub(crate) fn an_island_with_one_copy_goes_on_when_three_are_wanted() {
    let mut p = primary(&[P, M]);
    pass_with(&mut p, 950, &[]);
    let (number, expect, record) = p.swap().expect("M is dropped");
    assert_eq!(record.in_sync, [seat(P, 1)]);
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.event(GroupEvent::Wanted { copies: 3, ring: vec![P, M, N] });
    pass_with(&mut p, 50, &[]);
    assert_eq!(p.swap(), None, "two are wanted as before");
    assert!(p.group.may_decide());
    p.link(life(M, 6));
    p.hear(M, join(1, &[at(7, 10), at(8, 11)]));
    p.has(M, 8, 1, 11, 11);
    pass_with(&mut p, 2_000, &[M]);
    p.event(GroupEvent::Synced { seq: 11 });
    p.has(M, 8, 1, 11, 11);
    p.all_synced(M, 8, 1, 11);
    pass_with(&mut p, 50, &[M]);
    let (number, expect, record) = p.swap().expect("M is in again");
    assert_eq!((record.wanted, record.in_sync), (2, two()));
    p.swapped(number, SwapOutcome::Done(expect + 1));
    pass_with(&mut p, 50, &[M]);
    let (_, _, record) = p.swap().expect("now three can be wanted");
    assert_eq!((record.wanted, record.in_sync), (3, two()));
}
