//! One set of behaviours, over the real and the simulated disk alike, and over overlays of both.

mod common;

use std::io;

use atoll_disk::overlay::Overlay;
use atoll_disk::sim::SimDisk;
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use rustix::io::Errno;

const NEW: OpenHow = OpenHow::CreateNew { mode: 0o640 };

/// The errno that a call must fail with.
#[track_caller]
fn fails<T>(result: io::Result<T>, want: Errno) {
    match result {
        Ok(_) => panic!("should have failed with {want:?}"),
        Err(error) => assert_eq!(Errno::from_io_error(&error), Some(want), "{error}"),
    }
}

fn put(disk: &impl Disk, path: &[u8], bytes: &[u8]) {
    disk.open(path, NEW).unwrap().write_at(bytes, 0).unwrap();
}

fn get(disk: &impl Disk, path: &[u8]) -> Vec<u8> {
    let file = disk.open(path, OpenHow::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().size as usize + 1];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

fn names(disk: &impl Disk, path: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = disk.list(path).unwrap().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

/// A directory, a file, a link to each, and a fifo.
fn furnish(disk: &impl Disk) {
    disk.mkdir(b"dir", 0o755).unwrap();
    put(disk, b"dir/inner", b"inner");
    put(disk, b"file", b"content");
    disk.symlink(b"file", b"to_file").unwrap();
    disk.symlink(b"dir", b"to_dir").unwrap();
    disk.mknod(b"fifo", FileKind::Fifo, 0o600, 0).unwrap();
}

fn opening_tells_what_is_no_regular_file(disk: &impl Disk) {
    furnish(disk);
    for how in [OpenHow::Read, OpenHow::Write, OpenHow::Create { mode: 0o600 }] {
        fails(disk.open(b"dir", how), Errno::ISDIR);
        fails(disk.open(b"to_file", how), Errno::LOOP);
        fails(disk.open(b"to_dir/inner", how), Errno::LOOP);
        fails(disk.open(b"fifo", how), Errno::NXIO);
        fails(disk.open(b"file/x", how), Errno::NOTDIR);
        fails(disk.open(b"none/x", how), Errno::NOENT);
        fails(disk.open(b"", how), Errno::ISDIR);
    }
    for taken in [&b"dir"[..], b"file", b"to_file", b"fifo", b""] {
        fails(disk.open(taken, NEW), Errno::EXIST);
    }
    fails(disk.open(b"none", OpenHow::Read), Errno::NOENT);
    fails(disk.open(b"none", OpenHow::Write), Errno::NOENT);
    assert_eq!(get(disk, b"file"), b"content");
    disk.open(b"file", OpenHow::Create { mode: 0o777 }).unwrap();
    assert_eq!(get(disk, b"file"), b"content");
    assert_eq!(disk.stat(b"file").unwrap().mode, 0o640);
    disk.open(b"made", OpenHow::Create { mode: 0o6777 }).unwrap();
    assert_eq!(disk.stat(b"made").unwrap().mode, 0o6777);
}

fn a_path_that_could_leave_the_folder_is_refused(disk: &impl Disk) {
    furnish(disk);
    for bad in
        [&b"."[..], b"..", b"dir/..", b"../x", b"/file", b"dir//inner", b"dir/", b"a\0b", b"dir/./inner"]
    {
        fails(disk.stat(bad), Errno::INVAL);
        fails(disk.open(bad, OpenHow::Read), Errno::INVAL);
        fails(disk.open(bad, NEW), Errno::INVAL);
        fails(disk.list(bad), Errno::INVAL);
        fails(disk.mkdir(bad, 0o700), Errno::INVAL);
        fails(disk.unlink(bad), Errno::INVAL);
        fails(disk.rename(b"file", bad, true), Errno::INVAL);
        fails(disk.link(bad, b"x"), Errno::INVAL);
        fails(disk.set_xattr(bad, b"user.a", Some(b"1")), Errno::INVAL);
        fails(disk.sync_dir(bad), Errno::INVAL);
    }
}

fn no_call_follows_a_symbolic_link(disk: &impl Disk) {
    furnish(disk);
    disk.symlink(b"/etc", b"out").unwrap();
    fails(disk.stat(b"out/passwd"), Errno::LOOP);
    fails(disk.open(b"out/passwd", OpenHow::Read), Errno::LOOP);
    fails(disk.list(b"to_dir"), Errno::LOOP);
    fails(disk.list(b"out"), Errno::LOOP);
    fails(disk.sync_dir(b"to_dir"), Errno::LOOP);
    fails(disk.mkdir(b"to_dir/x", 0o755), Errno::LOOP);
    fails(disk.unlink(b"to_dir/inner"), Errno::LOOP);
    fails(disk.rename(b"file", b"to_dir/x", true), Errno::LOOP);
    fails(disk.rmdir(b"to_dir"), Errno::NOTDIR);
    fails(disk.set_mode(b"to_file", 0o600), Errno::OPNOTSUPP);
    fails(disk.set_xattr(b"to_file", b"user.a", Some(b"1")), Errno::PERM);
    disk.set_times(b"to_file", (5, 0), (6, 7)).unwrap();
    disk.set_owner(b"to_file", 12, 13).unwrap();
    let link = disk.stat(b"to_file").unwrap();
    assert_eq!((link.kind, link.mtime, link.uid, link.gid), (FileKind::Symlink, (6, 7), 12, 13));
    let file = disk.stat(b"file").unwrap();
    assert_eq!((file.mode, file.uid), (0o640, disk.stat(b"dir").unwrap().uid));
    assert_ne!(file.mtime, (6, 7));
    assert!(disk.xattrs(b"file").unwrap().is_empty());
    disk.link(b"to_file", b"second").unwrap();
    assert_eq!(disk.stat(b"second").unwrap().kind, FileKind::Symlink);
    assert_eq!(disk.readlink(b"second").unwrap(), b"file");
    disk.unlink(b"to_file").unwrap();
    assert_eq!(get(disk, b"file"), b"content");
}

fn directories_are_made_listed_and_removed(disk: &impl Disk) {
    furnish(disk);
    fails(disk.mkdir(b"dir", 0o755), Errno::EXIST);
    fails(disk.mkdir(b"to_file", 0o755), Errno::EXIST);
    fails(disk.mkdir(b"", 0o755), Errno::EXIST);
    fails(disk.mkdir(b"file/x", 0o755), Errno::NOTDIR);
    fails(disk.rmdir(b"dir"), Errno::NOTEMPTY);
    fails(disk.rmdir(b"file"), Errno::NOTDIR);
    fails(disk.rmdir(b"none"), Errno::NOENT);
    fails(disk.rmdir(b""), Errno::BUSY);
    fails(disk.unlink(b"dir"), Errno::ISDIR);
    fails(disk.unlink(b""), Errno::ISDIR);
    fails(disk.unlink(b"none"), Errno::NOENT);
    fails(disk.list(b"file"), Errno::NOTDIR);
    fails(disk.list(b"none"), Errno::NOENT);
    fails(disk.sync_dir(b"file"), Errno::NOTDIR);
    disk.mkdir(b"dir/sub", 0o3771).unwrap();
    let sub = disk.stat(b"dir/sub").unwrap();
    assert_eq!((sub.kind, sub.mode, sub.nlink), (FileKind::Directory, 0o3771, 2));
    assert_eq!(disk.stat(b"dir").unwrap().nlink, 3);
    let mut list = disk.list(b"").unwrap();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    let want = [
        (&b"dir"[..], FileKind::Directory),
        (b"fifo", FileKind::Fifo),
        (b"file", FileKind::Regular),
        (b"to_dir", FileKind::Symlink),
        (b"to_file", FileKind::Symlink),
    ];
    assert_eq!(list, want.map(|(name, kind)| (name.to_vec(), kind)));
    disk.unlink(b"dir/inner").unwrap();
    disk.rmdir(b"dir/sub").unwrap();
    disk.sync_dir(b"dir").unwrap();
    disk.rmdir(b"dir").unwrap();
    disk.sync_dir(b"").unwrap();
}

fn hard_links_share_one_file(disk: &impl Disk) {
    furnish(disk);
    fails(disk.link(b"none", b"x"), Errno::NOENT);
    fails(disk.link(b"file", b"dir"), Errno::EXIST);
    fails(disk.link(b"dir", b"file"), Errno::EXIST);
    fails(disk.link(b"dir", b"x"), Errno::PERM);
    fails(disk.link(b"", b"x"), Errno::PERM);
    fails(disk.link(b"file", b""), Errno::EXIST);
    disk.link(b"file", b"dir/second").unwrap();
    let (a, b) = (disk.stat(b"file").unwrap(), disk.stat(b"dir/second").unwrap());
    assert_eq!((a.ino, a.nlink, b.nlink), (b.ino, 2, 2));
    disk.open(b"dir/second", OpenHow::Write).unwrap().write_at(b"C", 0).unwrap();
    assert_eq!(get(disk, b"file"), b"Content");
    let open = disk.open(b"file", OpenHow::Write).unwrap();
    disk.unlink(b"file").unwrap();
    disk.unlink(b"dir/second").unwrap();
    assert_eq!(open.stat().unwrap().nlink, 0);
    open.write_at(b"!", 7).unwrap();
    let mut bytes = [0; 9];
    assert_eq!(open.read_at(&mut bytes, 0).unwrap(), 8);
    assert_eq!(&bytes[..8], b"Content!");
}

fn renames_answer_as_linux_does(disk: &impl Disk) {
    furnish(disk);
    disk.mkdir(b"empty", 0o700).unwrap();
    fails(disk.rename(b"none", b"x", true), Errno::NOENT);
    fails(disk.rename(b"file", b"none/x", true), Errno::NOENT);
    fails(disk.rename(b"file", b"empty", true), Errno::ISDIR);
    fails(disk.rename(b"dir", b"file", true), Errno::NOTDIR);
    fails(disk.rename(b"empty", b"dir", true), Errno::NOTEMPTY);
    fails(disk.rename(b"file", b"fifo", false), Errno::EXIST);
    fails(disk.rename(b"file", b"file", false), Errno::EXIST);
    fails(disk.rename(b"dir", b"dir/sub", true), Errno::INVAL);
    fails(disk.rename(b"dir/inner", b"dir", true), Errno::NOTEMPTY);
    fails(disk.rename(b"", b"x", true), Errno::BUSY);
    fails(disk.rename(b"dir", b"", true), Errno::BUSY);
    disk.rename(b"file", b"file", true).unwrap();
    disk.link(b"file", b"twin").unwrap();
    disk.rename(b"file", b"twin", true).unwrap();
    assert_eq!(disk.stat(b"file").unwrap().nlink, 2);
    disk.rename(b"twin", b"dir/inner", true).unwrap();
    assert_eq!(get(disk, b"dir/inner"), b"content");
    disk.rename(b"dir", b"empty", true).unwrap();
    assert_eq!(names(disk, b"empty"), [b"inner".to_vec()]);
    disk.rename(b"to_file", b"empty/link", false).unwrap();
    assert_eq!(disk.readlink(b"empty/link").unwrap(), b"file");
}

fn names_are_any_bytes_up_to_255(disk: &impl Disk) {
    let (longest, longer) = (vec![b'n'; 255], vec![b'n'; 256]);
    put(disk, &longest, b"x");
    fails(disk.stat(&longer), Errno::NAMETOOLONG);
    fails(disk.open(&longer, NEW), Errno::NAMETOOLONG);
    fails(disk.mkdir(&longer, 0o755), Errno::NAMETOOLONG);
    fails(disk.rename(&longest, &longer, true), Errno::NAMETOOLONG);
    fails(disk.stat(&[b"none/", &longer[..]].concat()), Errno::NOENT);
    let odd: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    put(disk, &odd, b"odd");
    assert_eq!(get(disk, &odd), b"odd");
    assert_eq!(names(disk, b""), [odd, longest]);
}

fn paths_go_far_beyond_the_length_that_a_system_call_takes(disk: &impl Disk) {
    let (mut path, mut dirs) = (Vec::new(), Vec::new());
    let parts = (0..2000).map(|i| if i % 200 == 0 { vec![b'p'; 255] } else { b"dir".to_vec() });
    for part in parts {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(part);
        disk.mkdir(&path, 0o755).unwrap();
        dirs.push(path.clone());
    }
    assert!(path.len() > 10_000);
    let (file, second) = ([&path[..], b"/f"].concat(), [&path[..], b"/g"].concat());
    put(disk, &file, b"deep");
    disk.rename(&file, &second, false).unwrap();
    disk.link(&second, &file).unwrap();
    disk.set_mode(&file, 0o604).unwrap();
    disk.set_xattr(&file, b"user.deep", Some(b"yes")).unwrap();
    assert_eq!(disk.xattrs(&second).unwrap(), [(b"user.deep".to_vec(), b"yes".to_vec())]);
    assert_eq!(disk.stat(&second).unwrap().mode, 0o604);
    assert_eq!(get(disk, &second), b"deep");
    assert_eq!(names(disk, &path), [b"f", b"g"]);
    disk.sync_dir(&path).unwrap();
    fails(disk.stat(&[&path[..], b"/f/x"].concat()), Errno::NOTDIR);
    disk.unlink(&file).unwrap();
    disk.unlink(&second).unwrap();
    for dir in dirs.iter().rev() {
        disk.rmdir(dir).unwrap();
    }
}

fn attributes_are_kept_as_set(disk: &impl Disk) {
    furnish(disk);
    for path in [&b"file"[..], b"dir", b"fifo", b""] {
        disk.set_owner(path, 70_000, 80_000).unwrap();
        disk.set_mode(path, 0o1751).unwrap();
        disk.set_times(path, (-1, 999_999_999), (1 << 33, 1)).unwrap();
        let stat = disk.stat(path).unwrap();
        assert_eq!((stat.mode, stat.uid, stat.gid), (0o1751, 70_000, 80_000));
        assert_eq!((stat.atime, stat.mtime), ((-1, 999_999_999), (1 << 33, 1)));
    }
    fails(disk.set_times(b"file", (0, 1_000_000_000), (0, 0)), Errno::INVAL);
    fails(disk.set_times(b"file", (0, 0x3fff_fffe), (0, 0)), Errno::INVAL);
    fails(disk.set_mode(b"none", 0o600), Errno::NOENT);
    let file = disk.open(b"file", OpenHow::Read).unwrap();
    file.set_mode(0o4755).unwrap();
    assert_eq!(disk.stat(b"file").unwrap().mode, 0o4755);
    file.set_owner(1, 2).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.mode, stat.uid, stat.gid), (0o755, 1, 2), "a new owner takes the set-id bit away");
    disk.mknod(b"device", FileKind::CharDevice, 0o666, 0x0010_3412).unwrap();
    let device = disk.stat(b"device").unwrap();
    assert_eq!((device.kind, device.rdev, device.mode), (FileKind::CharDevice, 0x0010_3412, 0o666));
    disk.mknod(b"socket", FileKind::Socket, 0o600, 0).unwrap();
    assert_eq!(disk.stat(b"socket").unwrap().kind, FileKind::Socket);
    fails(disk.mknod(b"x", FileKind::Regular, 0o600, 0), Errno::INVAL);
    fails(disk.mknod(b"fifo", FileKind::Fifo, 0o600, 0), Errno::EXIST);
}

fn extended_attributes_are_set_listed_and_removed(disk: &impl Disk) {
    furnish(disk);
    for path in [&b"file"[..], b"dir", b""] {
        disk.set_xattr(path, b"user.a", Some(b"1")).unwrap();
        disk.set_xattr(path, b"user.b", Some(b"")).unwrap();
        disk.set_xattr(path, b"user.a", Some(&[7; 1000])).unwrap();
        let mut xattrs = disk.xattrs(path).unwrap();
        xattrs.sort();
        assert_eq!(xattrs, [(b"user.a".to_vec(), vec![7; 1000]), (b"user.b".to_vec(), Vec::new())]);
        disk.set_xattr(path, b"user.a", None).unwrap();
        disk.set_xattr(path, b"user.a", None).unwrap();
        assert_eq!(disk.xattrs(path).unwrap().len(), 1);
    }
    disk.set_xattr(b"to_file", b"trusted.t", Some(b"link")).unwrap();
    disk.set_xattr(b"fifo", b"trusted.t", Some(b"fifo")).unwrap();
    assert_eq!(disk.xattrs(b"to_file").unwrap(), [(b"trusted.t".to_vec(), b"link".to_vec())]);
    assert_eq!(disk.xattrs(b"fifo").unwrap(), [(b"trusted.t".to_vec(), b"fifo".to_vec())]);
    assert_eq!(disk.xattrs(b"file").unwrap().len(), 1);
    fails(disk.set_xattr(b"fifo", b"user.a", Some(b"1")), Errno::PERM);
    fails(disk.set_xattr(b"file", b"strange", Some(b"1")), Errno::OPNOTSUPP);
    fails(disk.set_xattr(b"file", b"", Some(b"1")), Errno::RANGE);
    fails(disk.set_xattr(b"file", &[b'u'; 256], Some(b"1")), Errno::RANGE);
    fails(disk.set_xattr(b"file", b"user.big", Some(&vec![0; 65537])), Errno::TOOBIG);
    fails(disk.set_xattr(b"none", b"user.a", Some(b"1")), Errno::NOENT);
    fails(disk.xattrs(b"none"), Errno::NOENT);
}

fn symbolic_links_hold_any_target(disk: &impl Disk) {
    for (n, target) in [&b"x"[..], b"../../up", b"/abs", &[b't'; 4095], &[0xff, 0xfe]].iter().enumerate() {
        let path = format!("l{n}").into_bytes();
        disk.symlink(target, &path).unwrap();
        assert_eq!(disk.readlink(&path).unwrap(), *target);
        assert_eq!(disk.stat(&path).unwrap().size, target.len() as u64);
    }
    fails(disk.symlink(b"", b"x"), Errno::NOENT);
    fails(disk.symlink(&[b't'; 4096], b"x"), Errno::NAMETOOLONG);
    fails(disk.symlink(b"t", b"l0"), Errno::EXIST);
    fails(disk.readlink(b""), Errno::INVAL);
    put(disk, b"file", b"");
    fails(disk.readlink(b"file"), Errno::INVAL);
    fails(disk.readlink(b"none"), Errno::NOENT);
}

fn a_file_reads_back_what_was_written_and_zeros_between(disk: &impl Disk) {
    let file = disk.open(b"f", NEW).unwrap();
    file.write_at(b"head", 0).unwrap();
    file.write_at(b"tail", 10_000).unwrap();
    let mut bytes = vec![9; 20_000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10_004);
    assert_eq!((&bytes[..4], &bytes[10_000..10_004]), (&b"head"[..], &b"tail"[..]));
    assert!(bytes[4..10_000].iter().all(|b| *b == 0));
    assert_eq!(file.read_at(&mut bytes, 10_002).unwrap(), 2);
    assert_eq!(file.read_at(&mut bytes, 10_004).unwrap(), 0);
    assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
    file.set_len(2).unwrap();
    file.set_len(6).unwrap();
    assert_eq!(get(disk, b"f"), b"he\0\0\0\0");
    file.write_at(b"", 100).unwrap();
    assert_eq!(file.stat().unwrap().size, 6);
    file.sync().unwrap();
    file.sync_all().unwrap();
    let reader = disk.open(b"f", OpenHow::Read).unwrap();
    fails(reader.write_at(b"x", 0), Errno::BADF);
    fails(reader.set_len(0), Errno::INVAL);
    fails(reader.allocate(0, 1, true), Errno::BADF);
    fails(reader.punch(0, 1), Errno::BADF);
    fails(file.read_at(&mut bytes, 1 << 63), Errno::INVAL);
    fails(file.write_at(b"x", 1 << 63), Errno::INVAL);
    fails(file.write_at(b"x", i64::MAX as u64), Errno::FBIG);
    fails(file.set_len(1 << 63), Errno::INVAL);
    fails(file.set_len(1 << 62), Errno::FBIG);
    reader.sync().unwrap();
}

fn holes_take_no_space_and_are_found(disk: &impl Disk) {
    const K: u64 = 1024;
    let file = disk.open(b"f", NEW).unwrap();
    file.write_at(&[1; 64 << 10], 0).unwrap();
    file.write_at(&[2; 64 << 10], 1024 * K).unwrap();
    file.set_len(2048 * K).unwrap();
    file.sync().unwrap();
    assert!(file.stat().unwrap().blocks * 512 < 512 * K);
    assert_eq!(file.seek(0, false).unwrap(), Some(0));
    assert_eq!(file.seek(0, true).unwrap(), Some(64 * K));
    assert_eq!(file.seek(64 * K, false).unwrap(), Some(1024 * K));
    assert_eq!(file.seek(100 * K, true).unwrap(), Some(100 * K));
    assert_eq!(file.seek(1025 * K, false).unwrap(), Some(1025 * K));
    assert_eq!(file.seek(1030 * K, true).unwrap(), Some(1088 * K));
    assert_eq!(file.seek(1088 * K, false).unwrap(), None);
    assert_eq!(file.seek(2048 * K, true).unwrap(), None);
    assert_eq!(file.seek(2048 * K, false).unwrap(), None);
    file.punch(1000 * K, 512 * K).unwrap();
    assert_eq!(file.seek(64 * K, false).unwrap(), None);
    assert_eq!(file.stat().unwrap().size, 2048 * K);
    file.punch(10, 20).unwrap();
    file.punch(0, 0).unwrap();
    file.punch(2047 * K, 900 * K).unwrap();
    assert_eq!(file.stat().unwrap().size, 2048 * K);
    let mut head = [9; 40];
    file.read_at(&mut head, 0).unwrap();
    assert_eq!((head[9], head[10], head[29], head[30]), (1, 0, 0, 1));
    let full = disk.open(b"full", NEW).unwrap();
    full.write_at(&[1; 8192], 0).unwrap();
    assert_eq!(full.seek(100, true).unwrap(), Some(8192));
}

fn allocated_space_reads_as_zeros(disk: &impl Disk) {
    let file = disk.open(b"f", NEW).unwrap();
    file.allocate(0, 1 << 20, true).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.size, stat.blocks >= 2048), (0, true));
    file.write_at(b"data", 0).unwrap();
    file.allocate(0, 1 << 20, false).unwrap();
    assert_eq!(file.stat().unwrap().size, 1 << 20);
    let mut bytes = vec![9; 1 << 20];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 1 << 20);
    assert_eq!(&bytes[..4], b"data");
    assert!(bytes[4..].iter().all(|b| *b == 0));
    file.allocate(0, 0, false).unwrap();
    file.allocate(1 << 21, 4096, false).unwrap();
    assert_eq!(file.stat().unwrap().size, (1 << 21) + 4096);
}

fn bytes_are_copied_between_files(disk: &impl Disk) {
    let (a, b) = (disk.open(b"a", NEW).unwrap(), disk.open(b"b", NEW).unwrap());
    a.write_at(b"0123456789", 0).unwrap();
    assert_eq!(a.copy_to(2, &b, 4, 5).unwrap(), 5);
    assert_eq!(get(disk, b"b"), b"\0\0\0\x0023456");
    assert_eq!(a.copy_to(8, &b, 0, 100).unwrap(), 2);
    assert_eq!(a.copy_to(10, &b, 0, 100).unwrap(), 0);
    assert_eq!(a.copy_to(0, &a, 10, 10).unwrap(), 10);
    fails(a.copy_to(0, &a, 5, 10), Errno::INVAL);
    assert_eq!(get(disk, b"a"), b"01234567890123456789");
    let reader = disk.open(b"b", OpenHow::Read).unwrap();
    fails(a.copy_to(0, &reader, 0, 1), Errno::BADF);
    assert_eq!(reader.copy_to(0, &a, 0, u64::MAX).unwrap(), 9);
}

fn a_files_times_follow_its_changes(disk: &impl Disk) {
    let file = disk.open(b"f", NEW).unwrap();
    disk.set_times(b"f", (1, 1), (1, 1)).unwrap();
    file.write_at(b"x", 0).unwrap();
    assert!(file.stat().unwrap().mtime > (1, 1));
    disk.set_times(b"", (1, 1), (1, 1)).unwrap();
    disk.link(b"f", b"g").unwrap();
    assert!(disk.stat(b"").unwrap().mtime > (1, 1));
}

fn space_is_told(disk: &impl Disk) {
    let space = disk.space().unwrap();
    assert!(space.bytes >= space.bytes_free && space.bytes_free >= space.bytes_available);
    assert!(space.bytes_available > 0);
    assert_eq!(disk.space().unwrap().fs_id, space.fs_id);
}

macro_rules! over_all {
    ($($name:ident),* $(,)?) => {
        mod real {
            $(#[test]
            fn $name() {
                super::$name(&super::common::Folder::new().disk);
            })*
        }
        mod sim {
            $(#[test]
            fn $name() {
                super::$name(&super::SimDisk::new(1));
            })*
        }
        mod overlay_of_real {
            $(#[test]
            fn $name() {
                let folder = super::common::Folder::new();
                super::$name(&super::Overlay::new(std::sync::Arc::new(folder.disk.clone())));
                assert!(super::names(&folder.disk, b"").is_empty(), "nothing is changed below");
            })*
        }
        mod overlay_of_sim {
            $(#[test]
            fn $name() {
                let disk = super::SimDisk::new(1);
                super::$name(&super::Overlay::new(std::sync::Arc::new(disk.clone())));
                assert_eq!(disk.effects(), 0, "nothing is changed below");
            })*
        }
    };
}

over_all!(
    opening_tells_what_is_no_regular_file,
    a_path_that_could_leave_the_folder_is_refused,
    no_call_follows_a_symbolic_link,
    directories_are_made_listed_and_removed,
    hard_links_share_one_file,
    renames_answer_as_linux_does,
    names_are_any_bytes_up_to_255,
    paths_go_far_beyond_the_length_that_a_system_call_takes,
    attributes_are_kept_as_set,
    extended_attributes_are_set_listed_and_removed,
    symbolic_links_hold_any_target,
    a_file_reads_back_what_was_written_and_zeros_between,
    holes_take_no_space_and_are_found,
    allocated_space_reads_as_zeros,
    bytes_are_copied_between_files,
    a_files_times_follow_its_changes,
    space_is_told,
);
