//! Directories that somebody else moves while this mount's kernel has them at their old places: they can be
//! used and moved on at once, and what is used or mounted below them goes with them. Needs root.

mod common;

use atoll_core::{Ino, Name};
use atoll_fuse::Config;
use atoll_needs::needs;
use atoll_posix::{Answer, Caller, Op, RenameMode};
use atoll_vfs::{Caching, call};
use bytes::Bytes;
use common::{Memory, PATIENCE, Place, World, eventually};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A volume that others have open too.
fn shared(name: &str) -> World {
    let files = Arc::new(Memory::default());
    *files.caching.lock().unwrap() = Caching::Never;
    World::with(name, files, Config::default())
}

fn split(files: &Memory, path: &str) -> (Ino, Name) {
    let mut names: Vec<Name> = path.split('/').map(|name| Name::new(name.as_bytes()).unwrap()).collect();
    let last = names.pop().unwrap();
    let dir = names.into_iter().fold(Ino::ROOT, |dir, name| {
        match call(files, &Caller::ROOT, Op::Lookup { dir, name }, Bytes::new()).unwrap().0 {
            Answer::Found { found } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    });
    (dir, last)
}

/// As another mount does it.
fn move_behind(files: &Memory, from: &str, to: &str, mode: RenameMode) {
    let ((dir, name), (new_dir, new_name)) = (split(files, from), split(files, to));
    files.behind(Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }, b"");
}

/// `a` was at `b/d/e`, where this mount's kernel has it still, and is back now.
fn moved_away_and_back(world: &World) {
    fs::rename(world.at("a"), world.at("b/d/e")).unwrap();
    move_behind(&world.files, "b/d/e", "a", RenameMode::Replace);
}

fn make(world: &World) {
    fs::create_dir_all(world.at("a/sub")).unwrap();
    fs::create_dir_all(world.at("b/d")).unwrap();
    fs::write(world.at("a/file"), "bytes").unwrap();
}

#[test]
fn a_directory_that_was_moved_elsewhere_can_be_moved_without_being_looked_at_first() {
    needs!(Mounts);
    let world = shared("moved");
    make(&world);
    for round in 0..200 {
        moved_away_and_back(&world);
        let again = fs::rename(world.at("a"), world.at("b/d/e"));
        again.unwrap_or_else(|why| panic!("round {round}: {why}"));
        assert_eq!(fs::read_to_string(world.at("b/d/e/file")).unwrap(), "bytes");
        fs::rename(world.at("b/d/e"), world.at("a")).unwrap();
    }
}

#[test]
fn one_that_is_in_use_can_be_too_and_who_uses_it_sees_where_it_is() {
    needs!(Mounts);
    let world = shared("used");
    make(&world);
    for held in ["a/file", "a/sub", "a"] {
        let open = fs::File::open(world.at(held)).unwrap();
        let shown = || fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
        for round in 0..50 {
            moved_away_and_back(&world);
            let again = fs::rename(world.at("a"), world.at("b/d/e"));
            again.unwrap_or_else(|why| panic!("{held}, round {round}: {why}"));
            assert_eq!(shown(), world.at(&held.replacen('a', "b/d/e", 1)));
            fs::rename(world.at("b/d/e"), world.at("a")).unwrap();
            assert_eq!(shown(), world.at(held));
        }
    }
}

/// Unmounts what lies below a test's mount, even if the test fails.
struct Below(PathBuf);

impl Drop for Below {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn what_is_mounted_below_goes_with_it() {
    needs!(Mounts);
    let world = shared("below");
    make(&world);
    let sub = world.at("a/sub");
    rustix::mount::mount("none", &sub, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let _below = Below(world.at("b/d/e/sub"));
    fs::write(sub.join("inside"), "here").unwrap();
    for _ in 0..20 {
        moved_away_and_back(&world);
        fs::rename(world.at("a"), world.at("b/d/e")).unwrap();
        assert_eq!(fs::read_to_string(world.at("b/d/e/sub/inside")).unwrap(), "here");
        fs::rename(world.at("b/d/e"), world.at("a")).unwrap();
    }
    fs::rename(world.at("a"), world.at("b/d/e")).unwrap();
}

/// Files that are opened between two exchanges.
const OPENED_EACH: u32 = 20;

#[test]
fn who_opens_below_directories_that_others_exchange_hardly_ever_fails_while_their_parents_are_busy() {
    needs!(Mounts);
    let world = shared("exchanged");
    for dir in ["p/x", "q/x"] {
        fs::create_dir_all(world.at(dir)).unwrap();
        fs::write(world.at(dir).join("f"), dir).unwrap();
    }
    let (stop, opened, failed) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for dir in ["p", "q"] {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                for n in (0..).take_while(|_| !stop.load(SeqCst)) {
                    let name = world.at(dir).join(format!("n{n}"));
                    fs::write(&name, "").unwrap();
                    fs::remove_file(&name).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut next = 0;
            while !stop.load(SeqCst) {
                // So often by what is opened, not by time: on a busy machine the others are slower too.
                if opened.load(SeqCst) < next {
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                }
                move_behind(&world.files, "p/x", "q/x", RenameMode::Exchange);
                next = opened.load(SeqCst) + OPENED_EACH;
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while opened.load(SeqCst) < 4000 {
                    for path in ["p/x/f", "q/x/f"] {
                        if let Err(why) = fs::File::open(world.at(path)) {
                            assert_eq!(why.raw_os_error(), Some(116), "{why}");
                            failed.fetch_add(1, SeqCst);
                        }
                        opened.fetch_add(1, SeqCst);
                    }
                }
                stop.store(true, SeqCst);
            });
        }
    });
    let (opened, failed) = (opened.into_inner(), failed.into_inner());
    eprintln!("{failed} of {opened} failed");
    assert!(failed * 400 <= opened, "{failed} of {opened}");
}

/// As another mount does it: just when this one removes or replaces what it has found at `from`, that goes to `to`.
fn moves_in_between(world: &World, from: &str, to: &str, comes_there: bool) {
    let ((dir, name), (new_dir, new_name)) = (split(&world.files, from), split(&world.files, to));
    let comes = Op::Mkdir { dir, name: name.clone(), mode: 0o755, umask: 0 };
    let mode = RenameMode::Replace;
    let mut first = vec![Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }];
    first.extend(comes_there.then_some(comes));
    *world.files.first.lock().unwrap() = first;
}

#[test]
fn a_directory_that_was_moved_away_before_its_name_is_removed_or_replaced_lives_on() {
    needs!(Mounts);
    let world = shared("lives");
    fs::create_dir(world.at("away")).unwrap();
    for (round, comes_there, rename) in [(0, true, false), (1, true, true), (2, false, true)] {
        fs::create_dir(world.at("name")).unwrap();
        fs::create_dir(world.at("other")).unwrap();
        // Used, or the kernel would forget it, and learn of it anew.
        let used = fs::File::open(world.at("name")).unwrap();
        let to = format!("away/{round}");
        moves_in_between(&world, "name", &to, comes_there);
        if rename {
            fs::rename(world.at("other"), world.at("name")).unwrap();
            fs::remove_dir(world.at("name")).unwrap();
        } else {
            fs::remove_dir(world.at("name")).unwrap();
            fs::remove_dir(world.at("other")).unwrap();
        }
        let path = format!("/proc/self/fd/{}/file", used.as_raw_fd());
        fs::write(path, "").unwrap_or_else(|why| panic!("round {round}: {why}"));
        assert!(fs::symlink_metadata(world.at(&to).join("file")).is_ok());
    }
}

/// More directories than are looked after at once.
const MANY: usize = 40;

#[test]
fn nobody_waits_for_a_parent_that_somebody_else_keeps_locked() {
    needs!(Mounts);
    let world = shared("locked");
    (0..MANY).for_each(|n| fs::create_dir_all(world.at(&format!("q/x{n}"))).unwrap());
    fs::create_dir(world.at("p")).unwrap();
    let (q, _) = split(&world.files, "q/none");
    std::thread::scope(|scope| {
        // Its answer does not come, so that the kernel has q locked.
        world.files.held.lock().unwrap().push(q);
        let maker = scope.spawn(|| fs::create_dir(world.at("q/new")));
        eventually(|| world.requests("MKDIR") == MANY as u64 + 3);
        for n in 0..MANY {
            move_behind(&world.files, &format!("q/x{n}"), &format!("p/x{n}"), RenameMode::Replace);
        }
        let (sender, ended) = channel();
        for n in 0..MANY {
            let (path, sender) = (world.at(&format!("p/x{n}")), sender.clone());
            scope.spawn(move || {
                let looked = fs::symlink_metadata(path);
                sender.send(looked.map_err(|why| why.raw_os_error()).err()).unwrap();
            });
        }
        // All of them end while the kernel has q locked. The time only catches one that would wait for ever.
        let seen: Vec<_> = (0..MANY).map_while(|_| ended.recv_timeout(PATIENCE).ok()).collect();
        world.files.held.lock().unwrap().clear();
        maker.join().unwrap().unwrap();
        assert_eq!(seen.len(), MANY, "the others have waited for q");
        // The kernel cannot move them.
        assert!(seen.iter().all(|why| *why == Some(Some(116))), "{seen:?}");
    });
    // Now it is free, and all goes on. The threads that looked meanwhile may still have q locked for a moment.
    (0..MANY).for_each(|n| eventually(|| fs::symlink_metadata(world.at(&format!("p/x{n}"))).is_ok()));
}

/// A directory that was moved is found, and then who looks there too is not answered: as if a node went away.
fn moved_and_stuck(world: &World) {
    fs::create_dir_all(world.at("q/x")).unwrap();
    fs::create_dir(world.at("p")).unwrap();
    move_behind(&world.files, "q/x", "p/x", RenameMode::Replace);
    let (p, _) = split(&world.files, "p/x");
    *world.files.stuck.lock().unwrap() = Some((p, 1));
    fs::symlink_metadata(world.at("p/x")).unwrap();
}

#[test]
fn the_daemon_does_not_wait_long_for_itself() {
    needs!(Mounts);
    let world = shared("itself");
    moved_and_stuck(&world);
    eventually(|| world.files.cancelled.load(SeqCst) > 0);
    *world.files.stuck.lock().unwrap() = None;
    fs::symlink_metadata(world.at("p/x")).unwrap();
}

/// Run by the test below in a process of its own, which is killed.
#[test]
#[ignore = "half of another test"]
fn a_daemon_that_asks_itself() {
    let Ok(ready) = std::env::var("ATOLL_FUSE_READY") else { return };
    let world = shared("asking");
    moved_and_stuck(&world);
    eventually(|| !world.files.looking.lock().unwrap().is_empty());
    fs::write(ready, world.place.0.to_str().unwrap()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_daemon_that_asks_itself_can_be_killed() {
    needs!(Mounts);
    let place = Place::new("asked");
    let ready = place.0.join("ready");
    let mut daemon = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_daemon_that_asks_itself"])
        .env("ATOLL_FUSE_READY", &ready)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let point = || fs::read_to_string(&ready).unwrap_or_default();
    eventually(|| !point().is_empty());
    daemon.kill().unwrap();
    let ended = (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        daemon.try_wait().unwrap().is_some()
    });
    let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE;
    rustix::mount::unmount(point().as_str(), flags).unwrap();
    fs::remove_dir(point()).unwrap();
    fs::remove_file(&ready).unwrap();
    assert!(ended, "it waits for itself");
}
