//! How much an island has: counted over its last checkpoint, while it serves.

use atoll_core::Decode;
use atoll_disk::Disk;
use atoll_proto::control::IslandWeight;
use atoll_proto::{Dir, Inode};
use atoll_snapshot::SnapshotError;

use crate::engine::Engine;

/// Bytes of rows that are read at once.
const PAGE_BYTES: usize = 256 * 1024;

/// Size of a block in `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

impl<D: Disk> Engine<D> {
    /// What the island has, as of its last checkpoint. None: the checkpoint was given up meanwhile, for want of space. Nobody waits
    /// for it; it reads all rows of files and directories.
    pub fn weigh(&self) -> Result<Option<IslandWeight>, SnapshotError> {
        let pin = self.snapshot.pin()?;
        let mut weight = IslandWeight { island: self.id(), dirs: 0, files: 0, bytes: 0 };
        for kind in [b'd', b'i'] {
            let mut from = vec![kind];
            loop {
                let Some(page) = pin.range(&from, &[kind + 1], PAGE_BYTES)? else { return Ok(None) };
                let Some((last, _)) = page.last() else { break };
                from = [&last[..], &[0]].concat();
                for (_, row) in &page {
                    match kind {
                        // Others are the directories above.
                        b'd' => {
                            weight.dirs +=
                                u64::from(Dir::from_slice(row).is_ok_and(|dir| dir.owned.is_some()))
                        }
                        _ => {
                            weight.files += 1;
                            weight.bytes +=
                                Inode::from_slice(row).map_or(0, |row| row.attr.blocks * BLOCK_BYTES);
                        }
                    }
                }
            }
        }
        Ok(Some(weight))
    }
}
