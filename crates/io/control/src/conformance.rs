//! What every store of group records does, as one body of tests for all of them.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_proto::group::{GroupRecord, Host, Primary, Revision, Seat, Swapped};

use crate::groups::GroupStore;

const VOLUME: VolumeId = VolumeId(7);
/// Longer than any store takes.
const LONG: Duration = Duration::from_secs(5);
/// A time for which nothing happens.
const SHORT: Duration = Duration::from_millis(100);

/// A record of two nodes.
pub fn record(epoch: u32) -> GroupRecord {
    let seat = |node| Seat { node: NodeId(node), tenure: 1 };
    let host = Host { boot: 5, inode: 6 };
    let primary = Primary { node: NodeId(0), life: 1, host, attempt: 1 };
    GroupRecord {
        epoch,
        primary: Some(primary),
        in_sync: vec![seat(0), seat(1)],
        wanted: 2,
        power_cut: false,
    }
}

/// The revision of a swap that must succeed.
fn done(swapped: &Swapped) -> Revision {
    match swapped {
        Swapped::Done { revision } => *revision,
        other => panic!("{other:?}"),
    }
}

/// Runs everything, each part with a store that has no record yet.
pub fn behaves(fresh: &mut dyn FnMut() -> Arc<dyn GroupStore>) {
    a_record_is_changed_only_by_who_has_seen_it(&*fresh());
    records_are_those_of_one_volume_and_island(&*fresh());
    of_many_swaps_one_wins(&fresh());
    a_watch_tells_what_has_changed(&*fresh());
    a_watch_wakes(&fresh());
}

fn a_record_is_changed_only_by_who_has_seen_it(store: &dyn GroupStore) {
    let island = IslandId(3);
    assert_eq!(store.group(VOLUME, island).unwrap(), None);
    assert_eq!(store.swap_group(VOLUME, island, Revision(1), &record(1)), Swapped::Conflict);
    let first = done(&store.swap_group(VOLUME, island, Revision::NONE, &record(1)));
    assert!(first > Revision::NONE);
    let found = store.group(VOLUME, island).unwrap().unwrap();
    assert_eq!((found.island, found.revision, found.record), (island, first, record(1)));
    // Whoever believes that there is none, or knows another one, changes nothing.
    for expected in [Revision::NONE, Revision(first.0 + 1), Revision(u64::MAX)] {
        assert_eq!(store.swap_group(VOLUME, island, expected, &record(9)), Swapped::Conflict, "{expected:?}");
    }
    assert_eq!(store.group(VOLUME, island).unwrap().unwrap().record, record(1));
    // The same record again is another change.
    let second = done(&store.swap_group(VOLUME, island, first, &record(1)));
    assert!(second > first);
    assert_eq!(store.swap_group(VOLUME, island, first, &record(2)), Swapped::Conflict);
    let third = done(&store.swap_group(VOLUME, island, second, &record(2)));
    let found = store.group(VOLUME, island).unwrap().unwrap();
    assert_eq!((found.revision, found.record), (third, record(2)));
}

fn records_are_those_of_one_volume_and_island(store: &dyn GroupStore) {
    let other = VolumeId(VOLUME.0 + 1);
    let places = [(VOLUME, IslandId(0)), (VOLUME, IslandId(u16::MAX)), (other, IslandId(0))];
    let mut revisions = Vec::new();
    for (at, (volume, island)) in places.into_iter().enumerate() {
        revisions.push(done(&store.swap_group(volume, island, Revision::NONE, &record(at as u32 + 1))));
    }
    assert!(revisions.is_sorted_by(|a, b| a < b), "revisions are the store's: {revisions:?}");
    for (at, (volume, island)) in places.into_iter().enumerate() {
        let found = store.group(volume, island).unwrap().unwrap();
        assert_eq!((found.revision, found.record.epoch), (revisions[at], at as u32 + 1));
    }
    let all = store.groups(VOLUME, Revision::NONE, Duration::ZERO).unwrap().groups;
    assert_eq!(all.iter().map(|g| g.island).collect::<Vec<_>>(), [IslandId(0), IslandId(u16::MAX)]);
    assert_eq!(store.groups(other, Revision::NONE, Duration::ZERO).unwrap().groups.len(), 1);
    assert_eq!(store.groups(VolumeId(1), Revision::NONE, Duration::ZERO).unwrap().groups, []);
}

fn of_many_swaps_one_wins(store: &Arc<dyn GroupStore>) {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 10;
    let mut seen = Revision::NONE;
    for round in 0..ROUNDS {
        let won: Vec<(u32, Revision)> = thread::scope(|scope| {
            let swap = |thread| {
                move || match store.swap_group(
                    VOLUME,
                    IslandId(0),
                    seen,
                    &record(round * THREADS + thread + 1),
                ) {
                    Swapped::Done { revision } => Some((round * THREADS + thread + 1, revision)),
                    Swapped::Conflict => None,
                    Swapped::Unknown { why } => panic!("{why}"),
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(swap(thread))).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("it does not panic")).collect()
        });
        assert_eq!(won.len(), 1, "round {round}");
        let found = store.group(VOLUME, IslandId(0)).unwrap().unwrap();
        assert_eq!((found.record.epoch, found.revision), won[0], "round {round}");
        seen = found.revision;
    }
}

fn a_watch_tells_what_has_changed(store: &dyn GroupStore) {
    let nothing = store.groups(VOLUME, Revision::NONE, Duration::ZERO).unwrap();
    assert_eq!(nothing.groups, []);
    let first = done(&store.swap_group(VOLUME, IslandId(0), Revision::NONE, &record(1)));
    let second = done(&store.swap_group(VOLUME, IslandId(1), Revision::NONE, &record(1)));
    let all = store.groups(VOLUME, nothing.upto, LONG).unwrap();
    assert!(all.upto >= second);
    assert_eq!(all.groups.iter().map(|g| g.revision).collect::<Vec<_>>(), [first, second]);
    // A record is told once, as it is now.
    let third = done(&store.swap_group(VOLUME, IslandId(0), first, &record(2)));
    let fourth = done(&store.swap_group(VOLUME, IslandId(0), third, &record(3)));
    let changed = store.groups(VOLUME, all.upto, LONG).unwrap();
    let told: Vec<_> = changed.groups.iter().map(|g| (g.island, g.revision, g.record.epoch)).collect();
    assert_eq!(told, [(IslandId(0), fourth, 3)]);
    // Of another volume nothing is told, and without a change a watch comes back.
    done(&store.swap_group(VolumeId(1), IslandId(0), Revision::NONE, &record(1)));
    let since = Instant::now();
    assert_eq!(store.groups(VOLUME, changed.upto, SHORT).unwrap().groups, []);
    assert!(since.elapsed() < LONG, "it waits for longer than it was told to");
}

fn a_watch_wakes(store: &Arc<dyn GroupStore>) {
    let upto = store.groups(VOLUME, Revision::NONE, Duration::ZERO).unwrap().upto;
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let until = Instant::now() + LONG;
            // It may come back early.
            loop {
                let changed = store.groups(VOLUME, upto, LONG).unwrap();
                if !changed.groups.is_empty() || Instant::now() > until {
                    return (changed.groups.len(), Instant::now());
                }
            }
        });
        thread::sleep(SHORT);
        let swapped = Instant::now();
        done(&store.swap_group(VOLUME, IslandId(4), Revision::NONE, &record(1)));
        let (told, at) = watch.join().expect("it does not panic");
        assert_eq!(told, 1);
        assert!(at.duration_since(swapped) < LONG / 2, "a change wakes a watch");
    });
}
