//! Disks that are full or cannot be written: applications get a clear error, nothing is half made,
//! and what makes room works.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::daemon::{self, Launch};
use atoll_torture::place::{DiskKind, Place, SmallDisk};

/// Room for logs, their spares, and some tens of MiB of files.
const DISK_MIB: u64 = 128;
const FILE_BYTES: usize = 1 << 20;
/// So many that their rows alone are more than a database keeps free.
const SMALL_FILES: usize = 3000;

fn bytes(n: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * 31 + n * 7) as u8).collect()
}

/// Files until the disk is full: how many are whole. The last one may be there in part.
fn fill(dir: &Path) -> usize {
    for n in 0.. {
        assert!(n < DISK_MIB as usize, "a small disk takes more than it has");
        let path = dir.join(format!("file-{n}"));
        let written = fs::File::create_new(&path).and_then(|mut file| file.write_all(&bytes(n)));
        if let Err(why) = written {
            assert_eq!(why.kind(), ErrorKind::StorageFull, "file {n}: {why}");
            return n;
        }
    }
    unreachable!("some write fails")
}

fn verify(dir: &Path, files: std::ops::Range<usize>) {
    for n in files {
        assert!(fs::read(dir.join(format!("file-{n}"))).unwrap() == bytes(n), "file {n} has other bytes");
    }
}

/// The one that did not fit: absent, or a beginning of what was written.
fn partial(dir: &Path, n: usize) {
    match fs::read(dir.join(format!("file-{n}"))) {
        Err(why) => assert_eq!(why.kind(), ErrorKind::NotFound, "{why}"),
        Ok(found) => assert!(bytes(n).starts_with(&found), "a half file has other bytes"),
    }
}

fn full(kind: DiskKind) {
    let place = Place::new("full").unwrap();
    let _disk = SmallDisk::new(kind, DISK_MIB, &place.join("disk")).unwrap();
    let mut launch = Launch::new(place.path());
    launch.data = place.join("disk/data");
    launch.islands = 1;
    let daemon = launch.start().unwrap();
    let dir = daemon.mount().join("dir");
    fs::create_dir(&dir).unwrap();
    let whole = fill(&dir);
    assert!(whole > 10, "only {whole} files fit on {DISK_MIB} MiB");
    partial(&dir, whole);
    verify(&dir, 0..whole);
    // Small writes and names are refused or done, never half.
    for n in 0..2000 {
        let path = dir.join(format!("small-{n}"));
        match fs::write(&path, vec![b's'; 4000]) {
            Ok(()) => assert_eq!(fs::read(&path).unwrap(), vec![b's'; 4000]),
            Err(why) => {
                assert_eq!(why.kind(), ErrorKind::StorageFull, "small {n}: {why}");
                break;
            }
        }
    }
    assert!(daemon.is_mounted());
    // A restart in this state.
    daemon.stop().unwrap();
    let daemon = launch.start().unwrap();
    verify(&dir, 0..whole);
    partial(&dir, whole);
    // Deletes work, and make room.
    for n in 0..whole / 2 {
        fs::remove_file(dir.join(format!("file-{n}"))).unwrap();
    }
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("small") {
            fs::remove_file(path).unwrap();
        }
    }
    let again = whole / 4;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(why) = (0..again).try_for_each(|n| fs::write(dir.join(format!("file-{n}")), bytes(n))) {
        assert_eq!(why.kind(), ErrorKind::StorageFull);
        assert!(std::time::Instant::now() < until, "there is no room after half of the files were removed");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    fs::rename(dir.join("file-0"), dir.join("renamed")).unwrap();
    verify(&dir, 1..again);
    verify(&dir, whole / 2..whole);
    daemon.stop().unwrap();
    let daemon = launch.start().unwrap();
    verify(&dir, 1..again);
    verify(&dir, whole / 2..whole);
    assert!(fs::read(dir.join("renamed")).unwrap() == bytes(0));
    daemon.stop().unwrap();
    if daemon::has_command("check") {
        daemon::atoll(&["check", "--read", "--data", launch.data.to_str().unwrap()]).unwrap();
    }
}

#[test]
fn a_full_disk_of_ext4_refuses_writes_and_lets_deletes_make_room() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mount", "losetup"]));
    full(DiskKind::Ext4);
}

#[test]
fn a_full_tmpfs_refuses_writes_and_lets_deletes_make_room() {
    needs!(Mounts);
    full(DiskKind::Tmpfs);
}

/// Others fill the disk to the last byte, and give the space back: the daemon says so, takes deletes, and goes on.
fn filled_by_others(kind: DiskKind) {
    let place = Place::new("filled").unwrap();
    let _disk = SmallDisk::new(kind, DISK_MIB, &place.join("disk")).unwrap();
    let mut launch = Launch::new(place.path());
    launch.data = place.join("disk/data");
    launch.islands = 1;
    let daemon = launch.start().unwrap();
    let dir = daemon.mount().join("dir");
    fs::create_dir(&dir).unwrap();
    let path = |n: usize| dir.join(format!("small-{n}"));
    (0..SMALL_FILES).for_each(|n| fs::write(path(n), b"small").unwrap());
    let read_only = || {
        let told = daemon::atoll(&["status", daemon.mount().to_str().unwrap(), "--json"]).unwrap();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let islands = |process: &serde_json::Value| process["volumes"][0]["islands"][0]["read_only"].clone();
        told["processes"].as_array().unwrap().iter().map(islands).find(|told| !told.is_null())
    };
    let until = |what: &str, holds: &mut dyn FnMut() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < until, "not within a minute: {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    assert_eq!(read_only(), None);
    let filler = place.join("disk/filler");
    let mut file = fs::File::create(&filler).unwrap();
    for piece in [1 << 20, 4096, 1] {
        let piece = vec![7; piece];
        while file.write_all(&piece).is_ok() {}
    }
    // All rows change: a checkpoint needs more than there is.
    let mut mode = 0o600;
    until("it says what finds no space", &mut || {
        mode ^= 0o040;
        for n in 0..SMALL_FILES {
            fs::set_permissions(path(n), fs::Permissions::from_mode(mode)).unwrap();
        }
        read_only().is_some()
    });
    let why = fs::write(dir.join("more"), b"more").unwrap_err();
    assert_eq!(why.kind(), ErrorKind::StorageFull, "{why}");
    (0..100).for_each(|n| fs::remove_file(path(n)).unwrap());
    drop(file);
    fs::remove_file(filler).unwrap();
    until("it goes on by itself", &mut || read_only().is_none());
    until("there is room", &mut || fs::write(dir.join("more"), b"more").is_ok());
    assert_eq!(fs::read(path(100)).unwrap(), b"small");
    daemon.stop().unwrap();
    daemon::atoll(&["check", "--read", "--data", launch.data.to_str().unwrap()]).unwrap();
}

#[test]
fn an_island_goes_on_by_itself_when_others_give_space_back_on_ext4() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mount", "losetup"]));
    filled_by_others(DiskKind::Ext4);
}

#[test]
fn an_island_goes_on_by_itself_when_others_give_space_back_on_tmpfs() {
    needs!(Mounts);
    filled_by_others(DiskKind::Tmpfs);
}

#[test]
fn a_disk_that_is_read_only_is_told_at_start() {
    needs!(Mounts);
    let place = Place::new("read-only").unwrap();
    let disk = SmallDisk::new(DiskKind::Tmpfs, DISK_MIB, &place.join("disk")).unwrap();
    let mut launch = Launch::new(place.path());
    launch.data = place.join("disk/data");
    launch.islands = 1;
    let daemon = launch.start().unwrap();
    fs::write(daemon.mount().join("file"), b"bytes").unwrap();
    daemon.stop().unwrap();
    disk.set_read_only(true).unwrap();
    let (status, said) = launch.start_in_vain().unwrap();
    assert!(!status.success());
    assert!(said.to_lowercase().contains("read-only"), "it does not say why: {said}");
    assert!(said.lines().count() <= 5 && !said.contains("panicked"), "{said}");
    assert!(!daemon::is_fuse(&launch.mount), "something is mounted all the same");
    disk.set_read_only(false).unwrap();
    let daemon = launch.start().unwrap();
    assert_eq!(fs::read(daemon.mount().join("file")).unwrap(), b"bytes");
    daemon.stop().unwrap();
}
