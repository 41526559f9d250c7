//! Calls on the bytes of regular files. Uses the shared descriptors; what changes bytes acts as the caller, so that quotas and
//! set-id bits behave as they do natively.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use atoll_posix::{Allocation, Errno, Whence};
use atoll_union::{At, NativeId, NativeReply, Who};
use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::ReadWriteFlags;

use super::{NativeTree, lock, os, stat_fd};
use crate::who;

/// Most bytes that one call reads; longer ones are cut.
pub const READ_BYTES_MAX: usize = 16 << 20;

/// A read or write of so many bytes lets another thread read requests meanwhile.
const SLOW_BYTES: u64 = 256 << 10;

/// Most bytes that one call copies.
const COPY_BYTES_MAX: u64 = 1 << 30;

impl NativeTree {
    pub(super) fn read(&self, of: &At, offset: u64, len: u32) -> Result<Bytes, Errno> {
        let fd = self.file(of, false)?;
        let len = (len as usize).min(READ_BYTES_MAX);
        slow_if(len as u64);
        let mut data = Vec::with_capacity(len);
        while data.len() < len {
            let at = offset.checked_add(data.len() as u64).ok_or(Errno::EINVAL)?;
            // The allocator may have given more room than was asked for.
            let room = len - data.len();
            let spare = &mut data.spare_capacity_mut()[..room];
            let (got, _) = rustix::io::pread(&*fd, spare, at).map_err(os)?;
            let got = got.len();
            if got == 0 {
                break;
            }
            // SAFETY: the kernel has filled so many bytes behind those that were there.
            unsafe { data.set_len(data.len() + got) };
        }
        Ok(data.into())
    }

    /// The descriptor for a call that changes bytes, before anybody's identity is taken.
    fn for_change(&self, of: &At, bytes: u64) -> Result<Arc<OwnedFd>, Errno> {
        let fd = self.file(of, true)?;
        slow_if(bytes);
        Ok(fd)
    }

    pub(super) fn write(
        &self,
        who: &Who,
        of: &At,
        offset: u64,
        append: bool,
        kill_set_id: bool,
        bytes: &[u8],
    ) -> Result<NativeReply, Errno> {
        let fd = self.for_change(of, bytes.len() as u64)?;
        let taken = self.act(who)?;
        let (len, offset) =
            if append { self.append(of.id, &fd, bytes)? } else { (write_at(&fd, offset, bytes)?, offset) };
        drop(taken);
        // Only for the daemon: a user's bytes take the bits away by themselves.
        self.kill_set_id(who, kill_set_id, &fd)?;
        Ok(NativeReply::Wrote { len, offset })
    }

    /// Writes at the end of the file, wherever that is when the kernel has the file's lock. The bytes written, and where.
    fn append(&self, id: NativeId, fd: &OwnedFd, bytes: &[u8]) -> Result<(u64, u64), Errno> {
        // The kernel leaves the position of the descriptor behind the bytes, also if other processes append meanwhile.
        let position = self.files.position(id);
        let _held = lock(&position);
        let (mut len, mut start) = (0, None);
        while start.is_none() || len < bytes.len() {
            let rest = [IoSlice::new(&bytes[len..])];
            let wrote = match rustix::io::pwritev2(fd, &rest, u64::MAX, ReadWriteFlags::APPEND) {
                Ok(wrote) => wrote,
                Err(_) if len > 0 => break,
                Err(e) => return Err(os(e)),
            };
            let end = rustix::fs::seek(fd, SeekFrom::Current(0)).map_err(os)?;
            let at = end - wrote as u64;
            // What somebody else appended in between is not ours: the rest is left to the next call.
            if start.is_some_and(|start| start + len as u64 != at) {
                return Err(Errno::EIO);
            }
            start = start.or(Some(at));
            len += wrote;
            if wrote == 0 {
                break;
            }
        }
        Ok((len as u64, start.unwrap_or(0)))
    }

    /// The kernel takes set-id bits away when an unprivileged caller changes bytes. Where the daemon does it in somebody's name,
    /// it takes them away itself.
    fn kill_set_id(&self, who: &Who, kill: bool, fd: &OwnedFd) -> Result<(), Errno> {
        if !kill || matches!(who, Who::Caller(caller) if caller.uid != 0) {
            return Ok(());
        }
        let mode = stat_fd(fd.as_fd())?.mode;
        let left = atoll_posix::perm::kill_set_id(mode);
        if left == mode { Ok(()) } else { rustix::fs::fchmod(fd, Mode::from_raw_mode(left)).map_err(os) }
    }

    pub(super) fn fallocate(
        &self,
        who: &Who,
        of: &At,
        offset: u64,
        len: u64,
        what: Allocation,
    ) -> Result<(), Errno> {
        let keep = |keep_size| {
            if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
        };
        let flags = match what {
            Allocation::Allocate { keep_size } => keep(keep_size),
            Allocation::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocation::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        };
        let fd = self.for_change(of, len)?;
        let _as = self.act(who)?;
        rustix::fs::fallocate(&*fd, flags, offset, len).map_err(os)
    }

    pub(super) fn seek(&self, of: &At, offset: u64, whence: Whence) -> Result<u64, Errno> {
        let fd = self.file(of, false)?;
        let position = self.files.position(of.id);
        let _held = lock(&position);
        let from = match whence {
            Whence::Data => SeekFrom::Data(offset),
            Whence::Hole => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&*fd, from).map_err(os)
    }

    pub(super) fn copy_range(
        &self,
        who: &Who,
        (from, from_offset): (&At, u64),
        (to, to_offset): (&At, u64),
        len: u64,
    ) -> Result<NativeReply, Errno> {
        let source = self.file(from, false)?;
        let fd = self.for_change(to, len)?;
        let _as = self.act(who)?;
        let (mut read_at, mut write_at) = (from_offset, to_offset);
        let len = len.min(COPY_BYTES_MAX) as usize;
        let copied =
            rustix::fs::copy_file_range(&*source, Some(&mut read_at), &*fd, Some(&mut write_at), len);
        Ok(NativeReply::Wrote { len: copied.map_err(os)? as u64, offset: to_offset })
    }

    pub(super) fn fsync(&self, of: &At) -> Result<(), Errno> {
        let fd = self.file(of, false)?;
        atoll_handover::slow();
        rustix::fs::fsync(&*fd).map_err(os)
    }

    pub(super) fn fsync_dir(&self, dir: NativeId) -> Result<(), Errno> {
        who::daemon();
        let dir = self.dir(dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&*dir, c".", flags, Mode::empty()).map_err(os)?;
        atoll_handover::slow();
        rustix::fs::fsync(&fd).map_err(os)
    }
}

fn slow_if(bytes: u64) {
    if bytes >= SLOW_BYTES {
        atoll_handover::slow();
    }
}

/// Writes all bytes, or as many as there is room for.
fn write_at(fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
    let mut len = 0;
    while len < bytes.len() {
        let at = offset.checked_add(len as u64).ok_or(Errno::EFBIG)?;
        match rustix::io::pwrite(fd, &bytes[len..], at) {
            Ok(0) => break,
            Ok(wrote) => len += wrote,
            Err(_) if len > 0 => break,
            Err(e) => return Err(os(e)),
        }
    }
    Ok(len as u64)
}
