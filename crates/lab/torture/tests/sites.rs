//! Suites and programs that others wrote, at a site of a wide volume, while users of another site change files all the time. At the end
//! both sites have the same.

use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::place::Place;
use atoll_torture::sites::Sites;
use atoll_torture::{pjdfstest, programs};

/// How long sites may take to tell each other the rest.
const EVEN: Duration = Duration::from_secs(120);

#[test]
fn pjdfstest_finds_only_what_is_expected_at_a_site_while_another_one_changes_files() {
    needs!(Mounts, Programs(&["pjdfstest"]));
    let place = Place::new("pjd").unwrap();
    let sites = Sites::start(place.path(), 2).unwrap();
    let run = || pjdfstest::run(sites.mount(1), place.path(), None);
    let (report, changes) = sites.while_changing(0, 7, run).unwrap();
    assert!(report.is_expected(), "{report}");
    assert!(changes > 100, "{changes}");
    sites.agree(EVEN).unwrap();
    sites.stop().unwrap();
}

#[test]
fn programs_that_people_use_work_at_a_site_while_another_one_changes_files() {
    needs!(Mounts);
    let place = Place::new("programs-sites").unwrap();
    let sites = Sites::start(place.path(), 2).unwrap();
    let names = ["fsx", "git", "sqlite", "cargo", "copy", "saves", "vim"].map(str::to_owned);
    let run = || {
        let mounts = [sites.mount(1).to_owned()];
        programs::run_all(&mounts, place.path(), programs::Scale::Short, &names, &mut |line| {
            eprintln!("{line}")
        })
    };
    let ((), changes) = sites.while_changing(0, 8, run).unwrap();
    assert!(changes > 100, "{changes}");
    let tree = sites.agree(EVEN).unwrap();
    // Both sites have what the programs had, and no name that a conflict made: they worked in folders of their own.
    assert!(tree.keys().all(|path| !path.windows(2).any(|pair| pair == b".~")), "{:?}", tree.keys());
    sites.stop().unwrap();
}
