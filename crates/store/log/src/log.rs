//! The living log: positions, the buffer, and how far it is written and synced. Makes no system call.
//! Invariant: synced <= written <= last, and every byte behind `written` is in the buffer or in the one batch
//! under way.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

use atoll_disk::{Disk, is_no_space};

use crate::boot::Boot;
use crate::frame::{HEADER_BYTES, SegmentHeader, push_record, record_bytes};
use crate::work::{Part, Place, Segment, Source};
use crate::{
    Batch, Config, Identity, LogError, Performed, Position, Preparation, Prepared, Removal, Removed,
    SyncWork, Synced,
};

/// The spare segment: Missing -> Busy -> Ready -> (a segment begins in it) Missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spare {
    Missing,
    /// A preparation or a removal that keeps a segment's space is under way.
    Busy,
    Ready,
}

/// The log of an island. The module's doc tells how it is used.
pub struct Log<D: Disk> {
    pub(crate) place: Arc<Place<D>>,
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) last: Position,
    pub(crate) written: u64,
    pub(crate) synced: u64,
    /// The owner's synced state has every record up to this one.
    pub(crate) checkpoint: u64,
    /// Records from this one on are kept behind the checkpoint, as far as there are bytes for them.
    pub(crate) keep: u64,
    /// Records from this one on are kept whatever they take.
    pub(crate) hold: u64,
    /// Oldest first, without a gap; the last one is appended to.
    pub(crate) segments: VecDeque<Arc<Segment<D::File>>>,
    /// The offset of the next record in the last segment.
    pub(crate) tail_at: u64,
    pub(crate) buffer: Vec<u8>,
    pub(crate) parts: Vec<Part<D::File>>,
    /// The last batch's buffer, to be filled next time.
    pub(crate) empty: Vec<u8>,
    pub(crate) writing: bool,
    /// A batch that found no space, and waits for some: it is written before anything else.
    pub(crate) stuck: Option<Batch<D>>,
    /// It may be tried now.
    pub(crate) retries: bool,
    /// The last preparation has found no space: the next one takes that of a segment that is kept.
    pub(crate) lacks_space: bool,
    pub(crate) syncing: bool,
    pub(crate) unsynced: Vec<Arc<Segment<D::File>>>,
    pub(crate) dir_unsynced: bool,
    pub(crate) spare: Spare,
    pub(crate) stopped: Option<Arc<str>>,
    /// It is noted that the log is whole.
    pub(crate) noted: bool,
    /// The log's number, different from that of a log that is opened here later: a reader's position is only
    /// good for one of them.
    pub(crate) life: Arc<()>,
}

impl<D: Disk> Log<D> {
    /// Position of the last record, written or not.
    pub const fn last(&self) -> Position {
        self.last
    }

    /// Every record up to this sequence number was written: process death cannot take it.
    pub const fn written_upto(&self) -> u64 {
        self.written
    }

    /// Every record up to this sequence number was synced: a power cut cannot take it.
    pub const fn synced_upto(&self) -> u64 {
        self.synced
    }

    /// The first record that can be read, or the next one that will be appended if there is none. It rises with what is let go
    /// of, and never falls while the log is open.
    pub fn first_seq(&self) -> u64 {
        self.segments.front().map_or(self.last.seq + 1, |segment| segment.first_seq)
    }

    /// Bytes of framed records that the last segment still takes.
    pub const fn tail_room(&self) -> u64 {
        self.config.segment_bytes.saturating_sub(self.tail_at)
    }

    /// True if less than a half of the last segment is left.
    pub const fn is_half_full(&self) -> bool {
        self.tail_room() < self.config.segment_bytes / 2
    }

    /// True if the next segment can begin without asking the disk for space. While false on a full
    /// disk, an owner admits only what fits [`Log::tail_room`] and gives space back: a segment that
    /// cannot begin stops the log.
    pub fn has_spare(&self) -> bool {
        self.spare == Spare::Ready && !self.parts.iter().any(|part| part.source != Source::Open)
    }

    /// True while a batch waits for space: nothing that is appended is written. Whoever owns the log appends
    /// as little as possible meanwhile, and calls [`Log::try_again`] now and then.
    pub fn is_stuck(&self) -> bool {
        self.stuck.as_ref().is_some_and(|batch| batch.gives_up.is_none())
    }

    /// The next [`Log::take_batch`] gives out a batch that waits for space.
    pub const fn try_again(&mut self) {
        self.retries = self.stuck.is_some();
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        match &self.stopped {
            Some(reason) => Err(LogError::Stopped { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    fn stop(&mut self, what: &str, error: &io::Error) -> LogError {
        let reason: Arc<str> = format!("{what} failed: {error}").into();
        self.stopped = Some(Arc::clone(&reason));
        // A disk that fails may keep this back too.
        let _ = self.place.note_stopped();
        LogError::Stopped { reason }
    }

    /// Appends a record of the primary of `epoch` to the buffer. The payload's
    /// pieces follow each other without anything between. Errors append nothing.
    ///
    /// Panics if `epoch` is lower than the last record's: that is the owner's mistake.
    pub fn append(&mut self, epoch: u32, payload: &[&[u8]]) -> Result<Position, LogError> {
        let before = self.last.epoch;
        assert!(epoch >= before, "appended in {epoch} after {before}");
        let position = Position { epoch, seq: self.last.seq + 1 };
        self.push(position, payload)?;
        Ok(position)
    }

    /// Appends a record that the primary gave its place. [`LogError::Mismatch`] unless it follows
    /// the last record here.
    pub fn append_at(
        &mut self,
        position: Position,
        predecessor: Position,
        payload: &[&[u8]],
    ) -> Result<(), LogError> {
        let follows = predecessor == self.last
            && position.seq == self.last.seq + 1
            && position.epoch >= self.last.epoch;
        if !follows {
            return Err(LogError::Mismatch { last: self.last });
        }
        self.push(position, payload)
    }

    fn push(&mut self, position: Position, payload: &[&[u8]]) -> Result<(), LogError> {
        self.check()?;
        let payload_bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        if payload_bytes > self.config.record_bytes_max as usize {
            return Err(LogError::TooLarge { bytes: payload_bytes });
        }
        let bytes = record_bytes(payload_bytes);
        if self.buffer.len() + HEADER_BYTES + bytes > self.config.buffer_bytes_max {
            return Err(LogError::Full);
        }
        if self.tail_at + bytes as u64 > self.config.segment_bytes {
            self.begin_segment();
        } else if self.parts.is_empty() {
            let segment = Arc::clone(self.segments.back().expect("a log has a segment"));
            self.parts.push(Part { segment, offset: self.tail_at, start: 0, source: Source::Open });
        }
        let seed = self.segments.back().expect("a log has a segment").seed;
        push_record(&mut self.buffer, seed, position, self.last, self.synced, payload, payload_bytes);
        self.tail_at += bytes as u64;
        self.last = position;
        Ok(())
    }

    fn begin_segment(&mut self) {
        let header = SegmentHeader { identity: self.identity, predecessor: self.last, synced: self.synced };
        let (bytes, seed) = header.encode();
        let first_seq = header.first_seq();
        let bytes_of = self.config.segment_bytes;
        let segment = Arc::new(Segment { first_seq, bytes: bytes_of, seed, file: OnceLock::new() });
        self.segments.push_back(Arc::clone(&segment));
        // Which file it gets is settled when the batch is taken: a spare may be ready by then.
        self.parts.push(Part { segment, offset: 0, start: self.buffer.len(), source: Source::Fresh });
        self.buffer.extend_from_slice(&bytes);
        self.tail_at = HEADER_BYTES as u64;
    }

    /// Takes the records that wait to be written. `None` if there are none, or if a batch is under way.
    pub fn take_batch(&mut self) -> Result<Option<Batch<D>>, LogError> {
        self.check()?;
        if self.writing || (self.is_stuck() && !self.retries) {
            return Ok(None);
        }
        self.retries = false;
        if let Some(mut batch) = self.stuck.take() {
            self.writing = true;
            self.give_spare(&mut batch.parts);
            return Ok(Some(batch));
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        self.writing = true;
        let mut bytes = std::mem::replace(&mut self.buffer, std::mem::take(&mut self.empty));
        let mut parts = std::mem::take(&mut self.parts);
        self.fill_page(&mut bytes, &parts);
        self.give_spare(&mut parts);
        Ok(Some(Batch { place: Arc::clone(&self.place), bytes, parts, last: self.last, gives_up: None }))
    }

    /// The first segment that begins with these parts, and has no file yet, gets the spare.
    fn give_spare(&mut self, parts: &mut [Part<D::File>]) {
        let is_to_be_made =
            |part: &&mut Part<D::File>| part.source == Source::Fresh && part.segment.file.get().is_none();
        if self.spare == Spare::Ready
            && let Some(part) = parts.iter_mut().find(is_to_be_made)
        {
            part.source = Source::Spare;
            self.spare = Spare::Missing;
        }
    }

    /// Adds zeros up to the end of a page that the batch begins: a whole page is written without being
    /// read first, however long ago the segment was prepared. What follows finds it in memory.
    fn fill_page(&self, bytes: &mut Vec<u8>, parts: &[Part<D::File>]) {
        let Some(part) = parts.last() else { return };
        let (from, to) = (part.offset, self.tail_at);
        let page_end = to.next_multiple_of(PAGE_BYTES).min(self.config.segment_bytes);
        let begins_it = from.is_multiple_of(PAGE_BYTES) || from / PAGE_BYTES < to / PAGE_BYTES;
        if begins_it && to < page_end {
            bytes.resize(bytes.len() + (page_end - to) as usize, 0);
        }
    }

    /// Tells that a batch was written: how far. One that found no space is held, whole, and written again when
    /// there may be some: nobody was told of its records. If a segment is kept only for others, it goes, and [`Log::take_batch`]
    /// gives the batch out at once; else the log [`Log::is_stuck`]. Any other failure stops the log.
    pub fn written(&mut self, performed: Performed<D>) -> Result<u64, LogError> {
        self.check()?;
        assert!(self.writing, "a batch was given back that was not taken");
        self.writing = false;
        match performed.result {
            Err(error) if is_no_space(&error) => {
                self.stuck = Some(Batch { gives_up: self.give_up(), ..performed.batch });
                return Ok(self.written);
            }
            Err(error) => return Err(self.stop("a write of the log", &error)),
            Ok(()) => {}
        }
        let Batch { mut bytes, parts, last, .. } = performed.batch;
        bytes.clear();
        // One large batch must not hold its memory for ever.
        bytes.shrink_to(KEPT_BUFFER_BYTES);
        self.empty = bytes;
        for part in parts {
            self.dir_unsynced |= part.source != Source::Open;
            if !self.unsynced.iter().any(|segment| Arc::ptr_eq(segment, &part.segment)) {
                self.unsynced.push(part.segment);
            }
        }
        self.written = last.seq;
        Ok(self.written)
    }

    /// Takes what must be synced so that everything written is durable. `None` if all of it is, or
    /// a sync is under way.
    pub fn take_sync(&mut self) -> Result<Option<SyncWork<D>>, LogError> {
        self.check()?;
        if self.syncing || (self.unsynced.is_empty() && !self.dir_unsynced) {
            return Ok(None);
        }
        self.syncing = true;
        Ok(Some(SyncWork {
            place: Arc::clone(&self.place),
            segments: std::mem::take(&mut self.unsynced),
            dir: std::mem::take(&mut self.dir_unsynced),
            upto: self.written,
            boot: (!self.noted && self.config.boot != 0).then_some(Boot::whole(&self.config)),
        }))
    }

    /// Tells that a sync was done: how far records are durable. Its failure stops the log.
    pub fn synced(&mut self, synced: Synced) -> Result<u64, LogError> {
        self.check()?;
        assert!(self.syncing, "a sync was given back that was not taken");
        self.syncing = false;
        if let Err(error) = synced.result {
            return Err(self.stop("a sync of the log", &error));
        }
        self.noted = true;
        self.synced = synced.upto;
        Ok(self.synced)
    }

    /// Takes the making of the next segment, for a background thread. `None` if there is one, or
    /// it is being made.
    pub fn preparation(&mut self) -> Option<Preparation<D>> {
        if self.spare != Spare::Missing || self.stopped.is_some() {
            return None;
        }
        self.spare = Spare::Busy;
        let lacks_space = std::mem::take(&mut self.lacks_space);
        let from = if lacks_space { self.give_up() } else { None };
        Some(Preparation { place: Arc::clone(&self.place), from })
    }

    /// Tells that the next segment was made. Its failure stops nothing (a full disk is one): there
    /// is no spare, and it may be tried again. If there was no space, and a segment is kept only for others, that is no failure
    /// either: the next preparation takes its space, and [`Log::has_spare`] says that there is none yet.
    pub fn prepared(&mut self, prepared: Prepared) -> io::Result<()> {
        assert_eq!(self.spare, Spare::Busy, "a preparation was given back that was not taken");
        self.spare = if prepared.0.is_ok() { Spare::Ready } else { Spare::Missing };
        match prepared.0 {
            Err(error) if is_no_space(&error) && self.has_kept() => {
                self.lacks_space = true;
                Ok(())
            }
            result => result,
        }
    }

    /// Lets go of records up to `upto`, which the owner's synced checkpoint covers, unless they are kept ([`Log::keep`]): takes the
    /// segments that hold nothing else. `None` if there are none.
    ///
    /// Panics if `upto` is not synced.
    pub fn release(&mut self, upto: u64) -> Option<Removal<D>> {
        assert!(upto <= self.synced, "record {upto} is released, {} are synced", self.synced);
        self.checkpoint = self.checkpoint.max(upto);
        let released = self.give_up_old();
        if released.is_empty() {
            return None;
        }
        let keep_first = self.spare == Spare::Missing;
        if keep_first {
            self.spare = Spare::Busy;
        }
        Some(Removal { place: Arc::clone(&self.place), segments: released, keep_first })
    }

    /// Tells that segments were removed. A segment that could not be removed goes when the log is opened.
    pub fn removed(&mut self, removed: Removed) -> io::Result<()> {
        if removed.kept {
            assert_eq!(self.spare, Spare::Busy, "a removal was given back that was not taken");
            self.spare = Spare::Missing;
        }
        removed.result
    }
}

/// Bytes of a page of the native file system's cache.
const PAGE_BYTES: u64 = 4096;
/// Memory that an empty buffer keeps.
const KEPT_BUFFER_BYTES: usize = 1 << 20;
