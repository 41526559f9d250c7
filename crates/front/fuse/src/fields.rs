//! Translates the kernel's fields into the words of a volume. Decides nothing.

use crate::abi::{self, fattr};
use crate::request::{LockIn, SetAttrIn};
use atoll_core::Time;
use atoll_posix::{Errno, LockKind, LockRange, SetAttr, SetTime, mode};

pub(crate) fn lock_range(lock: &LockIn) -> Result<LockRange, Errno> {
    let kind = match lock.kind {
        0 => LockKind::Read,
        1 => LockKind::Write,
        2 => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    if lock.start > lock.end {
        return Err(Errno::EINVAL);
    }
    let end = if lock.end >= abi::LOCK_END { u64::MAX } else { lock.end };
    let (start, owner, pid) = (lock.start, lock.owner, lock.pid);
    Ok(LockRange { start, end, kind, owner, pid, flock: lock.flags & abi::LK_FLOCK != 0 })
}

pub(crate) fn set_attr(fields: &SetAttrIn) -> Result<SetAttr, Errno> {
    let has = |flag| fields.valid & flag != 0;
    let time = |set: bool, now: bool, (secs, nanos): (i64, u32)| match (set, now) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(SetTime::Now)),
        (true, false) if nanos < 1_000_000_000 => Ok(Some(SetTime::To { time: Time { secs, nanos } })),
        (true, false) => Err(Errno::EINVAL),
    };
    Ok(SetAttr {
        mode: has(fattr::MODE).then_some(fields.mode & mode::ALL),
        uid: has(fattr::UID).then_some(fields.uid),
        gid: has(fattr::GID).then_some(fields.gid),
        size: has(fattr::SIZE).then_some(fields.size),
        atime: time(has(fattr::ATIME), has(fattr::ATIME_NOW), fields.atime)?,
        mtime: time(has(fattr::MTIME), has(fattr::MTIME_NOW), fields.mtime)?,
        opened: has(fattr::FH),
        kill_set_id: has(fattr::KILL_SUIDGID),
    })
}
