//! The short form of `atoll-torture links`.

use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::link::{Links, Way, run};
use atoll_torture::network::PROGRAMS;
use atoll_torture::place::Place;

#[test]
fn a_mount_goes_on_whatever_single_way_is_cut() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("links").unwrap();
    // Between nodes, and between the mount and a node.
    let only = vec![
        Way { from: 0, to: 1, both: true },
        Way { from: 4, to: 2, both: true },
        Way { from: 2, to: 3, both: false },
        Way { from: 0, to: 4, both: false },
    ];
    let what = Links { nodes: 4, measured: Duration::from_secs(3), only: Some(only) };
    let parts = run(&what, place.path(), &mut |line| eprintln!("{line}")).unwrap();
    assert_eq!(parts.len(), 4);
    assert!(parts.iter().all(|part| part.failed == 0 && part.measured > 0));
}
