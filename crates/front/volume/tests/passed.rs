//! Files of a union that are open: the kernel reads and writes them itself where it can, and nobody sees a difference.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_fuse::{Config, Locks, MountOptions};
use atoll_needs::needs;
use atoll_proto::union::BytesGo;
use atoll_union::Settings;
use atoll_volume::mounting::Mount;
use atoll_volume::union::{MemberPath, UnionVolume};

/// A union of two directories, mounted in this process.
struct World {
    mount: Option<Mount>,
    dir: tempfile::TempDir,
}

impl World {
    fn new(last: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one", "two", "state", "mnt"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let member = |text: &str| MemberPath::parse(&dir.path().join(text)).unwrap();
        let members = [member("one"), member(last)];
        let state = dir.path().join("state");
        let volume = UnionVolume::open("union".into(), &members, Settings::default(), &state).unwrap();
        let config = Config { locks: Locks::Local, ..Config::default() };
        let point = dir.path().join("mnt");
        let mount = Mount::new(Arc::new(volume), &point, &MountOptions::new("union"), config).unwrap();
        Self { mount: Some(mount), dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("mnt").join(name)
    }

    /// How many requests of this kind the kernel has sent.
    fn requests(&self, operation: &str) -> u64 {
        let status = self.mount.as_ref().unwrap().status()();
        status.fuse.iter().find(|count| count.operation == operation).map_or(0, |count| count.requests)
    }

    fn passes(&self) -> bool {
        self.mount.as_ref().unwrap().bytes_go() == BytesGo::Directly
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.mount.take().unwrap().end();
    }
}

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn size(file: &File) -> u64 {
    file.metadata().unwrap().len()
}

#[test]
fn reads_and_writes_of_open_files_reach_no_process() {
    needs!(Mounts);
    let world = World::new("two");
    let mut file = both(&world.at("f"));
    file.write_all(b"hello").unwrap();
    let reader = File::open(world.at("f")).unwrap();
    let mut text = [0; 5];
    reader.read_exact_at(&mut text, 0).unwrap();
    assert_eq!((&text, size(&reader)), (b"hello", 5));
    if world.passes() {
        assert_eq!([world.requests("read"), world.requests("write")], [0, 0]);
    }
}

#[test]
fn appends_truncations_and_sizes_are_seen_by_every_open() {
    needs!(Mounts);
    let world = World::new("two");
    let file = both(&world.at("f"));
    file.write_all_at(b"0123456789", 0).unwrap();
    let mut appends = OpenOptions::new().append(true).open(world.at("f")).unwrap();
    appends.write_all(b"end").unwrap();
    assert_eq!([size(&file), fs::metadata(world.at("f")).unwrap().len()], [13, 13]);
    file.set_len(4).unwrap();
    appends.write_all(b"end").unwrap();
    assert_eq!(fs::read(world.at("f")).unwrap(), b"0123end");
    let emptied = OpenOptions::new().write(true).truncate(true).open(world.at("f")).unwrap();
    assert_eq!([size(&file), size(&emptied)], [0, 0]);
}

#[test]
fn a_file_that_has_lost_its_name_or_got_another_is_written_as_before() {
    needs!(Mounts);
    let world = World::new("two");
    let mut file = both(&world.at("f"));
    file.write_all(b"one").unwrap();
    fs::rename(world.at("f"), world.at("g")).unwrap();
    file.write_all(b"two").unwrap();
    assert_eq!(fs::read(world.at("g")).unwrap(), b"onetwo");
    fs::remove_file(world.at("g")).unwrap();
    file.write_all(b"three").unwrap();
    file.sync_all().unwrap();
    let mut text = [0; 11];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!((&text, size(&file), file.metadata().unwrap().nlink()), (b"onetwothree", 11, 0));
    // A new file of that name is another one.
    fs::write(world.at("g"), b"new").unwrap();
    assert_eq!((size(&file), fs::read(world.at("g")).unwrap()), (11, b"new".to_vec()));
}

#[test]
fn a_store_through_a_mapping_is_read_and_dated() {
    needs!(Mounts);
    let world = World::new("two");
    let file = both(&world.at("f"));
    file.write_all_at(&[b'.'; 4096], 0).unwrap();
    let before = file.metadata().unwrap();
    // The clock of a file system ticks so slowly.
    std::thread::sleep(std::time::Duration::from_millis(20));
    // SAFETY: the kernel chooses an address, and the file is as long as the mapping.
    unsafe {
        use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
        let at =
            mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
                .unwrap();
        at.cast::<u8>().write(b'!');
        msync(at, 4096, MsyncFlags::SYNC).unwrap();
        munmap(at, 4096).unwrap();
    }
    assert_eq!(fs::read(world.at("f")).unwrap()[..2], *b"!.");
    let after = fs::metadata(world.at("f")).unwrap();
    assert!(after.modified().unwrap() > before.modified().unwrap());
}

#[test]
fn a_user_who_writes_takes_set_id_bits_away() {
    needs!(Mounts, Root);
    let world = World::new("two");
    fs::set_permissions(world.at("."), fs::Permissions::from_mode(0o777)).unwrap();
    let open = |name: &str| {
        let path = world.at(name);
        fs::write(&path, b"program").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        path
    };
    // The bits may come before the file is opened, and behind it.
    for (name, late) in [("before", false), ("behind", true)] {
        let path = open(name);
        let set = || fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
        if !late {
            set();
        }
        let theirs = path.clone();
        let (opened, wait) = std::sync::mpsc::sync_channel::<()>(0);
        let (go, may) = std::sync::mpsc::sync_channel::<()>(0);
        let user = std::thread::spawn(move || {
            // SAFETY: no memory is involved; the raw call changes this thread alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
            let file = OpenOptions::new().write(true).custom_flags(libc::O_CLOEXEC).open(theirs).unwrap();
            opened.send(()).unwrap();
            may.recv().unwrap();
            file.write_all_at(b"!", 0).unwrap();
        });
        wait.recv().unwrap();
        if late {
            set();
        }
        go.send(()).unwrap();
        user.join().unwrap();
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o777, "{name}");
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "!rogram");
    }
}

#[test]
fn a_file_of_a_member_in_which_nothing_is_changed_is_not_opened_for_writing() {
    needs!(Mounts);
    let world = World::new("two:ro");
    fs::write(world.dir.path().join("two/f"), b"x").unwrap();
    let refused = OpenOptions::new().write(true).open(world.at("f")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read(world.at("f")).unwrap(), b"x");
}
