//! In which boot of the machine a log was used last: what tells the death of a process, which takes
//! nothing that was written, from a power cut, which may.
//!
//! Never synced: whatever of the file a power cut leaves, it does not name the boot that comes then.

use std::io;

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::work::Place;

/// The file's name.
const BOOT: &[u8] = b"boot";
const MAGIC: [u8; 8] = *b"ATOLLBUT";
/// Magic, boot and checksum.
const BOOT_BYTES: usize = 28;

fn encode(boot: u128) -> [u8; BOOT_BYTES] {
    let mut bytes = [0; BOOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..24].copy_from_slice(&boot.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..24]);
    bytes[24..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

impl<D: Disk> Place<D> {
    /// The boot in which the log was opened last, if that is known.
    pub(crate) fn boot(&self) -> io::Result<Option<u128>> {
        let file = match self.disk.open(&self.path(BOOT), OpenHow::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = [0; BOOT_BYTES + 1];
        let n = file.read_at(&mut bytes, 0)?;
        let boot = bytes.get(8..24).and_then(|b| b.try_into().ok()).map_or(0, u128::from_le_bytes);
        Ok(Some(boot).filter(|boot| bytes[..n] == encode(*boot)))
    }

    /// Notes that the log is whole, and used in this boot from now on.
    pub(crate) fn note_boot(&self, boot: u128) -> io::Result<()> {
        // What is not known is noted too, in the place of what an earlier opening knew.
        if self.boot()?.unwrap_or(0) == boot {
            return Ok(());
        }
        let file = self.disk.open(&self.path(BOOT), OpenHow::Create { mode: 0o600 })?;
        file.set_len(0)?;
        file.write_at(&encode(boot), 0)
    }
}
