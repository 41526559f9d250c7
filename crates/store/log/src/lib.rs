//! The ordered log of an island: segments of checksummed records on a [`Disk`](atoll_disk::Disk).
//! Knows positions and bytes; never what a record means, never when to write, sync or release.
//!
//! # From append to durable
//!
//! [`Log::append`] gives a record its position and copies it into a buffer: no system call. The
//! owner, with its lock held, takes the buffer as a [`Batch`], lets go of the lock, has the batch
//! write itself (one native write, one more for each segment that begins in it), and hands the
//! result to [`Log::written`]. [`Log::take_sync`] and [`Log::synced`] do the same for syncs,
//! [`Log::preparation`] for the next segment, [`Log::release`] for old ones. One batch and one sync
//! are under way at most: a sync error is told by the kernel only once, so a second sync at the
//! same time could be told that all is well. After a failed write or sync the log stops: every
//! later call gives [`LogError::Stopped`].
//!
//! # Reading
//!
//! [`Log::take_read`] and [`Log::read`] give what is written behind any record that the log still has, in pieces of so
//! many bytes as the reader wishes, while the log goes on: a copy that was away catches up by it ([`Cursor`]). The log
//! remembers nothing of its readers, so whoever releases must know how far they are.
//!
//! # What is kept
//!
//! [`Log::release`] tells the log how far its owner's checkpoint has come. Segments before it are kept for members of a group that
//! are away, as far as the owner wishes ([`Log::keep`]) and as [`Config::keep_bytes`] allows. They outlive a start, and they go first when
//! the next segment finds no space. [`Log::first_seq`] tells where the log begins.
//!
//! # Segments
//!
//! A segment is a file of fixed size, named by its first sequence number, zeros behind its last
//! record. One spare is kept ready, written with zeros and synced, so that beginning a segment is a
//! rename, syncing a record changes no file metadata, and deletes can still be logged on a full
//! disk. A record lies in one segment; where it does not fit, the next segment begins.
//!
//! # Where the log ends: the torn-tail rule
//!
//! Reading stops at the first record that is short, fails its checksum, does not name the record
//! before it as its predecessor, or does not have the next sequence number, unless a segment of
//! exactly the next sequence number, naming the last record as its predecessor, goes on there.
//! Call the missing sequence number e. A power cut may lose any sectors and names since the last
//! sync, so valid records behind e prove nothing by themselves: without other evidence, the log ends
//! before e, and everything behind is cut (zeroed or removed, and synced) before anything is
//! appended. But e was synced once, and its absence is [`Damage::Lost`], never cut, if one of these
//! is at least e:
//! - the position that the owner's checkpoint has reached, or `must_reach`;
//! - a `synced` marker: each record and each segment header carries the highest sequence number
//!   that was known to be synced when it was appended. Markers behind e count, in any segment
//!   whose header is valid and in any record there whose checksum is. The checksum is seeded with
//!   its segment's header, so bytes of a log inside a payload do not pass for records.
//! - the same boot of the machine ([`Config::boot`], kept in the file `boot`): between then and now
//!   there was no power cut, and the death of a process takes nothing but the end of one write. So
//!   any record or segment behind e shows that e was written, and its absence is [`Damage::Hole`].
//!
//! [`Log::cut_back`] alone takes synced records back, by a durable intent first (see `cut.rs`).
//!
//! What is read may be in the page cache only (the process died, or a sync failed and the kernel
//! calls the pages clean): opening writes all records above the last marker again, and syncs,
//! before it says that they are there.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod boot;
mod cut;
mod frame;
mod kept;
mod log;
mod open;
mod read;
mod recover;
mod work;

use std::io;
use std::sync::Arc;

pub use atoll_core::Position;
pub use boot::WholeNote;
pub use frame::{HEADER_BYTES, RECORD_HEADER_BYTES, RecordView, ScanEnd, SegmentHeader, scan_segment};
pub use log::Log;
pub use open::Opened;
pub use read::{Cursor, ReadBytes, ReadWork, Records};
pub use work::{Batch, Performed, Preparation, Prepared, Removal, Removed, SyncWork, Synced};

/// Whose log it is: written into each segment, so that no log is taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The volume.
    pub volume: u64,
    /// The island in it.
    pub island: u16,
}

/// Sizes of a log, and in which boot of the machine it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a segment. May change between openings.
    pub segment_bytes: u64,
    /// Largest payload of a record. Must never become smaller than what is in the log.
    pub record_bytes_max: u32,
    /// Bytes that wait to be written at most; beyond, appends are [`LogError::Full`].
    pub buffer_bytes_max: usize,
    /// Bytes of segments that are kept at most although the checkpoint covers them. 0 for a log that has no other copies; else
    /// [`KEEP_BYTES`].
    pub keep_bytes: u64,
    /// The boot of the machine: a number that changes with each power cut. 0: not known.
    pub boot: u128,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            record_bytes_max: 4 << 20,
            buffer_bytes_max: 32 << 20,
            keep_bytes: 0,
            boot: 0,
        }
    }
}

impl Config {
    fn check(&self) {
        let least = HEADER_BYTES as u64 + frame::record_bytes(self.record_bytes_max as usize) as u64;
        assert!(self.segment_bytes >= least, "a segment of {} cannot hold a record", self.segment_bytes);
        assert!(self.segment_bytes <= SEGMENT_BYTES_MAX, "a segment is read in one piece");
        assert!(self.buffer_bytes_max as u64 >= least, "the buffer cannot hold a record");
    }
}

/// Bytes that the log of a member of a group keeps for the other members.
pub const KEEP_BYTES: u64 = 512 << 20;

/// Largest segment that is read.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Why the reader of the records refuses one.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// Errors of a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed while the log was opened, created or prepared. It may be tried again.
    #[error("log: {0}")]
    Io(#[from] io::Error),
    /// A write or sync failed earlier: nothing may be promised any more. Stop the island; only
    /// opening the log again tells what is there.
    #[error("the log has stopped: {reason}")]
    Stopped {
        /// The call that failed.
        reason: Arc<str>,
    },
    /// The payload is over [`Config::record_bytes_max`]. Nothing was appended.
    #[error("a record of {bytes} bytes is larger than a record may be")]
    TooLarge {
        /// Bytes of the payload.
        bytes: usize,
    },
    /// Too much waits to be written. Nothing was appended; write, then try again.
    #[error("the log's buffer is full")]
    Full,
    /// A record from elsewhere does not follow the last one here. Nothing was appended.
    #[error("the record does not follow {last:?}")]
    Mismatch {
        /// The last record here.
        last: Position,
    },
    /// The reader's position is behind a record that this log does not have any more.
    #[error("records before {first} were released")]
    Released {
        /// The first that is still there.
        first: u64,
    },
    /// There is a log with records where one was to be created.
    #[error("there is a log already")]
    Exists,
    /// The log is not what it must be. Nothing was changed. The island needs another copy or an
    /// operator.
    #[error("the log is damaged: {0}")]
    Damaged(#[from] Damage),
    /// Written by a later version of Atoll.
    #[error("the log has format {version}, which this version does not know")]
    Unsupported {
        /// Format version of the segment.
        version: u32,
    },
    /// The reader of the records refused one.
    #[error("record {seq}: {source}")]
    Refused {
        /// The record's sequence number.
        seq: u64,
        /// Why.
        source: Refusal,
    },
}

/// The kinds of damage of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// No segment with a valid header holds, or goes on from, the position asked for.
    #[error("no readable segment holds record {seq}")]
    NoSegment {
        /// The first sequence number that is needed.
        seq: u64,
    },
    /// A record that was synced is not there.
    #[error("record {first} is lost, records up to {known} were synced")]
    Lost {
        /// The first that is missing or unreadable.
        first: u64,
        /// The last that is known to have been synced.
        known: u64,
    },
    /// A record that was written is not there, and no power cut can have taken it.
    #[error(
        "record {first} cannot be read, but record {behind} behind it is there, and the machine has \
            not been started anew since they were written"
    )]
    Hole {
        /// The first that is missing or unreadable.
        first: u64,
        /// The highest that is known to have been written.
        behind: u64,
    },
    /// The checkpoint is of another history than the log.
    #[error("the checkpoint stands at {checkpoint:?}, the log has {found:?} there")]
    OtherHistory {
        /// The position of the checkpoint.
        checkpoint: Position,
        /// The record of that number.
        found: Position,
    },
    /// The log was to be cut back below the owner's checkpoint, or such a cut was begun.
    #[error("a cut back to {to:?} would take back what the checkpoint at {checkpoint:?} has")]
    CutBelow {
        /// The last record that was to stay.
        to: Position,
        /// The position of the checkpoint.
        checkpoint: Position,
    },
    /// A segment belongs to another volume or island.
    #[error("segment {first_seq:016x} belongs to {found:?}")]
    Foreign {
        /// The segment.
        first_seq: u64,
        /// Whose it is.
        found: Identity,
    },
    /// A segment is larger than any that is written.
    #[error("segment {first_seq:016x} has {bytes} bytes")]
    Oversized {
        /// The segment.
        first_seq: u64,
        /// Its length.
        bytes: u64,
    },
}
