//! An open file of the real disk. Each call is one system call if the file system knows that call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, Gid, Mode, SeekFrom, Uid};
use rustix::io::Errno;

use super::stat_of;
use crate::{DiskFile, Stat, check_range};

/// Bytes that are moved at once where the kernel cannot do the work itself.
const PIECE_BYTES: usize = 128 * 1024;

/// An open regular file of a [`super::RealDisk`].
#[derive(Debug)]
pub struct RealFile {
    fd: OwnedFd,
}

impl RealFile {
    pub(super) const fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_size as u64)
    }

    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0; PIECE_BYTES];
        let mut at = from;
        while at < to {
            let n = (to - at).min(PIECE_BYTES as u64);
            self.write_at(&zeros[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }

    /// Copies one piece through memory.
    fn copy_piece(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> io::Result<u64> {
        let mut piece = vec![0; len.min(PIECE_BYTES as u64) as usize];
        let n = self.read_at(&mut piece, offset)?;
        to.write_at(&piece[..n], to_offset)?;
        Ok(n as u64)
    }
}

impl AsFd for RealFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// True for the error of a file system that does not know the call.
fn is_unknown(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::NOSYS))
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        again(|| rustix::io::pread(&self.fd, &mut *buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_range(offset, bytes.len() as u64)?;
        let mut done = 0;
        while done < bytes.len() {
            match again(|| rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // Not repeated after EINTR either: a sync that failed in any way is never tried again.
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(stat_of(&rustix::fs::fstat(&self.fd)?))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        again(|| rustix::fs::ftruncate(&self.fd, len))
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        check_range(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        match again(|| rustix::fs::fallocate(&self.fd, flags, offset, len)) {
            Err(error) if is_unknown(&error) && keep_size => Ok(()),
            Err(error) if is_unknown(&error) => {
                let size = self.size()?;
                self.write_zeros(size.max(offset), offset + len)
            }
            done => done,
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match again(|| rustix::fs::fallocate(&self.fd, flags, offset, len)) {
            Err(error) if is_unknown(&error) => {
                let size = self.size()?;
                self.write_zeros(offset, size.min(offset + len))
            }
            done => done,
        }
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<u64>> {
        check_range(offset, 0)?;
        // Moves the descriptor's own offset too, which nothing here uses.
        let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        match again(|| rustix::fs::seek(&self.fd, to)) {
            Ok(at) => Ok(Some(at)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NXIO) => Ok(None),
                Some(Errno::INVAL | Errno::OPNOTSUPP) => {
                    let size = self.size()?;
                    Ok((offset < size).then_some(if hole { size } else { offset }))
                }
                _ => Err(error),
            },
        }
    }

    fn copy_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> io::Result<u64> {
        check_range(offset, 0)?;
        check_range(to_offset, 0)?;
        let len = len.min(i64::MAX as u64 - offset.max(to_offset));
        let (mut from_at, mut to_at) = (offset, to_offset);
        let n = usize::try_from(len).unwrap_or(usize::MAX);
        match again(|| rustix::fs::copy_file_range(&self.fd, Some(&mut from_at), &to.fd, Some(&mut to_at), n))
        {
            Ok(n) => Ok(n as u64),
            Err(error) if is_unknown(&error) || Errno::from_io_error(&error) == Some(Errno::XDEV) => {
                self.copy_piece(offset, to, to_offset, len)
            }
            Err(error) => Err(error),
        }
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode & 0o7777))?)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        Ok(rustix::fs::fchown(&self.fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
    }
}
