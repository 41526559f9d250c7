//! The placement table: its index, its growth and what its codec lets in.

use atoll_core::table::Bucket;
use atoll_core::{Decode, Encode, IslandId, Key, Table};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn doubling_keeps_every_owner_and_counts_up(islands in 1u16..200, keys in prop::collection::vec(any::<u32>(), 50)) {
        let table = Table::new(islands);
        let twice = table.doubled().doubled();
        prop_assert_eq!(twice.buckets(), 4 * table.buckets());
        prop_assert_eq!(twice.version(), table.version() + 2);
        for key in keys.into_iter().map(Key) {
            prop_assert_eq!(twice.owner(key), table.owner(key));
            // The heirs of a bucket are its index with bits added below.
            prop_assert_eq!(twice.bucket(key).0 >> 2, table.bucket(key).0);
        }
    }

    #[test]
    fn the_index_is_the_upper_bits_of_the_key(islands in 1u16..200, key: u32) {
        let table = Table::new(islands);
        let width = (1u64 << 32) / table.buckets() as u64;
        prop_assert_eq!(u64::from(table.bucket(Key(key)).0), u64::from(key) / width);
    }

    #[test]
    fn a_new_table_gives_equal_shares_of_at_least_64(islands in 1u16..2000) {
        let table = Table::new(islands);
        let mut counts = vec![0usize; usize::from(islands)];
        table.owners().iter().for_each(|o| counts[usize::from(o.0)] += 1);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(*least >= Table::BUCKETS_PER_ISLAND && most - least <= 1, "{least}..={most}");
    }

    #[test]
    fn reassigning_changes_what_was_named_and_nothing_else(islands in 1u16..20, bucket in 0u32..64, to: u16) {
        let table = Table::new(islands);
        let next = table.reassigned([(Bucket(bucket), IslandId(to))]);
        prop_assert_eq!(next.version(), table.version() + 1);
        for b in (0..table.buckets() as u32).map(Bucket) {
            let expected = if b.0 == bucket { IslandId(to) } else { table.owner_of(b) };
            prop_assert_eq!(next.owner_of(b), expected);
        }
        prop_assert_eq!(Table::from_slice(&next.to_vec()), Ok(next));
    }

    #[test]
    fn tables_have_the_same_owners_if_no_key_has_another(islands in 1u16..9, doubled in 0usize..3, bucket: u32, to in 0u16..9) {
        let table = Table::new(islands);
        let twice = (0..doubled).fold(table.clone(), |table, _| table.doubled());
        prop_assert!(twice.has_owners_of(&table) && table.has_owners_of(&twice));
        let bucket = Bucket(bucket % twice.buckets() as u32);
        let other = twice.reassigned([(bucket, IslandId(to))]);
        let same = twice.owner_of(bucket) == IslandId(to);
        prop_assert_eq!((other.has_owners_of(&table), table.has_owners_of(&other)), (same, same));
    }

    #[test]
    fn any_bytes_are_a_table_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(table) = Table::from_slice(&bytes) {
            prop_assert!(table.buckets().is_power_of_two() && table.version() > 0);
            prop_assert_eq!(table.to_vec(), bytes);
        }
    }
}

#[test]
fn the_codec_refuses_sizes_that_no_key_can_index_and_version_zero() {
    let encoded = |version: u64, buckets: usize| {
        let mut bytes = version.to_vec();
        vec![IslandId(0); buckets].encode(&mut bytes);
        bytes
    };
    for bad in [0, 3, 5, 63, 65, 100, 2 * Table::BUCKETS_MAX] {
        assert!(Table::from_slice(&encoded(1, bad)).is_err(), "{bad} buckets");
    }
    for good in [1, 2, 64, 4096] {
        assert_eq!(Table::from_slice(&encoded(1, good)).unwrap().buckets(), good);
    }
    assert!(Table::from_slice(&encoded(0, 64)).is_err());
}

#[test]
fn one_bucket_takes_every_key() {
    let mut bytes = 1u64.to_vec();
    vec![IslandId(7)].encode(&mut bytes);
    let table = Table::from_slice(&bytes).unwrap();
    assert_eq!((table.owner(Key(0)), table.owner(Key(u32::MAX))), (IslandId(7), IslandId(7)));
}

#[test]
#[should_panic(expected = "cannot grow past")]
fn a_table_stops_growing_at_its_bound() {
    let mut table = Table::new(1);
    while table.buckets() < Table::BUCKETS_MAX {
        table = table.doubled();
    }
    assert_eq!(Table::from_slice(&table.to_vec()).as_ref(), Ok(&table), "the largest table travels");
    let _ = table.doubled();
}
