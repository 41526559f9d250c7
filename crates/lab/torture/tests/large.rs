//! A user without rights makes everything large, and the mount dies: the short form of `atoll-torture large`.

use std::path::Path;
use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::cluster::{Cluster, Shape};
use atoll_torture::large::{self, Large, Sizes};
use atoll_torture::place::Place;

#[test]
fn what_a_user_without_rights_makes_large_stops_no_node() {
    needs!(Mounts);
    let place = Place::new("large").unwrap();
    let mut cluster = Cluster::start(place.path(), &Shape { nodes: 3, mounts: 2, kill: false }).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_atoll-torture"));
    let program = large::for_everyone(program, place.path()).unwrap();
    let what = Large { time: Duration::ZERO, sizes: Sizes::SHORT, program };
    let report = large::run(&what, &mut cluster, &mut |line| eprintln!("{line}")).unwrap();
    assert_eq!(report.rounds, 1);
    cluster.stop().unwrap();
}
