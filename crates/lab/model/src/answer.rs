//! Says how two answers differ, without details that an implementation may choose.

use atoll_core::Time;
use atoll_posix::{Answer, Attr, DirEntry, Kind, LockKind};

/// Which attributes must be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strictness {
    /// Last access.
    pub atime: bool,
    /// Last change of content, and of anything.
    pub mtime_ctime: bool,
    /// Nanoseconds by which these may differ, where clocks do.
    pub apart_ns: u64,
    /// Inode numbers.
    pub ino: bool,
}

impl Strictness {
    /// Everything that POSIX lets a program see, save times of access.
    pub const FULL: Self = Self { atime: false, mtime_ctime: true, apart_ns: 0, ino: true };
    /// Two trees that were made apart: neither clocks nor ids agree.
    pub const SHAPE: Self = Self { mtime_ctime: false, ino: false, ..Self::FULL };
}

/// Collects "what: expected, got" of values that are not equal.
pub(crate) fn unless_equal<T: PartialEq + std::fmt::Debug>(
    out: &mut Vec<String>,
    what: &str,
    expected: T,
    got: T,
) {
    if expected != got {
        out.push(format!("{what}: expected {expected:?}, got {got:?}"));
    }
}

/// In what two attributes differ. `blocks`, the size of directories and `btime` are free. With
/// `dynamic` false, so are size, times and link count of a directory.
pub fn attr_differences(expected: &Attr, got: &Attr, strict: Strictness, dynamic: bool) -> Vec<String> {
    let mut out = Vec::new();
    let o = &mut out;
    if strict.ino {
        unless_equal(o, "ino", expected.ino, got.ino);
    }
    unless_equal(o, "kind", expected.kind, got.kind);
    if expected.mode != got.mode {
        o.push(format!("mode: expected {:04o}, got {:04o}", expected.mode, got.mode));
    }
    unless_equal(o, "uid", expected.uid, got.uid);
    unless_equal(o, "gid", expected.gid, got.gid);
    unless_equal(o, "rdev", expected.rdev, got.rdev);
    let directory = expected.kind == Kind::Directory;
    if !directory {
        unless_equal(o, "size", expected.size, got.size);
    }
    if directory && !dynamic {
        return out;
    }
    unless_equal(o, "nlink", expected.nlink, got.nlink);
    if strict.mtime_ctime {
        let mut compare = |what, expected: Time, got: Time| {
            if expected.nanos_from(got) > strict.apart_ns {
                unless_equal(o, what, expected, got);
            }
        };
        compare("mtime", expected.mtime, got.mtime);
        compare("ctime", expected.ctime, got.ctime);
    }
    if strict.atime {
        unless_equal(o, "atime", expected.atime, got.atime);
    }
    out
}

/// In what two answers to one operation differ. Free are space, cookies, and where a listing stops:
/// listings are compared when both are whole, as sets.
pub fn differences(expected: &Answer, got: &Answer, strict: Strictness) -> Vec<String> {
    let mut out = Vec::new();
    match (expected, got) {
        (Answer::Found { found: a }, Answer::Found { found: b }) => {
            out = attr_differences(&a.attr, &b.attr, strict, a.attr_current && b.attr_current);
        }
        (Answer::Attr { attr: a }, Answer::Attr { attr: b }) => {
            out = attr_differences(a, b, strict, true);
        }
        (Answer::Entries { entries: a, eof: true }, Answer::Entries { entries: b, eof: true }) => {
            out = listing_differences(a, b, strict);
        }
        (Answer::Entries { .. }, Answer::Entries { .. }) | (Answer::Statfs { .. }, Answer::Statfs { .. }) => {
        }
        (Answer::Lock { lock: a }, Answer::Lock { lock: b })
            if a.kind == LockKind::Unlock && b.kind == LockKind::Unlock => {}
        (Answer::Removed { orphan: a }, Answer::Removed { orphan: b }) => {
            if strict.ino {
                unless_equal(&mut out, "orphan", a, b);
            } else {
                unless_equal(&mut out, "orphan", a.is_some(), b.is_some());
            }
        }
        (a, b) => unless_equal(&mut out, "answer", a, b),
    }
    out
}

fn listing_differences(expected: &[DirEntry], got: &[DirEntry], strict: Strictness) -> Vec<String> {
    let mut out = Vec::new();
    let find = |list: &[DirEntry], entry: &DirEntry| list.iter().find(|e| e.name == entry.name).cloned();
    for entry in expected {
        let name = &entry.name;
        let Some(other) = find(got, entry) else {
            out.push(format!("{name}: missing"));
            continue;
        };
        if strict.ino {
            unless_equal(&mut out, &format!("{name}: ino"), entry.ino, other.ino);
        }
        unless_equal(&mut out, &format!("{name}: kind"), entry.kind, other.kind);
        if let (Some(a), Some(b)) = (&entry.found, &other.found) {
            let current = a.attr_current && b.attr_current;
            let differ = attr_differences(&a.attr, &b.attr, strict, current);
            out.extend(differ.into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    for entry in got.iter().filter(|entry| find(expected, entry).is_none()) {
        out.push(format!("{}: should not be there", entry.name));
    }
    if got.windows(2).any(|pair| pair[0].cookie >= pair[1].cookie) {
        out.push("cookies do not rise".to_owned());
    }
    unless_equal(&mut out, "number of names", expected.len(), got.len());
    out
}
