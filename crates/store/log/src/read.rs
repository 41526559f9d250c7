//! Reading a log that is open, from any record that it still has, for a copy that catches up. Never reads
//! bytes that are not written yet, and never decides how far a reader may go.
//!
//! A read is done like other work: [`Log::take_read`] with the owner's lock held, [`ReadWork::perform`]
//! without it, [`Log::read`] with it again. Records may be appended, and old segments released, meanwhile.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use atoll_disk::{Disk, DiskFile};

use crate::frame::{
    HEADER_BYTES, RECORD_HEADER_BYTES, SegmentHeader, claimed_bytes, read_record, record_bytes,
};
use crate::log::Log;
use crate::work::Segment;
use crate::{Damage, LogError, Position, RecordView};

/// How far a reader has come in a log. It is of use for that log only as long as that is open: afterwards begin with
/// [`Cursor::after`] again.
#[derive(Debug, Clone)]
pub struct Cursor {
    /// The reader has everything up to this record.
    after: Position,
    /// The position at which the search for that record, or for the next one, goes on.
    place: Option<SegmentPlace>,
}

#[derive(Debug, Clone)]
struct SegmentPlace {
    /// The open log that this is a place in.
    life: Arc<()>,
    /// The segment's first sequence number.
    first_seq: u64,
    /// Bytes of the segment before the next record.
    offset: u64,
    /// The record that ends there.
    passed: Position,
}

impl Cursor {
    /// A reader that has everything up to `after`. The first reads find out whether the log has that record: they search
    /// up to one segment for it.
    pub const fn after(after: Position) -> Self {
        Self { after, place: None }
    }

    /// The last record that the reader has.
    pub const fn position(&self) -> Position {
        self.after
    }
}

/// A part of a segment to be read. [`ReadWork::perform`], then [`Log::read`].
#[must_use = "nothing was read"]
pub struct ReadWork<D: Disk> {
    cursor: Cursor,
    segment: Arc<Segment<D::File>>,
    /// Bytes that are read, unless one record is longer.
    bytes: usize,
    payload_max: u32,
    /// Records of the segment up to this number are written.
    upto: u64,
}

/// The result of a read.
#[must_use = "the log must say whether it counts"]
pub struct ReadBytes {
    cursor: Cursor,
    first_seq: u64,
    seed: u32,
    payload_max: u32,
    upto: u64,
    bytes: io::Result<Vec<u8>>,
}

/// Records in their order, without a gap.
#[derive(Debug)]
pub struct Records {
    bytes: Vec<u8>,
    /// Where in the segment those bytes begin.
    offset: u64,
    /// Position, predecessor and marker of each, and where its payload lies in `bytes`.
    found: Vec<(Position, Position, u64, Range<usize>)>,
    next: Cursor,
}

impl Records {
    /// The records: each follows the one before it, and the first one follows the cursor's.
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'_>> {
        self.found.iter().map(|(position, predecessor, synced, payload)| RecordView {
            position: *position,
            predecessor: *predecessor,
            synced: *synced,
            payload: &self.bytes[payload.clone()],
        })
    }

    /// Where to go on behind one of the records; none if it is none of these.
    pub fn cursor_behind(&self, record: Position) -> Option<Cursor> {
        let (.., payload) = self.found.iter().find(|(position, ..)| *position == record)?;
        let end = payload.start - RECORD_HEADER_BYTES + record_bytes(payload.len());
        let place = self.next.place.as_ref()?;
        let place = SegmentPlace { offset: self.offset + end as u64, passed: record, ..place.clone() };
        Some(Cursor { after: record, place: Some(place) })
    }

    /// Where to go on. There may be more also if there are no records: then the cursor's own is still searched for.
    pub fn into_cursor(self) -> Cursor {
        self.next
    }
}

impl<D: Disk> ReadWork<D> {
    /// Reads: once, and a second time if the first record is longer than the bound.
    pub fn perform(self) -> ReadBytes {
        let bytes = self.read();
        let Self { cursor, segment, payload_max, upto, .. } = self;
        ReadBytes { cursor, first_seq: segment.first_seq, seed: segment.seed, payload_max, upto, bytes }
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let file = self.segment.file.get().expect("a record of it is written");
        let (offset, header) =
            self.cursor.place.as_ref().map_or((0, HEADER_BYTES), |place| (place.offset, 0));
        let mut bytes = vec![0; self.bytes.max(header + RECORD_HEADER_BYTES)];
        let mut n = file.read_full(&mut bytes, offset)?;
        let first = bytes.get(header..n).and_then(|rest| claimed_bytes(rest, self.payload_max));
        if let Some(first) = first.filter(|first| header + first > bytes.len()) {
            bytes.resize(header + first, 0);
            n += file.read_full(&mut bytes[n..], offset + n as u64)?;
        }
        bytes.truncate(n);
        Ok(bytes)
    }
}

impl<D: Disk> Log<D> {
    /// Takes the reading of what follows the cursor: `bytes_max` bytes of one segment at most, or one record if that is
    /// longer. `None` if nothing behind the cursor is written yet.
    ///
    /// [`LogError::Released`] if the log no longer has what follows: the reader needs a copy of the state.
    /// [`LogError::Mismatch`] if the cursor's record is not one of this log, as one that was cut off: the reader must go
    /// back to a record that both have.
    pub fn take_read(&self, cursor: &Cursor, bytes_max: usize) -> Result<Option<ReadWork<D>>, LogError> {
        self.check()?;
        let after = cursor.after;
        if after.seq > self.last.seq || (after.seq == self.last.seq && after != self.last) {
            return Err(LogError::Mismatch { last: self.last });
        }
        if after.seq + 1 < self.first_seq() {
            return Err(LogError::Released { first: self.first_seq() });
        }
        let place = cursor.place.as_ref().filter(|place| Arc::ptr_eq(&place.life, &self.life));
        let is_found = after == self.last || place.is_some_and(|place| place.passed == after);
        if after.seq > self.written || (after.seq == self.written && is_found) {
            return Ok(None);
        }
        // If nothing behind the cursor's record is written, that record itself is looked at.
        let wanted = (after.seq + 1).min(self.written);
        let at = self.segments.partition_point(|segment| segment.first_seq <= wanted);
        let Some(segment) = at.checked_sub(1).map(|at| &self.segments[at]) else {
            // Nothing of the log is written, and its first record follows the cursor's.
            return Ok(None);
        };
        let next = self.segments.get(at);
        let place = place.filter(|place| place.first_seq == segment.first_seq).cloned();
        let offset = place.as_ref().map_or(0, |place| place.offset);
        let bytes = match next {
            Some(_) => bytes_max,
            None => bytes_max.min(usize::try_from(self.tail_at.saturating_sub(offset)).unwrap_or(bytes_max)),
        };
        Ok(Some(ReadWork {
            cursor: Cursor { after, place },
            segment: Arc::clone(segment),
            bytes,
            payload_max: self.config.record_bytes_max,
            upto: next.map_or(self.written, |next| self.written.min(next.first_seq - 1)),
        }))
    }

    /// The records of a read. Errors are those of [`Log::take_read`]; [`LogError::Io`] if the disk failed;
    /// [`LogError::Damaged`] if a record that was written cannot be read. Neither stops the log, because
    /// appending does not depend on reading.
    pub fn read(&self, read: ReadBytes) -> Result<Records, LogError> {
        self.check()?;
        let ReadBytes { cursor: Cursor { after, place }, first_seq, seed, payload_max, upto, bytes } = read;
        if !self.segments.iter().any(|segment| segment.first_seq == first_seq) {
            // Its file may hold zeros by now, or another segment.
            return Err(LogError::Released { first: self.first_seq() });
        }
        let bytes = bytes?;
        let damaged = |first| LogError::Damaged(Damage::Hole { first, behind: upto });
        let (offset, start, mut passed) = match place {
            Some(place) => (place.offset, 0, place.passed),
            None => match SegmentHeader::decode(&bytes) {
                Ok((header, _)) => (0, HEADER_BYTES, header.predecessor),
                Err(_) => return Err(damaged(first_seq)),
            },
        };
        let is_other = |found: Position| found.seq == after.seq && found != after;
        if is_other(passed) {
            return Err(LogError::Mismatch { last: passed });
        }
        let (mut at, mut found) = (start, Vec::new());
        while passed.seq < upto {
            let record = bytes.get(at..).and_then(|rest| read_record(rest, seed, payload_max));
            let Some(record) = record.filter(|record| record.predecessor == passed) else { break };
            if is_other(record.position) {
                return Err(LogError::Mismatch { last: record.position });
            }
            if record.position.seq > after.seq {
                let payload = at + RECORD_HEADER_BYTES;
                let payload = payload..payload + record.payload.len();
                found.push((record.position, record.predecessor, record.synced, payload));
            }
            at += record_bytes(record.payload.len());
            passed = record.position;
        }
        if at == start && passed.seq < upto {
            return Err(damaged(passed.seq + 1));
        }
        let after = if passed.seq > after.seq { passed } else { after };
        let place =
            SegmentPlace { life: Arc::clone(&self.life), first_seq, offset: offset + at as u64, passed };
        Ok(Records { bytes, offset, found, next: Cursor { after, place: Some(place) } })
    }
}
