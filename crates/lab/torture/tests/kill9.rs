//! The short form of `atoll-torture kill9`, and what a killed daemon leaves for the next one.

use atoll_needs::needs;
use atoll_torture::daemon::Launch;
use atoll_torture::kill9::{Kill9, run};
use atoll_torture::place::Place;

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_daemon_is_killed() {
    needs!(Mounts);
    let place = Place::new("kill9").unwrap();
    let mut what = Kill9::new(6, 81, Launch::new(place.path()));
    what.load_ms_max = 700;
    what.check_every = 3;
    let summary = run(&what, &mut |line| eprintln!("{line}")).unwrap();
    assert_eq!(summary.kills, 6);
    // The last look at everything is not cut short.
    assert!(summary.verified >= 4 && summary.acknowledged > 100, "{summary:?}");
}

#[test]
fn a_daemon_takes_the_place_of_a_dead_mount() {
    needs!(Mounts);
    let place = Place::new("dead").unwrap();
    let launch = Launch::new(place.path());
    let mut first = launch.start().unwrap();
    std::fs::write(first.mount().join("file"), b"bytes").unwrap();
    // The kernel knows the root's attributes now, and gives them out after the daemon's end.
    std::fs::metadata(first.mount()).unwrap();
    assert!(first.kill9().unwrap());
    assert!(!first.is_mounted());
    let second = launch.start().unwrap();
    assert_eq!(std::fs::read(second.mount().join("file")).unwrap(), b"bytes");
    second.stop().unwrap();
}
