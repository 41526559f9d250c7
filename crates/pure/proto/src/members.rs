//! What the members of an island's group tell each other (`docs/design/018-copies.md`). Only shapes; `pure/group` decides what
//! they cause.

use atoll_core::{Ino, IslandId, NodeId, Position, VolumeId, wire_enum, wire_struct};

use crate::group::{Host, Primary};

wire_struct! {
    /// A process that serves a node.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct NodeLife {
        /// The node.
        pub node: NodeId,
        /// How often its daemon has started.
        pub life: u32,
        /// Where it runs.
        pub host: Host,
    }
}

impl NodeLife {
    /// This process as a primary, by one of its attempts to lead.
    pub const fn as_primary(self, attempt: u32) -> Primary {
        let Self { node, life, host } = self;
        Primary { node, life, host, attempt }
    }
}

impl Primary {
    /// Its process.
    pub const fn process(self) -> NodeLife {
        let Self { node, life, host, .. } = self;
        NodeLife { node, life, host }
    }
}

wire_struct! {
    /// Which epochs a log has: for each, in order, its last record.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
    pub struct EpochTable {
        /// The record before the first one of which the epoch is known.
        pub base: Position,
        /// The last record of each epoch behind it.
        pub ends: Vec<Position>,
    }
}

wire_struct! {
    /// Blocks of a body.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct BodyBlocks {
        /// Whose.
        pub ino: Ino,
        /// The first one.
        pub first: u64,
        /// How many.
        pub count: u32,
    }
}

wire_struct! {
    /// What a primary has of blocks of a body.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct FetchedPiece {
        /// Bytes of the payload; 0 if the file has gone or is shorter.
        pub len: u32,
        /// The primary's own bytes do not fit their sums.
        pub damaged: bool,
    }
}

wire_enum! {
    /// What members of a group tell each other. The records of an `Append` and the bytes that they name are the payload
    /// of its frame.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub enum GroupMessage {
        /// From the primary: take these records.
        1 => Append { /// The primary's epoch.
            epoch: u32, /// The record before the first of these.
            after: Position, /// The records: for each epoch among them the last one. None: a question.
            ends: Vec<Position>, /// The group has committed up to this record.
            commit: u64, /// The group has synced up to this one.
            synced: u64, /// Members keep their log from this record on.
            keep: u64 },
        /// To the primary: how far the sender's log is that of this epoch.
        2 => Has { /// The epoch.
            epoch: u32, /// Which data says so.
            tenure: u32, /// Up to here records are written, and the bytes that they name are in place.
            written: u64, /// Up to here they are synced.
            synced: u64, /// Bytes that the sender's disk has for it.
            room: u64, /// Its log finds no space.
            stuck: bool, /// Blocks of its bodies that it has yet to fetch; until then it has nothing.
            differs: u32 },
        /// From the primary: sync these bodies, and the log up to this record.
        3 => SyncTo { /// The primary's epoch.
            epoch: u32, /// Number of the question; 0: all bodies that records up to this one have named since the receiver's snapshot.
            number: u64, /// The record.
            seq: u64, /// The bodies.
            bodies: Vec<Ino> },
        /// To the primary: that is done.
        4 => SyncedTo { /// The epoch.
            epoch: u32, /// Which data says so.
            tenure: u32, /// Number of the question.
            number: u64, /// Its record.
            seq: u64 },
        /// To the primary: the records do not follow on the sender's log, or it wants to come back.
        5 => Join { /// Number of its data.
            tenure: u32, /// Its snapshot is as of this record: it cannot be cut back further.
            checkpoint: u64, /// What its log has.
            epochs: EpochTable },
        /// From the primary: the log no longer has what follows on that; the copy must be filled anew.
        6 => Released { /// The primary's epoch.
            epoch: u32, /// The last record that both logs are known to have.
            common: Option<Position> },
        /// The sender has seen this epoch, and takes nothing of a lower one.
        7 => Refused { /// The epoch.
            epoch: u32 },
        /// The sender hears no primary: what it has, so that the best copy leads.
        8 => Standing { /// Its last record.
            last: Position, /// Number of its data.
            tenure: u32, /// It may have lost what its seat stood for.
            void: bool, /// It has cut off records whose bytes are still in its bodies: another one shall lead.
            cut: bool, /// It wants to hear the same of the receiver.
            asks: bool },
        /// From the primary: it leads this epoch no longer, and never will.
        9 => Resign { /// The epoch.
            epoch: u32, /// Who shall lead; none: any.
            to: Option<NodeId>, /// Its last record.
            last: Position },
        /// The sender's copy has stopped.
        10 => Halted { /// The highest epoch that it has seen.
            epoch: u32 },
        /// To the primary: the sender's blocks of these bodies differ from their sums.
        11 => Fetch { /// Number of the question: the answer repeats it.
            number: u64, /// The blocks.
            blocks: Vec<BodyBlocks> },
        /// From the primary: their bytes, in the payload, with the sums of records that all members have synced.
        12 => Fetched { /// The primary's epoch.
            epoch: u32, /// Number of the question.
            number: u64, /// What there is of each of the blocks, in their order.
            pieces: Vec<FetchedPiece> },
        /// To the primary: the sender must be filled, and wants rows of a snapshot.
        13 => FillFrom { /// The snapshot of which it has rows already; zeros: none.
            at: Position, /// The last key that it has.
            after: Vec<u8> },
        /// From the primary: rows, in the payload, in the order of their keys.
        14 => Rows { /// The primary's epoch.
            epoch: u32, /// The record that the snapshot is as of.
            at: Position, /// The key behind which they begin; none: with the first.
            after: Vec<u8>, /// There are no more behind them.
            last: bool },
        /// To the primary: the sender must be filled, and wants to know how much that is.
        15 => Weigh,
        /// From the primary: so much, as of its last checkpoint.
        16 => Weight { /// The primary's epoch.
            epoch: u32, /// Files.
            files: u64, /// Their bytes.
            bytes: u64 },
    }
}

wire_struct! {
    /// A node says of which islands it is the primary, on a link of its own.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Beacon {
        /// Number of the beacon: the answer repeats it.
        pub token: u64,
        /// The islands, with their epochs.
        pub leads: Vec<(VolumeId, (IslandId, u32))>,
    }
}

wire_struct! {
    /// The answer: for a while the answering node claims none of these islands by silence.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Promised {
        /// Number of the beacon.
        pub token: u64,
        /// Except these, with the highest epochs that it has seen.
        pub refused: Vec<(VolumeId, (IslandId, u32))>,
    }
}
