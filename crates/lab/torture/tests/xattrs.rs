//! Extended attributes that the native file system cannot hold: the mount has them, the log says so once, `status` and
//! `check` name the files, and `atoll rebuild` finds them beside the plain trees.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::daemon::{Launch, atoll};
use atoll_torture::place::{DiskKind, Place, SmallDisk};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use serde_json::Value;

#[test]
fn what_the_native_file_system_refuses_is_said_once_and_kept() {
    needs!(Mounts, Programs(&["mkfs.ext4"]));
    let place = Place::new("xattrs").unwrap();
    let _disk = SmallDisk::new(DiskKind::Ext4, 256, &place.join("disk")).unwrap();
    let mut launch = Launch::new(place.path());
    launch.data = place.join("disk/data");
    let daemon = launch.start().unwrap();
    let file = daemon.mount().join("large");
    fs::write(&file, b"some").unwrap();
    let value = vec![b'v'; 60_000];
    for round in 0..4 {
        setxattr(&file, "user.large", &value, XattrFlags::empty()).unwrap();
        fs::write(&file, format!("changed {round}")).unwrap();
        // The plain trees follow within about a second.
        std::thread::sleep(Duration::from_millis(1500));
    }
    let said = daemon.said();
    let lines = said.lines().filter(|line| line.contains("Argument list too long")).count();
    assert_eq!(lines, 1, "{said}");
    let mut read = vec![0; 70_000];
    let len = getxattr(&file, "user.large", &mut read[..]).unwrap();
    assert_eq!(read[..len], value, "the state has it");
    daemon.stop().unwrap();
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&atoll(args).unwrap()).unwrap()
}

/// How many files and directories `status` counts, and those that it names.
fn told_by_status(mount: &Path) -> (u64, Vec<String>) {
    let told = json(&["status", mount.to_str().unwrap(), "--json"]);
    let processes = told["processes"].as_array().unwrap().iter();
    let islands = processes
        .flat_map(|p| p["volumes"].as_array().unwrap())
        .flat_map(|v| v["islands"].as_array().unwrap());
    let (mut count, mut named) = (0, Vec::new());
    for island in islands {
        count += island["xattrs_spilled"].as_u64().unwrap();
        named.extend(
            island["spilled"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()),
        );
    }
    (count, named)
}

/// Files beside the plain trees.
fn beside(data: &Path) -> usize {
    let islands = fs::read_dir(data.join("islands/main")).unwrap().map(|entry| entry.unwrap().path());
    islands.filter_map(|island| fs::read_dir(island.join("xattrs")).ok()).map(Iterator::count).sum()
}

#[test]
fn what_the_native_file_system_refuses_is_named_and_comes_back_from_the_plain_trees() {
    needs!(Mounts, Programs(&["mkfs.ext4"]));
    let place = Place::new("xattrs").unwrap();
    let _disk = SmallDisk::new(DiskKind::Ext4, 256, &place.join("disk")).unwrap();
    let mut launch = Launch::new(place.path());
    launch.data = place.join("disk/data");
    launch.islands = 2;
    let daemon = launch.start().unwrap();
    let at = |path: &str| daemon.mount().join(path);
    let large = |path: &Path, byte: u8| {
        setxattr(path, "user.large", &[byte; 60_000], XattrFlags::empty()).unwrap();
        setxattr(path, "user.small", b"small", XattrFlags::empty()).unwrap();
    };
    fs::create_dir_all(at("above/dir")).unwrap();
    fs::write(at("above/dir/file"), b"some").unwrap();
    large(&at("above/dir"), b'd');
    large(&at("above/dir/file"), b'f');
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < until, "not within half a minute: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until("both are named", &|| told_by_status(daemon.mount()).0 == 2);
    fs::rename(at("above"), at("moved")).unwrap();
    until("a directory is named by its path", &|| {
        told_by_status(daemon.mount()).1.contains(&"/moved/dir".to_owned())
    });
    let shown = atoll(&["status", daemon.mount().to_str().unwrap()]).unwrap();
    assert!(shown.contains("XATTRS that the native file system refuses"), "{shown}");
    daemon.stop().unwrap();

    let data = launch.data.to_str().unwrap();
    let check = || {
        let told = json(&["check", "--data", data, "--read", "--json"]);
        assert_eq!(told["findings"].as_array().unwrap().len(), 0, "{told:#}");
        let paths = told["spilled"].as_array().unwrap().iter().flat_map(|s| s["paths"].as_array().unwrap());
        paths.map(|path| path.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["/moved/dir".to_owned(), "/moved/dir/file".to_owned()]);
    assert_eq!(check(), both);
    let shown = atoll(&["check", "--data", data]).unwrap();
    assert!(shown.contains("/moved/dir/file: the native file system refuses"), "{shown}");

    for island in ["0", "1"] {
        let folder = launch.data.join("islands/main").join(island);
        fs::remove_file(folder.join("state.redb")).unwrap();
        fs::remove_dir_all(folder.join("log")).unwrap();
    }
    atoll(&["rebuild", "--data", data, "--volume", "main", "--yes"]).unwrap();
    assert_eq!(check(), both);
    assert_eq!(beside(&launch.data), 2);
    let daemon = launch.start().unwrap();
    let at = |path: &str| daemon.mount().join(path);
    for (path, byte) in [("moved/dir", b'd'), ("moved/dir/file", b'f')] {
        let mut read = vec![0; 70_000];
        let len = getxattr(at(path), "user.large", &mut read[..]).unwrap();
        assert_eq!(read[..len], [byte; 60_000], "{path}");
        let len = getxattr(at(path), "user.small", &mut read[..]).unwrap();
        assert_eq!(&read[..len], b"small", "{path}");
    }
    removexattr(at("moved/dir"), "user.large").unwrap();
    fs::remove_file(at("moved/dir/file")).unwrap();
    let none = || told_by_status(daemon.mount()) == (0, Vec::new()) && beside(&launch.data) == 0;
    until("nothing is kept any more", &none);
    daemon.stop().unwrap();
    assert_eq!(check(), BTreeSet::new());
}
