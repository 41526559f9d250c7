//! Log records: decided operations, as the rows that they change and what happens to bodies.
//!
//! A record says what is, never what to work out: applying one sets rows, so that every replica
//! and every recovery ends with the same state whatever version of the rules decided it.

use atoll_core::{Ino, IslandId, Name, SessionId, Stamp, TxnId, wire_enum, wire_struct};
use atoll_posix::locks::Locks;
use bytes::Bytes;

use crate::message::JournalEntry;
use crate::row::{Dir, Entry, Inode, Remembered, Session, Txn, Xattrs};

wire_struct! {
    /// One decided operation.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Record {
        /// Rows that change, in order.
        pub changes: Vec<Change>,
        /// What happens to bodies, in order. Carried bytes follow the encoded record in the log.
        pub bodies: Vec<BodyChange>,
    }
}

wire_enum! {
    /// A row set (`Some`) or removed (`None`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Change {
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
            result: Remembered },
        /// A client begins (`on`) or ends to hold locks on a file or to keep it alive.
        17 => Held { /// The client.
            session: SessionId, /// The file.
            ino: Ino, /// Begins.
            on: bool },
        /// A journal entry that `island` has not applied yet (`Some`), or has now (`None`).
        11 => Outbox { /// For whom.
            island: IslandId, /// The coordinator's clock: this island's.
            stamp: Stamp, /// The entry.
            entry: Option<JournalEntry> },
        /// How far this island has applied `island`'s journal.
        12 => Clock { /// The coordinator.
            island: IslandId, /// Its stamp.
            stamp: Stamp },
        /// Ids below this counter may be minted once this record is synced.
        13 => MintLimit { /// Counter.
            limit: u64 },
        /// A new incarnation of the island.
        14 => Incarnation { /// Counts up with every unclean start.
            incarnation: u32 },
        /// Stamps up to this were given in this incarnation.
        16 => Stamp { /// The last one.
            stamp: Stamp },
        /// The body may differ from its checksums from here to the next checkpoint.
        15 => Dirty { /// The file.
            ino: Ino },
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
            len: u64 },
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
