//! The end of a log that is being opened: decides whether it is loss or a torn tail, and repairs a torn tail.
//! Changes nothing before it knows that no synced record is missing.

use std::sync::OnceLock;

use atoll_disk::{Disk, DiskFile};

use crate::boot::Boot;
use crate::frame::{HEADER_BYTES, STRIDE_BYTES, ScanEnd, behind, is_zero, scan_records, trailing};
use crate::open::Loaded;
use crate::work::{Place, Segment, write_zeros};
use crate::{Config, Damage, Identity, LogError};

/// A segment that was scanned, without its bytes.
struct Scanned<F> {
    segment: Segment<F>,
    end: usize,
    last_seq: u64,
}

/// Facts that the scan collects.
pub(crate) struct Recovery<D: Disk> {
    pub(crate) place: Place<D>,
    identity: Identity,
    config: Config,
    /// Highest sequence number that is known to have been synced.
    known: u64,
    /// Facts about the last opening.
    pub(crate) boot: Boot,
    scanned: Vec<Scanned<D::File>>,
    /// Header of the segment that was scanned last.
    bytes: Vec<u8>,
}

/// The place, the segments with where their records end, and the torn bytes.
type Finished<D> = (Place<D>, Vec<(Segment<<D as Disk>::File>, usize)>, u64);

impl<D: Disk> Recovery<D> {
    pub(crate) fn new(
        place: Place<D>,
        identity: Identity,
        config: Config,
        known: u64,
    ) -> Result<Self, LogError> {
        let boot = place.boot()?;
        Ok(Self { place, identity, config, known, boot, scanned: Vec::new(), bytes: Vec::new() })
    }

    /// No power cut can have taken anything since the last opening.
    fn is_same_boot(&self) -> bool {
        self.config.boot != 0 && self.boot.boot == self.config.boot
    }

    /// Nor anything before it.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_same_boot() && self.boot.whole
    }

    pub(crate) fn passed(&mut self, loaded: Loaded<D::File>, scan: ScanEnd) {
        let Loaded { header, seed, bytes, file } = loaded;
        let (first_seq, of_file) = (header.first_seq(), bytes.len() as u64);
        let segment = Segment { first_seq, bytes: of_file, seed, file: OnceLock::from(file) };
        self.scanned.push(Scanned { segment, end: scan.end, last_seq: scan.last.seq });
        self.bytes = bytes;
        self.known = self.known.max(scan.synced);
    }

    /// Judges what is behind the last record, cuts it, and makes the rest durable. `later` are the
    /// segments behind the scanned ones, `stale` those before.
    pub(crate) fn finish(mut self, stale: &[u64], later: &[u64]) -> Result<Finished<D>, LogError> {
        let tail = self.scanned.last().expect("the scan has passed a segment");
        let (last, end, seed) = (tail.last_seq, tail.end, tail.segment.seed);
        let mut torn = trailing(&self.bytes[end..]);
        // Markers within the scanned part say how much of it was synced; those behind the hole,
        // whether the hole was. All of them are below the record that carries them.
        let max = self.config.record_bytes_max;
        let found = behind(&self.bytes, seed, max, end, last);
        let (mut known, mut written) = (self.known.max(found.synced), found.seq);
        for first_seq in later {
            let Some(loaded) = self.place.load(*first_seq, self.identity)? else {
                // It never began, or what it could prove is lost with the header. More than that is
                // written only behind a header.
                let bytes = trailing(&self.place.read(*first_seq)?.1);
                torn += bytes;
                if bytes > HEADER_BYTES as u64 {
                    written = written.max(*first_seq);
                }
                continue;
            };
            torn += trailing(&loaded.bytes);
            let found = behind(&loaded.bytes, loaded.seed, max, 0, last);
            known = known.max(loaded.header.synced).max(found.synced);
            written = written.max(loaded.header.predecessor.seq).max(found.seq);
        }
        if known > last {
            return Err(Damage::Lost { first: last + 1, known }.into());
        }
        if self.is_same_boot() && written > last {
            return Err(Damage::Hole { first: last + 1, behind: written }.into());
        }
        self.known = known;
        self.cut(end, later)?;
        self.write_again()?;
        for scanned in &self.scanned {
            file_of(scanned).sync()?;
        }
        self.place.disk.sync_dir(&self.place.prefix)?;
        // Not before: a power cut could take the first scanned one, if that was never synced.
        for first_seq in stale {
            self.place.remove(*first_seq, false)?;
        }
        // Last: until then a hole that a power cut has left is there. What was whole stays so: a process that dies now has lost
        // nothing. Else the owner has to say first what was lost.
        self.place.note_boot(Boot { boot: self.config.boot, whole: self.is_whole() })?;
        let segments = self.scanned.into_iter().map(|scanned| (scanned.segment, scanned.end)).collect();
        Ok((self.place, segments, torn))
    }

    /// Makes all behind the last record zeros, and removes the segments there.
    fn cut(&mut self, end: usize, later: &[u64]) -> Result<(), LogError> {
        let tail = self.scanned.last_mut().expect("the scan has passed a segment");
        tail.segment.bytes = tail.segment.bytes.max(self.config.segment_bytes);
        let file = file_of(tail);
        for (i, piece) in self.bytes[end..].chunks(STRIDE_BYTES).enumerate() {
            // Zeros are written only where something else is.
            if !is_zero(piece) {
                let from = (end + i * STRIDE_BYTES) as u64;
                write_zeros(file, from, from + piece.len() as u64)?;
            }
        }
        if (self.bytes.len() as u64) < self.config.segment_bytes {
            // The segment began shortly before a power cut that took its length.
            file.allocate(0, self.config.segment_bytes, false)?;
        }
        for first_seq in later {
            self.place.remove(*first_seq, false)?;
        }
        Ok(self.place.distrust_spare()?)
    }

    /// Writes records again that no marker calls synced: what was read may be in memory only, in
    /// pages that the kernel calls clean after a failed sync, and then a sync alone does nothing.
    fn write_again(&self) -> Result<(), LogError> {
        for scanned in self.scanned.iter().rev() {
            let first_seq = scanned.segment.first_seq;
            if scanned.last_seq <= self.known && first_seq <= self.known {
                break;
            }
            let Some(loaded) = self.place.load(first_seq, self.identity)? else {
                return Err(Damage::NoSegment { seq: first_seq }.into());
            };
            let mut from = if first_seq > self.known { Some(0) } else { None };
            let max = self.config.record_bytes_max;
            scan_records(&loaded.bytes, &loaded.header, loaded.seed, max, |at, record| {
                if record.position.seq > self.known {
                    from = from.or(Some(at));
                }
                Ok::<(), LogError>(())
            })?;
            if let Some(from) = from.filter(|from| *from < scanned.end) {
                file_of(scanned).write_at(&loaded.bytes[from..scanned.end], from as u64)?;
            }
        }
        Ok(())
    }
}

fn file_of<F>(scanned: &Scanned<F>) -> &F {
    scanned.segment.file.get().expect("a scanned segment is open")
}
