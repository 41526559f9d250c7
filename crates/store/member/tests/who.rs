//! The identity of the thread that makes a caller's call: gone right afterwards, or kept where that was asked for.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod common;

use atoll_core::Name;
use atoll_member::{NativeTree, Tree, keep_identity};
use atoll_needs::needs;
use atoll_posix::{Caller, Kind};
use atoll_union::{NativeCall, NativeReply, Who};
use bytes::Bytes;
use common::{Disk, FileSystem};

/// File-system user and group, groups and effective capabilities of this thread, and its umask.
fn identity() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let shown = ["Uid:", "Gid:", "Groups:", "CapEff:", "Umask:"];
    let lines = status.lines().filter(|line| shown.iter().any(|start| line.starts_with(start)));
    lines.map(str::to_owned).collect()
}

fn make(tree: &NativeTree, uid: u32, text: &str) -> u32 {
    let call = NativeCall::Make {
        dir: tree.root().id,
        name: Name::new(text.as_bytes()).unwrap(),
        kind: Kind::Regular,
        mode: 0o666,
        umask: 0o077,
        rdev: 0,
        target: Bytes::new(),
    };
    let who = Who::Caller(Caller { uid, gid: uid, groups: Some(vec![7_000, 7_001]) });
    match tree.call(&who, &call, &[]) {
        Ok(NativeReply::Stat(stat)) => stat.uid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thread_is_itself_again_after_each_call() {
    needs!(Root);
    let disk = Disk::new(FileSystem::Tmpfs);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(disk.path(), open).unwrap();
    let tree = NativeTree::open(disk.path()).unwrap();
    let own = identity();
    assert_eq!(make(&tree, 5_001, "a"), 5_001);
    assert_eq!(identity(), own);
    assert_eq!(std::thread::spawn(identity).join().unwrap(), own, "nothing is inherited");
    let kept = keep_identity();
    make(&tree, 5_001, "b");
    let foreign = identity();
    assert_ne!(foreign, own);
    make(&tree, 5_001, "c");
    assert_eq!(identity(), foreign);
    atoll_handover::slow();
    assert_eq!(identity(), own, "no thread is started in a user's name");
    make(&tree, 5_001, "c2");
    assert_eq!(identity(), foreign);
    assert_eq!(make(&tree, 5_002, "d"), 5_002);
    tree.call(&Who::Daemon, &NativeCall::FsyncDir { dir: tree.root().id }, &[]).unwrap();
    assert_eq!(identity(), own, "the daemon's calls are the daemon's");
    make(&tree, 5_001, "e");
    drop(kept);
    assert_eq!(identity(), own);
    drop(tree);
    disk.unmount();
}
