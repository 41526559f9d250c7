//! Plain files: with everything stopped, `cp -a` of the islands' trees into one folder is what the
//! mount showed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use atoll_needs::needs;
use atoll_torture::daemon::Launch;
use atoll_torture::place::{Place, run};
use atoll_torture::plain::{compare, mounted};
use atoll_torture::worker::{Rules, Worker};
use rustix::fs::{CWD, FileType, Mode};

/// What random operations do not make.
fn rich(top: &Path) {
    let file = |name: &str, bytes: &[u8]| fs::write(top.join(name), bytes).unwrap();
    file("plain", b"some bytes");
    file("empty", b"");
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 20 << 20).unwrap();
    for (name, mode) in [("none", 0), ("all", 0o777), ("set-id", 0o6755), ("sticky", 0o1644)] {
        file(name, name.as_bytes());
        rustix::fs::chmod(top.join(name), Mode::from_raw_mode(mode)).unwrap();
    }
    for (name, mode) in [("dir-none", 0), ("dir-shared", 0o3775), ("dir-tmp", 0o1777)] {
        fs::create_dir(top.join(name)).unwrap();
        rustix::fs::chmod(top.join(name), Mode::from_raw_mode(mode)).unwrap();
        fs::write(top.join(name).join("below"), b"x").unwrap();
    }
    for at in 0..3 {
        fs::hard_link(top.join("plain"), top.join(format!("plain-{at}"))).unwrap();
    }
    symlink("plain", top.join("link")).unwrap();
    symlink("/nowhere/".repeat(300), top.join("long-link")).unwrap();
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("block", FileType::BlockDevice, rustix::fs::makedev(7, 99)),
    ] {
        rustix::fs::mknodat(CWD, top.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    }
    let owner =
        |name: &str, uid, gid| std::os::unix::fs::lchown(top.join(name), Some(uid), Some(gid)).unwrap();
    owner("all", 1234, 4321);
    owner("link", 77, 78);
    owner("dir-tmp", 1001, 100);
    for name in ["plain", "dir-tmp"] {
        for (key, value) in [("user.one", "1"), ("user.empty", ""), ("trusted.two", "2")] {
            run(Command::new("setfattr").args(["-n", key, "-v", value]).arg(top.join(name))).unwrap();
        }
        run(Command::new("setfacl").args(["-m", "u:1001:rwx,g:100:r,m::rw"]).arg(top.join(name))).unwrap();
    }
    run(Command::new("setfacl").args(["-d", "-m", "u:1001:rx"]).arg(top.join("dir-tmp"))).unwrap();
    fs::write(top.join("dir-tmp/inherits"), b"x").unwrap();
    for time in ["@-1000000", "@0.123456789", "@4000000000"] {
        let name = format!("time{time}");
        file(&name, b"");
        run(Command::new("touch").args(["-d", time]).arg(top.join(&name))).unwrap();
    }
    let mut deep = top.join("deep");
    for _ in 0..40 {
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("leaf"), b"leaf").unwrap();
        deep.push("d".repeat(50));
    }
}

/// So many names must there be, or little was tried.
const NAMES_MIN: usize = 200;
/// Rounds of work until there are: a disk may be slow.
const ROUNDS_MAX: usize = 10;

#[test]
fn the_plain_trees_together_are_what_the_mount_showed() {
    needs!(Mounts, Programs(&["setfattr", "setfacl", "cp"]));
    let place = Place::new("plain").unwrap();
    let launch = Launch::new(place.path());
    let mut workers: Vec<Worker> = (0..3).map(|n| Worker::new(500 + n, (0, 0), Rules::default())).collect();
    // Twice: over an empty volume, and over one that was laid before.
    for life in 0..2 {
        let daemon = launch.start().unwrap();
        let top = daemon.mount().join(format!("rich-{life}"));
        fs::create_dir(&top).unwrap();
        rich(&top);
        if life == 1 {
            fs::rename(daemon.mount().join("rich-0/deep"), daemon.mount().join("rich-0/moved")).unwrap();
            fs::remove_file(daemon.mount().join("rich-0/plain")).unwrap();
            fs::remove_dir_all(daemon.mount().join("rich-0/dir-tmp")).unwrap();
        }
        let mut shown = Default::default();
        for round in 0..ROUNDS_MAX {
            std::thread::scope(|scope| {
                for (at, worker) in workers.iter_mut().enumerate() {
                    let top = daemon.mount().join(format!("worker-{at}"));
                    scope.spawn(move || {
                        if life == 0 && round == 0 {
                            fs::create_dir(&top).unwrap();
                        }
                        // Longer than the view is behind, so that it lays what is changed again.
                        let until = std::time::Instant::now() + std::time::Duration::from_secs(3);
                        while std::time::Instant::now() < until {
                            worker.step(&top).unwrap();
                        }
                        let wrong = worker.verify(&top).unwrap();
                        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
                    });
                }
            });
            shown = mounted(daemon.mount()).unwrap();
            if shown.len() > NAMES_MIN {
                break;
            }
        }
        assert!(shown.len() > NAMES_MIN, "only {} names", shown.len());
        daemon.stop().unwrap();
        let wrong = compare(&shown, &launch.data, life == 0).unwrap();
        assert!(wrong.is_empty(), "life {life}: mount (left) and plain trees differ:\n{}", wrong.join("\n"));
    }
}
