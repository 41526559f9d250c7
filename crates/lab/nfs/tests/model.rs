//! Our server over the model of a tree, through the client: the server alone is judged, with no volume in it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use atoll_fuse::{Config, Locks, MountOptions, Mounted};
use atoll_lab_nfs::{Export, NfsFiles, Ways};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_needs::needs;
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_torture::pjdfstest::Expecting;
use atoll_torture::place::Place;
use atoll_torture::{pjdfstest, programs};
use atoll_vfs::Caching;

/// A run in which fewer pass has not tested what it should: NFSv3 has two tests less than a volume.
const PASSED_MIN: usize = 394;

fn server(files: Arc<ModelFiles>, start: u64, at: &str) -> Server {
    let rules = vec!["127.0.0.1(no_root_squash)".parse().unwrap()];
    let key = SigningKey::new([7; 16]);
    let served = Served { id: 5, kind: 1, name: "main".to_owned(), key, rules, start };
    serve(files, served, TcpListener::bind(at).unwrap()).unwrap()
}

fn model() -> Arc<ModelFiles> {
    Arc::new(ModelFiles::new(AtimeRule::Always, Caching::Never))
}

fn mounted(at: SocketAddr, point: &Path, ways: Ways) -> Mounted {
    let export = Export { nfs: at, mount: at, path: "/main".to_owned() };
    let files = Arc::new(NfsFiles::connect(&export, ways).unwrap());
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("nfs") };
    Mounted::new(files, point, &options, Config { locks: Locks::Local, ..Config::default() }).unwrap()
}

#[test]
fn pjdfstest_over_nfs_finds_only_what_nfs_cannot_do() {
    needs!(Mounts, Programs(&["pjdfstest"]));
    let place = Place::new("nfs").unwrap();
    let server = server(model(), 1, "127.0.0.1:0");
    let mount = mounted(server.address(), &place.join("mnt"), Ways::default());
    let expected = include_str!("../pjdfstest-expected.txt");
    let expecting = Expecting { list: expected, passed_min: PASSED_MIN, ..Expecting::default() };
    let report = pjdfstest::run_expecting(mount.path(), place.path(), None, &expecting).unwrap();
    assert!(report.is_expected(), "{report}");
}

#[test]
fn programs_work_over_nfs() {
    needs!(Mounts);
    let place = Place::new("nfs").unwrap();
    let server = server(model(), 1, "127.0.0.1:0");
    let mount = mounted(server.address(), &place.join("mnt"), Ways::default());
    let wanted = ["fsx", "fio", "make", "maildir"].map(str::to_owned);
    let say = &mut |line: &str| eprintln!("{line}");
    programs::run_all(&[mount.path().to_owned()], place.path(), programs::Scale::Short, &wanted, say)
        .unwrap();
}
