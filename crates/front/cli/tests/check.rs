//! `atoll check` finds damage that was done behind Atoll's back, and nothing where none was done.

mod common;

use atoll_needs::needs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Daemon, Scratch, good, run, text};
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
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, plain, _) = stopped(&scratch);
    assert_eq!(std::fs::read(&plain).unwrap(), vec![b'x'; 100_000], "the plain file has the bytes");
    for _ in 0..2 {
        assert_eq!(broken(&data), [""; 0]);
    }
}

#[test]
fn a_byte_that_has_changed_on_the_disk_is_found_by_its_checksum() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, _, body) = stopped(&scratch);
    std::fs::File::options().write(true).open(body).unwrap().write_all_at(b"y", 50_000).unwrap();
    let found = broken(&data);
    assert!(found.contains(&"body-matches".to_owned()), "{found:?}");
}

#[test]
fn names_that_people_change_in_a_plain_tree_are_found_and_left_alone() {
    needs!(Mounts);
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
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, _, body) = stopped(&scratch);
    std::fs::remove_file(body).unwrap();
    let found = broken(&data);
    assert!(found.contains(&"body-there".to_owned()), "{found:?}");
}

/// A volume whose daemon was killed, with a hundred files that nobody has synced.
fn killed(scratch: &Scratch) -> (PathBuf, PathBuf) {
    killed_when(scratch, |_| true)
}

/// The same, and its daemon was killed when something was so of the data directory.
fn killed_when(scratch: &Scratch, so: impl Fn(&Path) -> bool) -> (PathBuf, PathBuf) {
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 3);
    for n in 0..100 {
        std::fs::create_dir(mnt.join(format!("dir{n}"))).unwrap();
        std::fs::write(mnt.join(format!("dir{n}/file")), format!("{n}")).unwrap();
    }
    let since = std::time::Instant::now();
    while !so(&data) && since.elapsed() < LAID {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    daemon.kill();
    drop(daemon);
    common::detach(&mnt);
    (data, mnt)
}

/// How long it may take until the plain trees have all names.
const LAID: std::time::Duration = std::time::Duration::from_secs(30);

/// The plain trees have all files of [`killed`].
fn is_laid(data: &Path) -> bool {
    let trees = |n: u32| (0..3).map(move |island| format!("islands/main/{island}/tree/dir{n}/file"));
    (0..100).all(|n| trees(n).any(|path| data.join(path).exists()))
}

/// What `up` says that must not serve; it says nothing that is not true or no help.
fn refused(data: &Path, mnt: &Path) -> String {
    let said = common::bad(["up", "--data", text(data), "--mount", text(mnt)]);
    for wrong in ["already", "Choose another name", "other nodes go on"] {
        assert!(!said.contains(wrong), "{said}");
    }
    assert!(!common::is_mounted(mnt));
    said
}

/// What is told of an island that must not be served, while the others are.
fn hidden(data: &Path, mnt: &Path, number: u16) -> String {
    let log = data.with_file_name("said");
    let arguments = ["up", "--data", text(data), "--mount", text(mnt)];
    let mut daemon = Daemon::start_with(arguments, "stop", std::fs::File::create(&log).unwrap().into());
    let status = good(["status", "--data", text(data), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let volume = &status["processes"][0]["volumes"][0];
    assert!(volume["volume"]["problem"].is_null(), "{volume:#}");
    let is_it = |island: &&serde_json::Value| island["island"] == number;
    let (it, others): (Vec<_>, Vec<_>) = volume["islands"].as_array().unwrap().iter().partition(is_it);
    assert!(!others.is_empty() && others.iter().all(|island| island["halted"].is_null()), "{volume:#}");
    assert_eq!((it.len(), it[0]["phase"].as_str()), (1, Some("halted")), "{volume:#}");
    let told = it[0]["halted"].as_str().unwrap().to_owned();
    let shown = good(["status", "--data", text(data)]);
    assert!(told.lines().all(|line| shown.contains(line.trim())), "{shown}");
    daemon.stop();
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(
        logged.contains(&format!("volume main island {number}: this island cannot be opened")),
        "{logged}"
    );
    told
}

fn only_log(data: &Path, island: u16) -> PathBuf {
    let folder = data.join(format!("islands/main/{island}/log"));
    let logs = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> = logs.filter(|path| path.extension().is_some_and(|ext| ext == "log")).collect();
    assert_eq!(logs.len(), 1);
    logs.pop().unwrap()
}

fn names_in(mnt: &Path) -> usize {
    std::fs::read_dir(mnt).unwrap().count()
}

#[test]
fn a_byte_that_has_changed_in_the_log_of_a_killed_daemon_hides_its_island() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = killed(&scratch);
    let log = std::fs::File::options().read(true).write(true).open(only_log(&data, 0)).unwrap();
    let mut byte = [0];
    log.read_exact_at(&mut byte, 3000).unwrap();
    log.write_all_at(&[!byte[0]], 3000).unwrap();
    for _ in 0..2 {
        let said = hidden(&data, &mnt, 0);
        assert!(said.contains("island 0") && said.contains("log is damaged"), "{said}");
        assert!(said.contains("atoll rebuild --data"), "{said}");
    }
    assert_eq!(broken(&data), ["opens"]);
    // With the byte back, everything is.
    log.write_all_at(&byte, 3000).unwrap();
    let mut daemon = Daemon::up(&data, &mnt, 3);
    assert_eq!(names_in(&mnt), 100);
    daemon.stop();
}

/// The files of the other islands are there, and those of the damaged one are not said to be gone.
#[test]
fn a_damaged_state_hides_its_own_directories_only() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = killed(&scratch);
    let mut daemon = Daemon::up(&data, &mnt, 3);
    let owner = |n: u32| {
        let told = good(["explain", text(&mnt.join(format!("dir{n}"))), "--json"]);
        serde_json::from_str::<serde_json::Value>(&told).unwrap()["owner"].as_u64().unwrap()
    };
    // Not that of the root, so that all directories can be asked for.
    let owners: Vec<u64> = (0..100).map(owner).collect();
    let root = good(["explain", text(&mnt), "--json"]);
    let root = serde_json::from_str::<serde_json::Value>(&root).unwrap()["owner"].as_u64().unwrap();
    let lost = (root + 1) % 3;
    daemon.stop();
    let state = data.join(format!("islands/main/{lost}/state.redb"));
    let whole = std::fs::read(&state).unwrap();
    std::fs::write(&state, vec![7; whole.len()]).unwrap();
    let said = hidden(&data, &mnt, lost as u16);
    assert!(said.contains("snapshot is damaged") && said.contains("Nothing was changed"), "{said}");
    let mut daemon = Daemon::up(&data, &mnt, 3);
    let (mut served, mut hidden) = (0, 0);
    for (n, owner) in owners.iter().enumerate() {
        let read = std::fs::read_to_string(mnt.join(format!("dir{n}/file")));
        if *owner == lost {
            hidden += 1;
            let why = read.expect_err("nobody can read it").kind();
            assert_ne!(why, std::io::ErrorKind::NotFound, "incomplete never looks like empty");
        } else {
            served += 1;
            assert_eq!(read.unwrap(), n.to_string());
        }
    }
    assert!(served > 0 && hidden > 0);
    let doctor = common::run(["doctor", "--data", text(&data), "--json"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains(&format!("island {lost} of volume main is not served")), "{doctor}");
    daemon.stop();
    // An older copy of it would still be noticed, and the whole one is served.
    let reached = std::fs::read_to_string(data.join("islands/main/reached.toml")).unwrap();
    assert!(reached.contains(&format!("\n{lost} = ")), "{reached}");
    std::fs::write(&state, whole).unwrap();
    let mut daemon = Daemon::up(&data, &mnt, 3);
    assert_eq!(std::fs::read_to_string(mnt.join("dir0/file")).unwrap(), "0");
    assert_eq!(names_in(&mnt), 100);
    daemon.stop();
    assert_eq!(broken(&data), [""; 0]);
}

#[test]
fn a_tail_that_is_cut_off_a_log_is_told_with_time_volume_and_island() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = killed(&scratch);
    // As if the process had died while it wrote its last record.
    let log = only_log(&data, 1);
    let bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() as u64;
    std::fs::File::options().write(true).open(&log).unwrap().write_all_at(&[0; 9], end - 8).unwrap();
    let said = scratch.path("said");
    let arguments = ["up", "--data", text(&data), "--mount", text(&mnt)];
    let mut daemon = Daemon::start_with(arguments, "stop", std::fs::File::create(&said).unwrap().into());
    daemon.stop();
    let said = std::fs::read_to_string(&said).unwrap();
    let line = said.lines().find(|line| line.contains("volume main island 1: ")).expect(&said);
    assert!(line.contains(" bytes at the end of its log were not whole and were cut"), "{said}");
    assert!(line.starts_with("20") && line.contains("Z atoll: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_log_that_is_gone_is_told_and_the_island_not_taken_for_an_empty_one() {
    needs!(Mounts);
    let scratch = Scratch::new();
    // On a busy machine the plain trees are more than a second behind.
    let (data, mnt) = killed_when(&scratch, is_laid);
    let aside = scratch.dir("aside");
    for entry in std::fs::read_dir(data.join("islands/main/0/log")).unwrap() {
        let entry = entry.unwrap();
        std::fs::rename(entry.path(), aside.join(entry.file_name())).unwrap();
    }
    for _ in 0..2 {
        let said = hidden(&data, &mnt, 0);
        assert!(said.contains("island 0") && said.contains("log"), "{said}");
    }
    assert_eq!(broken(&data), ["opens"]);
    // What the message says works: the plain trees have what is older than a second.
    good(["rebuild", "--data", text(&data), "--yes"]);
    let mut daemon = Daemon::up(&data, &mnt, 3);
    assert!(names_in(&mnt) <= 100);
    daemon.stop();
    assert_eq!(broken(&data), [""; 0]);
}

#[test]
fn an_island_that_is_gone_or_emptied_is_told_and_nothing_is_made_in_its_place() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = killed(&scratch);
    let (island, aside) = (data.join("islands/main/2"), scratch.path("aside"));
    std::fs::rename(&island, &aside).unwrap();
    let said = hidden(&data, &mnt, 2);
    assert!(said.contains("island 2: its folder is missing") && said.contains("backup"), "{said}");
    assert!(!island.exists());
    assert_eq!(broken(&data), ["opens"]);
    std::fs::create_dir(&island).unwrap();
    let said = hidden(&data, &mnt, 2);
    assert!(said.contains("island 2: its state (state.redb) is missing"), "{said}");
    assert_eq!(names_in(&island), 0);
    std::fs::remove_dir(&island).unwrap();
    std::fs::rename(&aside, &island).unwrap();
    let mut daemon = Daemon::up(&data, &mnt, 3);
    assert_eq!(names_in(&mnt), 100);
    daemon.stop();
    // For good: what the messages say keeps what the other islands have.
    std::fs::remove_dir_all(&island).unwrap();
    let said = hidden(&data, &mnt, 2);
    let next = said.split_once("tells: atoll ").expect("it names the next step").1.trim().to_owned();
    let said = common::bad(next.split(' '));
    let make = said.lines().last().unwrap().strip_prefix("mkdir -p ").expect("it says how").to_owned();
    make.split(' ').for_each(|path| std::fs::create_dir_all(path).unwrap());
    good(next.split(' ').chain(["--yes"]));
    let mut daemon = Daemon::up(&data, &mnt, 3);
    assert!((1..=100).contains(&names_in(&mnt)));
    daemon.stop();
    assert_eq!(broken(&data), [""; 0]);
}

#[test]
fn a_volume_that_a_lost_control_store_has_forgotten_is_found_and_taken_up_again() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, _, _) = stopped(&scratch);
    let mnt = scratch.path("mnt");
    std::fs::remove_file(data.join("control.redb")).unwrap();
    assert_eq!(broken(&data), ["volume-known"]);
    let said = refused_unknown(&data, &mnt);
    let next = said.split_once(": atoll ").expect("it names the next step").1.trim().to_owned();
    good(next.split(' '));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    assert_eq!(std::fs::read(mnt.join("a/b/file")).unwrap(), vec![b'x'; 100_000]);
    daemon.stop();
    assert_eq!(broken(&data), [""; 0]);
}

fn refused_unknown(data: &Path, mnt: &Path) -> String {
    let said = refused(data, mnt);
    assert!(said.contains("does not know") && said.contains("atoll volume adopt main"), "{said}");
    said
}

#[test]
fn what_is_damaged_is_named_by_its_paths_and_with_the_next_step() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    std::fs::create_dir_all(mnt.join("a/b")).unwrap();
    std::fs::write(mnt.join("a/b/one"), vec![b'x'; 100_000]).unwrap();
    std::fs::hard_link(mnt.join("a/b/one"), mnt.join("a/b/two")).unwrap();
    let told: Value = serde_json::from_str(&good(["explain", text(&mnt.join("a/b/one")), "--json"])).unwrap();
    let (id, body) = (told["id"].to_string(), PathBuf::from(told["body"].as_str().unwrap()));
    // The way back from an id.
    let back: Value = serde_json::from_str(&good(["explain", "--id", &id, text(&mnt), "--json"])).unwrap();
    let paths: Vec<_> = back.as_array().unwrap().iter().map(|r| r["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [text(&mnt.join("a/b/one")), text(&mnt.join("a/b/two"))]);
    assert!(common::bad(["explain", "--id", "999999", text(&mnt)]).contains("999999"));
    daemon.stop();
    std::fs::File::options().write(true).open(body).unwrap().write_all_at(b"y", 50_000).unwrap();
    let output = run(["check", "--data", text(&data), "--read"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("/a/b/one = /a/b/two") && said.contains("next: "), "{said}");
}

/// `cp -a` of a whole directory.
fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_copied_data_directory_has_nothing_wrong_and_is_served_as_the_original() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt, copied) = (scratch.path("data"), scratch.path("mnt"), scratch.path("copy"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    for n in 0..20 {
        std::fs::create_dir_all(mnt.join(format!("d{n}/e"))).unwrap();
        std::fs::write(mnt.join(format!("d{n}/e/file")), format!("{n}")).unwrap();
        std::os::unix::fs::symlink("file", mnt.join(format!("d{n}/e/link"))).unwrap();
    }
    daemon.stop();
    copy(&data, &copied);
    assert_eq!(broken(&copied), [""; 0]);
    let (second, served) = (scratch.path("copy2"), scratch.path("mnt2"));
    copy(&data, &second);
    let mut daemon = Daemon::up(&second, &served, 2);
    assert_eq!(std::fs::read(served.join("d7/e/link")).unwrap(), b"7");
    std::fs::remove_file(served.join("d3/e/file")).unwrap();
    std::fs::write(served.join("d4/e/file"), b"new").unwrap();
    daemon.stop();
    assert_eq!(broken(&second), [""; 0]);
    // Put back in the place of the original, over what has the same numbers.
    std::fs::remove_dir_all(&data).unwrap();
    copy(&second, &data);
    assert_eq!(broken(&data), [""; 0]);
    // In a copy, damage is found as in the original.
    let plain = std::fs::read_dir(second.join("islands/main")).unwrap().map(|e| e.unwrap().path());
    let plain = plain.map(|island| island.join("tree/d5/e/file")).find(|path| path.exists()).unwrap();
    std::fs::OpenOptions::new().write(true).open(plain).unwrap().write_all_at(b"X", 0).unwrap();
    let third = scratch.path("copy3");
    copy(&second, &third);
    assert!(broken(&third).contains(&"body-matches".to_owned()));
}

#[test]
fn a_file_that_was_only_touched_is_nothing_wrong_unless_its_bytes_are() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, plain, _) = stopped(&scratch);
    // Its change time moves, as when a backup makes a link to it; all else stays.
    std::fs::hard_link(&plain, scratch.path("link")).unwrap();
    let found = |data: &Path| {
        let output = run(["check", "--data", text(data), "--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = told["findings"].as_array().unwrap().iter();
        found.map(|f| f["rule"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&data), [""; 0]);
    // Other bytes under the old time of change of content.
    let file = std::fs::File::options().write(true).open(&plain).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"y", 50_000).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(found(&data), ["body-matches", "changed-by-hand"]);
}

#[test]
fn an_older_copy_of_one_island_is_refused_and_one_of_the_whole_data_directory_is_served() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt, backup) = (scratch.path("data"), scratch.path("mnt"), scratch.path("backup"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    std::fs::write(mnt.join("old"), "old").unwrap();
    daemon.stop();
    copy(&data, &backup);
    let mut daemon = Daemon::up(&data, &mnt, 2);
    std::fs::write(mnt.join("new"), "new").unwrap();
    daemon.kill();
    common::detach(&mnt);
    let island =
        |island: u16| (data.join(format!("islands/main/{island}")), scratch.path(&format!("{island}")));
    for number in 0..2 {
        // Within one boot of the machine, and with everything else newer.
        let (folder, aside) = island(number);
        std::fs::rename(&folder, &aside).unwrap();
        copy(&backup.join(format!("islands/main/{number}")), &folder);
        for _ in 0..2 {
            let said = hidden(&data, &mnt, number);
            assert!(said.contains(&format!("island {number}")) && said.contains("older copy"), "{said}");
            assert!(said.contains("Put the newer folder back") && said.contains("atoll rebuild"), "{said}");
        }
        assert_eq!(broken(&data), ["opens"]);
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::rename(&aside, &folder).unwrap();
    }
    let mut daemon = Daemon::up(&data, &mnt, 2);
    assert_eq!(names_in(&mnt), 2);
    daemon.stop();
    // The whole of it may be older.
    let newer = scratch.path("newer");
    std::fs::rename(&data, &newer).unwrap();
    copy(&backup, &data);
    let mut daemon = Daemon::up(&data, &mnt, 2);
    assert_eq!(names_in(&mnt), 1);
    daemon.stop();
    assert_eq!(broken(&data), [""; 0]);
    // Stopped in order, and then an older copy: what the message says takes what there is.
    let mut daemon = Daemon::up(&data, &mnt, 2);
    daemon.stop();
    for number in 0..2 {
        std::fs::remove_dir_all(island(number).0).unwrap();
        copy(&backup.join(format!("islands/main/{number}")), &island(number).0);
    }
    let said = refused(&data, &mnt);
    assert!(said.contains("older copy"), "{said}");
    good(["rebuild", "--data", text(&data), "--yes"]);
    let mut daemon = Daemon::up(&data, &mnt, 2);
    assert_eq!(std::fs::read_to_string(mnt.join("old")).unwrap(), "old");
    daemon.stop();
    assert_eq!(broken(&data), [""; 0]);
}
