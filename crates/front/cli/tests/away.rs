//! Nodes that hang, halt, start again or stay away: how long callers wait, what they are told, and that
//! nobody is kept from dying.

mod common;

use atoll_needs::needs;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Cluster, Mounted, PATIENCE, eventually, good, text};

/// How an operation failed.
fn failing<T: std::fmt::Debug>(run: impl FnOnce() -> std::io::Result<T>) -> i32 {
    run().expect_err("it must fail").raw_os_error().unwrap()
}

/// Asks a file's node, whatever the kernel keeps.
fn synced(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// A node that is neither the root's owner nor the one that is asked first.
fn victim(cluster: &Cluster, mount: &Mounted) -> usize {
    let root = cluster.owner(&mount.0);
    (1..cluster.nodes.len()).find(|node| *node != root).unwrap()
}

fn is_connected(mount: &Mounted, node: usize) -> bool {
    let status: serde_json::Value =
        serde_json::from_str(&good(["status", text(&mount.0), "--json"])).unwrap();
    status["processes"][0]["mounts"][0]["nodes"][node]["up"] == true
}

/// This test program again, as a process that can be killed: one of the `#[ignore]`d tests below.
fn child(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("ATOLL_TEST_PATH", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills all, because one that waits for a node may hold what the kernel makes another wait for. They have to end
/// while the node still hangs.
fn killed(mut children: Vec<Child>) {
    let since = Instant::now();
    children.iter_mut().for_each(|child| child.kill().unwrap());
    for child in &mut children {
        while child.try_wait().unwrap().is_none() {
            assert!(since.elapsed() < PATIENCE, "kill -9 does not end it");
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "it ended before it was killed");
    }
}

#[test]
fn a_node_that_hangs_costs_its_callers_their_patience_once_and_others_nothing() {
    needs!(Mounts);
    let cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=3");
    let dirs = cluster.dirs(&mount);
    let lost = victim(&cluster, &mount);
    cluster.freeze(lost);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let said = failing(|| synced(&dirs[lost].join("file")));
            assert_eq!(said, libc::EIO);
        });
        scope.spawn(|| {
            let said = failing(|| File::create_new(dirs[lost].join("made")));
            assert_eq!(said, libc::EIO);
        });
        for (_, dir) in dirs.iter().enumerate().filter(|(node, _)| *node != lost) {
            scope.spawn(|| {
                assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"content");
                std::fs::write(dir.join("other"), b"x").unwrap();
            });
        }
    });
    eventually("the mount says that the node is away", || !is_connected(&mount, lost));
    // It was waited for once: nobody waits again. If each did, all would take three times as long.
    let since = Instant::now();
    for _ in 0..30 {
        let said = failing(|| synced(&dirs[lost].join("file")));
        assert_eq!(said, libc::EIO);
    }
    assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
    cluster.thaw(lost);
    eventually("the node is back", || {
        std::fs::read(dirs[lost].join("file")).is_ok_and(|bytes| bytes == b"content")
    });
    std::fs::write(dirs[lost].join("made"), b"x").unwrap();
}

#[test]
#[ignore = "a process that another test starts, and kills"]
fn reads_and_writes() {
    let path = PathBuf::from(std::env::var_os("ATOLL_TEST_PATH").unwrap());
    println!("ready");
    loop {
        let mut file = File::options().append(true).create(true).open(&path).unwrap();
        file.write_all(b"x").unwrap();
        std::fs::read(&path).unwrap();
    }
}

#[test]
#[ignore = "a process that another test starts, and kills"]
fn holds_a_lock_and_sleeps() {
    let path = PathBuf::from(std::env::var_os("ATOLL_TEST_PATH").unwrap());
    let file = File::options().read(true).write(true).open(path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    println!("ready");
    std::thread::sleep(Duration::from_secs(1000));
}

fn ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("ready")), "the child has failed");
}

#[test]
fn whoever_waits_for_ever_for_a_node_that_hangs_can_be_killed() {
    needs!(Mounts);
    let cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "hard");
    let dirs = cluster.dirs(&mount);
    let lost = victim(&cluster, &mount);
    let mut children: Vec<Child> =
        (0..2).map(|n| child("reads_and_writes", &dirs[lost].join(format!("by{n}")))).collect();
    let mut locking = child("holds_a_lock_and_sleeps", &dirs[lost].join("file"));
    children.iter_mut().chain([&mut locking]).for_each(ready);
    // Some are amid an operation when the node hangs, the other begins one afterwards.
    cluster.freeze(lost);
    std::thread::sleep(Duration::from_secs(1));
    children.push(Command::new("ls").arg("-l").arg(&dirs[lost]).stdout(Stdio::null()).spawn().unwrap());
    std::thread::sleep(Duration::from_secs(1));
    killed(children);
    // The kernel takes its lock away when it ends, for which it needs the node.
    killed(vec![locking]);
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(|| std::fs::read(dirs[lost].join("file")));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!read.is_finished(), "a hard mount waits");
        cluster.thaw(lost);
        read.join().unwrap()
    });
    assert_eq!(read.unwrap(), b"content");
    let file = File::options().read(true).write(true).open(dirs[lost].join("file")).unwrap();
    eventually("the lock of the process that was killed is free", || {
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    });
}

#[test]
fn a_node_that_is_started_again_is_back_while_another_one_hangs_amid_a_read() {
    /// More than the kernel reads ahead.
    const BYTES: u64 = 8 << 20;
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "hard");
    let dirs = cluster.dirs(&mount);
    let (root, hung) = (cluster.owner(&mount.0), victim(&cluster, &mount));
    let restarted = (1..4).find(|node| ![root, hung].contains(node)).unwrap();
    // Never written, so that the kernel has to ask for each page.
    let large = File::options().read(true).write(true).create_new(true).open(dirs[hung].join("large"));
    let large = large.unwrap();
    large.set_len(BYTES).unwrap();
    let read = |at| {
        let mut byte = [0];
        large.read_exact_at(&mut byte, at).map(|()| byte[0])
    };
    assert_eq!(read(0).unwrap(), 0);
    cluster.freeze(hung);
    let (waits, came) = std::thread::scope(|scope| {
        let amid = scope.spawn(|| read(BYTES - 1));
        eventually("the mount says that the node is away", || !is_connected(&mount, hung));
        cluster.nodes[restarted].take().unwrap().stop();
        cluster.start(restarted);
        let other = scope.spawn(|| std::fs::read(dirs[restarted].join("file")));
        let until = Instant::now() + PATIENCE;
        while !other.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let seen = (!amid.is_finished(), other.is_finished());
        cluster.thaw(hung);
        assert_eq!(amid.join().unwrap().unwrap(), 0);
        assert_eq!(other.join().unwrap().unwrap(), b"content");
        seen
    });
    assert!(waits, "a hard mount waits");
    assert!(came, "one node keeps another one away");
}

#[test]
fn a_node_that_is_started_again_fails_nobody_with_one_mount_or_two() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mut mounts = vec![cluster.mount("one", "")];
    let dirs = cluster.dirs(&mounts[0]);
    let restarted = victim(&cluster, &mounts[0]);
    for count in 1..=2 {
        cluster.nodes[restarted].take().unwrap().stop();
        cluster.start(restarted);
        // What misses the node for longer than mounts wait fails.
        for mount in &mounts {
            for dir in &dirs {
                let dir = mount.path(text(dir.strip_prefix(&mounts[0].0).unwrap()));
                assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"content");
                std::fs::write(dir.join("file"), b"content").unwrap();
                std::fs::create_dir(dir.join("below")).unwrap();
                std::fs::remove_dir(dir.join("below")).unwrap();
            }
        }
        if count == 1 {
            mounts.push(cluster.mount("two", ""));
        }
    }
}

#[test]
fn a_mount_that_ends_while_a_node_is_away_leaves_no_session_behind() {
    needs!(Mounts);
    let mut cluster = Cluster::new(2);
    let (stays, goes) = (cluster.mount("stays", ""), cluster.mount("goes", ""));
    cluster.nodes[1].take().unwrap().stop();
    good(["umount", text(&goes.0)]);
    cluster.start(1);
    eventually("only the other mount is left", || {
        let told: serde_json::Value =
            serde_json::from_str(&good(["status", text(&stays.0), "--json"])).unwrap();
        let all = told["processes"].as_array().unwrap().clone();
        let islands: Vec<_> = all
            .iter()
            .filter(|p| !p["node"].is_null())
            .map(|p| p["volumes"][0]["islands"][0]["mounts"].as_u64())
            .collect();
        islands == [Some(1), Some(1)]
    });
}

#[test]
fn what_needs_two_nodes_waits_for_both_and_has_no_effect_until_then() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let (soft, hard) = (cluster.mount("soft", "soft=3"), cluster.mount("hard", "hard"));
    let dirs = cluster.dirs(&soft);
    let away = victim(&cluster, &soft);
    let there = (0..4).find(|node| *node != away).unwrap();
    let name = dirs[away].file_name().unwrap().to_owned();
    std::fs::remove_file(dirs[away].join("file")).unwrap();
    // Rooms for directories that the node would own: the name tells, so they are tried out first.
    let mut theirs = None;
    for n in 0.. {
        let dir = dirs[there].join(format!("below{n}"));
        std::fs::create_dir(&dir).unwrap();
        let is = cluster.owner(&dir) == away;
        std::fs::remove_dir(&dir).unwrap();
        if is {
            theirs = Some(dir);
            break;
        }
    }
    let theirs = theirs.unwrap();
    cluster.kill(away);
    for (run, what) in [
        (&(|| std::fs::create_dir(&theirs)) as &dyn Fn() -> std::io::Result<()>, "mkdir"),
        (&|| std::fs::remove_dir(&dirs[away]), "rmdir"),
    ] {
        assert_eq!(failing(run), libc::EIO, "{what}");
    }
    // It was waited for already. Each takes a second; if each waited, it would be three.
    let since = Instant::now();
    for _ in 0..6 {
        failing(|| std::fs::create_dir(&theirs));
    }
    assert!(since.elapsed() < Duration::from_secs(14), "{:?}", since.elapsed());
    let there = hard.path(text(theirs.strip_prefix(&soft.0).unwrap()));
    std::thread::scope(|scope| {
        let make = scope.spawn(|| std::fs::create_dir(&there));
        let remove = scope.spawn(|| std::fs::remove_dir(hard.path(text(Path::new(&name)))));
        std::thread::sleep(Duration::from_secs(4));
        assert!(!make.is_finished() && !remove.is_finished(), "a hard mount waits");
        cluster.start(away);
        make.join().unwrap().unwrap();
        remove.join().unwrap().unwrap();
    });
    assert!(theirs.is_dir() && !dirs[away].exists());
}

/// The plain tree of a node's island.
fn plain_tree(data: &Path) -> PathBuf {
    let mut dirs = vec![data.to_owned()];
    while let Some(dir) = dirs.pop() {
        if dir.ends_with("tree") {
            return dir;
        }
        let below = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        dirs.extend(below.filter(|path| path.is_dir()));
    }
    panic!("no plain tree in {}", data.display());
}

/// Changes of directories of which more than the others keep for it: it asks what it has missed.
#[test]
fn a_node_that_has_missed_more_than_is_kept_for_it_knows_all_when_it_is_back() {
    const CHANGES: u32 = 4500;
    needs!(Mounts);
    let mut cluster = Cluster::new(3);
    let mount = cluster.mount("mnt", "");
    let dirs = cluster.dirs(&mount);
    let (root, away) = (cluster.owner(&mount.0), victim(&cluster, &mount));
    let (kept, moves) = (&dirs[root], &dirs[3 - root - away]);
    let theirs = (0..).map(|n| moves.join(format!("below{n}"))).find(|dir| {
        std::fs::create_dir(dir).unwrap();
        cluster.owner(dir) == away
    });
    let theirs = theirs.unwrap();
    std::fs::write(theirs.join("file"), b"content").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
    let set_mode =
        |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    cluster.kill(away);
    let moved = mount.path("moved");
    // The root's owner tells of the rename, and of these.
    std::fs::rename(moves, &moved).unwrap();
    set_mode(&moved, 0o751);
    (0..CHANGES).for_each(|n| set_mode(kept, 0o700 + n % 64));
    set_mode(kept, 0o715);
    cluster.start(away);
    let in_moved = Path::new("moved").join(theirs.file_name().unwrap()).join("file");
    eventually("its plain tree has what it owns by its path of now", || {
        let tree = plain_tree(&cluster.data(away));
        std::fs::read(tree.join(&in_moved)).is_ok_and(|read| read == b"content")
            && mode(&tree.join("moved")).is_ok_and(|mode| mode == 0o751)
    });
    let other = cluster.mount("other", "");
    assert_eq!(std::fs::read(other.path(text(&in_moved))).unwrap(), b"content");
    let (old, kept) = (moves.file_name().unwrap(), kept.file_name().unwrap());
    assert!(!other.0.join(old).exists());
    assert_eq!(mode(&other.0.join(kept)).unwrap(), 0o715);
    drop((mount, other));
    for node in 0..3 {
        cluster.nodes[node].take().unwrap().stop();
        let said = good(["check", "--data", text(&cluster.data(node)), "--read"]);
        assert!(said.contains("nothing wrong"), "{said}");
    }
}

#[test]
fn locks_of_a_mount_that_is_killed_are_free_when_its_lease_is_over() {
    needs!(Mounts);
    let cluster = Cluster::new(2);
    let other = cluster.mount("other", "");
    std::fs::write(other.path("file"), b"x").unwrap();
    let point = cluster.scratch.dir("mnt");
    let source = cluster.source();
    let mut mount = common::Daemon::start(["mount", "--foreground", &source, text(&point)], "stop");
    let held = File::open(point.join("file")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let wanted = File::open(other.path("file")).unwrap();
    let lock = || rustix::fs::flock(&wanted, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok();
    assert!(!lock());
    mount.kill();
    eventually("the lock is free", lock);
}

/// So many links fill a snapshot that a node keeps in memory only in part.
const LINKS: usize = 4000;

fn links(dir: &Path) {
    let target = "t".repeat(4000);
    (0..LINKS).for_each(|n| std::os::unix::fs::symlink(&target, dir.join(format!("link-{n}"))).unwrap());
}

/// Reads links from the `from`-th on until that fails: how, and how long that one took.
fn failing_link(dir: &Path, from: usize) -> (i32, Duration) {
    for n in (from..LINKS).chain(0..from) {
        let since = Instant::now();
        if let Err(error) = std::fs::read_link(dir.join(format!("link-{n}"))) {
            return (error.raw_os_error().unwrap(), since.elapsed());
        }
    }
    panic!("it must fail");
}

/// What a disk does that has lost most of a snapshot: it gives an error.
fn damage(state: &Path) {
    File::options().write(true).open(state).unwrap().set_len(4096).unwrap();
}

#[test]
fn a_daemon_with_an_island_that_has_halted_ends_soon_although_somebody_waits() {
    needs!(Mounts);
    let scratch = common::Scratch::new();
    let (data, point) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = common::Daemon::up(&data, &point, 1);
    links(&point);
    daemon.stop();
    let mut daemon = common::Daemon::up(&data, &point, 1);
    damage(&data.join("islands/main/0/state.redb"));
    std::thread::scope(|scope| {
        let read = scope.spawn(|| failing_link(&point, 0));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!read.is_finished(), "it waits for a restart");
        let since = Instant::now();
        daemon.interrupt();
        assert!(!daemon.wait(), "it says that not all went well");
        // The reader would wait for 10 s.
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
        read.join().unwrap();
    });
}

#[test]
fn what_waits_at_an_island_that_halts_is_told_and_the_daemon_stops_in_order() {
    needs!(Mounts);
    let mut cluster = Cluster::new(2);
    let mount = cluster.mount("mnt", "soft=3");
    let dirs = cluster.dirs(&mount);
    let lost = 1 - cluster.owner(&mount.0);
    // More than a node reads when it starts: the rest is damaged while it runs.
    links(&dirs[lost]);
    drop(mount);
    cluster.nodes[lost].take().unwrap().stop();
    cluster.start(lost);
    let mount = cluster.mount("again", "soft=3");
    damage(&cluster.data(lost).join(format!("islands/home/{lost}/state.redb")));
    let dir = mount.path(text(dirs[lost].strip_prefix(cluster.scratch.path("mnt")).unwrap()));
    std::thread::scope(|scope| {
        for n in 0..8 {
            let dir = &dir;
            scope.spawn(move || {
                let (errno, took) = failing_link(dir, n * LINKS / 8);
                assert_eq!(errno, libc::EIO);
                assert!(took < PATIENCE, "{took:?}");
            });
        }
    });
    // Further ones are told at once. (A link that a busy machine has let go is waited for once more.)
    let mut tries = (0..5).map(|_| {
        let since = Instant::now();
        assert_eq!(failing(|| std::fs::read(dir.join("file"))), libc::EIO);
        since.elapsed()
    });
    assert!(tries.any(|took| took < Duration::from_secs(2)), "each waits for three seconds");
    let other = mount.path(text(dirs[1 - lost].strip_prefix(cluster.scratch.path("mnt")).unwrap()));
    assert_eq!(std::fs::read(other.join("file")).unwrap(), b"content");
    // Somebody waits still when it is told to stop.
    let mut daemon = cluster.nodes[lost].take().unwrap();
    daemon.interrupt();
    assert!(!daemon.wait(), "it says that not all went well");
}

/// Runs a program, which has to end in time.
fn ends(program: &str, arguments: &[&str]) -> std::process::Output {
    const WITHIN: Duration = Duration::from_secs(15);
    let since = Instant::now();
    let mut command = Command::new("timeout");
    let output = command.args(["-s", "KILL", "20", program]).args(arguments).output().unwrap();
    assert!(since.elapsed() < WITHIN, "{program} takes {:?}", since.elapsed());
    output
}

/// What must work although no node does: to look, to kill who waits, and to take the mount away.
fn nothing_hangs_without_nodes(cluster: &Cluster, mount: &Mounted, waits: Vec<Child>) {
    ends("df", &[text(&mount.0)]);
    for whom in [text(&mount.0), &cluster.addresses[1]] {
        ends(env!("CARGO_BIN_EXE_atoll"), &["status", whom]);
    }
    let told = ends(env!("CARGO_BIN_EXE_atoll"), &["status", text(&mount.0), "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["down"].as_array().unwrap().len(), cluster.nodes.len(), "{told}");
    killed(waits);
    let said = ends("umount", &[text(&mount.0)]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(!common::is_mounted(&mount.0));
}

#[test]
fn with_all_nodes_of_a_volume_with_copies_away_nothing_hangs_and_all_is_there_when_they_are_back() {
    needs!(Mounts, Programs(&["df", "timeout", "umount"]));
    let mut cluster = Cluster::with_copies(4, 2);
    let kept = |mount: &Mounted| {
        (0..8).all(|n| {
            std::fs::read(mount.path(&format!("dir{n}/file"))).is_ok_and(|bytes| bytes == b"content")
        })
    };
    for (round, is_killed) in [false, true].into_iter().enumerate() {
        let mount = cluster.mount(&format!("mnt{round}"), "hard");
        for dir in (0..8).map(|n| mount.path(&format!("dir{n}"))) {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("file"), b"content").unwrap();
        }
        let waiting = (0..4).map(|n| mount.path(&format!("dir{n}/by{n}-{round}")));
        let mut waits: Vec<Child> = waiting.map(|path| child("reads_and_writes", &path)).collect();
        waits.iter_mut().for_each(ready);
        for node in 0..4 {
            if is_killed { cluster.kill(node) } else { cluster.freeze(node) }
        }
        std::thread::sleep(Duration::from_secs(1));
        nothing_hangs_without_nodes(&cluster, &mount, waits);
        for node in 0..4 {
            if is_killed { cluster.start(node) } else { cluster.thaw(node) }
        }
        let again = cluster.mount(&format!("again{round}"), "");
        eventually("everything is there", || kept(&again));
    }
}
