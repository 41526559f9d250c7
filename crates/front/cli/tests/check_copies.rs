//! `atoll check` with the data directories of several nodes: copies of islands are compared, and nothing in them is changed.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_core::sum::sum;
use atoll_core::{Encode, Stamp};
use atoll_disk::real::RealDisk;
use atoll_needs::needs;
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
use common::{Cluster, Daemon, Mounted, PATIENCE, bad, eventually, run, text};
use serde_json::Value;

static CONTENT: [u8; 100_000] = [b'x'; 100_000];

/// Nodes 0, 1 and 2, which were stopped. Their volume has two islands, each with a copy on nodes 1 and 2; node 0 has the control
/// store. What is done to it is done to a copy of the data directories.
struct Stopped {
    cluster: Cluster,
    data: Vec<PathBuf>,
    times: usize,
}

const DIRS: usize = 16;

/// A directory of the volume. Names that differ in few bits may all belong to one island.
fn dir(n: usize) -> String {
    format!("dir{:08x}", (n as u32).wrapping_mul(0x9e37_79b9))
}

fn write(mount: &Path, name: &str) {
    for n in 0..DIRS {
        let dir = mount.join(dir(n));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(name), CONTENT).unwrap();
        std::fs::hard_link(dir.join(name), mount.join(format!("{name}{n}"))).unwrap();
    }
}

impl Stopped {
    /// Nodes that run, with some files.
    fn running() -> (Self, Mounted) {
        let cluster = Cluster::with_copies(3, 2);
        let mount = cluster.mount("mount", "hard");
        write(&mount.0, "file");
        let data = (0..3).map(|node| cluster.data(node)).collect();
        let running = Self { cluster, data, times: 0 };
        // Whoever has the file learns a moment later that it has a name in a directory of another island.
        let has_link = |node, n| {
            (0..2).any(|island| running.island(node, island).join(format!("tree/file{n}")).exists())
        };
        eventually("the plain trees have all names", || {
            (1..3).all(|node| (0..DIRS).all(|n| has_link(node, n)))
        });
        running.wait_in_sync();
        (running, mount)
    }

    /// Starts all nodes. Returns when all copies are in sync.
    fn start(&mut self) {
        (0..3).for_each(|node| self.cluster.start(node));
        self.wait_in_sync();
    }

    /// A copy that is not in sync may have records that are to be cut off, and cannot lead.
    fn wait_in_sync(&self) {
        eventually("all copies are in sync", || self.cluster.in_sync(2));
    }

    /// Kills node 2, and returns when node 1 leads all islands without it. A copy that was dropped just before, as on a machine
    /// that is busy, cannot: then node 2 comes back first.
    fn kill_second(&mut self) {
        let goes_on = |(node, island): &(u64, Value)| *node == 1 && island["copies_in_sync"] == 1;
        for _ in 0..3 {
            self.wait_in_sync();
            self.cluster.kill(2);
            let since = Instant::now();
            while since.elapsed() < PATIENCE {
                let leading = self.cluster.leading();
                if leading.len() == 2 && leading.iter().all(goes_on) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            self.cluster.start(2);
        }
        panic!("node 1 does not go on alone");
    }

    fn stop(&mut self) {
        // An island goes from node to node if they are not told together.
        self.cluster.nodes.iter().flatten().for_each(Daemon::interrupt);
        for node in &mut self.cluster.nodes {
            assert!(node.take().is_none_or(|mut node| node.wait()));
        }
    }

    /// Nodes that were stopped in order.
    fn in_order() -> Self {
        let (mut stopped, mount) = Self::running();
        drop(mount);
        stopped.stop();
        let (_, told) = stopped.check(&[]);
        assert_eq!(found(&told), [], "{told:#}");
        stopped
    }

    /// A copy of the data directories as they were stopped.
    fn again(&mut self) -> Self {
        self.times += 1;
        let folder = self.cluster.scratch.dir(&format!("again{}", self.times));
        let data: Vec<_> = (0..3).map(|node| folder.join(format!("data{node}"))).collect();
        for (node, to) in data.iter().enumerate() {
            copy(&self.cluster.data(node), to);
        }
        Self { cluster: Cluster::bare(0), data, times: 0 }
    }

    fn check(&self, options: &[&str]) -> (Option<i32>, Value) {
        check(&self.data, options)
    }

    fn island(&self, node: u64, island: u64) -> PathBuf {
        self.data[node as usize].join(format!("islands/home/{island}"))
    }
}

/// `cp -a` of a whole directory.
fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

fn check(data: &[PathBuf], options: &[&str]) -> (Option<i32>, Value) {
    let options = ["check", "--json", "--read"].iter().chain(options).copied();
    let output = run(options.chain(["--data"]).chain(data.iter().map(|path| text(path))));
    let said = String::from_utf8_lossy(&output.stderr);
    let told = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
    (output.status.code(), told)
}

/// Rule, island and node of each finding.
fn found(told: &Value) -> Vec<(&str, u64, u64)> {
    let number = |f: &Value, key: &str| f[key].as_u64().unwrap_or(99);
    let findings = told["findings"].as_array().unwrap().iter();
    findings.map(|f| (f["rule"].as_str().unwrap(), number(f, "island"), number(f, "node"))).collect()
}

/// The next step of a finding of this rule.
fn next<'a>(told: &'a Value, rule: &str) -> &'a str {
    let of_rule = |f: &&Value| f["rule"] == rule;
    told["findings"].as_array().unwrap().iter().find(of_rule).expect(rule)["next"].as_str().unwrap()
}

/// Carries out a next step that is a line for a shell.
fn carry_out(next: &str) {
    let line = next.split_once(": ").unwrap().1;
    assert!(std::process::Command::new("sh").args(["-ec", line]).status().unwrap().success(), "{line}");
}

/// Every name, byte and time of change below a folder.
fn everything(folder: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![folder.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let stat = std::fs::symlink_metadata(&path).unwrap();
            let bytes = if stat.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            all.insert(path.clone(), (stat.ino(), stat.ctime(), stat.ctime_nsec(), bytes));
            if stat.is_dir() {
                dirs.push(path);
            }
        }
    }
    all
}

/// Does something that may change no island.
fn unchanged<R>(stopped: &Stopped, act: impl FnOnce() -> R) -> R {
    let folders: Vec<_> = stopped.data.iter().map(|data| data.join("islands")).collect();
    let before: Vec<_> = folders.iter().map(|folder| everything(folder)).collect();
    let done = act();
    for (folder, before) in folders.iter().zip(before) {
        let after = everything(folder);
        let changed: Vec<_> = after.keys().filter(|path| before.get(*path) != after.get(*path)).collect();
        assert!(changed.is_empty() && after.len() == before.len(), "{changed:?}");
    }
    done
}

/// The copies of an island: that with which the other is compared, and the other.
fn copies(told: &Value, island: u64) -> (u64, u64) {
    let copies = told["copies"].as_array().unwrap().iter().filter(|copy| copy["island"] == island);
    let (reference, other): (Vec<&Value>, _) = copies.partition(|copy| copy["is_reference"] == true);
    assert_eq!((reference.len(), other.len()), (1, 1), "{told:#}");
    (reference[0]["node"].as_u64().unwrap(), other[0]["node"].as_u64().unwrap())
}

/// A copy of an island without which nothing that was acknowledged is lost. A node that stops may have dropped the other one.
fn spare(told: &Value, island: u64) -> u64 {
    let mut copies = told["copies"].as_array().unwrap().iter().filter(|copy| copy["island"] == island).rev();
    let whole = copies.find(|copy| copy["has_all"] == true).expect("one has everything");
    3 - whole["node"].as_u64().unwrap()
}

/// Records that the copies that were compared lacked.
fn behind(told: &Value) -> u64 {
    let copies = told["copies"].as_array().unwrap().iter();
    copies.filter_map(|copy| copy["behind"].as_u64()).sum()
}

/// A file of an island's plain tree, and its name there.
fn plain(island: &Path) -> PathBuf {
    let names = (0..DIRS).map(|n| island.join("tree").join(dir(n)).join("file"));
    names.into_iter().find(|path| path.exists()).expect("the plain tree has files")
}

/// The bytes of one of the files, whether the plain tree has it or not.
fn a_body(island: &Path) -> PathBuf {
    let all = everything(&island.join("bodies"));
    all.into_iter().find(|(_, (.., bytes))| bytes.len() == CONTENT.len()).expect("it has files").0
}

#[test]
fn copies_that_were_stopped_are_the_same_and_no_byte_of_them_is_changed() {
    needs!(Mounts);
    let stopped = Stopped::in_order();
    for options in [&[][..], &["--repair"], &["--repair", "--dry-run"]] {
        let (code, told) = unchanged(&stopped, || stopped.check(options));
        assert_eq!((code, found(&told)), (Some(0), Vec::new()), "{told:#}");
        assert_eq!((told["islands"].as_u64(), told["copies"].as_array().unwrap().len()), (Some(2), 4));
        assert_eq!(told["notes"].as_array().unwrap().len(), usize::from(!options.is_empty()), "{told:#}");
        let compared = told["copies"].as_array().unwrap().iter().filter(|c| c["compared_with"].is_u64());
        assert_eq!(compared.count(), 2, "{told:#}");
        // In either copy of each island.
        let files = (told["files"].as_u64().unwrap(), told["bytes_read"].as_u64().unwrap());
        assert_eq!(files, (DIRS as u64, 2 * (DIRS * CONTENT.len()) as u64));
    }
    // One node alone: nothing is compared, and that is said.
    let (code, told) = unchanged(&stopped, || check(&stopped.data[1..2], &[]));
    assert_eq!((code, found(&told)), (Some(0), Vec::new()), "{told:#}");
    assert!(told["notes"][0].as_str().unwrap().contains("nothing was compared"), "{told:#}");
    let said = bad(["check", "--data", text(&stopped.data[1]), text(&stopped.data[1])]);
    assert!(said.contains("twice"), "{said}");
}

#[test]
fn copies_whose_nodes_were_killed_are_compared_at_one_record() {
    needs!(Mounts);
    let (mut stopped, mount) = Stopped::running();
    // One of them lacks all that comes now.
    stopped.kill_second();
    write(&mount.0, "more");
    stopped.cluster.kill(1);
    stopped.cluster.kill(0);
    common::detach(&mount.0);
    drop(mount);
    let (code, told) = unchanged(&stopped, || stopped.check(&[]));
    assert_eq!((code, found(&told)), (Some(0), Vec::new()), "{told:#}");
    for island in 0..2 {
        assert_eq!(copies(&told, island), (1, 2), "the one that went on: {told:#}");
    }
    assert!(behind(&told) > 2 * DIRS as u64, "{told:#}");
    // What differs is found there too.
    for node in 1..3 {
        let body = a_body(&stopped.island(node, 0));
        std::fs::File::options().write(true).open(body).unwrap().write_all_at(b"y", 50_000).unwrap();
    }
    let (_, told) = stopped.check(&[]);
    for node in 1..3 {
        // After a kill it may be the rest of a write that nobody was told of.
        let note = format!("island 0 node {node}: id ");
        let is_noted = told["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains(&note));
        assert!(is_noted || found(&told).contains(&("body-matches", 0, node)), "{told:#}");
    }
}

#[test]
fn a_copy_that_is_being_filled_is_not_told_of_as_damaged() {
    needs!(Mounts);
    let stopped = Stopped::in_order();
    let (_, told) = stopped.check(&[]);
    let node = spare(&told, 0);
    let island = stopped.island(node, 0);
    // Half of its bodies have not come yet.
    let bodies = everything(&island.join("bodies"));
    let lost = bodies.iter().filter(|(_, (.., bytes))| bytes.len() == CONTENT.len()).step_by(2);
    lost.for_each(|(body, _)| std::fs::remove_file(body).unwrap());
    let (code, told) = stopped.check(&[]);
    assert_eq!(code, Some(4), "without the mark they are lost: {told:#}");
    let mark = [&[2][..], &0u64.to_le_bytes(), &7u128.to_le_bytes()].concat();
    std::fs::write(island.join("fill"), [&sum(&mark).to_le_bytes()[..], &mark].concat()).unwrap();
    let (code, told) = unchanged(&stopped, || stopped.check(&[]));
    assert_eq!((code, found(&told)), (Some(0), Vec::new()), "{told:#}");
    let copies = told["copies"].as_array().unwrap().iter();
    let filled: Vec<_> = copies.filter(|copy| copy["not_compared"] == "it is being filled").collect();
    assert_eq!((filled.len(), filled[0]["node"].as_u64()), (1, Some(node)), "{told:#}");
    let said = common::good(["check", "--data", text(&stopped.data[1]), text(&stopped.data[2])]);
    assert!(said.contains("it is being filled from another copy"), "{said}");
    // Nobody takes the damage of a mark for that.
    std::fs::write(island.join("fill"), b"something else").unwrap();
    let (code, told) = stopped.check(&[]);
    assert!(code == Some(4) && found(&told).contains(&("opens", 0, node)), "{told:#}");
}

#[test]
fn what_differs_in_a_copy_is_named_and_the_other_copy_is_put_in_its_place() {
    needs!(Mounts);
    let mut stopped = Stopped::in_order();
    let (_, told) = stopped.check(&[]);
    // A byte of a body, in either copy.
    for island in 0..2 {
        let (first, other) = copies(&told, island);
        for node in [first, other] {
            let planted = stopped.again();
            let file =
                std::fs::File::options().write(true).open(plain(&planted.island(node, island))).unwrap();
            file.write_all_at(b"y", 50_000).unwrap();
            let (code, told) = planted.check(&[]);
            assert_eq!(code, Some(4));
            let found = found(&told);
            assert!(found.contains(&("body-matches", island, node)), "{told:#}");
            assert!(found.iter().all(|(_, at, by)| (*at, *by) == (island, node)), "{told:#}");
            let of =
                told["findings"].as_array().unwrap().iter().find(|f| f["rule"] == "body-matches").unwrap();
            assert!(of["paths"][0].as_str().unwrap().contains("/file"), "{told:#}");
            carry_out(next(&told, "body-matches"));
            assert_eq!(found_again(&planted), "[]");
        }
    }
    let (first, other) = copies(&told, 0);
    // A row, in either copy: it is told of the one that is not the reference.
    for node in [first, other] {
        let planted = stopped.again();
        plant_row(&planted.island(node, 0));
        let (code, told) = planted.check(&[]);
        assert_eq!(code, Some(4));
        assert!(found(&told).contains(&("copies-agree", 0, other)), "{told:#}");
        assert!(told.to_string().contains(&format!("node {first} has it otherwise")), "{told:#}");
    }
    // A name in the plain tree, where it lay: of a tree that was copied nobody knows how it was. To lay it anew costs less.
    std::fs::remove_file(plain(&stopped.island(other, 0))).unwrap();
    let (_, told) = unchanged(&stopped, || stopped.check(&[]));
    assert!(found(&told).contains(&("plain-name", 0, other)), "{told:#}");
    assert!(found(&told).iter().all(|(_, at, by)| (*at, *by) == (0, other)), "{told:#}");
    let index = stopped.island(other, 0).join("view.redb");
    assert!(next(&told, "plain-name").contains(&format!("rm {}", index.display())), "{told:#}");
}

fn found_again(planted: &Stopped) -> String {
    let (_, told) = planted.check(&[]);
    format!("{:?}", found(&told))
}

/// Changes a row of a stopped copy that its log does not name: the first one's extended attributes.
fn plant_row(island: &Path) {
    let disk = RealDisk::open(island).unwrap();
    let snapshot = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
    let row = (RowKey::Survived(77).to_bytes(), Some(Stamp::new(77, 3).to_vec()));
    snapshot.commit([row]).unwrap();
}

#[test]
fn a_copy_that_cannot_be_opened_is_named_and_the_other_one_serves_in_its_place() {
    needs!(Mounts);
    let mut stopped = Stopped::in_order();
    let backup = stopped.again();
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("state", |island| std::fs::remove_file(island.join("state.redb")).unwrap()),
        ("cannot be opened", |island| std::fs::write(island.join("state.redb"), [7; 5000]).unwrap()),
        ("log", |island| std::fs::remove_dir_all(island.join("log")).unwrap()),
        ("folder", |island| std::fs::remove_dir_all(island).unwrap()),
        ("seat", |island| std::fs::write(island.with_extension("seat"), [3; 100]).unwrap()),
    ];
    let lost = spare(&stopped.check(&[]).1, 1);
    for (word, damage) in damages {
        let planted = stopped.again();
        damage(&planted.island(lost, 1));
        let (code, told) = planted.check(&[]);
        assert_eq!((code, found(&told)), (Some(4), vec![("opens", 1, lost)]), "{told:#}");
        let what = told["findings"][0]["what"].as_str().unwrap();
        assert!(what.contains(word), "{what}");
        // One that is gone, and one that lies there.
        if ["state", "folder"].contains(&word) {
            carry_out(next(&told, "opens"));
            assert_eq!(found_again(&planted), "[]");
        }
    }
    // A rebuild is not needed, says the same, and changes nothing.
    let planted = stopped.again();
    std::fs::remove_file(planted.island(lost, 1).join("state.redb")).unwrap();
    let data = planted.data.iter().map(|path| text(path));
    let arguments: Vec<_> =
        ["rebuild", "--volume", "home", "--yes", "--data"].into_iter().chain(data).collect();
    let output = unchanged(&planted, || run(arguments.iter()));
    let (said, told) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert!(!output.status.success() && said.contains("needs no rebuild"), "{said}{told}");
    let step = told.lines().find_map(|line| line.trim().strip_prefix("next")).expect(&told);
    carry_out(step);
    assert_eq!(found_again(&planted), "[]");
    // Nor is there another way when no copy is left: the plain trees are named.
    for node in 1..3 {
        std::fs::remove_file(planted.island(node, 1).join("state.redb")).unwrap();
    }
    let output = unchanged(&planted, || run(arguments.iter()));
    let told = String::from_utf8(output.stdout).unwrap();
    let anew = planted.data[0].with_file_name("anew");
    std::fs::create_dir(&anew).unwrap();
    let steps: Vec<_> = told.lines().filter(|line| line.trim().starts_with("cp -a")).collect();
    assert_eq!(steps.len(), 2, "{told}");
    for step in steps {
        carry_out(&format!("next: {}", step.replace("DIR", text(&anew))));
    }
    for n in 0..DIRS {
        let file = std::fs::read(anew.join(dir(n)).join("file"));
        assert_eq!(file.unwrap_or_else(|why| panic!("dir{n}: {why}: {told}")), CONTENT);
        assert_eq!(std::fs::read(anew.join(format!("file{n}"))).unwrap(), CONTENT);
    }
    // An older copy of the folder, put back in the same boot.
    stopped.start();
    let mount = stopped.cluster.mount("again", "hard");
    write(&mount.0, "later");
    drop(mount);
    stopped.stop();
    let old = spare(&stopped.check(&[]).1, 0);
    std::fs::remove_dir_all(stopped.island(old, 0)).unwrap();
    copy(&backup.island(old, 0), &stopped.island(old, 0));
    let (_, told) = stopped.check(&[]);
    assert_eq!(found(&told), [("opens", 0, old)], "{told:#}");
    assert!(told["findings"][0]["what"].as_str().unwrap().contains("older copy"), "{told:#}");
    carry_out(next(&told, "opens"));
    assert_eq!(found_again(&stopped), "[]");
    // And it is served.
    stopped.start();
    let mount = stopped.cluster.mount("served", "hard");
    for n in 0..DIRS {
        assert_eq!(std::fs::read(mount.path(&dir(n)).join("later")).unwrap(), CONTENT);
    }
    write(&mount.0, "last");
    drop(mount);
    stopped.stop();
    assert_eq!(found_again(&stopped), "[]");
}
