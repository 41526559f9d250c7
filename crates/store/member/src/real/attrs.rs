//! Calls on attributes: modes, owners, times, lengths, extended attributes, access. What the caller may, the native file system
//! says.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use atoll_posix::acl::{ACCESS_XATTR, Acl};
use atoll_posix::perm::{ObjectPerms, granted};
use atoll_posix::{Caller, Errno, Kind, SetAttr, SetTime, XattrMode, mode};
use atoll_union::{At, NativeStat, Who};
use bytes::Bytes;
use rustix::fs::{
    Access, AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};

use super::{NativeTree, ProcPath, os, stat_fd};
use crate::who;

/// The system call `fchmodat2`, which `libc` does not name everywhere: the same number on x86-64, ARM and RISC-V.
const FCHMODAT2: libc::c_long = 452;

/// Longest value and longest list of names, as Linux has them.
const XATTR_BYTES_MAX: usize = atoll_posix::xattr::VALUE_BYTES_MAX;

impl NativeTree {
    pub(super) fn set_attr(&self, who: &Who, of: &At, set: &SetAttr) -> Result<NativeStat, Errno> {
        let found = self.find(of)?;
        let before = stat_fd(found.fd())?;
        check_values(&before, set)?;
        let for_size = match set.size {
            Some(_) if set.opened => Some(self.file(of, true)?),
            _ => None,
        };
        let taken = self.act(who)?;
        if let Some(size) = set.size {
            match for_size {
                Some(fd) => rustix::fs::ftruncate(&*fd, size),
                None => rustix::fs::ftruncate(self.open_found(&found, OFlags::WRONLY)?, size),
            }
            .map_err(os)?;
        }
        let owner = || change_owner(found.fd(), set.uid, set.gid);
        let bits = || set.mode.map_or(Ok(()), |bits| change_mode(found.fd(), bits));
        // Which group a set-group-id bit is for is judged by the new owner. Of a file, a new owner takes the bits away.
        if before.kind == Kind::Directory {
            owner()?;
            bits()?;
        } else {
            bits()?;
            owner()?;
        }
        // A "now" that comes with a length is the truncate's own.
        let implied = |time: Option<SetTime>| set.size.is_some() && time == Some(SetTime::Now);
        let mtime = if implied(set.mtime) { None } else { set.mtime };
        let atime = if implied(set.atime) { None } else { set.atime };
        change_times(found.fd(), atime, mtime)?;
        drop(taken);
        let after = stat_fd(found.fd())?;
        if set.kill_set_id && after.kind == Kind::Regular && after.mode & (mode::SETUID | mode::SETGID) != 0 {
            who::daemon();
            let left = atoll_posix::perm::kill_set_id(after.mode);
            if left != after.mode {
                change_mode(found.fd(), left)?;
                return stat_fd(found.fd());
            }
        }
        Ok(after)
    }

    pub(super) fn readlink(&self, of: &At) -> Result<Bytes, Errno> {
        let found = self.find(of)?;
        if stat_fd(found.fd())?.kind != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        let target = rustix::fs::readlinkat(found.fd(), c"", Vec::new()).map_err(os)?;
        Ok(target.into_bytes().into())
    }

    pub(super) fn get_xattr(&self, who: &Who, of: &At, name: &[u8]) -> Result<Bytes, Errno> {
        let (found, name) = (self.find(of)?, xattr_name(name)?);
        let _as = self.act(who)?;
        get(found.fd(), &name).map(Bytes::from)
    }

    pub(super) fn set_xattr(
        &self,
        who: &Who,
        of: &At,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        let acl = name == atoll_posix::acl::ACCESS_XATTR;
        let (found, name) = (self.find(of)?, xattr_name(name)?);
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        let taken = self.act(who)?;
        set(found.fd(), &name, value, flags)?;
        drop(taken);
        if acl && kill_sgid {
            who::daemon();
            let bits = stat_fd(found.fd())?.mode;
            if bits & mode::SETGID != 0 {
                change_mode(found.fd(), bits & !mode::SETGID)?;
            }
        }
        Ok(())
    }

    pub(super) fn list_xattr(&self, who: &Who, of: &At) -> Result<Bytes, Errno> {
        let found = self.find(of)?;
        let _as = self.act(who)?;
        list(found.fd()).map(Bytes::from)
    }

    pub(super) fn remove_xattr(&self, who: &Who, of: &At, name: &[u8]) -> Result<(), Errno> {
        let (found, name) = (self.find(of)?, xattr_name(name)?);
        let _as = self.act(who)?;
        remove(found.fd(), &name)
    }

    pub(super) fn access(&self, who: &Who, of: &At, want: u8) -> Result<u8, Errno> {
        let found = self.find(of)?;
        if want == SEARCH && self.owner_may_search(who, found.fd())? {
            return Ok(SEARCH);
        }
        let taken = self.act(who)?;
        let asks = |access: Access| {
            let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
            let fd = found.fd().as_raw_fd();
            // The older call knows no flags, and asks for the ids that the process was started with.
            // SAFETY: the path is a string that ends.
            let done = unsafe { libc::syscall(libc::SYS_faccessat2, fd, c"".as_ptr(), access.bits(), flags) };
            if done == 0 { Ok(()) } else { Err(who::last()) }
        };
        let has = |told| match told {
            Ok(()) => Ok(true),
            Err(Errno::EACCES | Errno::EROFS | Errno::EPERM) => Ok(false),
            Err(e) => Err(e),
        };
        if has(asks(Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK))? {
            return Ok(7);
        }
        let write = asks(Access::WRITE_OK);
        let (read, exec) = (has(asks(Access::READ_OK))?, has(asks(Access::EXEC_OK))?);
        let granted = u8::from(read) << 2 | u8::from(has(write)?) << 1 | u8::from(exec);
        if write != Err(Errno::EROFS) {
            return Ok(granted);
        }
        drop(taken);
        Ok(granted | may_write_elsewhere(found.fd(), &who::caller_of(who))?)
    }
}

/// What the caller has of a directory if he may look names up in it.
const SEARCH: u8 = 1;

impl NativeTree {
    /// Whether a caller may search a directory because it is his: an ACL says of the owner what the mode says. It costs no change of
    /// identity. Another machine's file system may have rules of its own, so there it is always asked.
    fn owner_may_search(&self, who: &Who, fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        let Who::Caller(caller) = who else { return Ok(false) };
        if !super::read(&self.mount).local {
            return Ok(false);
        }
        let NativeStat { uid, mode, kind, .. } = stat_fd(fd)?;
        Ok(kind == Kind::Directory && uid == caller.uid && mode & 0o100 != 0)
    }
}

/// A directory's new names are made in another member if its own is read-only. So its mode says who may make them. 0 for files.
fn may_write_elsewhere(fd: BorrowedFd<'_>, by: &Caller) -> Result<u8, Errno> {
    who::daemon();
    let NativeStat { uid, gid, mode, kind, .. } = stat_fd(fd)?;
    if kind != Kind::Directory {
        return Ok(0);
    }
    let acl = match get(fd, &xattr_name(ACCESS_XATTR)?) {
        Ok(bytes) => Acl::parse(&bytes)?,
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => None,
        Err(e) => return Err(e),
    };
    let what = ObjectPerms { uid, gid, mode, kind };
    let may = granted(by, what, acl.as_ref()).map_err(|_| Errno::EACCES)?;
    Ok(may & 2)
}

fn check_values(before: &NativeStat, set: &SetAttr) -> Result<(), Errno> {
    match (set.size, before.kind) {
        (None, _) | (_, Kind::Regular) => {}
        (_, Kind::Directory) => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    if set.mode.is_some() && before.kind == Kind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Errno::EINVAL);
    }
    let bad = |t: Option<SetTime>| matches!(t, Some(SetTime::To { time }) if time.nanos >= 1_000_000_000);
    if bad(set.atime) || bad(set.mtime) { Err(Errno::EINVAL) } else { Ok(()) }
}

pub(super) fn change_owner(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(os)
}

pub(super) fn change_mode(fd: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
    // Linux 6.6 needs no path. SAFETY: the path is a string that ends.
    let done = unsafe {
        libc::syscall(FCHMODAT2, fd.as_raw_fd(), c"".as_ptr(), bits & mode::ALL, libc::AT_EMPTY_PATH)
    };
    match if done == 0 { Ok(()) } else { Err(who::last()) } {
        // An older kernel does not know the call, and a sandbox may refuse what it does not know.
        Err(Errno(libc::ENOSYS) | Errno::EPERM) => {}
        done => return done,
    }
    rustix::fs::chmod(ProcPath::of(fd).as_c_str(), Mode::from_raw_mode(bits & mode::ALL)).map_err(os)
}

pub(super) fn change_times(
    fd: BorrowedFd<'_>,
    atime: Option<SetTime>,
    mtime: Option<SetTime>,
) -> Result<(), Errno> {
    if atime.is_none() && mtime.is_none() {
        return Ok(());
    }
    let spec = |time| match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To { time }) => Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() },
    };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH).map_err(os)
}

/// The name as Linux takes it. `ERANGE` if it is too long or empty, `EINVAL` with a NUL in it.
pub(super) fn xattr_name(name: &[u8]) -> Result<CString, Errno> {
    if name.is_empty() || name.len() > atoll_posix::xattr::NAME_BYTES_MAX {
        return Err(Errno::ERANGE);
    }
    CString::new(name).map_err(|_| Errno::EINVAL)
}

/// The links below `/proc/self/fd` lead to the object itself, a symbolic link too.
pub(super) fn get(fd: BorrowedFd<'_>, name: &CString) -> Result<Vec<u8>, Errno> {
    let path = ProcPath::of(fd);
    let mut value = Vec::with_capacity(256);
    let spare = rustix::buffer::spare_capacity(&mut value);
    match rustix::fs::getxattr(path.as_c_str(), name.as_c_str(), spare) {
        Err(rustix::io::Errno::RANGE) => {
            value.reserve_exact(XATTR_BYTES_MAX);
            let spare = rustix::buffer::spare_capacity(&mut value);
            rustix::fs::getxattr(path.as_c_str(), name.as_c_str(), spare).map_err(os)?;
        }
        got => {
            got.map_err(os)?;
        }
    }
    Ok(value)
}

pub(super) fn list(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let path = ProcPath::of(fd);
    let mut names = Vec::with_capacity(1024);
    let spare = rustix::buffer::spare_capacity(&mut names);
    match rustix::fs::listxattr(path.as_c_str(), spare) {
        Err(rustix::io::Errno::RANGE) => {
            names.reserve_exact(XATTR_BYTES_MAX);
            let spare = rustix::buffer::spare_capacity(&mut names);
            rustix::fs::listxattr(path.as_c_str(), spare).map_err(os)?;
        }
        got => {
            got.map_err(os)?;
        }
    }
    Ok(names)
}

pub(super) fn set(fd: BorrowedFd<'_>, name: &CString, value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
    rustix::fs::setxattr(ProcPath::of(fd).as_c_str(), name.as_c_str(), value, flags).map_err(os)
}

pub(super) fn remove(fd: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
    rustix::fs::removexattr(ProcPath::of(fd.as_fd()).as_c_str(), name.as_c_str()).map_err(os)
}
