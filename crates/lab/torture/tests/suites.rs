//! Suites and programs that others wrote, over the mount: short forms. `atoll-torture work --all`
//! and `atoll-torture pjdfstest` are the long ones.

use atoll_needs::needs;
use atoll_torture::daemon::Launch;
use atoll_torture::place::Place;
use atoll_torture::{pjdfstest, programs};

#[test]
fn pjdfstest_finds_only_what_is_expected() {
    needs!(Mounts, Programs(&["pjdfstest"]));
    let place = Place::new("pjdfstest").unwrap();
    let daemon = Launch::new(place.path()).start().unwrap();
    let report = pjdfstest::run(daemon.mount(), place.path(), None).unwrap();
    assert!(report.is_expected(), "{report}");
    daemon.stop().unwrap();
}

#[test]
fn programs_that_people_use_work_in_a_mount() {
    needs!(Mounts);
    let place = Place::new("programs").unwrap();
    let daemon = Launch::new(place.path()).start().unwrap();
    programs::run_all(&[daemon.mount().to_owned()], place.path(), programs::Scale::Short, &[], &mut |line| {
        eprintln!("{line}")
    })
    .unwrap();
    daemon.stop().unwrap();
}
