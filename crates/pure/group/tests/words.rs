//! What comes late, comes twice, cannot be, or is said by a member that is broken.

mod one;

use atoll_core::{Ino, IslandId, NodeId};
use atoll_group::{Epochs, Given, GroupEffect, GroupEvent, Role, SeatFile, SwapOutcome};
use atoll_proto::{EpochTable, GroupMessage, GroupRecord, Host, NodeLife};
use one::{M, N, One, P, append, at, join, life, log, pass_with, primary, record, seat, three, two};

#[test]
fn a_sync_of_an_earlier_epoch_answers_none() {
    // The disk of M is slow: it ends a round of P's when N leads, whose round has the same number and another body.
    let ask = |epoch, body| GroupMessage::SyncTo { epoch, number: 5, seq: 10, bodies: vec![body] };
    let is_told =
        |m: &mut One, node| m.told(node).iter().any(|told| matches!(told, GroupMessage::SyncedTo { .. }));
    let mut m = One::member(M, &[P, M, N], &[at(7, 10)]);
    m.knows(&record(7, P, &three()));
    m.hear(P, append(7, at(7, 10), &[], 10));
    m.hear(P, ask(7, Ino::mint(IslandId(1), 1)));
    m.hear(N, append(8, at(7, 10), &[], 10));
    m.hear(N, ask(8, Ino::mint(IslandId(1), 2)));
    assert!(m.wants(|effect| matches!(effect, GroupEffect::Sync { epoch: 8, number: 5, .. })));
    m.event(GroupEvent::SyncDone { epoch: 7, number: 5, seq: 12 });
    assert!(!is_told(&mut m, N), "the body of N's round is not synced");
    m.event(GroupEvent::SyncDone { epoch: 8, number: 5, seq: 12 });
    assert!(is_told(&mut m, N));
    // Nor does it answer a round that its own copy leads.
    let mut p = primary(&[P, M]);
    p.decide(12);
    p.has(M, 8, 1, 12, 12);
    p.event(GroupEvent::SyncAll { number: 5, seq: 12, bodies: vec![Ino::mint(IslandId(1), 2)] });
    p.event(GroupEvent::Synced { seq: 12 });
    p.hear(M, GroupMessage::SyncedTo { epoch: 8, tenure: 1, number: 5, seq: 12 });
    p.event(GroupEvent::SyncDone { epoch: 7, number: 5, seq: 12 });
    assert!(!p.wants(|effect| matches!(effect, GroupEffect::RoundDone { .. })));
    p.event(GroupEvent::SyncDone { epoch: 8, number: 5, seq: 12 });
    assert!(p.wants(|effect| *effect == GroupEffect::RoundDone { number: 5 }));
}

#[test]
fn a_member_behind_the_table_is_sent_nothing() {
    // The table of P begins at its snapshot, record 10. M's disk sleeps: it has written 5 of them.
    let epochs = Epochs::new(EpochTable { base: at(7, 10), ends: vec![at(7, 12)] }).unwrap();
    let opened = atoll_group::OpenedLog { epochs, checkpoint: 10, first: 11, ..log(&[]) };
    let mut p = One::new(P, &[P, M], SeatFile::of_a_new_member(), opened);
    p.link(life(M, 5));
    assert_eq!(p.lead_after(&record(7, M, &[seat(P, 1), seat(M, 1)])), 8);
    p.decide(13);
    p.hear(M, join(1, &[at(7, 12)]));
    assert!(p.told(M).iter().any(|told| matches!(told, GroupMessage::Append { .. })));
    p.has(M, 8, 1, 5, 5);
    p.pass(700);
    p.link(life(M, 5));
    p.pass(50);
    p.has(M, 8, 1, 13, 13);
    assert!(p.told(M).iter().any(|told| matches!(told, GroupMessage::Append { .. })), "it is asked again");
}

#[test]
fn what_cannot_be_is_not_believed() {
    // A broken member names numbers that would hinder all others, or have no successor.
    let mut m = One::member(M, &[P, M, N], &[at(7, 10)]);
    m.knows(&record(7, P, &three()));
    assert_eq!(m.beacon(N, u32::MAX), Given::Refused(7));
    m.hear(N, append(u32::MAX, at(7, 10), &[at(8, 11)], 10));
    m.hear(N, append(8, at(7, 10), &[at(8, u64::MAX)], 10));
    m.hear(N, append(8, at(7, 10), &[at(8, 10 + atoll_group::WINDOW + 1)], 10));
    assert_eq!(m.group.last(), at(7, 10));
    assert_eq!(m.beacon(P, 7), Given::Promise, "nothing else was seen");
    // An epoch that only a message has named does not outlive the process.
    assert_eq!(m.beacon(N, 9), Given::Promise);
    m.revision += 1;
    m.knows(&record(7, P, &two()));
    assert_eq!(m.group.seat().seen, 7);
    // Nodes of no ring leave nothing that grows beyond a bound, and none keeps one of the ring away.
    for node in 0..2_000 {
        m.link(life(NodeId(99 + node), 5));
    }
    assert!(format!("{:?}", m.group).matches("Host").count() < 2 * atoll_group::LINKS_MAX + 16);
    m.out.clear();
    m.event(GroupEvent::Wanted { copies: 3, ring: vec![P, M, NodeId(5_000)] });
    m.link(life(NodeId(5_000), 5));
    m.hear(NodeId(5_000), append(6, at(7, 10), &[], 10));
    assert_eq!(m.told(NodeId(5_000)), [GroupMessage::Refused { epoch: 9 }], "it is heard");
    // So does a node with a new boot each time.
    let mut m = One::member(M, &[P, M, N], &[at(7, 10)]);
    for boot in 0..200 {
        m.link(NodeLife { host: Host { boot: 100 + boot, inode: 1 }, ..life(P, 6 + boot as u32) });
    }
    assert!(format!("{:?}", m.group).matches("Host").count() < 40);
    // No epoch follows on the last one.
    let last = GroupRecord { epoch: u32::MAX, ..record(7, P, &two()) };
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&last);
    m.pass(3_000);
    assert_eq!((m.role(), m.swap()), (Role::Following { epoch: u32::MAX, primary: None }, None));
}

#[test]
fn what_was_not_taken_is_asked_for_again() {
    // M's log finds no space for the last two of three records.
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&record(7, P, &two()));
    m.hear(P, append(7, at(7, 10), &[at(7, 13)], 12));
    m.event(GroupEvent::NotTaken { last: 11 });
    m.event(GroupEvent::Written { seq: 11, last_body: 0 });
    assert_eq!((m.group.last(), m.committed()), (at(7, 11), 11));
    assert!(matches!(m.told(P)[..], [GroupMessage::Has { written: 11, .. }]));
    // The next frame has no place, and the one that has is taken.
    m.out.clear();
    m.hear(P, append(7, at(7, 13), &[at(7, 14)], 12));
    let asked = m.told(P);
    assert!(
        matches!(&asked[..], [GroupMessage::Join { epochs, .. }] if epochs.ends == [at(7, 11)]),
        "{asked:?}"
    );
    m.hear(P, append(7, at(7, 11), &[at(7, 14)], 12));
    assert!(m.wants(|effect| matches!(effect, GroupEffect::Take { after, upto } if (*after, *upto) == (at(7, 11), at(7, 14)))));
    assert!(m.wants(|effect| *effect == GroupEffect::Committed { seq: 12 }));
    // Who has become the primary meanwhile leads no longer.
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.hear(P, append(7, at(7, 10), &[at(7, 13)], 12));
    m.lead_after(&record(7, P, &two()));
    m.event(GroupEvent::NotTaken { last: 11 });
    assert_eq!(m.role(), Role::Closing);
}

#[test]
fn an_order_to_lead_ends() {
    let known = record(7, P, &two());
    let claims = |n: &mut One, ms: u64| {
        (0..ms / 500).any(|_| {
            n.pass(500);
            n.answer_reads(&known);
            n.pass(50);
            n.swap().is_some()
        })
    };
    let without_seat = || {
        let mut n = One::member(N, &[P, M, N], &[at(7, 8)]);
        n.knows(&known);
        n
    };
    // A copy without a seat leads only by an order,
    let mut n = without_seat();
    assert!(!claims(&mut n, 5_000));
    n.event(GroupEvent::Force);
    assert!(claims(&mut n, 5_000));
    // also if it was to be filled anew.
    let mut n = without_seat();
    n.hear(P, append(7, at(7, 8), &[], 8));
    n.hear(P, GroupMessage::Released { epoch: 7, common: None });
    n.event(GroupEvent::Force);
    assert!(claims(&mut n, 5_000));
    // As long as it hears a primary, an order means nothing,
    let mut n = without_seat();
    assert_eq!(n.beacon(P, 7), Given::Promise);
    n.event(GroupEvent::Force);
    assert!(!claims(&mut n, 20_000));
    // and if it could not be followed at once, it is over.
    let mut n = without_seat();
    n.event(GroupEvent::Force);
    for _ in 0..110 {
        assert_eq!(n.beacon(P, 7), Given::Promise);
        n.pass(100);
    }
    n.answer_reads(&known);
    assert!(!claims(&mut n, 20_000));
}

#[test]
fn a_sync_ahead_of_the_write_waits() {
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&record(7, P, &two()));
    let ask = GroupMessage::SyncTo { epoch: 7, number: 5, seq: 11, bodies: Vec::new() };
    let begun = |m: &mut One| {
        let before = m.out.len();
        m.out.retain(|effect| !matches!(effect, GroupEffect::Sync { number: 5, .. }));
        before - m.out.len()
    };
    m.hear(P, append(7, at(7, 10), &[at(7, 11)], 10));
    m.hear(P, ask.clone());
    assert_eq!(begun(&mut m), 0, "its bytes may not be here");
    m.event(GroupEvent::Written { seq: 11, last_body: 0 });
    assert_eq!(begun(&mut m), 1);
    m.hear(P, ask.clone());
    assert_eq!(begun(&mut m), 0, "it is under way");
    m.event(GroupEvent::SyncDone { epoch: 7, number: 5, seq: 11 });
    m.out.clear();
    m.hear(P, ask);
    assert_eq!(begun(&mut m), 1, "the answer may have been lost");
}

#[test]
fn a_lost_question_for_a_sync_is_asked_again_beside_others() {
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::SyncAll { number: 1, seq: 11, bodies: Vec::new() });
    p.told(M);
    // Another file is synced each 200 ms.
    let mut again = 0;
    for number in 2..8 {
        pass_with(&mut p, 200, &[M]);
        p.event(GroupEvent::SyncAll { number, seq: 11, bodies: Vec::new() });
        again +=
            p.told(M).iter().filter(|told| matches!(told, GroupMessage::SyncTo { number: 1, .. })).count();
    }
    assert!((3..5).contains(&again), "{again}");
}

#[test]
fn only_the_primary_releases_a_copy_without_a_seat() {
    let known = record(7, P, &two());
    let follower = |node| {
        let mut one = One::member(node, &[P, M, N], &[at(7, 10)]);
        one.knows(&known);
        one.hear(P, append(7, at(7, 10), &[], 10));
        one
    };
    // M has a seat, and so all that is committed: it may be the only one that can lead.
    let mut m = follower(M);
    m.hear(P, GroupMessage::Released { epoch: 7, common: None });
    assert!(!m.group.must_be_filled());
    // N has none. Another member's word is nothing to it.
    let mut n = follower(N);
    n.hear(M, GroupMessage::Released { epoch: 7, common: None });
    assert!(!n.group.must_be_filled());
    n.hear(P, GroupMessage::Released { epoch: 7, common: None });
    assert!(n.group.must_be_filled());
    // The log of the next primary begins earlier.
    n.hear(M, append(8, at(7, 10), &[at(8, 11)], 10));
    assert!(!n.group.must_be_filled());
}

#[test]
fn nobody_leaves_who_is_alone() {
    let mut p = One::new(P, &[P, M], SeatFile::of_one(), log(&[at(7, 10)]));
    p.decide(11);
    p.event(GroupEvent::Synced { seq: 11 });
    p.event(GroupEvent::Leave { to: None });
    p.pass(100);
    assert!(p.group.may_decide(), "only its own next process could lead");
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Leave { to: Some(P) });
    assert!(p.group.may_decide());
    p.event(GroupEvent::Leave { to: None });
    assert!(!p.group.may_decide());
}

#[test]
fn a_copy_that_is_counted_stays_so_when_another_is_dropped() {
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, expect, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.hear(N, join(1, &[at(7, 10), at(8, 11)]));
    p.has(N, 8, 1, 11, 0);
    pass_with(&mut p, 1_200, &[M, N]);
    assert!(
        p.told(N).iter().any(|told| matches!(told, GroupMessage::SyncTo { number: 0, .. })),
        "N is counted"
    );
    pass_with(&mut p, 950, &[N]);
    let (number, expect, next) = p.swap().expect("M is dropped");
    assert_eq!(next.in_sync, [seat(P, 1)]);
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.decide(12);
    assert_eq!(p.committed(), 11, "commits still wait for N");
    p.has(N, 8, 1, 12, 12);
    p.all_synced(N, 8, 1, 11);
    p.event(GroupEvent::Synced { seq: 12 });
    pass_with(&mut p, 50, &[N]);
    assert_eq!(p.swap().map(|(_, _, next)| next.in_sync), Some(vec![seat(P, 1), seat(N, 1)]));
}
