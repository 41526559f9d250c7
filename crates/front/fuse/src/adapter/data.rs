//! Requests about the bytes of files.

use super::handles::is_direct;
use super::{Core, Job, Shape, submit};
use crate::abi::{self, Out, open};
use crate::accesses;
use crate::request::Header;
use atoll_core::Ino;
use atoll_posix::{Allocation, Errno, Kind, Op, Whence};
use bytes::Bytes;
use std::sync::Arc;

pub(super) fn read(core: &Arc<Core>, ino: Ino, offset: u64, len: u32, flags: u32) -> Job {
    if flags & open::NO_ACCESS_TIME == 0 {
        accesses::read(core, ino, Kind::Regular);
    }
    (Op::Read { ino, offset, len }, Bytes::new(), Shape::Data { max: len as usize })
}

pub(super) fn write(
    core: &Core,
    (ino, handle): (Ino, u64),
    offset: u64,
    payload: Bytes,
    flags: u32,
    write_flags: u32,
) -> Job {
    // Pages that the kernel writes back have their place already.
    let append = flags & open::APPEND != 0 && write_flags & abi::WRITE_CACHE == 0;
    let kill_set_id = write_flags & abi::WRITE_KILL_SUIDGID != 0;
    // The kernel asks for a sync behind each write that goes through its pages, and behind no other.
    let through = is_direct(handle) && (core.config.sync || flags & open::SYNC != 0);
    let shape = if through { Shape::WrittenThrough { ino } } else { Shape::Written };
    (Op::Write { ino, offset, append, kill_set_id }, payload, shape)
}

/// Syncs so many bytes that were written. The write is answered when that is done.
pub(super) fn sync(core: &Arc<Core>, header: Header, ino: Ino, len: u64) {
    let caller = header.caller(None);
    submit(core, header, caller, Op::Fsync { ino }, Bytes::new(), Shape::Synced { len }, 0);
}

pub(super) fn fallocate(ino: Ino, offset: u64, len: u64, mode: u32) -> Result<Job, Errno> {
    let what = match mode {
        0 => Allocation::Allocate { keep_size: false },
        0x01 => Allocation::Allocate { keep_size: true },
        0x03 => Allocation::PunchHole,
        0x10 => Allocation::ZeroRange { keep_size: false },
        0x11 => Allocation::ZeroRange { keep_size: true },
        _ => return Err(Errno::EOPNOTSUPP),
    };
    Ok((Op::Fallocate { ino, offset, len, what }, Bytes::new(), Shape::Unit))
}

pub(super) fn seek(ino: Ino, offset: u64, whence: u32) -> Result<Job, Errno> {
    let whence = match whence {
        3 => Whence::Data,
        4 => Whence::Hole,
        _ => return Err(Errno::EINVAL),
    };
    Ok((Op::Seek { ino, offset, whence }, Bytes::new(), Shape::Offset))
}

/// `wide`: the kernel takes an answer of 64 bits.
pub(super) fn copy(
    (from, from_offset): (Ino, u64),
    (to, to_offset): (Ino, u64),
    len: u64,
    flags: u64,
    wide: bool,
) -> Result<Job, Errno> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let shape = if wide { Shape::WrittenWide } else { Shape::Written };
    // The short answer has 32 bits.
    let len = if wide { len } else { len.min(u64::from(u32::MAX) & !0xfff) };
    Ok((Op::CopyRange { from, from_offset, to, to_offset, len }, Bytes::new(), shape))
}

/// So many bytes were written, in an answer of 32 bits.
pub(super) fn written(core: &Core, header: &Header, len: u64) {
    match u32::try_from(len) {
        Ok(len) => _ = core.ok(header, &Out::with_capacity(abi::SMALL_OUT).u32(len).u32(0).0),
        Err(_) => core.misfit(header),
    }
}

/// A number of 64 bits.
pub(super) fn number(core: &Core, header: &Header, number: u64) {
    core.ok(header, &Out::with_capacity(abi::SMALL_OUT).u64(number).0);
}
