//! Moves of several sites in orders that matter, by hand.

mod sites;

use atoll_causal::{HybridClock, HybridStamp, Writer};
use atoll_spine::{LostMove, MoveRefused, NotTaken, Spine};
use sites::{ROOT, at, born, cut, decides, dir, fetched, fetches, hears, moves, name, parent, to};

#[test]
fn of_three_moves_in_a_ring_the_last_has_no_effect_at_every_site() {
    let (a, b, c) = (dir(1), dir(2), dir(3));
    let mut first = Spine::default();
    born(&mut first, &[(a, ROOT), (b, ROOT), (c, ROOT)]);
    let mut second = Spine::default();
    fetches(&mut second, &first, 4, &[a, b, c]);
    let mut third = second.clone();
    let mut fourth = Spine::default();
    fetches(&mut fourth, &first, 5, &[c]);
    let records = [
        moves(&mut first, at(10, 1), &[to(a, b)]),
        moves(&mut second, at(11, 2), &[to(b, c)]),
        moves(&mut third, at(12, 3), &[to(c, a)]),
    ];
    for (nth, spine) in [&mut first, &mut second, &mut third, &mut fourth].into_iter().enumerate() {
        for step in [2, 1, 0] {
            hears(spine, &records[(nth + step) % 3]);
        }
        assert_eq!([a, b, c].map(|dir| parent(spine, dir)), [b, c, ROOT]);
        let lost: Vec<LostMove> = spine.lost().collect();
        assert_eq!(lost, [LostMove { stamp: at(12, 3), dir: c, because: at(11, 2) }]);
    }
    // The fourth, which held only c, is told of c's new chain by the records: it goes nowhere else.
    assert_eq!(fourth.up(a).map(|(dir, _)| dir).collect::<Vec<_>>(), [a, b, c]);
}

#[test]
fn a_move_without_effect_stays_so_when_its_hindrance_is_moved_away() {
    let (a, b, c) = (dir(1), dir(2), dir(3));
    let mut first = Spine::default();
    born(&mut first, &[(a, ROOT), (b, ROOT), (c, ROOT)]);
    let mut second = Spine::default();
    fetches(&mut second, &first, 4, &[a, b, c]);
    moves(&mut first, at(10, 1), &[to(a, b)]);
    let lost = moves(&mut second, at(11, 2), &[to(b, a)]);
    assert_eq!(hears(&mut first, &lost), []);
    moves(&mut first, at(12, 1), &[to(a, c)]);
    assert_eq!([a, b].map(|dir| parent(&first, dir)), [c, ROOT]);
    first.fold(cut(11, 20));
    moves(&mut first, at(30, 1), &[to(a, ROOT)]);
    assert_eq!([a, b].map(|dir| parent(&first, dir)), [ROOT, ROOT]);
}

#[test]
fn of_an_exchange_both_moves_have_an_effect_or_none() {
    let (p, q, a, b) = (dir(1), dir(2), dir(3), dir(4));
    let mut first = Spine::default();
    born(&mut first, &[(p, ROOT), (q, ROOT), (a, p), (b, q)]);
    let mut second = Spine::default();
    fetches(&mut second, &first, 5, &[a, b]);
    let exchange = moves(&mut first, at(10, 1), &[to(a, q), to(b, p)]);
    assert_eq!([a, b].map(|dir| parent(&first, dir)), [q, p]);
    // At the same time q is moved into a, so a cannot be in q. Then b stays too.
    let other = moves(&mut second, at(9, 2), &[to(q, a)]);
    assert_eq!(hears(&mut first, &other), [q, a, b]);
    hears(&mut second, &exchange);
    for spine in [&first, &second] {
        assert_eq!([q, a, b].map(|dir| parent(spine, dir)), [a, p, q]);
        let lost: Vec<LostMove> = spine.lost().collect();
        assert_eq!(lost, [LostMove { stamp: at(10, 1), dir: a, because: at(9, 2) }]);
    }
}

#[test]
fn a_directory_may_go_below_one_that_leaves_it_in_the_same_move() {
    let (a, b) = (dir(1), dir(2));
    let mut spine = Spine::default();
    born(&mut spine, &[(a, ROOT), (b, a)]);
    assert_eq!(decides(&spine, at(10, 1), &[to(a, b)]), Err(MoveRefused::Below(a)));
    assert_eq!(decides(&spine, at(10, 1), &[to(b, ROOT), to(ROOT, a)]), Err(MoveRefused::Below(ROOT)));
    moves(&mut spine, at(10, 1), &[to(a, b), to(b, ROOT)]);
    assert_eq!([a, b].map(|dir| parent(&spine, dir)), [b, ROOT]);
}

#[test]
fn a_record_that_comes_twice_changes_nothing_and_one_below_the_cut_is_refused() {
    let (a, b) = (dir(1), dir(2));
    let mut spine = Spine::default();
    born(&mut spine, &[(a, ROOT), (b, ROOT)]);
    let record = moves(&mut spine, at(10, 1), &[to(a, b)]);
    assert_eq!(hears(&mut spine, &record), []);
    let mut other = spine.clone();
    let differs = moves(&mut spine, at(11, 2), &[to(a, ROOT)]);
    let here = moves(&mut other, at(11, 2), &[to(b, ROOT)]);
    assert_eq!((other.receive(differs), other.record(at(11, 2))), (Err(NotTaken::Differs), Some(&here)));
    spine.fold(cut(11, 11));
    assert_eq!(spine.receive(record), Err(NotTaken::BelowCut));
}

#[test]
fn the_name_is_that_of_the_last_move_with_an_effect() {
    let (a, b) = (dir(1), dir(2));
    let mut spine = Spine::default();
    born(&mut spine, &[(a, ROOT), (b, ROOT)]);
    let mut renamed = to(a, b);
    renamed.name = name("new");
    moves(&mut spine, at(10, 1), &[renamed]);
    spine.fold(cut(10, 10));
    let place = spine.place(a).expect("known");
    assert_eq!((&place.name, place.since), (&name("new"), at(10, 1)));
}

/// A clock does not follow a stamp that is far ahead, so above two such stamps it gives the same one twice.
#[test]
fn two_moves_above_stamps_that_are_far_ahead_have_two_stamps() {
    let (a, b, c) = (dir(1), dir(2), dir(3));
    let mut spine = Spine::default();
    born(&mut spine, &[(a, ROOT), (b, ROOT), (c, ROOT)]);
    let far = 10 * HybridClock::AHEAD_US_MAX;
    moves(&mut spine, at(far, 9), &[to(a, c), to(b, c)]);
    let mut clock = HybridClock::default();
    let mut stamps = Vec::new();
    for moved in [a, b] {
        let give = |above| clock.give(100, Writer(1), above);
        let record = spine.decide(Writer(1), vec![to(moved, ROOT)], give).expect("a move that may be");
        stamps.push(record.stamp());
        spine.receive(record).expect("its own move");
    }
    assert_eq!(stamps, [at(far + 1, 1), at(far + 2, 1)]);
}

/// A move that has no effect, with a stamp far ahead, would have one if a later move of a clock that is right came
/// before it.
#[test]
fn a_local_move_is_later_than_a_move_without_effect_that_it_could_bring_to_life() {
    let (a, b, c) = (dir(1), dir(2), dir(3));
    let mut spine = Spine::default();
    born(&mut spine, &[(a, ROOT), (b, ROOT), (c, ROOT)]);
    let mut ahead = Spine::default();
    fetches(&mut ahead, &spine, 4, &[a, b]);
    moves(&mut spine, at(10, 1), &[to(b, a)]);
    let lost = moves(&mut ahead, at(1_000_000, 2), &[to(a, b)]);
    hears(&mut spine, &lost);
    assert_eq!(spine.lost().count(), 1);
    let mut told = HybridStamp::ZERO;
    let give = |above: HybridStamp| {
        told = above;
        at(above.time_us + 1, 1)
    };
    let record = spine.decide(Writer(1), vec![to(b, c)], give).expect("a move that may be");
    spine.receive(record).expect("its own move");
    assert_eq!((told, spine.lost().count()), (at(1_000_000, 2), 1));
    assert_eq!([a, b].map(|dir| parent(&spine, dir)), [ROOT, c]);
}

/// The third site moves e into d with a stamp far ahead, before it knows that d was moved. The place of d must be
/// kept at a site that has folded that until no such record can come: the third site's clock does not tell when,
/// since it did not follow.
#[test]
fn the_horizon_of_a_cut_counts_stamps_that_no_clock_followed() {
    let (p, d, e) = (dir(1), dir(2), dir(3));
    let far = 1_000_000;
    for (horizon_us, wanted) in [(20, ROOT), (far + 1, p)] {
        let mut first = Spine::default();
        born(&mut first, &[(p, ROOT), (d, ROOT), (e, ROOT)]);
        let mut third = Spine::default();
        fetches(&mut third, &first, 4, &[p, d, e]);
        let mut fourth = Spine::default();
        let early = moves(&mut third, at(far, 9), &[to(e, p)]);
        let late = moves(&mut third, at(far + 1, 3), &[to(e, d)]);
        let folded = moves(&mut first, at(10, 1), &[to(d, p)]);
        hears(&mut fourth, &folded);
        hears(&mut fourth, &early);
        // Clocks were at 12 and more in the first round, and at 20 in the second.
        fourth.fold(cut(12, horizon_us));
        fourth.fold(cut(25, 30.max(horizon_us)));
        hears(&mut fourth, &late);
        assert_eq!(parent(&fourth, d), wanted, "with a horizon of {horizon_us}");
    }
}

/// As above, but the old place comes with a directory that was asked for long ago.
#[test]
fn evidence_from_before_the_cut_is_not_taken() {
    let (p, d) = (dir(1), dir(2));
    let mut first = Spine::default();
    born(&mut first, &[(p, ROOT), (d, ROOT)]);
    let mut third = Spine::default();
    fetches(&mut third, &first, 4, &[p, d]);
    let evidence = third.evidence(&[d]).expect("few directories");
    let record = moves(&mut first, at(10, 1), &[to(d, p)]);
    let mut fourth = Spine::default();
    hears(&mut fourth, &record);
    fourth.fold(cut(12, 20));
    // Until a cut has passed the horizon, the place is known, whatever the evidence says.
    fetched(&mut fourth.clone(), 15, &evidence, &[d]).expect("not too late");
    fourth.fold(cut(25, 30));
    assert_eq!(fourth.known(), 0);
    assert_eq!(fetched(&mut fourth, 15, &evidence, &[d]), Err(NotTaken::BelowCut));
    hears(&mut third, &record);
    fetches(&mut fourth, &third, 26, &[d]);
    assert_eq!(parent(&fourth, d), p);
}

/// The third site moves e into d, and does not know yet that d was moved. The fourth has folded that, and lets a
/// fifth one in.
#[test]
fn a_site_that_joins_keeps_what_its_host_keeps() {
    let (p, d, e) = (dir(1), dir(2), dir(3));
    let mut first = Spine::default();
    born(&mut first, &[(p, ROOT), (d, ROOT), (e, ROOT)]);
    let mut third = Spine::default();
    fetches(&mut third, &first, 4, &[d, e]);
    let late = moves(&mut third, at(15, 3), &[to(e, d)]);
    let mut fourth = Spine::default();
    hears(&mut fourth, &moves(&mut first, at(10, 1), &[to(d, p)]));
    fourth.fold(cut(12, 20));
    for (keeps, wanted) in [(false, ROOT), (true, p)] {
        let mut fifth = Spine::begin(fourth.cut());
        for (dir, horizon) in fourth.kept().filter(|_| keeps) {
            fetches(&mut fifth, &fourth, 14, &[dir]);
            fifth.keep(dir, horizon);
        }
        hears(&mut fifth, &late);
        assert_eq!(parent(&fifth, d), wanted, "keeps: {keeps}");
    }
}

#[test]
fn evidence_of_a_site_that_has_folded_further_is_taken_as_it_is() {
    let (p, d, e) = (dir(1), dir(2), dir(3));
    let mut first = Spine::default();
    born(&mut first, &[(p, ROOT), (d, ROOT), (e, p)]);
    let mut second = Spine::default();
    let record = moves(&mut first, at(10, 1), &[to(d, p)]);
    hears(&mut second, &record);
    first.fold(cut(12, 20));
    let next = moves(&mut first, at(30, 1), &[to(e, d)]);
    assert_eq!(hears(&mut second, &next), [e]);
    second.fold(cut(12, 20));
    assert_eq!([d, e].map(|dir| parent(&second, dir)), [p, d]);
}

#[test]
fn what_is_released_is_forgotten_when_nothing_needs_it() {
    let (p, d, e) = (dir(1), dir(2), dir(3));
    let mut spine = Spine::default();
    born(&mut spine, &[(p, ROOT), (d, p), (e, ROOT)]);
    moves(&mut spine, at(10, 1), &[to(e, d)]);
    [p, d, e].into_iter().for_each(|dir| spine.release(dir));
    spine.fold(cut(5, 5));
    assert_eq!(spine.known(), 3);
    // e was moved by what is folded, so it and all above stay for one more cut.
    spine.fold(cut(15, 20));
    spine.check();
    assert_eq!((spine.known(), spine.records().len()), (3, 0));
    spine.fold(cut(20, 30));
    assert_eq!(spine.known(), 0);
}
