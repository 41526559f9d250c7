//! Records that are made anew from what copies remember, and what copies do then.

mod one;

use std::collections::BTreeMap;

use atoll_core::NodeId;
use atoll_group::{CannotRebuild, GroupEffect, Role, SeatFile, SwapOutcome, rebuilt};
use atoll_proto::GroupRecord;
use one::{M, N, One, P, at, primary, record, seat, three, two};

fn saw(revision: u64, record: GroupRecord, seen: u32) -> SeatFile {
    SeatFile { seen, record: Some((revision, record)), ..SeatFile::of_a_new_member() }
}

fn seats(all: &[(NodeId, SeatFile)]) -> BTreeMap<NodeId, SeatFile> {
    all.iter().cloned().collect()
}

#[test]
fn the_newest_record_of_any_copy_counts_with_an_epoch_that_nobody_has_seen() {
    let later = record(7, P, &two());
    let found = rebuilt(
        &[P, M, N],
        &seats(&[
            (P, saw(20, record(6, P, &three()), 7)),
            (M, saw(25, later.clone(), 9)),
            // It was dropped, and has heard of nothing since.
            (N, saw(11, record(6, P, &three()), 6)),
        ]),
    );
    let found = found.unwrap();
    assert_eq!((found.record.epoch, found.above), (10, 25));
    assert_eq!((&found.record.in_sync, found.record.wanted), (&later.in_sync, later.wanted));
    assert_eq!(found.record.check(), Ok(()));
    // Of two records of an epoch the later one counts, and a lower revision of a later epoch is later.
    let found = rebuilt(
        &[P, M],
        &seats(&[(P, saw(20, later.clone(), 7)), (M, saw(21, record(7, P, &[seat(P, 1)]), 7))]),
    );
    assert_eq!(found.unwrap().record.in_sync, [seat(P, 1)]);
    let found = rebuilt(
        &[P, M],
        &seats(&[(P, saw(20, record(7, P, &two()), 7)), (M, saw(3, record(8, M, &two()), 8))]),
    );
    let found = found.unwrap();
    assert_eq!((found.record.epoch, found.record.primary.map(|p| p.node), found.above), (9, Some(M), 20));
}

#[test]
fn with_a_copy_missing_there_is_no_record_since_it_may_have_the_newest() {
    let both = [(P, saw(20, record(6, P, &three()), 6)), (M, saw(20, record(6, P, &three()), 6))];
    assert_eq!(rebuilt(&[P, M, N], &seats(&both)), Err(CannotRebuild::NotHeard(vec![N])));
    // It is no node of the group any more, and has a seat by the record.
    assert_eq!(rebuilt(&[P, M], &seats(&both)), Err(CannotRebuild::NotHeard(vec![N])));
    assert_eq!(rebuilt(&[P, M], &seats(&[])), Err(CannotRebuild::NotHeard(vec![P, M])));
    let new = SeatFile::of_a_new_member();
    assert_eq!(rebuilt(&[P, M], &seats(&[(P, new.clone()), (M, new)])), Err(CannotRebuild::NoRecord));
}

#[test]
fn whoever_leads_steps_down_and_one_in_sync_claims_the_next_epoch() {
    // The store was put back to epoch 5, and then rebuilt.
    let mut p = primary(&[P, M]);
    let old = GroupRecord { epoch: 5, ..record(5, P, &two()) };
    p.revision = 3;
    p.knows(&old);
    assert!(p.wants(|effect| matches!(effect, GroupEffect::StoreWentBack { has: 5, .. })));
    let seat = p.group.seat().clone();
    let led = seat.record.as_ref().unwrap().1.epoch;
    let found = rebuilt(&[P, M], &seats(&[(P, seat.clone()), (M, seat)])).unwrap();
    assert_eq!(found.record.epoch, led + 1);
    p.revision = found.above + 1;
    p.knows(&found.record);
    assert!(
        p.wants(|effect| matches!(effect, GroupEffect::Close | GroupEffect::CutTo { .. })),
        "it leads no more"
    );
    // Another member, which hears nobody.
    let mut m = One::member(M, &[P, M], &[at(7, 10)]);
    m.revision = found.above + 1;
    m.knows(&found.record);
    assert_ne!(m.role(), Role::Void);
    m.pass(1_600);
    m.answer_reads(&found.record);
    let (number, expect, claim) = m.swap().expect("a claim");
    assert_eq!((expect, claim.epoch), (found.above + 1, found.record.epoch + 1));
    m.swapped(number, SwapOutcome::Done(expect + 1));
    assert_eq!(m.leads().map(|(epoch, _)| epoch), Some(found.record.epoch + 1));
}
