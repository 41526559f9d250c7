//! The client over nfs-ganesha, an independent server: what fails here is the client's fault, NFSv3's, or ganesha's, and
//! not that of our server.

use std::path::Path;
use std::sync::Arc;

use atoll_fuse::{Config, Locks, MountOptions, Mounted};
use atoll_lab_nfs::ganesha::Ganesha;
use atoll_lab_nfs::{NfsFiles, Ways};
use atoll_needs::needs;
use atoll_torture::pjdfstest::Expecting;
use atoll_torture::place::Place;
use atoll_torture::{pjdfstest, programs};

/// A run in which fewer pass has not tested what it should: NFSv3 has two tests less than a volume.
const PASSED_MIN: usize = 394;

/// The export mounted on `point`.
fn mounted(ganesha: &Ganesha, point: &Path, ways: Ways) -> Mounted {
    let files = Arc::new(NfsFiles::connect(ganesha.export(), ways).unwrap());
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("nfs") };
    Mounted::new(files, point, &options, Config { locks: Locks::Local, ..Config::default() }).unwrap()
}

fn start(place: &Place) -> Ganesha {
    let export = place.join("export");
    std::fs::create_dir(&export).unwrap();
    Ganesha::start(&export, place.path()).unwrap()
}

#[test]
#[ignore = "needs nfs-ganesha and rpcbind; by hand, docs/TESTING.md"]
fn pjdfstest_finds_only_what_nfs_and_ganesha_cannot_do() {
    needs!(Mounts, Programs(&["pjdfstest", "ganesha.nfsd", "rpcbind"]));
    let place = Place::new("nfs").unwrap();
    let ganesha = start(&place);
    let mount = mounted(&ganesha, &place.join("mnt"), Ways::default());
    let expected =
        [include_str!("../pjdfstest-expected.txt"), include_str!("../ganesha-expected.txt")].concat();
    let expecting = Expecting { list: &expected, passed_min: PASSED_MIN, ..Expecting::default() };
    let report = pjdfstest::run_expecting(mount.path(), place.path(), None, &expecting).unwrap();
    assert!(report.is_expected(), "{report}");
}

#[test]
#[ignore = "needs nfs-ganesha and rpcbind; by hand, docs/TESTING.md"]
fn programs_that_people_use_work_over_nfs() {
    needs!(Mounts, Programs(&["ganesha.nfsd", "rpcbind"]));
    let place = Place::new("nfs").unwrap();
    let ganesha = start(&place);
    let mount = mounted(&ganesha, &place.join("mnt"), Ways::default());
    let wanted = ["fsx", "fio", "git", "make", "worktrees", "maildir"].map(str::to_owned);
    let say = &mut |line: &str| eprintln!("{line}");
    programs::run_all(&[mount.path().to_owned()], place.path(), programs::Scale::Short, &wanted, say)
        .unwrap();
}
