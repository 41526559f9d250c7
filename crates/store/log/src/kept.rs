//! What a log keeps behind its owner's checkpoint, for members of a group that come back. Never keeps what the owner
//! needs, and never says that a member may read it.
//!
//! Invariant: the segments that are kept go on without a gap up to the first one that the checkpoint needs.

use std::io;
use std::sync::OnceLock;

use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::frame::{HEADER_BYTES, SegmentHeader, scan_records};
use crate::log::Log;
use crate::work::{Place, Segment};
use crate::{Config, Identity, Position};

/// Epochs that are remembered, as in the tables that members send each other.
const EPOCHS_MAX: usize = 256;

/// The last record of each epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The record before the first one.
    pub(crate) base: Position,
    pub(crate) ends: Vec<Position>,
}

impl Ends {
    pub(crate) const fn new(base: Position) -> Self {
        Self { base, ends: Vec::new() }
    }

    /// Takes the next record, or the last one of those that are of its epoch. Forgets the oldest epoch if there are too many.
    pub(crate) fn note(&mut self, position: Position) {
        match self.ends.last_mut() {
            Some(end) if end.epoch == position.epoch => *end = position,
            _ => self.ends.push(position),
        }
        if self.ends.len() > EPOCHS_MAX {
            self.base = self.ends.remove(0);
        }
    }
}

/// A segment that can be kept: what it has is synced, and it ends where the next one begins.
struct Sealed<F> {
    segment: Segment<F>,
    predecessor: Position,
    /// The last record of each epoch in it.
    ends: Vec<Position>,
}

/// The segments before the one that begins behind `next`, as far as they may be kept, oldest first, and the epochs up to there.
/// `stale` are all that there are. One that cannot be read ends what is kept: nobody needs it, so it hinders no opening.
pub(crate) fn kept<D: Disk>(
    place: &Place<D>,
    identity: Identity,
    config: &Config,
    stale: &[u64],
    mut next: Position,
) -> (Vec<Segment<D::File>>, Ends) {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for first_seq in stale.iter().rev() {
        let Ok(Some(sealed)) = seal(place, identity, config, *first_seq, next) else { break };
        bytes += sealed.segment.bytes;
        if bytes > config.keep_bytes {
            break;
        }
        next = sealed.predecessor;
        found.push(sealed);
    }
    let (mut segments, mut ends) = (Vec::new(), Ends::new(next));
    for sealed in found.into_iter().rev() {
        sealed.ends.into_iter().for_each(|end| ends.note(end));
        segments.push(sealed.segment);
    }
    (segments, ends)
}

/// Reads of a segment whose last record must be `last` what is needed: its header, and all of it only if it has several epochs.
fn seal<D: Disk>(
    place: &Place<D>,
    identity: Identity,
    config: &Config,
    first_seq: u64,
    last: Position,
) -> io::Result<Option<Sealed<D::File>>> {
    let file = place.disk.open(&place.segment(first_seq), OpenHow::Read)?;
    let mut head = [0; HEADER_BYTES];
    if file.read_full(&mut head, 0)? < HEADER_BYTES {
        return Ok(None);
    }
    let bytes = file.stat()?.size;
    let Ok((header, seed)) = SegmentHeader::decode(&head) else { return Ok(None) };
    let predecessor = header.predecessor;
    if header.identity != identity || header.first_seq() != first_seq || predecessor.seq >= last.seq {
        return Ok(None);
    }
    let mut ends = Ends::new(predecessor);
    if predecessor.epoch == last.epoch {
        // Epochs never fall from one record to the next.
        ends.note(last);
    } else {
        let Ok((_, bytes)) = place.read(first_seq) else { return Ok(None) };
        let scanned = scan_records(&bytes, &header, seed, config.record_bytes_max, |_, record| {
            ends.note(record.position);
            Ok::<(), std::convert::Infallible>(())
        });
        match scanned {
            Ok(scan) if scan.last == last => {}
            Ok(_) => return Ok(None),
            Err(never) => match never {},
        }
    }
    let segment = Segment { first_seq, bytes, seed, file: OnceLock::from(file) };
    Ok(Some(Sealed { segment, predecessor, ends: ends.ends }))
}

impl<D: Disk> Log<D> {
    /// Keeps the records from this one on, behind the checkpoint too, as far as [`Config::keep_bytes`] goes. [`Log::release`]
    /// lets go of those before it. A log that was opened keeps all that it finds, until it is told otherwise.
    ///
    /// `keep(u64::MAX)` and `release(0)` give back all space that is taken by records behind the checkpoint.
    pub const fn keep(&mut self, from: u64) {
        self.keep = from;
    }

    /// Keeps the records from this one on whatever [`Config::keep_bytes`] says, while somebody is about to read them. They go when
    /// the disk has no space, as all that is kept. The owner says when that is too much.
    pub const fn hold(&mut self, from: u64) {
        self.hold = from;
    }

    /// True if the owner can do without the first segment.
    pub(crate) fn has_kept(&self) -> bool {
        // The next segment must itself be durable, or a power cut could leave no segment at all.
        let needed = (self.checkpoint + 1).min(self.synced);
        self.segments.get(1).is_some_and(|next| next.first_seq <= needed)
    }

    /// Bytes of the segments that the owner can do without.
    fn kept_bytes(&self) -> u64 {
        let needed = (self.checkpoint + 1).min(self.synced);
        let followed = self.segments.iter().zip(self.segments.iter().skip(1));
        followed.take_while(|(_, next)| next.first_seq <= needed).map(|(segment, _)| segment.bytes).sum()
    }

    /// Takes the first segment off, if the owner can do without it.
    pub(crate) fn give_up(&mut self) -> Option<u64> {
        self.has_kept().then(|| self.segments.pop_front().expect("the first segment is kept").first_seq)
    }

    /// Takes the segments off that are not to be kept, oldest first.
    pub(crate) fn give_up_old(&mut self) -> Vec<u64> {
        let mut over = self.kept_bytes().saturating_sub(self.config.keep_bytes);
        let mut gone = Vec::new();
        while self.has_kept()
            && self.segments[1].first_seq <= self.hold
            && (over > 0 || self.segments[1].first_seq <= self.keep)
        {
            over = over.saturating_sub(self.segments[0].bytes);
            gone.extend(self.give_up());
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_epochs_is_forgotten() {
        let at = |epoch: u32| Position { epoch, seq: u64::from(epoch) * 10 };
        let mut ends = Ends::new(Position::default());
        for epoch in 1..=300 {
            ends.note(Position { seq: at(epoch).seq - 5, ..at(epoch) });
            ends.note(at(epoch));
        }
        assert_eq!((ends.base, ends.ends.len()), (at(44), EPOCHS_MAX));
        assert_eq!((ends.ends[0], ends.ends[EPOCHS_MAX - 1]), (at(45), at(300)));
    }
}
