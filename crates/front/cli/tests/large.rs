//! What a user can make large: nothing of it stops an island.

mod common;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use atoll_needs::needs;
use common::{Cluster, Daemon, Scratch, good, run, text};
use rustix::fs::{FallocateFlags, XattrFlags};

/// Four attributes of 60,000 bytes, as any user may set them.
fn set_large_xattrs(path: &Path) {
    for n in 0..4 {
        let name = format!("user.large{n}");
        rustix::fs::setxattr(path, name.as_str(), &[b'x'; 60_000], XattrFlags::empty()).unwrap();
    }
}

/// Directories below each other, each with so many bytes of attributes; a file in each.
fn nested(mount: &Path, levels: usize) -> PathBuf {
    let mut dir = mount.to_path_buf();
    for level in 0..levels {
        dir = dir.join(format!("level{level}"));
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("mkdir at level {level}: {e}"));
        set_large_xattrs(&dir);
        std::fs::write(dir.join("file"), b"content").unwrap();
    }
    dir
}

fn has_large_xattrs(path: &Path) -> bool {
    let mut value = vec![0; 70_000];
    (0..4)
        .all(|n| rustix::fs::getxattr(path, format!("user.large{n}").as_str(), &mut value[..]) == Ok(60_000))
}

/// What works with many directories above: names that go between them, modes, other directories.
fn use_deep(mount: &Path, deepest: &Path) {
    let below = deepest.join("below");
    std::fs::create_dir(&below).unwrap();
    for n in 0..20 {
        let (dir, file) = (below.join(format!("d{n}")), below.join(format!("f{n}")));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&file, b"content").unwrap();
        std::fs::hard_link(&file, dir.join("link")).unwrap();
        std::fs::rename(&file, dir.join("moved")).unwrap();
        rustix::fs::chmod(&dir, rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        assert_eq!(dir.join("moved").metadata().unwrap().nlink(), 2);
        // Between the deepest directory and the root: the ancestors of one go to the owners of the other.
        std::fs::rename(&dir, mount.join(format!("d{n}"))).unwrap();
        std::fs::rename(mount.join(format!("d{n}")), &dir).unwrap();
    }
}

/// Nothing is wrong, but that the native file system may have no room for such attributes.
fn check(data: &Path) {
    let output = run(["check", "--data", text(data), "--read"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let findings = said.lines().filter(|line| line.starts_with("volume"));
    let others: Vec<&str> = findings.filter(|line| !line.contains("xattrs")).collect();
    assert!(others.is_empty() && said.contains(" island"), "{said}");
}

#[test]
fn a_long_range_is_zeroed_however_many_blocks_it_has() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 2);
    let file = std::fs::File::create_new(mnt.join("file")).unwrap();
    file.set_len(6 << 30).unwrap();
    let places = [0, (1 << 30) - 3, (2 << 30) + 17, (6 << 30) - 9];
    places.iter().for_each(|at| file.write_all_at(b"content", *at).unwrap());
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 1, (6 << 30) - 2).unwrap();
    let mut read = [1; 7];
    for at in places {
        file.read_exact_at(&mut read, at).unwrap();
        assert_eq!(&read, if at == 0 { b"c\0\0\0\0\0\0" } else { &[0; 7] }, "at {at}");
    }
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 5 << 30, 3 << 30).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 30);
    drop(file);
    daemon.stop();
    let said = good(["check", "--data", text(&data), "--read"]);
    assert!(said.contains("nothing wrong"), "{said}");
}

#[test]
fn directories_with_large_attributes_lie_below_each_other_in_one_process() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mnt) = (scratch.path("data"), scratch.path("mnt"));
    let mut daemon = Daemon::up(&data, &mnt, 4);
    let deepest = nested(&mnt, 12);
    use_deep(&mnt, &deepest);
    daemon.stop();
    let mut daemon = Daemon::up(&data, &mnt, 4);
    assert!(deepest.ancestors().take_while(|dir| *dir != mnt).all(has_large_xattrs));
    daemon.stop();
    check(&data);
}

#[test]
fn directories_with_large_attributes_lie_below_each_other_on_four_nodes() {
    needs!(Mounts);
    let mut cluster = Cluster::new(4);
    let mount = cluster.mount("mnt", "soft=5");
    let deepest = nested(&mount.0, 12);
    use_deep(&mount.0, &deepest);
    assert!(deepest.ancestors().take_while(|dir| *dir != mount.0).all(has_large_xattrs));
    good(["umount", text(&mount.0)]);
    for node in 0..4 {
        cluster.nodes[node].take().unwrap().stop();
    }
    for node in 0..4 {
        check(&cluster.data(node));
    }
}
