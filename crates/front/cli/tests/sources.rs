//! The system's table of mounts shows the source that was given, so that mount(8), umount(8) and
//! findmnt(8) recognise their mounts by it.

mod common;

use std::path::Path;
use std::process::Command;

use atoll_needs::needs;
use common::{Cluster, Daemon, Mounted, Scratch, bad, good, is_mounted, script, text};

/// What the table shows of a mount: its type and its source, as findmnt(8) reads them.
fn shown(point: &Path) -> (String, String) {
    let mut command = Command::new("findmnt");
    command.args(["-rn", "-o", "FSTYPE,SOURCE", "--mountpoint"]).arg(point);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let (kind, source) = output.trim_end().split_once(' ').expect("it is mounted");
    (kind.to_owned(), source.to_owned())
}

#[test]
fn the_table_shows_the_source_that_was_given() {
    needs!(Mounts, Programs(&["findmnt", "mount", "umount", "unshare", "bash"]));
    let cluster = Cluster::new(2);
    let mount = cluster.mount("mnt", "");
    assert_eq!(shown(&mount.0), ("fuse.atoll".to_owned(), cluster.source()));
    good(["umount", text(&mount.0)]);
    // Without a source on the command line it is one by which the volume could be mounted.
    good(["mount", "--data", text(&cluster.data(0)), text(&mount.0)]);
    let socket = format!("unix:{}/atoll.sock:/home", text(&cluster.data(0)));
    assert_eq!(shown(&mount.0).1, socket);
    let again = Mounted::new(&socket, cluster.scratch.dir("again"), "");
    assert_eq!(shown(&again.0).1, socket);
    // Mounted already: the message says what it is.
    let said = bad(["mount", &cluster.source(), text(&mount.0)]);
    assert!(said.contains(&socket), "{said}");
}

#[test]
fn up_shows_a_source_by_which_others_can_mount_the_volume() {
    needs!(Mounts, Programs(&["findmnt", "mount", "umount", "unshare", "bash"]));
    let scratch = Scratch::new();
    // The table writes a blank as \040, and findmnt as \x20; a comma and a backslash stay what they are.
    let (data, point) = (scratch.dir("data of, some\\one"), scratch.dir("mnt"));
    let mut daemon = Daemon::up(&data, &point, 1);
    let source = format!("unix:{}/atoll.sock:/main", text(&data));
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let escaped = source.replace('\\', "\\134").replace(' ', "\\040");
    assert!(
        table.lines().any(|l| l.starts_with(&format!("{escaped} {} fuse.atoll ", text(&point)))),
        "{table}"
    );
    let other = Mounted::new(&source, scratch.dir("other"), "");
    std::fs::write(point.join("file"), b"x").unwrap();
    assert_eq!(std::fs::read(other.path("file")).unwrap(), b"x");
    good(["umount", text(&other.0)]);
    assert!(!is_mounted(&other.0));
    // A mount whose process was killed is ours all the same, whatever its source.
    daemon.kill();
    let mut daemon = Daemon::up(&data, &point, 1);
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"x");
    daemon.stop();
}

#[test]
fn mount_8_and_umount_8_know_a_mount_by_its_source() {
    needs!(Mounts, Programs(&["findmnt", "mount", "umount", "unshare", "bash"]));
    let cluster = Cluster::new(2);
    let point = cluster.scratch.dir("mnt of one");
    let source = cluster.source();
    let fstab = cluster.scratch.path("fstab");
    let at = text(&point).replace(' ', "\\040");
    std::fs::write(&fstab, format!("{source} {at} atoll soft=5 0 0\n")).unwrap();
    let said = script(
        &cluster.scratch,
        &format!(
            "mount -a -v -T {0}
             findmnt -n -o SOURCE,FSTYPE,TARGET '{1}'
             mount -a -v -T {0}
             test $(findmnt -n -o TARGET -S '{1}' | wc -l) = 1
             touch '{2}/file'
             umount '{1}'
             ! findmnt -n '{1}'
             mount -T {0} '{1}'
             test -f '{2}/file'
             umount '{2}'
             ! findmnt -n '{1}'",
            text(&fstab),
            source,
            text(&point)
        ),
    );
    assert!(said.contains(&format!("{source} fuse.atoll")), "{said}");
    assert!(said.contains("already mounted"), "the second time, nothing is to be done: {said}");
}
