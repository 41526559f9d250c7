//! What a copy remembers of its group over its own end, and the bytes of the file `seat` (`docs/FORMATS.md`). Never written here.
//!
//! The file has two slots, which are written in turn, so that a write that is cut off leaves the one before.

use atoll_core::sum::{extend, sum};
use atoll_core::{Decode, Encode, Malformed, wire_struct};
use atoll_proto::{GroupRecord, Host};

/// Bytes of a slot. More than the largest seat, and as many as disks write at once, so that no write of one slot touches the other.
pub const SLOT_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"ATOLSEAT";
const VERSION: u32 = 1;
/// Bytes that the checksum covers before the fields: magic, version, length of the fields, number of the write.
const SUMMED_BYTES: usize = 24;
/// The same and the checksum.
const HEADER_BYTES: usize = 28;

wire_struct! {
    /// See the module. The engine keeps it beside the island's folder.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct SeatFile {
        /// Number of the copy's data: higher whenever it may have lost something.
        pub tenure: u32,
        /// Where it was written.
        pub host: Option<Host>,
        /// The highest epoch that was seen.
        pub seen: u32,
        /// Epochs come from the control store. Else the copy is alone and counts them itself.
        pub grouped: bool,
        /// It was alone, and has not yet read a record: it makes the first one.
        pub makes_first: bool,
        /// Bytes of records that were cut off are in its bodies, over what was there before. That ends when the copy has a seat again.
        pub cut: bool,
        /// The copy was made empty over what was there before, or its rows were taken from another one and bytes are missing. It never
        /// leads. That ends when it has a seat.
        pub lacks: bool,
        /// The group's record as it was last read, with its revision.
        pub record: Option<(u64, GroupRecord)>,
    }
}

/// The bytes of a slot are no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeatError {
    /// It was never written.
    #[error("it was never written")]
    Blank,
    /// It ends too early.
    #[error("it is too short")]
    Short,
    /// Something else lies there.
    #[error("it is no seat")]
    Foreign,
    /// Written by a later version of Atoll.
    #[error("it has format {0}, which this version does not know")]
    Unsupported(u32),
    /// A write was cut off, or the bytes have changed since.
    #[error("its checksum is wrong")]
    Checksum,
    /// The checksum is right, and the fields say something impossible.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

impl SeatFile {
    /// Of a copy that is made empty as a member of a group that begins with it.
    pub const fn of_a_new_member() -> Self {
        Self {
            tenure: 1,
            host: None,
            seen: 0,
            grouped: true,
            makes_first: false,
            cut: false,
            lacks: false,
            record: None,
        }
    }

    /// Of a copy that is made empty in a group that there was before: its tenure is found when the record was read.
    pub fn of_an_empty_copy() -> Self {
        Self { lacks: true, ..Self::of_a_new_member() }
    }

    /// Of an island that is alone.
    pub fn of_one() -> Self {
        Self { grouped: false, ..Self::of_a_new_member() }
    }

    /// The bytes of a slot, for the write of this number.
    pub fn to_slot(&self, number: u64) -> [u8; SLOT_BYTES] {
        let fields = self.to_vec();
        let len = u32::try_from(fields.len()).expect("a seat is small");
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(MAGIC);
        slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
        slot[12..16].copy_from_slice(&len.to_le_bytes());
        slot[16..24].copy_from_slice(&number.to_le_bytes());
        let crc = extend(sum(&slot[..SUMMED_BYTES]), &fields);
        slot[24..28].copy_from_slice(&crc.to_le_bytes());
        // A record has 16 members at most.
        slot[HEADER_BYTES..HEADER_BYTES + fields.len()].copy_from_slice(&fields);
        slot
    }

    /// The seat in a slot, and the number of the write.
    pub fn from_slot(slot: &[u8]) -> Result<(u64, Self), SeatError> {
        let (header, rest) = slot.split_at_checked(HEADER_BYTES).ok_or(SeatError::Short)?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        if slot.iter().all(|byte| *byte == 0) {
            return Err(SeatError::Blank);
        }
        if &header[..8] != MAGIC {
            return Err(SeatError::Foreign);
        }
        // A later version may have its checksum elsewhere.
        if number(8) > VERSION {
            return Err(SeatError::Unsupported(number(8)));
        }
        let fields = rest.get(..number(12) as usize).ok_or(SeatError::Short)?;
        if extend(sum(&header[..SUMMED_BYTES]), fields) != number(24) {
            return Err(SeatError::Checksum);
        }
        let write = u64::from(number(16)) | u64::from(number(20)) << 32;
        Ok((write, Self::from_slice(fields)?))
    }

    /// Whether its tenure may be one that an earlier copy on this node had.
    pub(crate) const fn is_nameless(&self) -> bool {
        self.lacks && self.record.is_none()
    }

    /// Whether the data directory in which the file lies is another one than when it was written: a copy of it.
    pub(crate) fn was_moved(&self, to: Host) -> bool {
        self.host.is_some_and(|was| was.inode != to.inode)
    }
}
