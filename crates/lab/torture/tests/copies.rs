//! The short form of `atoll-torture copies`.

use std::path::Path;
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::cluster::Cluster;
use atoll_torture::copies::{Copies, run};
use atoll_torture::fault::{Faults, Kind};
use atoll_torture::history::Histories;
use atoll_torture::network::PROGRAMS;
use atoll_torture::place::Place;

/// Four nodes with two copies of each island, and three mounts.
fn copies(seed: u64, operations: u64, faults: u64, kinds: &[Kind]) -> Copies {
    let histories = Histories {
        nodes: 4,
        mounts: 3,
        operations,
        crashes: 0,
        seed,
        cuts: false,
        paper: false,
        round: 1000,
        check_every: 1000,
        go_on: false,
        keep: std::env::temp_dir(),
    };
    Copies {
        histories,
        replicas: 2,
        faults,
        kinds: kinds.to_vec(),
        disk_mib: 0,
        compares: true,
        stay: Duration::ZERO,
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_while_copies_go_and_come_back() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("copies").unwrap();
    let what = copies(20, 1000, 2, &Kind::PLAIN);
    let report = run(&what, place.path(), &mut |line| eprintln!("{line}")).unwrap();
    assert!(report.judged.operations >= 1000 && report.faults.all() >= 2, "{report}");
    assert!(report.acknowledged > 0 && report.compared > 0, "{report}");
}

#[test]
fn nothing_that_was_acknowledged_is_lost_while_the_disks_of_nodes_are_wiped() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("wiped").unwrap();
    let what = copies(30, 1000, 2, &[Kind::Wiped]);
    let report = run(&what, place.path(), &mut |line| eprintln!("{line}")).unwrap();
    assert!(report.judged.operations >= 1000 && report.faults.all() >= 2, "{report}");
    assert!(report.acknowledged > 0 && report.compared > 0, "{report}");
}

#[test]
fn all_copies_of_an_island_have_the_same_plain_tree_after_an_orderly_stop() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("same").unwrap();
    let what = copies(1, 1000, 0, &Kind::PLAIN);
    let report = run(&what, place.path(), &mut |line| eprintln!("{line}")).unwrap();
    assert!(report.compared > 0 && report.faults.all() == 0, "{report}");
}

/// Longer than an island may be led by nobody before the others take it for away.
const AWAY: Duration = Duration::from_secs(4);
/// How long a call may take while all islands are led, on a machine that is busy.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Makes directories, which come to all islands, and removes them.
fn directories_are_made(mount: &Path, when: &str) {
    for number in 0..24 {
        let dir = mount.join(format!("dir{number}"));
        let since = Instant::now();
        std::fs::create_dir(&dir).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        assert!(since.elapsed() < CALL_MAX, "{when}, directory {number}: {:?}", since.elapsed());
    }
}

/// An island that came to another node was told of as away some seconds later, to the islands of that node, and never as back.
#[test]
fn islands_reach_each_other_long_after_some_have_changed_their_primary() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("reach").unwrap();
    let mut cluster = Cluster::start_with_copies(place.path(), 4, 2, 0, &["soft=30"]).unwrap();
    let mut faults = Faults::new(1, &[], 2, 0, Duration::ZERO);
    faults.settle(&mut cluster).unwrap();
    let mount = cluster.mounts()[0].clone();
    cluster.kill9_node(3).unwrap();
    std::thread::sleep(AWAY);
    directories_are_made(&mount, "a node is dead");
    cluster.start_node(3).unwrap();
    std::thread::sleep(AWAY);
    directories_are_made(&mount, "it is back");
    faults.settle(&mut cluster).unwrap();
    // It hears late that another one leads what it has led.
    cluster.freeze_node(1, true).unwrap();
    std::thread::sleep(AWAY);
    cluster.freeze_node(1, false).unwrap();
    std::thread::sleep(AWAY);
    directories_are_made(&mount, "a node stood still");
    cluster.stop().unwrap();
}
