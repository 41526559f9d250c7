//! A node that has lost the copies that it kept gets them again from the others, over processes and without a command.

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_needs::needs;
use common::{Cluster, Mounted, eventually};

/// Bytes of a file that its record carries, and of one that it names.
const SMALL: usize = 30_000;
const LARGE: usize = 300_000;

/// Files in directories of all islands, and what is in them.
fn fill_with_files(mount: &Mounted) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for n in 0..8u8 {
        let dir = mount.path(&format!("dir{n}"));
        std::fs::create_dir(&dir).unwrap();
        for m in 0..150u8 {
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
    let mut files = fill_with_files(&mount);
    let folder = |cluster: &Cluster, node| cluster.data(node).join("islands/home");
    // However the directories are spread.
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

/// Files below a directory.
fn count(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}
