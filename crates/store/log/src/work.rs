//! Work that the owner of a log performs without holding its lock: writing, syncing, preparing, removing.
//! Each piece is taken from the log, performed once, and its result is given back.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::boot::Boot;
use crate::{Config, Position};

/// Bytes of zeros that are written at once.
pub(crate) const ZEROS_BYTES: usize = 256 * 1024;
/// Permission bits of a segment.
const MODE: u32 = 0o600;
/// A segment that is ready: its size, zeros, synced.
const SPARE: &[u8] = b"spare";
/// A segment that is being made ready, or waits for it with anything in it.
const RAW: &[u8] = b"spare.new";

/// The files of a log.
pub(crate) struct Place<D> {
    pub(crate) disk: Arc<D>,
    pub(crate) prefix: Vec<u8>,
    pub(crate) segment_bytes: u64,
    /// The log has stopped. Held while the file `boot` is written.
    pub(crate) stopped: Mutex<bool>,
}

impl<D: Disk> Place<D> {
    pub(crate) fn new(disk: Arc<D>, prefix: &[u8], config: &Config) -> Self {
        let segment_bytes = config.segment_bytes;
        Self { disk, prefix: prefix.to_vec(), segment_bytes, stopped: Mutex::new(false) }
    }

    pub(crate) fn path(&self, name: &[u8]) -> Vec<u8> {
        if self.prefix.is_empty() { name.to_vec() } else { [&self.prefix, &b"/"[..], name].concat() }
    }

    pub(crate) fn segment(&self, first_seq: u64) -> Vec<u8> {
        self.path(format!("{first_seq:016x}.log").as_bytes())
    }

    /// The sequence number in a segment's name.
    pub(crate) fn parse(name: &[u8]) -> Option<u64> {
        let digits = name.strip_suffix(b".log").filter(|digits| digits.len() == 16)?;
        let lower = digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| lower)
    }

    /// A spare of an earlier life may hold anything: its rename into a segment can be lost when
    /// what was written to it then was not.
    pub(crate) fn distrust_spare(&self) -> io::Result<()> {
        ignore_missing(self.disk.rename(&self.path(SPARE), &self.path(RAW), true))
    }

    /// Removes a segment, or keeps its space to make the next spare from. Durably: a power cut could else take back the removal
    /// of a segment but not that of the next one, which leaves a gap among those that are kept; or it could take back the
    /// new name of one whose records are zeros by then.
    pub(crate) fn remove(&self, first_seq: u64, keep: bool) -> io::Result<()> {
        let path = self.segment(first_seq);
        ignore_missing(match keep {
            true => self.disk.rename(&path, &self.path(RAW), true),
            false => self.disk.unlink(&path),
        })?;
        self.disk.sync_dir(&self.prefix)
    }

    /// Makes the file of a segment that begins.
    pub(crate) fn begin(&self, first_seq: u64, from_spare: bool) -> io::Result<D::File> {
        let path = self.segment(first_seq);
        if from_spare {
            self.disk.rename(&self.path(SPARE), &path, false)?;
            return self.disk.open(&path, OpenHow::Write);
        }
        let file = self.disk.open(&path, OpenHow::CreateNew { mode: MODE })?;
        if let Err(error) = file.allocate(0, self.segment_bytes, false) {
            // The disk keeps what it could give: others need it, and the segment is begun again later.
            ignore_missing(self.disk.unlink(&path))?;
            return Err(error);
        }
        Ok(file)
    }

    fn prepare(&self, from: Option<u64>) -> io::Result<()> {
        if let Some(first_seq) = from {
            self.remove(first_seq, true)?;
        }
        let raw = self.path(RAW);
        let file = self.disk.open(&raw, OpenHow::Create { mode: MODE })?;
        if file.stat()?.size > self.segment_bytes {
            file.set_len(self.segment_bytes)?;
        }
        // First the space, so that a full disk is told before anything is written. It keeps what it could give of
        // it: that is given back, because checkpoints and bodies need it more.
        if let Err(error) = file.allocate(0, self.segment_bytes, false) {
            ignore_missing(self.disk.unlink(&raw))?;
            return Err(error);
        }
        write_zeros(&file, 0, self.segment_bytes)?;
        file.sync()?;
        self.disk.rename(&raw, &self.path(SPARE), true)
    }
}

/// Writes zeros to `[from, to)`.
pub(crate) fn write_zeros(file: &impl DiskFile, from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
    let mut at = from;
    while at < to {
        let n = (to - at).min(ZEROS_BYTES as u64);
        file.write_at(&ZEROS[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// A segment of the log. Its file is set once it was opened or made.
pub(crate) struct Segment<F> {
    pub(crate) first_seq: u64,
    /// Bytes of its file.
    pub(crate) bytes: u64,
    /// Checksum of its header, which seeds those of its records.
    pub(crate) seed: u32,
    pub(crate) file: OnceLock<F>,
}

/// The bytes of a batch from `start` on, up to the next part, go into `segment` at `offset`.
pub(crate) struct Part<F> {
    pub(crate) segment: Arc<Segment<F>>,
    pub(crate) offset: u64,
    pub(crate) start: usize,
    pub(crate) source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The segment has its file.
    Open,
    /// It begins with this part, in the spare.
    Spare,
    /// It begins with this part, in a file that must be made.
    Fresh,
}

/// Records that wait to be written. [`Batch::perform`], then [`crate::Log::written`].
#[must_use = "a batch that is not written stops the log for ever"]
pub struct Batch<D: Disk> {
    pub(crate) place: Arc<Place<D>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) parts: Vec<Part<D::File>>,
    pub(crate) last: Position,
    /// A segment that was let go of to make room for the batch: it is removed first.
    pub(crate) gives_up: Option<u64>,
}

/// A batch that was written, or failed to be.
#[must_use = "the log must be told"]
pub struct Performed<D: Disk> {
    pub(crate) batch: Batch<D>,
    pub(crate) result: io::Result<()>,
}

impl<D: Disk> Batch<D> {
    /// Position of the last record in it.
    pub const fn last(&self) -> Position {
        self.last
    }

    /// Bytes to be written.
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes it: one native write for each segment that it touches.
    pub fn perform(self) -> Performed<D> {
        let result = self.write();
        Performed { batch: self, result }
    }

    fn write(&self) -> io::Result<()> {
        // If it cannot be removed, there is no more room than before, which is told then. It goes when the log is opened.
        let _ = self.gives_up.map(|first_seq| self.place.remove(first_seq, false));
        for (i, part) in self.parts.iter().enumerate() {
            let end = self.parts.get(i + 1).map_or(self.bytes.len(), |next| next.start);
            // It may have begun when the batch was tried before, and found no space for the rest.
            if part.source != Source::Open && part.segment.file.get().is_none() {
                let file = self.place.begin(part.segment.first_seq, part.source == Source::Spare)?;
                assert!(part.segment.file.set(file).is_ok(), "a segment began twice");
            }
            let file = part.segment.file.get().expect("an earlier batch opened it");
            file.write_at(&self.bytes[part.start..end], part.offset)?;
        }
        Ok(())
    }
}

/// Files to sync. [`SyncWork::perform`], then [`crate::Log::synced`].
#[must_use = "no other sync is given out until this one is done"]
pub struct SyncWork<D: Disk> {
    pub(crate) place: Arc<Place<D>>,
    pub(crate) segments: Vec<Arc<Segment<D::File>>>,
    pub(crate) dir: bool,
    pub(crate) upto: u64,
    /// To be noted, if it is the first sync.
    pub(crate) boot: Option<Boot>,
}

/// A sync that was done, or failed.
#[derive(Debug)]
#[must_use = "the log must be told"]
pub struct Synced {
    pub(crate) upto: u64,
    pub(crate) result: io::Result<()>,
}

impl<D: Disk> SyncWork<D> {
    /// The last record that it makes durable.
    pub const fn upto(&self) -> u64 {
        self.upto
    }

    /// Syncs every segment that was written since its last sync, and the folder if one began.
    pub fn perform(self) -> Synced {
        let sync = || {
            for segment in &self.segments {
                segment.file.get().expect("it was written").sync()?;
            }
            if self.dir {
                self.place.disk.sync_dir(&self.place.prefix)?;
            }
            // Without it the next opening knows less, and nothing else.
            let _ = self.boot.map(|boot| self.place.note_boot(boot));
            Ok(())
        };
        Synced { upto: self.upto, result: sync() }
    }
}

/// A spare segment to make. [`Preparation::perform`], then [`crate::Log::prepared`].
#[must_use = "no other preparation is given out until this one is done"]
pub struct Preparation<D: Disk> {
    pub(crate) place: Arc<Place<D>>,
    /// A segment that was let go of, whose space is used.
    pub(crate) from: Option<u64>,
}

/// A spare that was made, or failed to be.
#[derive(Debug)]
#[must_use = "the log must be told"]
pub struct Prepared(pub(crate) io::Result<()>);

impl<D: Disk> Preparation<D> {
    /// Writes a segment of zeros, from a released one if there is one, and syncs it.
    pub fn perform(self) -> Prepared {
        Prepared(self.place.prepare(self.from))
    }
}

/// Segments to remove. [`Removal::perform`], then [`crate::Log::removed`].
#[must_use = "the segments are forgotten already and would stay until the log is opened again"]
pub struct Removal<D: Disk> {
    pub(crate) place: Arc<Place<D>>,
    pub(crate) segments: Vec<u64>,
    pub(crate) keep_first: bool,
}

/// Segments that were removed, or failed to be.
#[derive(Debug)]
#[must_use = "the log must be told"]
pub struct Removed {
    pub(crate) kept: bool,
    pub(crate) result: io::Result<()>,
}

impl<D: Disk> Removal<D> {
    /// Removes them, oldest first; if the log has no spare, the first one's space is kept for it.
    pub fn perform(self) -> Removed {
        let remove = || {
            for (i, first_seq) in self.segments.iter().enumerate() {
                self.place.remove(*first_seq, self.keep_first && i == 0)?;
            }
            Ok(())
        };
        Removed { kept: self.keep_first, result: remove() }
    }
}
