//! The dangerous sequences of `docs/design/018-copies.md` that concern the group's machine, by their names there.

#![allow(dead_code, reason = "the tests of planted bugs use a part of it")]

mod one;

use atoll_group::{Given, GroupEffect, GroupEvent, LeadBy, Role, SeatFile, SwapOutcome};
use atoll_proto::{GroupMessage, GroupRecord, Host, NodeLife};
use one::{
    M, N, One, P, append, at, host, join, life, log, pass_with, primary, record, seat, standing, three, two,
};

#[test]
pub(crate) fn a_seat_is_void_after_a_power_cut() {
    let file = SeatFile { host: Some(host(M)), ..SeatFile::of_a_new_member() };
    let lost = atoll_group::OpenedLog { whole: false, ..log(&[at(7, 95)]) };
    let mut m = One::new(M, &[P, M], file, lost);
    assert_eq!(m.saved().map(|seat| seat.tenure), Some(2), "before it speaks");
    m.knows(&record(7, P, &two()));
    m.pass(20_000);
    m.answer_reads(&record(7, P, &two()));
    assert_eq!((m.role(), m.swap()), (Role::Void, None), "however long nothing is heard");
    // Its primary does not count what it says, either.
    let mut p = primary(&[P, M]);
    p.decide(12);
    p.has(M, 8, 2, 12, 12);
    assert_eq!(p.committed(), 11);
}

#[test]
pub(crate) fn an_unknown_swap_is_read_first() {
    let mut p = primary(&[P, M]);
    p.pass(950);
    let (number, _, dropped) = p.swap().expect("the silent member is dropped");
    assert_eq!(dropped.in_sync, [seat(P, 1)]);
    p.decide(12);
    p.swapped(number, SwapOutcome::Unknown);
    assert_eq!(p.committed(), 11, "it may be in and may claim");
    p.revision = 12;
    p.answer_reads(&dropped);
    assert_eq!(p.committed(), 12);
}

#[test]
pub(crate) fn an_older_epoch_commits_nothing() {
    // Records 9 and 10 of epoch 7 may be at one copy only.
    let mut p = One::member(P, &[P, M], &[at(7, 10)]);
    let before = GroupRecord { primary: Some(life(P, 4).as_primary(1)), ..record(7, P, &two()) };
    assert_eq!(p.lead_after(&before), 8);
    p.promised(M);
    p.has(M, 8, 1, 10, 10);
    assert_eq!(p.committed(), 0, "they are everywhere, and the barrier is not");
    assert_eq!(p.group.lease_until(), None, "nothing leaves");
    p.decide(11);
    p.has(M, 8, 1, 11, 10);
    assert_eq!(p.committed(), 11);
    assert!(p.group.lease_until().is_some());
}

#[test]
pub(crate) fn admission_syncs_in_between() {
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, _, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(12));
    p.decide(120);
    p.has(M, 8, 1, 120, 11);
    p.hear(N, join(1, &[at(7, 10), at(8, 11)]));
    pass_with(&mut p, 1_200, &[M, N]);
    assert!(p.told(N).iter().any(|m| matches!(m, GroupMessage::Append { .. })), "the log is sent");
    p.has(N, 8, 1, 120, 100);
    pass_with(&mut p, 100, &[M, N]);
    assert_eq!(p.swap(), None, "it is counted, and has not synced what there was");
    p.decide(121);
    p.has(M, 8, 1, 121, 121);
    p.event(GroupEvent::Synced { seq: 121 });
    assert_eq!((p.committed(), p.synced()), (120, 100), "commits and syncs wait for it already");
    p.has(N, 8, 1, 121, 119);
    pass_with(&mut p, 100, &[M, N]);
    assert_eq!(p.swap(), None);
    p.has(N, 8, 1, 121, 120);
    pass_with(&mut p, 50, &[M, N]);
    assert_eq!(p.swap(), None, "its bodies are not synced");
    assert!(p.told(N).iter().any(|m| matches!(m, GroupMessage::SyncTo { number: 0, seq: 120, .. })));
    p.all_synced(N, 8, 1, 119);
    pass_with(&mut p, 50, &[M, N]);
    assert_eq!(p.swap(), None, "that was an earlier round");
    p.all_synced(N, 8, 1, 120);
    pass_with(&mut p, 50, &[M, N]);
    let (_, _, admitted) = p.swap().expect("now it gets its seat");
    assert_eq!(admitted.in_sync, three());
}

#[test]
pub(crate) fn a_store_that_went_back_is_refused() {
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&record(7, P, &two()));
    m.revision = 3;
    m.knows(&record(4, P, &two()));
    assert!(m.wants(|effect| matches!(effect, GroupEffect::StoreWentBack { has: 4, seen: 7 })));
    m.pass(5_000);
    m.answer_reads(&record(4, P, &two()));
    m.pass(200);
    assert_eq!(m.swap(), None, "an epoch is not given twice");
    // It is mended.
    m.revision = 20;
    m.knows(&record(7, P, &two()));
    m.pass(200);
    m.answer_reads(&record(7, P, &two()));
    assert_eq!(m.swap().map(|(_, expect, claim)| (expect, claim.epoch)), Some((20, 8)));
    // The store is put back while a copy is down, to a record of the same epoch in which that copy had a seat.
    let mut n = One::member(N, &[P, M, N], &[at(7, 10)]);
    n.revision = 11;
    n.knows(&record(7, P, &two()));
    let mut n = One::new(N, &[P, M, N], n.group.seat().clone(), log(&[at(7, 10)]));
    n.revision = 10;
    n.answer_reads(&record(7, P, &three()));
    assert!(n.wants(|effect| matches!(effect, GroupEffect::StoreWentBack { .. })));
    n.pass(5_000);
    n.answer_reads(&record(7, P, &three()));
    n.pass(200);
    assert_eq!((n.role(), n.swap()), (Role::Void, None), "others have decided without it since");
}

#[test]
pub(crate) fn both_drop_each_other() {
    // P drops M while M claims: the revision lets one of them through, whichever comes first.
    let mut p = primary(&[P, M]);
    p.pass(950);
    let (number, expect, _) = p.swap().expect("P drops M");
    let won = GroupRecord { epoch: 9, ..record(9, M, &[seat(M, 1)]) };
    p.swapped(number, SwapOutcome::Conflict);
    p.revision = expect + 1;
    p.answer_reads(&won);
    assert_eq!(p.role(), Role::Closing, "it was deposed");
    assert!(p.wants(|effect| *effect == GroupEffect::Close));
    // A link that flaps: each drop is followed by a longer pause.
    let mut p = primary(&[P, M]);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        p.pass(1_000);
        let (number, expect, _) = p.swap().expect("M is silent");
        p.swapped(number, SwapOutcome::Done(expect + 1));
        let dropped = p.now;
        let admitted = loop {
            p.promised(M);
            p.hear(M, join(1, &[at(7, 10), at(8, 11)]));
            p.has(M, 8, 1, 11, 11);
            p.all_synced(M, 8, 1, 11);
            p.event(GroupEvent::Synced { seq: 11 });
            p.pass(50);
            if let Some(swap) = p.swap() {
                break swap;
            }
        };
        pauses.push((p.now - dropped) / 1_000);
        p.swapped(admitted.0, SwapOutcome::Done(admitted.1 + 1));
    }
    assert_eq!(pauses, [1, 2, 4]);
}

#[test]
pub(crate) fn no_has_before_the_bytes() {
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&record(7, P, &two()));
    m.hear(P, append(7, at(7, 10), &[at(7, 12)], 10));
    assert!(m.wants(|effect| matches!(effect, GroupEffect::Take { after, upto } if (*after, *upto) == (at(7, 10), at(7, 12)))));
    assert_eq!(m.told(P), [], "appended is not written, and written is not before the bytes are in place");
    // The link breaks, and the frame comes again.
    m.hear(P, append(7, at(7, 10), &[at(7, 12)], 10));
    let has = |m: &mut One| {
        m.told(P).iter().find_map(|message| match message {
            GroupMessage::Has { written, .. } => Some(*written),
            _ => None,
        })
    };
    assert_eq!(has(&mut m), Some(10));
    m.event(GroupEvent::Written { seq: 12, last_body: 12 });
    assert_eq!(has(&mut m), Some(12));
}

#[test]
pub(crate) fn the_later_epoch_outranks_the_longer_log() {
    // N has more records, and of an earlier epoch; its seat is void, too.
    let mut m = One::member(M, &[P, M, N], &[at(7, 10), at(8, 12)]);
    m.knows(&record(8, P, &two()));
    m.pass(1_600);
    m.hear(N, standing(at(7, 50), 1, false, false));
    m.answer_reads(&record(8, P, &two()));
    assert!(m.swap().is_some(), "it does not wait for N");
    let mut n = One::member(N, &[P, M, N], &[at(7, 50)]);
    n.knows(&record(8, P, &two()));
    n.pass(10_000);
    n.answer_reads(&record(8, P, &two()));
    assert_eq!((n.role(), n.swap()), (Role::Void, None));
    // Of two seats the one with the higher position goes first, whatever the length.
    let mut m = One::member(M, &[P, M, N], &[at(7, 50)]);
    m.knows(&record(8, P, &three()));
    m.pass(1_250);
    m.hear(N, standing(at(8, 12), 1, false, false));
    m.answer_reads(&record(8, P, &three()));
    assert_eq!(m.swap(), None, "N leads instead");
    m.pass(150);
    assert!(m.swap().is_some(), "or it is waited for once");
}

#[test]
pub(crate) fn a_deposed_primary_appends_nothing() {
    let mut n = One::member(N, &[P, M, N], &[at(7, 10)]);
    n.hear(M, append(8, at(7, 10), &[at(8, 11)], 10));
    n.event(GroupEvent::Written { seq: 11, last_body: 0 });
    n.out.clear();
    n.hear(P, append(7, at(7, 10), &[at(7, 12)], 10));
    assert_eq!(n.told(P), [GroupMessage::Refused { epoch: 8 }]);
    assert_eq!(n.group.last(), at(8, 11));
    // What comes on an earlier link is not heard at all.
    n.link(life(M, 6));
    n.event(GroupEvent::Heard { from: M, link: 1, message: append(8, at(8, 11), &[at(8, 13)], 11) });
    assert_eq!(n.group.last(), at(8, 11));
}

/// A follower hears late that a copy was dropped, and has released what that one needs when it leads itself.
#[test]
pub(crate) fn a_follower_keeps_what_its_primary_keeps() {
    let mut p = primary(&[P, M, N]);
    p.decide(20);
    for node in [M, N] {
        p.has(node, 8, 1, 20, 20);
    }
    p.event(GroupEvent::Synced { seq: 20 });
    assert_eq!((p.synced(), p.group.keep()), (20, 21), "nobody needs what all have synced");
    pass_with(&mut p, 950, &[M]);
    let (number, _, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(12));
    p.decide(30);
    p.has(M, 8, 1, 30, 30);
    p.event(GroupEvent::Synced { seq: 30 });
    assert_eq!((p.synced(), p.group.keep()), (30, 21), "N is away");
    // M knows only the record in which all are in sync.
    let mut m = One::member(M, &[P, M, N], &[at(7, 10), at(8, 30)]);
    m.knows(&record(8, P, &three()));
    m.event(GroupEvent::Synced { seq: 30 });
    let (after, ends, commit, synced) = (at(8, 30), Vec::new(), 30, 30);
    m.hear(P, GroupMessage::Append { epoch: 8, after, ends, commit, synced, keep: 21 });
    assert_eq!((m.synced(), m.group.keep()), (30, 21));
}

/// One thread writes the log, and another one syncs it and says so first.
#[test]
pub(crate) fn a_sync_that_is_told_before_its_write_counts() {
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Decided { seq: 12 });
    p.event(GroupEvent::SyncAll { number: 1, seq: 12, bodies: Vec::new() });
    p.has(M, 8, 1, 12, 12);
    p.hear(M, GroupMessage::SyncedTo { epoch: 8, tenure: 1, number: 1, seq: 12 });
    p.event(GroupEvent::Synced { seq: 12 });
    p.event(GroupEvent::SyncDone { epoch: 8, number: 1, seq: 12 });
    assert_eq!(p.synced(), 11, "nothing is synced before it is written");
    p.event(GroupEvent::Written { seq: 12, last_body: 0 });
    assert_eq!(p.synced(), 12);
    assert!(p.wants(|effect| matches!(effect, GroupEffect::RoundDone { number: 1 })));
}

#[test]
pub(crate) fn a_swap_that_is_late_counts() {
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, _, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(12));
    p.has(M, 8, 1, 11, 11);
    p.event(GroupEvent::Synced { seq: 11 });
    p.hear(N, join(1, &[at(7, 10), at(8, 11)]));
    p.has(N, 8, 1, 11, 11);
    p.all_synced(N, 8, 1, 11);
    pass_with(&mut p, 1_200, &[M, N]);
    let (number, _, admission) = p.swap().expect("N is admitted");
    p.swapped(number, SwapOutcome::Unknown);
    // What is read says that it is not done. It can be done later.
    let before = GroupRecord { in_sync: two(), ..admission.clone() };
    p.revision = 12;
    p.answer_reads(&before);
    let mut last = None;
    for _ in 0..30 {
        pass_with(&mut p, 50, &[M]);
        if let Some((number, expect, content)) = p.swap() {
            last = Some((number, expect, content.clone()));
            p.swapped(number, SwapOutcome::Unknown);
            p.answer_reads(&before);
        }
    }
    p.decide(12);
    p.has(M, 8, 1, 12, 11);
    assert_eq!(p.committed(), 11, "N may have a seat without record 12");
    // The other content is sent for the same revision; either may be done.
    let (_, expect, without) = last.expect("without N");
    assert_eq!((expect, &without.in_sync), (12, &two()));
    p.revision = 13;
    p.knows(&admission);
    assert_eq!(p.committed(), 11, "the late one was done");
    pass_with(&mut p, 100, &[M]);
    let (number, expect, _) = p.swap().expect("so N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(p.committed(), 12);
}

#[test]
pub(crate) fn a_late_claim_is_not_led() {
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&record(7, P, &two()));
    m.pass(1_600);
    m.answer_reads(&record(7, P, &two()));
    let (number, _, claim) = m.swap().expect("a claim");
    m.swapped(number, SwapOutcome::Unknown);
    m.answer_reads(&record(7, P, &two()));
    assert_eq!(m.beacon(P, 7), Given::Refused(7), "its claim may still be done");
    assert_eq!(m.role(), Role::Claiming);
    // Its process dies. The next one knows of no claim, and promises.
    let mut m = One::new(M, &[P, M], SeatFile::of_a_new_member(), log(&[at(7, 10)]));
    m.knows(&record(7, P, &two()));
    assert_eq!(m.beacon(P, 7), Given::Promise);
    m.revision = 11;
    let dead = GroupRecord { primary: Some(life(M, 4).as_primary(1)), ..claim };
    m.knows(&dead);
    m.pass(1_100);
    m.answer_reads(&dead);
    assert_eq!((m.leads(), m.swap()), (None, None), "P answers by that promise");
    m.pass(400);
    m.answer_reads(&dead);
    assert_eq!(m.swap().map(|(_, expect, claim)| (expect, claim.epoch)), Some((11, 9)), "a new claim");
}

#[test]
pub(crate) fn a_life_is_no_proof_by_itself() {
    // P's fifth life leads. M has just started; P's life is new to it, and no proof.
    let mut m = One::new(M, &[P, M], SeatFile::of_a_new_member(), log(&[at(7, 10)]));
    m.knows(&record(7, P, &two()));
    m.link(life(P, 5));
    m.pass(100);
    assert_ne!(m.role(), Role::Standing);
    // A copy of P's machine greets by a higher life, from another boot, or from another directory.
    for other in [Host { boot: 8, ..host(P) }, Host { inode: 99, ..host(P) }] {
        m.link(NodeLife { node: P, life: 6, host: other });
        m.pass(100);
        assert_ne!(m.role(), Role::Standing);
    }
    assert!(m.wants(|effect| matches!(effect, GroupEffect::TwoHosts { node } if *node == P)));
    // A higher life over the same directory has its lock.
    m.link(life(P, 6));
    m.pass(50);
    assert_eq!(m.role(), Role::Standing);
}

#[test]
pub(crate) fn silence_is_not_void() {
    let file = || SeatFile { host: Some(host(M)), ..SeatFile::of_a_new_member() };
    let lost = || atoll_group::OpenedLog { whole: false, ..log(&[at(7, 95)]) };
    let mut m = One::new(M, &[P, M, N], file(), lost());
    let known = record(7, P, &three());
    let try_to_lead = |m: &mut One| {
        m.pass(400);
        m.answer_reads(&known);
        m.pass(50);
        m.swap().map(|(_, _, claim)| claim)
    };
    m.link(life(P, 6));
    m.link(life(N, 5));
    m.knows(&known);
    m.pass(60_000);
    assert_eq!(try_to_lead(&mut m), None, "P and N may be whole");
    m.hear(P, standing(at(7, 90), 2, true, false));
    assert_eq!(try_to_lead(&mut m), None, "so may N");
    m.hear(N, standing(at(7, 94), 1, true, false));
    assert_eq!(try_to_lead(&mut m), None, "N has its seat's tenure still");
    m.hear(N, standing(at(7, 96), 2, true, false));
    assert_eq!(try_to_lead(&mut m), None, "N has more");
    m.hear(N, standing(at(7, 94), 3, true, false));
    let claim = try_to_lead(&mut m).expect("all are void, and it has the most");
    assert_eq!((claim.epoch, claim.in_sync, claim.power_cut), (8, vec![seat(M, 2)], true));
}

#[test]
pub(crate) fn a_group_of_three_shrinks_to_one() {
    let mut p = primary(&[P, M, N]);
    assert!(p.group.may_decide());
    pass_with(&mut p, 950, &[M]);
    let (number, expect, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    assert!(p.group.may_decide(), "two are enough");
    p.pass(950);
    let (number, expect, alone) = p.swap().expect("M is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(alone.in_sync, [seat(P, 1)]);
    assert!(!p.group.may_decide(), "nothing of clients is decided");
    assert_eq!(p.group.lease_until(), Some(u64::MAX), "reads go on");
    // One is back: at once, as nothing is served meanwhile.
    p.hear(M, join(1, &[at(7, 10), at(8, 11)]));
    p.has(M, 8, 1, 11, 11);
    p.all_synced(M, 8, 1, 11);
    p.event(GroupEvent::Synced { seq: 11 });
    pass_with(&mut p, 100, &[M]);
    let (number, expect, _) = p.swap().expect("M is admitted");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    assert!(p.group.may_decide());
}

#[test]
pub(crate) fn a_member_that_owes_is_dropped() {
    let mut p = primary(&[P, M]);
    p.decide(12);
    pass_with(&mut p, 850, &[M]);
    assert_eq!(p.swap(), None);
    pass_with(&mut p, 100, &[M]);
    assert_eq!(
        p.swap().map(|(_, _, next)| next.in_sync),
        Some(vec![seat(P, 1)]),
        "it promises, and does not write"
    );
    // If the primary's own disk does not get on either, nobody is better.
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Decided { seq: 12 });
    pass_with(&mut p, 2_000, &[M]);
    assert_eq!(p.swap(), None);
    // If only its own does not, it resigns.
    p.has(M, 8, 1, 12, 11);
    pass_with(&mut p, 50, &[M]);
    assert_eq!(p.role(), Role::Closing);
    assert!(matches!(p.told(M).last(), Some(GroupMessage::Resign { epoch: 8, to: None, .. })));
    // One that gets on, slowly, is kept.
    let mut p = primary(&[P, M]);
    for seq in 12..30 {
        p.decide(seq + 1);
        pass_with(&mut p, 400, &[M]);
        p.decide(seq + 2);
        pass_with(&mut p, 400, &[M]);
        p.has(M, 8, 1, seq + 1, 0);
    }
    assert_eq!(p.swap(), None);
}

#[test]
pub(crate) fn less_than_was_counted_is_void() {
    let mut p = primary(&[P, M]);
    p.decide(20);
    p.has(M, 8, 1, 20, 20);
    assert_eq!(p.committed(), 20);
    // M's folder is put back from yesterday: the tenure is the same, and records are gone.
    p.link(life(M, 6));
    p.hear(M, join(1, &[at(7, 9)]));
    pass_with(&mut p, 50, &[M]);
    assert_eq!(p.swap().map(|(_, _, next)| next.in_sync), Some(vec![seat(P, 1)]));
    // A data directory that was copied has another inode, and raises its tenure by itself.
    let file = SeatFile { host: Some(Host { inode: 99, ..host(M) }), ..SeatFile::of_a_new_member() };
    let m = One::new(M, &[P, M], file, log(&[at(7, 9)]));
    assert_eq!(m.saved().map(|seat| seat.tenure), Some(2));
}

#[test]
pub(crate) fn a_promise_hinders_no_other() {
    // N hears P, and promises. M leads epoch 8 by proof. N follows at once, and refuses P.
    let mut n = One::member(N, &[P, M, N], &[at(7, 10)]);
    n.knows(&record(7, P, &three()));
    assert_eq!(n.beacon(P, 7), Given::Promise);
    n.hear(M, append(8, at(7, 10), &[at(8, 11)], 10));
    n.event(GroupEvent::Written { seq: 11, last_body: 0 });
    assert!(n.told(M).iter().any(|m| matches!(m, GroupMessage::Has { epoch: 8, written: 11, .. })));
    assert_eq!(n.beacon(P, 7), Given::Refused(8));
    assert_eq!(n.beacon(M, 8), Given::Promise);
    // P is told, reads, and steps down.
    let mut p = primary(&[P, M, N]);
    p.event(GroupEvent::RefusedBeacon { epoch: 9 });
    p.revision = 12;
    p.answer_reads(&record(9, M, &[seat(M, 1), seat(N, 1)]));
    assert_eq!(p.role(), Role::Closing);
}

#[test]
pub(crate) fn no_promise_beside_a_claim() {
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.knows(&record(7, P, &two()));
    m.pass(1_600);
    assert_eq!(m.role(), Role::Standing);
    assert_eq!(m.beacon(P, 7), Given::Refused(7), "from the look at the last promise on");
    m.pass(50);
    assert_ne!(m.role(), Role::Standing, "but a primary that is heard before the swap leads on");
    assert_eq!(m.beacon(P, 7), Given::Promise);
    m.pass(1_250);
    m.answer_reads(&record(7, P, &two()));
    m.pass(50);
    m.answer_reads(&record(7, P, &two()));
    let (number, expect, _) = m.swap().expect("a claim");
    assert_eq!(m.beacon(P, 7), Given::Refused(7));
    m.pass(50);
    assert_eq!(m.role(), Role::Claiming, "what was sent cannot be taken back");
    m.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(m.beacon(P, 7), Given::Refused(8));
}

#[test]
pub(crate) fn a_sync_ahead_of_the_commit_is_told() {
    let mut p = primary(&[P, M, N]);
    p.decide(12);
    p.event(GroupEvent::SyncAll { number: 5, seq: 12, bodies: Vec::new() });
    p.event(GroupEvent::Synced { seq: 12 });
    p.event(GroupEvent::SyncDone { epoch: 8, number: 5, seq: 12 });
    p.has(M, 8, 1, 12, 12);
    for node in [M, N] {
        p.hear(node, GroupMessage::SyncedTo { epoch: 8, tenure: 1, number: 5, seq: 12 });
    }
    // N is the last one, and says first that it has synced, as it was told of the commit of 11 only.
    p.hear(
        N,
        GroupMessage::Has { epoch: 8, tenure: 1, written: 12, synced: 12, room: 9, stuck: false, differs: 1 },
    );
    assert!(!p.wants(|effect| matches!(effect, GroupEffect::RoundDone { .. })));
    p.has(N, 8, 1, 12, 12);
    assert_eq!((p.committed(), p.synced()), (12, 12));
    assert!(p.wants(|effect| *effect == GroupEffect::RoundDone { number: 5 }));
    // A new primary whose members have synced more than it may call committed.
    let mut p = One::member(P, &[P, M], &[at(7, 10)]);
    let before = GroupRecord { primary: Some(life(P, 4).as_primary(1)), ..record(7, P, &two()) };
    p.lead_after(&before);
    p.decide(11);
    p.event(GroupEvent::Synced { seq: 11 });
    p.promised(M);
    p.has(M, 8, 1, 10, 10);
    assert_eq!(p.synced(), 0);
    p.has(M, 8, 1, 11, 10);
    assert_eq!(
        (p.committed(), p.synced()),
        (11, 10),
        "who raises what is committed tells what is synced, too"
    );
}

#[test]
pub(crate) fn a_proof_frees_no_older_promise() {
    // Q = N leads epoch 6. P claims 7, dies before it hears so, and its next life promises N, as M does. Then the claim is done.
    let mut m = One::new(M, &[P, M, N], SeatFile::of_a_new_member(), log(&[at(6, 10)]));
    m.knows(&record(6, N, &three()));
    assert_eq!(m.beacon(N, 6), Given::Promise);
    m.revision = 11;
    let claimed = record(7, P, &two());
    m.knows(&claimed);
    m.link(life(P, 6));
    m.pass(100);
    assert_ne!(m.role(), Role::Standing, "P's fifth life is over, and N answers by M's promise");
    m.pass(1_500);
    assert_eq!(m.role(), Role::Standing);
    // A primary that was heard to lead has seen to it that no earlier one answers.
    let mut m = One::new(M, &[P, M, N], SeatFile::of_a_new_member(), log(&[at(6, 10)]));
    m.knows(&claimed);
    assert_eq!(m.beacon(P, 7), Given::Promise);
    m.link(life(P, 6));
    m.pass(50);
    assert_eq!(m.role(), Role::Standing);
}

#[test]
pub(crate) fn an_own_dead_claim_is_waited_for() {
    // M's fourth life has claimed 8 and has not led; one in between may have promised P.
    let dead = GroupRecord { primary: Some(life(M, 4).as_primary(1)), ..record(8, M, &[seat(M, 1)]) };
    let mut m = One::new(M, &[P, M], SeatFile::of_a_new_member(), log(&[at(7, 10)]));
    m.knows(&dead);
    m.pass(1_150);
    assert_ne!(m.role(), Role::Standing);
    m.pass(500);
    assert_eq!(m.role(), Role::Standing);
    // If its log has a record of the epoch, it has led, and no promise was given since.
    let mut m = One::new(M, &[P, M], SeatFile::of_a_new_member(), log(&[at(7, 10), at(8, 11)]));
    m.knows(&dead);
    m.pass(50);
    assert_eq!(m.role(), Role::Standing);
}

#[test]
pub(crate) fn an_epoch_that_was_led_is_not_forgotten() {
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    let known = record(7, P, &two());
    m.knows(&known);
    m.pass(1_600);
    m.answer_reads(&known);
    let (number, expect, _) = m.swap().expect("a claim");
    m.out.clear();
    m.swapped(number, SwapOutcome::Done(expect + 1));
    let lead = m.out.iter().position(|effect| matches!(effect, GroupEffect::Lead { .. })).unwrap();
    let saved = m.out[..lead].iter().rev().find_map(|effect| match effect {
        GroupEffect::SaveSeat(seat) => Some(seat.clone()),
        _ => None,
    });
    // A power cut takes the barrier. P, which knows nothing of it, is still there.
    let lost = atoll_group::OpenedLog { whole: false, ..log(&[at(7, 9)]) };
    let mut m = One::new(M, &[P, M], saved.expect("before it leads"), lost);
    assert_eq!(m.beacon(P, 7), Given::Refused(8));
}

#[test]
pub(crate) fn a_copy_that_was_cut_leads_no_cold_start() {
    // M cuts off a record with changes of bodies: the bytes below it are in no other place of M.
    let mut m = One::new(M, &[P, M, N], SeatFile { host: Some(host(M)), ..SeatFile::of_a_new_member() }, {
        atoll_group::OpenedLog { last_body: 12, ..log(&[at(7, 12)]) }
    });
    m.link(life(N, 5));
    m.link(life(P, 5));
    m.hear(N, append(8, at(7, 11), &[at(8, 12)], 11));
    let saved = m.saved().expect("before the cut");
    assert_eq!((saved.tenure, saved.cut), (2, true));
    assert!(m.wants(|effect| *effect == GroupEffect::CutTo { to: at(7, 11) }));
    m.event(GroupEvent::Opened { log: log(&[at(7, 11)]) });
    // N loses its power, and so has lost something too. N has the bytes below, and leads.
    let known = record(8, N, &[seat(M, 1), seat(N, 1)]);
    m.knows(&known);
    m.hear(N, standing(at(7, 10), 2, true, false));
    m.pass(3_000);
    m.answer_reads(&known);
    m.pass(50);
    assert_eq!(m.swap(), None, "although M has more");
    let mut n = One::new(N, &[P, M, N], SeatFile::of_a_new_member(), {
        atoll_group::OpenedLog { whole: false, ..log(&[at(7, 10)]) }
    });
    n.link(life(M, 5));
    n.knows(&known);
    n.hear(M, standing(at(7, 11), 2, true, true));
    n.pass(1_700);
    n.answer_reads(&known);
    assert!(n.swap().is_some());
}

#[test]
pub(crate) fn a_cold_start_that_dies_is_told_by_the_next() {
    // The claim of a cold start was done, and its process died before its first record.
    let cold = GroupRecord {
        primary: Some(life(M, 4).as_primary(1)),
        power_cut: true,
        ..record(8, M, &[seat(M, 2)])
    };
    let file = SeatFile { tenure: 2, ..SeatFile::of_a_new_member() };
    let mut m = One::new(M, &[P, M], file.clone(), log(&[at(7, 10)]));
    m.knows(&cold);
    m.pass(1_600);
    m.answer_reads(&cold);
    let (number, expect, claim) = m.swap().expect("a claim");
    assert!(claim.power_cut);
    m.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(m.leads(), Some((9, LeadBy::PowerCut)));
    // If it has left a record, that tells it.
    let mut m = One::new(M, &[P, M], file, log(&[at(7, 10), at(8, 11)]));
    m.knows(&cold);
    m.pass(50);
    m.answer_reads(&cold);
    let (number, expect, claim) = m.swap().expect("a claim");
    assert!(!claim.power_cut);
    m.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(m.leads(), Some((9, LeadBy::Restart)));
}

#[test]
pub(crate) fn whole_is_noted_behind_the_tenure() {
    let lost = || atoll_group::OpenedLog { whole: false, ..log(&[at(7, 10)]) };
    let order = |one: &One| {
        let at = |wanted: fn(&GroupEffect) -> bool| one.out.iter().position(wanted);
        (
            at(|effect| matches!(effect, GroupEffect::SaveSeat(_))),
            at(|effect| matches!(effect, GroupEffect::NoteWhole)),
        )
    };
    let m = One::new(M, &[P, M], SeatFile::of_a_new_member(), lost());
    assert_eq!(order(&m), (Some(0), Some(1)));
    // A group of one has no other place for it than its first record.
    let mut one = One::new(P, &[P], SeatFile::of_one(), lost());
    assert_eq!(one.leads(), Some((8, LeadBy::PowerCut)));
    assert_eq!(order(&one).1, None);
    one.decide(11);
    assert_eq!(one.committed(), 11);
    assert_eq!(one.group.lease_until(), None, "a power cut may take the epoch, which is then given twice");
    assert_eq!(order(&one).1, None);
    one.event(GroupEvent::Synced { seq: 11 });
    assert_eq!(one.group.lease_until(), Some(u64::MAX));
    assert!(order(&one).1.is_some());
    // It is the same if there shall be more copies, and `seat` says so before the barrier is synced.
    let mut one = One::new(P, &[P, M], SeatFile::of_one(), lost());
    one.decide(11);
    one.pass(50);
    assert!(one.group.seat().grouped);
    assert_eq!((one.group.lease_until(), order(&one).1), (None, None));
    one.event(GroupEvent::Synced { seq: 11 });
    assert_eq!(one.group.lease_until(), Some(u64::MAX));
    assert!(order(&one).1.is_some(), "else a kill would be told as a power cut");
}

#[test]
pub(crate) fn a_group_of_one_is_grouped_before_its_record_is_there() {
    let mut p = One::new(P, &[P, M], SeatFile::of_one(), log(&[at(7, 10)]));
    assert_eq!(p.leads(), Some((8, LeadBy::Restart)), "it asks no store");
    p.decide(11);
    p.event(GroupEvent::Synced { seq: 11 });
    p.out.clear();
    p.pass(50);
    let saved = p.out.iter().position(|effect| matches!(effect, GroupEffect::SaveSeat(seat) if seat.grouped));
    let swap = p.out.iter().position(|effect| matches!(effect, GroupEffect::Swap { expect: 0, .. }));
    assert!(saved.is_some() && saved < swap, "{:?}", p.out);
    let (number, _, first) = p.swap().expect("the first record");
    assert_eq!((first.epoch, first.in_sync.clone(), first.wanted), (8, vec![seat(P, 1)], 2));
    // The answer is lost, and the process dies: its next life counts no epoch.
    let file = p.group.seat().clone();
    let mut again = One::new(P, &[P, M], file, log(&[at(7, 10), at(8, 11)]));
    assert_eq!(again.leads(), None);
    // If that swap was not done, it makes the first record itself.
    let read = again.out.iter().find_map(|effect| match effect {
        GroupEffect::Read { number } => Some(*number),
        _ => None,
    });
    again.event(GroupEvent::ReadDone { number: read.expect("it reads"), found: Some((0, None)) });
    let (own, expect, claim) = again.swap().expect("a claim");
    assert_eq!((expect, claim.epoch, claim.in_sync), (0, 9, vec![seat(P, 1)]));
    again.swapped(own, SwapOutcome::Done(1));
    assert_eq!(again.leads(), Some((9, LeadBy::Restart)));
    assert!(!again.group.seat().makes_first);
    // If it was done late, that claim meets a conflict, and the record is that of a process that is over.
    let mut again = One::new(P, &[P, M], p.group.seat().clone(), log(&[at(7, 10), at(8, 11)]));
    again.event(GroupEvent::ReadDone { number: 1, found: Some((0, None)) });
    let (own, _, _) = again.swap().expect("a claim");
    again.swapped(own, SwapOutcome::Conflict);
    again.revision = 1;
    let first_record = GroupRecord { primary: Some(life(P, 4).as_primary(0)), ..first };
    again.answer_reads(&first_record);
    again.pass(100);
    again.answer_reads(&first_record);
    assert_eq!(again.swap().map(|(_, expect, claim)| (expect, claim.epoch)), Some((1, 9)));
    p.swapped(number, SwapOutcome::Done(1));
    p.hear(M, join(1, &[]));
    assert_eq!(p.told(M), [], "of a node that has not greeted nothing is heard");
    p.link(life(M, 5));
    p.hear(M, join(1, &[]));
    assert!(matches!(p.told(M)[..], [.., GroupMessage::Append { epoch: 8, .. }]));
}

#[test]
pub(crate) fn a_planned_move_has_nothing_to_cut() {
    let mut p = primary(&[P, M]);
    p.decide(12);
    p.event(GroupEvent::Leave { to: Some(M) });
    assert!(!p.group.may_decide());
    p.has(M, 8, 1, 12, 0);
    p.promised(M);
    p.pass(50);
    assert!(p.told(M).iter().any(|m| matches!(m, GroupMessage::SyncTo { seq: 12, .. })));
    p.event(GroupEvent::Synced { seq: 12 });
    assert_ne!(p.role(), Role::Closing);
    p.has(M, 8, 1, 12, 12);
    assert_eq!(p.role(), Role::Closing);
    let closed = p.out.iter().position(|effect| *effect == GroupEffect::Close);
    let resigned = p
        .out
        .iter()
        .position(|effect| matches!(effect, GroupEffect::Tell { message: GroupMessage::Resign { .. }, .. }));
    assert!(closed < resigned, "the door is shut before it is told");
    // M claims at once, not at its next tick. P keeps its seat if it stays, and if M has all that it has.
    for (to, last, stay) in [
        (Some(M), at(8, 12), two()),
        (Some(M), at(8, 14), vec![seat(M, 1)]),
        (None, at(8, 12), vec![seat(M, 1)]),
    ] {
        let mut m = One::member(M, &[P, M], &[at(7, 10), at(8, 12)]);
        m.knows(&record(8, P, &two()));
        assert_eq!(m.beacon(P, 8), Given::Promise);
        m.hear(P, GroupMessage::Resign { epoch: 8, to, last });
        m.answer_reads(&record(8, P, &two()));
        assert_eq!(m.swap().map(|(_, _, claim)| claim.in_sync), Some(stay), "{to:?} {last:?}");
    }
}

#[test]
pub(crate) fn a_copy_too_far_behind_is_to_be_filled_anew() {
    let mut p = primary(&[P, M]);
    p.event(GroupEvent::Kept { checkpoint: 9, first: 10 });
    p.hear(N, join(1, &[]));
    assert_eq!(p.told(N), [], "N is not of this group");
    let mut p = primary(&[P, M, N]);
    pass_with(&mut p, 950, &[M]);
    let (number, expect, _) = p.swap().expect("N is dropped");
    p.swapped(number, SwapOutcome::Done(expect + 1));
    p.event(GroupEvent::Kept { checkpoint: 10, first: 11 });
    p.hear(N, join(1, &[at(7, 9)]));
    assert_eq!(p.told(N).last(), Some(&GroupMessage::Released { epoch: 8, common: Some(at(7, 9)) }));
    // So is one whose snapshot has what nobody has any more.
    let ends = [at(7, 10), at(7, 10)];
    p.hear(
        N,
        GroupMessage::Join {
            tenure: 1,
            checkpoint: 12,
            epochs: atoll_proto::EpochTable { base: at(7, 12), ends: ends[..0].to_vec() },
        },
    );
    assert_eq!(p.told(N), [GroupMessage::Released { epoch: 8, common: None }]);
}
