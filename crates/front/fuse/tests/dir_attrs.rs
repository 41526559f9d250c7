//! Attributes of directories whose names change through the mount: the volume is not asked for them again, as long as nobody else can
//! change them.

mod common;

use atoll_core::{Ino, Name, Time};
use atoll_needs::needs;
use atoll_posix::{Op, SetAttr};
use atoll_vfs::Scope;
use common::{World, eventually};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering::SeqCst;

/// The kernel shows a directory as the volume has it.
fn is_shown(world: &World, text: &str, dir: Ino) {
    let (shown, attr) = (fs::metadata(world.at(text)).unwrap(), world.files.attr_of(dir));
    assert_eq!((shown.mode() & 0o7777, shown.nlink()), (attr.mode, u64::from(attr.nlink)), "{text}");
    let times = [(shown.mtime(), shown.mtime_nsec()), (shown.ctime(), shown.ctime_nsec())];
    let told = |time: Time| (time.secs, i64::from(time.nanos));
    assert_eq!(times, [told(attr.mtime), told(attr.ctime)], "{text}");
}

#[test]
fn what_changes_of_names_leave_of_a_directory_is_not_asked_for() {
    needs!(Mounts);
    let world = World::new("dir-attrs");
    for dir in ["a", "b"] {
        fs::create_dir(world.at(dir)).unwrap();
        File::create_new(world.at(&format!("{dir}/first"))).unwrap();
    }
    let before = world.files.attr_asked();
    let kernel = world.requests("GETATTR");
    File::create_new(world.at("a/f")).unwrap();
    fs::create_dir(world.at("a/d")).unwrap();
    fs::hard_link(world.at("a/f"), world.at("b/g")).unwrap();
    fs::rename(world.at("a/first"), world.at("a/h")).unwrap();
    fs::rename(world.at("a/d"), world.at("a/e")).unwrap();
    fs::remove_file(world.at("a/h")).unwrap();
    fs::remove_dir(world.at("a/e")).unwrap();
    fs::rename(world.at("a/f"), world.at("b/f")).unwrap();
    let are_shown = || ["a", "b"].into_iter().for_each(|text| is_shown(&world, text, world.files.id(text)));
    are_shown();
    assert!(world.requests("GETATTR") > kernel, "the kernel asks");
    assert_eq!(world.files.attr_asked(), before, "and the volume is not asked");
    // Of two directories one may be another island's, which does not tell.
    *world.files.untold.lock().unwrap() = Some(world.files.id("b"));
    fs::rename(world.at("b/f"), world.at("a/f")).unwrap();
    are_shown();
    assert_eq!(world.files.attr_asked(), before + 1);
}

/// An island that does not answer in time may carry a change out all the same, later.
#[test]
fn nothing_is_known_while_a_change_may_still_come_of_which_nobody_was_told() {
    needs!(Mounts);
    let world = World::new("dir-attrs-doubt");
    fs::create_dir(world.at("d")).unwrap();
    let dir = world.files.id("d");
    let fill = |n: u32| drop(File::create_new(world.at(&format!("d/f{n}"))).unwrap());
    (0..3).for_each(fill);
    world.files.loses.store(true, SeqCst);
    assert_eq!(fs::create_dir(world.at("d/late")).unwrap_err().raw_os_error(), Some(5));
    fill(3);
    let name = Name::new(b"late").unwrap();
    world.files.behind(Op::Mkdir { dir, name, mode: 0o755, umask: 0 }, b"");
    is_shown(&world, "d", dir);
    // After a recall it is as before.
    world.files.watcher.get().unwrap().recall(Scope::Everything);
    (4..6).for_each(fill);
    let before = world.files.attr_asked();
    fill(6);
    is_shown(&world, "d", dir);
    assert_eq!(world.files.attr_asked(), before);
}

#[test]
fn nothing_is_known_behind_a_change_whose_answer_another_one_may_have_overtaken() {
    needs!(Mounts);
    let world = World::new("dir-attrs-overtaken");
    fs::create_dir(world.at("d")).unwrap();
    fs::create_dir(world.at("other")).unwrap();
    let dir = world.files.id("d");
    (0..3).for_each(|n| drop(File::create_new(world.at(&format!("d/f{n}"))).unwrap()));
    world.files.held.lock().unwrap().push(dir);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| fs::create_dir(world.at("d/late")));
        eventually(|| world.files.holding.load(SeqCst) == 1);
        fs::remove_dir(world.at("other")).unwrap();
        world.files.held.lock().unwrap().clear();
        late.join().unwrap().unwrap();
    });
    is_shown(&world, "d", dir);
}

#[test]
fn what_changes_otherwise_is_asked_for() {
    needs!(Mounts);
    let world = World::new("dir-attrs-others");
    let watcher = world.files.watcher.get().unwrap();
    fs::create_dir(world.at("d")).unwrap();
    let dir = world.files.id("d");
    let fill = |n: u32| drop(File::create_new(world.at(&format!("d/f{n}"))).unwrap());
    (0..3).for_each(fill);
    fs::set_permissions(world.at("d"), Permissions::from_mode(0o700)).unwrap();
    is_shown(&world, "d", dir);
    fill(3);
    rustix::fs::setxattr(world.at("d"), "user.a", b"value", rustix::fs::XattrFlags::empty()).unwrap();
    is_shown(&world, "d", dir);
    let set_behind = |mode: u32| {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        world.files.behind(Op::SetAttr { ino: dir, set }, b"");
    };
    fill(4);
    set_behind(0o750);
    watcher.recall(Scope::Everything);
    is_shown(&world, "d", dir);
    fill(5);
    set_behind(0o755);
    watcher.changed(&[dir], &[]);
    eventually(|| fs::metadata(world.at("d")).unwrap().mode() & 0o7777 == 0o755);
    // One that is removed while it is in use, and one that gets another name.
    for text in ["gone", "moved"] {
        fs::create_dir(world.at(text)).unwrap();
        File::create_new(world.at(&format!("{text}/f"))).unwrap();
        fs::remove_file(world.at(&format!("{text}/f"))).unwrap();
    }
    let (gone, file) = (world.files.id("gone"), File::open(world.at("gone")).unwrap());
    fs::remove_dir(world.at("gone")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), u64::from(world.files.attr_of(gone).nlink));
    let moved = world.files.id("moved");
    fs::rename(world.at("moved"), world.at("new")).unwrap();
    is_shown(&world, "new", moved);
}
