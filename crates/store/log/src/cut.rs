//! Cutting a log back: a replica takes back records that its new primary does not have. Only by this does a
//! synced record leave the end of a log.
//!
//! The records that are cut carry markers that call them synced, so a half-done cut looks like damage.
//! Therefore the intent is made durable first, and opening finishes a cut that was begun.

use std::io;
use std::sync::Arc;

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::frame::{HEADER_BYTES, position_at, position_bytes, scan_records};
use crate::log::Log;
use crate::open::Loaded;
use crate::work::{Place, write_zeros};
use crate::{Config, Damage, Identity, LogError, Position};

/// The file that holds the intent.
const INTENT: &[u8] = b"cut";
const MAGIC: [u8; 8] = *b"ATOLLCUT";
/// Magic, position and checksum.
const INTENT_BYTES: usize = 28;

/// Nothing is to be cut back any more: a log that goes is not.
pub(crate) fn forget_cut<D: Disk>(place: &Place<D>) -> std::io::Result<()> {
    match place.disk.unlink(&place.path(INTENT)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn encode(to: Position) -> [u8; INTENT_BYTES] {
    let mut bytes = [0; INTENT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..24].copy_from_slice(&position_bytes(to));
    let crc = crc32c::crc32c(&bytes[..24]);
    bytes[24..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The intent, unless it is not whole: then it was never synced, and nothing was cut.
fn decode(bytes: &[u8]) -> Option<Position> {
    let to = (bytes.len() == INTENT_BYTES).then(|| position_at(bytes, 8))?;
    (bytes == encode(to)).then_some(to)
}

impl<D: Disk> Log<D> {
    /// Takes back every record behind `to`, durably. The log must not be open: drop it, cut, open it
    /// again. [`LogError::Mismatch`] if record `to` is not in the log, with what is there instead;
    /// [`Damage::CutBelow`] if it lies before `checkpoint`, up to which the owner's state stands: the log has records there if it keeps
    /// them for others, but a cut there would leave none that go on from the state. Nothing was changed then.
    ///
    /// After a failure or a crash on the way, opening the log finishes the cut.
    pub fn cut_back(
        disk: Arc<D>,
        prefix: &[u8],
        config: Config,
        identity: Identity,
        checkpoint: Position,
        to: Position,
    ) -> Result<(), LogError> {
        let place = Place::new(disk, prefix, &config);
        finish_cut(&place, config, identity, checkpoint)?;
        is_above(checkpoint, to)?;
        let (loaded, end) = find(&place, config, identity, to)?;
        let intent = place.disk.open(&place.path(INTENT), OpenHow::CreateNew { mode: 0o600 })?;
        intent.write_at(&encode(to), 0)?;
        intent.sync()?;
        place.disk.sync_dir(&place.prefix)?;
        cut(&place, &loaded, end)
    }
}

/// A cut takes back nothing that the checkpoint has.
const fn is_above(checkpoint: Position, to: Position) -> Result<(), Damage> {
    if to.seq < checkpoint.seq { Err(Damage::CutBelow { to, checkpoint }) } else { Ok(()) }
}

/// Finishes a cut that was begun, if there is one.
pub(crate) fn finish_cut<D: Disk>(
    place: &Place<D>,
    config: Config,
    identity: Identity,
    checkpoint: Position,
) -> Result<(), LogError> {
    let intent = match place.disk.open(&place.path(INTENT), OpenHow::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        intent => intent?,
    };
    let mut bytes = [0; INTENT_BYTES + 1];
    let n = intent.read_at(&mut bytes, 0)?;
    let Some(to) = decode(&bytes[..n]) else {
        place.disk.unlink(&place.path(INTENT))?;
        return Ok(place.disk.sync_dir(&place.prefix)?);
    };
    is_above(checkpoint, to)?;
    // It may have been read from memory only: it must be durable before anything is cut.
    let again = place.disk.open(&place.path(INTENT), OpenHow::Write)?;
    again.write_at(&bytes[..n], 0)?;
    again.sync()?;
    place.disk.sync_dir(&place.prefix)?;
    let (loaded, end) = find(place, config, identity, to)?;
    cut(place, &loaded, end)
}

/// The segment that holds record `to`, or goes on from it as the log's first, and the offset behind
/// the record.
fn find<D: Disk>(
    place: &Place<D>,
    config: Config,
    identity: Identity,
    to: Position,
) -> Result<(Loaded<D::File>, usize), LogError> {
    let segments = place.segments()?;
    let missing = Damage::NoSegment { seq: to.seq };
    let holds = segments.iter().rposition(|first| *first <= to.seq);
    let first_seq = *segments.get(holds.unwrap_or(0)).ok_or(missing.clone())?;
    let loaded = place.load(first_seq, identity)?.ok_or(missing)?;
    if loaded.header.predecessor == to {
        return Ok((loaded, HEADER_BYTES));
    }
    let mut end = None;
    let max = config.record_bytes_max;
    let scan = scan_records(&loaded.bytes, &loaded.header, loaded.seed, max, |at, record| {
        match record.position.seq == to.seq {
            true if record.position != to => Err(LogError::Mismatch { last: record.position }),
            true => {
                end = Some(at + crate::frame::record_bytes(record.payload.len()));
                Ok(())
            }
            false => Ok(()),
        }
    })?;
    match end {
        Some(end) => Ok((loaded, end.min(scan.end))),
        None => Err(LogError::Mismatch { last: scan.last }),
    }
}

fn cut<D: Disk>(place: &Place<D>, loaded: &Loaded<D::File>, end: usize) -> Result<(), LogError> {
    write_zeros(&loaded.file, end as u64, loaded.bytes.len() as u64)?;
    loaded.file.sync()?;
    for first_seq in place.segments()?.into_iter().rev() {
        if first_seq > loaded.header.first_seq() {
            place.remove(first_seq, false)?;
        }
    }
    // The segments are durably gone before the intent is, and the intent before anything is appended.
    place.disk.unlink(&place.path(INTENT))?;
    Ok(place.disk.sync_dir(&place.prefix)?)
}
