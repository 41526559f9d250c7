//! A request under way, how far it got, and what it waits for.

use atoll_core::{Ino, IslandId, SessionId, Stamp, TxnId};
use atoll_posix::perm::Denied;
use atoll_posix::{Caller, Errno, Wish};
use atoll_proto::{CutLost, Outcome, PeerMessage, Request};
use atoll_state::{Load, Miss};
use bytes::Bytes;

use crate::event::{BodyDone, BodyFault, LinkId, Ticket};

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

/// What the island does next: in order, each with all that follows from it. Or what goes on when rows are in memory.
#[derive(Debug, Clone)]
pub(crate) enum Next {
    /// Somebody looks again by himself.
    Nothing,
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
    /// Whoever waits for a body is let in.
    Turn(Ino),
    /// Whoever waits for a lock on a file asks again.
    LockFreed(Ino),
    /// Whoever waits for the end of a transaction begins again.
    TxnEnded(TxnId),
    /// All have prepared.
    Commit(TxnId),
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
    /// The end of a session goes on.
    EndSession(SessionId),
    /// A checkpoint goes on, if it can.
    Checkpoint,
}
