//! One island an operation: counted by the mount, and seen by the islands.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::daemon::{Daemon, Launch, atoll};
use atoll_torture::place::Place;
use rustix::mount::MountFlags;
use serde_json::Value;

/// What was counted so far.
#[derive(Debug)]
struct Counts {
    /// Calls of the kernel that had to ask an island.
    calls: u64,
    /// Of these, those that asked one island, once.
    one_island: u64,
    /// Requests to islands.
    requests: u64,
    /// Requests that each island has seen.
    seen: BTreeMap<u64, u64>,
}

fn counts(daemon: &Daemon) -> Counts {
    let data = daemon.launch().data.to_str().unwrap();
    let status: Value = serde_json::from_str(&atoll(&["status", "--json", "--data", data]).unwrap()).unwrap();
    let process = &status["processes"][0];
    let mount = &process["mounts"][0];
    let number =
        |of: &Value, field: &str| of[field].as_u64().unwrap_or_else(|| panic!("no {field}: {status}"));
    let islands = process["volumes"][0]["islands"].as_array().unwrap();
    Counts {
        calls: number(mount, "calls"),
        one_island: number(mount, "one_island"),
        requests: number(mount, "requests"),
        seen: islands.iter().map(|i| (number(i, "island"), number(i, "requests"))).collect(),
    }
}

/// Waits until the kernel looks at the root without asking, which begins a moment after the mount.
fn until_it_keeps(daemon: &Daemon) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let before = counts(daemon).calls;
        (0..20).for_each(|_| assert!(fs::metadata(daemon.mount()).unwrap().is_dir()));
        if counts(daemon).calls - before < 20 {
            return;
        }
        assert!(Instant::now() < until, "nothing is kept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_operation_on_a_file_or_directory_asks_one_island_once() {
    needs!(Mounts);
    let place = Place::new("one").unwrap();
    let daemon = Launch::new(place.path()).start().unwrap();
    // What was read is told seconds later, and would be counted where something else is looked at.
    let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(daemon.mount(), flags, "").unwrap();
    until_it_keeps(&daemon);
    let mut used = std::collections::BTreeSet::new();
    for at in 0..30 {
        // Which island a directory is on is a matter of chance.
        if at >= 6 && used.len() > 1 {
            break;
        }
        let dir = daemon.mount().join(format!("dir-{at}"));
        fs::create_dir(&dir).unwrap();
        // The kernel asks for the root and for the directory once, whatever follows.
        fs::read_dir(&dir).unwrap().for_each(drop);
        let before = counts(&daemon);
        for n in 0..40 {
            let (one, two) = (dir.join(format!("one-{n}")), dir.join(format!("two-{n}")));
            fs::write(&one, vec![b'x'; 5000]).unwrap();
            fs::set_permissions(&one, fs::Permissions::from_mode(0o600)).unwrap();
            fs::hard_link(&one, dir.join(format!("link-{n}"))).unwrap();
            std::os::unix::fs::symlink("target", dir.join(format!("symlink-{n}"))).unwrap();
            fs::rename(&one, &two).unwrap();
            let file = fs::File::options().read(true).write(true).open(&two).unwrap();
            file.write_all_at(&[b'y'; 100_000], 2000).unwrap();
            file.sync_all().unwrap();
            file.set_len(3000).unwrap();
            assert_eq!(fs::read(&two).unwrap().len(), 3000);
            fs::remove_file(&two).unwrap();
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 80);
        let after = counts(&daemon);
        let calls = after.calls - before.calls;
        assert!(calls >= 400, "only {calls} calls were counted");
        assert_eq!(after.one_island - before.one_island, calls, "{before:?} {after:?}");
        assert_eq!(after.requests - before.requests, calls, "{before:?} {after:?}");
        let asked: Vec<u64> = after
            .seen
            .iter()
            .filter(|(island, n)| before.seen[*island] + 20 < **n)
            .map(|(i, _)| *i)
            .collect();
        assert_eq!(asked.len(), 1, "all of this is one island's: {before:?} {after:?}");
        used.extend(asked);
    }
    assert!(used.len() > 1, "thirty directories are all on one island");
    daemon.stop().unwrap();
}
