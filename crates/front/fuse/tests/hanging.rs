//! Calls of a volume that hang without a word take no mount with them, up to a bound of threads.
//! Alone in its process, because it counts them.

mod common;

use atoll_fuse::Config;
use atoll_needs::needs;
use common::{Memory, World, eventually};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Threads of mounts, by their name.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|t| fs::read_to_string(t.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("fuse-")).count()
}

/// Lets all calls go, if a test fails too.
struct LetGo<'a>(&'a Memory);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.unhang();
    }
}

/// Whether the thread that watches the readers has nothing to do: it does not run any more.
fn watch_sleeps() -> bool {
    let runs = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let mut statuses = tasks.filter_map(|t| fs::read_to_string(t.unwrap().path().join("status")).ok());
        let status = statuses.find(|status| status.contains("fuse-watch")).unwrap_or_default();
        status.lines().find(|line| line.starts_with("voluntary")).map(str::to_owned)
    };
    let before = runs();
    std::thread::sleep(Duration::from_millis(350));
    before.is_some() && runs() == before
}

/// So many calls for one file hang, and then `meanwhile` runs. Afterwards they go on, and the mount ends.
fn while_hanging(name: &str, calls: usize, expected: u64, meanwhile: impl FnOnce(&World)) {
    let files = Memory::default();
    files.may_hang.store(true, SeqCst);
    *files.caching.lock().unwrap() = atoll_vfs::Caching::Never;
    let world = World::with(name, Arc::new(files), Config::default());
    fs::write(world.at("stuck"), b"x").unwrap();
    fs::write(world.at("free"), b"y").unwrap();
    let stuck = fs::File::open(world.at("stuck")).unwrap();
    // So that the first call that hangs must wake it.
    eventually(watch_sleeps);
    world.files.hang(world.files.id("stuck"));
    std::thread::scope(|s| {
        let let_go = LetGo(&world.files);
        let hanging: Vec<_> =
            (0..calls).map(|_| s.spawn(|| stuck.read_at(&mut [0; 1], 0).unwrap())).collect();
        eventually(|| world.files.hung.load(SeqCst) == expected);
        meanwhile(&world);
        assert!(hanging.iter().all(|call| !call.is_finished()), "they hang still");
        drop(let_go);
        hanging.into_iter().for_each(|call| assert_eq!(call.join().unwrap(), 1));
    });
    assert_eq!(fs::read(world.at("free")).unwrap(), b"y");
    drop((stuck, world));
    eventually(|| threads() == 0);
}

#[test]
fn calls_that_hang_stop_no_other_and_take_threads_up_to_a_bound() {
    needs!(Mounts);
    while_hanging("hanging", 40, 40, |world| {
        for at in 0..4 {
            assert_eq!(fs::read(world.at("free")).unwrap(), b"y");
            fs::write(world.at(&format!("{at}")), b"z").unwrap();
        }
        assert!((41..=128 + 1).contains(&threads()), "a reader for each, one more, and the watch");
    });
    while_hanging("all-hanging", 140, 128, |_| {
        // The rest waits for a thread. One more than the readers is the watch.
        eventually(|| threads() == 128 + 1);
    });
}
