//! Recalls while the volume does not answer what it was asked: the volume answers only when they are over.

mod common;

use atoll_needs::needs;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use atoll_core::Ino;
use atoll_posix::Op;
use common::{World, create, eventually};
use rustix::mm::{MapFlags, ProtFlags};

const BYTES: usize = 4096;
/// Longer than any recall may take on a slow machine.
const LONG: Duration = Duration::from_secs(20);

/// A file that the kernel has not heard of.
fn file(world: &World, text: &str, byte: u8) -> Ino {
    world.files.behind(create(text), b"");
    change(world, text, byte);
    world.files.id(text)
}

/// Changes a file without the kernel.
fn change(world: &World, text: &str, byte: u8) {
    let write = Op::Write { ino: world.files.id(text), offset: 0, append: false, kill_set_id: false };
    world.files.behind(write, &[byte; BYTES]);
}

/// The first byte of a file, in memory that is shared with it.
fn mapped(file: &fs::File) -> *mut u8 {
    let (rights, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, at a place that the kernel chooses.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, rights, how, file, 0) }.unwrap().cast()
}

/// A recall that must end, although reads and writes are held.
fn recall(world: &World) {
    let (files, (say, over)) = (Arc::clone(&world.files), channel());
    std::thread::spawn(move || {
        files.recall();
        let _ = say.send(());
    });
    if over.recv_timeout(LONG).is_err() {
        world.files.held.lock().unwrap().clear();
        panic!("the recall waits for what waits for it");
    }
}

fn open(world: &World, text: &str) -> fs::File {
    fs::File::options().read(true).write(true).open(world.at(text)).unwrap()
}

#[test]
fn a_recall_ends_although_pages_are_read_and_written_back_and_drops_all_others() {
    needs!(Mounts);
    let world = World::new("held");
    let others: Vec<String> = (0..50).map(|n| format!("other{n}")).collect();
    for text in others.iter().map(String::as_str).chain(["read", "written"]) {
        file(&world, text, b'a');
    }
    let opened: Vec<fs::File> = others.iter().map(|text| open(&world, text)).collect();
    let seen: Vec<*mut u8> = opened.iter().map(mapped).collect();
    // SAFETY: mapped for as long as the test runs.
    let byte = |at: *mut u8| unsafe { at.read_volatile() };
    assert!(seen.iter().all(|at| byte(*at) == b'a'));
    let written = mapped(&open(&world, "written"));
    // SAFETY: as above.
    unsafe { written.write_volatile(b'w') };
    *world.files.held.lock().unwrap() = ["read", "written"].map(|text| world.files.id(text)).into();
    std::thread::scope(|scope| {
        let (world, before) = (&world, world.requests("READ"));
        let read = scope.spawn(|| fs::read(world.at("read")).unwrap());
        eventually(|| world.requests("READ") > before);
        recall(world);
        others.iter().for_each(|text| change(world, text, b'b'));
        assert!(seen.iter().all(|at| byte(*at) == b'b'), "a page was kept");
        assert!(!read.is_finished());
        world.files.held.lock().unwrap().clear();
        assert_eq!(read.join().unwrap(), [b'a'; BYTES]);
    });
    // What was held up goes too, and nothing of it was lost.
    assert_eq!(fs::read(world.at("written")).unwrap()[0], b'w');
    change(&world, "written", b'c');
    eventually(|| byte(written) == b'c');
}

#[test]
fn what_was_read_before_a_recall_is_not_read_after_it_although_the_page_could_not_go() {
    needs!(Mounts);
    let world = World::new("stale");
    file(&world, "f", b'a');
    // More than is read ahead: its first page is kept, its last one is being read.
    let far = 64 << 20;
    let write = Op::Write { ino: world.files.id("f"), offset: far, append: false, kill_set_id: false };
    world.files.behind(write, &[b'z'; BYTES]);
    let file = open(&world, "f");
    let mut first = [0];
    file.read_exact_at(&mut first, 0).unwrap();
    let reads = world.requests("READ");
    file.read_exact_at(&mut first, 1).unwrap();
    assert_eq!(world.requests("READ"), reads, "the page is kept");
    *world.files.held.lock().unwrap() = vec![world.files.id("f")];
    std::thread::scope(|scope| {
        let (world, file) = (&world, &file);
        scope.spawn(move || file.read_exact_at(&mut [0], far).unwrap());
        eventually(|| world.requests("READ") > reads);
        recall(world);
        change(world, "f", b'b');
        let again = scope.spawn(move || {
            let mut first = [0];
            file.read_exact_at(&mut first, 0).unwrap();
            first
        });
        world.files.held.lock().unwrap().clear();
        assert_eq!(again.join().unwrap(), *b"b");
    });
}
