//! `atoll up` and further mounts on the same machine.

mod common;

use atoll_needs::needs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{Daemon, Mounted, Scratch, eventually, good, is_mounted, text};

#[test]
fn what_one_run_wrote_the_next_one_finds() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 4);
    assert!(daemon.told("volume").starts_with("main (new, 4 islands)"));
    std::fs::create_dir_all(mnt.join("a/b")).unwrap();
    std::fs::write(mnt.join("a/b/file"), b"kept").unwrap();
    daemon.interrupt();
    assert!(daemon.wait());
    assert!(!is_mounted(&mnt), "Ctrl-C leaves no mount");
    assert!(!data.join("atoll.sock").exists(), "nor a socket");
    let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode(&mnt) & 0o777, 0o755, "a mount point is nobody else's to write to");
    assert_eq!(mode(&data.join("islands/main")) & 0o777, 0o700);
    let mut daemon = Daemon::up(&data, &mnt, 4);
    assert!(daemon.told("volume").starts_with("main (found"));
    assert_eq!(std::fs::read(mnt.join("a/b/file")).unwrap(), b"kept");
    // As umount(8) does, from outside.
    rustix::mount::unmount(&mnt, rustix::mount::UnmountFlags::empty()).unwrap();
    assert!(daemon.wait(), "a process whose mount was taken away ends in order");
    let said = good(["check", "--data", text(&data), "--read"]);
    assert!(said.contains("nothing wrong") && !said.contains("recovery"), "{said}");
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    for i in 0..100 {
        std::fs::create_dir(mnt.join(format!("d{i}"))).unwrap();
        std::fs::write(mnt.join(format!("d{i}/file")), vec![i as u8; 1000 * i]).unwrap();
    }
    daemon.kill();
    // The dead mount is cleared away by the next start.
    let mut daemon = Daemon::up(&data, &mnt, 2);
    for i in 0..100 {
        assert_eq!(std::fs::read(mnt.join(format!("d{i}/file"))).unwrap(), vec![i as u8; 1000 * i]);
    }
    assert_eq!(std::fs::read_dir(&mnt).unwrap().count(), 100);
    daemon.kill();
    let said = good(["check", "--data", text(&data), "--read"]);
    assert!(said.contains("nothing wrong") && said.contains("recovery was done first"), "{said}");
}

#[test]
fn a_mount_point_is_made_with_what_it_lies_in() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let mnt = scratch.path("new/deep/mnt");
    let mut daemon = Daemon::up(&scratch.path("data"), &mnt, 1);
    assert!(is_mounted(&mnt));
    daemon.stop();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&scratch.path("new").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o755, "what it lies in is nobody else's to write to");
}

#[test]
fn what_a_full_disk_refuses_is_not_shown_as_available() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (disk, mnt) = (scratch.dir("disk"), scratch.path("mnt"));
    rustix::mount::mount("none", &disk, "tmpfs", rustix::mount::MountFlags::empty(), c"size=64m").unwrap();
    let mut daemon = Daemon::up(&disk.join("data"), &mnt, 1);
    let available = |path: &Path| {
        let fs = rustix::fs::statvfs(path).unwrap();
        fs.f_bavail * fs.f_frsize
    };
    // So large a part is kept for logs and checkpoints, so that a full disk stays a healthy one.
    assert!(available(&disk) - available(&mnt) >= (64 << 20) / 32);
    // What a write needs is counted twice until it is known where it lies, and the log gives space
    // back, so it is full for good only some time after it is full first.
    let mut count = 0;
    eventually("the disk is full, and nothing more is shown as available than a write needs", || {
        count += 1;
        let filled = std::fs::write(mnt.join(format!("f{count}")), vec![1; 1 << 20]);
        let is_full = filled.is_err_and(|e| e.raw_os_error() == Some(libc::ENOSPC));
        is_full && available(&mnt) <= 2 * (1 << 20) + 4096
    });
    assert!(available(&disk) >= (64 << 20) / 32, "what is kept is still there");
    daemon.stop();
}

#[test]
fn a_hole_punched_into_reserved_space_gives_its_blocks_back() {
    use rustix::fs::{FallocateFlags as Flags, fallocate};
    use std::os::unix::fs::MetadataExt;
    two_mounts(|one, two| {
        let mut file = File::create(one.join("file")).unwrap();
        let blocks = || two.join("file").metadata().unwrap().blocks();
        fallocate(&file, Flags::empty(), 0, 10 << 20).unwrap();
        assert_eq!(blocks(), 20_480);
        file.write_all(&[7; 100_000]).unwrap();
        assert_eq!(blocks(), 20_480, "bytes in reserved space take no more of it");
        fallocate(&file, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, 0, 8 << 20).unwrap();
        assert_eq!(blocks(), 4096);
    });
}

#[test]
fn the_volume_of_a_mount_is_asked_for_by_its_directory() {
    two_mounts(|one, two| {
        for point in [one, two] {
            assert!(good(["table", "show", text(point)]).contains("volume main"));
            assert!(good(["volume", "list", text(point)]).contains("main"));
        }
        // With a node named too, the other word is the volume's name.
        let data = one.parent().unwrap().join("data");
        assert!(good(["table", "show", "main", "--data", text(&data)]).contains("volume main"));
    });
}

/// A mount by `up` and a second one through its socket.
fn two_mounts(test: impl FnOnce(&Path, &Path)) {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    let second = Mounted::new(&format!("{}:/main", daemon.told("socket")), scratch.dir("second"), "soft=5");
    test(&mnt, &second.0);
    good(["umount", text(&second.0)]);
    daemon.stop();
}

#[test]
fn two_mounts_see_each_others_changes_at_once() {
    two_mounts(|one, two| {
        for round in 0..50 {
            let name = format!("file{round}");
            assert!(!two.join(&name).exists(), "not there before");
            std::fs::write(one.join(&name), b"first").unwrap();
            assert_eq!(std::fs::read(two.join(&name)).unwrap(), b"first");
            std::fs::write(two.join(&name), b"second, and longer").unwrap();
            assert_eq!(std::fs::read(one.join(&name)).unwrap(), b"second, and longer");
            std::fs::rename(two.join(&name), two.join("moved")).unwrap();
            assert!(!one.join(&name).exists() && one.join("moved").exists());
            std::fs::create_dir(one.join(&name)).unwrap();
            std::fs::write(two.join(&name).join("below"), b"x").unwrap();
            assert_eq!(std::fs::read_dir(one.join(&name)).unwrap().count(), 1);
            std::fs::remove_file(one.join("moved")).unwrap();
            assert!(!two.join("moved").exists());
        }
    });
}

/// Sequence m of `docs/design/024-leases.md`: a mount does not ask for names in directories that it has made, while it is alone.
#[test]
fn a_mount_sees_what_another_one_does_in_directories_that_it_has_just_made() {
    use std::os::unix::fs::PermissionsExt;
    two_mounts(|one, two| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(6);
        for round in 0.. {
            if std::time::Instant::now() > end {
                break;
            }
            let (dir, name) = (format!("dir{round}"), format!("dir{round}/theirs"));
            std::fs::create_dir(one.join(&dir)).unwrap();
            File::create_new(one.join(&dir).join("mine")).unwrap();
            assert!(!one.join(&name).exists());
            std::fs::write(two.join(&name), b"x").unwrap();
            assert!(one.join(&name).exists(), "round {round}");
            std::fs::set_permissions(two.join(&dir), PermissionsExt::from_mode(0o700)).unwrap();
            let mode = std::fs::metadata(one.join(&dir)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "round {round}");
            assert_eq!(std::fs::read_dir(one.join(&dir)).unwrap().count(), 2, "round {round}");
        }
    });
}

#[test]
fn appends_of_two_mounts_are_neither_lost_nor_torn() {
    const EACH: usize = 10_000;
    two_mounts(|one, two| {
        std::thread::scope(|scope| {
            for (who, root) in [("one", one), ("two", two)] {
                scope.spawn(move || {
                    let mut file = File::options().create(true).append(true).open(root.join("log")).unwrap();
                    for i in 0..EACH {
                        file.write_all(format!("{who} {i:05}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(two.join("log")).unwrap();
        assert_eq!(text.len(), 2 * EACH * "one 00000\n".len(), "bytes are missing");
        for who in ["one", "two"] {
            let mine: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(who)).collect();
            let all: Vec<String> = (0..EACH).map(|i| format!(" {i:05}")).collect();
            assert!(mine == all, "lines of {who} are lost, torn or out of order");
        }
    });
}

#[test]
fn a_lock_of_one_mount_holds_on_the_other() {
    use rustix::fs::{FlockOperation, flock};
    two_mounts(|one, two| {
        std::fs::write(one.join("file"), b"x").unwrap();
        let open = |root: &Path| File::options().read(true).write(true).open(root.join("file")).unwrap();
        let (mine, theirs) = (open(one), open(two));
        flock(&mine, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(flock(&theirs, FlockOperation::NonBlockingLockExclusive).is_err());
        // Who waits gets it when it is given up.
        let waits = std::thread::spawn(move || {
            flock(&theirs, FlockOperation::LockExclusive).unwrap();
            theirs
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!waits.is_finished(), "two have the lock");
        flock(&mine, FlockOperation::Unlock).unwrap();
        let theirs = waits.join().unwrap();
        assert!(flock(&mine, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(theirs);
        eventually("a lock goes with its file", || {
            flock(&mine, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    });
}

#[test]
fn a_file_that_is_open_on_one_mount_outlives_its_name_removed_on_the_other() {
    two_mounts(|one, two| {
        std::fs::write(one.join("file"), b"still here").unwrap();
        let mut open = File::options().read(true).write(true).open(one.join("file")).unwrap();
        std::fs::remove_file(two.join("file")).unwrap();
        assert!(!one.join("file").exists());
        let mut bytes = Vec::new();
        open.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"still here");
        open.write_all_at(b"S", 0).unwrap();
        let mut byte = [0];
        open.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(&byte, b"S");
        // Another file of that name is another file.
        std::fs::write(two.join("file"), b"new").unwrap();
        assert_eq!(std::fs::read(one.join("file")).unwrap(), b"new");
        open.read_exact_at(&mut byte, 1).unwrap();
        assert_eq!(&byte, b"t");
    });
}

#[test]
fn the_status_counts_what_was_done() {
    two_mounts(|one, two| {
        for i in 0..20 {
            std::fs::write(one.join(format!("f{i}")), b"x").unwrap();
        }
        for point in [one, two] {
            let status: serde_json::Value =
                serde_json::from_str(&good(["status", text(point), "--json"])).unwrap();
            let processes = status["processes"].as_array().unwrap();
            let mount = &processes[0]["mounts"][0];
            assert_eq!(mount["point"], text(point));
            assert!(mount["calls"].as_u64() >= mount["one_island"].as_u64());
            let node = processes.iter().find(|p| !p["node"].is_null()).expect("the node is told of, too");
            let islands = node["volumes"][0]["islands"].as_array().unwrap();
            assert_eq!(islands.len(), 2);
            assert!(islands.iter().all(|i| i["phase"] == "normal" && i["mounts"] == 2));
            assert!(islands.iter().map(|i| i["records"].as_u64().unwrap()).sum::<u64>() > 20);
        }
    });
}

#[test]
fn every_metric_is_in_the_status_and_on_the_page_and_has_its_meaning_written_down() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let arguments = ["up", "--data", text(&data), "--mount", text(&mnt), "--metrics", "127.0.0.1:0"];
    let mut daemon = Daemon::start(arguments, "stop");
    std::fs::write(mnt.join("f"), b"x").unwrap();
    let address = daemon.told("metrics").strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let manual = include_str!("../../../../docs/OPERATIONS.md");
    let names: Vec<&str> =
        page.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in &names {
        assert!(manual.contains(&format!("| `{name}` |")), "OPERATIONS.md does not say what {name} means");
    }
    let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let records = page.lines().filter(|line| line.starts_with("atoll_island_records_total{"));
    assert!(records.map(value).sum::<u64>() > 0, "{page}");
    // The same list for people and for programs.
    let json: serde_json::Value = serde_json::from_str(&good(["status", text(&mnt), "--json"])).unwrap();
    let shown = good(["status", text(&mnt)]);
    let mut seen = 0;
    for process in json["processes"].as_array().unwrap() {
        let islands =
            process["volumes"].as_array().unwrap().iter().flat_map(|v| v["islands"].as_array().unwrap());
        for (of, object) in islands
            .map(|i| ("island", i))
            .chain(process["mounts"].as_array().unwrap().iter().map(|m| ("mount", m)))
        {
            for name in names.iter().filter_map(|name| name.strip_prefix(&format!("atoll_{of}_"))) {
                let name = name.strip_suffix("_total").unwrap_or(name);
                if object[name].is_u64() {
                    seen += 1;
                    assert!(shown.contains(&name.replace('_', " ")), "{name} is not in {shown}");
                }
            }
        }
    }
    assert!(seen > 20, "{json}");
    daemon.stop();
}

#[test]
fn explain_names_the_plain_file_and_it_has_the_bytes() {
    two_mounts(|one, _| {
        std::fs::create_dir_all(one.join("a/b")).unwrap();
        std::fs::write(one.join("a/b/file"), b"plain bytes").unwrap();
        let path = one.join("a/b/file");
        let told: serde_json::Value =
            serde_json::from_str(&good(["explain", text(&path), "--json"])).unwrap();
        let ino = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        assert_eq!(told["id"].as_u64(), Some(ino));
        assert!(told["skeleton"].as_array().unwrap().contains(&told["owner"]));
        let shown = good(["explain", text(&path)]);
        assert!(shown.lines().all(|line| line == line.trim_end()), "no line ends in blanks: {shown:?}");
        let plain = told["plain"].as_str().unwrap().to_owned();
        eventually("the plain file is laid", || std::fs::read(&plain).is_ok_and(|b| b == b"plain bytes"));
    });
}

#[test]
fn explain_tells_where_a_file_is_whose_name_is_in_a_directory_of_another_island() {
    two_mounts(|one, _| {
        let explain = |path: &Path| -> serde_json::Value {
            serde_json::from_str(&good(["explain", text(path), "--json"])).unwrap()
        };
        let dirs: Vec<_> = (0..16).map(|i| one.join(format!("d{i}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let owners: Vec<_> = dirs.iter().map(|dir| explain(dir)["owner"].as_u64().unwrap()).collect();
        let other = owners.iter().position(|owner| *owner != owners[0]).expect("two islands own them");
        let (here, there) = (dirs[0].join("file"), dirs[other].join("also"));
        std::fs::write(&here, b"plain bytes").unwrap();
        std::fs::hard_link(&here, &there).unwrap();
        let (told, points) = (explain(&here), explain(&there));
        assert_eq!((&told["pointer"], &points["pointer"]), (&false.into(), &true.into()));
        assert_eq!(points["owner"], owners[other]);
        for what in ["id", "home", "node", "body"] {
            assert_eq!(told[what], points[what], "{what}");
        }
        let plain = points["plain"].as_str().unwrap().to_owned();
        assert!(plain.ends_with(&format!("/{}/tree/d{other}/also", owners[0])), "{plain}");
        eventually("the plain file is laid", || std::fs::read(&plain).is_ok_and(|b| b == b"plain bytes"));
        assert!(good(["explain", text(&there)]).contains("the name points there"));
        assert!(!good(["explain", text(&here)]).contains("points there"));
    });
}

#[test]
fn an_attribute_that_the_native_disk_does_not_take_stops_no_other_plain_file() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 1);
    std::fs::create_dir(mnt.join("d")).unwrap();
    std::fs::write(mnt.join("d/large"), b"x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(mnt.join("d/large"), "user.large", &[b'a'; 20_000], flags).unwrap();
    std::fs::write(mnt.join("d/other"), b"other").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(mnt.join("d"), mode).unwrap();
    daemon.stop();
    let plain = data.join("islands/main/0/tree/d");
    assert_eq!(std::fs::read(plain.join("other")).unwrap(), b"other");
    let mode = std::os::unix::fs::PermissionsExt::mode(&plain.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o711);
}

#[test]
fn whoever_was_let_in_below_a_closed_directory_works_there() {
    needs!(Mounts);
    let (scratch, door) = (Scratch::new(), tempfile::tempdir().unwrap());
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 4);
    let inner = mnt.join("closed/inner");
    std::fs::create_dir_all(&inner).unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    set(&inner, 0o777);
    set(&mnt.join("closed"), 0o700);
    set(door.path(), 0o755);
    rustix::mount::mount_bind(&inner, door.path()).unwrap();
    // Eight directories are on more than one island, and nobody could walk to them from the root.
    let script = "set -e; for i in 1 2 3 4 5 6 7 8; do mkdir d$i; echo $i > d$i/f; ln d$i/f l$i; done
        for i in 1 2 3 4 5 6 7; do mv d$i/f d$((i + 1))/g; done; mv d1 d2/in; cat d?/g l8; chmod 700 d3
        rm -r d2 d3/g; rmdir d3; ls; ! ls $1";
    let nobody = Command::new("sh")
        .args(["-c", script, "sh", text(&inner)])
        .current_dir(door.path())
        .uid(65_534)
        .gid(65_534)
        .output();
    rustix::mount::unmount(door.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    let nobody = nobody.unwrap();
    let said = String::from_utf8_lossy(&nobody.stdout);
    assert!(nobody.status.success(), "{said}{}", String::from_utf8_lossy(&nobody.stderr));
    let left = ["d4", "d5", "d6", "d7", "d8", "l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8"];
    assert!(
        said.split_whitespace().eq(["1", "2", "3", "4", "5", "6", "7", "8"].into_iter().chain(left)),
        "{said}"
    );
    daemon.stop();
    assert!(good(["check", "--data", text(&data), "--read"]).contains("nothing wrong"));
}
