//! Two mounts that keep what they look at: neither asks for it again, and each sees at once what the other one changes.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_needs::needs;
use common::{Cluster, Mounted, eventually, good, signal, text};
use rustix::process::Signal;

/// A lease of a mount that does not answer, and what a slow machine takes.
const LEASE_MAX: Duration = Duration::from_secs(30);
/// So many looks are far more than there are signs of life meanwhile.
const LOOKS: u64 = 300;

/// A counter of all islands.
fn count(cluster: &Cluster, counter: &str) -> u64 {
    let told = good(["status", &cluster.addresses[0], "--json"]);
    let status: serde_json::Value = serde_json::from_str(&told).unwrap();
    let all = |value: &serde_json::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let volumes = all(&status, "processes").into_iter().flat_map(|process| all(&process, "volumes"));
    let islands = volumes.flat_map(|volume| all(&volume, "islands"));
    islands.map(|island| island[counter].as_u64().expect("a counter")).sum()
}

/// Waits until these mounts look at a file without asking an island.
fn until_they_keep(cluster: &Cluster, mounts: &[&Mounted], name: &str) {
    eventually("looks are answered without a request", || {
        let before = count(cluster, "requests");
        for _ in 0..LOOKS {
            mounts.iter().for_each(|mount| assert!(fs::metadata(mount.path(name)).unwrap().is_file()));
        }
        count(cluster, "requests") - before < LOOKS / 4
    });
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn two_mounts_keep_what_they_look_at_and_see_each_change_of_the_other_one_at_once() {
    needs!(Mounts);
    let cluster = Cluster::new(2);
    let (one, two) = (cluster.mount("one", "soft=20"), cluster.mount("two", "soft=20"));
    fs::create_dir(one.path("dir")).unwrap();
    for round in 0..3u32 {
        let name = format!("dir/file{round}");
        fs::write(one.path(&name), "first").unwrap();
        until_they_keep(&cluster, &[&one, &two], &name);
        assert!(!two.path("dir/new").exists(), "its absence may be kept");
        let recalls = count(&cluster, "recalls");
        // Attributes, bytes, names, and their absence.
        fs::set_permissions(one.path(&name), Permissions::from_mode(0o600 + round)).unwrap();
        assert_eq!(mode(&two.path(&name)), 0o600 + round);
        assert!(count(&cluster, "recalls") > recalls, "the other one had kept something");
        assert_eq!(fs::read(two.path(&name)).unwrap(), b"first");
        until_they_keep(&cluster, &[&one, &two], &name);
        fs::write(one.path(&name), "second, and longer").unwrap();
        assert_eq!(fs::read(two.path(&name)).unwrap(), b"second, and longer");
        until_they_keep(&cluster, &[&one, &two], &name);
        assert!(!two.path("dir/new").exists());
        fs::rename(one.path(&name), one.path("dir/new")).unwrap();
        assert!(two.path("dir/new").exists() && !two.path(&name).exists());
        fs::remove_file(two.path("dir/new")).unwrap();
        assert!(!one.path("dir/new").exists());
    }
}

/// The process that serves a mount.
fn process_of(mount: &Mounted) -> u32 {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let serves = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text(&mount.0))
    };
    processes.into_iter().find(serves).expect("the mount is served")
}

#[test]
fn a_mount_that_stands_still_holds_others_up_once_and_uses_nothing_old_when_it_goes_on() {
    needs!(Mounts);
    let cluster = Cluster::new(1);
    let (one, two) = (cluster.mount("one", "hard"), cluster.mount("two", "hard"));
    fs::write(one.path("file"), "first").unwrap();
    assert_eq!(fs::read(two.path("file")).unwrap(), b"first");
    until_they_keep(&cluster, &[&one, &two], "file");
    let process = process_of(&two);
    signal(process, Signal::STOP);
    let begun = Instant::now();
    fs::write(one.path("file"), "second").unwrap();
    let waited = begun.elapsed();
    assert!(waited < LEASE_MAX, "it waited for {waited:?}");
    let begun = Instant::now();
    (0..20).for_each(|n| fs::write(one.path("other"), n.to_string()).unwrap());
    assert!(begun.elapsed() < waited, "{:?} after {waited:?}", begun.elapsed());
    signal(process, Signal::CONT);
    assert_eq!(fs::read(two.path("file")).unwrap(), b"second");
    assert_eq!(fs::read(two.path("other")).unwrap(), b"19");
}
