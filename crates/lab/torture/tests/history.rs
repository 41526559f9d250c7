//! The short form of `atoll-torture history`.

use atoll_needs::needs;
use atoll_torture::history::{Histories, run};
use atoll_torture::network::PROGRAMS;
use atoll_torture::place::Place;

#[test]
fn what_clients_are_told_while_nodes_die_and_ways_are_cut_has_an_order() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("history").unwrap();
    let what = Histories {
        nodes: 4,
        mounts: 2,
        operations: 6000,
        crashes: 2,
        seed: 81,
        cuts: true,
        paper: true,
        round: 6000,
        check_every: 8,
        go_on: false,
        keep: std::env::temp_dir(),
    };
    let report = run(&what, place.path(), &mut |line| eprintln!("{line}")).unwrap();
    assert!(report.operations >= 6000 && report.mishaps.crashes >= 2, "{report}");
    assert!(report.mishaps.cuts > 0 && report.checks > 0, "{report}");
}
