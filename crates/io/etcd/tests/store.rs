//! The store over real members of etcd that die, stand still, lose what they had, and refuse.

mod cluster;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use atoll_control::conformance::{self, record};
use atoll_control::{ConfigStore, ControlError, ControlStore, EmbeddedStore, GroupStore};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_etcd::{EtcdControl, EtcdStore};
use atoll_needs::needs;
use atoll_proto::group::{Revision, Swapped};
use atoll_proto::{Copies, IslandGroup, NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::ClusterId;

use cluster::{Cluster, LONG};

const VOLUME: VolumeId = VolumeId(7);
const ISLAND: IslandId = IslandId(3);

/// A store of a cluster that no other test has.
fn fresh(source: &atoll_etcd::EtcdSource) -> EtcdStore {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let cluster = ClusterId(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    let store = EtcdStore::open(source, cluster).unwrap();
    let until = Instant::now() + LONG;
    while let Err(why) = store.make() {
        assert!(Instant::now() < until, "{why}");
    }
    store
}

fn done(swapped: Swapped) -> Revision {
    match swapped {
        Swapped::Done { revision } => revision,
        other => panic!("{other:?}"),
    }
}

fn swap(store: &EtcdStore, expected: Revision, epoch: u32) -> Swapped {
    store.swap_group(VOLUME, ISLAND, expected, &record(epoch))
}

/// Swaps as a group does: until it is known what has come of it.
fn swap_surely(store: &EtcdStore, expected: Revision, epoch: u32) -> Revision {
    let until = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < until, "nothing is certain");
        match swap(store, expected, epoch) {
            Swapped::Done { revision } => return revision,
            Swapped::Conflict | Swapped::Unknown { .. } => {}
        }
        if let Ok(Some(found)) = store.group(VOLUME, ISLAND)
            && found.revision > expected
        {
            assert_eq!(found.record.epoch, epoch, "nobody else swaps");
            return found.revision;
        }
    }
}

/// A volume is made while members are added: they elect a leader meanwhile.
#[test]
fn the_groups_of_a_volume_are_put_in_although_there_is_no_leader_for_a_moment() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(3);
    let folder = tempfile::tempdir().unwrap();
    let own = EmbeddedStore::open(&folder.path().join("own")).unwrap();
    let store = fresh(&cluster.source());
    let puts = EtcdControl::new(Box::new(own), EtcdStore::open(&cluster.source(), store.cluster()).unwrap());
    cluster.kill(0);
    cluster.kill(1);
    thread::scope(|scope| {
        let put = scope.spawn(|| puts.create_groups(VOLUME, &[(ISLAND, record(1))]));
        thread::sleep(Duration::from_secs(2));
        cluster.begin(0);
        put.join().unwrap().unwrap();
    });
    assert_eq!(store.group(VOLUME, ISLAND).unwrap().unwrap().record, record(1));
}

#[test]
fn three_members_keep_groups_as_every_store_does() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let cluster = Cluster::start(3);
    conformance::behaves(&mut || Arc::new(fresh(&cluster.source())));
    the_first_groups_of_a_volume_are_put_in_once(&fresh(&cluster.source()));
    what_is_not_there_is_not_taken_for_empty(&cluster);
    a_node_takes_out_the_groups_that_it_has_put_in(&cluster);
}

fn a_node_takes_out_the_groups_that_it_has_put_in(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let own = EmbeddedStore::open(&folder.path().join(name)).unwrap();
        EtcdControl::new(Box::new(own), EtcdStore::open(&cluster.source(), ClusterId(0xeeee)).unwrap())
    };
    let (puts, other) = (of("a"), of("b"));
    assert!(puts.for_all().is_some_and(|place| place.starts_with("etcd://127.0.0.1:")));
    let first = [(IslandId(0), record(1)), (IslandId(1), record(1))];
    let groups =
        |store: &EtcdControl| store.groups(VOLUME, Revision::NONE, Duration::ZERO).unwrap().groups.len();
    assert!(puts.group(VOLUME, IslandId(0)).is_err(), "there is no store");
    assert!(puts.create_groups(VOLUME, &first).is_err(), "a volume makes none");
    puts.discard_groups(VOLUME).unwrap();
    assert!(EtcdStore::open(&cluster.source(), ClusterId(0xeeee)).unwrap().make().unwrap());
    puts.create_groups(VOLUME, &first).unwrap();
    assert_eq!([groups(&puts), groups(&other)], [2, 2], "both have the same");
    let swapped = other.swap_group(VOLUME, IslandId(0), Revision::NONE, &record(1));
    assert_eq!(swapped, Swapped::Conflict);
    other.discard_groups(VOLUME).unwrap();
    assert_eq!(groups(&puts), 2, "they are not its own");
    puts.discard_groups(VOLUME).unwrap();
    puts.discard_groups(VOLUME).unwrap();
    assert_eq!(groups(&other), 0);
    // Once the volume is there they stay.
    let node = |node, islands: &[u16]| NodeConfig {
        daemon: 0,
        node: NodeId(node),
        address: format!("n{node}:1"),
        islands: islands.iter().copied().map(IslandId).collect(),
    };
    let group = |island| IslandGroup { island: IslandId(island), nodes: vec![NodeId(0), NodeId(1)] };
    let groups_of = vec![group(0), group(1)];
    let config = VolumeConfig {
        site: None,
        id: VOLUME,
        name: "home".to_owned(),
        seed: 1,
        table: Table::new(2),
        nodes: vec![node(0, &[0, 1]), node(1, &[])],
        kind: VolumeKind::Cluster,
        copies: Some(Copies {
            wanted: 2,
            store: NodeId(0),
            groups: groups_of,
            racks: Vec::new(),
            ..Copies::default()
        }),
    };
    puts.create_groups(VOLUME, &first).unwrap();
    puts.create_volume(&config).unwrap();
    puts.discard_groups(VOLUME).unwrap();
    other.discard_groups(VOLUME).unwrap();
    assert_eq!((groups(&other), puts.volumes().unwrap()), (2, vec![config]));
    // A volume's first change is made to what its nodes have, and each later one to what etcd has.
    let config = puts.volumes().unwrap().remove(0);
    let next = |config: &VolumeConfig| VolumeConfig { table: config.table.reassigned([]), ..config.clone() };
    let (second, third) = (next(&config), next(&next(&config)));
    other.create_volume(&config).unwrap();
    assert_eq!(other.newest_config(VOLUME).unwrap(), config);
    assert!(matches!(other.swap_config(&third, 2), Swapped::Conflict));
    assert_eq!(other.swap_config(&second, 1), Swapped::Done { revision: Revision(2) });
    assert!(matches!(puts.swap_config(&second, 1), Swapped::Conflict));
    assert_eq!(puts.newest_config(VOLUME).unwrap(), second);
    assert_eq!(puts.swap_config(&third, 2), Swapped::Done { revision: Revision(3) });
    // Without it, whoever has the newest one puts it there.
    other.replace_volume(&third, 1).unwrap();
    cluster.ctl(0, &["del", "--prefix", "/atoll/000000000000eeee/config/"]);
    assert_eq!(
        (puts.newest_config(VOLUME).unwrap(), other.newest_config(VOLUME).unwrap()),
        (config, third.clone())
    );
    assert_eq!(puts.newest_config(VOLUME).unwrap(), third);
    other.leave_volume(VOLUME).unwrap();
    assert_eq!(groups(&puts), 2, "others need them");
    // An etcd that has lost its data is not made anew by another volume.
    cluster.ctl(0, &["del", "--prefix", "/atoll/000000000000eeee/"]);
    assert!(puts.create_groups(VolumeId(8), &first).is_err());
    assert!(puts.group(VOLUME, IslandId(0)).is_err());
    assert!(EtcdStore::open(&cluster.source(), ClusterId(0xeeee)).unwrap().make().unwrap());
    puts.remove_volume(VOLUME).unwrap();
    assert_eq!((groups(&other), puts.volumes().unwrap()), (0, Vec::new()));
}

fn the_first_groups_of_a_volume_are_put_in_once(store: &EtcdStore) {
    // More than fit into one transaction.
    let first: Vec<_> = (0..250).map(|island| (IslandId(island), record(1))).collect();
    let groups = |volume| store.groups(volume, Revision::NONE, Duration::ZERO).unwrap().groups;
    let other = VolumeId(VOLUME.0 + 1);
    store.create_groups(other, &first[..1]).unwrap();
    store.create_groups(VOLUME, &first).unwrap();
    let found = groups(VOLUME);
    assert_eq!(
        found.iter().map(|g| g.island).collect::<Vec<_>>(),
        first.iter().map(|f| f.0).collect::<Vec<_>>()
    );
    done(store.swap_group(VOLUME, IslandId(249), found[249].revision, &record(2)));
    let again = store.create_groups(VOLUME, &first[..1]);
    assert!(matches!(again, Err(ControlError::Taken { .. })), "{again:?}");
    store.remove_groups(VOLUME).unwrap();
    assert_eq!([groups(VOLUME).len(), groups(other).len()], [0, 1]);
    store.create_groups(VOLUME, &first[..1]).unwrap();
}

fn what_is_not_there_is_not_taken_for_empty(cluster: &Cluster) {
    let never_made = EtcdStore::open(&cluster.source(), ClusterId(0xffff)).unwrap();
    let why = never_made.group(VOLUME, ISLAND).unwrap_err().to_string();
    assert!(why.contains("it has nothing of this cluster") && why.lines().count() <= 3, "{why}");
    let swapped = swap(&never_made, Revision::NONE, 1);
    assert!(
        matches!(&swapped, Swapped::Unknown { why } if why.contains("nothing of this cluster")),
        "{swapped:?}"
    );
    assert!(matches!(never_made.groups(VOLUME, Revision::NONE, LONG), Err(ControlError::Unavailable { .. })));
    assert!(never_made.make().unwrap() && !never_made.make().unwrap());
    let first = done(swap(&never_made, Revision::NONE, 1));
    // Its data is lost while the store is open: what it remembers does not count.
    cluster.ctl(0, &["del", "--prefix", "/atoll/000000000000ffff/"]);
    for expected in [Revision::NONE, first] {
        let swapped = swap(&never_made, expected, 2);
        assert!(
            matches!(&swapped, Swapped::Unknown { why } if why.contains("nothing of this")),
            "{swapped:?}"
        );
    }
    // A later version has left something else there.
    cluster.ctl(0, &["put", "/atoll/000000000000ffff/store", "\u{2}\u{2}what else"]);
    let newer = never_made.group(VOLUME, ISLAND);
    assert!(matches!(newer, Err(ControlError::Newer { theirs: 0x0202, .. })), "{newer:?}");
    cluster.ctl(0, &["put", "/atoll/000000000000ffff/store", "?"]);
    assert!(matches!(never_made.group(VOLUME, ISLAND), Err(ControlError::Damaged { .. })));
}

#[test]
fn swaps_go_on_when_members_die_or_stand_still_and_none_is_done_twice() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(3);
    let store = fresh(&cluster.source());
    let mut at = done(swap(&store, Revision::NONE, 1));
    let mut epoch = 1;
    let mut longest = Duration::ZERO;
    // The store begins at the member that answered last; so the leader is the one that is asked, or another one.
    for way in ["kill", "freeze"] {
        for _ in 0..2 {
            let leader = cluster.leader();
            match way {
                "kill" => cluster.kill(leader),
                _ => cluster.freeze(leader),
            }
            let since = Instant::now();
            epoch += 1;
            at = swap_surely(&store, at, epoch);
            longest = longest.max(since.elapsed());
            match way {
                "kill" => cluster.begin(leader),
                _ => cluster.thaw(leader),
            }
            // What was asked of a member that stood still is done late, and changes nothing then.
            epoch += 1;
            at = swap_surely(&store, at, epoch);
            cluster.wait_until_healthy();
        }
    }
    eprintln!("the longest swap took {longest:?}");
    assert_eq!(store.group(VOLUME, ISLAND).unwrap().unwrap().record.epoch, epoch);
    // etcd's election is 0.8 to 1.6 s, and may need a second vote.
    assert!(longest < Duration::from_secs(20), "{longest:?}");
}

/// A way to a port on which what is asked arrives, and answers do not while it is shut. Its own port.
fn one_way(to: u16, is_shut: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let pass = |mut from: TcpStream, mut to: TcpStream, is_shut: Option<Arc<AtomicBool>>| {
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                while is_shut.as_ref().is_some_and(|is_shut| is_shut.load(Ordering::Relaxed)) {
                    thread::sleep(Duration::from_millis(5));
                }
                if to.write_all(&bytes[..read]).is_err() {
                    return;
                }
            }
        })
    };
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            pass(near.try_clone().unwrap(), far.try_clone().unwrap(), None);
            pass(far, near, Some(Arc::clone(&is_shut)));
        }
    });
    port
}

#[test]
fn a_swap_that_was_made_and_not_answered_is_unknown_and_no_conflict() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let cluster = Cluster::start(1);
    let is_shut = Arc::<AtomicBool>::default();
    let way = one_way(cluster.members[0].plan.client_port, Arc::clone(&is_shut));
    let mut source = cluster.source();
    source.hosts.insert(0, format!("127.0.0.1:{way}").parse().unwrap());
    // On a busy machine the way may be left for the other one before it is shut, or may pass nothing on in time.
    let was_unknown = (0..20).any(|_| {
        is_shut.store(false, Ordering::Relaxed);
        let store = fresh(&source);
        let first = done(swap(&store, Revision::NONE, 1));
        is_shut.store(true, Ordering::Relaxed);
        let swapped = swap(&store, first, 2);
        assert_ne!(swapped, Swapped::Conflict, "it was made");
        let found = store.group(VOLUME, ISLAND).unwrap().unwrap();
        assert!(found.revision > first && found.record.epoch == 2, "it was made: {found:?}");
        // Now the other member is asked first, and answers.
        assert_eq!(swap(&store, first, 3), Swapped::Conflict);
        done(swap(&store, found.revision, 3));
        matches!(&swapped, Swapped::Unknown { why } if why.contains("has changed since"))
    });
    assert!(was_unknown, "no answer was lost");
}

#[test]
#[ignore = "a measurement: cargo test -p atoll-etcd --test store -- --ignored --nocapture"]
fn how_long_calls_take_of_one_island_and_of_many() {
    const ISLANDS: u16 = 64;
    needs!(Programs(&["etcd", "etcdctl"]));
    let cluster = Cluster::start(3);
    let store = fresh(&cluster.source());
    let first: Vec<_> = (0..ISLANDS).map(|island| (IslandId(island), record(1))).collect();
    store.create_groups(VOLUME, &first).unwrap();
    let change = |island| {
        let found = store.group(VOLUME, IslandId(island)).unwrap().unwrap();
        done(store.swap_group(VOLUME, IslandId(island), found.revision, &record(2)));
    };
    for threads in [1, 4, 16] {
        let since = Instant::now();
        thread::scope(|scope| {
            for nth in 0..threads {
                let change = &change;
                scope.spawn(move || (nth..ISLANDS).step_by(threads.into()).for_each(change));
            }
        });
        let each = since.elapsed() / u32::from(ISLANDS);
        eprintln!(
            "{ISLANDS} islands, each read and swapped, {threads} at a time: {:?}, {each:?} each",
            since.elapsed()
        );
    }
}

#[test]
#[ignore = "a measurement: cargo test -p atoll-etcd --test store -- --ignored --nocapture"]
fn how_long_a_swap_takes_when_the_leader_is_killed() {
    const KILLS: u32 = 30;
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(3);
    let store = fresh(&cluster.source());
    let mut at = done(swap(&store, Revision::NONE, 1));
    let mut took: Vec<u128> = Vec::new();
    for epoch in 2..KILLS + 2 {
        let leader = cluster.leader();
        cluster.kill(leader);
        let since = Instant::now();
        at = swap_surely(&store, at, epoch);
        took.push(since.elapsed().as_millis());
        cluster.begin(leader);
        cluster.wait_until_healthy();
        thread::sleep(Duration::from_millis(500));
    }
    took.sort_unstable();
    eprintln!("ms: median {}, longest {}; all {took:?}", took[took.len() / 2], took[took.len() - 1]);
}

#[test]
fn of_swaps_while_members_fail_one_is_done_for_each_revision_and_reads_are_never_old() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(3);
    let store = fresh(&cluster.source());
    let first = done(swap(&store, Revision::NONE, 0xffff));
    let (sources, cluster_id) = ((0..3).map(|n| cluster.source_from(n)).collect::<Vec<_>>(), store);
    let stores: Vec<EtcdStore> = sources.iter().map(|source| reopen(source, &cluster_id)).collect();
    let is_over = AtomicBool::new(false);
    // Expected revision, the one that was given, and the epoch of the record.
    let made: Mutex<Vec<(Revision, Revision, u32)>> = Mutex::default();
    // The greatest revision that is known to be there.
    let known = AtomicU64::new(first.0);
    thread::scope(|scope| {
        for (nth, store) in stores.iter().enumerate() {
            let (is_over, made, known) = (&is_over, &made, &known);
            scope.spawn(move || {
                let mut epoch = (nth as u32 + 1) * 100_000;
                while !is_over.load(Ordering::Relaxed) {
                    let before = known.load(Ordering::SeqCst);
                    let Ok(Some(found)) = store.group(VOLUME, ISLAND) else { continue };
                    assert!(found.revision.0 >= before, "an old record is read");
                    known.fetch_max(found.revision.0, Ordering::SeqCst);
                    epoch += 1;
                    if let Swapped::Done { revision } = swap(store, found.revision, epoch) {
                        known.fetch_max(revision.0, Ordering::SeqCst);
                        made.lock().unwrap().push((found.revision, revision, epoch));
                    }
                }
            });
        }
        for turn in 0..4 {
            thread::sleep(Duration::from_millis(300));
            let nth = if turn % 2 == 0 { cluster.leader() } else { turn % 3 };
            cluster.freeze(nth);
            thread::sleep(Duration::from_millis(1_200));
            cluster.thaw(nth);
            if turn == 2 {
                cluster.kill(nth);
                cluster.begin(nth);
            }
        }
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
    });
    let mut made = made.into_inner().unwrap();
    made.sort_unstable();
    assert!(made.len() > 20, "only {} swaps", made.len());
    for pair in made.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two swaps of what one revision had: {pair:?}");
    }
}

/// Another store of the same cluster.
fn reopen(source: &atoll_etcd::EtcdSource, of: &EtcdStore) -> EtcdStore {
    EtcdStore::open(source, of.cluster()).unwrap()
}

#[test]
fn while_all_are_away_calls_end_in_time_and_what_was_there_is_there_afterwards() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(3);
    let store = fresh(&cluster.source());
    let first = done(swap(&store, Revision::NONE, 1));
    let second = done(swap(&store, first, 2));
    // Most of them are away: one is not enough, for reads neither.
    for nth in 0..2 {
        cluster.kill(nth);
    }
    let ends = |what: &str, is_away: bool| {
        let since = Instant::now();
        assert!(matches!(swap(&store, second, 3), Swapped::Unknown { .. }) && is_away, "{what}");
        assert!(matches!(store.group(VOLUME, ISLAND), Err(ControlError::Unavailable { .. })), "{what}");
        assert!(since.elapsed() < Duration::from_secs(15), "{what}: {:?}", since.elapsed());
    };
    ends("two of three are away", true);
    cluster.kill(2);
    ends("all are away", true);
    let since = Instant::now();
    assert!(store.groups(VOLUME, second, LONG).is_err());
    assert!(since.elapsed() < LONG / 2);
    (0..3).for_each(|nth| cluster.begin(nth));
    let third = swap_surely(&store, second, 3);
    assert_eq!(store.group(VOLUME, ISLAND).unwrap().unwrap().record, record(3));
    assert_eq!(store.groups(VOLUME, second, LONG).unwrap().groups[0].revision, third);
}

#[test]
fn a_watch_goes_on_after_a_compaction_and_the_death_of_its_member() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(3);
    let store = fresh(&cluster.source());
    let mut at = done(swap(&store, Revision::NONE, 1));
    let mut upto = store.groups(VOLUME, Revision::NONE, Duration::ZERO).unwrap().upto;
    for fault in ["none", "compaction", "frozen and compacted", "death"] {
        let told = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let until = Instant::now() + LONG;
                loop {
                    match store.groups(VOLUME, upto, Duration::from_secs(2)) {
                        Ok(changed) if !changed.groups.is_empty() => return (changed, Instant::now()),
                        _ => assert!(Instant::now() < until, "{fault}: it is never told"),
                    }
                }
            });
            thread::sleep(Duration::from_millis(300));
            let current = (at.0 & 0xffff_ffff).to_string();
            match fault {
                "compaction" => drop(cluster.ctl(1, &["compact", &current])),
                "frozen and compacted" => {
                    cluster.freeze(0);
                    at = swap_surely(&reopen(&cluster.source_from(1), &store), at, 10);
                    let current = (at.0 & 0xffff_ffff).to_string();
                    drop(cluster.ctl(1, &["compact", &current]));
                    cluster.thaw(0);
                }
                "death" => {
                    cluster.kill(0);
                    thread::sleep(Duration::from_millis(500));
                }
                _ => {}
            }
            let since = Instant::now();
            at = swap_surely(&reopen(&cluster.source_from(1), &store), at, 20);
            let (changed, when) = watch.join().unwrap();
            if ["none", "compaction"].contains(&fault) {
                let late = when.duration_since(since);
                assert!(late < Duration::from_millis(1_000), "{fault}: the watch wakes after {late:?}");
            }
            changed
        });
        assert_eq!(told.groups.len(), 1, "{fault}");
        upto = store.groups(VOLUME, Revision::NONE, Duration::ZERO).unwrap().upto;
    }
}

#[test]
fn what_was_restored_from_yesterday_is_older_and_a_rebuild_makes_all_from_before_void() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(1);
    let store = fresh(&cluster.source());
    let mut at = done(swap(&store, Revision::NONE, 1));
    let backup = cluster.folder.path().join("backup.db");
    cluster.ctl(0, &["snapshot", "save", backup.to_str().unwrap()]);
    let yesterday = at;
    for epoch in 2..=5 {
        at = done(swap(&store, at, epoch));
    }
    // It is put back, as its manual says.
    cluster.kill(0);
    std::fs::remove_dir_all(&cluster.members[0].plan.data).unwrap();
    cluster.restore(0, &backup);
    cluster.begin(0);
    cluster.wait_until_healthy();
    // Whoever has seen later ones finds it older, by the revision and by the epoch, and changes nothing.
    let found = store.group(VOLUME, ISLAND).unwrap().unwrap();
    assert_eq!((found.revision, found.record.epoch), (yesterday, 1));
    assert!(found.revision < at);
    assert_eq!(swap(&store, at, 6), Swapped::Conflict);
    let changed = store.groups(VOLUME, at, Duration::ZERO).unwrap();
    assert!(changed.upto < at && changed.groups.len() == 1, "all is told anew: {changed:?}");
    // Records from the copies. All that was given before is lower, and void.
    store.rebuild(at, &[(VOLUME, ISLAND, record(6))]).unwrap();
    let found = store.group(VOLUME, ISLAND).unwrap().unwrap();
    assert!(found.revision > at && found.record.epoch == 6, "{found:?}");
    let late = reopen(&cluster.source(), &store);
    for old in [yesterday, at] {
        assert_eq!(swap(&late, old, 7), Swapped::Conflict);
    }
    let changed = store.groups(VOLUME, at, Duration::ZERO).unwrap();
    assert_eq!(changed.groups, std::slice::from_ref(&found));
    let next = done(swap(&late, found.revision, 7));
    assert!(next > found.revision);
    // Once more, by somebody who knows of no revision.
    store.rebuild(Revision::NONE, &[(VOLUME, ISLAND, record(8))]).unwrap();
    let found = store.group(VOLUME, ISLAND).unwrap().unwrap();
    assert!(found.revision > next && found.record.epoch == 8);
    // An island without a record is still without one, and a store that has read an earlier head says so.
    let other = IslandId(9);
    let stale = late.swap_group(VOLUME, other, Revision::NONE, &record(1));
    assert_eq!(stale, Swapped::Conflict);
    done(late.swap_group(VOLUME, other, Revision::NONE, &record(1)));
}
