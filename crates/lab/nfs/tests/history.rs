//! Histories of several clients over NFS: some order of all calls must explain all answers. Here in short form; docs/TESTING.md has
//! longer ones.

use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_fuse::{Config, Keep, Locks, MountOptions, Mounted};
use atoll_history::live::{Live, Mix, save};
use atoll_history::{Lenience, check_with};
use atoll_lab_nfs::{Export, NfsFiles, Ways};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_needs::needs;
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_torture::place::Place;
use atoll_union::Settings;
use atoll_vfs::{Caching, Files};
use atoll_volume::kind::Attached;
use atoll_volume::union::{MemberPath, UnionVolume, state_dir};

/// What is called of all clients.
const OPERATIONS: u64 = 4_000;

fn server(files: Arc<dyn Files>) -> Server {
    let rules = vec!["127.0.0.1(no_root_squash)".parse().unwrap()];
    let key = SigningKey::new([7; 16]);
    let served = Served { id: 5, kind: 1, name: "main".to_owned(), key, rules, start: 1 };
    serve(files, served, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
}

fn mounted(at: SocketAddr, point: &Path) -> Mounted {
    let export = Export { nfs: at, mount: at, path: "/main".to_owned() };
    // Removed files would keep a name, which is seen in their link counts.
    let ways = Ways { silly: false, meant: true, ..Ways::default() };
    let files = Arc::new(NfsFiles::connect(&export, ways).unwrap());
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("nfs") };
    std::fs::create_dir_all(point).unwrap();
    Mounted::new(files, point, &options, Config { locks: Locks::Local, ..Config::default() }).unwrap()
}

/// Two mounts of one server, as two machines have them.
fn judge(place: &Place, server: &Server, seed: u64) {
    judge_mounts(["m1", "m2"].map(|name| mounted(server.address(), &place.join(name))), seed, false);
}

/// `appends`: also what is written at the end of a file has one order.
fn judge_mounts(mounts: [Mounted; 2], seed: u64, appends: bool) {
    let dirs: Vec<PathBuf> = mounts.iter().map(|mount| mount.path().to_owned()).collect();
    let (mix, unknown_max) = (Mix::Names, u64::MAX);
    let live = Live {
        dirs,
        clients: 8,
        operations: OPERATIONS,
        seed,
        names: 12,
        block: 8,
        blocks: 1,
        appends,
        mix,
        unknown_max,
    };
    let history = live.run().unwrap();
    // For `atoll-check-history`, and for people.
    if let Some(file) = std::env::var_os("HISTORY") {
        save(&history, Path::new(&file)).unwrap();
    }
    assert!(history.records.len() as u64 >= OPERATIONS);
    // An exclusive create is two calls here, so it may be told ESTALE.
    let verdict = check_with(&history, Lenience { stale: true, apart: true });
    assert!(verdict.fits(), "SEED={seed}: {verdict}");
}

#[test]
fn clients_of_the_model_over_nfs_see_one_order() {
    needs!(Mounts);
    let place = Place::new("nfs-history").unwrap();
    let server = server(Arc::new(ModelFiles::new(AtimeRule::Never, Caching::Never)));
    judge(&place, &server, 1);
    server.stop();
}

/// A union of two folders, and files of it for so many frontends.
fn union(place: &Place) -> UnionVolume {
    let members = ["one", "two"].map(|name| {
        std::fs::create_dir(place.join(name)).unwrap();
        MemberPath::parse(&place.join(name)).unwrap()
    });
    let state = state_dir(Some(&place.join("state")), &members).unwrap();
    UnionVolume::open("main".to_owned(), &members, Settings::default(), &state).unwrap()
}

/// `SEED=N` draws other operations, `SEEDS=N` those of the seeds 1 to N.
fn seeds() -> RangeInclusive<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, last) => 1..=last.unwrap_or(2),
    }
}

#[test]
fn clients_of_a_union_over_nfs_see_one_order() {
    needs!(Mounts);
    for seed in seeds() {
        let place = Place::new("nfs-history").unwrap();
        let volume = union(&place);
        let server = server(volume.files());
        judge(&place, &server, seed);
        server.stop();
        volume.stop();
    }
}

#[test]
fn clients_of_two_mounts_of_one_union_see_one_order() {
    needs!(Mounts);
    for seed in seeds() {
        let place = Place::new("nfs-history").unwrap();
        let volume = union(&place);
        let mounts = [("m1", volume.files()), ("m2", volume.session().unwrap())].map(|(name, files)| {
            let point = place.join(name);
            std::fs::create_dir(&point).unwrap();
            let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("union") };
            let config = Config { locks: Locks::Local, keep: Keep::Nothing, ..Config::default() };
            Mounted::new(files, &point, &options, config).unwrap()
        });
        judge_mounts(mounts, seed, true);
        volume.stop();
    }
}
