//! What a volume that hears of opens is told: each open with what it is for, and each end once.

mod common;

use atoll_fuse::{Config, Locks};
use atoll_needs::needs;
use atoll_posix::Errno;
use atoll_vfs::OpenFor;
use common::{Memory, World, eventually, opening};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::sync::Arc;

const READ: OpenFor = OpenFor { read: true, write: false };
const WRITE: OpenFor = OpenFor { read: false, write: true };
const BOTH: OpenFor = OpenFor { read: true, write: true };

fn hearing(name: &str, config: Config) -> World {
    let files = Memory::default();
    files.opening.lock().unwrap().hears = true;
    World::with(name, Arc::new(files), config)
}

/// What is open, without its numbers.
fn open(world: &World) -> Vec<OpenFor> {
    let state = world.files.opening.lock().unwrap();
    assert_eq!(state.strange, [], "nothing is closed that is not open");
    state.open.iter().map(|one| one.2).collect()
}

/// The kernel does not wait for the answer to a release.
fn all_closed(world: &World) {
    eventually(|| open(world).is_empty());
}

#[test]
fn each_open_is_heard_of_with_what_it_is_for_and_closed_once() {
    needs!(Mounts);
    for locks in [Locks::Shared, Locks::Local] {
        let world = hearing("opens", Config { locks, ..Config::default() });
        let mut made = File::create(world.at("f")).unwrap();
        assert_eq!(open(&world), [WRITE], "one that was made is open");
        made.write_all(b"hello").unwrap();
        let mut text = String::new();
        let mut reader = File::open(world.at("f")).unwrap();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), open(&world)), ("hello", vec![WRITE, READ]));
        let both = OpenOptions::new().read(true).write(true).open(world.at("f")).unwrap();
        assert_eq!(open(&world), [WRITE, READ, BOTH]);
        let again = reader.try_clone().unwrap();
        drop(made);
        eventually(|| open(&world) == [READ, BOTH]);
        drop(reader);
        drop(both);
        eventually(|| open(&world) == [READ]);
        drop(again);
        all_closed(&world);
    }
}

#[test]
fn an_error_of_open_reaches_the_caller_and_nothing_is_open() {
    needs!(Mounts);
    let world = hearing("open-errors", Config::default());
    fs::write(world.at("old"), b"x").unwrap();
    all_closed(&world);
    // If the kernel were told ENOSYS, it would never ask again.
    for (why, seen) in [(Errno(26), 26), (Errno::ENOSYS, Errno::EOPNOTSUPP.0), (Errno::EIO, Errno::EIO.0)] {
        world.files.opening.lock().unwrap().refused = Some(why);
        assert_eq!(File::open(world.at("old")).unwrap_err().raw_os_error(), Some(seen));
        let new = world.at(&format!("new{}", why.0));
        assert_eq!(File::create(new).unwrap_err().raw_os_error(), Some(seen));
    }
    world.files.opening.lock().unwrap().refused = None;
    assert_eq!(open(&world), []);
    assert_eq!(fs::read(world.at("old")).unwrap(), b"x");
    all_closed(&world);
    // Nothing stays known that the kernel was not told of.
    assert!(world.files.forgotten.lock().unwrap().len() >= 3);
}

#[test]
fn an_open_may_be_completed_later_on_another_thread() {
    needs!(Mounts);
    let world = hearing("late-opens", Config::default());
    fs::write(world.at("old"), b"x").unwrap();
    all_closed(&world);
    world.files.opening.lock().unwrap().put_off = true;
    std::thread::scope(|s| {
        let old = s.spawn(|| File::open(world.at("old")).unwrap());
        let new = s.spawn(|| File::create(world.at("new")).unwrap());
        eventually(|| world.files.opening.lock().unwrap().waiting.len() == 2);
        assert!(world.at("old").exists() && !old.is_finished() && !new.is_finished());
        opening::let_go(&world.files.opening);
        let (old, mut new) = (old.join().unwrap(), new.join().unwrap());
        assert_eq!(open(&world).len(), 2);
        new.write_all(b"later").unwrap();
        drop((old, new));
    });
    assert_eq!(fs::read(world.at("new")).unwrap(), b"later");
    all_closed(&world);
}

#[test]
fn what_is_open_when_the_mount_ends_is_closed() {
    needs!(Mounts);
    let mut world = hearing("opens-end", Config::default());
    let file = File::create(world.at("f")).unwrap();
    let reader = File::open(world.at("f")).unwrap();
    assert_eq!(open(&world), [WRITE, READ]);
    world.mounted().unmount();
    world.mounted.take();
    all_closed(&world);
    drop((file, reader));
    assert_eq!(open(&world), []);
}

#[test]
fn an_open_whose_answer_the_kernel_does_not_take_is_closed() {
    needs!(Mounts);
    let world = hearing("opens-untaken", Config::default());
    fs::write(world.at("old"), b"x").unwrap();
    all_closed(&world);
    world.files.opening.lock().unwrap().put_off = true;
    std::thread::scope(|s| {
        let old = s.spawn(|| File::open(world.at("old")));
        let new = s.spawn(|| File::create(world.at("new")));
        eventually(|| world.files.opening.lock().unwrap().waiting.len() == 2);
        world.mounted().unmount();
        assert!(old.join().unwrap().is_err() && new.join().unwrap().is_err());
    });
    let before = world.files.opening.lock().unwrap().opened;
    opening::let_go(&world.files.opening);
    assert_eq!(world.files.opening.lock().unwrap().opened, before + 2);
    all_closed(&world);
}

#[test]
fn a_volume_that_does_not_hear_of_opens_is_told_of_none() {
    needs!(Mounts);
    let world = World::new("opens-unheard");
    fs::write(world.at("f"), b"x").unwrap();
    assert_eq!(fs::read(world.at("f")).unwrap(), b"x");
    assert_eq!(world.files.opening.lock().unwrap().opened, 0);
}
