//! Volumes whose islands have copies, over processes: a node that dies takes nothing along, and nobody is told of an error.

mod common;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atoll_needs::needs;
use common::{Cluster, Mounted, bad, eventually, good, text};
use rustix::fs::FlockOperation;

/// How long a call may take while another copy begins to lead, on a machine that is busy.
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// Directories of all islands, each with a file of 300,000 bytes.
fn dirs_with_files(mount: &Mounted) -> Vec<PathBuf> {
    let dirs: Vec<_> = (0..8).map(|n| mount.path(&format!("dir{n}"))).collect();
    for dir in &dirs {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("large"), vec![7; 300_000]).unwrap();
    }
    dirs
}

/// The island and the epoch of each copy that leads, by node, as `atoll status` says.
fn led(cluster: &Cluster) -> Vec<(u64, u64, u64)> {
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let leading = cluster.leading().into_iter();
    let mut led: Vec<_> = leading.map(|(n, of)| (number(&of["island"]), n, number(&of["epoch"]))).collect();
    led.sort_unstable();
    led
}

#[test]
fn another_copy_leads_when_it_is_told_to_and_the_first_of_each_group_leads_at_first() {
    needs!(Mounts);
    let cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "");
    std::fs::write(mount.path("file"), b"content").unwrap();
    eventually("each island is led", || led(&cluster).len() == 2);
    assert_eq!(led(&cluster), [(0, 1, 1), (1, 2, 1)], "node 0 has the control store, and no copies");
    let shown = good(["status", &cluster.addresses[1]]);
    assert!(shown.contains("leads here for ") && shown.contains("in sync 2 of 2: nodes 1, 2"), "{shown}");
    let told = good(["island", "move", text(&mount.0), "0", "2"]);
    assert!(told.contains("island 0 is led by node 2"), "{told}");
    std::fs::write(mount.path("file"), b"more").unwrap();
    assert_eq!(led(&cluster), [(0, 2, 2), (1, 2, 1)]);
    eventually("node 1 is in sync again", || {
        let status = good(["status", &cluster.addresses[2]]);
        !status.contains("FEWER COPIES")
    });
    // It is so already; back by the source instead of the mount; and what cannot be.
    good(["island", "move", text(&mount.0), "0", "2"]);
    good(["island", "move", &cluster.source(), "0", "1"]);
    assert_eq!(std::fs::read(mount.path("file")).unwrap(), b"more");
    for (island, node, why) in [("7", "1", "has no island 7"), ("0", "0", "Its copies are on nodes 1, 2")] {
        let said = bad(["island", "move", text(&mount.0), island, node]);
        assert!(said.contains(why), "{said}");
    }
    let told: serde_json::Value = serde_json::from_str(&good(["explain", text(&mount.0), "--json"])).unwrap();
    assert_eq!(told["copies"], serde_json::json!([1, 2]));
}

/// What `atoll explain --json` says of the copies: node, role and plain path of each that answers.
fn explained(path: &std::path::Path) -> (serde_json::Value, Vec<(u64, String, String)>) {
    let told: serde_json::Value = serde_json::from_str(&good(["explain", text(path), "--json"])).unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let traces = told["traces"].as_array().unwrap().iter();
    let traces = traces.map(|t| (t["node"].as_u64().unwrap(), word(&t["role"]), word(&t["plain"]))).collect();
    (told, traces)
}

#[test]
fn who_asks_is_told_what_each_copy_has_who_leads_since_when_and_what_is_left() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "");
    let file = mount.path("file");
    std::fs::write(&file, b"content").unwrap();
    eventually("each island is led", || led(&cluster).len() == 2);
    let plains: Vec<_> = (0..3).map(|node| cluster.data(node).join("islands/home/0/tree/file")).collect();
    let plain = |node: usize| text(&plains[node]).to_owned();
    let both = [(1, "leads".to_owned(), plain(1)), (2, "follows".to_owned(), plain(2))];
    eventually("both copies have the file", || explained(&file).1 == both);
    let (told, _) = explained(&file);
    assert_eq!(told["group"]["in_sync"], serde_json::json!([1, 2]));
    assert_eq!((&told["group"]["primary"], &told["group"]["epoch"]), (&1.into(), &1.into()));
    assert!(told["traces"].as_array().unwrap().iter().all(|t| t["is_there"] == true), "{told}");
    // Each island counts once, although several copies answer. The root is in all skeletons.
    assert_eq!((&told["away"], &told["skeleton"]), (&serde_json::json!([]), &serde_json::json!([0, 1])));
    let shown = good(["explain", text(&file)]);
    assert!(
        shown.contains("group    node 1 leads for ") && shown.contains("in sync 2 of 2: nodes 1, 2"),
        "{shown}"
    );
    assert!(shown.contains(&format!("copy     node 2  follows  {}", plain(2))), "{shown}");
    cluster.kill(1);
    std::fs::write(&file, b"more").unwrap();
    let (told, traces) = explained(&file);
    assert_eq!(traces, [(2, "leads".to_owned(), plain(2))]);
    assert_eq!((&told["group"]["epoch"], &told["node"]), (&2.into(), &2.into()));
    let shown = good(["status", text(&mount.0)]);
    assert!(shown.contains("in sync 1 of 2: nodes 2  FEWER COPIES THAN WANTED"), "{shown}");
    assert!(shown.contains("control store on node 0  keeps the control store, and no copies"), "{shown}");
    // Everything that it says of copies is a metric with its meaning written down.
    let manual = include_str!("../../../../docs/OPERATIONS.md");
    let status: serde_json::Value =
        serde_json::from_str(&good(["status", text(&mount.0), "--json"])).unwrap();
    let all = status["processes"].as_array().unwrap().iter();
    let mut islands =
        all.flat_map(|p| p["volumes"].as_array().unwrap()).flat_map(|v| v["islands"].as_array().unwrap());
    let island = islands.find(|island| island["leads"] == 1).unwrap().as_object().unwrap();
    let of_copies =
        |name: &&String| name.starts_with("copies_") || name.starts_with("epoch") || *name == "leads";
    let names: Vec<&String> = island.keys().filter(of_copies).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    for name in names {
        assert!(
            manual.contains(&format!("| `atoll_island_{name}` |")),
            "OPERATIONS.md does not say what {name} means"
        );
    }
    cluster.start(1);
    eventually("all copies are in sync again", || {
        !good(["status", text(&mount.0)]).contains("FEWER COPIES") && explained(&file).1.len() == 2
    });
    // It follows only, and tells of its disk all the same.
    assert!(!good(["status", text(&mount.0)]).contains("free 0 B of 0 B"));
}

#[test]
fn a_node_that_is_killed_takes_nothing_along_and_comes_back() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(4, 2);
    let mount = cluster.mount("mount", "");
    let dirs = dirs_with_files(&mount);
    // The first one has the control store, and no copies.
    for victim in [1, 2, 3, 1] {
        cluster.kill(victim);
        for (n, dir) in dirs.iter().enumerate() {
            let since = Instant::now();
            let content = format!("{victim} {n}");
            std::fs::write(dir.join("small"), &content).unwrap();
            assert_eq!(std::fs::read_to_string(dir.join("small")).unwrap(), content);
            assert!(since.elapsed() < PAUSE_MAX, "{:?}", since.elapsed());
            assert_eq!(std::fs::read(dir.join("large")).unwrap(), vec![7; 300_000]);
        }
        cluster.start(victim);
        eventually("all copies are in sync again", || cluster.in_sync(3));
    }
}

#[test]
fn nodes_that_are_stopped_at_once_end_in_order() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(4, 2);
    let mount = cluster.mount("mount", "");
    let dirs = dirs_with_files(&mount);
    let mut daemons: Vec<_> = cluster.nodes.iter_mut().map(|daemon| daemon.take().unwrap()).collect();
    daemons.iter().for_each(|daemon| daemon.interrupt());
    for (node, daemon) in daemons.iter_mut().enumerate() {
        assert!(daemon.wait(), "node {node}");
    }
    (0..4).for_each(|node| cluster.start(node));
    for dir in &dirs {
        assert_eq!(std::fs::read(dir.join("large")).unwrap(), vec![7; 300_000]);
    }
}

#[test]
fn a_call_waits_as_long_as_its_mount_says_although_all_nodes_were_away_for_long() {
    needs!(Mounts);
    const SOFT: Duration = Duration::from_secs(20);
    let mut cluster = Cluster::with_copies(4, 2);
    let mount = cluster.mount("mount", "soft=20");
    let dirs = dirs_with_files(&mount);
    let all_away = |cluster: &mut Cluster| {
        cluster.nodes.iter().flatten().for_each(|daemon| daemon.interrupt());
        let mut daemons: Vec<_> = cluster.nodes.iter_mut().map(|daemon| daemon.take().unwrap()).collect();
        assert!(daemons.iter_mut().all(|daemon| daemon.wait()));
        // A stat of the root is told what is known from now on.
        std::thread::sleep(Duration::from_secs(9));
    };
    all_away(&mut cluster);
    let stat = {
        let path = dirs[1].join("large");
        std::thread::spawn(move || std::fs::metadata(path))
    };
    (0..4).for_each(|node| cluster.start(node));
    assert_eq!(stat.join().unwrap().unwrap().len(), 300_000);
    assert_eq!(std::fs::read_dir(&mount.0).unwrap().count(), dirs.len());
    // One has waited in vain. Others do not wait then, until there are nodes again.
    all_away(&mut cluster);
    let since = Instant::now();
    let error = std::fs::metadata(dirs[0].join("large")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    assert!(since.elapsed() >= SOFT, "{:?}", since.elapsed());
    (0..4).for_each(|node| cluster.start(node));
    eventually("the mount is connected to all nodes", || {
        let told = good(["status", text(&mount.0), "--json"]);
        let status: serde_json::Value = serde_json::from_str(&told).unwrap();
        let all = |value: &serde_json::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let mounts = all(&status, "processes").into_iter().flat_map(|process| all(&process, "mounts"));
        let nodes: Vec<_> = mounts.flat_map(|mount| all(&mount, "nodes")).collect();
        nodes.len() == 4 && nodes.iter().all(|node| node["up"] == true)
    });
    for dir in &dirs {
        assert_eq!(std::fs::read(dir.join("large")).unwrap(), vec![7; 300_000]);
    }
}

#[test]
fn programs_go_on_when_the_node_that_they_use_dies() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(4, 2);
    let (hard, soft) = (cluster.mount("hard", ""), cluster.mount("soft", "soft=3"));
    let dir = hard.path("dir");
    std::fs::create_dir(&dir).unwrap();
    let open = || {
        let how = std::fs::OpenOptions::new().read(true).write(true).create(true).clone();
        how.open(dir.join("file")).unwrap()
    };
    let mut file = open();
    file.write_all(b"before").unwrap();
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go; cat file; echo more > new; pwd -P"]).current_dir(&dir);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let victim = cluster.owner(&dir);
    cluster.kill(victim);
    // An open file, its lock, and a working directory.
    file.write_all(b" and after").unwrap();
    let taken = rustix::fs::flock(open(), FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken, Err(rustix::io::Errno::WOULDBLOCK));
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = shell.wait_with_output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said, format!("before and after{}\n", dir.display()));
    assert_eq!(std::fs::read(soft.path("dir/new")).unwrap(), b"more\n");
    // With the other copy gone nobody can lead, and a call fails when it has waited so long since it was made.
    let other = (1..4).find(|node| *node != victim && cluster.owner(&dir) == *node).expect("it leads now");
    cluster.kill(other);
    let since = Instant::now();
    let error = std::fs::write(soft.path("dir/new"), b"lost").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    assert!(since.elapsed() >= Duration::from_secs(3), "{:?}", since.elapsed());
    // The hard mount waits, and goes on when they are back.
    let waits = {
        let path = dir.join("late");
        std::thread::spawn(move || std::fs::write(path, b"content"))
    };
    cluster.start(victim);
    cluster.start(other);
    waits.join().unwrap().unwrap();
    file.write_all(b", and at last").unwrap();
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"before and after, and at last");
}
