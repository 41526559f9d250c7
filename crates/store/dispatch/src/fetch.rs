//! Bytes that a follower needs again: blocks of its bodies that differ from the checksums in its rows, because a write was
//! under way when it ended, or was cut off. The primary sends them as its bodies have them now.
//!
//! They may be newer than the follower's rows. Every record that made them so follows.

use std::sync::atomic::Ordering;

use atoll_body::{BodyError, Correction};
use atoll_core::Ino;
use atoll_core::sum::BLOCK_BYTES;
use atoll_disk::Disk;
use bytes::Bytes;

use crate::engine::Engine;
use crate::follow::Following;
use crate::perform::born_of;
use crate::ship::{Extent, NotShipped};

/// Blocks that are sent at once.
pub(crate) const FETCH_MAX: u32 = 256;

/// Blocks of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Whose.
    pub ino: Ino,
    /// The first one.
    pub first: u64,
    /// How many.
    pub count: u32,
}

impl Blocks {
    /// Those in which a body of `size` bytes differs.
    pub(crate) fn of(ino: Ino, size: u64, correction: &Correction) -> Vec<Self> {
        let (first, end) = match correction {
            Correction::Resum { block, .. } | Correction::Damaged { block } => (*block, block + 1),
            Correction::Cut { len, .. } => (len / BLOCK_BYTES, size.div_ceil(BLOCK_BYTES)),
        };
        let mut all = Vec::new();
        let mut at = first;
        while at < end {
            let count = (end - at).min(u64::from(FETCH_MAX)) as u32;
            all.push(Self { ino, first: at, count });
            at += u64::from(count);
        }
        all
    }
}

impl Following {
    /// How many blocks differ.
    pub(crate) fn differs(&self) -> u32 {
        self.missing.iter().fold(0, |all, blocks| all.saturating_add(blocks.count))
    }
}

impl<D: Disk> Engine<D> {
    /// Blocks that differ, and whose bytes are yet to be fetched.
    pub(crate) fn differs(&self) -> u32 {
        self.differs.load(Ordering::Acquire)
    }

    /// What is to be fetched next.
    pub(crate) fn next_missing(&self) -> Option<Blocks> {
        if self.differs() == 0 {
            return None;
        }
        self.following.lock().expect("no panic while it is held").missing.front().copied()
    }

    /// The primary's bytes of these blocks, as its rows say; none if the file is gone.
    pub(crate) fn fetch(&self, blocks: Blocks) -> Result<Option<Bytes>, NotShipped> {
        let Blocks { ino, first, count } = blocks;
        let _used = self.in_use().ok_or_else(|| NotShipped::Unreadable("it is closed".to_owned()))?;
        let (offset, len) = (first * BLOCK_BYTES, u64::from(count.min(FETCH_MAX)) * BLOCK_BYTES);
        let bytes = self.bytes_of_now(Extent { ino, offset, len, promised: false })?;
        Ok(bytes.map(|(_, bytes)| bytes))
    }

    /// The primary's bytes of blocks have come.
    pub(crate) fn fetched(&self, blocks: Blocks, bytes: &[u8]) -> Result<(), BodyError> {
        let Some(_used) = self.in_use() else { return Ok(()) };
        let mut following = self.following.lock().expect("no panic while it is held");
        if following.missing.front() != Some(&blocks) {
            return Ok(());
        }
        let (ino, from) = (blocks.ino, blocks.first * BLOCK_BYTES);
        // A file that is gone here, or shorter than these, needs none.
        if let Some(row) = self.row_of(ino) {
            let len = (row.attr.size.saturating_sub(from)).min(bytes.len() as u64) as usize;
            if len > 0 {
                self.with_state(|state| {
                    state.view_disturbed(ino);
                    state.view_again(&[ino], &[]);
                });
                self.bodies.write(ino, from, &bytes[..len], row.attr.size, Some(born_of(&row.attr)))?;
            }
            following.note_unsynced(ino);
        }
        following.missing.pop_front();
        self.differs.store(following.differs(), Ordering::Release);
        Ok(())
    }
}
