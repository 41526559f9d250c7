//! The bytes of segments and records. Touches no disk; takes any bytes without a panic.
//!
//! Layouts stand in `docs/FORMATS.md`.

use crate::{Identity, Position};

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: usize = 48;
/// Records begin at multiples of this, so that they can be looked for.
const ALIGN: usize = 8;
/// Zeros are passed over in such strides: most of a segment is zeros when its log is opened.
pub(crate) const STRIDE_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"ATOLLLOG";
const VERSION: u32 = 1;

/// Bytes that a record with so large a payload takes in a segment.
pub(crate) const fn record_bytes(payload: usize) -> usize {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(ALIGN)
}

/// The first bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose log it is.
    pub identity: Identity,
    /// The record before the segment's first.
    pub predecessor: Position,
    /// Highest sequence number known to be synced when the segment began.
    pub synced: u64,
}

/// Why a segment's first bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// Short, blank or corrupt: the segment never began, or is unreadable.
    Invalid,
    /// It has a later version.
    Version(u32),
}

/// Whether these bytes, of which there are at most [`STRIDE_BYTES`], are all zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; STRIDE_BYTES] = [0; STRIDE_BYTES];
    bytes == &ZEROS[..bytes.len()]
}

/// Bytes up to the last one that is not zero.
pub(crate) fn trailing(bytes: &[u8]) -> u64 {
    let Some(at) = bytes.chunks(STRIDE_BYTES).rposition(|piece| !is_zero(piece)) else { return 0 };
    let piece = &bytes[at * STRIDE_BYTES..];
    let in_piece = piece[..piece.len().min(STRIDE_BYTES)].iter().rposition(|b| *b != 0);
    (at * STRIDE_BYTES) as u64 + in_piece.map_or(0, |last| last as u64 + 1)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn position_at(bytes: &[u8], at: usize) -> Position {
    Position { epoch: u32_at(bytes, at + 4), seq: u64_at(bytes, at + 8) }
}

pub(crate) fn position_bytes(position: Position) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&u32::from(position.epoch > 0).to_le_bytes());
    bytes[4..8].copy_from_slice(&position.epoch.to_le_bytes());
    bytes[8..].copy_from_slice(&position.seq.to_le_bytes());
    bytes
}

impl SegmentHeader {
    /// Sequence number of the segment's first record.
    pub const fn first_seq(&self) -> u64 {
        self.predecessor.seq + 1
    }

    /// The header's bytes, and their checksum, which seeds those of the segment's records.
    pub(crate) fn encode(&self) -> ([u8; HEADER_BYTES], u32) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.identity.island.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.identity.volume.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_seq().to_le_bytes());
        bytes[32..48].copy_from_slice(&position_bytes(self.predecessor));
        bytes[48..56].copy_from_slice(&self.synced.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Reads the header of a segment, and the checksum that seeds its records'.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u32), NoHeader> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(NoHeader::Invalid)?;
        let crc = u32_at(bytes, 60);
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..60]) != crc {
            return Err(NoHeader::Invalid);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(NoHeader::Version(version));
        }
        let island = u16::from_le_bytes([bytes[12], bytes[13]]);
        let identity = Identity { volume: u64_at(bytes, 16), island };
        let predecessor = position_at(bytes, 32);
        if predecessor.seq.checked_add(1) != Some(u64_at(bytes, 24)) {
            return Err(NoHeader::Invalid);
        }
        Ok((Self { identity, predecessor, synced: u64_at(bytes, 48) }, crc))
    }
}

/// A record, in the bytes that it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Its place.
    pub position: Position,
    /// The record before it.
    pub predecessor: Position,
    /// Highest sequence number known to be synced when it was appended.
    pub synced: u64,
    /// The owner's bytes.
    pub payload: &'a [u8],
}

/// Appends a record to `out`: one copy of the payload, one pass of the checksum over it.
pub(crate) fn push_record(
    out: &mut Vec<u8>,
    seed: u32,
    position: Position,
    predecessor: Position,
    synced: u64,
    payload: &[&[u8]],
    payload_bytes: usize,
) {
    let start = out.len();
    out.reserve(record_bytes(payload_bytes));
    let len = u32::try_from(payload_bytes).expect("records are far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&position_bytes(position));
    out.extend_from_slice(&position_bytes(predecessor));
    out.extend_from_slice(&synced.to_le_bytes());
    for slice in payload {
        out.extend_from_slice(slice);
    }
    let crc = crc32c::crc32c_append(seed, &out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + record_bytes(payload_bytes), 0);
}

/// The record at the front of `bytes`, if a whole and valid one is there.
pub(crate) fn read_record(bytes: &[u8], seed: u32, payload_max: u32) -> Option<RecordView<'_>> {
    let header = bytes.get(..RECORD_HEADER_BYTES)?;
    let len = u32_at(header, 0);
    let (position, predecessor) = (position_at(header, 8), position_at(header, 24));
    // Cheap tests first: most of what is looked at behind a hole is no record.
    if len > payload_max
        || predecessor.seq.checked_add(1) != Some(position.seq)
        || position.epoch < predecessor.epoch
    {
        return None;
    }
    let whole = bytes.get(..RECORD_HEADER_BYTES + len as usize)?;
    if crc32c::crc32c_append(seed, &whole[8..]) != u32_at(header, 4) {
        return None;
    }
    let synced = u64_at(header, 40);
    Some(RecordView { position, predecessor, synced, payload: &whole[RECORD_HEADER_BYTES..] })
}

/// Bytes that the record at the front of `bytes` takes, as its first bytes say; none if they say nothing that can be.
pub(crate) fn claimed_bytes(bytes: &[u8], payload_max: u32) -> Option<usize> {
    let len = u32_at(bytes.get(..RECORD_HEADER_BYTES)?, 0);
    (len <= payload_max).then(|| record_bytes(len as usize))
}

/// The end of a segment's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanEnd {
    /// Offset behind the last record.
    pub end: usize,
    /// The last record, or the segment's predecessor.
    pub last: Position,
    /// Highest sequence number known to be synced, by markers so far.
    pub synced: u64,
}

/// Reads a whole segment: its header, and each record in order with its offset, until the first
/// that is not valid. `None` if there is no valid header. Takes any bytes.
pub fn scan_segment<'a>(
    bytes: &'a [u8],
    payload_max: u32,
    mut visit: impl FnMut(usize, RecordView<'a>),
) -> Option<(SegmentHeader, ScanEnd)> {
    let (header, seed) = SegmentHeader::decode(bytes).ok()?;
    let end = scan_records(bytes, &header, seed, payload_max, |at, record| {
        visit(at, record);
        Ok::<(), std::convert::Infallible>(())
    });
    match end {
        Ok(end) => Some((header, end)),
        Err(never) => match never {},
    }
}

/// [`scan_segment`] behind a header that is known; `visit` may stop it.
pub(crate) fn scan_records<'a, E>(
    bytes: &'a [u8],
    header: &SegmentHeader,
    seed: u32,
    payload_max: u32,
    mut visit: impl FnMut(usize, RecordView<'a>) -> Result<(), E>,
) -> Result<ScanEnd, E> {
    let mut scan = ScanEnd { end: HEADER_BYTES, last: header.predecessor, synced: header.synced };
    while let Some(record) = bytes.get(scan.end..).and_then(|rest| read_record(rest, seed, payload_max)) {
        if record.predecessor != scan.last {
            break;
        }
        visit(scan.end, record)?;
        scan.end += record_bytes(record.payload.len());
        scan.last = record.position;
        scan.synced = scan.synced.max(record.synced);
    }
    scan.end = scan.end.min(bytes.len());
    Ok(scan)
}

/// Facts from valid records behind a hole: the highest of their numbers, and of their markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Behind {
    pub(crate) seq: u64,
    pub(crate) synced: u64,
}

/// Facts from valid records from `from` on whose number is above `seq`; zeros if there are none.
pub(crate) fn behind(bytes: &[u8], seed: u32, payload_max: u32, from: usize, seq: u64) -> Behind {
    let mut found = Behind::default();
    let mut at = from.next_multiple_of(ALIGN);
    while at + RECORD_HEADER_BYTES <= bytes.len() {
        // No record's header is all zeros. One that begins in the last of these bytes may still be a record.
        if bytes.get(at..at + STRIDE_BYTES).is_some_and(is_zero) {
            at += STRIDE_BYTES - RECORD_HEADER_BYTES;
            continue;
        }
        match read_record(&bytes[at..], seed, payload_max) {
            Some(record) if record.position.seq > seq => {
                found.seq = found.seq.max(record.position.seq);
                found.synced = found.synced.max(record.synced);
                at += record_bytes(record.payload.len());
            }
            _ => at += ALIGN,
        }
    }
    found
}
