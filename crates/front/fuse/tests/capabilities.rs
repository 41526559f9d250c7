//! Capabilities of files, for which the kernel asks before each first write: the volume is asked once at most, as long as nobody else can
//! set them.

mod common;

use atoll_needs::needs;
use atoll_posix::{Op, XattrMode};
use atoll_vfs::{Caching, Scope};
use bytes::Bytes;
use common::{World, create, eventually};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::File;
use std::io::Write;

const NAME: &str = "security.capability";
/// Of the second version: none are permitted.
const VALUE: [u8; 20] = [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn has(world: &World, text: &str) -> bool {
    getxattr(world.at(text), NAME, &mut [0; 64]).is_ok()
}

/// Somebody else sets them.
fn set_behind(world: &World, text: &str) {
    let (name, value) = (Bytes::from_static(NAME.as_bytes()), Bytes::from_static(&VALUE));
    let (ino, mode) = (world.files.id(text), XattrMode::Any);
    world.files.behind(Op::SetXattr { ino, name, value, mode, kill_sgid: false }, b"");
}

/// Writes to a file after the kernel was told of its attributes.
fn append(world: &World, text: &str) {
    let mut file = File::options().append(true).open(world.at(text)).unwrap();
    file.write_all(b"more").unwrap();
}

#[test]
fn a_new_file_has_none_and_of_others_the_volume_is_asked_once() {
    needs!(Mounts);
    let world = World::new("capabilities");
    for text in ["new", "other"] {
        File::create(world.at(text)).unwrap().write_all(b"bytes").unwrap();
    }
    assert!(world.requests("GETXATTR") > 0, "the kernel asks before it writes");
    assert_eq!(world.files.capabilities_asked(), 0);
    world.files.behind(create("there"), b"");
    (0..3).for_each(|_| append(&world, "there"));
    assert!(!has(&world, "there"));
    assert_eq!(world.files.capabilities_asked(), 1);
}

#[test]
fn what_somebody_sets_is_there_and_so_is_what_somebody_else_does() {
    needs!(Mounts);
    let world = World::new("capabilities-set");
    for text in ["own", "recalled", "changed"] {
        File::create(world.at(text)).unwrap();
        assert!(!has(&world, text));
    }
    setxattr(world.at("own"), NAME, &VALUE, XattrFlags::empty()).unwrap();
    assert!(has(&world, "own"));
    let watcher = world.files.watcher.get().unwrap();
    set_behind(&world, "changed");
    watcher.changed(&[world.files.id("changed")], &[]);
    eventually(|| has(&world, "changed"));
    set_behind(&world, "recalled");
    watcher.recall(Scope::Everything);
    assert!(has(&world, "recalled"));
    // A volume that others change is asked each time.
    *world.files.caching.lock().unwrap() = Caching::Never;
    File::create(world.at("shared")).unwrap();
    set_behind(&world, "shared");
    assert!(has(&world, "shared"));
}
