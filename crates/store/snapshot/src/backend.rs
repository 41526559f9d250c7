//! A disk's file as the storage of `redb`. Passes calls on; decides nothing.

use std::io;

use atoll_disk::{Disk, DiskFile, OpenHow};
use redb::StorageBackend;

/// Permission bits of the file: nobody's but the daemon's.
const MODE: u32 = 0o600;

pub(crate) struct Backend<F> {
    file: F,
}

impl<F: DiskFile> Backend<F> {
    pub(crate) fn open<D: Disk<File = F>>(disk: &D, path: &[u8]) -> io::Result<Self> {
        Ok(Self { file: disk.open(path, OpenHow::Write)? })
    }

    pub(crate) fn create<D: Disk<File = F>>(disk: &D, path: &[u8]) -> io::Result<Self> {
        Ok(Self { file: disk.open(path, OpenHow::CreateNew { mode: MODE })? })
    }
}

impl<F> std::fmt::Debug for Backend<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backend")
    }
}

impl<F: DiskFile> StorageBackend for Backend<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.stat()?.size)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.file.read_full(out, offset)? < out.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // Also one for lack of space: after a failed sync nothing more is promised.
        self.file.sync().map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(data, offset)
    }
}
