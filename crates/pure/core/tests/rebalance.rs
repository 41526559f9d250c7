//! The greedy rebalance: what it promises for every table, load and set of weights.

use atoll_core::rebalance::{BucketLoad, BucketLoads, BucketMove, RebalanceError, rebalance};
use atoll_core::table::Bucket;
use atoll_core::{Decode, Encode, IslandId, Table};
use proptest::prelude::*;

fn bytes(bytes: u64) -> BucketLoad {
    BucketLoad { bytes, operations: 0 }
}

fn loads_of(work: &[u64]) -> BucketLoads {
    let mut loads = BucketLoads::new(work.len());
    for (bucket, &w) in (0u32..).zip(work) {
        loads.record(Bucket(bucket), bytes(w));
    }
    loads
}

fn apply(table: &Table, moves: &[BucketMove]) -> Table {
    table.reassigned(moves.iter().map(|m| (m.bucket, m.to)))
}

/// Work and number of entries of each island.
fn shares(table: &Table, loads: &BucketLoads, islands: usize) -> Vec<(u128, u128)> {
    let mut sums = vec![(0, 0); islands];
    for (owner, load) in table.owners().iter().zip(loads.loads()) {
        sums[usize::from(owner.0)].0 += u128::from(load.work());
        sums[usize::from(owner.0)].1 += 1;
    }
    sums
}

/// Largest work per weight, as a fraction of the average; 1 is perfect.
fn hottest(sums: &[(u128, u128)], weights: &[u16]) -> f64 {
    let total: u128 = sums.iter().map(|s| s.0).sum();
    let weight: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    let relative = sums.iter().zip(weights).filter(|(_, w)| **w > 0).map(|(s, &w)| s.0 as f64 / f64::from(w));
    relative.fold(0.0, f64::max) * weight as f64 / total.max(1) as f64
}

/// SplitMix64, for inputs that shall be the same on every run.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A weight; islands may differ a hundredfold.
fn weight(may_drain: bool) -> impl Strategy<Value = u16> {
    let scale = prop::sample::select(vec![1, 1, 1, 50]);
    (if may_drain { 0u16..5 } else { 1..5 }, scale).prop_map(|(weight, scale)| weight * scale)
}

/// `weights`, unless all are 0.
fn at_least_one(mut weights: Vec<u16>) -> Vec<u16> {
    if weights.iter().all(|&w| w == 0) {
        weights[0] = 1;
    }
    weights
}

prop_compose! {
    /// A table with any owners, any loads (many entries idle, a few hot) and any weights; islands
    /// with weight may own nothing, islands without may own something.
    fn situation()(islands in 1usize..9, log in 3u32..9, drain in any::<bool>(), idle in 0u32..4)(
        owners in prop::collection::vec(0..islands as u16, 1 << log),
        work in prop::collection::vec((0u32..4, 1u64..5000, 0u32..40), 1 << log)
            .prop_map(move |v| v.into_iter()
                .map(|(d, w, hot)| if d < idle { 0 } else if hot == 0 { w * 200 } else { w })
                .collect::<Vec<_>>()),
        weights in prop::collection::vec(weight(drain), islands).prop_map(at_least_one),
    ) -> (Table, BucketLoads, Vec<u16>) {
        let mut table = Table::new(1);
        while table.buckets() < owners.len() { table = table.doubled(); }
        let work: Vec<u64> = (0..table.buckets()).map(|i| work[i % work.len()]).collect();
        let moves = (0u32..).zip(0..table.buckets()).map(|(b, i)| (Bucket(b), IslandId(owners[i % owners.len()])));
        (table.reassigned(moves), loads_of(&work), weights)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn moves_name_each_bucket_once_with_its_true_owner_and_an_island_with_weight(
        (table, loads, weights) in situation()
    ) {
        let moves = rebalance(&table, &loads, &weights).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for m in &moves {
            prop_assert!(seen.insert(m.bucket), "{m:?} moves twice");
            prop_assert_eq!(table.owner_of(m.bucket), m.from);
            prop_assert!(m.from != m.to && weights[usize::from(m.to.0)] > 0, "{:?}", m);
        }
        let before = shares(&table, &loads, weights.len());
        let after = shares(&apply(&table, &moves), &loads, weights.len());
        prop_assert_eq!(before.iter().map(|s| s.0).sum::<u128>(), after.iter().map(|s| s.0).sum::<u128>());
        prop_assert_eq!(before.iter().map(|s| s.1).sum::<u128>(), after.iter().map(|s| s.1).sum::<u128>());
    }

    #[test]
    fn work_goes_only_from_overloaded_to_underloaded_islands((table, loads, weights) in situation()) {
        let moves = rebalance(&table, &loads, &weights).unwrap();
        let before = shares(&table, &loads, weights.len());
        let total: u128 = before.iter().map(|s| s.0).sum();
        let weight: u128 = weights.iter().map(|&w| u128::from(w)).sum();
        // Work times all weight against total work times own weight: a share without division.
        let over = |i: IslandId| {
            let i = usize::from(i.0);
            (before[i].0 * weight).cmp(&(total * u128::from(weights[i])))
        };
        for m in &moves {
            prop_assert!(!moves.iter().any(|other| other.to == m.from), "{:?} is source and destination", m.from);
            if loads.of(m.bucket).work() > 0 {
                prop_assert!(over(m.from).is_gt(), "{m:?} leaves an island that is not overloaded");
                prop_assert!(over(m.to).is_lt(), "{m:?} goes to an island that is not underloaded");
            }
        }
        // No source is brought below its share.
        let after = shares(&apply(&table, &moves), &loads, weights.len());
        for m in &moves {
            if loads.of(m.bucket).work() > 0 {
                let i = usize::from(m.from.0);
                prop_assert!(after[i].0 * weight >= total * u128::from(weights[i]), "{m:?} underloads its source");
            }
        }
    }

    #[test]
    fn the_hottest_island_never_gets_hotter((table, loads, weights) in situation()) {
        // Emptying an island may heat the others; that is asked for.
        let weights: Vec<u16> = weights.into_iter().map(|w| w.max(1)).collect();
        let moves = rebalance(&table, &loads, &weights).unwrap();
        let before = hottest(&shares(&table, &loads, weights.len()), &weights);
        let after = hottest(&shares(&apply(&table, &moves), &loads, weights.len()), &weights);
        prop_assert!(after <= before * (1.0 + 1e-12), "{before} -> {after}");
    }

    #[test]
    fn a_drained_island_ends_empty((table, loads, weights) in situation()) {
        let moves = rebalance(&table, &loads, &weights).unwrap();
        for (sums, w) in shares(&apply(&table, &moves), &loads, weights.len()).iter().zip(&weights) {
            prop_assert!(*w > 0 || sums.1 == 0, "an island of weight 0 keeps {} entries", sums.1);
        }
    }

    #[test]
    fn the_same_input_gives_the_same_moves((table, loads, weights) in situation()) {
        prop_assert_eq!(rebalance(&table, &loads, &weights), rebalance(&table, &loads, &weights));
    }

    #[test]
    fn repeating_comes_to_rest((table, loads, weights) in situation()) {
        // Each round lowers an overload or evens a count; entries do not circle.
        let mut table = table;
        let mut rounds = 0;
        loop {
            let moves = rebalance(&table, &loads, &weights).unwrap();
            if moves.is_empty() { break; }
            table = apply(&table, &moves);
            rounds += 1;
            prop_assert!(rounds < 32, "still moving {} entries after {rounds} rounds", moves.len());
        }
    }

    #[test]
    fn counters_double_merge_and_travel_without_loss(work in prop::collection::vec((any::<u64>(), 0u64..1 << 40), 16)) {
        let mut loads = BucketLoads::new(16);
        for (bucket, &(bytes, operations)) in (0u32..).zip(&work) {
            loads.record(Bucket(bucket), BucketLoad { bytes, operations });
        }
        let doubled = loads.doubled();
        for b in 0..16 {
            let (first, second) = (doubled.of(Bucket(2 * b)), doubled.of(Bucket(2 * b + 1)));
            prop_assert_eq!(first.saturating_add(second), loads.of(Bucket(b)));
            prop_assert!(first.bytes - second.bytes <= 1 && first.operations - second.operations <= 1);
        }
        prop_assert_eq!(BucketLoads::from_slice(&loads.to_vec()), Ok(loads.clone()));
        // Either side may be the one that has not doubled yet.
        let (mut old, mut new) = (loads.clone(), doubled.clone());
        old.merge(&doubled);
        new.merge(&loads);
        prop_assert_eq!(&old, &new);
        prop_assert_eq!(old.of(Bucket(3)), doubled.of(Bucket(3)).saturating_add(doubled.of(Bucket(3))));
    }
}

#[test]
fn adding_the_last_of_s_islands_moves_about_one_sth_of_work_and_entries_all_of_it_to_the_new_one() {
    for islands in [2u16, 3, 4, 8, 16, 33] {
        for seed in 0..8 {
            let mut next = noise(seed);
            let mut table = Table::new(islands);
            // Owners `0..islands - 1`: the last one is new and owns nothing.
            let owners = islands - 1;
            table = table
                .reassigned((0..table.buckets() as u32).map(|b| (Bucket(b), IslandId(b as u16 % owners))));
            let work: Vec<u64> = (0..table.buckets()).map(|_| 500_000 + next() % 1_000_000).collect();
            let loads = loads_of(&work);
            let moves = rebalance(&table, &loads, &vec![1; usize::from(islands)]).unwrap();
            let s = f64::from(islands);
            let moved: u64 = moves.iter().map(|m| loads.of(m.bucket).work()).sum();
            let work_part = moved as f64 / work.iter().sum::<u64>() as f64 * s;
            let count_part = moves.len() as f64 / table.buckets() as f64 * s;
            assert!((0.9..1.1).contains(&work_part), "{islands} islands, seed {seed}: work {work_part}/S");
            assert!(
                (0.75..1.25).contains(&count_part),
                "{islands} islands, seed {seed}: entries {count_part}/S"
            );
            // The few others even out what the old islands differed in before.
            let to_new = moves.iter().filter(|m| m.to.0 == owners).count();
            assert!(to_new * 10 >= moves.len() * 9, "{islands}: {to_new} of {} go to the new", moves.len());
        }
    }
}

#[test]
fn an_empty_volume_gives_a_new_island_exactly_its_share_of_entries() {
    let table = Table::new(3);
    let moves = rebalance(&table, &BucketLoads::new(256), &[1, 1, 1, 1]).unwrap();
    assert_eq!(moves.len(), 64);
    assert!(moves.iter().all(|m| m.to == IslandId(3)));
}

#[test]
fn idle_entries_follow_when_few_entries_have_work() {
    // Only 8 of 256 entries have work. The new island gets its quarter of both.
    let mut work = vec![0; 256];
    let table = Table::new(3);
    work[..8].fill(1_000_000);
    let loads = loads_of(&work);
    let moves = rebalance(&table, &loads, &[1; 4]).unwrap();
    let after = shares(&apply(&table, &moves), &loads, 4);
    assert!(after.iter().all(|&(work, entries)| work == 2_000_000 && entries == 64), "{after:?}");
}

#[test]
fn weights_are_respected() {
    let mut next = noise(7);
    let work: Vec<u64> = (0..1024).map(|_| 1 + next() % 10_000).collect();
    let mut table = Table::new(16);
    table = table.reassigned((0..1024).map(|b| (Bucket(b), IslandId((b % 4) as u16))));
    let loads = loads_of(&work);
    let weights = [1, 2, 3, 4];
    let after = shares(&apply(&table, &rebalance(&table, &loads, &weights).unwrap()), &loads, 4);
    let total: u64 = work.iter().sum();
    for (sums, w) in after.iter().zip(weights) {
        let (work, entries) = (sums.0 as f64 / total as f64 * 10.0, sums.1 as f64 / 1024.0 * 10.0);
        assert!((work - f64::from(w)).abs() < 0.02, "weight {w} has work {work}");
        assert!((entries - f64::from(w)).abs() < 0.5, "weight {w} has entries {entries}");
    }
}

#[test]
fn a_balanced_table_stays_and_a_second_run_moves_next_to_nothing() {
    let table = Table::new(4);
    let even = loads_of(&[1000; 256]);
    assert_eq!(rebalance(&table, &even, &[1; 4]), Ok(vec![]));
    for seed in 0..20 {
        let mut next = noise(seed);
        // Heavy tail: most entries are small, some 1000 times larger.
        let work: Vec<u64> = (0..512).map(|_| (1 << (next() % 11)) * (1000 + next() % 1000)).collect();
        let total: u64 = work.iter().sum();
        let table = Table::new(8);
        let loads = loads_of(&work);
        let moves = rebalance(&table, &loads, &[1; 9]).unwrap();
        let table = apply(&table, &moves);
        let again: u64 =
            rebalance(&table, &loads, &[1; 9]).unwrap().iter().map(|m| loads.of(m.bucket).work()).sum();
        assert!(again * 100 <= total, "seed {seed}: a second run moves {again} of {total}");
        let hottest = hottest(&shares(&table, &loads, 9), &[1; 9]);
        assert!(hottest < 1.02, "seed {seed}: the hottest island has {hottest} of the average");
    }
}

#[test]
fn a_hot_spot_that_would_only_carry_the_overload_elsewhere_stays() {
    // One entry has more than the share of two islands; the rest of its island can go.
    let mut work = vec![10; 128];
    work[0] = 100_000;
    let loads = loads_of(&work);
    let table = Table::new(2);
    let moves = rebalance(&table, &loads, &[1, 1]).unwrap();
    assert!(moves.iter().all(|m| m.bucket != Bucket(0)));
    let after = apply(&table, &moves);
    assert_eq!(shares(&after, &loads, 2)[0], (100_000, 1), "everything but the hot spot leaves its island");
    assert_eq!(rebalance(&after, &loads, &[1, 1]), Ok(vec![]));
}

#[test]
fn an_island_above_its_share_gets_nothing_even_if_its_weight_would_hide_it() {
    // Per weight, island 1 would feel 600 the least; but it has more than its share already.
    let owners = [0, 0, 1, 2, 3, 1, 1, 1];
    let table =
        Table::with_buckets(1, 8).reassigned((0..8).map(|b| (Bucket(b), IslandId(owners[b as usize]))));
    let loads = loads_of(&[1000, 600, 100_100, 650, 650, 0, 0, 0]);
    let moves = rebalance(&table, &loads, &[1, 100, 1, 1]).unwrap();
    assert_eq!(moves, [BucketMove { bucket: Bucket(1), from: IslandId(0), to: IslandId(2) }]);
}

#[test]
fn an_island_that_cannot_shed_its_hot_spot_gets_no_idle_entries_either() {
    let table = Table::new(3).reassigned((0..256).map(|b| (Bucket(b), IslandId(u16::from(b > 0)))));
    let mut work = vec![0; 256];
    work[0] = 1_000_000;
    let loads = loads_of(&work);
    let after = apply(&table, &rebalance(&table, &loads, &[1, 1, 1]).unwrap());
    assert_eq!(shares(&after, &loads, 3), [(1_000_000, 1), (0, 169), (0, 86)]);
}

#[test]
fn ties_go_to_the_lower_bucket_and_the_lower_island() {
    // Two entries too many at island 0, two equal islands that lack one each.
    let table = Table::new(1)
        .reassigned((0..64).map(|b| (Bucket(b), IslandId(if b < 24 { 0 } else { (b % 2 + 1) as u16 }))));
    let moves = rebalance(&table, &loads_of(&[100; 64]), &[22, 21, 21]).unwrap();
    let expected =
        [(0, 1), (1, 2)].map(|(b, to)| BucketMove { bucket: Bucket(b), from: IslandId(0), to: IslandId(to) });
    assert_eq!(moves, expected);
}

#[test]
fn the_largest_loads_neither_overflow_nor_lose_their_order() {
    let mut loads = BucketLoads::new(64);
    for b in 0..64 {
        loads.record(Bucket(b), BucketLoad { bytes: u64::MAX, operations: u64::MAX });
        loads.record(Bucket(b), BucketLoad { bytes: 1, operations: 1 });
    }
    assert_eq!(loads.of(Bucket(0)), BucketLoad { bytes: u64::MAX, operations: u64::MAX });
    let moves = rebalance(&Table::new(1), &loads, &[u16::MAX, u16::MAX]).unwrap();
    assert_eq!(moves.len(), 32);
}

#[test]
fn operations_count_as_work() {
    let load = BucketLoad { bytes: 10, operations: 3 };
    assert_eq!(load.work(), 10 + 3 * BucketLoad::OPERATION_BYTES);
    let mut loads = BucketLoads::new(64);
    (0..32).for_each(|b| loads.record(Bucket(b), BucketLoad { bytes: 0, operations: 5 }));
    let table = Table::new(1);
    let moves = rebalance(&table, &loads, &[1, 1]).unwrap();
    let after = shares(&apply(&table, &moves), &loads, 2);
    assert_eq!(after, [(16 * 5 * 4096, 32), (16 * 5 * 4096, 32)]);
}

#[test]
fn what_cannot_be_balanced_is_refused() {
    let table = Table::new(1);
    let loads = BucketLoads::new(64);
    assert_eq!(rebalance(&table, &loads, &[0, 0]), Err(RebalanceError::NoIslandLeft));
    assert_eq!(rebalance(&table, &loads, &[]), Err(RebalanceError::NoIslandLeft));
    let wrong = BucketLoads::new(128);
    assert_eq!(rebalance(&table, &wrong, &[1]), Err(RebalanceError::Buckets { loads: 128, table: 64 }));
    let three = vec![BucketLoad::default(); 3];
    assert!(BucketLoads::from_slice(&Encode::to_vec(&three)).is_err());
}
