//! `atoll check --repair` mends what was damaged behind Atoll's back, and a daemon serves it afterwards.

mod common;

use atoll_needs::needs;
use std::path::{Path, PathBuf};

use atoll_core::{Decode, Encode, Ino, Name};
use atoll_disk::real::RealDisk;
use atoll_proto::{Dir, Entry, Inode};
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
use common::{Daemon, Scratch, run, text};
use serde_json::Value;

/// A stopped volume with directories of both islands, and files with one name and with two.
fn stopped(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    for n in 0..6 {
        std::fs::create_dir_all(mnt.join(format!("d{n}/below"))).unwrap();
        std::fs::write(mnt.join(format!("d{n}/file")), vec![b'0' + n; 50_000]).unwrap();
        std::fs::hard_link(mnt.join(format!("d{n}/file")), mnt.join(format!("d{n}/below/link"))).unwrap();
    }
    stop_when_all_has_ended(&mut daemon, &data, &mnt);
    (data, mnt)
}

/// What a check tells, with its exit code.
fn check(data: &Path, more: &[&str]) -> (i32, Value) {
    let arguments = ["check", "--data", text(data), "--read", "--json"];
    let output = run(arguments.into_iter().chain(more.iter().copied()));
    let told = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"));
    (output.status.code().unwrap(), told)
}

fn list(told: &Value, key: &str) -> Vec<String> {
    let all = told[key].as_array().unwrap().iter();
    all.map(|item| format!("{} {}", item["rule"].as_str().unwrap(), item["what"].as_str().unwrap())).collect()
}

/// The state of an island, of which rows are changed with nobody knowing.
fn state(data: &Path, island: u16) -> Snapshot {
    let disk = RealDisk::open(&data.join(format!("islands/main/{island}"))).unwrap();
    Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap()
}

fn rows(snapshot: &Snapshot, tag: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    snapshot.range(&[tag], &[tag + 1], usize::MAX).unwrap()
}

/// All names that a mount shows, with the content of files.
fn tree(mnt: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut all, mut left) = (Vec::new(), vec![mnt.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path.clone());
                all.push((path, Vec::new()));
            } else {
                let content = std::fs::read(&path).unwrap();
                all.push((path, content));
            }
        }
    }
    all.sort();
    all
}

fn served(data: &Path, mnt: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut daemon = Daemon::up(data, mnt, 2);
    let seen = tree(mnt);
    daemon.stop();
    seen
}

#[test]
fn damaged_rows_are_mended_and_everything_is_served_again() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = stopped(&scratch);
    let whole = served(&data, &mnt);
    // A directory's name is gone at its parent, link counts and limits of ids are wrong.
    for island in 0..2 {
        let snapshot = state(&data, island);
        let mut changes = Vec::new();
        for (key, row) in rows(&snapshot, b'i') {
            let mut row = Inode::from_slice(&row).unwrap();
            row.attr.nlink += 3;
            changes.push((key, Some(row.to_vec())));
        }
        for (key, row) in rows(&snapshot, b'd') {
            let mut row = Dir::from_slice(&row).unwrap();
            row.children += 1;
            changes.push((key, Some(row.to_vec())));
        }
        let stub = rows(&snapshot, b'e').into_iter().find(|(key, _)| {
            matches!(RowKey::from_bytes(key), Some(RowKey::Entry(Ino::ROOT, _, name)) if name == Name::new(b"d3").unwrap())
        });
        changes.extend(stub.map(|(key, _)| (key, None)));
        snapshot.commit(changes).unwrap();
    }
    let (code, told) = check(&data, &[]);
    assert_eq!(code, 4);
    let mendable = told["findings"].as_array().unwrap().iter().all(|f| f["mendable"] == true);
    assert!(mendable, "{told:#}");
    assert!(told["findings"][0]["next"].as_str().unwrap().contains("--repair"), "{told:#}");
    // To be told is not to be done.
    let (code, told) = check(&data, &["--repair", "--dry-run"]);
    let would = list(&told, "mended");
    assert!(code == 4 && told["dry_run"] == true && would.len() > 12, "{told:#}");
    let (code, told) = check(&data, &["--repair"]);
    assert_eq!((code, list(&told, "findings").len()), (0, 0), "{told:#}");
    let mut done = list(&told, "mended");
    done.retain(|line| would.contains(line));
    assert_eq!(done.len(), would.len(), "{told:#}");
    for more in [&["--repair"][..], &[]] {
        let (code, told) = check(&data, more);
        assert_eq!((code, list(&told, "mended").len()), (0, 0), "{told:#}");
    }
    assert_eq!(served(&data, &mnt), whole);
    assert_eq!(check(&data, &[]).0, 0);
}

#[test]
fn a_file_whose_row_is_lost_is_found_again_and_one_whose_bytes_are_too_is_named_with_what_helps() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = stopped(&scratch);
    let whole = served(&data, &mnt);
    for island in 0..2 {
        let snapshot = state(&data, island);
        snapshot.commit(rows(&snapshot, b'i').into_iter().map(|(key, _)| (key, None::<Vec<u8>>))).unwrap();
    }
    let (code, told) = check(&data, &["--repair"]);
    assert_eq!((code, list(&told, "findings").len()), (0, 0), "{told:#}");
    assert_eq!(served(&data, &mnt), whole);
    // The bytes of one of them are gone with its row.
    let mut lost = None;
    for island in 0..2 {
        let snapshot = state(&data, island);
        let Some((key, _)) = rows(&snapshot, b'i').into_iter().next() else { continue };
        let Some(RowKey::Inode(ino)) = RowKey::from_bytes(&key) else { panic!("no key of a file") };
        snapshot.commit([(key, None::<Vec<u8>>)]).unwrap();
        let path = atoll_body::path_of(b"bodies", ino);
        let path = data.join(format!("islands/main/{island}")).join(String::from_utf8(path).unwrap());
        std::fs::remove_file(path).unwrap();
        lost = Some(ino);
        break;
    }
    let lost = lost.unwrap().0;
    let (code, told) = check(&data, &["--repair"]);
    let left: Vec<_> =
        told["findings"].as_array().unwrap().iter().filter(|f| f["rule"] == "file-there").collect();
    assert!(code == 4 && !left.is_empty() && left.iter().all(|f| f["id"] == lost), "{told:#}");
    assert!(left[0]["next"].as_str().unwrap().ends_with("--repair --forget"), "{told:#}");
    // Without it all else is served.
    let mut daemon = Daemon::up(&data, &mnt, 2);
    assert_eq!(std::fs::read_dir(&mnt).unwrap().count(), 6);
    daemon.stop();
    let (code, told) = check(&data, &["--repair", "--forget"]);
    assert_eq!(list(&told, "findings"), [""; 0], "{told:#}");
    assert_eq!(code, 0);
    assert_eq!(served(&data, &mnt).len(), whole.len() - 2, "it had two names");
}

#[test]
fn bytes_without_a_file_are_in_lost_and_found_afterwards() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = stopped(&scratch);
    let stray = Ino::mint(atoll_core::IslandId(1), 5000);
    let path = String::from_utf8(atoll_body::path_of(b"bodies", stray)).unwrap();
    let path = data.join("islands/main/1").join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, vec![b'z'; 10_000]).unwrap();
    let (code, told) = check(&data, &[]);
    assert!(code == 4 && told["findings"][0]["mendable"] == true, "{told:#}");
    let (code, told) = check(&data, &["--repair"]);
    assert_eq!((code, list(&told, "findings").len()), (0, 0), "{told:#}");
    let seen = served(&data, &mnt);
    let found = mnt.join(format!("lost+found/atoll-{:x}", stray.0));
    assert!(seen.contains(&(found, vec![b'z'; 10_000])), "{seen:?}");
    assert_eq!(check(&data, &["--repair"]).1["mended"].as_array().unwrap().len(), 0);
}

#[test]
fn a_plain_tree_gets_back_what_it_lacks_and_keeps_what_people_put_there() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, _) = stopped(&scratch);
    let trees = (0..2).map(|island| data.join(format!("islands/main/{island}/tree")));
    let tree = trees.into_iter().find(|tree| tree.join("d2/file").exists()).unwrap();
    std::fs::remove_file(tree.join("d2/file")).unwrap();
    std::fs::write(tree.join("d2/mine"), b"mine").unwrap();
    let (code, told) = check(&data, &["--repair"]);
    assert_eq!(code, 4);
    assert_eq!(std::fs::read(tree.join("d2/file")).unwrap(), vec![b'2'; 50_000]);
    assert_eq!(std::fs::read(tree.join("d2/mine")).unwrap(), b"mine");
    let left = list(&told, "findings");
    assert!(left.len() == 1 && left[0].contains("mine was not put there"), "{told:#}");
    let (code, told) = check(&data, &["--repair"]);
    assert!(code == 4 && list(&told, "mended").is_empty(), "{told:#}");
    std::fs::remove_file(tree.join("d2/mine")).unwrap();
    let (_, told) = check(&data, &["--repair"]);
    assert_eq!(list(&told, "findings"), [""; 0]);
}

#[test]
fn options_that_need_a_repair_are_refused_without_one() {
    for option in ["--dry-run", "--forget"] {
        let output = run(["check", "--data", "/nowhere", option]);
        assert_eq!(output.status.code(), Some(2));
    }
}

/// The key of a name in the volume.
fn key_of(data: &Path, dir: Ino, name: &str) -> Vec<u8> {
    let store = atoll_control::EmbeddedStore::open(&data.join("control.redb")).unwrap();
    let seed = atoll_control::ControlStore::volumes(&store).unwrap()[0].seed;
    RowKey::Entry(dir, atoll_core::cookie_of(seed, name.as_bytes()), Name::new(name.as_bytes()).unwrap())
        .to_bytes()
}

/// Names that are of files, with their rows.
fn names(snapshot: &Snapshot) -> Vec<(Ino, String, Entry)> {
    let all = rows(snapshot, b'e').into_iter().filter_map(|(key, row)| match RowKey::from_bytes(&key) {
        Some(RowKey::Entry(dir, _, name)) => Some((dir, name.to_string(), Entry::from_slice(&row).unwrap())),
        _ => None,
    });
    all.collect()
}

/// Stops a daemon of two islands when no transaction is under way any more: of what one is about a check finds nothing, as its rows
/// may show half of it.
fn stop_when_all_has_ended(daemon: &mut Daemon, data: &Path, mnt: &Path) {
    for _ in 0..20 {
        daemon.stop();
        if (0..2).all(|island| rows(&state(data, island), b't').is_empty()) {
            return;
        }
        *daemon = Daemon::up(data, mnt, 2);
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    panic!("transactions do not end");
}

#[test]
fn a_name_that_was_laid_beside_another_is_the_one_that_its_home_knows_afterwards() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    // Some of these directories belong to the other island than the file.
    for n in 0..24 {
        std::fs::create_dir(mnt.join(format!("d{n}"))).unwrap();
    }
    std::fs::write(mnt.join("d0/file"), b"content").unwrap();
    for n in 1..24 {
        std::fs::hard_link(mnt.join("d0/file"), mnt.join(format!("d{n}/name"))).unwrap();
    }
    stop_when_all_has_ended(&mut daemon, &data, &mnt);
    // As after two losses: at the owner of the directory it has another name than at its home.
    let mut renamed = 0;
    for island in 0..2 {
        let snapshot = state(&data, island);
        let pointers =
            names(&snapshot).into_iter().filter(|(_, name, entry)| name == "name" && entry.home.0 != island);
        for (dir, _, entry) in pointers.collect::<Vec<_>>() {
            let beside = format!("name.atoll-{:x}", entry.ino.0);
            let changes =
                [(key_of(&data, dir, "name"), None), (key_of(&data, dir, &beside), Some(entry.to_vec()))];
            snapshot.commit(changes).unwrap();
            renamed += 1;
        }
    }
    assert!(renamed > 0 && renamed < 23, "{renamed}");
    let (code, told) = check(&data, &[]);
    assert_eq!(code, 4);
    assert!(told["findings"].as_array().unwrap().iter().any(|f| f["rule"] == "name-at-home"), "{told:#}");
    let (code, told) = check(&data, &["--repair"]);
    assert_eq!((code, list(&told, "findings").len()), (0, 0), "{told:#}");
    let mut daemon = Daemon::up(&data, &mnt, 2);
    let seen = tree(&mnt);
    let beside = seen.iter().filter(|(path, _)| path.to_string_lossy().contains("/name.atoll-")).count();
    assert_eq!(beside, renamed);
    assert!(
        seen.iter().filter(|(path, _)| path.extension().is_some()).all(|(_, content)| content == b"content")
    );
    // They can be used: renamed back, and removed.
    for (path, _) in seen.iter().filter(|(path, _)| path.extension().is_some()) {
        std::fs::rename(path, path.with_file_name("name")).unwrap();
    }
    for n in 1..8 {
        std::fs::remove_file(mnt.join(format!("d{n}/name"))).unwrap();
    }
    assert_eq!(std::fs::read(mnt.join("d0/file")).unwrap(), b"content");
    daemon.stop();
    assert_eq!(check(&data, &[]).0, 0);
}

#[test]
fn a_directory_whose_name_something_else_took_is_beside_it_on_every_island() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = stopped(&scratch);
    let whole = served(&data, &mnt);
    // "d1" and "d4" change places at the root's owner; then "d4" is a second "d1".
    let mut hit = false;
    for island in 0..2 {
        let snapshot = state(&data, island);
        let at_root = |name: &str| {
            let all = names(&snapshot).into_iter();
            all.filter(|(dir, n, e)| *dir == Ino::ROOT && n == name && e.stub.is_some())
                .map(|(_, _, e)| e)
                .next()
        };
        let (Some(_), Some(four)) = (at_root("d1"), at_root("d4")) else { continue };
        let changes =
            [(key_of(&data, Ino::ROOT, "d1"), Some(four.to_vec())), (key_of(&data, Ino::ROOT, "d4"), None)];
        snapshot.commit(changes).unwrap();
        hit = true;
    }
    assert!(hit);
    let (_, told) = check(&data, &["--repair"]);
    let left = list(&told, "findings");
    let rules = left.iter().all(|line| line.starts_with("plain-"));
    assert!(rules, "the rows are whole: {told:#}");
    let seen = served(&data, &mnt);
    assert_eq!(seen.len(), whole.len(), "{seen:?}");
    let content = |all: &[(PathBuf, Vec<u8>)]| {
        let mut all: Vec<_> = all.iter().map(|(_, content)| content.clone()).collect();
        all.sort();
        all
    };
    assert_eq!(content(&seen), content(&whole));
    let beside = |path: &Path| path.file_name().unwrap().to_string_lossy().starts_with("d1.atoll-");
    assert_eq!(seen.iter().filter(|(path, _)| beside(path)).count(), 1, "{seen:?}");
    let (code, told) = check(&data, &["--repair"]);
    assert_eq!((code, list(&told, "findings").len()), (0, 0), "{told:#}");
}
