//! Directories that are made through the mount: the volume is not asked for names that nobody has given there.

mod common;

use atoll_core::{Ino, Name};
use atoll_needs::needs;
use atoll_posix::Op;
use atoll_vfs::{Caching, Scope};
use common::{World, create, eventually};
use rustix::fs::{FileType, Mode, mknodat};
use std::fs::{self, File};

/// Somebody else makes a file in a directory.
fn create_behind(world: &World, dir: Ino, text: &str) {
    let Op::Create { kind, mode, umask, rdev, exclusive, target, .. } = create(text) else {
        panic!("a file")
    };
    let name = Name::new(text.as_bytes()).unwrap();
    world.files.behind(Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }, b"");
}

#[test]
fn what_nobody_has_made_in_a_new_directory_is_not_asked_for() {
    needs!(Mounts);
    let world = World::new("fresh");
    fs::create_dir(world.at("d")).unwrap();
    let before = world.files.absent_asked();
    for n in 0..5 {
        assert!(!world.at(&format!("d/none{n}")).exists());
        File::create_new(world.at(&format!("d/f{n}"))).unwrap();
    }
    assert_eq!(world.files.absent_asked(), before);
    // Names that are gone may be asked for.
    fs::remove_file(world.at("d/f0")).unwrap();
    assert!(!world.at("d/f0").exists());
    assert_eq!(fs::read_dir(world.at("d")).unwrap().count(), 4);
    // Of a directory that was there nothing is known.
    assert!(!world.at("none").exists());
    assert!(world.files.absent_asked() > before);
}

/// The kernel is told of no name for long, so it asks for each again.
#[test]
fn each_way_of_giving_a_name_is_noticed() {
    needs!(Mounts);
    let world = World::new("fresh-names");
    for text in ["x", "y"] {
        File::create(world.at(text)).unwrap();
    }
    fs::create_dir(world.at("d")).unwrap();
    *world.files.caching.lock().unwrap() = Caching::Never;
    let at = |text: &str| world.at(&format!("d/{text}"));
    File::create(at("created")).unwrap();
    fs::create_dir(at("made")).unwrap();
    std::os::unix::fs::symlink("x", at("symbolic")).unwrap();
    fs::hard_link(world.at("x"), at("linked")).unwrap();
    fs::rename(world.at("y"), at("renamed")).unwrap();
    mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    *world.files.caching.lock().unwrap() = Caching::UntilRecalled;
    for text in ["created", "made", "symbolic", "linked", "renamed", "fifo"] {
        assert!(at(text).symlink_metadata().is_ok(), "{text}");
    }
    assert!(!at("none").exists());
}

#[test]
fn what_somebody_else_makes_there_is_found() {
    needs!(Mounts);
    let world = World::new("fresh-others");
    let watcher = world.files.watcher.get().unwrap();
    for text in ["recalled", "changed"] {
        fs::create_dir(world.at(text)).unwrap();
        create_behind(&world, world.files.id(text), "f");
        assert!(!world.at(&format!("{text}/f")).exists(), "it is known to be absent");
    }
    let dir = world.files.id("changed");
    watcher.changed(&[dir], &[(dir, Name::new(b"f").unwrap())]);
    eventually(|| world.at("changed/f").exists());
    watcher.recall(Scope::Everything);
    assert!(world.at("recalled/f").exists());
    // While others may change the volume nothing is known.
    *world.files.caching.lock().unwrap() = Caching::Never;
    fs::create_dir(world.at("shared")).unwrap();
    create_behind(&world, world.files.id("shared"), "f");
    assert!(world.at("shared/f").exists());
}
