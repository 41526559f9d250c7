//! A member whose file system hangs, as a disk that does not answer: its daemon is stopped with a signal.

mod common;

use std::fs;
use std::io;

use atoll_needs::needs;
use common::{Daemon, Scratch, eventually, good, text};

/// Lets a daemon go on, if a test fails too.
struct Frozen<'a>(&'a Daemon);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

#[test]
fn a_member_that_hangs_gives_a_timeout_and_delays_no_other_and_all_is_right_afterwards() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (plain, below, inner) = (scratch.dir("plain"), scratch.dir("below"), scratch.dir("inner"));
    let point = scratch.dir("mnt");
    fs::create_dir(plain.join("p")).unwrap();
    fs::write(plain.join("p/f"), "plain").unwrap();
    fs::create_dir(below.join("h")).unwrap();
    fs::write(below.join("h/f"), "hangs").unwrap();
    // A union of one member is a FUSE daemon like any other.
    let daemon = Daemon::start(["union", "--foreground", text(&below), text(&inner)], "stop");
    good(["union", text(&plain), text(&inner), text(&point)]);
    assert_eq!(fs::read_to_string(point.join("h/f")).unwrap(), "hangs");
    std::thread::scope(|s| {
        daemon.freeze();
        let frozen = Frozen(&daemon);
        let rename = s.spawn(|| fs::rename(point.join("h/f"), point.join("h/g")));
        let create = s.spawn(|| fs::write(point.join("h/new"), "new"));
        eventually("the other member goes on", || {
            fs::read_to_string(point.join("p/f")).is_ok_and(|told| told == "plain")
        });
        fs::write(point.join("p/f"), "changed").unwrap();
        for late in [rename, create] {
            assert_eq!(late.join().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        let refused = fs::read_to_string(point.join("h/f")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(frozen);
    });
    eventually("the member answers", || fs::read_dir(point.join("h")).is_ok_and(|mut h| h.next().is_some()));
    let (old, new) = (point.join("h/f"), point.join("h/g"));
    eventually("nothing is in doubt", || fs::write(point.join("h/new"), "again").is_ok());
    assert!(old.exists() != new.exists(), "the rename was made, or was not");
    let kept = if old.exists() { old } else { new };
    assert_eq!(fs::read_to_string(kept).unwrap(), "hangs");
    assert_eq!(fs::read_to_string(point.join("h/new")).unwrap(), "again");
    good(["umount", text(&point)]);
}
