//! Several nodes as several processes, and mounts over TCP.

mod common;

use atoll_needs::needs;
use std::process::Command;

use common::{Cluster, eventually, good, is_mounted, text};

#[test]
fn four_nodes_make_one_tree() {
    needs!(Mounts);
    let cluster = Cluster::new(4);
    let (one, two) = (cluster.mount("one", ""), cluster.mount("two", "ro,noexec"));
    // Names that differ in many bits: each bit of a placement key is the parity of some of a path's, so names that
    // differ in few may all be placed at two of four islands.
    let name = |i: u32| format!("d{:08x}", i.wrapping_mul(0x9e37_79b1));
    for i in 0..40 {
        let dir = one.path(&name(i)).join("e");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), format!("content {i}")).unwrap();
    }
    std::fs::rename(one.path(&name(1)), one.path("renamed")).unwrap();
    for i in (0..40).filter(|i| *i != 1) {
        let read = std::fs::read_to_string(two.path(&name(i)).join("e/file")).unwrap();
        assert_eq!(read, format!("content {i}"));
    }
    assert_eq!(std::fs::read_to_string(two.path("renamed/e/file")).unwrap(), "content 1");
    assert!(std::fs::write(two.path(&name(2)).join("x"), b"x").is_err(), "a read-only mount is read-only");
    let status: serde_json::Value = serde_json::from_str(&good(["status", text(&one.0), "--json"])).unwrap();
    let nodes: Vec<_> =
        status["processes"].as_array().unwrap().iter().filter(|p| !p["node"].is_null()).collect();
    assert_eq!(nodes.len(), 4, "all four nodes are told of");
    let busy = nodes.iter().filter(|n| n["volumes"][0]["islands"][0]["records"].as_u64() > Some(10));
    assert_eq!(busy.count(), 4, "all four do their part");
    good(["umount", text(&one.0)]);
    assert!(!is_mounted(&one.0));
}

#[test]
fn nodes_that_are_started_again_serve_their_volumes_by_themselves() {
    needs!(Mounts);
    let mut cluster = Cluster::new(2);
    let mount = cluster.mount("mnt", "hard");
    std::fs::write(mount.path("file"), b"kept").unwrap();
    for node in 0..2 {
        cluster.nodes[node].take().unwrap().stop();
    }
    cluster.start(0);
    cluster.start(1);
    // The mount was `hard`: it waits.
    assert_eq!(std::fs::read(mount.path("file")).unwrap(), b"kept");
    assert!(good(["volume", "list", &cluster.addresses[1]]).contains("home"));
    for node in 0..2 {
        cluster.nodes[node].take().unwrap().stop();
        let said = good(["check", "--data", text(&cluster.data(node)), "--read"]);
        assert!(said.contains("nothing wrong"), "{said}");
    }
}

#[test]
fn a_mount_passes_over_nodes_that_are_down() {
    needs!(Mounts);
    let mut cluster = Cluster::new(3);
    cluster.kill(0);
    let mount = cluster.mount("mnt", "soft=1");
    cluster.start(0);
    eventually("a node that was down is connected later", || {
        std::fs::create_dir(mount.path("d")).is_ok() || mount.path("d").is_dir()
    });
    let status: serde_json::Value =
        serde_json::from_str(&good(["status", text(&mount.0), "--json"])).unwrap();
    let nodes = status["processes"][0]["mounts"][0]["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|n| n["up"] == true), "{nodes:?}");
}

#[test]
fn a_node_that_missed_the_second_step_learns_of_the_volume_from_the_others() {
    let mut cluster = Cluster::new(2);
    // As if it had been killed between the two steps: the volume is prepared, and not active.
    let data = cluster.data(1);
    cluster.nodes[1].take().unwrap().stop();
    let folder = data.join("islands/home");
    let id = std::fs::read_to_string(folder.join("member.toml")).unwrap();
    let id = id.lines().find_map(|l| l.strip_prefix("volume = ")).unwrap().trim_matches('"').to_owned();
    std::fs::remove_dir_all(folder.join("1")).unwrap();
    let member = std::fs::read_to_string(folder.join("member.toml")).unwrap();
    std::fs::write(folder.join("member.toml"), member.replace("made = true", "made = false")).unwrap();
    std::fs::rename(&folder, data.join(format!("islands/.new-{id}"))).unwrap();
    std::fs::rename(data.join("prepared.redb"), data.join("empty.redb")).unwrap();
    std::fs::rename(data.join("control.redb"), data.join("prepared.redb")).unwrap();
    std::fs::rename(data.join("empty.redb"), data.join("control.redb")).unwrap();
    cluster.start(1);
    eventually("the node serves it", || {
        let list = good(["volume", "list", "--json", &cluster.addresses[1]]);
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        list[0]["name"] == "home" && list[0]["problem"].is_null()
    });
    assert!(folder.join("1").is_dir());
}

#[test]
fn mount_8_finds_its_helper() {
    needs!(Mounts);
    let cluster = Cluster::new(1);
    let helper = cluster.scratch.path("mount.atoll");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_atoll"), &helper).unwrap();
    let point = cluster.scratch.dir("mnt");
    let run = |arguments: &[&str]| Command::new(&helper).args(arguments).output().unwrap();
    let fake = run(&[&cluster.source(), text(&point), "-f", "-n", "-o", "rw,_netdev,nofail"]);
    assert!(fake.status.success() && !is_mounted(&point));
    let failed = run(&[&cluster.source(), text(&point), "-o", "rw,nonsense"]);
    assert_eq!(failed.status.code(), Some(32), "mount(8) calls this a mount failure");
    assert_eq!(run(&[text(&point)]).status.code(), Some(1), "and this incorrect invocation");
    let done = run(&[
        &cluster.source(),
        text(&point),
        "-s",
        "-o",
        "rw,_netdev,nofail,nonsense,x-systemd.idle-timeout=1",
    ]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(is_mounted(&point));
    std::fs::write(point.join("file"), b"x").unwrap();
    good(["umount", text(&point)]);
    let refused = run(&["atoll:home", text(&point), "-o", "ro,remount,user_id=0,default_permissions"]);
    assert_eq!(refused.status.code(), Some(32), "nothing is mounted there");
}

/// The options of a mount, as the system's table shows them.
fn options_of(point: &std::path::Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|l| l.split(' ').nth(4) == Some(text(point))).expect("it is mounted");
    let words = line.split(' ').nth(5).into_iter().chain(line.split(' ').next_back());
    words.flat_map(|words| words.split(',')).map(str::to_owned).collect()
}

#[test]
fn set_id_bits_and_devices_count_as_with_other_file_systems_of_fstab() {
    needs!(Mounts);
    let cluster = Cluster::new(1);
    let helper = cluster.scratch.path("mount.fuse.atoll");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_atoll"), &helper).unwrap();
    let point = cluster.scratch.dir("mnt");
    // On the left what mount(8) hands on: neither suid nor dev, because that is what it takes for granted.
    for (handed_on, has, has_not) in [
        ("rw", &[][..], &["nosuid", "nodev", "noexec", "sync"][..]),
        ("rw,noexec,nosuid,nodev,user", &["nosuid", "nodev", "noexec"], &[]),
        ("ro,nosuid,sync,noatime,nodiratime", &["ro", "nosuid", "sync", "noatime", "nodiratime"], &["nodev"]),
    ] {
        let arguments = [&cluster.source(), text(&point), "-o", handed_on];
        let done = Command::new(&helper).args(arguments).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let options = options_of(&point);
        for word in has {
            assert!(options.iter().any(|o| o == word), "{handed_on}: {word} is missing: {options:?}");
        }
        for word in has_not {
            assert!(!options.iter().any(|o| o == word), "{handed_on}: {word} is there: {options:?}");
        }
        good(["umount", text(&point)]);
    }
    let plain = cluster.mount("plain", "");
    let options = options_of(&plain.0);
    assert!(["nosuid", "nodev"].iter().all(|w| options.iter().any(|o| o == w)), "{options:?}");
}

#[test]
fn a_mount_that_is_sync_syncs_each_write() {
    needs!(Mounts);
    let cluster = Cluster::new(1);
    let mount = cluster.mount("mnt", "sync");
    std::fs::write(mount.path("file"), b"").unwrap();
    let synced = || {
        let status: serde_json::Value =
            serde_json::from_str(&good(["status", text(&mount.0), "--json"])).unwrap();
        let fuse = status["processes"][0]["mounts"][0]["fuse"].as_array().unwrap().clone();
        fuse.iter().find(|c| c["operation"] == "FSYNC").map_or(0, |c| c["requests"].as_u64().unwrap())
    };
    let before = synced();
    let mut file = std::fs::File::options().write(true).open(mount.path("file")).unwrap();
    for _ in 0..10 {
        std::io::Write::write_all(&mut file, b"x").unwrap();
    }
    // Through the pages of the kernel, which asks for it then. What the mount does without that: `atoll-fuse`, `writes`.
    assert_eq!(synced() - before, 10);
}
