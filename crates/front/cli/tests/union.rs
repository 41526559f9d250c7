//! Unions by the command: over tmpfs and plain folders, as a user makes them.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use atoll_needs::needs;
use common::{Daemon, PATIENCE, Scratch, bad, good, is_mounted, text};

/// What `find` shows of a tree: paths and the sizes of files.
fn tree(at: &Path) -> BTreeMap<PathBuf, u64> {
    let (mut found, mut left) = (BTreeMap::new(), vec![at.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let meta = fs::symlink_metadata(entry.path()).unwrap();
            let size = if meta.is_dir() { 0 } else { meta.len() };
            found.insert(entry.path().strip_prefix(at).unwrap().to_owned(), size);
            if meta.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn existing_directories_are_shown_as_one_and_nothing_is_put_into_them() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    fs::create_dir_all(one.join("music")).unwrap();
    fs::create_dir_all(two.join("music")).unwrap();
    fs::write(one.join("music/a"), "a").unwrap();
    fs::write(two.join("music/b"), "bb").unwrap();
    let before = [tree(&one), tree(&two)];
    good(["union", text(&one), text(&two), text(&point)]);
    assert_eq!(tree(&point).len(), 3);
    assert_eq!(fs::read_to_string(point.join("music/b")).unwrap(), "bb");
    assert_eq!([tree(&one), tree(&two)], before, "looking changes nothing");
    fs::rename(point.join("music/b"), point.join("b")).unwrap();
    fs::write(point.join("music/c"), "ccc").unwrap();
    fs::remove_file(point.join("music/a")).unwrap();
    let shown: Vec<_> = tree(&point).into_keys().collect();
    assert_eq!(shown, [Path::new("b"), Path::new("music"), Path::new("music/c")]);
    assert_eq!(fs::read_to_string(two.join("b")).unwrap(), "bb", "it has stayed in its member");
    good(["umount", text(&point)]);
    let mut both: Vec<_> = [&one, &two].iter().flat_map(|member| tree(member).into_keys()).collect();
    both.sort();
    both.dedup();
    assert_eq!(both, shown, "the members have what was shown, and nothing else");
}

#[test]
fn a_change_in_a_member_is_seen_and_seen_to_be_gone() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    good(["union", text(&one), text(&two), text(&point)]);
    let there = point.join("direct");
    let until = |wanted: bool| {
        let started = Instant::now();
        while there.exists() != wanted {
            assert!(started.elapsed() < PATIENCE, "it is not seen");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    for _ in 0..3 {
        assert!(!there.exists());
        fs::write(two.join("direct"), "x").unwrap();
        until(true);
        fs::remove_file(two.join("direct")).unwrap();
        until(false);
    }
}

#[test]
fn moving_out_of_the_mount_into_a_member_keeps_the_file() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    fs::write(one.join("f"), "kept").unwrap();
    good(["union", text(&one), text(&two), text(&point)]);
    let mv = std::process::Command::new("mv").args([&point.join("f"), &two.join("f")]).status().unwrap();
    assert!(mv.success());
    good(["umount", text(&point)]);
    let left: Vec<_> = [&one, &two].iter().filter_map(|m| fs::read_to_string(m.join("f")).ok()).collect();
    assert_eq!(left, ["kept"]);
}

#[test]
fn a_move_that_takes_long_keeps_the_copy_and_removes_the_original() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    fs::write(one.join("f"), "kept").unwrap();
    good(["union", text(&one), text(&two), text(&point)]);
    let shown = || fs::metadata(point.join("f")).unwrap().ino();
    let original = shown();
    // What mv does between two file systems; the copy is shown before the original is removed.
    let copied = std::process::Command::new("cp").arg("-p").args([point.join("f"), two.join("f")]).status();
    assert!(copied.unwrap().success());
    let started = Instant::now();
    while shown() == original {
        assert!(started.elapsed() < PATIENCE, "the copy is not shown");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fs::remove_file(point.join("f")).unwrap();
    assert!(!one.join("f").exists());
    assert_eq!(fs::read_to_string(two.join("f")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(point.join("f")).unwrap(), "kept");
    good(["umount", text(&point)]);
}

#[test]
fn an_unlinked_file_stays_usable_while_it_is_open_and_numbers_stay() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    good(["union", text(&one), text(&two), text(&point)]);
    let file =
        fs::OpenOptions::new().create(true).read(true).write(true).truncate(true).open(point.join("f"));
    let file = file.unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"bytes", 0).unwrap();
    let ino = file.metadata().unwrap().ino();
    fs::rename(point.join("f"), point.join("g")).unwrap();
    assert_eq!(fs::metadata(point.join("g")).unwrap().ino(), ino);
    fs::remove_file(point.join("g")).unwrap();
    let mut bytes = [0; 5];
    std::os::unix::fs::FileExt::read_at(&file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"bytes");
    drop(file);
    assert!(tree(&one).is_empty() && tree(&two).is_empty());
}

#[test]
fn what_cannot_be_a_union_is_refused_with_the_path_and_the_next_step() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    let inner = scratch.dir("one/inner");
    let file = scratch.path("file");
    fs::write(&file, "x").unwrap();
    let refused = |places: [&Path; 3], words: &[&str]| {
        let [a, b, c] = places.map(text);
        let said = bad(["union", a, b, c]);
        words.iter().for_each(|word| assert!(said.contains(word), "{said}"));
        assert!(!is_mounted(places[2]));
    };
    refused([&one, &inner, &point], &["lies inside the member", text(&inner)]);
    refused([&one, &one, &point], &["named twice", text(&one)]);
    refused([&one, &two, &inner], &["mount point", "lies inside the member", text(&inner)]);
    refused([&one, &file, &point], &["not a directory", text(&file)]);
    refused([&one, &scratch.path("none"), &point], &["cannot be used", text(&scratch.path("none"))]);
    let said = bad(["union", text(&one), text(&two), text(&point), "-o", "place=nowhere"]);
    assert!(said.contains("place") && said.contains("nowhere"), "{said}");
    good(["union", text(&one), text(&two), text(&point)]);
    refused([&one, &point, &scratch.dir("other")], &["union's own mount", text(&point)]);
    good(["umount", text(&point)]);
    assert!(tree(&two).is_empty(), "nothing is left behind");
}

/// A directory in several members moves in each of them; what a killed process left half made is finished.
#[test]
fn a_directory_in_several_members_is_renamed_whole_also_if_the_process_is_killed() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    let state = scratch.path("state");
    fs::create_dir_all(one.join("d/sub")).unwrap();
    fs::create_dir_all(two.join("d")).unwrap();
    fs::create_dir(two.join("to")).unwrap();
    fs::write(one.join("d/sub/a"), "a").unwrap();
    fs::write(two.join("d/b"), "bb").unwrap();
    let arguments = ["union", "-f", text(&one), text(&two), text(&point), "--state", text(&state)];
    let mut union = Daemon::start(arguments, "stop");
    let ino = fs::metadata(point.join("d")).unwrap().ino();
    fs::rename(point.join("d"), point.join("to/e")).unwrap();
    assert_eq!(fs::metadata(point.join("to/e")).unwrap().ino(), ino);
    let moved =
        |member: &Path, path: &str| member.join("to/e").join(path).exists() && !member.join("d").exists();
    assert!(moved(&one, "sub/a") && moved(&two, "b"));
    union.kill();
    common::detach(&point);
    // As if it had been killed between the two members.
    fs::rename(two.join("to/e"), two.join("d")).unwrap();
    let said = good(["union", "finish", "--state", text(&state)]);
    assert!(said.contains("the rename of /d to /to/e is made"), "{said}");
    assert!(moved(&one, "sub/a") && moved(&two, "b"));
    assert!(good(["union", "finish", "--state", text(&state)]).contains("nothing was left"));

    // The same by a start of a union that has one of the members, while the other one is not there.
    let mut union = Daemon::start(arguments, "stop");
    fs::rename(point.join("to/e"), point.join("d")).unwrap();
    union.kill();
    common::detach(&point);
    fs::rename(one.join("d"), one.join("to/e")).unwrap();
    fs::rename(&two, scratch.path("elsewhere")).unwrap();
    let said = bad(["union", "finish", "--state", text(&state)]);
    assert!(said.contains(text(&two)) && said.contains("atoll union finish"), "{said}");
    fs::rename(scratch.path("elsewhere"), &two).unwrap();
    let union = Daemon::start(arguments, "stop");
    let shown: Vec<_> = tree(&point).into_keys().collect();
    let whole = ["d", "d/b", "d/sub", "d/sub/a", "to"].map(PathBuf::from).to_vec();
    let at_new = ["to", "to/e", "to/e/b", "to/e/sub", "to/e/sub/a"].map(PathBuf::from).to_vec();
    assert!(shown == whole || shown == at_new, "{shown:?}");
    drop(union);
}

#[test]
fn the_state_of_a_union_never_lies_in_a_member() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    let inside = one.join("state");
    let said = bad(["union", text(&one), text(&two), text(&point), "--state", text(&inside)]);
    assert!(said.contains("lies inside the member") && said.contains(text(&one)), "{said}");
    assert!(tree(&one).is_empty() && !is_mounted(&point));
}

/// File systems give the number of a removed directory to the next one, also while somebody is in the removed one.
#[test]
fn a_directory_that_gets_the_number_of_a_removed_one_is_not_taken_for_it() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    good(["union", text(&one), text(&two), text(&point)]);
    let mut open = Vec::new();
    for n in 0..100 {
        let dir = point.join(format!("d{n}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), "x").unwrap();
        fs::remove_file(dir.join("f")).unwrap();
        open.push(fs::File::open(&dir).unwrap());
        fs::remove_dir(&dir).unwrap();
    }
    drop(open);
    good(["umount", text(&point)]);
}
