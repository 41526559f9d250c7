//! A member whose disk fails, and comes back; and the descriptors that a tree may keep.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod common;

use std::os::fd::AsRawFd;

use atoll_core::Name;
use atoll_member::{NativeTree, Tree, TreeState};
use atoll_needs::needs;
use atoll_posix::{Errno, Kind};
use atoll_union::{NativeCall, NativeReply, Who};
use bytes::Bytes;
use common::{Disk, FileSystem};

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`, without a flush.
const SHUT_DOWN: u32 = 0x8004_587d;

fn make(tree: &NativeTree, text: &str) -> Result<NativeReply, Errno> {
    let call = NativeCall::Make {
        dir: tree.root().id,
        name: Name::new(text.as_bytes()).unwrap(),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        target: Bytes::new(),
    };
    tree.call(&Who::Daemon, &call, &[])
}

fn disk_that_fails_is_away_until_it_is_mounted_again(file_system: FileSystem) {
    let disk = Disk::new(file_system);
    let tree = NativeTree::open(disk.path()).unwrap();
    let identity = tree.identity().clone();
    let dir = tree.root().id;
    let sub = NativeCall::Mkdir { dir, name: Name::new(b"sub").unwrap(), mode: 0o755, umask: 0 };
    let NativeReply::Stat(sub) = tree.call(&Who::Daemon, &sub, &[]).unwrap() else { panic!() };
    make(&tree, "before").unwrap();
    tree.call(&Who::Daemon, &NativeCall::FsyncDir { dir }, &[]).unwrap();
    assert_eq!(tree.state(), TreeState::Serving);
    let root = std::fs::File::open(disk.path()).unwrap();
    let how = 2u32;
    // SAFETY: the kernel reads one number.
    assert_eq!(unsafe { libc::ioctl(root.as_raw_fd(), SHUT_DOWN as _, &raw const how) }, 0);
    drop(root);
    assert_eq!(make(&tree, "after"), Err(Errno::EIO));
    assert_eq!(tree.state(), TreeState::Away);
    let look = |text: &str| {
        let call = NativeCall::Look { dir, name: Name::new(text.as_bytes()).unwrap() };
        tree.call(&Who::Daemon, &call, &[])
    };
    assert_eq!(look("nothing"), Err(Errno::EIO), "never: there is no such file");
    assert_eq!(tree.reopen(), Ok(false), "it is still the one that failed");
    disk.detach();
    assert_eq!(tree.reopen(), Ok(false), "the folder below the mount is no member");
    assert_eq!(tree.state(), TreeState::Away);
    // Nothing of the old mount is open any more, so the disk is read anew. Only a process that another test is just starting
    // may hold, until it runs its program, what this one had open.
    disk.mount();
    for _ in 0..1_000 {
        if tree.reopen() == Ok(true) {
            break;
        }
        disk.detach();
        std::thread::sleep(std::time::Duration::from_millis(10));
        disk.mount();
    }
    assert_eq!(tree.state(), TreeState::Serving);
    assert_eq!(tree.identity(), &identity);
    assert!(look("before").is_ok());
    let call = NativeCall::Look { dir: sub.id, name: Name::new(b"x").unwrap() };
    assert_eq!(tree.call(&Who::Daemon, &call, &[]), Err(Errno::ENOENT), "directories are found anew");
    make(&tree, "after").unwrap();
    drop(tree);
    disk.unmount();
}

#[test]
fn an_ext4_disk_that_fails_is_away_until_it_is_mounted_again() {
    needs!(Root, LoopDevices, Programs(&["mkfs.ext4", "mount"]));
    disk_that_fails_is_away_until_it_is_mounted_again(FileSystem::Ext4);
}

#[test]
fn an_xfs_disk_that_fails_is_away_until_it_is_mounted_again() {
    needs!(Root, LoopDevices, Programs(&["mkfs.xfs", "mount"]));
    disk_that_fails_is_away_until_it_is_mounted_again(FileSystem::Xfs);
}

#[test]
fn two_members_differ_and_one_is_the_same_twice() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, again) = (NativeTree::open(a.path()).unwrap(), NativeTree::open(a.path()).unwrap());
    let other = NativeTree::open(b.path()).unwrap();
    assert_eq!(first.identity(), again.identity());
    assert_ne!(first.identity(), other.identity());
    assert_ne!(first.identity().tag().0, 0);
}
