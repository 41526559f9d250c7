//! What a second home of a directory or file must have: reads it, and makes another object like that. Always acts as the daemon;
//! never lets anybody in before the owner and the permissions are right.

use std::os::fd::BorrowedFd;

use atoll_core::Name;
use atoll_posix::{Errno, Kind, SetTime};
use atoll_union::{At, Copied, NativeId, NativeStat};
use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, XattrFlags};

use super::attrs::{change_mode, change_owner, change_times, get, list, remove, set, xattr_name};
use super::{NativeTree, os, stat_fd};
use crate::who;

/// Most bytes of extended attributes that a copy has; `E2BIG` past that.
const COPIED_BYTES_MAX: usize = 1 << 20;

impl NativeTree {
    pub(super) fn copy_of(&self, of: &At) -> Result<Copied, Errno> {
        who::daemon();
        let found = self.find(of)?;
        let stat = stat_fd(found.fd())?;
        if stat.kind == Kind::Directory && stat.nlink == 0 {
            return Err(Errno::ENOENT); // It was removed, and must not come back elsewhere.
        }
        let xattrs = xattrs_of(found.fd())?;
        Ok(Copied {
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            atime: stat.atime,
            mtime: stat.mtime,
            xattrs,
        })
    }

    pub(super) fn make_like(&self, of: &At, like: &Copied) -> Result<(), Errno> {
        who::daemon();
        let found = self.find(of)?;
        let kind = stat_fd(found.fd())?.kind;
        become_like(found.fd(), kind, like)
    }

    pub(super) fn mkdir_like(&self, dir: NativeId, name: &Name, like: &Copied) -> Result<NativeStat, Errno> {
        who::daemon();
        let above = self.dir(dir)?;
        let before = stat_fd(std::os::fd::AsFd::as_fd(&*above))?;
        let own = self.feed.own(dir, name, super::feed::Event::Made);
        rustix::fs::mkdirat(&*above, name.as_bytes(), Mode::RWXU).map_err(os)?;
        own.made();
        let made = self.open_dir(dir, name).and_then(|stat| {
            let fd = self.dir(stat.id)?;
            let fd = std::os::fd::AsFd::as_fd(&*fd);
            become_like(fd, Kind::Directory, like)?;
            stat_fd(fd)
        });
        if made.is_err() {
            // Half of a directory must not be seen. What somebody put into it in the meantime keeps it.
            let _kept = rustix::fs::unlinkat(&*above, name.as_bytes(), AtFlags::REMOVEDIR);
        }
        // The union shows no new name above, so the time of its last change stays. If that fails, it is shown as too late.
        let [atime, mtime] = [before.atime, before.mtime].map(|time| Some(SetTime::To { time }));
        let _later = change_times(std::os::fd::AsFd::as_fd(&*above), atime, mtime);
        made
    }
}

fn xattrs_of(fd: BorrowedFd<'_>) -> Result<Vec<(Bytes, Bytes)>, Errno> {
    let names = match list(fd) {
        Err(Errno::EOPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut bytes = 0;
    let mut xattrs = Vec::new();
    for name in names.split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let value = match get(fd, &xattr_name(name)?) {
            // It is gone by now.
            Err(Errno::ENODATA) => continue,
            value => value?,
        };
        bytes += name.len() + value.len();
        if bytes > COPIED_BYTES_MAX {
            return Err(Errno(libc::E2BIG));
        }
        xattrs.push((Bytes::copy_from_slice(name), value.into()));
    }
    Ok(xattrs)
}

/// Labels that only root can set are left out by a daemon that is not root.
fn is_roots(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

fn become_like(fd: BorrowedFd<'_>, kind: Kind, like: &Copied) -> Result<(), Errno> {
    let root = rustix::process::geteuid().is_root();
    // A new owner takes capabilities away, an ACL changes the mode, and each of them the times: in this order.
    let now = stat_fd(fd)?;
    if (now.uid, now.gid) != (like.uid, like.gid) {
        change_owner(fd, Some(like.uid), Some(like.gid))?;
    }
    for (name, _) in &xattrs_of(fd)? {
        let stays = like.xattrs.iter().any(|(other, _)| other == name);
        if !stays && (root || !is_roots(name)) {
            remove(fd, &xattr_name(name)?)?;
        }
    }
    for (name, value) in &like.xattrs {
        match set(fd, &xattr_name(name)?, value, XattrFlags::empty()) {
            Err(Errno::EPERM) if !root && is_roots(name) => {}
            done => done?,
        }
    }
    if kind != Kind::Symlink {
        change_mode(fd, like.mode)?;
    }
    change_times(fd, Some(SetTime::To { time: like.atime }), Some(SetTime::To { time: like.mtime }))
}
