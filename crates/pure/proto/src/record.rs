//! Log records: decided operations, as the rows that they set and the changes of bodies.
//!
//! Applying a record sets rows and computes nothing. So every replica and every recovery ends with the same
//! state, whichever version of the rules decided it.

use atoll_core::{
    Decode, Encode, Ino, IslandId, Malformed, Name, Reader, SessionId, Stamp, TxnId, wire_enum,
};
use atoll_posix::locks::Locks;
use bytes::Bytes;

use crate::message::JournalEntry;
use crate::row::{CarriedLink, Dir, Entry, Forward, Inode, RequestResult, Session, Txn, Xattrs};

/// One decided operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Rows that change, in order.
    pub changes: Vec<RowChange>,
    /// What happens to bodies, in order.
    pub bodies: Vec<BodyChange>,
}

impl Record {
    /// Tag of [`BodyChange::Bytes`], whose bytes stand behind the record.
    const BYTES: u8 = 1;

    /// Appends everything but carried bytes to `head`; those follow it in the log, in order.
    pub fn encode_head<'a>(&'a self, head: &mut Vec<u8>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.changes.encode(head);
        (self.bodies.len() as u32).encode(head);
        for change in &self.bodies {
            match change {
                BodyChange::Bytes { ino, offset, bytes } => {
                    Self::BYTES.encode(head);
                    ino.encode(head);
                    offset.encode(head);
                    (bytes.len() as u32).encode(head);
                }
                other => other.encode(head),
            }
        }
        self.bodies.iter().filter_map(|change| match change {
            BodyChange::Bytes { bytes, .. } => Some(bytes.as_ref()),
            _ => None,
        })
    }

    /// Length in bytes of the payload that a log takes: what [`Record::encode_head`] appends, and what follows it.
    pub fn encoded_len(&self) -> usize {
        self.changes.encoded_len() + self.bodies.encoded_len()
    }

    /// Reads a record and the bytes that it carries.
    pub fn decode_whole(payload: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(payload);
        let changes = Vec::decode(&mut r)?;
        let count = u32::decode(&mut r)? as usize;
        if count > r.remaining() {
            return Err(Malformed::new("count of body changes"));
        }
        let mut bodies = Vec::new();
        let mut carried = Vec::new();
        for _ in 0..count {
            if r.peek() == Some(Self::BYTES) {
                u8::decode(&mut r)?;
                let (ino, offset) = (Ino::decode(&mut r)?, u64::decode(&mut r)?);
                carried.push((bodies.len(), u32::decode(&mut r)? as usize));
                bodies.push(BodyChange::Bytes { ino, offset, bytes: Bytes::new() });
            } else {
                bodies.push(BodyChange::decode(&mut r)?);
            }
        }
        for (i, len) in carried {
            let BodyChange::Bytes { bytes, .. } = &mut bodies[i] else { unreachable!("pushed as such") };
            *bytes = Bytes::copy_from_slice(r.take(len, "carried bytes")?);
        }
        r.finish()?;
        Ok(Self { changes, bodies })
    }
}

wire_enum! {
    /// A row set (`Some`) or removed (`None`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum RowChange {
        /// A file.
        1 => Inode { /// Its id.
            ino: Ino, /// The row.
            row: Option<Box<Inode>> },
        /// A directory of the skeleton.
        2 => Dir { /// Its id.
            ino: Ino, /// The row.
            row: Option<Box<Dir>> },
        /// A name.
        3 => Entry { /// The directory.
            dir: Ino, /// The name.
            name: Name, /// The row.
            row: Option<Entry> },
        /// Extended attributes of a file or directory.
        4 => Xattrs { /// Its id.
            ino: Ino, /// The row.
            row: Option<Xattrs> },
        /// Block checksums of a file from block `first` on.
        5 => Sums { /// Its id.
            ino: Ino, /// First block.
            first: u64, /// One a block.
            sums: Vec<u32> },
        /// A file has no blocks at or above `first` any more.
        6 => SumsCut { /// Its id.
            ino: Ino, /// First block that is gone.
            first: u64, /// First block that the file did not have before.
            end: u64 },
        /// Locks on a file.
        7 => Locks { /// Its id.
            ino: Ino, /// The row.
            row: Option<Locks> },
        /// A transaction.
        8 => Txn { /// Its id.
            txn: TxnId, /// The row.
            row: Option<Box<Txn>> },
        /// A client.
        9 => Session { /// Its id.
            session: SessionId, /// The row.
            row: Option<Session> },
        /// The result of one request of a client; results below `acked` go.
        10 => Result { /// The client.
            session: SessionId, /// Its request.
            seq: u64, /// The client has what is below this.
            acked: u64, /// The result.
            result: RequestResult },
        /// A result that is taken back: what it told of did not survive. Repeated, the request is
        /// carried out again.
        22 => TakenBack { /// The client.
            session: SessionId, /// Its request.
            seq: u64 },
        /// A client begins (`on`) or ends to hold locks on a file or to keep it alive.
        17 => Held { /// The client.
            session: SessionId, /// The file.
            ino: Ino, /// Begins.
            on: bool },
        /// The end of a client has begun. More records let go of what it holds.
        27 => Ending { /// The client.
            session: SessionId },
        /// A mount may keep what it is told from here on (`on`), or has dropped what it had.
        33 => Keeps { /// The mount.
            session: SessionId, /// It may.
            on: bool },
        /// An entry of this island's journal, kept until all others have it.
        11 => Posted { /// This island's clock.
            stamp: Stamp, /// The entry.
            entry: JournalEntry },
        /// An island has applied and synced this island's journal up to a stamp.
        18 => Delivered { /// Which.
            island: IslandId, /// Stamp.
            upto: Stamp },
        /// All others have applied and synced it up to this stamp: its entries are kept no longer.
        19 => Unposted { /// Stamp.
            upto: Stamp },
        /// An entry of another island's journal, kept until it survives a power cut there.
        20 => Received { /// The coordinator.
            island: IslandId, /// Its stamp.
            stamp: Stamp, /// The entry.
            entry: JournalEntry },
        /// Another island's journal survives up to this stamp: its entries are kept no longer.
        21 => Unreceived { /// The coordinator.
            island: IslandId, /// Its stamp.
            upto: Stamp },
        /// How far this island has applied `island`'s journal.
        12 => Clock { /// The coordinator.
            island: IslandId, /// Its stamp.
            stamp: Stamp },
        /// The same. The last entry is private: only its coordinator and at most one other island have anything of the directory that
        /// it is about.
        42 => PrivateClock { /// The coordinator.
            island: IslandId, /// Its stamp.
            stamp: Stamp },
        /// Ids below this counter may be minted once this record is synced.
        13 => MintLimit { /// Counter.
            limit: u64 },
        /// A new incarnation of the island: the epoch of its group, in which this is the first record.
        14 => Incarnation { /// Higher than all before it.
            incarnation: u32, /// How the one before has ended.
            ended: LifeEnd },
        /// Stamps up to this were given in this incarnation.
        16 => Stamp { /// The last one.
            stamp: Stamp },
        /// At the root's owner: the last move of a directory to another parent that an island has
        /// coordinated, and that has happened.
        23 => Moved { /// The coordinator.
            island: IslandId, /// Its stamp of before the move.
            stamp: Stamp },
        /// Where a file is that was homed here.
        24 => Forward { /// Its id.
            ino: Ino, /// The row.
            row: Option<Forward> },
        /// A directory has got another name or parent: its path does not tell its key any more. Forgotten
        /// when the directory goes.
        30 => Renamed { /// The directory.
            ino: Ino },
        /// A symbolic link to a directory.
        31 => Link { /// Its id.
            ino: Ino, /// The row.
            row: Option<Box<CarriedLink>> },
        /// An island has said that it has all of this island's.
        32 => LinksTold { /// Which.
            island: IslandId, /// Their digest.
            digest: u64 },
        /// This island's journal up to a stamp is not kept for an island that is away: that compares when it
        /// returns. Of this island itself: it doubts what it has, and compares; `Delivered` ends that.
        40 => Skipped { /// Which.
            island: IslandId, /// Stamp.
            upto: Stamp },
        /// A row of a machine beside the island, in its table of this number. Islands keep it and never read it.
        41 => Side { /// The table.
            table: u8, /// Which of its rows.
            id: u128, /// The row.
            row: Option<Bytes> },
        /// A checkpoint is made of what is here, this record included, at every copy of the island that can.
        25 => Checkpoint { /// The island was stopped in order behind this.
            clean: bool },
        /// The body may differ from its checksums from here to the next checkpoint.
        15 => Dirty { /// The file.
            ino: Ino },
    }
}

wire_enum! {
    /// How an incarnation of an island has ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LifeEnd {
        /// Everything that it had told others is here.
        0 => Whole,
        /// The power may have failed: records may be missing that others rely on.
        1 => PowerCut,
        /// Another copy leads, which had everything that was told to others.
        2 => Promoted,
    }
}

wire_enum! {
    /// What an operation does to a body.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum BodyChange {
        /// Bytes that the record carries.
        1 => Bytes { /// The file.
            ino: Ino, /// Where.
            offset: u64, /// They.
            bytes: Bytes },
        /// Bytes that were put into the body before the record.
        2 => Extent { /// The file.
            ino: Ino, /// Where.
            offset: u64, /// How many.
            len: u64, /// Carried bytes below them were promised: they are synced first, at every copy.
            promised: bool },
        /// The file ends here now; what was behind is gone.
        3 => Cut { /// The file.
            ino: Ino, /// Length in bytes.
            len: u64 },
        /// A range reads as zeros now.
        4 => Zero { /// The file.
            ino: Ino, /// Where.
            offset: u64, /// How many.
            len: u64 },
        /// Space is reserved for a range.
        5 => Allocate { /// The file.
            ino: Ino, /// Where.
            offset: u64, /// How many.
            len: u64 },
        /// The body goes.
        6 => Drop { /// The file.
            ino: Ino },
    }
}

impl BodyChange {
    /// The file.
    pub const fn ino(&self) -> Ino {
        match self {
            Self::Bytes { ino, .. }
            | Self::Extent { ino, .. }
            | Self::Cut { ino, .. }
            | Self::Zero { ino, .. }
            | Self::Allocate { ino, .. }
            | Self::Drop { ino } => *ino,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carried_bytes_follow_the_head_and_come_back() {
        let record = Record {
            changes: vec![RowChange::Dirty { ino: Ino(7) }],
            bodies: vec![
                BodyChange::Bytes { ino: Ino(7), offset: 3, bytes: Bytes::from_static(b"one") },
                BodyChange::Cut { ino: Ino(8), len: 9 },
                BodyChange::Bytes { ino: Ino(9), offset: 0, bytes: Bytes::from_static(b"two") },
            ],
        };
        let mut payload = Vec::new();
        let carried: Vec<u8> = record.encode_head(&mut payload).flatten().copied().collect();
        assert_eq!(carried, b"onetwo");
        payload.extend(carried);
        assert_eq!(payload.len(), record.encoded_len());
        assert_eq!(Record::decode_whole(&payload), Ok(record));
        payload.pop();
        assert!(Record::decode_whole(&payload).is_err());
    }
}
