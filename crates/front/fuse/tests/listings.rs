//! What the kernel keeps of listings, while names come and go. Needs root.

mod common;

use atoll_core::{Ino, Name};
use atoll_fuse::Config;
use atoll_needs::needs;
use atoll_posix::Op;
use atoll_vfs::Caching;
use common::{Memory, World, eventually};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The next names that the kernel tells of an open directory, in one call.
fn next(dir: &File) -> Vec<String> {
    let mut buffer = [0u64; 4096];
    // SAFETY: the kernel writes at most so many bytes there.
    let len = unsafe {
        let at = buffer.as_mut_ptr();
        libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), at, size_of_val(&buffer))
    };
    let len = usize::try_from(len).expect("a directory");
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect();
    let (mut names, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let (entry, more) = rest.split_at(usize::from(u16::from_ne_bytes([rest[16], rest[17]])));
        let name = entry[19..].split(|b| *b == 0).next().unwrap();
        names.push(String::from_utf8(name.to_vec()).unwrap());
        rest = more;
    }
    names.retain(|name| name != "." && name != "..");
    names
}

fn remove(world: &World, name: &str, by_another_mount: bool) {
    if by_another_mount {
        let name = Name::new(name.as_bytes()).unwrap();
        world.files.behind(Op::Unlink { dir: Ino::ROOT, name }, b"");
    } else {
        fs::remove_file(world.at(name)).unwrap();
    }
}

#[test]
fn who_lists_after_a_name_went_is_not_told_what_somebody_had_listed_before() {
    needs!(Mounts);
    for shared in [false, true] {
        let files = Arc::new(Memory::default());
        if shared {
            *files.caching.lock().unwrap() = Caching::Never;
        }
        let world = World::with("stale", files, Config::default());
        ["a", "b"].iter().for_each(|name| fs::write(world.at(name), "").unwrap());
        let early = File::open(&world.place.0).unwrap();
        assert_eq!(next(&early), ["a", "b"]);
        remove(&world, "b", shared);
        let late = File::open(&world.place.0).unwrap();
        assert_eq!(next(&late), ["a"]);
        // With this the kernel would have the whole of the first listing.
        assert!(next(&early).is_empty());
        assert!(next(&late).is_empty(), "shared: {shared}");
    }
}

fn asked(world: &World) -> u64 {
    world.requests("READDIR") + world.requests("READDIRPLUS")
}

fn list(world: &World) -> usize {
    let count = fs::read_dir(&world.place.0).unwrap().count();
    // The kernel does not wait for the answer to a close, and the next open may overtake it.
    eventually(|| world.requests("RELEASEDIR") == world.requests("OPENDIR"));
    count
}

#[test]
fn a_listing_is_kept_for_one_at_a_time_until_others_may_change_the_volume() {
    needs!(Mounts);
    let world = World::new("kept-listing");
    ["a", "b"].iter().for_each(|name| fs::write(world.at(name), "").unwrap());
    assert_eq!(list(&world), 2);
    let first = asked(&world);
    assert_eq!((list(&world), list(&world), asked(&world)), (2, 2, first), "the kernel has it");

    let open = File::open(&world.place.0).unwrap();
    assert_eq!(fs::read_dir(&world.place.0).unwrap().count(), 2);
    assert!(asked(&world) > first, "somebody else has it open");
    drop(open);
    eventually(|| world.requests("RELEASEDIR") == world.requests("OPENDIR"));
    fs::write(world.at("c"), "").unwrap();
    assert_eq!(list(&world), 3);

    world.files.recall();
    let before = asked(&world);
    assert_eq!((list(&world), list(&world)), (3, 3));
    assert_eq!(asked(&world), before + 4, "names, and the end, each time");
}

#[test]
fn the_end_of_a_listing_is_known_when_the_last_name_is_told() {
    needs!(Mounts);
    let world = World::new("end");
    fs::write(world.at("a"), "").unwrap();
    let dir = File::open(&world.place.0).unwrap();
    assert_eq!((next(&dir), next(&dir).len()), (vec!["a".to_owned()], 0));
    world.files.behind(
        Op::Link { ino: world.files.id("a"), dir: Ino::ROOT, name: Name::new(b"later").unwrap() },
        b"",
    );
    assert_eq!(next(&dir), ["later"], "who asks again is told what came since");
}
