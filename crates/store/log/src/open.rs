//! Creating a log and opening one: which segments there are, and which of them to read. [`crate::recover`]
//! judges and repairs the bytes behind the last good record.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::boot::Boot;
use crate::cut::{finish_cut, forget_cut};
use crate::frame::{HEADER_BYTES, NoHeader, SegmentHeader, scan_records};
use crate::kept::{Ends, kept};
use crate::log::{Log, Spare};
use crate::recover::Recovery;
use crate::work::{Place, Segment};
use crate::{Config, Damage, Identity, LogError, Position, RecordView, Refusal, SEGMENT_BYTES_MAX};

/// The report of an opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The last record, or the checkpoint's position if there is none behind it.
    pub last: Position,
    /// Records behind the checkpoint: how many were handed to the reader.
    pub records: u64,
    /// Bytes behind the last record that were not zero: a torn tail, cut now.
    pub torn_bytes: u64,
    /// True if nothing was cut: no torn bytes and no segment behind the last record.
    pub clean: bool,
    /// True if all that was ever written is there, apart from what the owner has noted as lost: the log was noted as whole in
    /// this same boot of the machine, by a sync or by [`Log::note_whole`], and no write or sync has failed since. It stays so noted,
    /// however often the log is opened.
    pub whole: bool,
    /// The record before the first that can be read, or before the first one of the epochs that are told.
    pub base: Position,
    /// The last record of each epoch behind it, also of those that are kept before the checkpoint: of the last 256 epochs.
    pub ends: Vec<Position>,
}

/// A segment whose header is valid, with its bytes.
pub(crate) struct Loaded<F> {
    pub(crate) header: SegmentHeader,
    pub(crate) seed: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: F,
}

impl<D: Disk> Place<D> {
    /// All segments by name, in order.
    pub(crate) fn segments(&self) -> io::Result<Vec<u64>> {
        let names = self.disk.list(&self.prefix)?;
        let mut segments: Vec<u64> = names.iter().filter_map(|(name, _)| Self::parse(name)).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    /// Reads a segment; `None` without a valid header that fits its name.
    pub(crate) fn load(
        &self,
        first_seq: u64,
        identity: Identity,
    ) -> Result<Option<Loaded<D::File>>, LogError> {
        let (file, bytes) = self.read(first_seq)?;
        match SegmentHeader::decode(&bytes) {
            Err(NoHeader::Version(version)) => Err(LogError::Unsupported { version }),
            Err(NoHeader::Invalid) => Ok(None),
            Ok((header, _)) if header.first_seq() != first_seq => Ok(None),
            Ok((header, _)) if header.identity != identity => {
                Err(Damage::Foreign { first_seq, found: header.identity }.into())
            }
            Ok((header, seed)) => Ok(Some(Loaded { header, seed, bytes, file })),
        }
    }

    /// Reads all of a segment's file.
    pub(crate) fn read(&self, first_seq: u64) -> Result<(D::File, Vec<u8>), LogError> {
        let file = self.disk.open(&self.segment(first_seq), OpenHow::Write)?;
        let size = file.stat()?.size;
        if size > SEGMENT_BYTES_MAX {
            return Err(Damage::Oversized { first_seq, bytes: size }.into());
        }
        let mut bytes = vec![0; size as usize];
        let done = file.read_full(&mut bytes, 0)?;
        bytes.truncate(done);
        Ok((file, bytes))
    }
}

impl<D: Disk> Log<D> {
    fn new(place: Place<D>, config: Config, identity: Identity, last: Position, tail_at: u64) -> Self {
        Self {
            place: Arc::new(place),
            config,
            identity,
            last,
            written: last.seq,
            synced: last.seq,
            checkpoint: 0,
            keep: 0,
            hold: u64::MAX,
            segments: VecDeque::new(),
            tail_at,
            buffer: Vec::new(),
            parts: Vec::new(),
            empty: Vec::new(),
            writing: false,
            stuck: None,
            retries: false,
            lacks_space: false,
            syncing: false,
            unsynced: Vec::new(),
            dir_unsynced: false,
            spare: Spare::Missing,
            stopped: None,
            noted: false,
            life: Arc::new(()),
        }
    }

    /// Makes a durable empty log in the folder `prefix` of `disk`, going on from `base` (all zeros
    /// for a new island, the checkpoint's position for a copied one). A log without records that is
    /// there already is replaced; one with records is [`LogError::Exists`].
    pub fn create(
        disk: Arc<D>,
        prefix: &[u8],
        config: Config,
        identity: Identity,
        base: Position,
    ) -> Result<Self, LogError> {
        config.check();
        let place = Place::new(disk, prefix, &config);
        if !prefix.is_empty() {
            match place.disk.mkdir(prefix, 0o700) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
            let parent = prefix.iter().rposition(|b| *b == b'/').unwrap_or(0);
            place.disk.sync_dir(&prefix[..parent])?;
        }
        for first_seq in place.segments()? {
            // Whatever the header says: bytes behind it are, or were, records.
            let (_, bytes) = place.read(first_seq)?;
            if bytes.iter().skip(HEADER_BYTES).any(|b| *b != 0) {
                return Err(LogError::Exists);
            }
        }
        for first_seq in place.segments()? {
            place.remove(first_seq, false)?;
        }
        forget_cut(&place)?;
        place.distrust_spare()?;
        let (header, seed) = SegmentHeader { identity, predecessor: base, synced: base.seq }.encode();
        let first_seq = base.seq + 1;
        let file = place.begin(first_seq, false)?;
        file.write_at(&header, 0)?;
        file.sync()?;
        place.disk.sync_dir(prefix)?;
        place.note_boot(Boot { boot: config.boot, whole: false })?;
        let mut log = Self::new(place, config, identity, base, HEADER_BYTES as u64);
        log.checkpoint = base.seq;
        let bytes = config.segment_bytes;
        log.segments.push_back(Arc::new(Segment { first_seq, bytes, seed, file: OnceLock::from(file) }));
        Ok(log)
    }

    /// Opens a log, hands every record behind the checkpoint to `visit` in order, cuts a torn tail,
    /// and makes all that it handed out durable. Segments before the checkpoint stay, as far as they go on to it without a gap
    /// and [`Config::keep_bytes`] allows; the others are removed.
    ///
    /// `checkpoint` is the last record that the owner's synced state contains; the log must hold
    /// everything behind it. `must_reach` is a sequence number that the owner knows to have been
    /// synced, by whatever means; 0 if it knows of none. If this fails, what `visit` was given must
    /// be thrown away.
    pub fn open(
        disk: Arc<D>,
        prefix: &[u8],
        config: Config,
        identity: Identity,
        checkpoint: Position,
        must_reach: u64,
        visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), Refusal>,
    ) -> Result<(Self, Opened), LogError> {
        config.check();
        let place = Place::new(disk, prefix, &config);
        finish_cut(&place, config, identity, checkpoint)?;
        let mut later: VecDeque<u64> = place.segments()?.into();
        let mut stale = Vec::new();
        let mut loaded = None;
        // The one that goes on from the checkpoint, or the last readable one before it: if that one
        // should have been read and cannot be, records are missing, and the scan will say so.
        let candidates = later.partition_point(|first| *first <= checkpoint.seq.saturating_add(1));
        for i in (0..candidates).rev() {
            loaded = place.load(later[i], identity)?;
            if loaded.is_some() {
                stale.extend(later.drain(..i));
                later.pop_front();
                break;
            }
        }
        let mut at = loaded.ok_or(Damage::NoSegment { seq: checkpoint.seq.saturating_add(1) })?;
        let (kept, mut ends) = kept(&place, identity, &config, &stale, at.header.predecessor);
        stale.truncate(stale.len() - kept.len());
        let mut recovery = Recovery::new(place, identity, config, checkpoint.seq.max(must_reach))?;
        let mut records = 0;
        judge(checkpoint, at.header.predecessor)?;
        let last = loop {
            let scan = scan_records(&at.bytes, &at.header, at.seed, config.record_bytes_max, |_, record| {
                judge(checkpoint, record.position)?;
                ends.note(record.position);
                if record.position.seq <= checkpoint.seq {
                    return Ok(());
                }
                records += 1;
                let seq = record.position.seq;
                visit(record).map_err(|source| LogError::Refused { seq, source })
            })?;
            recovery.passed(at, scan);
            match later.front() {
                Some(next) if *next == scan.last.seq.saturating_add(1) => {
                    match recovery.place.load(*next, identity)? {
                        Some(next) if next.header.predecessor == scan.last => at = next,
                        _ => break scan.last,
                    }
                    later.pop_front();
                }
                _ => break scan.last,
            }
        };
        let whole = recovery.is_whole();
        let (place, scanned, torn_bytes) = recovery.finish(&stale, later.make_contiguous())?;
        let tail_at = scanned.last().map_or(0, |(_, end)| *end as u64);
        let clean = torn_bytes == 0 && later.is_empty();
        let mut log = Self::new(place, config, identity, last, tail_at);
        let scanned = scanned.into_iter().map(|(segment, _)| segment);
        log.segments.extend(kept.into_iter().chain(scanned).map(Arc::new));
        (log.checkpoint, log.noted) = (checkpoint.seq, whole);
        let Ends { base, ends } = ends;
        Ok((log, Opened { last, records, torn_bytes, clean, whole, base, ends }))
    }
}

/// The record at the checkpoint's number must be the checkpoint's.
fn judge(checkpoint: Position, found: Position) -> Result<(), LogError> {
    if found.seq == checkpoint.seq && found != checkpoint {
        return Err(Damage::OtherHistory { checkpoint, found }.into());
    }
    Ok(())
}
