//! What a group's machine is told, and what it wants done. Only shapes.

use atoll_core::{Ino, NodeId, Position};
use atoll_proto::{GroupMessage, GroupRecord, NodeLife};

use crate::epochs::Epochs;
use crate::seat::SeatFile;

/// A log as it was opened, all of it applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpenedLog {
    /// Nothing that was written can be missing.
    pub whole: bool,
    /// Its epochs, and so its last record.
    pub epochs: Epochs,
    /// Its snapshot is as of this record. What it has may not be cut back.
    pub checkpoint: u64,
    /// The first record that can be read from it, or the next one that will be appended.
    pub first: u64,
    /// The last record with changes of bodies; 0: none.
    pub last_body: u64,
    /// Blocks of bodies that differ from their sums, and that a follower has to fetch.
    pub differs: u32,
}

/// What came of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SwapOutcome {
    /// It is done, and this is the revision.
    Done(u64),
    /// The revision was another one.
    Conflict,
    /// It may be done, now or later.
    Unknown,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GroupEvent {
    /// Time has passed: at least each 100 ms.
    Tick,
    /// A member has greeted on a new link; links of a node are numbered upwards as they come up here.
    Link {
        /// Who.
        who: NodeLife,
        /// The link.
        link: u64,
    },
    /// A message has come.
    Heard {
        /// From this node.
        from: NodeId,
        /// On this link.
        link: u64,
        /// The message.
        message: GroupMessage,
    },
    /// A node has promised, by its answer to a beacon that left at this time of the own boot clock.
    Promised {
        /// The node.
        node: NodeId,
        /// When the beacon left.
        sent_ms: u64,
    },
    /// A node has refused a beacon: it has seen this epoch.
    RefusedBeacon {
        /// The epoch.
        epoch: u32,
    },
    /// A linearizable read of the record has ended.
    ReadDone {
        /// Its number.
        number: u64,
        /// The revision and the record, or none if there is none yet; none at all: the store was not reached.
        found: Option<(u64, Option<GroupRecord>)>,
    },
    /// A swap has ended, or its time was over.
    Swapped {
        /// Its number.
        number: u64,
        /// How.
        outcome: SwapOutcome,
    },
    /// The record may have changed.
    RecordChanged,
    /// The island's machine has decided records up to this one, and the log has taken them.
    Decided {
        /// The record.
        seq: u64,
    },
    /// Of the records that [`GroupEffect::Take`] has asked for, only those up to this one were taken: the log finds no space, or the
    /// frame does not have the others. A `Take` behind them that was asked for before this was told finds no place, and is dropped
    /// without a word. What `Committed` and `SyncedAll` have said beyond it is said again when it is there.
    NotTaken {
        /// The last record of the log.
        last: u64,
    },
    /// The copy is to lead, and its disk has no room for bytes that must be in place before. It has decided nothing.
    NoRoomToLead,
    /// The own log is written up to this record, and all bytes that it names are in place.
    Written {
        /// The record.
        seq: u64,
        /// The last one of them with changes of bodies; 0: none.
        last_body: u64,
    },
    /// The own log is synced up to this record.
    Synced {
        /// The record.
        seq: u64,
    },
    /// A round of syncs that [`GroupEffect::Sync`] has asked for is done here, bodies and log.
    SyncDone {
        /// The epoch of the primary that has asked for it.
        epoch: u32,
        /// Its number.
        number: u64,
        /// The record that it named.
        seq: u64,
    },
    /// A file is to be synced at all members: [`GroupEffect::RoundDone`] when it is.
    SyncAll {
        /// Number of the round; they rise.
        number: u64,
        /// The record.
        seq: u64,
        /// The bodies.
        bodies: Vec<Ino>,
    },
    /// How the own disk is.
    Disk {
        /// Bytes for this island.
        room: u64,
        /// The log finds no space.
        stuck: bool,
        /// Blocks that are yet to be fetched.
        differs: u32,
    },
    /// The log was taken into a snapshot, or removed up to a record.
    Kept {
        /// The snapshot's record.
        checkpoint: u64,
        /// The first record that can be read.
        first: u64,
    },
    /// The engine was closed or cut back, as asked for, and is open again.
    Opened {
        /// Its log.
        log: OpenedLog,
    },
    /// All rows of the primary's snapshot are here, beside the own ones.
    Filled,
    /// There shall be so many copies, on the first of these nodes. Links of nodes that are new are told again behind it.
    Wanted {
        /// So many.
        copies: u8,
        /// All nodes of the group, in the order in which they lead. Those behind the first ones keep their copies until all of these
        /// are in sync.
        ring: Vec<NodeId>,
    },
    /// This copy shall lead no longer, because of an order or the end of its daemon.
    Leave {
        /// Who shall lead then.
        to: Option<NodeId>,
    },
    /// The own disk has failed, the copy cannot go on, or its process is about to end.
    Stopped,
    /// An administrator has this copy lead, whatever is lost by it. It holds for ten seconds, and means nothing at a copy that leads or
    /// hears a primary.
    Force,
}

/// By what a copy leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeadBy {
    /// It was a follower.
    Promotion,
    /// Its own process was the primary before. The engine knows whether that ended in order.
    Restart,
    /// No copy is whole: something may be lost.
    PowerCut,
}

/// What is to be done, in this order: each is done before the next one is begun. [`GroupEffect::Sync`], `Read`, `Swap`,
/// `Close`, `CutTo` and `Refill` are only begun; an event tells their end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GroupEffect {
    /// Write this down, and sync it.
    SaveSeat(SeatFile),
    /// Note that nothing is missing from the log, as of this boot: a death from here on loses nothing.
    NoteWhole,
    /// Read the record.
    Read {
        /// Number of the read.
        number: u64,
    },
    /// Swap the record.
    Swap {
        /// Number of the swap.
        number: u64,
        /// If it has this revision; 0: if there is none.
        expect: u64,
        /// Against this one.
        record: GroupRecord,
    },
    /// Send this on the group link. What cannot be sent is dropped. An `Append` gets its records as payload.
    Tell {
        /// To this node.
        to: NodeId,
        /// The message.
        message: GroupMessage,
    },
    /// Append the records of the frame that is being handled behind the first of these positions, which is the log's last, up to the
    /// second one, and write them: first the bytes that they name, then the log. If not all can be taken: [`GroupEvent::NotTaken`].
    Take {
        /// The last record that is there.
        after: Position,
        /// The last one to take.
        upto: Position,
    },
    /// The group has committed up to this record.
    Committed {
        /// The record.
        seq: u64,
    },
    /// The group has synced up to this one.
    SyncedAll {
        /// The record.
        seq: u64,
    },
    /// Sync these bodies, and the log up to this record; tell by `Synced` and `SyncDone`.
    ///
    /// Round 0 names no bodies: it means all bodies that records up to this one have named since the copy's snapshot. A copy that
    /// comes back answers it before it gets a seat, because it took these bytes without syncing them.
    Sync {
        /// The epoch of the primary that asks: `SyncDone` repeats it, as the next primary numbers its rounds anew.
        epoch: u32,
        /// Number of the round.
        number: u64,
        /// The record.
        seq: u64,
        /// The bodies.
        bodies: Vec<Ino>,
    },
    /// A round is done at all counted members.
    RoundDone {
        /// Number of the round.
        number: u64,
    },
    /// Lead: begin the epoch by a record, the barrier. Nothing leaves before [`crate::Group::lease_until`] says so.
    Lead {
        /// The epoch.
        epoch: u32,
        /// By what.
        by: LeadBy,
        /// What is known to be committed.
        committed: u64,
        /// And synced.
        synced: u64,
        /// The last beacon of the old primary is so recent that no other island has taken this one for away.
        soon: bool,
    },
    /// Shut the door, close the engine, open it again as a follower: `Opened`.
    Close,
    /// Close the engine, cut the log back to this record, open the copy again: `Opened`.
    CutTo {
        /// The last record that stays.
        to: Position,
    },
    /// Close the engine, put the rows that came in the place of the own ones, with a log that begins behind them, open the copy
    /// again: `Opened`.
    Refill,
    /// The store's record is older than what was seen of it: it was restored from a copy. Nobody is dropped, admitted or
    /// promoted until that is mended.
    StoreWentBack {
        /// The epoch that it has.
        has: u32,
        /// The epoch that was seen.
        seen: u32,
    },
    /// This copy must be filled anew: the primary's log no longer has what follows on it, or has less than was synced. If
    /// [`crate::Group::must_be_filled`] says otherwise later, a primary was found whose log reaches back far enough.
    FillAnew,
    /// Two processes of one node are on different hosts: a data directory or a machine was copied.
    TwoHosts {
        /// The node.
        node: NodeId,
    },
}
