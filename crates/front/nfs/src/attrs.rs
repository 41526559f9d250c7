//! Attributes in NFS's form: fattr3, post_op_attr, wcc_data, sattr3.

use atoll_core::{Ino, Time};
use atoll_posix::{Attr, AttrsAround, Kind, SetAttr, SetTime, mode};

use crate::xdr::{Garbage, Reader, Writer};

pub(crate) fn write_time(w: &mut Writer, time: Time) {
    w.u32(time.secs.clamp(0, i64::from(u32::MAX)) as u32).u32(time.nanos);
}

/// fattr3.
pub(crate) fn write(w: &mut Writer, fsid: u64, attr: &Attr) {
    let kind = match attr.kind {
        Kind::Regular => 1,
        Kind::Directory => 2,
        Kind::BlockDevice => 3,
        Kind::CharDevice => 4,
        Kind::Symlink => 5,
        Kind::Socket => 6,
        Kind::Fifo => 7,
    };
    w.u32(kind).u32(attr.mode & mode::ALL).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
    w.u64(attr.size).u64(attr.blocks.saturating_mul(512));
    w.u32((attr.rdev & 0xf_ff00) >> 8).u32(attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
    w.u64(fsid).u64(attr.ino.0);
    for time in [attr.atime, attr.mtime, attr.ctime] {
        write_time(w, time);
    }
}

/// post_op_attr.
pub(crate) fn write_post(w: &mut Writer, fsid: u64, attr: Option<&Attr>) {
    w.flag(attr.is_some());
    if let Some(attr) = attr {
        write(w, fsid, attr);
    }
}

/// What `around` has of an object, after the operation.
pub(crate) fn after(around: &[AttrsAround], ino: Ino) -> Option<Attr> {
    around.iter().find(|a| a.after.ino == ino).map(|a| a.after)
}

/// wcc_data of an object. Attributes before are told only if the volume has them of the same decision.
pub(crate) fn write_wcc(w: &mut Writer, fsid: u64, around: &[AttrsAround], ino: Ino) {
    let found = around.iter().find(|a| a.after.ino == ino);
    let before = found.and_then(|a| a.before);
    w.flag(before.is_some());
    if let Some(before) = before {
        w.u64(before.size);
        write_time(w, before.mtime);
        write_time(w, before.ctime);
    }
    write_post(w, fsid, found.map(|a| &a.after));
}

/// sattr3.
pub(crate) fn read_set(r: &mut Reader) -> Result<SetAttr, Garbage> {
    let optional = |r: &mut Reader| Ok(if r.flag()? { Some(r.u32()?) } else { None });
    let mode = optional(r)?.map(|m| m & mode::ALL);
    let (uid, gid) = (optional(r)?, optional(r)?);
    let size = if r.flag()? { Some(r.u64()?) } else { None };
    let time = |r: &mut Reader| match r.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => {
            let (secs, nanos) = (r.u32()?, r.u32()?);
            let time = Time { secs: i64::from(secs), nanos: nanos.min(999_999_999) };
            Ok(Some(SetTime::To { time }))
        }
        _ => Err(Garbage),
    };
    let (atime, mtime) = (time(r)?, time(r)?);
    // The owner may set a length whatever the mode says: a program that opened the file goes on. So it counts as open,
    // and what opening would have checked is asked as for everything unchecked.
    let opened = size.is_some();
    Ok(SetAttr { mode, uid, gid, size, atime, mtime, opened, kill_set_id: false })
}

/// A device number as Linux keeps it in 32 bits.
pub(crate) const fn device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}
