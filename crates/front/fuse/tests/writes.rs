//! Writes: appends of which none is cut in two, and writes that are synced before they return.

mod common;

use atoll_fuse::Config;
use atoll_needs::needs;
use atoll_vfs::Caching;
use common::{Memory, World};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

/// Bytes of a page.
const PAGE: usize = 4096;

/// The kernel cuts what it writes through its pages where they end. Another mount could append something between the two parts.
#[test]
fn an_append_is_one_request_wherever_a_page_ends() {
    needs!(Mounts);
    let world = World::new("writes-append");
    fs::write(world.at("f"), vec![b'x'; PAGE - 3]).unwrap();
    let append = || OpenOptions::new().append(true).create(true).clone();
    for (open, text) in [(append().read(false).clone(), "f"), (append().create_new(true).clone(), "new")] {
        let mut file = open.open(world.at(text)).unwrap();
        if text == "new" {
            file.write_all(&vec![b'x'; PAGE - 3]).unwrap();
        }
        let before = world.requests("WRITE");
        file.write_all(b"a line\n").unwrap();
        assert_eq!(world.requests("WRITE") - before, 1, "{text}");
        assert!(fs::read(world.at(text)).unwrap().ends_with(b"xa line\n"), "{text}");
    }
}

#[test]
fn a_write_is_synced_before_it_returns_if_that_is_asked_for_and_pages_or_none_are_kept() {
    needs!(Mounts);
    for (nth, caching) in [Caching::UntilRecalled, Caching::Never].into_iter().enumerate() {
        for sync in [false, true] {
            let config = Config { sync, ..Config::default() };
            let world =
                World::with(&format!("writes-sync-{nth}-{sync}"), Arc::new(Memory::default()), config);
            *world.files.caching.lock().unwrap() = caching;
            let by = |flags: i32, what: &dyn Fn(&File)| {
                let mut how = OpenOptions::new();
                let file =
                    how.write(true).create(true).truncate(false).custom_flags(flags).open(world.at("f"));
                let before = world.files.synced();
                what(&file.unwrap());
                world.files.synced() - before
            };
            let write = |file: &File| file.write_all_at(b"bytes", 0).unwrap();
            for flags in [libc::O_DSYNC, libc::O_SYNC, libc::O_SYNC | libc::O_APPEND] {
                assert_eq!(by(flags, &write), 1, "{caching:?} {flags:o}");
            }
            // The flag of the mount itself is the kernel's, which this world does not set.
            let by_mount = u64::from(sync && caching == Caching::Never);
            assert_eq!(by(0, &write), by_mount, "{caching:?}");
            assert_eq!(fs::read(world.at("f")).unwrap()[..5], *b"bytes");
        }
    }
}
