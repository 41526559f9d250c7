//! How many threads a mount has: enough that someone always reads, and never more than its bound.
//! Alone in its process, because it counts them.

mod common;

use atoll_needs::needs;
use common::{World, eventually};
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Threads of the mount, by their name.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| fs::read_to_string(t.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("fuse-")).count()
}

#[test]
fn slow_requests_get_threads_up_to_a_bound_which_are_used_again_and_end_with_the_mount() {
    needs!(Mounts);
    let world = World::new("readers");
    for at in 0..60 {
        fs::write(world.at(&format!("{at}")), b"x").unwrap();
    }
    // Pages are kept where they may be: then a second reading asks nothing.
    *world.files.caching.lock().unwrap() = atoll_vfs::Caching::Never;
    world.files.read_delay_ms.store(200, SeqCst);
    let mut most = 0;
    for _ in 0..3 {
        std::thread::scope(|s| {
            let readings: Vec<_> = (0..60)
                .map(|at| {
                    let world = &world;
                    s.spawn(move || assert_eq!(fs::read(world.at(&format!("{at}"))).unwrap(), b"x"))
                })
                .collect();
            while readings.iter().any(|reading| !reading.is_finished()) {
                most = most.max(threads());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
    assert_eq!(most, 32, "so many are answered at once, and no more");
    // A thread has its name when it runs, and a while after it has ended.
    eventually(|| threads() == 32);
    // Each is still there: parked, not made anew.
    drop(world);
    eventually(|| threads() == 0);
}
