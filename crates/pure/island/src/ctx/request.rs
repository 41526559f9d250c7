//! A request under way, how far it got, and what it waits for.

use atoll_core::{Ino, IslandId, SessionId, Stamp, TxnId};
use atoll_posix::perm::Denied;
use atoll_posix::{Caller, Errno, Wish};
use atoll_proto::{CutLost, Outcome, PeerMessage, Request, Spot, Work};
use atoll_state::{Load, Miss};
use bytes::Bytes;

use super::lost::Lost;
use crate::event::{BodyDone, BodyFault, BodyOp, LinkId, Ticket};

/// A request under way.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    pub(crate) link: LinkId,
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) wish: Wish,
    pub(crate) data: Bytes,
    pub(crate) since_ms: u64,
    /// How often it was begun again because of others.
    pub(crate) attempts: u32,
    /// Position of the last record before it came.
    pub(crate) upto: u64,
    /// It was carried out before, and waits for something to be answered as it was then.
    pub(crate) again: bool,
}

impl PendingRequest {
    pub(crate) fn caller(&self) -> &Caller {
        &self.request.caller
    }

    pub(crate) const fn session(&self) -> SessionId {
        self.request.session
    }
}

/// How far a request got.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// It only looked: the answer waits until what it saw is committed.
    Looked(Outcome),
    /// It decided a record: the answer waits for that.
    Decided(Outcome),
    /// It goes on when something else has happened.
    Wait(WaitFor),
    /// Its answer is on the way.
    Answered,
}

/// What a request waits for, that goes on from where it is.
#[derive(Debug, Clone)]
pub(crate) enum WaitFor {
    /// The outcome of its transaction.
    Txn(TxnId),
    /// A body operation.
    Body(Ticket),
    /// All reachable islands to apply this much of the journal; then the answer.
    Applied(Stamp, Outcome),
    /// The log to be synced up to here.
    Synced(u64),
}

/// Why a request did not get through.
#[derive(Debug, Clone)]
pub(crate) enum Blocked {
    Fail(Errno),
    NeedGroups,
    /// Another island is needed that is away: nothing was done, and the client asks again as long as
    /// it has patience.
    NotNow,
    /// What is missing here may have been lost, and all others are about to tell: the client asks again.
    Unheard,
    /// Begin again when these are in memory.
    Load(Vec<Load>),
    /// Begin again when the body is free.
    Gate(Ino),
    /// Begin again when the transaction has ended.
    Txn(TxnId),
    /// Begin again when a lock on the file was given up.
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

impl From<Miss> for Blocked {
    fn from(Miss(load): Miss) -> Self {
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

/// A piece of a file that moves: what is read of it, and the checksums that it has to have.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) txn: TxnId,
    pub(crate) ino: Ino,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Of the whole file.
    pub(crate) size: u64,
    pub(crate) sums: Vec<u32>,
}

/// What the island does next: in order, each with all that follows from it. Or what goes on when rows are in memory.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// Somebody looks again by himself.
    Nothing,
    /// A row that this needs is damaged.
    Unreadable(Box<Next>),
    /// A request comes in.
    Arrive(PendingRequest),
    /// A request waited for this island to have seen what its client has.
    CatchUp(PendingRequest),
    /// A request begins, or begins again.
    Start(PendingRequest),
    /// A message of another island.
    Peer(PeerMessage),
    /// A body operation is done.
    BodyDone(Ticket, Result<BodyDone, BodyFault>),
    /// A request waits for something else.
    Park(PendingRequest, Blocked),
    /// A request is answered when the log is synced up to there.
    AwaitSynced(u64, PendingRequest),
    /// Bytes of a file that moves are read.
    ReadToShip(Box<Piece>),
    /// They are, from there on, or a hole up to there is known; none if they cannot be.
    HasRead(TxnId, Option<(u64, Bytes)>),
    /// A file goes to the island that owns its name, by the transaction with this stamp.
    Ship { stamp: Stamp, to: IslandId, work: Box<Work> },
    /// Bytes of a file that comes are put in place.
    PutInPlace { ino: Ino, txn: TxnId, seq: u64, op: Box<BodyOp> },
    /// They are: more is asked for, or all is here.
    Pull(TxnId),
    /// All is here.
    VoteArrival { to: IslandId, txn: TxnId, at: Spot, prepared: Stamp },
    /// Whoever waits for a body is let in.
    Turn(Ino),
    /// Whoever waits for a lock on a file asks again.
    LockFreed(Ino),
    /// Whoever waits for the end of a transaction begins again.
    TxnEnded(TxnId),
    /// All have prepared.
    Commit(TxnId),
    /// A transaction that this island coordinates is given up; without an outcome its request begins again.
    Abort(TxnId, Option<Outcome>),
    /// A file does not move, for now.
    NotShipped(TxnId),
    /// A request begins again at this time, in milliseconds.
    Pause(u64, PendingRequest),
    /// An outcome is recorded here that a partner is told when it is synced.
    Confirm { partner: IslandId, txn: TxnId, committed: Stamp },
    /// Partners are told of what is synced.
    Stable,
    /// The new home of a file has it for good.
    FileLeft(Ino),
    /// A message waits for what it builds on: for the journals of these.
    FallBehind(Vec<IslandId>, PeerMessage),
    /// An island is told that its journal is applied up to there, when the record at this position is synced.
    ConfirmLater(IslandId, u64, Stamp),
    /// What was lost at this stamp is told again.
    BringBack(Stamp, Box<Lost>),
    /// All have told what they know of what this island has lost.
    AllTold,
    /// It survives that they have.
    WitnessEnded,
    /// What a comparison has asked and nobody has answered is asked again.
    AskAgain,
    /// This island has caught up with other journals.
    CaughtUp,
    /// What was lost is done again.
    Redo,
    /// As [`Next::Redo`], with what could not be done before.
    RedoAgain,
    /// This island's clock moves on, behind what was lost.
    MoveOn,
    /// An island has told all that it knows of what this one has lost.
    ToldAll(IslandId),
    /// Others are compared with, if there is nobody to be waited for.
    CompareSkipped,
    /// A comparison goes on.
    Compare,
    /// What is doubted is compared.
    CompareDoubts,
    /// A starting island lets requests in.
    Serve,
    /// A session has begun to end: listings of everything that it has begun end.
    SessionEnded(SessionId),
    /// Who waits for a lock by this request waits no more.
    CancelLock(LinkId, u64),
    /// No file is on its way from here any more: a listing of everything waits for that.
    ShipNothing,
    /// The end of a session goes on.
    EndSession(SessionId),
    /// A checkpoint goes on, if it can.
    Checkpoint,
}
