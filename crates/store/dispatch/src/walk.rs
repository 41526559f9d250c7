//! The walk over all bodies of a copy whose rows are another copy's: each is compared with its checksums, and what differs is fetched
//! (`fetch.rs`), while the copy follows. Memory is bounded by one question, whatever there is.
//!
//! Invariant: bodies behind the mark are whole and synced; a change of a body in front of it may be done before its record is
//! synced, because the next opening compares it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use atoll_body::BodyError;
use atoll_core::planted::{Bug, planted};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Decode, Ino};
use atoll_disk::{Disk, is_no_space};
use atoll_posix::Kind;
use atoll_proto::{BodyBlocks, Inode};
use atoll_snapshot::{Pin, Snapshot, SnapshotError};
use atoll_state::RowKey;

use crate::engine::{Engine, Halted};
use crate::fetch::{FETCH_FILES_MAX, FETCH_MAX};
use crate::fill::{self, Unfilled};
use crate::follow::Following;
use crate::perform::born_of;

/// Pieces that are compared before others may use the copy, and their bytes.
const PIECES_MAX: usize = FETCH_FILES_MAX;
const LOOKED_BYTES_MAX: u64 = 8 << 20;
/// Ids that are read from the rows at once.
const PAGE_ROWS: usize = 256;
/// Bytes of rows that are counted at once.
const PAGE_BYTES: usize = 256 << 10;
/// Bytes, and files, behind the mark at most: so much is compared again after a death.
const BEHIND_BYTES_MAX: u64 = 256 << 20;
const BEHIND_FILES_MAX: u64 = 4_096;

/// How far it is.
pub(crate) struct Walk {
    /// Bodies with lower ids were looked at.
    next: Ino,
    /// Of the body with this id the blocks before this one.
    block: u64,
    /// Ids that follow.
    page: VecDeque<Ino>,
    /// What is equal is written once more.
    again: bool,
    /// The boot, for the mark.
    boot: u128,
    behind_bytes: u64,
    behind_files: u64,
    /// What there was when the walk began.
    all: FillSize,
    /// And what of it is yet to be looked at.
    left: FillSize,
}

/// How much a copy has that is being filled, or has yet to look at. Bytes that are there already count, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FillSize {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A piece of a walk.
enum Piece {
    /// A part of a body was looked at.
    Looked { bytes: u64 },
    /// What was found so far is to be fetched first.
    Missing,
    /// What was looked at is to be synced, and then the mark to be moved. While that is done the copy goes on: changes of bodies
    /// behind the walk wait until their records are synced, as those of any copy do.
    Sync { from: Ino, boot: u128 },
    /// There is none: all is to be synced, and the mark goes.
    End,
}

/// How a part of a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walked {
    /// Blocks were found that are to be fetched.
    Missing,
    /// It can go on.
    More,
    /// It can when the disk has room.
    NoRoom,
    /// Everything is whole and synced.
    Done,
}

impl Walk {
    pub(crate) fn begin(unfilled: Unfilled, boot: u128, rows: &Snapshot) -> Result<Self, SnapshotError> {
        let Unfilled { from, again } = unfilled;
        let (all, left) = FillSize::count(&rows.pin()?, from, || {})?.unwrap_or_default();
        let (behind_bytes, behind_files) = (0, 0);
        Ok(Self {
            next: from,
            block: 0,
            page: VecDeque::new(),
            again,
            boot,
            behind_bytes,
            behind_files,
            all,
            left,
        })
    }
}

impl<D: Disk> Engine<D> {
    /// Whether bodies are missing because the copy is being filled.
    pub fn is_filling(&self) -> bool {
        self.fills.load(Ordering::Acquire)
    }

    /// What there is to be looked at, and what of it was not yet. None: the copy is not being filled, its rows are yet to come, or
    /// somebody is at it, and is not waited for.
    pub fn fill_left(&self) -> Option<(FillSize, FillSize)> {
        if !self.is_filling() {
            return None;
        }
        let following = self.following.try_lock().ok()?;
        following.walk.as_ref().map(|walk| (walk.all, walk.left))
    }

    /// Whether a part of the walk is to be done, and nobody is at it. Whoever asks does it.
    pub(crate) fn takes_walk(&self) -> bool {
        if !self.is_filling() || self.walks.load(Ordering::Acquire) {
            return false;
        }
        let following = self.following.lock().expect("no panic while it is held");
        following.missing.is_empty() && !self.walks.swap(true, Ordering::AcqRel)
    }

    /// Does a part of it. `rest` is called between pieces.
    pub(crate) fn walk(&self, rest: impl FnMut()) -> Result<Walked, Halted> {
        let walked = self.walk_pieces(rest);
        // Not before: whoever looks meanwhile, such as the thread that tells the time, is not to wait for a disk.
        self.walks.store(false, Ordering::Release);
        walked
            .or_else(|error| match error {
                WalkError::Body(error) if error.is_no_space() => Ok(Walked::NoRoom),
                WalkError::Body(error) => Err(error.to_string()),
                WalkError::Other(why) => Err(why),
            })
            .map_err(|why| {
                self.halt(&why);
                Halted { island: self.id(), why }
            })
    }

    fn walk_pieces(&self, mut rest: impl FnMut()) -> Result<Walked, WalkError> {
        let Some(_used) = self.in_use() else { return Ok(Walked::Done) };
        let mut bytes = 0;
        for _ in 0..PIECES_MAX {
            let mut following = self.following.lock().expect("no panic while it is held");
            if following.walk.is_none() {
                return Ok(Walked::Done);
            }
            // A question has as much as it may: one for each small file would take a hundred times as long.
            if following.misses_enough() {
                return Ok(Walked::Missing);
            }
            let piece = self.walk_on(&mut following);
            self.differs.store(following.differs(), Ordering::Release);
            let piece = piece?;
            let misses = !following.missing.is_empty();
            drop(following);
            rest();
            match piece {
                Piece::Looked { bytes: looked } => {
                    bytes += looked;
                    if bytes >= LOOKED_BYTES_MAX {
                        return Ok(if misses { Walked::Missing } else { Walked::More });
                    }
                }
                Piece::Missing => return Ok(Walked::Missing),
                Piece::Sync { from, boot } => {
                    self.sync_walked()?;
                    match fill::note_bytes(&*self.disk, from, boot) {
                        // The mark stays where it was: more is compared again after a death.
                        Err(error) if is_no_space(&error) => {}
                        noted => noted.map_err(other)?,
                    }
                }
                Piece::End => {
                    self.sync_walked()?;
                    fill::note_whole(&*self.disk).map_err(other)?;
                    let mut following = self.following.lock().expect("no panic while it is held");
                    following.walk = None;
                    self.fills.store(false, Ordering::Release);
                    self.differs.store(following.differs(), Ordering::Release);
                    return Ok(Walked::Done);
                }
            }
        }
        let misses = !self.following.lock().expect("no panic while it is held").missing.is_empty();
        Ok(if misses { Walked::Missing } else { Walked::More })
    }

    /// The next piece.
    fn walk_on(&self, following: &mut Following) -> Result<Piece, WalkError> {
        self.apply_all(following).map_err(|e| WalkError::Other(e.to_string()))?;
        let is_whole = following.missing.is_empty();
        let walk = following.walk.as_mut().expect("it was looked at");
        if walk.behind_bytes >= BEHIND_BYTES_MAX || walk.behind_files >= BEHIND_FILES_MAX {
            if !is_whole {
                return Ok(Piece::Missing);
            }
            (walk.behind_bytes, walk.behind_files) = (0, 0);
            return Ok(Piece::Sync { from: walk.next, boot: walk.boot });
        }
        let Some(ino) = self.next_body(walk)? else {
            return Ok(if is_whole { Piece::End } else { Piece::Missing });
        };
        let row = self.row_of(ino).filter(|row| row.attr.kind == Kind::Regular);
        let Some(row) = row else {
            walk.pass(ino);
            return Ok(Piece::Looked { bytes: 0 });
        };
        let (first, again, size) = (walk.block, walk.again, row.attr.size);
        // So that the body is as the rows say, as far as it is there.
        self.do_waiting(following, |waiting| waiting.is_of(ino)).map_err(WalkError::Body)?;
        if first == 0 {
            self.with_state(|state| state.view_disturbed(ino));
            self.bodies.fit(ino, size, Some(born_of(&row.attr))).map_err(WalkError::Body)?;
        }
        let end = size.div_ceil(BLOCK_BYTES);
        let count = end.saturating_sub(first).min(u64::from(FETCH_MAX));
        let sums = self.read_sums(ino, first, count).map_err(WalkError::Other)?;
        let differing = self.bodies.differing((ino, size), first, &sums, again).map_err(WalkError::Body)?;
        following.missing.extend(runs_of(ino, &differing));
        let walk = following.walk.as_mut().expect("it was looked at");
        walk.behind_bytes += count * BLOCK_BYTES;
        walk.left.bytes = walk.left.bytes.saturating_sub((count * BLOCK_BYTES).min(size));
        if first + count >= end {
            walk.pass(ino);
        } else {
            walk.block = first + count;
        }
        Ok(Piece::Looked { bytes: count * BLOCK_BYTES })
    }

    /// The id that is to be looked at: ids of bodies in the snapshot, since bodies of later ones come with their records.
    fn next_body(&self, walk: &mut Walk) -> Result<Option<Ino>, WalkError> {
        if walk.page.is_empty() {
            let (from, end) = (RowKey::Inode(walk.next).to_bytes(), [b'i' + 1]);
            let rows =
                self.snapshot.range(&from, &end, PAGE_ROWS).map_err(|e| WalkError::Other(e.to_string()))?;
            walk.page = rows
                .iter()
                .filter_map(|(key, _)| match RowKey::from_bytes(key) {
                    Some(RowKey::Inode(ino)) => Some(ino),
                    _ => None,
                })
                .collect();
        }
        Ok(walk.page.front().copied())
    }

    /// What was compared and fetched survives a power cut.
    fn sync_walked(&self) -> Result<(), WalkError> {
        if planted(Bug::FilledUnsynced) {
            return Ok(());
        }
        self.disk.sync_everything().map_err(other)
    }
}

impl Walk {
    /// A body was looked at.
    fn pass(&mut self, ino: Ino) {
        self.page.pop_front();
        self.next = Ino(ino.0.saturating_add(1));
        self.block = 0;
        self.behind_files += 1;
        self.left.files = self.left.files.saturating_sub(1);
    }
}

impl FillSize {
    /// Of all files, and of those from this id on. `rest` is called between pages. None: the snapshot was given up meanwhile.
    pub(crate) fn count(
        rows: &Pin,
        from: Ino,
        mut rest: impl FnMut(),
    ) -> Result<Option<(Self, Self)>, SnapshotError> {
        let (mut all, mut left, mut at) = (Self::default(), Self::default(), vec![b'i']);
        loop {
            let Some(page) = rows.range(&at, &[b'i' + 1], PAGE_BYTES)? else { return Ok(None) };
            let Some((last, _)) = page.last() else { return Ok(Some((all, left))) };
            at = [&last[..], &[0]].concat();
            for (key, row) in &page {
                let Some(RowKey::Inode(ino)) = RowKey::from_bytes(key) else { continue };
                let bytes = Inode::from_slice(row).map_or(0, |row| row.attr.size);
                for size in [Some(&mut all), (ino >= from).then_some(&mut left)].into_iter().flatten() {
                    size.files += 1;
                    size.bytes += bytes;
                }
            }
            rest();
        }
    }
}

/// Runs of blocks, each as long as one question may have.
fn runs_of(ino: Ino, blocks: &[u64]) -> Vec<BodyBlocks> {
    let mut runs: Vec<BodyBlocks> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.first + u64::from(run.count) == *block => run.count += 1,
            _ => runs.push(BodyBlocks { ino, first: *block, count: 1 }),
        }
    }
    runs
}

enum WalkError {
    Body(BodyError),
    Other(String),
}

fn other(error: std::io::Error) -> WalkError {
    WalkError::Other(error.to_string())
}
