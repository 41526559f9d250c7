//! Times of access, as the options of a mount ask for them, and options that are changed while it is mounted.

mod common;

use atoll_core::Ino;
use atoll_fuse::{AccessTimes, Config, MountError, MountOptions, Mounted, remount};
use atoll_needs::needs;
use atoll_posix::{Answer, AtimeRule, Attr, Op};
use atoll_vfs::Caching;
use common::{Memory, Place, World, eventually, python};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const STRICT: AccessTimes = AccessTimes { rule: Some(AtimeRule::Strict), directories: true };

fn mounted(name: &str, caching: Caching, access_times: AccessTimes) -> World {
    let files = Arc::new(Memory::default());
    *files.caching.lock().unwrap() = caching;
    let place = Place::new(name);
    let options = MountOptions { access_times, ..MountOptions::new(name) };
    let mounted = Mounted::new(files.clone(), &place.0, &options, Config::default()).unwrap();
    World { mounted: Some(mounted), files, place }
}

/// What the volume has.
fn attr(files: &Memory, ino: u64) -> Attr {
    match files.behind(Op::GetAttr { ino: Ino(ino) }, b"") {
        Answer::Attr { attr } => attr,
        other => panic!("{other:?}"),
    }
}

fn atime(path: &Path) -> i64 {
    let meta = fs::symlink_metadata(path).unwrap();
    meta.atime() * 1_000_000_000 + meta.atime_nsec()
}

fn mtime(path: &Path) -> i64 {
    let meta = fs::symlink_metadata(path).unwrap();
    meta.mtime() * 1_000_000_000 + meta.mtime_nsec()
}

/// So that times differ.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn by_default_the_first_reading_after_a_change_is_the_time_of_access() {
    needs!(Mounts);
    for caching in [Caching::UntilRecalled, Caching::Never] {
        let world = mounted("relatime", caching, AccessTimes::default());
        let file = world.at("f");
        for _ in 0..2 {
            fs::write(&file, b"some bytes").unwrap();
            let before = fs::metadata(&file).unwrap();
            a_moment();
            assert_eq!(fs::read(&file).unwrap(), b"some bytes");
            let read = atime(&file);
            assert!(read > mtime(&file), "{caching:?}: it was read after it was written");
            let after = fs::metadata(&file).unwrap();
            assert_eq!((after.ctime(), after.ctime_nsec()), (before.ctime(), before.ctime_nsec()));
            a_moment();
            fs::read(&file).unwrap();
            assert_eq!(atime(&file), read, "{caching:?}: nothing has changed since it was read");
            a_moment();
        }
        fs::create_dir(world.at("d")).unwrap();
        std::os::unix::fs::symlink("f", world.at("s")).unwrap();
        a_moment();
        assert_eq!(fs::read_dir(world.at("d")).unwrap().count(), 0);
        fs::read_link(world.at("s")).unwrap();
        for name in ["d", "s"] {
            assert!(atime(&world.at(name)) > mtime(&world.at(name)), "{caching:?}: {name}");
        }
    }
}

#[test]
fn readings_are_told_to_the_volume_at_the_latest_when_the_mount_ends() {
    needs!(Mounts);
    let mut world = mounted("told", Caching::UntilRecalled, AccessTimes::default());
    let [read, touched] = ["read", "touched"].map(|name| world.at(name));
    for file in [&read, &touched] {
        fs::write(file, b"some").unwrap();
    }
    a_moment();
    fs::read(&read).unwrap();
    fs::read(&touched).unwrap();
    python("import os,sys\nos.utime(sys.argv[1]+'/touched',ns=(5,6))", &world.place.0);
    let [seen, ino] = [atime(&read), fs::metadata(&read).unwrap().ino() as i64];
    let touched = fs::metadata(&touched).unwrap().ino();
    let before = attr(&world.files, ino as u64);
    assert!(before.atime <= before.mtime, "it is not told at once");
    world.mounted.take();
    let after = attr(&world.files, ino as u64);
    assert_eq!(after.atime.secs * 1_000_000_000 + i64::from(after.atime.nanos), seen);
    assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
    assert_eq!(attr(&world.files, touched).atime.nanos, 5, "a time that was set stays");
}

#[test]
fn noatime_strictatime_and_o_noatime_do_what_they_say() {
    needs!(Mounts);
    let world = mounted("noatime", Caching::Never, AccessTimes::NEVER);
    fs::write(world.at("f"), b"some").unwrap();
    let before = atime(&world.at("f"));
    a_moment();
    fs::read(world.at("f")).unwrap();
    fs::read_dir(&world.place.0).unwrap().count();
    assert_eq!(atime(&world.at("f")), before);
    let world = mounted("strictatime", Caching::Never, STRICT);
    fs::write(world.at("f"), b"some").unwrap();
    let mut last = atime(&world.at("f"));
    for _ in 0..3 {
        a_moment();
        fs::read(world.at("f")).unwrap();
        assert!(atime(&world.at("f")) > last);
        last = atime(&world.at("f"));
    }
    a_moment();
    python(
        "import os,sys\nfd=os.open(sys.argv[1]+'/f',os.O_RDONLY|os.O_NOATIME)\nassert os.read(fd,10)==b'some'",
        &world.place.0,
    );
    assert_eq!(atime(&world.at("f")), last);
}

#[test]
fn options_are_changed_while_it_is_mounted() {
    needs!(Mounts);
    let world = mounted("remount", Caching::Never, AccessTimes::default());
    let options =
        |access_times, read_only| MountOptions { access_times, read_only, ..MountOptions::new("x") };
    let file = world.at("f");
    fs::write(&file, b"some").unwrap();
    for (times, counts) in [(AccessTimes::NEVER, false), (STRICT, true), (AccessTimes::NEVER, false)] {
        remount(&world.place.0, &options(times, false)).unwrap();
        let before = atime(&file);
        a_moment();
        fs::read(&file).unwrap();
        assert_eq!(atime(&file) > before, counts, "{times:?}");
    }
    let relative = AccessTimes::default();
    let writer = fs::OpenOptions::new().write(true).open(&file).unwrap();
    let refused = remount(&world.place.0, &options(relative, true));
    assert!(matches!(refused, Err(MountError::Busy(_))), "{refused:?}");
    fs::write(world.at("g"), b"still writable").unwrap();
    drop(writer);
    // The kernel closes a file a moment after close(2) has returned.
    eventually(|| remount(&world.place.0, &options(relative, true)).is_ok());
    let read_only = Some(30);
    assert_eq!(fs::write(&file, b"more").unwrap_err().raw_os_error(), read_only);
    assert_eq!(fs::create_dir(world.at("d")).unwrap_err().raw_os_error(), read_only);
    assert_eq!(fs::remove_file(&file).unwrap_err().raw_os_error(), read_only);
    a_moment();
    let before = atime(&world.at("g"));
    assert_eq!(fs::read(world.at("g")).unwrap(), b"still writable");
    assert_eq!(atime(&world.at("g")), before, "nothing changes, times of access neither");
    let open = fs::File::open(&file).unwrap();
    remount(&world.place.0, &options(relative, false)).unwrap();
    a_moment();
    fs::write(&file, b"more").unwrap();
    assert!(open.as_raw_fd() > 0 && atime(&world.at("g")) == before);
    fs::read(world.at("g")).unwrap();
    assert!(atime(&world.at("g")) > before);
}
