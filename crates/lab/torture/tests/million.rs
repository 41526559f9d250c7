//! The short form of `atoll-torture million`.

use atoll_needs::needs;
use atoll_torture::daemon::Launch;
use atoll_torture::million::{MEMORY_BYTES_MAX, Million, run};
use atoll_torture::place::Place;

#[test]
fn a_large_directory_is_listed_right_while_it_changes_and_memory_stays_small() {
    needs!(Mounts);
    let place = Place::new("million").unwrap();
    let what = Million { files: 20_000, launch: Launch::new(place.path()) };
    let report = run(&what, &mut |line| eprintln!("{line}")).unwrap();
    assert!(
        report.memory_forgotten < MEMORY_BYTES_MAX && report.memory_restarted < MEMORY_BYTES_MAX,
        "{report:?}"
    );
}
