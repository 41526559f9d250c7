//! `O_TMPFILE` in a union's mount: the file is used, gets a name by `linkat`, and is never seen without one.

mod common;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use atoll_needs::needs;
use common::{Scratch, good, text};

fn nameless(dir: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE | flags).mode(0o700).open(dir)
}

/// Gives an open file a name, as `linkat(2)` describes it.
fn link(file: &File, to: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let to = CString::new(text(to)).unwrap();
    // SAFETY: two strings that end.
    let done = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn a_file_without_a_name_gets_one_by_linkat_and_is_a_plain_file_then() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    fs::create_dir(one.join("d")).unwrap();
    good(["union", text(&one), text(&two), text(&point)]);
    let mut file = nameless(&point.join("d"), 0).unwrap();
    file.write_all(b"#!/bin/sh\necho it runs\n").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(point.join("d")).unwrap().count(), 0);
    let name = point.join("d/run");
    link(&file, &name).unwrap();
    assert_eq!(link(&file, &name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let (open, named) = (file.metadata().unwrap(), fs::metadata(&name).unwrap());
    assert_eq!((named.ino(), named.nlink(), named.len()), (open.ino(), 1, 23));
    drop(file);
    for place in [&point, &one] {
        let said = Command::new(place.join("d/run")).output().unwrap();
        assert_eq!(said.stdout, b"it runs\n", "in {}", place.display());
    }
    // One that is to have no name gets none.
    let mut file = nameless(&point, libc::O_EXCL).unwrap();
    file.write_all(b"kept").unwrap();
    assert_eq!(link(&file, &point.join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    file.rewind().unwrap();
    let mut told = String::new();
    file.read_to_string(&mut told).unwrap();
    assert_eq!(told, "kept");
    drop(file);
    good(["umount", text(&point)]);
    let left: Vec<_> = [one.join("d"), two].iter().map(|dir| fs::read_dir(dir).unwrap().count()).collect();
    assert_eq!(left, [1, 0]);
}
