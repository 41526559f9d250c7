//! nfsstat3: the numbers of RFC 1813, and which of them stands for which error of the volume.

use atoll_posix::Errno;

/// A status of NFS version 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const NOENT: Self = Self(2);
    pub(crate) const IO: Self = Self(5);
    pub(crate) const ACCES: Self = Self(13);
    pub(crate) const EXIST: Self = Self(17);
    pub(crate) const XDEV: Self = Self(18);
    pub(crate) const INVAL: Self = Self(22);
    pub(crate) const ROFS: Self = Self(30);
    pub(crate) const NAMETOOLONG: Self = Self(63);
    pub(crate) const STALE: Self = Self(70);
    pub(crate) const BADHANDLE: Self = Self(10_001);
    pub(crate) const NOT_SYNC: Self = Self(10_002);
    pub(crate) const NOTSUPP: Self = Self(10_004);
    pub(crate) const TOOSMALL: Self = Self(10_005);
    pub(crate) const SERVERFAULT: Self = Self(10_006);
    pub(crate) const BADTYPE: Self = Self(10_007);
    pub(crate) const JUKEBOX: Self = Self(10_008);
}

/// The status for an error. `looks`: the operation could change nothing. Only then ETIMEDOUT is JUKEBOX: a client
/// repeats the call under another xid, past the duplicate-request cache.
pub(crate) fn of(errno: Errno, looks: bool) -> Status {
    match errno {
        Errno::EPERM
        | Errno::ENOENT
        | Errno::EIO
        | Errno::ENXIO
        | Errno::EACCES
        | Errno::EEXIST
        | Errno::EXDEV
        | Errno::ENOTDIR
        | Errno::EISDIR
        | Errno::EINVAL
        | Errno::EFBIG
        | Errno::ENOSPC
        | Errno::EROFS
        | Errno::EMLINK => Status(errno.0 as u32),
        Errno::ENAMETOOLONG => Status::NAMETOOLONG,
        Errno::ENOTEMPTY => Status(66),
        Errno::EDQUOT => Status(69),
        Errno::ESTALE | Errno::EBADF => Status::STALE,
        Errno::EOPNOTSUPP | Errno::ENOSYS => Status::NOTSUPP,
        Errno::ENOMEM => Status::SERVERFAULT,
        Errno::ELOOP | Errno::ERANGE | Errno::EOVERFLOW => Status::INVAL,
        // Neither has an effect.
        Errno::EAGAIN | Errno::EINTR => Status::JUKEBOX,
        Errno::ETIMEDOUT if looks => Status::JUKEBOX,
        _ => Status::IO,
    }
}
