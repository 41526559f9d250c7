//! Records on their way from the primary of an island to its other copies. Never says who gets them.
//!
//! What not all members have acknowledged is in memory, with the bytes that were put in place (`Window`). A copy that was
//! away gets records from the log, and with them the bytes that they name *as the body has them now*: whole blocks, which
//! fit the checksums of now. They may be newer than the record. Every record that made them so follows.

use std::collections::VecDeque;
use std::time::Duration;

use atoll_body::BodyError;
use atoll_core::Ino;
use atoll_core::sum::{BLOCK_BYTES, blocks_of};
use atoll_disk::Disk;
use atoll_log::{Cursor, LogError, Position};
use atoll_proto::{BodyChange, Record};
use atoll_state::key::SUMS_PER_CHUNK;
use atoll_state::{NotInMemory, State};
use atoll_view::Source;
use bytes::Bytes;

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
    /// Records up to this one are synced at every member.
    pub synced: u64,
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
}

impl Window {
    /// Of a log that goes up to `before`.
    pub(crate) fn behind(before: Position) -> Self {
        Self { before, records: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, position: Position, payload: Bytes, record: &Record, placed: Bytes) {
        let extent = Extent::of(record);
        if extent.is_some_and(|extent| extent.len != placed.len() as u64) {
            // It was decided when there were no other copies, and nobody has kept its bytes.
            *self = Self::behind(position);
            return;
        }
        let placed = extent.map(|extent| (extent.offset, placed));
        self.records.push_back(Shipped { position, payload, placed });
    }

    /// All members have the records up to this one.
    fn acknowledged(&mut self, seq: u64) {
        let count = self.records.partition_point(|shipped| shipped.position.seq <= seq);
        if let Some(last) = self.records.drain(..count).next_back() {
            self.before = last.position;
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

/// Bytes that a record names and does not carry. A record names them of one file at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) ino: Ino,
    offset: u64,
    len: u64,
    /// Carried bytes below them were promised.
    pub(crate) promised: bool,
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
        let core = self.lock();
        let synced = core.synced_upto();
        if after == core.log.last() {
            return Ok(Shipment { after, synced, records: Vec::new() });
        }
        if let Some(records) = core.window.as_ref().and_then(|window| window.records_behind(after, bytes_max))
        {
            return Ok(Shipment { after, synced, records });
        }
        drop(core);
        let records = self.read_log(after, bytes_max)?;
        Ok(Shipment { after, synced, records })
    }

    /// All members have the records up to this one, with the bytes that they name.
    pub fn acknowledged(&self, seq: u64) {
        if let Some(window) = &mut self.lock().window {
            window.acknowledged(seq);
        }
    }

    fn read_log(&self, after: Position, bytes_max: usize) -> Result<Vec<Shipped>, NotShipped> {
        let mut cursor = Cursor::after(after);
        let (mut shipped, mut bytes) = (Vec::new(), 0);
        while shipped.is_empty() {
            let Some(read) = self.lock().log.take_read(&cursor, bytes_max)? else { break };
            let read = read.perform();
            let records = self.lock().log.read(read)?;
            for view in records.iter() {
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
                    return Ok(shipped);
                }
            }
            cursor = records.into_cursor();
        }
        Ok(shipped)
    }

    /// What a body has now where a record named bytes: whole blocks that fit their checksums.
    fn bytes_of_now(&self, extent: Extent) -> Result<Option<(u64, Bytes)>, NotShipped> {
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
    fn read_sums(&self, ino: Ino, first: u64, count: u64) -> Result<Vec<u32>, String> {
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
