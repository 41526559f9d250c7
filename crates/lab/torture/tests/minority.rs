//! A network that falls into two parts: the smaller one answers for nothing, and when both are one again everything goes on by
//! itself.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::cluster::Cluster;
use atoll_torture::network::PROGRAMS;
use atoll_torture::place::Place;

/// The node that leads an island and is cut off, with a mount beside it.
const ALONE: usize = 1;
/// The numbers of the two mounts as hosts, behind those of four nodes.
const MOUNTS: [usize; 2] = [4, 5];
/// For how long the parts are apart, after the larger one goes on.
const APART: Duration = Duration::from_secs(5);
/// How long it may take until all is as before.
const HEALED_MAX: Duration = Duration::from_secs(60);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + HEALED_MAX;
    while !holds() {
        assert!(Instant::now() < until, "it never came true: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Cuts or heals all ways between the one node with its mount and all others.
fn part(cluster: &Cluster, cut: bool) {
    for small in [ALONE, MOUNTS[1]] {
        for large in [0, 2, 3, MOUNTS[0]] {
            cluster.network().unwrap().cut(small, large, cut).unwrap();
            cluster.network().unwrap().cut(large, small, cut).unwrap();
        }
    }
}

fn in_sync(cluster: &Cluster) -> bool {
    cluster.copies().is_ok_and(|all| cluster.not_in_sync(&all).is_empty())
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    std::fs::write(path, content)?;
    std::fs::File::open(path)?.sync_all()
}

#[test]
fn a_minority_serves_no_change_and_no_stale_read_and_nobody_types_a_command_when_it_heals() {
    needs!(Mounts, Networks, Programs(&PROGRAMS));
    let place = Place::new("minority").unwrap();
    let cluster = Cluster::start_with_copies(place.path(), 4, 2, 0, &["hard", "soft=2"]).unwrap();
    eventually("all copies are in sync", || in_sync(&cluster));
    let led = cluster.copies().unwrap().into_iter().find(|(node, copy)| *node == ALONE && copy.leads);
    let island = led.expect("each node leads an island at first").1.island;
    let [large, small] = [0, 1].map(|mount: usize| cluster.mounts()[mount].clone());
    let dirs = (0..).map(|n| format!("dir{n}"));
    let dir = dirs.into_iter().find(|dir| {
        std::fs::create_dir(large.join(dir)).unwrap();
        cluster.owner(&large.join(dir)).unwrap() == island
    });
    let (there, here) = (large.join(dir.as_ref().unwrap()), small.join(dir.as_ref().unwrap()));
    write(&there.join("file"), "before").unwrap();
    assert_eq!(std::fs::read_to_string(here.join("file")).unwrap(), "before");

    part(&cluster, true);
    // While nobody else leads, what it answers is not stale.
    write(&there.join("file"), "after").unwrap();
    std::fs::write(there.join("more"), "x").unwrap();
    let (until, mut refused) = (Instant::now() + APART, 0);
    while Instant::now() < until {
        match std::fs::read_to_string(here.join("file")) {
            Ok(read) => panic!("a minority has answered: {read}"),
            Err(_) => refused += 1,
        }
        assert!(std::fs::symlink_metadata(here.join("more")).is_err(), "nor for a name");
        assert!(std::fs::write(here.join("made"), "x").is_err(), "nor is anything changed");
    }
    assert!(refused > 0);
    // Nobody else is kept from anything by it.
    write(&there.join("file"), "last").unwrap();

    part(&cluster, false);
    eventually("the mount that was cut off reads what was written meanwhile", || {
        std::fs::read_to_string(here.join("file")).is_ok_and(|read| read == "last")
    });
    write(&here.join("file"), "healed").unwrap();
    assert_eq!(std::fs::read_to_string(there.join("file")).unwrap(), "healed");
    // What it was refused has not happened later.
    assert!(here.join("more").exists() && !there.join("made").exists());
    eventually("all copies are in sync again", || in_sync(&cluster));
    cluster.stop().unwrap();
}
