//! Clock vectors: the laws of a lattice, without which "has seen" means nothing.

use atoll_core::{ClockVector, Decode, Encode, IslandId, Stamp};
use proptest::prelude::*;

fn vector() -> impl Strategy<Value = ClockVector> {
    prop::collection::vec((0u16..6, 0u32..3, 0u64..4), 0..8).prop_map(|raises| {
        let mut v = ClockVector::default();
        for (island, incarnation, n) in raises {
            v.raise(IslandId(island), Stamp::new(incarnation, n));
        }
        v
    })
}

fn join(a: &ClockVector, b: &ClockVector) -> ClockVector {
    let mut out = a.clone();
    out.join(b);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn covers_is_a_partial_order(a in vector(), b in vector(), c in vector()) {
        prop_assert!(a.covers(&a) && a.covers(&ClockVector::default()));
        prop_assert!(!(a.covers(&b) && b.covers(&a)) || a == b);
        prop_assert!(!(a.covers(&b) && b.covers(&c)) || a.covers(&c));
    }

    #[test]
    fn join_is_the_least_upper_bound(a in vector(), b in vector(), c in vector()) {
        let both = join(&a, &b);
        prop_assert!(both.covers(&a) && both.covers(&b));
        prop_assert!(!(c.covers(&a) && c.covers(&b)) || c.covers(&both));
    }

    #[test]
    fn join_commutes_associates_and_repeats_without_effect(a in vector(), b in vector(), c in vector()) {
        prop_assert_eq!(join(&a, &b), join(&b, &a));
        prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
        prop_assert_eq!(join(&a, &a), a.clone());
        prop_assert_eq!(a.clone().join(&b), join(&a, &b) != a, "join tells whether there was news");
    }

    #[test]
    fn raise_touches_one_island_and_never_lowers(a in vector(), island in 0u16..8, n in 0u64..4) {
        let mut raised = a.clone();
        let stamp = Stamp::new(1, n);
        let news = raised.raise(IslandId(island), stamp);
        prop_assert_eq!(news, a.get(IslandId(island)) < stamp);
        for other in (0..8).map(IslandId) {
            let expected = if other.0 == island { a.get(other).max(stamp) } else { a.get(other) };
            prop_assert_eq!(raised.get(other), expected);
        }
    }

    #[test]
    fn equal_knowledge_is_equal_bytes(a in vector()) {
        prop_assert_eq!(ClockVector::from_slice(&a.to_vec()), Ok(a.clone()));
        let mut rebuilt = ClockVector::default();
        let mut seen: Vec<_> = a.iter().collect();
        seen.reverse();
        for (island, stamp) in seen {
            rebuilt.raise(island, stamp);
        }
        prop_assert_eq!(rebuilt.to_vec(), a.to_vec());
    }
}

#[test]
fn a_new_incarnation_is_above_everything_before_it() {
    let last = Stamp::new(3, (1 << 40) - 1);
    let first = Stamp::new(4, 0);
    assert!(first > last);
    assert_eq!((last.incarnation(), last.n()), (3, (1 << 40) - 1));
}

#[test]
#[should_panic(expected = "a stamp overflowed")]
fn a_stamp_that_would_run_into_the_next_incarnation_stops_us() {
    let _ = Stamp::new(0, 1 << 40);
}

#[test]
fn a_vector_that_ends_in_zero_or_is_too_long_is_refused() {
    assert!(ClockVector::from_slice(&Encode::to_vec(&vec![Stamp(5), Stamp(0)])).is_err());
    assert!(ClockVector::from_slice(&Encode::to_vec(&vec![Stamp(1); 65_537])).is_err());
    assert!(ClockVector::from_slice(&Encode::to_vec(&vec![Stamp(1); 65_536])).is_ok());
}
