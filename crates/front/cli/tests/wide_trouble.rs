//! Sites of wide volumes in trouble: an old backup, a full disk, a key that is lost, other users of the port. Nothing is lost, and the
//! others go on.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_needs::needs;
use common::sites::{Sites, names};
use common::{Cluster, bad, eventually, good, run, text};
use serde_json::json;

fn shell(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two sites. The second one has made a change behind its backup, which the first one has. With its data directory and the backup.
fn backed_up() -> (Sites, PathBuf, PathBuf) {
    let mut sites = Sites::new(2);
    fs::write(sites.path(1, "first"), b"first").unwrap();
    sites.has(0, "first", b"first");
    good(["confirm", text(&sites.path(1, "first"))]);
    sites.mounts[1] = None;
    sites.nodes.kill(1);
    let (data, backup) = (sites.data(1), sites.data(1).with_extension("backup"));
    shell(&["cp", "-a", text(&data), text(&backup)]);
    sites.nodes.start(1);
    sites.mount(1);
    fs::write(sites.path(1, "later"), b"later").unwrap();
    sites.has(0, "later", b"later");
    good(["confirm", text(&sites.path(1, "later"))]);
    (sites, data, backup)
}

#[test]
fn a_site_that_comes_back_from_an_old_backup_is_refused_and_joins_again_as_another() {
    let (mut sites, data, backup) = backed_up();
    sites.mounts[1] = None;
    sites.nodes.kill(1);
    fs::remove_dir_all(&data).unwrap();
    shell(&["mv", text(&backup), text(&data)]);
    sites.nodes.start(1);
    sites.mount(1);
    eventually("both say why they are not connected", || {
        let why = |site, of| sites.told(site, of)["why"].as_str().unwrap_or_default().to_owned();
        why(0, 1).contains("gone back to an earlier state")
            && why(1, 0).contains("gone back to an earlier state")
    });
    // Each goes on by itself, and nothing went at the other one.
    fs::write(sites.path(1, "mine"), b"mine").unwrap();
    assert_eq!(names(&sites.path(0, "")), ["first", "later"]);
    // What it has made since is adopted by another site at the same machine.
    good(["site", "forget", "s1", "--data", text(&sites.data(0))]);
    let kept = sites.data(1).with_extension("kept");
    fs::create_dir(&kept).unwrap();
    fs::copy(sites.path(1, "mine"), kept.join("mine")).unwrap();
    sites.mounts[1] = None;
    sites.nodes.kill(1);
    fs::remove_dir_all(&data).unwrap();
    sites.nodes.start(1);
    let line = sites.line();
    good(["site", "join", &line, "--data", text(&data), "--name", "s1b", "--adopt", text(&kept)]);
    sites.mount(1);
    eventually("both have all", || {
        [0, 1].iter().all(|site| names(&sites.path(*site, "")) == ["first", "later", "mine"])
    });
    sites.has(0, "mine", b"mine");
}

/// By numbers alone it has not gone back.
#[test]
fn a_site_that_comes_back_from_an_old_backup_and_works_alone_first_is_refused_too() {
    let (mut sites, data, backup) = backed_up();
    for site in [0, 1] {
        sites.mounts[site] = None;
        sites.nodes.kill(site);
    }
    fs::remove_dir_all(&data).unwrap();
    shell(&["mv", text(&backup), text(&data)]);
    sites.nodes.start(1);
    sites.mount(1);
    for at in 0..20 {
        fs::write(sites.path(1, &format!("mine{at}")), b"mine").unwrap();
    }
    sites.nodes.start(0);
    sites.mount(0);
    eventually("both say why they are not connected", || {
        let why = |site, of| sites.told(site, of)["why"].as_str().unwrap_or_default().to_owned();
        why(0, 1)
            == "the other site has gone back to an earlier state: this site has seen later changes of it"
            && why(1, 0)
                == "this site has gone back to an earlier state: the other site has seen later changes of it"
    });
    assert_eq!(names(&sites.path(0, "")), ["first", "later"]);
    assert_eq!(names(&sites.path(1, "")).len(), 21);
}

#[test]
fn a_site_without_room_says_so_keeps_its_own_and_catches_up_when_there_is_some() {
    needs!(Mounts);
    let mut nodes = Cluster::bare(1);
    let data = nodes.data(1);
    fs::create_dir(&data).unwrap();
    shell(&["mount", "-t", "tmpfs", "-o", "size=96m", "none", text(&data)]);
    let _unmount = Unmount(&data);
    nodes.nodes.push(None);
    nodes.addresses.push(format!("127.0.0.1:{}", common::free_port()));
    nodes.start(1);
    let sites = Sites::at(nodes);
    fs::write(sites.path(1, "own"), b"own").unwrap();
    sites.has(0, "own", b"own");
    let large: Vec<u8> = (0..40_000_000_u32).flat_map(|n| (n * 7).to_le_bytes()).collect();
    fs::write(sites.path(0, "large"), &large).unwrap();
    fs::write(sites.path(0, "small"), b"small").unwrap();
    let room = || rustix::fs::statvfs(&data).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    eventually("it says that there is no room", || sites.told(1, 1)["files_without_room"] == 1);
    sites.has(1, "small", b"small");
    let told = sites.told(1, 1);
    assert_eq!((&told["files_behind"], &told["bytes_behind"]), (&json!(1), &json!(160_000_000)), "{told}");
    assert!(good(["site", "list", "--data", text(&data)]).contains("NO ROOM for 1 of them"));
    assert!(room() > 8 << 20, "users have room: {}", room());
    fs::write(sites.path(1, "mine"), b"mine").unwrap();
    sites.has(0, "mine", b"mine");
    assert_eq!(fs::read(sites.path(1, "own")).unwrap(), b"own");
    // The others go on meanwhile.
    fs::write(sites.path(0, "more"), b"more").unwrap();
    shell(&["mount", "-o", "remount,size=600m", text(&data)]);
    sites.has(1, "large", &large);
    sites.has(1, "more", b"more");
    fs::write(sites.path(1, "after"), b"after").unwrap();
    sites.has(0, "after", b"after");
    drop(sites);
}

/// Unmounts when the test ends.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_site_whose_key_is_lost_says_so_and_makes_no_other() {
    let mut sites = Sites::new(2);
    sites.mounts[1] = None;
    sites.nodes.kill(1);
    let key = sites.data(1).join("site.pem");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    sites.nodes.start(1);
    let said = bad(["site", "list", "--data", text(&sites.data(1)), "--volume", "docs"]);
    assert!(said.contains("not served"), "{said}");
    let status = String::from_utf8(run(["status", "--data", text(&sites.data(1))]).stdout).unwrap();
    assert!(status.contains("NOT SERVED") && status.contains("site.pem"), "{status}");
    assert!(!key.exists(), "the others do not know another one");
    sites.nodes.kill(1);
    fs::write(&key, kept).unwrap();
    sites.nodes.start(1);
    eventually("it is back", || sites.is_connected(0, 1));
}
