//! Failure isolation: four nodes as four processes, one of which is killed.

mod common;

use atoll_needs::needs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Cluster, Mounted, eventually, good, text};

/// Directories directly in the root; each has one below it, and that one another.
const TOPS: usize = 9;

/// Who owns each directory: path below the mount -> node.
type Owners = BTreeMap<String, usize>;

fn paths() -> Vec<String> {
    let tops = (0..TOPS).map(|i| format!("top{i}"));
    let all = tops.flat_map(|top| [top.clone(), format!("{top}/mid"), format!("{top}/mid/deep")]);
    std::iter::once(String::new()).chain(all).collect()
}

/// What a directory holds: the names.
fn expected(path: &str) -> Vec<String> {
    let mut names = vec!["file".to_owned()];
    match path.matches('/').count() {
        _ if path.is_empty() => names.extend((0..TOPS).map(|i| format!("top{i}"))),
        0 => names.push("mid".to_owned()),
        1 => names.push("deep".to_owned()),
        _ => {}
    }
    names.sort();
    names
}

fn make_tree(root: &Path) -> Owners {
    for path in paths() {
        let dir = root.join(&path);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), format!("this is {path}")).unwrap();
    }
    let owner = |path: &String| {
        let dir = root.join(path);
        let told: serde_json::Value = serde_json::from_str(&good(["explain", text(&dir), "--json"])).unwrap();
        (path.clone(), told["node"].as_u64().unwrap() as usize)
    };
    paths().iter().map(owner).collect()
}

fn list(dir: &Path) -> std::io::Result<Vec<String>> {
    let names: std::io::Result<Vec<String>> = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|e| e.file_name().into_string().expect("tests have plain names")))
        .collect();
    let mut names = names?;
    names.sort();
    Ok(names)
}

/// The only errors that what cannot be answered may give.
fn is_honest(error: &std::io::Error) -> bool {
    [libc::EIO, libc::ETIMEDOUT].contains(&error.raw_os_error().unwrap_or(0))
}

/// Looks at one directory with one node gone; what is not as promised.
fn look(root: &Path, path: &str, owners: &Owners, lost: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_lost = owners[path] == lost;
    let dir = root.join(path);
    let mut expect = |what: &str, result: Result<(), std::io::Error>| match (result, is_lost) {
        (Ok(()), false) => {}
        (Err(error), true) if is_honest(&error) => {}
        (Ok(()), true) => wrong.push(format!("{what} of /{path} works although its node is gone")),
        (Err(error), _) => wrong.push(format!("{what} of /{path} (lost: {is_lost}): {error}")),
    };
    expect(
        "listing",
        list(&dir).map(|names| assert_eq!(names, expected(path), "a listing of /{path} differs")),
    );
    let read = std::fs::read_to_string(dir.join("file"));
    expect("reading", read.map(|bytes| assert_eq!(bytes, format!("this is {path}"))));
    // A name that is not there: known for certain, or not at all.
    let absent = std::fs::symlink_metadata(dir.join("absent"));
    let absent = match absent {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => panic!("a file that nobody made"),
    };
    expect("absence", absent);
    let made = dir.join("made");
    let create = File::options().write(true).create_new(true).mode(0o644).open(&made);
    expect(
        "making a file",
        create.and_then(|mut file| file.write_all(b"x")).and_then(|()| std::fs::remove_file(&made)),
    );
    // A directory that is lost can still be looked at if another node has its stub or needs it to
    // get to what is below: that is how one walks through it.
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let below = |other: &String| path.is_empty() || other.starts_with(&format!("{path}/"));
    let is_known =
        owners[parent] != lost || owners.iter().any(|(other, owner)| below(other) && *owner != lost);
    match std::fs::metadata(&dir) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => wrong.push(format!("/{path} is no directory any more")),
        Err(error) if is_lost && !is_known && is_honest(&error) => {}
        Err(error) => wrong.push(format!("stat of /{path} (lost: {is_lost}): {error}")),
    }
    wrong
}

/// How long a mount may still show whole answers that it was given before a node went away.
const KEPT_MAX: Duration = Duration::from_secs(15);

/// Looks at all directories, until nothing is wrong but for a while, that what was kept still works.
fn look_at_all(root: &Path, owners: &Owners, lost: usize) {
    let until = Instant::now() + KEPT_MAX;
    loop {
        let wrong = look_once(root, owners, lost);
        let is_kept = |line: &String| line.contains("works although");
        if wrong.is_empty() {
            return;
        }
        let may_wait = wrong.iter().all(is_kept) && Instant::now() < until;
        assert!(may_wait, "with node {lost} gone:\n{}", wrong.join("\n"));
    }
}

/// Looks at all at once, since what is lost keeps one waiting.
fn look_once(root: &Path, owners: &Owners, lost: usize) -> Vec<String> {
    std::thread::scope(|scope| {
        let looks: Vec<_> =
            owners.keys().map(|path| scope.spawn(move || look(root, path, owners, lost))).collect();
        looks.into_iter().flat_map(|thread| thread.join().expect("no assertion has failed")).collect()
    })
}

fn lock(file: &File) -> bool {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn open(path: PathBuf) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// One node is killed and comes back: the whole story.
fn lose(choose: impl FnOnce(&Owners) -> usize) {
    needs!(Mounts, Programs(&["rsync"]));
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=1");
    let owners = make_tree(&mount.0);
    let lost = choose(&owners);
    assert!(owners.values().any(|owner| *owner == lost), "the node owns something: {owners:?}");
    let copy = cluster.scratch.dir("copy");
    let copied = Command::new("cp").arg("-a").arg(mount.0.join(".")).arg(&copy).status().unwrap();
    assert!(copied.success());

    // Files that are open and locked, on every node.
    let mut held: Vec<(String, File)> =
        owners.keys().map(|path| (path.clone(), open(mount.0.join(path).join("file")))).collect();
    for (path, file) in &held {
        assert!(lock(file), "/{path}/file can be locked");
    }

    cluster.kill(lost);
    look_at_all(&mount.0, &owners, lost);
    // On a mount that has never seen anything, and knows nothing but paths.
    let fresh = cluster.mount("fresh", "soft=1");
    look_at_all(&fresh.0, &owners, lost);
    no_deletion(&fresh.0, &copy);
    drop(fresh);

    cluster.start(lost);
    eventually("the lost directories are back", || {
        owners.keys().all(|path| list(&mount.0.join(path)).is_ok())
    });
    for path in owners.keys() {
        assert_eq!(list(&mount.0.join(path)).unwrap(), expected(path), "/{path} after the restart");
    }
    let other = cluster.mount("other", "soft=1");
    for (path, file) in &mut held {
        let mut bytes = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, format!("this is {path}"), "an open file goes on");
        file.write_all(b" still").unwrap();
        assert!(!lock(&open(other.0.join(&*path).join("file"))), "the lock on /{path}/file has been lost");
    }
    drop(held);
    for path in owners.keys() {
        let bytes = std::fs::read_to_string(other.0.join(path).join("file")).unwrap();
        assert_eq!(bytes, format!("this is {path} still"));
        // The kernel says RELEASE, which ends such a lock, behind the close, and does not wait for the answer.
        eventually("the lock ends with its holder", || lock(&open(other.0.join(path).join("file"))));
    }
}

/// A backup of what is mounted must not take what is lost for what is gone.
fn no_deletion(from: &Path, copy: &Path) {
    let from = format!("{}/", text(from));
    let to = format!("{}/", text(copy));
    let Ok(output) = Command::new("rsync").args(["-an", "--delete", "-v", &from, &to]).output() else {
        eprintln!("rsync is not installed: its part of the test is left out");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("deleting"), "rsync would delete:\n{said}");
}

#[test]
fn a_node_that_is_killed_is_isolated_to_what_it_owns_and_goes_on_when_it_is_back() {
    lose(|owners| {
        let root = owners[""];
        // The one that has the most, so that much lies below what is lost.
        let count = |node: usize| owners.values().filter(|owner| **owner == node).count();
        (0..4).filter(|node| *node != root).max_by_key(|node| count(*node)).expect("there are three")
    });
}

#[test]
fn the_owner_of_the_root_is_isolated_like_any_other() {
    lose(|owners| owners[""]);
}

/// Two of four nodes that do not own the root.
fn two_without_root(cluster: &Cluster, mount: &Mounted) -> [usize; 2] {
    let root = cluster.owner(&mount.0);
    let mut others = (0..4).filter(|node| *node != root);
    [others.next().unwrap(), others.next_back().unwrap()]
}

#[test]
fn a_node_that_is_killed_while_another_is_away_serves_all_that_it_owns() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=1");
    let dirs = cluster.dirs(&mount);
    let [lost, killed] = two_without_root(&cluster, &mount);
    // A name that one has lent to the other, and a directory that is empty.
    std::fs::rename(dirs[lost].join("file"), dirs[killed].join("came")).unwrap();
    let empty = (0..).map(|n| mount.0.join(format!("empty{n}"))).find(|empty| {
        std::fs::create_dir(empty).unwrap();
        cluster.owner(empty) == killed
    });
    let empty = empty.expect("one of them is");
    cluster.kill(lost);
    cluster.kill(killed);
    cluster.start(killed);
    let fresh = cluster.mount("fresh", "soft=1");
    for at in [&mount, &fresh] {
        let (dir, empty) =
            (at.0.join(dirs[killed].file_name().unwrap()), at.0.join(empty.file_name().unwrap()));
        eventually("it is back", || list(&dir).is_ok());
        assert_eq!(list(&dir).unwrap(), ["came", "file"]);
        let absent = std::fs::symlink_metadata(dir.join("absent")).unwrap_err();
        assert_eq!(absent.kind(), std::io::ErrorKind::NotFound);
        for dir in [dir, empty] {
            std::fs::write(dir.join("new"), b"x").unwrap();
            std::fs::remove_file(dir.join("new")).unwrap();
        }
    }
}

#[test]
fn an_fsync_fails_once_if_a_node_has_lost_its_power_since_a_change() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=10");
    let dirs = cluster.dirs(&mount);
    let [_, node] = two_without_root(&cluster, &mount);
    let mut file = open(dirs[node].join("file"));
    let power_fails = |cluster: &mut Cluster| {
        cluster.kill(node);
        // Nothing says any more that this was a death only.
        let islands = cluster.data(node).join("islands");
        let boots =
            Command::new("find").arg(islands).args(["-path", "*/log/boot", "-delete", "-print"]).output();
        assert!(!boots.unwrap().stdout.is_empty(), "the log notes its boot");
        cluster.start(node);
    };
    file.write_all(b"is synced").unwrap();
    file.sync_all().unwrap();
    power_fails(&mut cluster);
    file.sync_all().unwrap();
    file.write_all(b" and this is not").unwrap();
    power_fails(&mut cluster);
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync_all().unwrap();
    // A death loses nothing.
    file.write_all(b" but this is").unwrap();
    cluster.kill(node);
    cluster.start(node);
    file.sync_all().unwrap();
}

/// Time for all nodes to hear of a link, also on a slow machine.
const TOLD: Duration = Duration::from_secs(3);

#[test]
fn a_path_leads_through_a_link_whose_node_is_killed() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=1");
    let dirs = cluster.dirs(&mount);
    let [lost, other] = two_without_root(&cluster, &mount);
    let target = Path::new("..").join(dirs[other].file_name().unwrap());
    for name in ["link", "gone", "old"] {
        std::os::unix::fs::symlink(&target, dirs[lost].join(name)).unwrap();
    }
    std::os::unix::fs::symlink(&dirs[other], dirs[lost].join("absolute")).unwrap();
    std::thread::sleep(TOLD);
    std::fs::remove_file(dirs[lost].join("gone")).unwrap();
    std::fs::rename(dirs[lost].join("old"), dirs[lost].join("new")).unwrap();
    std::thread::sleep(TOLD);

    cluster.kill(lost);
    let fresh = cluster.mount("fresh", "soft=1");
    for at in [&mount, &fresh] {
        let dir = at.0.join(dirs[lost].file_name().unwrap());
        for name in ["link", "new"] {
            let link = dir.join(name);
            assert_eq!(std::fs::read(link.join("file")).unwrap(), b"content");
            assert_eq!(std::fs::read_link(&link).unwrap(), target);
            assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
            std::fs::write(link.join("made"), b"x").unwrap();
        }
        for name in ["gone", "old", "absolute", "never"] {
            // What a mount has kept of before may be shown for a while.
            eventually("names that nobody can tell of fail", || {
                std::fs::symlink_metadata(dir.join(name)).is_err_and(|error| is_honest(&error))
            });
        }
    }
    cluster.start(lost);
    for name in ["link", "new", "absolute"] {
        eventually("the links are back", || dirs[lost].join(name).join("file").exists());
    }
    for name in ["gone", "old"] {
        let there = std::fs::symlink_metadata(dirs[lost].join(name));
        assert_eq!(there.unwrap_err().raw_os_error(), Some(libc::ENOENT), "{name}");
    }
}

#[test]
fn a_file_that_has_followed_its_name_is_there_without_the_node_that_it_was_made_on() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=1");
    let dirs = cluster.dirs(&mount);
    let [lost, other] = two_without_root(&cluster, &mount);
    let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    let (old, new) = (dirs[lost].join("large"), dirs[other].join("here"));
    std::fs::write(&old, &bytes).unwrap();
    let mut open = open(old.clone());
    std::fs::rename(&old, &new).unwrap();
    let is_pointer = || -> bool {
        let told: serde_json::Value = serde_json::from_str(&good(["explain", text(&new), "--json"])).unwrap();
        told["pointer"].as_bool().unwrap()
    };
    eventually("the file follows its name", || !is_pointer());

    cluster.kill(lost);
    assert_eq!(std::fs::read(&new).unwrap(), bytes);
    // Opened before it moved.
    let mut again = Vec::new();
    open.read_to_end(&mut again).unwrap();
    assert!(again == bytes, "the open file has {} bytes", again.len());
    open.rewind().unwrap();
    std::fs::remove_file(&new).unwrap();
    assert_eq!(open.read(&mut [0; 100]).unwrap(), 100, "it is open still");
    cluster.start(lost);
    eventually("the node is back", || list(&dirs[lost]).is_ok_and(|names| names == ["file"]));
}
