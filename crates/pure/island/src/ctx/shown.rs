//! Attributes, as rows have them.

use atoll_core::{Ino, Stamp, Time};
use atoll_posix::{Attr, Kind};
use atoll_proto::{Dir, Entry, StaticAttrs};

/// The size that is shown for a directory: names have no bytes that anyone counts.
const DIR_SIZE: u64 = 4096;

/// The attributes of a directory as `stat` shows them: all at its owner, the static ones elsewhere.
pub(crate) fn dir_attr(ino: Ino, dir: &Dir) -> Attr {
    let time = dir.owned.as_ref().map(|o| o.btime).unwrap_or_default();
    let mut attr = stub_attr(ino, &dir.fixed, time);
    if let Some(owned) = &dir.owned {
        attr.nlink = owned.subdirs + 2;
        attr.atime = owned.atime;
        attr.mtime = owned.mtime;
        attr.ctime = owned.ctime;
    }
    attr
}

/// What a name tells of a file with another home: its id and its type.
pub(crate) fn pointer_attr(entry: &Entry) -> Attr {
    let none = stub_attr(
        entry.ino,
        &StaticAttrs { version: Stamp::default(), mode: 0, uid: 0, gid: 0 },
        Time::default(),
    );
    Attr { kind: entry.kind, nlink: 1, size: 0, blocks: 0, ..none }
}

/// The attributes that a directory's stub tells.
pub(crate) fn stub_attr(ino: Ino, fixed: &StaticAttrs, time: Time) -> Attr {
    Attr {
        ino,
        kind: Kind::Directory,
        mode: fixed.mode,
        nlink: 2,
        uid: fixed.uid,
        gid: fixed.gid,
        rdev: 0,
        size: DIR_SIZE,
        blocks: DIR_SIZE / 512,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    }
}
