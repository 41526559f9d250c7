//! Brings a copy that nobody uses to the record of another one, so that the two can be compared. For copies on disks that are
//! not kept, as overlays are: it asks no group.

use atoll_disk::Disk;
use atoll_group::OpenedLog;
use atoll_log::Position;

use crate::engine::{Engine, Halted};
use crate::follow::NotTaken;
use crate::ship::NotShipped;

/// Bytes of records that are taken at once.
const TAKEN_BYTES: usize = 4 << 20;

/// Why a copy cannot be brought to the record of another one.
#[derive(Debug, thiserror::Error)]
pub enum NotLevel {
    /// It has records that the other one has not.
    #[error("it has {more} records that the other copy has not, and which are cut off when it starts")]
    Apart {
        /// How many.
        more: u64,
    },
    /// The two logs have no record in common that both still have.
    #[error("the logs of the two copies have no record in common")]
    Foreign,
    /// The other one's log does not give what this copy lacks, or bytes there are damaged.
    #[error("the other copy cannot give the records that it lacks: {0}")]
    NotShipped(#[from] NotShipped),
    /// This copy does not take it.
    #[error("it cannot take the records that it lacks: {0}")]
    NotTaken(#[from] NotTaken),
}

impl From<Halted> for NotLevel {
    fn from(halted: Halted) -> Self {
        Self::NotTaken(halted.into())
    }
}

impl<D: Disk> Engine<D> {
    /// Takes the records that another copy has and this one lacks, with the bytes that they name; how many. Both follow, and both
    /// logs were told when they were opened.
    pub fn take_from<E: Disk>(
        &self,
        log: &OpenedLog,
        (other, others): (&Engine<E>, &OpenedLog),
    ) -> Result<u64, NotLevel> {
        let (last, goal) = (self.last(), other.last());
        if !others.epochs.has(last) {
            let common = others.epochs.common(&log.epochs).ok_or(NotLevel::Foreign)?;
            return Err(if common.seq < last.seq {
                NotLevel::Apart { more: last.seq - common.seq }
            } else {
                NotLevel::Foreign
            });
        }
        let mut at: Position = last;
        while at != goal {
            let shipment = other.shipment(at, TAKEN_BYTES)?;
            let Some(taken) = shipment.records.last().map(|shipped| shipped.position) else {
                return Err(NotShipped::Unreadable("its log ends before its last record".to_owned()).into());
            };
            self.take(shipment)?;
            self.apply()?;
            at = taken;
        }
        Ok(goal.seq - last.seq)
    }

    /// Brings all rows of a copy that follows into its snapshot.
    pub fn settle_rows(&self) -> Result<(), Halted> {
        // Nobody cuts off what it has.
        self.know_synced(u64::MAX);
        // A checkpoint that a record has asked for may be under way.
        self.housekeep();
        self.begin_checkpoint();
        self.housekeep();
        if self.is_halted() {
            return Err(Halted { island: self.id(), why: "its rows cannot be brought together".to_owned() });
        }
        Ok(())
    }
}
