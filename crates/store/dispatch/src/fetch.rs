//! Bytes that a follower needs again: blocks of its bodies that differ from the checksums in its rows, because a write was
//! under way when it ended, or was cut off, or because its rows are another copy's. The primary sends them as its bodies have
//! them now.
//!
//! They may be newer than the follower's rows. Every record that made them so follows, or is here and waits: changes of files that
//! are asked for wait at the follower until the answer is there. A primary sends only what no later one can take back.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use atoll_body::{BodyError, Correction};
use atoll_core::planted::{Bug, planted};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, NodeId};
use atoll_disk::Disk;
use atoll_proto::{BodyBlocks, FetchedPiece, GroupMessage};
use bytes::Bytes;

use crate::engine::Engine;
use crate::follow::Following;
use crate::perform::born_of;
use crate::ship::{Extent, NotShipped};

/// Blocks that are asked for at once.
pub(crate) const FETCH_MAX: u32 = 256;
/// Files of which blocks are asked for at once.
pub(crate) const FETCH_FILES_MAX: usize = 256;

/// The blocks in which a body of `size` bytes differs.
pub(crate) fn blocks_of(ino: Ino, size: u64, correction: &Correction) -> Vec<BodyBlocks> {
    let (first, end) = match correction {
        Correction::Resum { block, .. } | Correction::Damaged { block } => (*block, block + 1),
        Correction::Cut { len, .. } => (len / BLOCK_BYTES, size.div_ceil(BLOCK_BYTES)),
    };
    let mut all = Vec::new();
    let mut at = first;
    while at < end {
        let count = (end - at).min(u64::from(FETCH_MAX)) as u32;
        all.push(BodyBlocks { ino, first: at, count });
        at += u64::from(count);
    }
    all
}

/// A question that is not answered.
#[derive(Debug)]
pub(crate) struct Asked {
    number: u64,
    /// So many of what is missing, from the front.
    count: usize,
    files: BTreeSet<Ino>,
    /// Its answer has come, and is being put in place.
    is_answered: bool,
}

/// What came of an answer.
#[derive(Debug, Default)]
pub(crate) struct Put {
    /// Files whose bytes are damaged at the primary.
    pub(crate) damaged: Vec<Ino>,
    /// Files whose bytes are in place, each once.
    pub(crate) files: Vec<Ino>,
}

/// An answer that waits until all members have synced what it tells of.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) to: NodeId,
    /// It tells of records up to this one.
    pub(crate) upto: u64,
    pub(crate) number: u64,
    pub(crate) message: GroupMessage,
    pub(crate) payload: Bytes,
}

impl Following {
    /// How many blocks differ. A body that was not looked at yet counts as one.
    pub(crate) fn differs(&self) -> u32 {
        let missing = self.missing.iter().fold(0u32, |all, blocks| all.saturating_add(blocks.count));
        missing.saturating_add(u32::from(self.walk.is_some()))
    }

    /// Whether what is missing makes a whole question.
    pub(crate) fn misses_enough(&self) -> bool {
        self.missing.len() >= FETCH_FILES_MAX
            || self.missing.iter().map(|blocks| blocks.count).sum::<u32>() >= FETCH_MAX
    }

    /// Whether changes of a file wait for an answer.
    pub(crate) fn is_asked(&self, ino: Ino) -> bool {
        !planted(Bug::AnswerOverNewer) && self.asked.as_ref().is_some_and(|asked| asked.files.contains(&ino))
    }

    /// The question does not count any more: what it asks for is asked again.
    pub(crate) fn forget_question(&mut self) {
        if !planted(Bug::AnswerOverNewer) {
            self.asked = None;
        }
    }
}

impl<D: Disk> Engine<D> {
    /// Blocks that differ, and whose bytes are yet to be fetched.
    pub(crate) fn differs(&self) -> u32 {
        self.differs.load(Ordering::Acquire)
    }

    /// What is to be fetched next: the question that is open, or one with this number.
    pub(crate) fn next_question(&self, number: u64) -> Option<GroupMessage> {
        if self.differs() == 0 {
            return None;
        }
        let mut following = self.following.lock().expect("no panic while it is held");
        if following.asked.is_none() {
            let mut blocks = 0;
            let fits = |missing: &&BodyBlocks| {
                blocks += missing.count;
                blocks <= FETCH_MAX
            };
            let asked = following.missing.iter().take(FETCH_FILES_MAX).take_while(fits);
            let files: Vec<Ino> = asked.map(|blocks| blocks.ino).collect();
            if files.is_empty() {
                return None;
            }
            let (count, files) = (files.len(), files.into_iter().collect());
            following.asked = Some(Asked { number, count, files, is_answered: false });
        }
        let asked = following.asked.as_ref().filter(|asked| !asked.is_answered)?;
        let blocks = following.missing.iter().take(asked.count).copied().collect();
        Some(GroupMessage::Fetch { number: asked.number, blocks })
    }

    /// The primary's bytes of these blocks, as its decided rows say, and the last record that they may tell of. `rest` is called
    /// between two of them.
    pub(crate) fn fetch(
        &self,
        blocks: &[BodyBlocks],
        mut rest: impl FnMut(),
    ) -> Result<(u64, Vec<FetchedPiece>, Bytes), NotShipped> {
        let _used = self.in_use().ok_or_else(|| NotShipped::Unreadable("it is closed".to_owned()))?;
        let (mut pieces, mut all) = (Vec::new(), Vec::new());
        let mut left = FETCH_MAX;
        for BodyBlocks { ino, first, count } in blocks.iter().take(FETCH_FILES_MAX) {
            let count = (*count).min(left);
            left -= count;
            let (offset, len) = (first.saturating_mul(BLOCK_BYTES), u64::from(count) * BLOCK_BYTES);
            let (bytes, damaged) = match self.bytes_of_now(Extent { ino: *ino, offset, len, promised: false })
            {
                Ok(bytes) => (bytes.map(|(_, bytes)| bytes).unwrap_or_default(), false),
                // Nobody waits for what is damaged here. What is being changed will fit its checksums.
                Err(NotShipped::Body { .. }) if !self.is_body_changing(*ino) => (Bytes::new(), true),
                Err(why) => return Err(why),
            };
            pieces.push(FetchedPiece { len: bytes.len() as u32, damaged });
            all.extend_from_slice(&bytes);
            rest();
        }
        Ok((self.last().seq, pieces, all.into()))
    }

    /// The primary's bytes of blocks have come: what was put in place.
    ///
    /// Each piece is put in place by itself, so that records that come meanwhile wait for one of them only. Changes of the files wait
    /// for all. If the question is void before that, what is left is asked again.
    pub(crate) fn fetched(
        &self,
        number: u64,
        pieces: &[FetchedPiece],
        mut bytes: &[u8],
        mut rest: impl FnMut(),
    ) -> Result<Put, BodyError> {
        let mut put = Put::default();
        let Some(_used) = self.in_use() else { return Ok(put) };
        let lock = || self.following.lock().expect("no panic while it is held");
        match &mut lock().asked {
            Some(asked) if asked.number == number && asked.count == pieces.len() && !asked.is_answered => {
                asked.is_answered = true;
            }
            _ => return Ok(put),
        }
        for piece in pieces {
            let mut following = lock();
            if following.asked.as_ref().is_none_or(|asked| asked.number != number) {
                return Ok(put);
            }
            let Some(blocks) = following.missing.front().copied() else { break };
            let Some((own, behind)) = bytes.split_at_checked(piece.len as usize) else { break };
            bytes = behind;
            if piece.damaged {
                put.damaged.push(blocks.ino);
            }
            if let Err(error) = self.put_fetched(&mut following, blocks, own) {
                following.asked = None;
                return Err(error);
            }
            following.missing.pop_front();
            if put.files.last() != Some(&blocks.ino) {
                put.files.push(blocks.ino);
            }
            drop(following);
            rest();
        }
        let mut following = lock();
        if following.asked.as_ref().is_some_and(|asked| asked.number == number) {
            following.asked = None;
        }
        self.do_synced(&mut following)?;
        self.differs.store(following.differs(), Ordering::Release);
        Ok(put)
    }

    fn put_fetched(
        &self,
        following: &mut Following,
        blocks: BodyBlocks,
        bytes: &[u8],
    ) -> Result<(), BodyError> {
        let (ino, from) = (blocks.ino, blocks.first * BLOCK_BYTES);
        // A file that is gone here, or shorter than these, needs none.
        let Some(row) = self.row_of(ino) else { return Ok(()) };
        // The body is as it was before the changes that wait.
        let size = following.size_before_waiting(ino).unwrap_or(row.attr.size);
        let len = size.saturating_sub(from).min(bytes.len() as u64) as usize;
        if len > 0 {
            self.with_state(|state| {
                state.view_disturbed(ino);
                state.view_again(&[ino], &[]);
            });
            self.bodies.write(ino, from, &bytes[..len], size, Some(born_of(&row.attr)))?;
        }
        following.has_followed = true;
        // What a walk finds is synced with its mark.
        if following.walk.is_none() {
            following.note_unsynced(ino);
        }
        Ok(())
    }
}
