//! `atoll ls --atomic`: the same as the file system shows at rest, one moment under load, and nothing at all
//! when a node is away.

mod common;

use atoll_needs::needs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Cluster, bad, good, text};
use serde_json::Value;

fn names(listed: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_str(listed).unwrap();
    listed["names"].as_array().unwrap().clone()
}

/// Every path below `top`, it too, with what lstat(2) says, as a listing shows it.
fn walked(top: &Path) -> Vec<(String, u64, u64, u64, String, String)> {
    let (mut all, mut left) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = left.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let mode = format!("{:04o}", meta.permissions().mode() & 0o7777);
        let time = format!("{}.{:09}", meta.mtime(), meta.mtime_nsec());
        all.push((text(&path).to_owned(), meta.ino(), meta.nlink(), meta.len(), mode, time));
    }
    all.sort();
    all
}

fn listed(path: &str) -> Vec<(String, u64, u64, u64, String, String)> {
    let row = |name: &Value| {
        let number = |field: &str| name[field].as_u64().unwrap();
        let string = |field: &str| name[field].as_str().unwrap().to_owned();
        let (id, links, size) = (number("id"), number("links"), number("size"));
        (string("path"), id, links, size, string("mode"), string("mtime"))
    };
    let mut all: Vec<_> = names(&good(["ls", "--atomic", "--json", path])).iter().map(row).collect();
    all.sort();
    all
}

#[test]
fn a_listing_is_what_was_there_at_one_moment_or_nothing() {
    needs!(Mounts);
    let mut cluster = Cluster::new(3);
    let mount = cluster.mount("mnt", "");
    for n in 0..12 {
        std::fs::create_dir_all(mount.path(&format!("d{n}/below"))).unwrap();
        std::fs::write(mount.path(&format!("d{n}/file")), vec![7; 100 * n]).unwrap();
        std::fs::write(mount.path(&format!("d{n}/below/other")), b"x").unwrap();
        std::fs::hard_link(mount.path(&format!("d{n}/file")), mount.path(&format!("d{}/link", n / 2))).ok();
    }
    std::os::unix::fs::symlink("to\nwhere", mount.path("d1/sym")).unwrap();

    // At rest.
    let top = text(&mount.0);
    assert_eq!(listed(top), walked(&mount.0));
    assert_eq!(listed(text(&mount.path("d3"))), walked(&mount.path("d3")));
    let file = good(["ls", "--atomic", text(&mount.path("d1/sym"))]);
    assert!(file.starts_with("lrwxrwxrwx   1 ") && file.ends_with("/d1/sym -> to\\012where\n"), "{file}");
    let source = cluster.source();
    let rows = names(&good(["ls", "--atomic", "--json", &format!("{source}/d3")]));
    assert_eq!(rows.len(), walked(&mount.path("d3")).len(), "without a mount");

    // Under load: a file is always in one of two directories, and its names are as many as it says.
    let (stop, root) = (AtomicBool::new(false), mount.0.clone());
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (stop, root) = (&stop, &root);
            scope.spawn(move || {
                let at = |dir: usize, name: &str| root.join(format!("d{dir}/{name}{n}"));
                std::fs::write(at(0, "moved"), b"moved").unwrap();
                for round in 0.. {
                    let (from, to) = (round % 12, (round + 5) % 12);
                    std::fs::rename(at(from * 5 % 12, "moved"), at(to * 5 % 12, "moved")).ok();
                    let now = (0..12).find(|dir| at(*dir, "moved").exists()).unwrap();
                    std::fs::hard_link(at(now, "moved"), at((now + 1) % 12, "again")).unwrap();
                    std::fs::remove_file(at((now + 1) % 12, "again")).unwrap();
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let take = || {
            let rows = names(&good(["ls", "--atomic", "--json", top]));
            for n in 0..3 {
                let of = |name: &str| {
                    let end = format!("/{name}{n}");
                    rows.iter()
                        .filter(|row| row["path"].as_str().unwrap().ends_with(&end))
                        .collect::<Vec<_>>()
                };
                let (moved, again) = (of("moved"), of("again"));
                if moved.is_empty() && again.is_empty() {
                    continue;
                }
                assert_eq!(moved.len(), 1, "{moved:?}");
                assert_eq!(moved[0]["links"].as_u64(), Some(1 + again.len() as u64), "{moved:?} {again:?}");
            }
        };
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..10).for_each(|_| take())));
        stop.store(true, Ordering::Relaxed);
        taken.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });

    // What cannot be listed.
    assert!(bad(["ls", "--atomic", &format!("{source}/d3/nope")]).contains("There is no "));
    assert!(bad(["ls", "--atomic", &format!("{source}/d3/file/nope")]).contains("no directory"));
    assert!(bad(["ls", "--atomic", "/"]).contains("no mounted volume"));
    cluster.kill(2);
    let said = bad(["ls", "--atomic", top]);
    assert!(said.contains("Island 2") && said.contains("away") && said.contains("no listing"), "{said}");
}
