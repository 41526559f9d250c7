//! The short form of `atoll-torture copies`.

use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::copies::{Copies, run};
use atoll_torture::fault::Kind;
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
        check_every: 3,
        go_on: false,
        keep: std::env::temp_dir(),
    };
    Copies { histories, replicas: 2, faults, kinds: kinds.to_vec(), disk_mib: 0, stay: Duration::ZERO }
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
fn all_copies_of_an_island_have_the_same_plain_tree_after_an_orderly_stop() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("same").unwrap();
    let what = copies(1, 1000, 0, &Kind::PLAIN);
    let report = run(&what, place.path(), &mut |line| eprintln!("{line}")).unwrap();
    assert!(report.compared > 0 && report.faults.all() == 0, "{report}");
}
