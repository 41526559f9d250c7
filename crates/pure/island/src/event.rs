//! Inputs and outputs of the machine: events and effects.

use atoll_core::sum::BlockSums;
use atoll_core::{Ino, IslandId, Table, Time};
use atoll_posix::{Answer, Errno, Whence};
use atoll_proto::{Notice, Outcome, PeerMessage, Record, Reply, Request};
use atoll_state::{CheckpointRows, LoadedRows, RowLoad};
use bytes::Bytes;

/// The connection, or the frontend of this process, from which a request came and to which its reply goes. A
/// client's later connection has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

impl LinkId {
    const LOCAL: u64 = 1 << 63;

    /// The machine beside the island, in this process: answers that go there are told to it ([`BesideEvent::did`]).
    pub const BESIDE: Self = Self(u64::MAX);

    /// The `n`-th link of a frontend in this process: its sessions end with the process.
    pub const fn local(n: u64) -> Self {
        Self(Self::LOCAL | n)
    }

    /// Whether the other end is in this process.
    pub const fn is_local(self) -> bool {
        self.0 & Self::LOCAL != 0
    }
}

/// A body operation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyOpId(pub u64);

/// The time of an event, as the thread that brings it has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For files' times.
    pub wall: Time,
    /// For waiting: milliseconds that never go back.
    pub ms: u64,
}

/// What comes to the machine beside an island: from machines beside other islands, which have numbers, or from the island.
#[derive(Debug, Clone)]
pub enum BesideEvent {
    /// The link to one has come up, or has gone down. What was on its way on it is lost.
    Link {
        /// Which.
        peer: u64,
        /// It has come up.
        up: bool,
    },
    /// A message, in the order in which that one has sent it.
    Message {
        /// Of which.
        peer: u64,
        /// What.
        bytes: Bytes,
    },
    /// Somebody of this node asks it for something, as a command does. The answer is [`BesideSays::Answers`].
    Asked {
        /// The number of the question: no other one has it that is not answered.
        id: u64,
        /// What, in a form that the island does not know.
        bytes: Bytes,
    },
    /// An operation that it had done has ended.
    Did {
        /// Which, as it has numbered it.
        id: u64,
        /// How. The bytes are those of a read.
        done: Result<(Answer, Bytes), Errno>,
    },
}

impl BesideEvent {
    /// The answer to an operation of the machine beside the island, of an [`Effect::Reply`] to [`LinkId::BESIDE`]. What the island cannot do
    /// now is to be tried again (`EAGAIN`).
    pub fn did(id: u64, outcome: Outcome, data: Bytes) -> Self {
        let done = match outcome {
            Outcome::Ok { answer, .. } => Ok((answer, data)),
            Outcome::Data { data } => Ok((Answer::Data, data)),
            Outcome::Failed { errno } => Err(errno),
            _ => Err(Errno::EAGAIN),
        };
        Self::Did { id, done }
    }
}

/// What the machine beside the island says to another one, which has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BesideSays {
    /// A message, which leaves if there is a link.
    Send {
        /// To which.
        peer: u64,
        /// What.
        bytes: Bytes,
    },
    /// The answer to a question ([`BesideEvent::Asked`]). A process that ends before gives none.
    Answers {
        /// To which.
        id: u64,
        /// What.
        bytes: Bytes,
    },
    /// The link is to be ended: the other one has said what this one does not take.
    End {
        /// With which.
        peer: u64,
        /// Why, for people.
        why: String,
    },
}

/// An event: the input of the machine.
#[derive(Debug, Clone)]
pub enum Event {
    /// A request of a client.
    Request {
        /// From here.
        link: LinkId,
        /// The request's number on that link.
        id: u64,
        /// What.
        request: Request,
        /// Bytes of a write.
        data: Bytes,
    },
    /// A message of another island.
    Peer(PeerMessage),
    /// The link to an island has come up or gone down.
    PeerReachable {
        /// It.
        island: IslandId,
        /// Can be.
        up: bool,
    },
    /// A link is gone.
    LinkClosed {
        /// Which.
        link: LinkId,
        /// Whether its other side ended it, or that process died. False: nothing came any more.
        ended: bool,
    },
    /// Records up to this are committed: every member of the island's group has written them. With one copy of an island
    /// that is its own log.
    Committed(u64),
    /// Records up to this survive a power cut, at every member.
    Synced(u64),
    /// A load from the snapshot has ended.
    Loaded {
        /// The load.
        load: RowLoad,
        /// The snapshot's number, as in `Effect::Load`.
        generation: u64,
        /// The rows.
        loaded: LoadedRows,
    },
    /// A body operation ended.
    BodyDone(BodyOpId, Result<BodyDone, BodyFault>),
    /// The checkpoint is in the snapshot.
    CheckpointDone,
    /// Time has passed.
    Tick {
        /// Bytes free to Atoll on the disk.
        bytes_available: u64,
    },
    /// Make a checkpoint now.
    CheckpointWanted,
    /// The volume has this table. A table that is not newer than the known one is ignored. A newer one must
    /// give every directory the same owner as before, because directories do not move to other islands yet;
    /// otherwise the island panics.
    Table(Table),
    /// Records find no space in the log, or find some again. While they find none, no operation that changes
    /// something is begun.
    LogStuck(bool),
    /// Changes of clients may be decided from here on, or wait: too few copies of the island are there, or they do not keep up.
    Decides(bool),
    /// Something for the machine beside the island.
    Beside(BesideEvent),
    /// The island will be stopped in order: it begins nothing more by itself.
    Stopping,
}

/// The result of a body operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyDone {
    /// It is done.
    Done,
    /// Checksums after a write.
    Sums(BlockSums),
    /// Checksums after a copy, and the bytes, if there are other copies of the island.
    Copied(BlockSums, Bytes),
    /// Checksums of single blocks.
    Edges(Vec<(u64, u32)>),
    /// `lseek`; none past the end.
    Offset(Option<u64>),
    /// Bytes, verified.
    Bytes(Bytes),
}

/// Why a body operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyFault(pub Errno);

/// Something that is not as it should be, and that the island goes on with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Damage {
    /// What the snapshot has of this cannot be read. Whatever needs it fails with `EIO`.
    Row(RowLoad),
    /// Another island has said what cannot be. Nothing was done of it.
    Message {
        /// It.
        from: IslandId,
        /// What was wrong with it.
        why: &'static str,
    },
    /// What another island has said does not fit the row of this directory. The row is as near to it as can be, and
    /// `atoll check` tells what is wrong.
    Misfit {
        /// The directory.
        dir: Ino,
        /// What did not fit.
        why: &'static str,
    },
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Row(load) => write!(f, "the snapshot is damaged: what needs {load:?} fails with EIO"),
            Self::Message { from, why } => {
                write!(f, "{from} has sent a message that cannot be, and it was refused: {why}")
            }
            Self::Misfit { dir, why } => {
                write!(
                    f,
                    "what another island has said does not fit directory {dir}: {why}; see `atoll check`"
                )
            }
        }
    }
}

/// An effect: the output of the machine. The thread that brought the event performs the effects in order.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Put a record into the log's buffer; its position is this one. The bytes are those that it names and does not
    /// carry: they are in the body already, and other copies of the island need them.
    Append(u64, Record, Bytes),
    /// Sync the log as far as it is written.
    Sync,
    /// Answer a request.
    Reply {
        /// The link.
        link: LinkId,
        /// The request's number there.
        id: u64,
        /// The answer.
        reply: Reply,
        /// Bytes of `Answer::Data`.
        data: Bytes,
    },
    /// Report something that is not as it should be.
    Damaged(Damage),
    /// Send a notice to a client.
    Notice(LinkId, Notice),
    /// Send a message to an island.
    Send(IslandId, PeerMessage),
    /// The machine beside the island says something to another one. What it says is numbered, from 0 on: threads that perform effects at
    /// once may tell things in another order than it has said them.
    Beside(u64, BesideSays),
    /// Read from the snapshot.
    Load {
        /// What.
        load: RowLoad,
        /// Counts checkpoints, so that an answer from before one is known as old.
        generation: u64,
    },
    /// Work on a body; ends with `Event::BodyDone`.
    Body(BodyOpId, BodyOp),
    /// Sync these bodies, then put the rows into the snapshot; ends with `Event::CheckpointDone`.
    Checkpoint {
        /// The rows.
        frozen: CheckpointRows,
        /// Bodies that the rows speak of.
        bodies: Vec<Ino>,
    },
}

/// Work on a body. `size` is always the file's length by the state before the work; checksums are
/// as `atoll_core::sum` defines for each kind of work.
#[derive(Debug, Clone)]
pub enum BodyOp {
    /// Read, verify and answer the request with the bytes.
    Read {
        /// The request's link.
        link: LinkId,
        /// Its number there.
        id: u64,
        /// The answer, but for the bytes.
        reply: Reply,
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// How many; within the file.
        len: u32,
        /// Length of the file.
        size: u64,
        /// Checksums of the blocks read.
        sums: Vec<u32>,
    },
    /// Compute the checksums after this write: `BodyDone::Sums`.
    SumsAfter {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Bytes,
        /// Length of the file.
        size: u64,
        /// Present checksums.
        old: BlockSums,
    },
    /// Put bytes in place. With `old`, also tell the checksums afterwards: `BodyDone::Sums`.
    Write {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Bytes,
        /// Length of the file.
        size: u64,
        /// Attributes to make it with.
        attr: BodyAttr,
        /// Present checksums.
        old: Option<BlockSums>,
        /// Bytes that are in place must survive a power cut before they are overwritten.
        sync_first: bool,
    },
    /// Compute the checksum of the block in which the file is cut: `BodyDone::Edges`.
    SumAfterCut {
        /// The file.
        ino: Ino,
        /// New length.
        len: u64,
        /// Length of the file.
        size: u64,
        /// Present checksum of that block.
        old: u32,
    },
    /// Cut the file, or extend it with a hole.
    Cut {
        /// The file.
        ino: Ino,
        /// New length.
        len: u64,
        /// Length of the file.
        size: u64,
        /// Attributes to make it with.
        attr: BodyAttr,
    },
    /// Compute the checksums of partly zeroed blocks: `BodyDone::Edges`.
    SumsAfterZero {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// Length of the file.
        size: u64,
        /// Present checksums of those blocks.
        old: Vec<u32>,
    },
    /// Make a range read as zeros.
    Zero {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// Length of the file.
        size: u64,
    },
    /// Reserve space.
    Allocate {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
        /// The file does not grow.
        keep_size: bool,
        /// Length of the file.
        size: u64,
        /// Attributes to make it with.
        attr: BodyAttr,
    },
    /// Copy bytes between bodies, and tell the target's checksums: `BodyDone::Copied`.
    Copy {
        /// From: file, first byte, length of the file, checksums of the blocks read.
        from: (Ino, u64, u64, Vec<u32>),
        /// To: file, first byte, length of the file, present checksums.
        to: (Ino, u64, u64, BlockSums),
        /// How many; within the source.
        len: u64,
        /// Attributes to make the target with.
        attr: BodyAttr,
        /// As in `Write`, of the target.
        sync_first: bool,
    },
    /// Find data or a hole: `BodyDone::Offset`.
    Seek {
        /// The file.
        ino: Ino,
        /// From here.
        offset: u64,
        /// What.
        whence: Whence,
        /// Length of the file.
        size: u64,
    },
    /// Read and verify bytes that go to another island, or to the machine beside this one: `BodyDone::Bytes`.
    Fetch {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// How many; within the file.
        len: u32,
        /// Length of the file.
        size: u64,
        /// Checksums of the blocks read.
        sums: Vec<u32>,
    },
    /// Make bytes that were put in place survive a power cut.
    Sync {
        /// The file.
        ino: Ino,
    },
    /// Remove the body.
    Drop {
        /// The file.
        ino: Ino,
    },
}

/// Attributes that a native file is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyAttr {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
