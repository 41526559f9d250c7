//! The boot of the machine in which a log was used last. It tells the death of a process, which takes no
//! written byte, from a power cut, which may take some. The file also says whether a sync has succeeded
//! since: then the work that the owner does first after a power cut is also safe.
//!
//! The file is never synced: whatever a power cut leaves of it does not name the next boot.

use std::io;

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::work::Place;

/// The file's name.
const BOOT: &[u8] = b"boot";
const MAGIC: [u8; 8] = *b"ATOLLBUT";
/// Magic, boot, whether a sync has succeeded in it, and checksum.
const BOOT_BYTES: usize = 32;

/// Facts about the last opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Boot {
    /// 0: not known.
    pub(crate) boot: u128,
    pub(crate) synced: bool,
}

fn encode(Boot { boot, synced }: Boot) -> [u8; BOOT_BYTES] {
    let mut bytes = [0; BOOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..24].copy_from_slice(&boot.to_le_bytes());
    bytes[24..28].copy_from_slice(&u32::from(synced).to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

impl<D: Disk> Place<D> {
    /// The boot in which the log was opened last.
    pub(crate) fn boot(&self) -> io::Result<Boot> {
        let file = match self.disk.open(&self.path(BOOT), OpenHow::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Boot::default()),
            file => file?,
        };
        let mut bytes = [0; BOOT_BYTES + 1];
        let n = file.read_at(&mut bytes, 0)?;
        let boot = u128::from_le_bytes(bytes[8..24].try_into().expect("16 bytes"));
        let noted = [false, true].map(|synced| Boot { boot, synced });
        Ok(noted.into_iter().find(|noted| bytes[..n] == encode(*noted)).unwrap_or_default())
    }

    /// Notes that the log is whole, and used in this boot from now on.
    pub(crate) fn note_boot(&self, boot: Boot) -> io::Result<()> {
        // What is not known is noted too, in the place of what an earlier opening knew.
        if self.boot()? == boot {
            return Ok(());
        }
        let file = self.disk.open(&self.path(BOOT), OpenHow::Create { mode: 0o600 })?;
        file.set_len(0)?;
        file.write_at(&encode(boot), 0)
    }
}
