//! A directory that is removed while two mounts have it open: both see one directory without a name, and what either
//! does to it.

mod common;

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use atoll_needs::needs;
use common::{Cluster, good, text};
use rustix::fs::{Dir, XattrFlags, fgetxattr, flistxattr, fsetxattr};

fn mode(dir: &File) -> u32 {
    dir.metadata().unwrap().mode() & 0o7777
}

fn value(dir: &File) -> Vec<u8> {
    let mut value = vec![0; 100];
    let len = fgetxattr(dir, "user.name", &mut value[..]).unwrap();
    value.truncate(len);
    value
}

/// Both have it open, and it was removed.
fn use_removed(dirs: [&File; 2], ino: u64) {
    for (one, other) in [(dirs[0], dirs[1]), (dirs[1], dirs[0])] {
        let found = one.metadata().unwrap();
        assert_eq!((found.ino(), found.nlink(), found.is_dir()), (ino, 0, true));
        for mode_bits in [0o711, 0o1750] {
            one.set_permissions(Permissions::from_mode(mode_bits)).unwrap();
            assert_eq!((mode(one), mode(other)), (mode_bits, mode_bits));
        }
        for text in ["short", "somewhat longer"] {
            fsetxattr(one, "user.name", text.as_bytes(), XattrFlags::empty()).unwrap();
            assert_eq!((value(one), value(other)), (text.as_bytes().to_vec(), text.as_bytes().to_vec()));
        }
        let mut names = vec![0; 1000];
        let len = flistxattr(other, &mut names[..]).unwrap();
        assert_eq!(&names[..len], b"user.before\0user.name\0".as_slice());
        one.sync_all().unwrap();
        let listed = Dir::read_from(one.as_fd()).unwrap();
        let names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().to_owned()).collect();
        assert!(names.iter().all(|name| [&b"."[..], b".."].contains(&name.to_bytes())), "{names:?}");
    }
}

fn make(path: &Path) {
    fs::create_dir(path).unwrap();
    let dir = File::open(path).unwrap();
    fsetxattr(&dir, "user.name", b"at first", XattrFlags::empty()).unwrap();
    fsetxattr(&dir, "user.before", b"kept", XattrFlags::empty()).unwrap();
}

#[test]
fn a_removed_directory_that_two_mounts_have_open_is_one_directory() {
    needs!(Mounts);
    let mut cluster = Cluster::new(2);
    let (one, two) = (cluster.mount("one", "soft=20"), cluster.mount("two", "soft=20"));
    // Enough that some have their owner beside their parent's, and some not.
    for n in 0..6 {
        for replaced in [false, true] {
            let name = format!("dir{n}{replaced}");
            make(&one.path(&name));
            let dirs = [&one, &two].map(|mount| File::open(mount.path(&name)).unwrap());
            let ino = dirs[0].metadata().unwrap().ino();
            dirs[1].set_permissions(Permissions::from_mode(0o705)).unwrap();
            if replaced {
                let other = one.path(&format!("other{n}"));
                fs::create_dir(&other).unwrap();
                fs::rename(&other, one.path(&name)).unwrap();
            } else {
                fs::remove_dir(one.path(&name)).unwrap();
            }
            assert_eq!(
                (mode(&dirs[0]), mode(&dirs[1]), value(&dirs[1])),
                (0o705, 0o705, b"at first".to_vec())
            );
            use_removed([&dirs[0], &dirs[1]], ino);
            let [first, second] = dirs;
            drop(first);
            assert_eq!((mode(&second), value(&second)), (0o1750, b"somewhat longer".to_vec()));
        }
    }
    for mount in [&one, &two] {
        good(["umount", text(&mount.0)]);
    }
    for node in 0..2 {
        cluster.nodes[node].take().unwrap().stop();
        good(["check", "--data", text(&cluster.data(node)), "--read"]);
    }
}

/// The owner dies, and its process is started again: what was changed is still there.
#[test]
fn a_removed_directory_that_is_open_survives_the_death_of_its_owner() {
    needs!(Mounts);
    let mut cluster = Cluster::new(1);
    let (one, two) = (cluster.mount("one", "hard"), cluster.mount("two", "hard"));
    make(&one.path("dir"));
    let dirs = [&one, &two].map(|mount| File::open(mount.path("dir")).unwrap());
    let ino = dirs[0].metadata().unwrap().ino();
    fs::remove_dir(two.path("dir")).unwrap();
    dirs[0].set_permissions(Permissions::from_mode(0o705)).unwrap();
    cluster.kill(0);
    cluster.start(0);
    assert_eq!((mode(&dirs[0]), mode(&dirs[1]), value(&dirs[1])), (0o705, 0o705, b"at first".to_vec()));
    use_removed([&dirs[0], &dirs[1]], ino);
}
