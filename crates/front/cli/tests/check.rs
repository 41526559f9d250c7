//! `atoll check` finds damage that was done behind Atoll's back, and nothing where none was done.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Daemon, Scratch, can_mount, good, run, text};
use serde_json::Value;

/// A stopped volume with one file, and where the file's plain name and its bytes lie.
fn stopped(scratch: &Scratch) -> (PathBuf, PathBuf, PathBuf) {
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    std::fs::create_dir_all(mnt.join("a/b")).unwrap();
    std::fs::write(mnt.join("a/b/file"), vec![b'x'; 100_000]).unwrap();
    let told: Value =
        serde_json::from_str(&good(["explain", text(&mnt.join("a/b/file")), "--json"])).unwrap();
    let place = |key: &str| PathBuf::from(told[key].as_str().unwrap());
    daemon.stop();
    (data, place("plain"), place("body"))
}

/// The rules that a check finds broken; it must say so by its exit code.
fn broken(data: &Path) -> Vec<String> {
    let output = run(["check", "--data", text(data), "--read", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let found = told["findings"].as_array().unwrap();
    assert_eq!(output.status.code(), Some(if found.is_empty() { 0 } else { 4 }));
    found.iter().map(|f| f["rule"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_volume_that_was_stopped_has_nothing_wrong_however_often_one_looks() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (data, plain, _) = stopped(&scratch);
    assert_eq!(std::fs::read(&plain).unwrap(), vec![b'x'; 100_000], "the plain file has the bytes");
    for _ in 0..2 {
        assert_eq!(broken(&data), [""; 0]);
    }
}

#[test]
fn a_byte_that_has_changed_on_the_disk_is_found_by_its_checksum() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (data, _, body) = stopped(&scratch);
    std::fs::File::options().write(true).open(body).unwrap().write_all_at(b"y", 50_000).unwrap();
    let found = broken(&data);
    assert!(found.contains(&"body-matches".to_owned()), "{found:?}");
}

#[test]
fn names_that_people_change_in_a_plain_tree_are_found_and_left_alone() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (data, plain, _) = stopped(&scratch);
    let foreign = plain.with_file_name("foreign");
    std::fs::write(&foreign, b"mine").unwrap();
    std::fs::remove_file(&plain).unwrap();
    let found = broken(&data);
    assert!(found.iter().filter(|rule| *rule == "plain-name").count() >= 2, "{found:?}");
    assert_eq!(std::fs::read(&foreign).unwrap(), b"mine");
}

#[test]
fn bytes_that_are_gone_are_found() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (data, _, body) = stopped(&scratch);
    std::fs::remove_file(body).unwrap();
    let found = broken(&data);
    assert!(found.contains(&"body-there".to_owned()), "{found:?}");
}
