//! Four nodes over TCP: the short forms of `atoll-torture race`, `reader`, `pjdfstest --nodes 4` and
//! `work --nodes 4`. Each stops its cluster in order, whose data must be clean.

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::cluster::{Cluster, Shape};
use atoll_torture::pjdfstest;
use atoll_torture::place::Place;
use atoll_torture::programs;
use atoll_torture::race::{self, Race};
use atoll_torture::reader::{self, Reader};
use atoll_torture::vanish;

#[test]
fn of_two_mounts_that_move_directories_into_each_other_one_wins_and_nothing_is_lost() {
    needs!(Mounts);
    for (kills, rounds) in [(0, 40), (2, 20)] {
        let place = Place::new("race").unwrap();
        let shape = Shape { nodes: 4, mounts: 2, kill: kills > 0 };
        let mut cluster = Cluster::start(place.path(), &shape).unwrap();
        let what = Race { rounds, seed: 7, kills, read_every: 5 };
        let report = race::run(&what, &mut cluster, &mut |line| eprintln!("{line}")).unwrap();
        assert!(report.ends.values().sum::<u32>() >= rounds && report.kills >= kills, "{report}");
        assert!(report.ends.len() >= 2, "always the same one won: {report}");
        cluster.stop().unwrap();
    }
}

#[test]
fn a_directory_that_another_mount_has_moved_can_be_moved_on_at_once() {
    needs!(Mounts);
    let place = Place::new("moved").unwrap();
    let cluster = Cluster::start(place.path(), &Shape { nodes: 4, mounts: 2, kill: false }).unwrap();
    let [one, two]: [_; 2] = cluster.mounts().try_into().unwrap();
    std::fs::create_dir_all(one.join("b/d")).unwrap();
    std::fs::create_dir(one.join("a")).unwrap();
    for round in 0..30 {
        // Its kernel has it at the new place, also while somebody works there.
        std::fs::rename(one.join("a"), one.join("b/d/e")).unwrap();
        let used = (round % 2 == 0).then(|| std::fs::File::open(one.join("b/d/e")).unwrap());
        std::fs::rename(two.join("b/d/e"), two.join("a")).unwrap();
        let again = std::fs::rename(one.join("a"), one.join("b/d/e"));
        again.unwrap_or_else(|why| panic!("round {round}: {why}"));
        drop(used);
        std::fs::rename(two.join("b/d/e"), two.join("a")).unwrap();
    }
    cluster.stop().unwrap();
}

#[test]
fn who_opens_a_name_that_is_being_replaced_finds_it_whole_and_not_old() {
    needs!(Mounts);
    for (kills, rounds) in [(0, 250), (2, 50)] {
        let place = Place::new("reader").unwrap();
        let shape = Shape { nodes: 4, mounts: 2, kill: kills > 0 };
        let mut cluster = Cluster::start(place.path(), &shape).unwrap();
        let what = Reader { rounds, seed: 7, kills, fsync_every: 4 };
        let report = reader::run(&what, &mut cluster, &mut |line| eprintln!("{line}")).unwrap();
        assert!(report.wrong.is_empty(), "{report}");
        assert!(report.rounds >= rounds && report.reads.iter().all(|reads| *reads > 50), "{report}");
        assert!(report.kills >= kills && (kills > 0) == (report.kills > 0), "{report}");
        cluster.stop().unwrap();
    }
}

#[test]
fn programs_that_race_over_names_are_told_what_a_local_file_system_says() {
    needs!(Mounts);
    let place = Place::new("vanish").unwrap();
    let cluster = Cluster::start(place.path(), &Shape { nodes: 4, mounts: 3, kill: false }).unwrap();
    let report = vanish::run(&cluster.mounts(), &place.join("source"), Duration::from_secs(15)).unwrap();
    assert!(report.strange.is_empty(), "{report}");
    let absent = report.errors.get("No such file or directory").copied().unwrap_or(0);
    assert!(report.runs > 60 && absent > 20, "they hardly met: {report}");
    eprintln!("{report}");
    cluster.stop().unwrap();
}

#[test]
fn pjdfstest_finds_only_what_is_expected_on_four_nodes() {
    needs!(Mounts, Programs(&["pjdfstest"]));
    let place = Place::new("pjdfstest4").unwrap();
    let cluster = Cluster::start(place.path(), &Shape { nodes: 4, mounts: 1, kill: false }).unwrap();
    let report = pjdfstest::run(&cluster.mounts()[0], place.path(), None).unwrap();
    assert!(report.is_expected(), "{report}");
    cluster.stop().unwrap();
}

#[test]
fn tools_that_work_across_directories_do_so_on_four_nodes() {
    needs!(Mounts);
    let place = Place::new("tools4").unwrap();
    let mut cluster = Cluster::start(place.path(), &Shape { nodes: 4, mounts: 1, kill: false }).unwrap();
    let run = |cluster: &Cluster, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let scale = programs::Scale::Short;
        programs::run_all(&cluster.mounts(), place.path(), scale, &names, &mut |line| eprintln!("{line}"))
    };
    run(&cluster, &["packages", "incremental", "snapshots", "worktrees", "vim"]).unwrap();
    cluster.mount("rw").unwrap();
    run(&cluster, &["maildir", "saves"]).unwrap();
    cluster.stop().unwrap();
}

#[test]
fn tools_notice_nothing_of_nodes_that_die_and_come_back() {
    needs!(Mounts);
    let place = Place::new("tools-kill").unwrap();
    let mut cluster = Cluster::start(place.path(), &Shape { nodes: 4, mounts: 2, kill: true }).unwrap();
    let mounts = cluster.mounts();
    let names = ["packages", "incremental", "maildir"].map(str::to_owned);
    let run = |kills: &dyn Fn() -> u64| {
        for round in 0.. {
            if kills() >= 2 {
                break;
            }
            let beside = place.join(&format!("round-{round}"));
            std::fs::create_dir(&beside)?;
            programs::run_all(&mounts, &beside, programs::Scale::Short, &names, &mut |_| {})?;
        }
        Ok(())
    };
    let ((), kills) = cluster.while_killing(7, run).unwrap();
    assert!(kills >= 2);
    cluster.stop().unwrap();
}

#[test]
fn a_directory_that_one_mount_moves_away_while_another_takes_its_name_lives_on() {
    needs!(Mounts);
    let place = Place::new("taken").unwrap();
    let cluster = Cluster::start(place.path(), &Shape { nodes: 4, mounts: 2, kill: false }).unwrap();
    let [one, two]: [_; 2] = cluster.mounts().try_into().unwrap();
    let at = |name: &str| one.join(name);
    std::fs::create_dir(at("away")).unwrap();
    // How often the two meet is chance: so many rounds as it takes, on a machine that is busy too.
    let (mut moved, mut round) = (0, 0);
    while moved < 20 && round < 5_000 {
        round += 1;
        ["name", "other"].iter().for_each(|name| std::fs::create_dir(at(name)).unwrap());
        // Used, so that the kernel does not forget it.
        let used = std::fs::File::open(at("name")).unwrap();
        let both = std::sync::Barrier::new(2);
        let to = format!("away/{round}");
        let was_moved = std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                both.wait();
                std::fs::rename(two.join("name"), two.join(&to)).is_ok()
            });
            both.wait();
            // Whether it finds it is chance.
            let _ = match round % 2 {
                0 => std::fs::rename(at("other"), at("name")),
                _ => std::fs::remove_dir(at("name")),
            };
            mover.join().unwrap()
        });
        // It may have moved what came there.
        let id = |found: std::io::Result<std::fs::Metadata>| found.ok().map(|found| found.ino());
        if was_moved && id(std::fs::symlink_metadata(at(&to))) == id(used.metadata()) {
            moved += 1;
            let file = format!("/proc/self/fd/{}/file", used.as_raw_fd());
            std::fs::write(file, "").unwrap_or_else(|why| panic!("round {round}: {why}"));
        }
        ["name", "other"].iter().for_each(|name| drop(std::fs::remove_dir(at(name))));
    }
    assert!(moved > 0, "they never met");
    cluster.stop().unwrap();
}
