//! Records on their way from the primary of an island to its other copies. Never says who gets them.
//!
//! What not all members have acknowledged is in memory, with the bytes that were put in place (`Window`). A copy that was
//! away gets records from the log, and with them the bytes that they name *as the body has them now*: whole blocks, which
//! fit the checksums of now. They may be newer than the record. Every record that made them so follows.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use atoll_body::BodyError;
use atoll_core::sum::{BLOCK_BYTES, blocks_of};
use atoll_core::{Ino, Malformed};
use atoll_disk::Disk;
use atoll_log::{Cursor, LogError, Position};
use atoll_proto::{BodyChange, Record};
use atoll_state::key::SUMS_PER_CHUNK;
use atoll_state::{NotInMemory, State};
use atoll_view::Source;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::engine::Engine;
use crate::lay::CommittedState;

/// Pauses until bytes of a body fit their checksums: a change that is decided may wait for a sync.
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(50);

/// A record as other copies of its island need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipped {
    /// Its position.
    pub position: Position,
    /// Its bytes in the log.
    pub payload: Bytes,
    /// The bytes that it names and does not carry, and where they belong: they are put into the body before the record is
    /// appended. None if it names none, or if the body is gone, as a later record tells.
    pub placed: Option<(u64, Bytes)>,
}

/// Records that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipment {
    /// The record before the first.
    pub after: Position,
    /// They.
    pub records: Vec<Shipped>,
}

/// Why records cannot be shipped.
#[derive(Debug, thiserror::Error)]
pub enum NotShipped {
    /// The log does not have what follows, or has another record there.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Bytes of this body do not fit their checksums: they are damaged here, or a change of them waits.
    #[error("bytes of {ino} do not fit their checksums: {why}")]
    Body {
        /// The file.
        ino: Ino,
        /// More.
        why: String,
    },
    /// A row or a record cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// Records that not all members have acknowledged, in order. Whoever decides bounds how many there are.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The record before the first.
    before: Position,
    records: VecDeque<Shipped>,
    bytes: usize,
}

/// With so many bytes in it no more changes are decided for clients.
const WINDOW_BYTES_MAX: usize = 4 << 20;

impl Window {
    /// Of a log that goes up to `before`.
    pub(crate) fn behind(before: Position) -> Self {
        Self { before, records: VecDeque::new(), bytes: 0 }
    }

    pub(crate) fn push(&mut self, position: Position, payload: Bytes, record: &Record, placed: Bytes) {
        let extent = Extent::of(record);
        if extent.is_some_and(|extent| extent.len != placed.len() as u64) {
            // It was decided when there were no other copies, and nobody has kept its bytes.
            *self = Self::behind(position);
            return;
        }
        let placed = extent.map(|extent| (extent.offset, placed));
        let shipped = Shipped { position, payload, placed };
        self.bytes += shipped.bytes();
        self.records.push_back(shipped);
    }

    /// Whether the members have to catch up before more is decided.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes > WINDOW_BYTES_MAX
    }

    /// All members have the records up to this one.
    fn acknowledged(&mut self, seq: u64) {
        let count = self.records.partition_point(|shipped| shipped.position.seq <= seq);
        for shipped in self.records.drain(..count) {
            self.bytes -= shipped.bytes();
            self.before = shipped.position;
        }
    }

    /// The records behind this one, if it is the one before one of these.
    fn records_behind(&self, after: Position, bytes_max: usize) -> Option<Vec<Shipped>> {
        let from = usize::try_from(after.seq.checked_sub(self.before.seq)?).ok()?;
        let known = match from.checked_sub(1) {
            None => self.before,
            Some(at) => self.records.get(at)?.position,
        };
        let mut bytes = 0;
        let fits = |shipped: &&Shipped| {
            bytes += shipped.bytes();
            bytes <= bytes_max || bytes == shipped.bytes()
        };
        (known == after).then(|| self.records.iter().skip(from).take_while(fits).cloned().collect())
    }
}

impl Shipped {
    /// Its cost in memory and on a link.
    fn bytes(&self) -> usize {
        self.payload.len() + self.placed.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }
}

/// Bytes of a record in a frame beside its own: position, length, and whether it has placed bytes.
const HEAD_BYTES: usize = 17;
/// Bytes in front of placed bytes: offset and length.
const PLACED_BYTES: usize = 12;

/// The last record of each epoch among these.
pub(crate) fn ends_of(records: &[Shipped]) -> Vec<Position> {
    let mut ends: Vec<Position> = Vec::new();
    for shipped in records {
        match ends.last_mut() {
            Some(end) if end.epoch == shipped.position.epoch => *end = shipped.position,
            _ => ends.push(shipped.position),
        }
    }
    ends
}

impl Shipment {
    /// The payload of the frame that it is sent in (FORMATS, `Append`).
    pub fn encode(&self) -> Bytes {
        let bytes = self.records.iter().map(|shipped| shipped.bytes() + HEAD_BYTES + PLACED_BYTES).sum();
        let mut out = BytesMut::with_capacity(bytes);
        for Shipped { position, payload, placed } in &self.records {
            out.put_u32_le(position.epoch);
            out.put_u64_le(position.seq);
            out.put_u32_le(payload.len() as u32);
            out.put_u8(u8::from(placed.is_some()));
            if let Some((offset, placed)) = placed {
                out.put_u64_le(*offset);
                out.put_u32_le(placed.len() as u32);
                out.put_slice(placed);
            }
            out.put_slice(payload);
        }
        out.freeze()
    }

    /// Reads it again. Its bytes are shared. `ends`: what its frame says that it has.
    ///
    /// # Errors
    /// It is cut off, or has other records.
    pub fn decode(after: Position, ends: &[Position], payload: &Bytes) -> Result<Self, Malformed> {
        let cut = || Malformed::new("records that are cut off");
        let mut left = payload.clone();
        let take =
            |left: &mut Bytes, len: usize| (left.len() >= len).then(|| left.split_to(len)).ok_or_else(cut);
        let mut records = Vec::new();
        let mut before = after;
        while !left.is_empty() {
            let mut head = take(&mut left, HEAD_BYTES)?;
            let position = Position { epoch: head.get_u32_le(), seq: head.get_u64_le() };
            let (len, is_placed) = (head.get_u32_le() as usize, head.get_u8());
            let placed = match is_placed {
                0 => None,
                1 => {
                    let mut head = take(&mut left, PLACED_BYTES)?;
                    let (offset, len) = (head.get_u64_le(), head.get_u32_le() as usize);
                    Some((offset, take(&mut left, len)?))
                }
                _ => return Err(Malformed::new("whether a record has bytes")),
            };
            let payload = take(&mut left, len)?;
            if position.seq != before.seq + 1 || position.epoch < before.epoch {
                return Err(Malformed::new("the order of records"));
            }
            before = position;
            records.push(Shipped { position, payload, placed });
        }
        if ends_of(&records) == ends {
            Ok(Self { after, records })
        } else {
            Err(Malformed::new("records that are others than the frame says"))
        }
    }
}

/// Bytes that a record names and does not carry. A record names them of one file at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) ino: Ino,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Carried bytes below them were promised.
    pub(crate) promised: bool,
}

/// Where copies that catch up are in the log. Without it each shipment would search a segment for its first record, and a copy
/// might never catch up with what clients write meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<VecDeque<Cursor>>);

/// A read of the log for few records asks for so many bytes for each, and for so many at least.
const RECORD_BYTES: usize = 2 << 10;
const READ_BYTES: usize = 64 << 10;

/// So many are remembered: more copies than catch up at once.
const READERS_MAX: usize = 8;

impl Readers {
    /// The reader that has everything up to this record.
    fn take(&self, after: Position) -> Cursor {
        let mut cursors = self.lock();
        let known = cursors.iter().position(|cursor| cursor.position() == after);
        known.and_then(|at| cursors.remove(at)).unwrap_or_else(|| Cursor::after(after))
    }

    fn keep(&self, cursor: Option<Cursor>) {
        let mut cursors = self.lock();
        cursors.extend(cursor);
        if cursors.len() > READERS_MAX {
            cursors.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Cursor>> {
        self.0.lock().expect("no panic while it is held")
    }
}

impl Extent {
    pub(crate) fn of(record: &Record) -> Option<Self> {
        record.bodies.iter().find_map(|change| match *change {
            BodyChange::Extent { ino, offset, len, promised } => Some(Self { ino, offset, len, promised }),
            _ => None,
        })
    }
}

impl<D: Disk> Engine<D> {
    /// Records behind `after`, about so many bytes of them, or one; none if there are none.
    pub fn shipment(&self, after: Position, bytes_max: usize) -> Result<Shipment, NotShipped> {
        self.shipment_upto(after, u64::MAX, bytes_max)
    }

    /// The same. Of the log none behind `upto` is among them; of those in memory some may be.
    pub(crate) fn shipment_upto(
        &self,
        after: Position,
        upto: u64,
        bytes_max: usize,
    ) -> Result<Shipment, NotShipped> {
        if let Some(shipment) = self.shipment_in_memory(after, bytes_max) {
            return Ok(shipment);
        }
        let _used = self.in_use().ok_or_else(|| NotShipped::Unreadable("it is closed".to_owned()))?;
        let records = self.read_log(after, upto, bytes_max)?;
        Ok(Shipment { after, records })
    }

    /// The same, if it needs no disk.
    pub(crate) fn shipment_in_memory(&self, after: Position, bytes_max: usize) -> Option<Shipment> {
        let core = self.lock();
        if after == core.log.last() {
            return Some(Shipment { after, records: Vec::new() });
        }
        let records = core.window.as_ref()?.records_behind(after, bytes_max)?;
        Some(Shipment { after, records })
    }

    /// All members have the records up to this one, with the bytes that they name.
    pub fn acknowledged(&self, seq: u64) {
        if let Some(window) = &mut self.lock().window {
            window.acknowledged(seq);
        }
    }

    fn read_log(&self, after: Position, upto: u64, bytes_max: usize) -> Result<Vec<Shipped>, NotShipped> {
        let mut cursor = self.readers.take(after);
        let (mut shipped, mut bytes): (Vec<Shipped>, _) = (Vec::new(), 0);
        let count = usize::try_from(upto.saturating_sub(after.seq)).unwrap_or(usize::MAX);
        let read_max = bytes_max.min(count.saturating_mul(RECORD_BYTES).max(READ_BYTES));
        while shipped.is_empty() {
            let Some(read) = self.lock().log.take_read(&cursor, read_max)? else { break };
            let read = read.perform();
            let records = self.lock().log.read(read)?;
            for view in records.iter() {
                if view.position.seq > upto {
                    self.readers.keep(shipped.last().and_then(|last| records.cursor_behind(last.position)));
                    return Ok(shipped);
                }
                let record = Record::decode_whole(view.payload)
                    .map_err(|error| NotShipped::Unreadable(error.to_string()))?;
                let payload = Bytes::copy_from_slice(view.payload);
                let placed = match Extent::of(&record) {
                    Some(extent) => self.bytes_of_now(extent)?,
                    None => None,
                };
                let one = Shipped { position: view.position, payload, placed };
                bytes += one.bytes();
                shipped.push(one);
                // The bytes that records name are more than the log has.
                if bytes >= bytes_max {
                    self.readers.keep(records.cursor_behind(view.position));
                    return Ok(shipped);
                }
            }
            cursor = records.into_cursor();
        }
        self.readers.keep(Some(cursor));
        Ok(shipped)
    }

    /// What a body has now where a record named bytes: whole blocks that fit their checksums.
    pub(crate) fn bytes_of_now(&self, extent: Extent) -> Result<Option<(u64, Bytes)>, NotShipped> {
        let Extent { ino, offset, len, .. } = extent;
        let mut looks = LOOKS;
        loop {
            let row = CommittedState::new(self).inode(ino);
            let Some(row) = row.map_err(|error| NotShipped::Unreadable(error.to_string()))? else {
                return Ok(None);
            };
            let size = row.attr.size;
            let from = offset - offset % BLOCK_BYTES;
            let len = (offset + len).next_multiple_of(BLOCK_BYTES).min(size).saturating_sub(from);
            let (first, count) = blocks_of(from, len);
            if count == 0 {
                return Ok(Some((from, Bytes::new())));
            }
            let sums = self.read_sums(ino, first, count).map_err(NotShipped::Unreadable)?;
            let mut buffer = Vec::new();
            let read = self
                .behind
                .settle(&self.bodies, ino)
                .and_then(|()| self.bodies.read(ino, from, len, size, &sums, &mut buffer));
            match read {
                Ok(range) => return Ok(Some((from, Bytes::copy_from_slice(&buffer[range])))),
                Err(BodyError::Damaged { .. }) if looks > 0 => {
                    looks -= 1;
                    self.clock.pass(LOOK);
                }
                Err(error) => return Err(NotShipped::Body { ino, why: error.to_string() }),
            }
        }
    }

    /// Checksums of blocks, from memory or the snapshot, without bringing rows into memory.
    pub(crate) fn read_sums(&self, ino: Ino, first: u64, count: u64) -> Result<Vec<u32>, String> {
        let mut aside = State::new(0);
        let mut sums = Vec::with_capacity(count as usize);
        let mut at = first;
        while at < first + count {
            let n = (SUMS_PER_CHUNK - at % SUMS_PER_CHUNK).min(first + count - at);
            match self.with_state(|state| state.sums(ino, at, n)) {
                Ok(part) => sums.extend(part),
                Err(NotInMemory(load)) => {
                    let loaded = self.load(&load)?;
                    aside.load(load, loaded).map_err(|error| error.to_string())?;
                    sums.extend(aside.sums(ino, at, n).map_err(|miss| format!("{miss:?}"))?);
                }
            }
            at += n;
        }
        Ok(sums)
    }
}
