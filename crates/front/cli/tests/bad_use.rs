//! What people get wrong: each is told in three lines at most, at once, and nothing is left behind.

mod common;

use atoll_needs::needs;
use std::net::TcpListener;
use std::path::Path;

use common::{Cluster, Daemon, Scratch, bad, free_port, is_mounted, run, text};

fn up<'a>(data: &'a Path, mount: &'a Path) -> [&'a str; 5] {
    ["up", "--data", text(data), "--mount", text(mount)]
}

#[test]
fn a_data_directory_whose_parent_is_missing_is_not_made_up() {
    let scratch = Scratch::new();
    let said = bad(up(&scratch.path("no/data"), &scratch.dir("mnt")));
    assert!(said.contains("cannot be made") && said.contains("mkdir"), "{said}");
    assert!(!scratch.path("no").exists());
}

#[test]
fn somebody_elses_folder_is_not_used() {
    let scratch = Scratch::new();
    let data = scratch.dir("photos");
    std::fs::write(data.join("holiday.jpg"), b"x").unwrap();
    let said = bad(up(&data, &scratch.dir("mnt")));
    assert!(said.contains("holiday.jpg") && said.contains("Nothing was changed"), "{said}");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing was put beside it");
    let said = bad(["check", "--data", text(&scratch.path("nothing"))]);
    assert!(said.contains("no data directory"), "{said}");
}

#[test]
fn a_newer_data_directory_is_left_alone() {
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    std::fs::write(data.join("node.toml"), "format = 99\n").unwrap();
    let said = bad(up(&data, &scratch.dir("mnt")));
    assert!(said.contains("format 99") && said.contains("newer"), "{said}");
    assert_eq!(std::fs::read_to_string(data.join("node.toml")).unwrap(), "format = 99\n");
}

#[test]
fn a_read_only_disk_is_named_as_such() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let disk = scratch.dir("disk");
    rustix::mount::mount("none", &disk, "tmpfs", rustix::mount::MountFlags::RDONLY, c"size=1m").unwrap();
    let said = bad(up(&disk.join("data"), &scratch.dir("mnt")));
    assert!(said.contains("read-only"), "{said}");
}

#[test]
fn a_mount_point_must_be_an_empty_directory() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    std::fs::write(scratch.path("file"), b"x").unwrap();
    let said = bad(up(&data, &scratch.path("file/mnt")));
    assert!(said.contains("cannot be used") && said.contains("Not a directory"), "{said}");
    let said = bad(up(&data, &scratch.path("file")));
    assert!(said.contains("is not a directory"), "{said}");
    std::fs::write(scratch.dir("full").join("thing"), b"x").unwrap();
    let said = bad(up(&data, &scratch.path("full")));
    assert!(said.contains("not empty") && said.contains("thing"), "{said}");
    let said = bad(["mount", "127.0.0.1:1:/v", text(&scratch.path("absent"))]);
    assert!(said.contains("does not exist") && said.contains("mkdir"), "{said}");
    let said = bad(up(&scratch.dir("mnt").join("data"), &scratch.path("mnt")));
    assert!(said.contains("hidden"), "{said}");
    assert!(!data.exists(), "a failed start made a data directory");
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_mounted() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = scratch.path("data");
    let said = bad(["serve", "--data", text(&data), "--listen", &address]);
    assert!(said.contains("in use") && said.contains("ss -ltnp"), "{said}");
    let mnt = scratch.dir("mnt");
    let said = bad(["up", "--data", text(&data), "--mount", text(&mnt), "--listen", &address]);
    assert!(said.contains("in use"), "{said}");
    assert!(!is_mounted(&mnt));
}

#[test]
fn a_second_daemon_and_a_second_mount_are_refused_and_harm_nothing() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 1);
    std::fs::write(mnt.join("file"), b"mine").unwrap();
    let said = bad(up(&data, &scratch.dir("mnt2")));
    assert!(said.contains("in use by process") && said.contains(&daemon.pid().to_string()), "{said}");
    let said = bad(up(&scratch.path("data2"), &mnt));
    assert!(said.contains("mounted already") && said.contains("atoll umount"), "{said}");
    let said = bad(["mount", "--data", text(&data), text(&mnt)]);
    assert!(said.contains("mounted already"), "{said}");
    let said = bad(["check", "--data", text(&data)]);
    assert!(said.contains("in use"), "{said}");
    assert_eq!(std::fs::read(mnt.join("file")).unwrap(), b"mine");
    daemon.stop();
}

#[test]
fn a_volume_that_is_not_there_is_named() {
    let cluster = Cluster::bare(1);
    let address = &cluster.addresses[0];
    let point = cluster.scratch.dir("mnt");
    let said = bad(["mount", &format!("{address}:/nothere"), text(&point)]);
    assert!(said.contains("no volume \"nothere\"") && said.contains("atoll volume list"), "{said}");
    let said = bad(["table", "show", "nothere", address]);
    assert!(said.contains("nothere"), "{said}");
    let said = bad(["mount", "--data", text(&cluster.data(0)), text(&point)]);
    assert!(said.contains("no volume yet") && said.contains("volume create"), "{said}");
    assert!(!is_mounted(&point));
}

#[test]
fn a_node_that_is_down_is_named_and_nothing_half_made_is_left() {
    let cluster = Cluster::bare(2);
    let down = format!("127.0.0.1:{}", free_port());
    let point = cluster.scratch.dir("mnt");
    let said = bad(["mount", &format!("{down}:/home"), text(&point)]);
    assert!(said.contains(&down) && said.contains("Connection refused"), "{said}");
    let nodes = format!("{},{down}", cluster.addresses[0]);
    let said = bad(["volume", "create", "home", "--nodes", &nodes]);
    assert!(said.contains(&down), "{said}");
    assert_eq!(common::good(["volume", "list", &cluster.addresses[0]]).trim(), "No volumes.");
    assert!(bad(["status", &down]).contains("cannot be reached"));
    assert!(bad(["status", "--data", text(&cluster.scratch.dir("idle"))]).contains("No daemon runs"));
    // The name is free for those that are up.
    common::good(["volume", "create", "home", "--nodes", cluster.addresses.join(",").as_str()]);
}

#[test]
fn nodes_that_refuse_a_volume_leave_it_on_none() {
    let cluster = Cluster::bare(2);
    let [a, b] = [&cluster.addresses[0], &cluster.addresses[1]];
    common::good(["volume", "create", "home", "--nodes", b]);
    let said = bad(["volume", "create", "home", "--nodes", &format!("{a},{b}")]);
    assert!(said.contains("not made") && said.contains("already"), "{said}");
    assert_eq!(common::good(["volume", "list", a]).trim(), "No volumes.");
    let said = bad([
        "volume",
        "create",
        "twice",
        "--nodes",
        &format!("{a},{}", a.replace("127.0.0.1", "localhost")),
    ]);
    assert!(said.contains("same node"), "{said}");
    let left = std::fs::read_dir(cluster.data(0).join("islands")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "folders are left of a volume that was never made");
}

#[test]
fn a_bad_address_or_option_says_how_it_is_written() {
    let scratch = Scratch::new();
    let point = scratch.dir("mnt");
    for source in ["node1:/home", "node1:7100", "node1:99999:/home", ":7100:/home", "unix:/run/x", "a b:1:/v"]
    {
        let said = bad(["mount", source, text(&point)]);
        assert!(said.contains("Write "), "{source}: {said}");
    }
    let said = bad(["mount", "127.0.0.1:1:/v", text(&point), "-o", "frobnicate"]);
    assert!(said.contains("\"frobnicate\" is not known"), "{said}");
    for arguments in
        [["serve", "--data", "d", "--listen", "nowhere"], ["volume", "create", "x", "--nodes", "a"]]
    {
        let output = run(arguments);
        assert!(!output.status.success() && !output.stderr.is_empty());
    }
    let said = bad(["volume", "create", ".x", "--nodes", "127.0.0.1:1"]);
    assert!(said.contains("starts with a letter"), "{said}");
}

#[test]
fn what_is_not_mounted_or_not_ours_is_not_unmounted() {
    let scratch = Scratch::new();
    let plain = scratch.dir("plain");
    let said = bad(["umount", text(&plain)]);
    assert!(said.contains("Nothing is mounted on"), "{said}");
    assert_eq!(run(["umount", text(&plain)]).status.code(), Some(32), "as umount(8) says it");
    for absent in [&plain, &scratch.path("absent")] {
        assert_eq!(common::good(["umount", "--if-mounted", text(absent)]), "");
    }
    assert!(bad(["umount", text(&scratch.path("absent"))]).contains("does not exist"));
    assert!(bad(["umount", "/proc"]).contains("something else"));
    assert!(bad(["explain", text(&plain)]).contains("no mounted volume"));
    assert!(bad(["status", text(&plain)]).contains("not a mount"));
    for ask in [["table", "show"], ["volume", "list"]] {
        assert!(bad(ask).contains("--data"), "whom to ask is said with all ways to say it");
        let said = bad([ask[0], ask[1], text(&plain)]);
        assert!(said.contains("not a mount") && said.contains("--data"), "{said}");
        assert!(bad([ask[0], ask[1], "absent"]).contains("nothing mounted"));
    }
}

#[test]
fn a_path_that_is_not_there_is_explained_in_plain_words() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let mnt = scratch.path("mnt");
    let _daemon = Daemon::up(&scratch.path("data"), &mnt, 2);
    std::fs::create_dir(mnt.join("dir")).unwrap();
    std::fs::write(mnt.join("dir/file"), b"x").unwrap();
    let said = bad(["explain", text(&mnt.join("dir/nope"))]);
    assert!(said.contains(&format!("There is no \"nope\" in {}", mnt.join("dir").display())), "{said}");
    assert!(!said.contains("ENOENT"), "{said}");
}

#[test]
fn another_users_mount_is_said_to_be_that() {
    needs!(Mounts);
    use std::os::unix::process::CommandExt;
    let scratch = Scratch::new();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scratch.path(""), mode).unwrap();
    let program = scratch.path("atoll");
    std::fs::copy(env!("CARGO_BIN_EXE_atoll"), &program).unwrap();
    let mnt = scratch.path("mnt");
    let _daemon = Daemon::up(&scratch.path("data"), &mnt, 1);
    std::fs::write(mnt.join("file"), b"x").unwrap();
    let file = mnt.join("file");
    let as_nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&program);
        let output = command.args(arguments).uid(65_534).gid(65_534).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for arguments in [["explain", text(&file)], ["status", text(&mnt)]] {
        let said = as_nobody(&arguments);
        assert!(said.contains("another user's: root") && said.contains("sudo atoll"), "{said}");
    }
    for ask in [["table", "show"], ["volume", "list"]] {
        assert!(as_nobody(&[ask[0], ask[1], text(&mnt)]).contains("another user's: root"));
    }
}

#[test]
fn what_cannot_be_had_by_a_mount_option_says_what_to_do_instead() {
    let scratch = Scratch::new();
    let point = scratch.dir("mnt");
    let ask = |option: &str| bad(["mount", "127.0.0.1:1:/v", text(&point), "-o", option]);
    let said = ask("remount,ro");
    assert!(said.contains("mount -o remount,"), "{said}");
    assert!(ask("dirsync").contains("fsync"));
}

#[test]
fn a_mount_that_is_in_use_says_by_whom() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 1);
    let file = std::fs::File::create(mnt.join("open")).unwrap();
    let said = bad(["umount", text(&mnt)]);
    assert!(said.contains("is busy") && said.contains(&std::process::id().to_string()), "{said}");
    drop(file);
    // A child that another test has just begun may still have it.
    common::eventually("nobody uses it", || run(["umount", text(&mnt)]).status.success());
    assert!(daemon.wait(), "the daemon ended in order when its mount was taken away");
}

#[test]
fn an_island_folder_that_is_missing_is_not_made_anew() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    Daemon::up(&data, &mnt, 1).stop();
    std::fs::rename(data.join("islands/main"), scratch.path("elsewhere")).unwrap();
    let said = String::from_utf8(run(up(&data, &mnt)).stderr).unwrap();
    assert!(said.contains("is missing") && said.contains("Nothing was made"), "{said}");
    assert!(!data.join("islands/main").exists());
}

#[test]
fn a_port_that_is_taken_leaves_nothing_half_made() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = scratch.path("data");
    let said = bad(["serve", "--data", text(&data), "--listen", &address]);
    assert!(said.contains(&address), "{said}");
    assert!(!data.exists());
    let said = bad(up(&data, &scratch.dir("mnt")).into_iter().chain(["--listen", &address]));
    assert!(said.contains(&address), "{said}");
    assert!(!data.exists());
}

#[test]
fn a_node_that_was_made_just_now_says_so_and_one_that_was_there_does_not() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let address = format!("127.0.0.1:{}", free_port());
    let serve = || Daemon::start(["serve", "--data", text(&data), "--listen", &address], "volumes");
    let mut daemon = serve();
    assert!(daemon.told("node").contains("NEW"), "{:?}", daemon.said);
    daemon.stop();
    let mut daemon = serve();
    assert!(!daemon.told("node").contains("NEW"), "{:?}", daemon.said);
    daemon.stop();
    for name in ["control.redb", "prepared.redb", "node.toml", "lock"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(data.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
