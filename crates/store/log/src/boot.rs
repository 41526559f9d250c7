//! The boot of the machine in which a log was used last. It tells the death of a process, which takes no
//! written byte, from a power cut, which may take some. The file also says whether the log is whole: whether its owner
//! has answered for whatever an earlier power cut took.
//!
//! The file is never synced: whatever a power cut leaves of it does not name the next boot.

use std::io;
use std::sync::Arc;

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::log::Log;
use crate::{Config, LogError};

use crate::work::Place;

/// The file's name.
const BOOT: &[u8] = b"boot";
const MAGIC: [u8; 8] = *b"ATOLLBUT";
/// Magic, boot, whether the log is whole, and checksum.
const BOOT_BYTES: usize = 32;

/// Facts about the last life of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Boot {
    /// 0: not known.
    pub(crate) boot: u128,
    /// Nothing that was ever written is missing, apart from what the owner knows to be lost.
    pub(crate) whole: bool,
}

impl Boot {
    /// Of a log that is whole as of the boot in which it is used.
    pub(crate) const fn whole(config: &Config) -> Self {
        Self { boot: config.boot, whole: true }
    }
}

fn encode(Boot { boot, whole }: Boot) -> [u8; BOOT_BYTES] {
    let mut bytes = [0; BOOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..24].copy_from_slice(&boot.to_le_bytes());
    bytes[24..28].copy_from_slice(&u32::from(whole).to_le_bytes());
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
        let noted = [false, true].map(|whole| Boot { boot, whole });
        Ok(noted.into_iter().find(|noted| bytes[..n] == encode(*noted)).unwrap_or_default())
    }

    /// Notes in which boot the log is used from now on, and whether it is whole. A log that has stopped is not noted as whole
    /// any more.
    pub(crate) fn note_boot(&self, boot: Boot) -> io::Result<()> {
        let stopped = self.stopped.lock().expect("no panic while it is held");
        if *stopped && boot.whole { Ok(()) } else { self.write_boot(boot) }
    }

    /// Notes that the log has stopped: what was written may not be there when it is read again.
    pub(crate) fn note_stopped(&self) -> io::Result<()> {
        *self.stopped.lock().expect("no panic while it is held") = true;
        self.note_boot(Boot::default())
    }

    fn write_boot(&self, boot: Boot) -> io::Result<()> {
        // What is not known is noted too, in the place of what an earlier opening knew.
        if self.boot()? == boot {
            return Ok(());
        }
        let file = self.disk.open(&self.path(BOOT), OpenHow::Create { mode: 0o600 })?;
        if file.stat()?.size > BOOT_BYTES as u64 {
            file.set_len(0)?;
        }
        // In place: a full disk does not hinder it, and a process that dies meanwhile leaves the old note or the new one.
        file.write_at(&encode(boot), 0)
    }
}

/// The note that a log is whole. [`WholeNote::perform`] makes it.
#[must_use = "nothing was noted"]
pub struct WholeNote<D: Disk> {
    place: Arc<Place<D>>,
    boot: Boot,
}

impl<D: Disk> WholeNote<D> {
    /// Makes the note. It waits for no sync: a power cut makes it void anyway. If it fails, the next opening knows less.
    pub fn perform(self) -> io::Result<()> {
        if self.boot.boot == 0 { Ok(()) } else { self.place.note_boot(self.boot) }
    }
}

impl<D: Disk> Log<D> {
    /// Takes the note that nothing is missing from this log, which the next opening in the same boot of the machine tells as
    /// [`crate::Opened::whole`]. It may be taken as soon as the owner has noted elsewhere, and synced, whatever the opening of this log said
    /// was lost: a life that dies before its first sync is not taken for a power cut then. The first sync makes this note by itself,
    /// because the owner's record of the loss is synced with it.
    ///
    /// The note is about the boot, and not about a record. In this boot the death of a process takes nothing that was written. What was
    /// appended and is not written yet may go with the process, and nobody was told of it. So the note is as good for records that
    /// were appended before or after it, synced or not. A power cut may take those that are not synced; the next boot has another
    /// number, so the note says nothing about it. A log that stops takes the note back.
    ///
    /// Nothing is noted if the boot is not known.
    pub fn note_whole(&self) -> Result<WholeNote<D>, LogError> {
        self.check()?;
        Ok(WholeNote { place: Arc::clone(&self.place), boot: Boot::whole(&self.config) })
    }
}
