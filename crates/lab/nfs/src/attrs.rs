//! Attributes, times, devices and errors between NFS's form and ours. Asks nobody.

use atoll_core::{Ino, Time};
use atoll_posix::{Attr, Errno, Kind, SetAttr, SetTime};
use nfs3_types::nfs3::{
    Nfs3Option, fattr3, ftype3, nfsstat3, nfstime3, sattr3, set_atime, set_mtime, specdata3,
};

/// What NFS calls a type.
pub(crate) const fn kind(of: ftype3) -> Kind {
    match of {
        ftype3::NF3REG => Kind::Regular,
        ftype3::NF3DIR => Kind::Directory,
        ftype3::NF3BLK => Kind::BlockDevice,
        ftype3::NF3CHR => Kind::CharDevice,
        ftype3::NF3LNK => Kind::Symlink,
        ftype3::NF3SOCK => Kind::Socket,
        ftype3::NF3FIFO => Kind::Fifo,
    }
}

const fn time(of: nfstime3) -> Time {
    Time { secs: of.seconds as i64, nanos: of.nseconds }
}

/// Times before 1970 and after 2106 become the nearest that NFS has, as in Linux's client.
fn nfs_time(of: Time) -> nfstime3 {
    match u32::try_from(of.secs) {
        Ok(seconds) => nfstime3 { seconds, nseconds: of.nanos },
        Err(_) if of.secs < 0 => nfstime3 { seconds: 0, nseconds: 0 },
        Err(_) => nfstime3 { seconds: u32::MAX, nseconds: 0 },
    }
}

/// A device number in Linux's 32 bits.
const fn device(spec: &specdata3) -> u32 {
    let (major, minor) = (spec.specdata1, spec.specdata2);
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// The major and minor number of a device.
pub(crate) const fn nfs_device(rdev: u32) -> specdata3 {
    specdata3 { specdata1: (rdev >> 8) & 0xfff, specdata2: (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00) }
}

/// Attributes under this id.
pub(crate) fn attr(ino: Ino, of: &fattr3) -> Attr {
    Attr {
        ino,
        kind: kind(of.type_),
        mode: of.mode & 0o7777,
        nlink: of.nlink,
        uid: of.uid,
        gid: of.gid,
        rdev: device(&of.rdev),
        size: of.size,
        blocks: of.used.div_ceil(512),
        atime: time(of.atime),
        mtime: time(of.mtime),
        ctime: time(of.ctime),
        btime: Time::default(),
    }
}

fn option<T: Copy + nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack>(
    of: Option<T>,
) -> Nfs3Option<T> {
    of.map_or(Nfs3Option::None, Nfs3Option::Some)
}

/// A change of attributes.
pub(crate) fn set(of: &SetAttr) -> sattr3 {
    sattr3 {
        mode: option(of.mode),
        uid: option(of.uid),
        gid: option(of.gid),
        size: option(of.size),
        atime: match of.atime {
            None => set_atime::DONT_CHANGE,
            Some(SetTime::Now) => set_atime::SET_TO_SERVER_TIME,
            Some(SetTime::To { time }) => set_atime::SET_TO_CLIENT_TIME(nfs_time(time)),
        },
        mtime: match of.mtime {
            None => set_mtime::DONT_CHANGE,
            Some(SetTime::Now) => set_mtime::SET_TO_SERVER_TIME,
            Some(SetTime::To { time }) => set_mtime::SET_TO_CLIENT_TIME(nfs_time(time)),
        },
    }
}

/// Only permission bits.
pub(crate) fn with_mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

/// The errno that Linux's client makes of an error.
pub(crate) const fn errno(of: nfsstat3) -> Errno {
    match of {
        nfsstat3::NFS3ERR_PERM => Errno::EPERM,
        nfsstat3::NFS3ERR_NOENT => Errno::ENOENT,
        nfsstat3::NFS3ERR_NXIO => Errno::ENXIO,
        nfsstat3::NFS3ERR_ACCES => Errno::EACCES,
        nfsstat3::NFS3ERR_EXIST => Errno::EEXIST,
        nfsstat3::NFS3ERR_XDEV => Errno::EXDEV,
        nfsstat3::NFS3ERR_NODEV => Errno(19),
        nfsstat3::NFS3ERR_NOTDIR => Errno::ENOTDIR,
        nfsstat3::NFS3ERR_ISDIR => Errno::EISDIR,
        nfsstat3::NFS3ERR_INVAL => Errno::EINVAL,
        nfsstat3::NFS3ERR_FBIG => Errno::EFBIG,
        nfsstat3::NFS3ERR_NOSPC => Errno::ENOSPC,
        nfsstat3::NFS3ERR_ROFS => Errno::EROFS,
        nfsstat3::NFS3ERR_MLINK => Errno::EMLINK,
        nfsstat3::NFS3ERR_NAMETOOLONG => Errno::ENAMETOOLONG,
        nfsstat3::NFS3ERR_NOTEMPTY => Errno::ENOTEMPTY,
        nfsstat3::NFS3ERR_DQUOT => Errno::EDQUOT,
        nfsstat3::NFS3ERR_STALE | nfsstat3::NFS3ERR_BADHANDLE => Errno::ESTALE,
        nfsstat3::NFS3ERR_NOTSUPP => Errno::EOPNOTSUPP,
        nfsstat3::NFS3ERR_TOOSMALL => Errno::EINVAL,
        nfsstat3::NFS3ERR_JUKEBOX => Errno::ETIMEDOUT,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_its_number() {
        for rdev in [0, 0x0103, 0x0763, 0xfff0_ffff, 0x1234_5678] {
            assert_eq!(device(&nfs_device(rdev)), rdev, "{rdev:x}");
        }
    }

    #[test]
    fn a_time_that_nfs_does_not_have_becomes_the_nearest() {
        let of = |secs| nfs_time(Time { secs, nanos: 5 });
        assert_eq!(of(-1), nfstime3 { seconds: 0, nseconds: 0 });
        assert_eq!(of(0), nfstime3 { seconds: 0, nseconds: 5 });
        assert_eq!(of(4_294_967_295), nfstime3 { seconds: u32::MAX, nseconds: 5 });
        assert_eq!(of(4_294_967_296), nfstime3 { seconds: u32::MAX, nseconds: 0 });
    }
}
