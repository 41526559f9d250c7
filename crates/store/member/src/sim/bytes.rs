//! Calls on the bytes of files of a simulated member, opens and locks.

use std::sync::Arc;

use atoll_core::SessionId;
use atoll_posix::locks::LockRefused;
use atoll_posix::perm::{FILE_BYTES_MAX, kill_set_id, mode_after_bytes};
use atoll_posix::{Allocation, Caller, Errno, Kind, LockRange, Whence};
use atoll_union::{At, NativeReply};
use bytes::Bytes;

use super::world::{BLOCK_BYTES, World, native};

/// All owners are of one session: the member's.
const SESSION: SessionId = SessionId(0);

impl World {
    pub(super) fn file(&self, of: &At) -> Result<u64, Errno> {
        let ino = self.find(of)?;
        match self.node(ino).kind {
            Kind::Regular => Ok(ino),
            Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn read(&self, of: &At, offset: u64, len: u32) -> Result<Bytes, Errno> {
        let data = &self.node(self.file(of)?).data;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let to = from.saturating_add(len as usize).min(data.len());
        Ok(Bytes::copy_from_slice(&data[from..to]))
    }

    /// The length of a file changes, or bytes will be written up to there. `EFBIG`, `ENOSPC`.
    pub(super) fn resize(&mut self, ino: u64, size: u64) -> Result<(), Errno> {
        if size > FILE_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let old = self.node(ino).data.len() as u64;
        self.room(size.saturating_sub(old))?;
        Arc::make_mut(&mut self.node_mut(ino).data).resize(size as usize, 0);
        Ok(())
    }

    fn changed(&mut self, ino: u64) {
        let now = self.clock;
        let node = self.node_mut(ino);
        (node.mtime, node.ctime) = (now, now);
    }

    pub(super) fn write(
        &mut self,
        by: &Caller,
        of: &At,
        offset: u64,
        append: bool,
        kill: bool,
        bytes: &[u8],
    ) -> Result<NativeReply, Errno> {
        let ino = self.file(of)?;
        self.open_for_writing(ino)?;
        let size = self.node(ino).data.len() as u64;
        let offset = if append { size } else { offset };
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        self.resize(ino, size.max(end))?;
        let from = offset as usize;
        Arc::make_mut(&mut self.node_mut(ino).data)[from..end as usize].copy_from_slice(bytes);
        self.changed(ino);
        let node = self.node(ino);
        if !by.is_root() {
            self.node_mut(ino).mode = mode_after_bytes(by, &node.attr(ino)).map_err(native)?;
        } else if kill {
            self.node_mut(ino).mode = kill_set_id(node.mode);
        }
        Ok(NativeReply::Wrote { len: bytes.len() as u64, offset })
    }

    pub(super) fn fallocate(
        &mut self,
        of: &At,
        offset: u64,
        len: u64,
        what: Allocation,
    ) -> Result<(), Errno> {
        let ino = self.file(of)?;
        self.open_for_writing(ino)?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let size = self.node(ino).data.len() as u64;
        let (zeroes, keeps) = match what {
            Allocation::Allocate { keep_size } => (false, keep_size),
            Allocation::PunchHole => (true, true),
            Allocation::ZeroRange { keep_size } => (true, keep_size),
        };
        if !keeps && end > size {
            self.resize(ino, end)?;
        }
        if zeroes {
            let data = Arc::make_mut(&mut self.node_mut(ino).data);
            let to = end.min(data.len() as u64) as usize;
            let from = (offset as usize).min(to);
            data[from..to].fill(0);
        }
        self.changed(ino);
        Ok(())
    }

    pub(super) fn seek(&self, of: &At, offset: u64, whence: Whence) -> Result<u64, Errno> {
        let data = &self.node(self.file(of)?).data;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        if from >= data.len() {
            return Err(Errno::ENXIO);
        }
        let block = from / BLOCK_BYTES;
        let mut blocks = data.chunks(BLOCK_BYTES).enumerate().skip(block);
        let found = blocks.find(|(_, bytes)| bytes.iter().any(|b| *b != 0) == (whence == Whence::Data));
        match (found, whence) {
            (Some((at, _)), _) => Ok((at * BLOCK_BYTES).max(from) as u64),
            (None, Whence::Data) => Err(Errno::ENXIO),
            (None, Whence::Hole) => Ok(data.len() as u64),
        }
    }

    pub(super) fn copy_range(
        &mut self,
        (from, from_offset): (&At, u64),
        (to, to_offset): (&At, u64),
        len: u64,
    ) -> Result<NativeReply, Errno> {
        let source = self.file(from)?;
        let overlap = from_offset.abs_diff(to_offset) < len;
        if source == self.file(to)? && overlap {
            return Err(Errno::EINVAL);
        }
        let bytes = self.read(from, from_offset, u32::try_from(len).unwrap_or(u32::MAX))?;
        if bytes.is_empty() {
            return Ok(NativeReply::Wrote { len: 0, offset: to_offset });
        }
        self.write(&Caller::ROOT, to, to_offset, false, false, &bytes)
    }

    pub(super) fn open(&mut self, of: &At) -> Result<NativeReply, Errno> {
        let ino = self.file(of)?;
        let open = self.opened(ino);
        Ok(NativeReply::Opened { open, stat: self.stat(ino) })
    }

    pub(super) fn hold_open(&mut self, of: &At) -> Result<NativeReply, Errno> {
        let ino = self.find(of)?;
        if self.node(ino).kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        let open = self.opened(ino);
        Ok(NativeReply::Opened { open, stat: self.stat(ino) })
    }

    pub(super) fn lease(&mut self, of: &At) -> Result<NativeReply, Errno> {
        if self.faults.writers {
            return Err(Errno::EBUSY);
        }
        let ino = self.file(of)?;
        let opened = self.opened(ino);
        let others: Vec<u64> = self
            .held()
            .opens
            .iter()
            .filter(|(open, of)| **of == ino && **open != opened)
            .map(|(open, _)| *open)
            .collect();
        others.into_iter().for_each(|open| _ = self.held_mut().opens.remove(&open));
        self.leases.insert(opened, false);
        Ok(NativeReply::Opened { open: opened, stat: self.stat(ino) })
    }

    pub(super) fn lease_holds(&self, open: u64) -> Result<(), Errno> {
        match self.leases.get(&open) {
            Some(false) => Ok(()),
            Some(true) => Err(Errno::EBUSY),
            None => Err(Errno::EBADF),
        }
    }

    /// Somebody opens a file for writing. A program waits for the end of a lease; here it is told `EAGAIN`, and has opened
    /// nothing.
    pub(super) fn open_for_writing(&mut self, ino: u64) -> Result<(), Errno> {
        let processes = &self.processes;
        let is_of = |open: &u64| processes.iter().any(|process| process.opens.get(open) == Some(&ino));
        let of = self.leases.iter_mut().find(|(open, _)| is_of(open));
        match of {
            Some((_, broken)) => {
                *broken = true;
                Err(Errno::EAGAIN)
            }
            None => Ok(()),
        }
    }

    pub(super) fn close(&mut self, open: u64) -> Result<(), Errno> {
        self.leases.remove(&open);
        let ino = self.held_mut().opens.remove(&open).ok_or(Errno::EBADF)?;
        self.free(ino);
        Ok(())
    }

    pub(super) fn lock(&mut self, of: &At, lock: &LockRange) -> Result<(), Errno> {
        let ino = self.file(of)?;
        match self.locks.entry(ino).or_default().set(SESSION, lock) {
            Ok(_) => Ok(()),
            Err(LockRefused::Blocked { .. }) => Err(Errno::EAGAIN),
            Err(LockRefused::TooMany) => Err(Errno::ENOLCK),
            Err(LockRefused::BadRange) => Err(Errno::EINVAL),
        }
    }

    pub(super) fn test_lock(&mut self, of: &At, lock: &LockRange) -> Result<LockRange, Errno> {
        let ino = self.file(of)?;
        Ok(self.locks.entry(ino).or_default().test(SESSION, lock))
    }
}
