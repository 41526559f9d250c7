//! A member whose native calls do not return: a file system that is frozen.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use atoll_core::Name;
use atoll_member::{NativeTree, STUCK_CALLS_MAX, Tree, TreeState};
use atoll_needs::needs;
use atoll_posix::{Errno, Kind};
use atoll_union::{NativeCall, NativeReply, Who};
use bytes::Bytes;
use common::{Disk, FileSystem};

/// `FIFREEZE` and `FITHAW`.
const FREEZE: u32 = 0xc004_5877;
const THAW: u32 = 0xc004_5878;

/// Thawed when dropped, so that a test that fails can end.
struct Frozen(File);

impl Frozen {
    fn new(disk: &Disk) -> Self {
        let root = File::open(disk.path()).unwrap();
        // SAFETY: the kernel ignores the argument.
        assert_eq!(unsafe { libc::ioctl(root.as_raw_fd(), FREEZE as _, 0) }, 0);
        Self(root)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // SAFETY: the kernel ignores the argument.
        unsafe { libc::ioctl(self.0.as_raw_fd(), THAW as _, 0) };
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_call_that_does_not_return_makes_the_member_stuck_and_others_fail_at_once() {
    needs!(Root, LoopDevices, Programs(&["mkfs.ext4", "mount"]));
    let disk = Disk::new(FileSystem::Ext4);
    let tree = NativeTree::open(disk.path()).unwrap();
    let make = |nth: usize| {
        let call = NativeCall::Make {
            dir: tree.root().id,
            name: Name::new(format!("f{nth}").as_bytes()).unwrap(),
            kind: Kind::Regular,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            target: Bytes::new(),
        };
        tree.call(&Who::Daemon, &call, &[])
    };
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let frozen = Frozen::new(&disk);
        let (make, begun) = (&make, &begun);
        let late: Vec<_> = (0..STUCK_CALLS_MAX)
            .map(|nth| {
                scope.spawn(move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    loop {
                        // The call below that is refused in the end may have had the last place.
                        match make(nth) {
                            Err(Errno::ETIMEDOUT) => std::thread::yield_now(),
                            told => break told,
                        }
                    }
                })
            })
            .collect();
        until("the member is stuck", || tree.state() == TreeState::Stuck);
        until("all calls have begun", || begun.load(Ordering::Relaxed) == STUCK_CALLS_MAX);
        // The table fills; from then on a call is refused without being made, also one that would not block.
        until("a call is refused", || {
            tree.call(&Who::Daemon, &NativeCall::Space, &[]) == Err(Errno::ETIMEDOUT)
        });
        drop(frozen);
        let done = late.into_iter().map(|late| late.join().unwrap());
        let done: Vec<_> = done.collect();
        assert!(done.iter().all(|told| matches!(told, Ok(NativeReply::Stat(_)))), "late, but done: {done:?}");
    });
    assert_eq!(tree.state(), TreeState::Serving);
    drop(tree);
    disk.unmount();
}
