//! A node that has lost the copies that it kept gets them again from the others, over processes and without a command.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use atoll_needs::needs;
use common::{Cluster, Mounted, bad, eventually, good, text};

/// Bytes of a file that its record carries, and of one that it names.
const SMALL: usize = 30_000;
const LARGE: usize = 300_000;

/// Eight directories, as many of each island as of the others: names that differ little may all hash to one island.
fn eight_dirs(mount: &Mounted, islands: usize) -> Vec<PathBuf> {
    let (mut dirs, mut of_each) = (Vec::new(), vec![0; islands]);
    for n in 0.. {
        let dir = mount.path(&format!("dir{n}"));
        std::fs::create_dir(&dir).unwrap();
        let told: serde_json::Value = serde_json::from_str(&good(["explain", text(&dir), "--json"])).unwrap();
        let island = told["owner"].as_u64().expect("every directory has an owner") as usize;
        if of_each[island] == 8usize.div_ceil(islands) {
            std::fs::remove_dir(&dir).unwrap();
            continue;
        }
        of_each[island] += 1;
        dirs.push(dir);
        if dirs.len() == 8 {
            break;
        }
    }
    dirs
}

/// Files in directories, so many in each, and what is in them.
fn fill_with_files(dirs: &[PathBuf], in_each: u8) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for (n, dir) in (0..).zip(dirs) {
        for m in 0..in_each {
            let bytes = vec![n * 16 + m % 16; if m == 0 { LARGE } else { SMALL - usize::from(m) }];
            let path = dir.join(format!("file{m}"));
            std::fs::write(&path, &bytes).unwrap();
            files.push((path, bytes));
        }
    }
    files
}

/// Whether the log of a copy begins behind its first record.
fn has_let_go(island: &Path) -> bool {
    let first = island.join("log").join(format!("{:016x}.log", 1));
    island.is_dir() && !first.exists()
}

#[test]
fn a_node_that_lost_its_islands_is_filled_without_a_command() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "");
    let mut files = fill_with_files(&eight_dirs(&mount, 2), 150);
    let folder = |cluster: &Cluster, node| cluster.data(node).join("islands/home");
    eventually("logs have let go of their beginning", || {
        std::thread::sleep(Duration::from_millis(500));
        let is_done = (0..2).all(|island: u16| has_let_go(&folder(&cluster, 1).join(island.to_string())));
        if !is_done {
            files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        }
        is_done
    });
    cluster.kill(2);
    eventually("node 2 is out", || !cluster.in_sync(2));
    for island in 0..2 {
        std::fs::remove_dir_all(folder(&cluster, 2).join(format!("{island}"))).unwrap();
        std::fs::remove_file(folder(&cluster, 2).join(format!("{island}.seat"))).unwrap();
    }
    cluster.start(2);
    // Clients go on.
    let mut rounds = 0;
    eventually("both copies are in sync again", || {
        rounds += 1;
        for (path, bytes) in files.iter_mut().step_by(37) {
            bytes[100..107].copy_from_slice(&format!("{rounds:07}").into_bytes());
            std::fs::write(path, &bytes).unwrap();
        }
        cluster.in_sync(2)
    });
    for island in 0..2 {
        let island = folder(&cluster, 2).join(format!("{island}"));
        assert!(!island.join("fill").exists() && has_let_go(&island), "{} was not filled", island.display());
    }
    // The other node is lost for good: nothing is.
    cluster.kill(1);
    for (path, bytes) in &files {
        assert!(std::fs::read(path).unwrap() == *bytes, "{} is another one", path.display());
    }
    let tree = folder(&cluster, 2);
    eventually("the plain trees have everything", || {
        let names = (0..2).map(|island| tree.join(format!("{island}/tree")));
        names.map(|tree| count(&tree)).sum::<usize>() == files.len()
    });
}

/// Where nodes keep the islands of a volume.
fn islands_of(cluster: &Cluster, node: usize, volume: &str) -> PathBuf {
    cluster.data(node).join("islands").join(volume)
}

/// Removes all that a node keeps of its islands, as on a disk that is new.
fn wipe(cluster: &Cluster, node: usize) {
    for volume in ["home", "two"] {
        for entry in std::fs::read_dir(islands_of(cluster, node, volume)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name.parse::<u16>().is_ok() {
                std::fs::remove_dir_all(&path).unwrap();
                std::fs::remove_file(path.with_extension("seat")).unwrap();
            }
        }
    }
}

/// A program that writes files into a mount, and remembers what was acknowledged.
struct Client {
    ends: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    runs: JoinHandle<BTreeMap<PathBuf, Vec<u8>>>,
}

impl Client {
    fn begin(dirs: Vec<PathBuf>) -> Self {
        let (ends, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stop, count) = (Arc::clone(&ends), Arc::clone(&written));
        let runs = std::thread::spawn(move || {
            let mut all = BTreeMap::new();
            for n in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // New files, and others that are written again.
                let path = dirs[n as usize % dirs.len()].join(format!("c{}", n % 3_000));
                let len = if n % 50 == 0 { LARGE } else { 500 + (n % 7) as usize * 3_000 };
                let bytes: Vec<u8> = (0..len).map(|at| (at as u64 / 700 + n) as u8).collect();
                std::fs::write(&path, &bytes).unwrap();
                if n % 10 == 0 {
                    std::fs::File::open(&path).unwrap().sync_all().unwrap();
                }
                all.insert(path, bytes);
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
            all
        });
        Self { ends, written, runs }
    }

    /// Waits until it has gone on.
    fn goes_on(&self, what: &str) {
        let before = self.written.load(Ordering::Relaxed);
        eventually(what, || self.written.load(Ordering::Relaxed) > before + 5);
    }

    fn end(self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.ends.store(true, Ordering::Relaxed);
        self.runs.join().unwrap()
    }
}

/// What must hold of issue 21: a volume with three copies, and one with two.
#[test]
fn two_of_three_nodes_are_lost_and_one_disk_and_no_byte_and_no_command_is_needed() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(3, 3);
    let addresses = cluster.addresses.join(",");
    good(["volume", "create", "two", "--nodes", &addresses, "--replicas", "2"]);
    let islands = 5;
    eventually("all islands are led, with all copies", || cluster.in_sync(islands));
    let mounts = [
        cluster.mount("mount", "hard"),
        Mounted::new(&format!("{addresses}:/two"), cluster.scratch.dir("mount-two"), "hard"),
    ];
    let dirs = [eight_dirs(&mounts[0], 3), eight_dirs(&mounts[1], 2)];
    let files: Vec<_> = dirs.iter().map(|dirs| fill_with_files(dirs, 150)).collect();
    let has_released = |volume: &str| {
        let all = std::fs::read_dir(islands_of(&cluster, 1, volume)).unwrap();
        let folders = all.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        folders.into_iter().any(|island| has_let_go(&island))
    };
    for (volume, files) in ["home", "two"].into_iter().zip(&files) {
        eventually("a log has let go of its beginning", || {
            files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
            has_released(volume)
        });
    }
    let clients = dirs.map(Client::begin);
    clients.iter().for_each(|client| client.goes_on("clients begin"));
    cluster.kill(2);
    wipe(&cluster, 2);
    clients.iter().for_each(|client| client.goes_on("clients go on without one node"));
    cluster.kill(1);
    cluster.start(1);
    clients.iter().for_each(|client| client.goes_on("clients go on with that which was not wiped"));
    cluster.start(2);
    clients.iter().for_each(|client| client.goes_on("clients go on while copies are filled"));
    eventually("all copies are in sync again", || cluster.in_sync(islands));
    eventually("status tells of no filling any more", || {
        let status = good(["status", &cluster.addresses[0], "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let processes = status["processes"].as_array().unwrap();
        processes.len() >= 3 && processes.iter().all(|process| process["filling"].is_null())
    });
    let acknowledged = clients.map(Client::end);
    // All of one volume comes from a copy that was filled.
    cluster.kill(1);
    let files = files.into_iter().flatten().chain(acknowledged.into_iter().flatten());
    let mut read = 0;
    for (path, bytes) in files {
        assert!(std::fs::read(&path).unwrap() == bytes, "{} is another one", path.display());
        read += 1;
    }
    assert!(read > 2_400, "{read} files");
}

/// Files below a directory.
fn count(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// Someone who changes files all the time while others are looked at. What it has written is there to the end.
struct Writer {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: std::thread::JoinHandle<Vec<(PathBuf, Vec<u8>)>>,
}

impl Writer {
    fn start(dirs: Vec<PathBuf>) -> Self {
        let stop = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let ends = std::sync::Arc::clone(&stop);
        let write = move || {
            let mut files = Vec::new();
            for n in 0_usize.. {
                if ends.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let (path, bytes) =
                    (dirs[n % dirs.len()].join(format!("written{n}")), vec![n as u8; 1 + n % 50_000]);
                std::fs::write(&path, &bytes).unwrap();
                files.push((path, bytes));
                std::thread::sleep(Duration::from_millis(10));
            }
            files
        };
        Self { stop, thread: std::thread::spawn(write) }
    }

    fn end(self) -> Vec<(PathBuf, Vec<u8>)> {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.thread.join().expect("every write succeeds")
    }
}

fn are_as_written(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        assert!(std::fs::read(path).unwrap() == *bytes, "{} is another one", path.display());
    }
}

/// The nodes in whose data directories something of an island is.
fn kept(cluster: &Cluster, island: u16) -> Vec<usize> {
    let has = |node: &usize| {
        let folder = cluster.data(*node).join("islands/home");
        folder.join(island.to_string()).exists() || folder.join(format!("{island}.seat")).exists()
    };
    (0..cluster.addresses.len()).filter(has).collect()
}

/// Waits until all islands are kept by so many nodes, all in sync, and by no other one.
fn has_copies(cluster: &Cluster, islands: u16, copies: usize) {
    eventually(&format!("{copies} copies of each island are in sync"), || {
        let leading = cluster.leading();
        leading.len() == usize::from(islands)
            && leading
                .iter()
                .all(|(_, island)| island["copies_in_sync"] == copies && island["copies_wanted"] == copies)
    });
    eventually(&format!("{copies} nodes have something of each island"), || {
        (0..islands).all(|island| kept(cluster, island).len() == copies)
    });
}

fn set(cluster: &Cluster, node: usize, what: &[&str]) -> String {
    let data = cluster.data(node);
    good([&["volume", "set", "home", "--data", text(&data)], what].concat())
}

#[test]
fn a_volume_in_use_gets_two_copies_three_and_one_again() {
    needs!(Mounts);
    let mut cluster = Cluster::new(3);
    let mount = cluster.mount("mount", "");
    let dirs = eight_dirs(&mount, 3);
    let mut files = fill_with_files(&dirs, 15);
    let writer = Writer::start(dirs);
    let said = set(&cluster, 1, &["--replicas", "2", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&told["replicas"], &told["grace_s"]), (&2.into(), &300.into()));
    has_copies(&cluster, 3, 2);
    set(&cluster, 2, &["--replicas", "3"]);
    has_copies(&cluster, 3, 3);
    // Any of the nodes may be lost now, but the one with the control store.
    cluster.kill(2);
    are_as_written(&files);
    cluster.start(2);
    has_copies(&cluster, 3, 3);
    set(&cluster, 0, &["--replicas", "1"]);
    has_copies(&cluster, 3, 1);
    files.extend(writer.end());
    are_as_written(&files);
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.start(node);
    }
    are_as_written(&files);
    has_copies(&cluster, 3, 1);
    let tree = |island| cluster.data(kept(&cluster, island)[0]).join(format!("islands/home/{island}/tree"));
    eventually("the plain trees of the copies that stay have everything", || {
        (0..3).map(|island| count(&tree(island))).sum::<usize>() == files.len()
    });
}

#[test]
fn a_node_that_is_away_for_longer_than_the_grace_is_replaced_and_one_that_is_back_earlier_is_not() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(4, 2);
    let mount = cluster.mount("mount", "");
    let mut files = fill_with_files(&eight_dirs(&mount, 3), 15);
    let rings: Vec<Vec<usize>> = (0..3).map(|island| kept(&cluster, island)).collect();
    let rewrite = |files: &mut Vec<(PathBuf, Vec<u8>)>, byte: u8| {
        for (path, bytes) in files.iter_mut().step_by(11) {
            bytes.fill(byte);
            std::fs::write(path, bytes).unwrap();
        }
    };
    cluster.kill(3);
    rewrite(&mut files, 1);
    cluster.start(3);
    eventually("it is back, by log", || cluster.in_sync(3));
    assert_eq!((0..3).map(|island| kept(&cluster, island)).collect::<Vec<_>>(), rings);
    set(&cluster, 1, &["--grace", "2"]);
    cluster.kill(3);
    rewrite(&mut files, 2);
    eventually("the others keep all islands", || cluster.in_sync(3));
    rewrite(&mut files, 3);
    assert!(
        (0..3).all(|island| kept(&cluster, island).starts_with(&[1, 2])),
        "the node of the store is spared"
    );
    // What it kept is wanted no more: it hears of that, and neither serves nor leads.
    cluster.start(3);
    eventually("its copies are gone", || (0..3).all(|island| kept(&cluster, island) == [1, 2]));
    are_as_written(&files);
    cluster.kill(1);
    are_as_written(&files);
}

#[test]
fn what_a_volume_cannot_be_is_refused_and_a_node_more_makes_it_possible() {
    let cluster = Cluster::bare(3);
    let [first, second, third] = &cluster.addresses[..] else { unreachable!("there are three") };
    let two = [first.as_str(), second].join(",");
    good(["volume", "create", "home", "--nodes", &two, "--islands-per-node", "1"]);
    let refused = |words: &[&str]| bad([&["volume", "set"], words, &["--at", second]].concat());
    for (words, why) in [
        (&["other", "--replicas", "2"][..], "There is no volume \"other\""),
        (&["home", "--replicas", "3"], "3 copies need 3 nodes, and volume home has 2"),
        (&["home", "--replicas", "3"], "atoll volume set home --add HOST:PORT"),
        (&["home", "--replicas", "0"], "0 copies are not possible: 1 to 16 are"),
        (&["home", "--copies", "17"], "17 copies are not possible"),
        (&["home", "--add", second], "is a node of volume home already"),
        (&["home", "--add", "127.0.0.1:1"], "127.0.0.1:1 cannot be reached"),
    ] {
        let said = refused(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let version = || {
        let told: serde_json::Value =
            serde_json::from_str(&good(["volume", "list", first, "--json"])).unwrap();
        told[0]["table_version"].as_u64().unwrap()
    };
    assert_eq!(version(), 1, "nothing was changed");
    let said = good(["volume", "set", "home", "--add", third, "--at", second]);
    assert!(said.contains("2 islands on 3 nodes, 1 copies of each"), "{said}");
    assert!(refused(&["home", "--add", third]).contains("is a node of volume home already"));
    good(["volume", "set", "home", "--replicas", "3", "--at", third]);
    has_copies(&cluster, 2, 3);
}
