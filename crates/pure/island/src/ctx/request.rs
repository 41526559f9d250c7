//! A request under way: how far it has got, and what it waits for.

use atoll_core::{Ino, IslandId, SessionId, Stamp, TxnId};
use atoll_posix::perm::Denied;
use atoll_posix::{Caller, Errno, Op, RequestOptions};
use atoll_proto::{CutLost, EntryRef, FoundBy, Outcome, ParticipantWork, PeerMessage, Request};
use atoll_state::{NotInMemory, RowLoad};
use bytes::Bytes;

use super::lost::LostRecord;
use super::write_set::WriteSet;
use crate::event::{BodyDone, BodyFault, BodyOp, BodyOpId, LinkId};

/// A request under way.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    pub(crate) link: LinkId,
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) options: RequestOptions,
    /// How its files were found, if its client has said so.
    pub(crate) by: Option<Box<FoundBy>>,
    pub(crate) data: Bytes,
    pub(crate) since_ms: u64,
    /// How often it was begun again because of other requests.
    pub(crate) attempts: u32,
    /// Position of the last record before it came.
    pub(crate) upto: u64,
    /// It was carried out before, and waits for something to be answered as it was then.
    pub(crate) again: bool,
    /// The question about the ends of journals that was asked when it came, and began to wait for them.
    pub(crate) asked: Option<u64>,
    /// What it changes of what mounts keep, when that is known ([`crate::ctx::keepers`]).
    pub(crate) writes: Option<WriteSet>,
}

impl PendingRequest {
    /// The machine beside the island asks for it.
    pub(crate) fn is_of_beside(&self) -> bool {
        self.link == LinkId::BESIDE
    }

    /// Whether it changes what clients may have kept. Locks are never kept.
    pub(crate) fn changes(&self) -> bool {
        let op = self.request.op.operation();
        op.is_some_and(|op| op.changes() && !matches!(op, Op::SetLock { .. }))
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.request.caller
    }

    pub(crate) const fn session(&self) -> SessionId {
        self.request.session
    }
}

/// How far a request has got.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// It only read: its answer waits until the rows that it read are committed.
    Looked(Outcome),
    /// It decided a record: the answer waits for that.
    Decided(Outcome),
    /// It goes on after another event.
    Wait(WaitFor),
    /// Its answer is on the way.
    Answered,
}

/// An event that a request waits for in order to go on from where it is.
#[derive(Debug, Clone)]
pub(crate) enum WaitFor {
    /// The outcome of its transaction.
    Txn(TxnId),
    /// A body operation.
    Body(BodyOpId),
    /// All reachable islands to apply this much of the journal; then the answer.
    Applied(Stamp, Outcome),
    /// The log to be synced up to here.
    Synced(u64),
}

/// Why a request was not carried out.
#[derive(Debug, Clone)]
pub(crate) enum Blocked {
    Fail(Errno),
    NeedGroups,
    /// Another island is needed and is away. Nothing was done, and the client asks again as long as it has
    /// patience.
    NotNow,
    /// A missing row may have been lost, and all other islands are about to tell: the client asks again.
    Unheard,
    /// Begin again when these are in memory.
    Load(Vec<RowLoad>),
    /// Begin again when the body is free.
    BodyLocked(Ino),
    /// Begin again when the transaction has ended.
    Txn(TxnId),
    /// Begin again when there are ids to be given.
    Ids,
    /// Begin again when a lock on the file was freed.
    Locked(Ino),
    /// The file is homed there now.
    Moved {
        to: IslandId,
        moves: u32,
    },
    /// A listing cannot go on: its cut is gone.
    CutLost(CutLost),
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno)
    }
}

impl From<NotInMemory> for Blocked {
    fn from(NotInMemory(load): NotInMemory) -> Self {
        Self::Load(vec![load])
    }
}

impl From<Denied> for Blocked {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Errno(errno) => Self::Fail(errno),
            Denied::NeedGroups => Self::NeedGroups,
        }
    }
}

/// A piece of a file that moves: the range to read, and the checksums that it must have.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) txn: TxnId,
    pub(crate) ino: Ino,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Length of the whole file.
    pub(crate) size: u64,
    pub(crate) sums: Vec<u32>,
}

/// A next step of the island. Steps are carried out in order, each with everything that follows from it. Also
/// what goes on when rows are in memory.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// Nothing: its owner looks again by itself.
    Nothing,
    /// A row that this needs is damaged.
    Unreadable(Box<Next>),
    /// A request comes in.
    Arrive(PendingRequest),
    /// A request goes on that waited until this island had seen what its client has seen.
    CatchUp(PendingRequest),
    /// A request begins, or begins again.
    Start(PendingRequest),
    /// A message of another island.
    Peer(PeerMessage),
    /// A body operation is done.
    BodyDone(BodyOpId, Result<BodyDone, BodyFault>),
    /// A request waits for something else.
    Park(PendingRequest, Blocked),
    /// A request is answered when the log is synced up to there.
    AwaitSynced(u64, PendingRequest),
    /// Bytes of a file that moves are read.
    ReadToShip(Box<Piece>),
    /// Bytes of a file that moves are read from this offset on, or a hole up to there is known; none if they
    /// cannot be read.
    HasRead(TxnId, Option<(u64, Bytes)>),
    /// A file goes to the island that owns its name, by the transaction with this stamp.
    Ship { stamp: Stamp, to: IslandId, work: Box<ParticipantWork> },
    /// Bytes of a file that comes are put in place.
    PutInPlace { ino: Ino, txn: TxnId, seq: u64, op: Box<BodyOp> },
    /// Bytes of a file that comes are in place: more are asked for, or all are here.
    Pull(TxnId),
    /// All bytes of a file that comes are here.
    VoteArrival { to: IslandId, txn: TxnId, at: EntryRef, prepared: Stamp },
    /// Requests that wait for a body are let in.
    Turn(Ino),
    /// Requests that wait for a lock on a file ask again.
    LockFreed(Ino),
    /// Requests that wait for the end of a transaction begin again.
    TxnEnded(TxnId),
    /// All participants have prepared.
    Commit(TxnId),
    /// A transaction that this island coordinates is given up; without an outcome its request begins again.
    Abort(TxnId, Option<Outcome>),
    /// A file does not move, for now.
    NotShipped(TxnId),
    /// A request begins again at this time, in milliseconds.
    Pause(u64, PendingRequest),
    /// An outcome is recorded here that a partner is told when it is synced.
    Confirm { partner: IslandId, txn: TxnId, committed: Stamp },
    /// Partners are told of outcomes that are synced.
    Stable,
    /// The new home of a file has it for good.
    FileLeft(Ino),
    /// A message waits until these islands' journals are applied here.
    FallBehind(Vec<IslandId>, PeerMessage),
    /// An island is told that its journal is applied up to there, when the record at this position is synced.
    ConfirmLater(IslandId, u64, Stamp),
    /// A lost change of this stamp is told again.
    BringBack(Stamp, Box<LostRecord>),
    /// All islands have told what they know of this island's lost records.
    AllTold,
    /// The record that all have told is synced.
    WitnessEnded,
    /// Unanswered questions of a comparison are asked again.
    AskAgain,
    /// This island has caught up with other journals.
    CaughtUp,
    /// A lost change is redone.
    Redo,
    /// The same as [`Next::Redo`], with changes that could not be redone before.
    RedoAgain,
    /// This island's clock moves on, behind the lost changes.
    MoveOn,
    /// An island has told all that it knows of this one's lost records.
    ToldAll(IslandId),
    /// A comparison begins, if no island must be waited for.
    CompareSkipped,
    /// A comparison goes on.
    Compare,
    /// Doubted directories are compared.
    CompareDoubts,
    /// A starting island lets requests in.
    Serve,
    /// A session has begun to end: listings of everything that it has begun end.
    SessionEnded(SessionId),
    /// This request does not wait for a lock any more.
    CancelLock(LinkId, u64),
    /// No file is on its way from here any more: a listing of everything waits for that.
    ShipNothing,
    /// The end of a session goes on.
    EndSession(SessionId),
    /// A checkpoint goes on, if it can.
    Checkpoint,
    /// The machine beside the island goes on: rows that it needs are in memory.
    Beside,
}
