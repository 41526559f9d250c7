//! Messages between clients and islands and among islands.

use atoll_core::{
    Ino, IslandId, Key, Name, SessionId, Stamp, Table, Time, TxnId, VolumePath, wire_enum, wire_struct,
};
use atoll_posix::{
    Answer, Attr, AttrsAround, Caller, Errno, Kind, NamedObject, Op, RenameMode, RequestOptions,
};

use crate::lease::Lease;
use crate::listing::{CutLost, FileAt, ListedName};
use crate::options::{FoundBy, Within};
use crate::row::{CarriedLink, DirPlace, Entry, Inode, PlaceVersion, StaticAttrs, Xattrs};

wire_struct! {
    /// What a client asks of an island. Bytes of a write travel beside it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Request {
        /// Who asks.
        pub session: SessionId,
        /// Number of a request that changes something, so that a repeated one gets the first
        /// result; 0 for one that only reads.
        pub seq: u64,
        /// The client has the results of all its requests to this island below this.
        pub acked: u64,
        /// Version of the sender's table.
        pub table: u64,
        /// What the sender has seen of the islands' journals, as far as it is news on this link.
        pub vector: Vec<(IslandId, Stamp)>,
        /// With whose credentials the last step is checked.
        pub caller: Caller,
        /// What.
        pub op: ClientOp,
    }
}

wire_enum! {
    /// What a client can ask.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ClientOp {
        /// An operation of a file system.
        1 => Fs { /// It.
            op: Op },
        /// Begin a session. `Outcome::Attached`.
        2 => Attach { /// It is a mount.
            mount: bool },
        /// End the session: its locks and orphans go.
        3 => Detach,
        /// Walk a path from the root with permission checks, as far as this island's skeleton
        /// goes. `Outcome::Resolved`.
        4 => Resolve { /// The path.
            path: VolumePath },
        /// Is there a directory of this name, or a symbolic link to one, as far as this island knows?
        /// `Outcome::Ok` with `Answer::Found`, or `ESTALE`.
        5 => Skeleton { /// The directory above.
            parent: Ino, /// Its name.
            name: Name },
        /// Attributes of a directory, or of a symbolic link to one, as far as this island knows.
        6 => SkeletonAttr { /// The directory.
            ino: Ino },
        /// The mount no longer holds these files open.
        7 => Release { /// They.
            inos: Vec<Ino> },
        /// A sign of life: the lease goes on. `Outcome::Attached`.
        8 => Renew,
        /// End a request that waits, such as for a lock.
        9 => Cancel { /// Its number on this link.
            request: u64 },
        /// A sign of life of a mount that keeps nothing: the answer to `Notice::Recall`, and how a
        /// session is taken up again on a new link. `Outcome::Attached`.
        10 => Dropped,
        /// A rename into another directory: by its key the islands know whom to ask.
        11 => Rename { /// `Op::Rename`.
            op: Op, /// Placement key of the directory that the name goes to.
            key: Key },
        /// A link to a file that is not homed where its id was minted.
        12 => Link { /// `Op::Link`.
            op: Op, /// Home of the file, as far as the sender knows.
            home: IslandId },
        /// A listing begins: decide no changes for a moment, and say when nothing is half-way.
        /// `Outcome::Held`.
        15 => Hold { /// The listing's number in its session.
            cut: u64, /// It is held already: nothing may have changed since, and all that the sender has
            /// seen of the journals must be applied.
            again: bool },
        /// All islands hold: what is now is what is listed, and changes go on. `Outcome::CutMade`.
        16 => Cut { /// The listing.
            cut: u64 },
        /// Names of a directory as they were at the cut, and its attributes. `Outcome::ListedAt`.
        17 => ListAt { /// The listing.
            cut: u64, /// The directory.
            dir: Ino, /// Only names whose cookies are above this.
            after: u64 },
        /// One name as it was at the cut. `Outcome::ListedAt`.
        18 => EntryAt { /// The listing.
            cut: u64, /// The directory.
            dir: Ino, /// The name.
            name: Name },
        /// Files that are homed here as they were at the cut. `Outcome::FilesAt`.
        19 => FilesAt { /// The listing.
            cut: u64, /// They.
            inos: Vec<Ino> },
        /// The listing is over: what is held goes on, and what was kept for it goes.
        20 => EndCut { /// The listing.
            cut: u64 },
        /// Directories of this island's that were renamed, with ids above this. `Outcome::Hints`.
        30 => Hints { /// Id.
            after: Ino },
        /// Target of a symbolic link, from what this island keeps of links to directories.
        31 => SkeletonTarget { /// The link.
            ino: Ino },
        /// `Fs`, `Rename` or `Link`, and more is asked for.
        32 => WithOptions { /// It.
            options: RequestOptions, /// The operation.
            op: Op, /// As in `Rename`.
            key: Option<Key>, /// As in `Link`.
            home: Option<IslandId> },
        /// As `Renew`, of a mount that asks whether it may keep what is answered from here on.
        35 => Lease,
        /// As `Lease`; what a recall has named is dropped ([`Notice::RecallOf`]), and what earlier ones have named.
        36 => DroppedOf { /// The recall's number.
            recall: u64 },
        /// As `Attach`: this session sees one directory, and what is below it. A node writes this for a client that is
        /// limited, whatever the client has asked.
        33 => AttachWithin { /// It is a mount.
            mount: bool, /// The directory.
            scope: Ino },
        /// As `WithOptions`, of a session that sees a directory only: how the files were found that the operation names by
        /// their ids.
        34 => Found { /// How.
            by: FoundBy, /// As in `WithOptions`.
            options: RequestOptions, /// The operation.
            op: Op, /// As in `Rename`.
            key: Option<Key>, /// As in `Link`.
            home: Option<IslandId> },
    }
}

wire_struct! {
    /// How far a path was walked.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Resolved {
        /// The deepest directory or file that was reached.
        pub found: NamedObject,
        /// Its placement key, if it is a directory.
        pub key: Option<Key>,
        /// How many components of the path lead to it.
        pub depth: u32,
        /// This island owns the directory where the walk ended, so what is missing does not exist.
        pub is_final: bool,
        /// Directories on the way whose keys do not follow from those above: they, or what is above them,
        /// were renamed since they were made.
        pub key_overrides: Vec<KeyOverride>,
    }
}

wire_struct! {
    /// A directory that was made under another path, as whoever knows only paths needs it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyOverride {
        /// How many components of the path lead to it.
        pub depth: u32,
        /// Its placement key.
        pub key: Key,
        /// As in [`crate::Dir`].
        pub birth_bytes: u16,
    }
}

wire_struct! {
    /// A directory that was renamed, for those who walk paths.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Hint {
        /// Where it is now.
        pub path: VolumePath,
        /// Its placement key.
        pub key: Key,
        /// As in [`crate::Dir`].
        pub birth_bytes: u16,
    }
}

wire_enum! {
    /// How a request ended.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Outcome {
        /// Done.
        1 => Ok { /// What it tells.
            answer: Answer, /// Placement keys of the directories in the answer, in their order.
            keys: Vec<Key> },
        /// As `Ok`, with the attributes that were asked for.
        13 => Observed { /// They.
            around: Vec<AttrsAround>, /// What it tells.
            answer: Box<Answer>, /// As in `Ok`.
            keys: Vec<Key> },
        /// Done: these few bytes (a target, an attribute). Those of a read travel beside the reply.
        9 => Data { /// They.
            data: bytes::Bytes },
        /// What was looked up is a file that is homed there, which alone has its attributes.
        10 => Elsewhere { /// The file.
            ino: Ino, /// Type of that.
            kind: Kind, /// Its home.
            home: IslandId },
        /// Done before, to a file that was homed there, which alone has its attributes. If it is gone by now, nobody
        /// has them.
        12 => DoneTo { /// The file.
            ino: Ino, /// Type of that; a regular file, if it is not known.
            kind: Kind, /// Its home.
            home: IslandId },
        /// Nothing was done: the file has moved there.
        11 => Moved { /// Its home.
            to: IslandId, /// How often it had moved then.
            moves: u32 },
        /// It has no effect.
        2 => Failed { /// Why.
            errno: Errno },
        /// A supplementary group could allow it: ask again with the caller's groups.
        3 => NeedGroups,
        /// The sender's table is old: here is the one to use.
        4 => StaleTable { /// It.
            table: Table },
        /// Not served now (the island starts); ask again in a moment.
        5 => NotNow,
        /// A walked path.
        6 => Resolved { /// How far.
            resolved: Resolved },
        /// The session is known here.
        7 => Attached { /// What may be kept of what is answered from here on, if all islands let something be kept.
            lease: Lease, /// The incarnation of the island that began with its last power cut.
            power: u32 },
        /// No such session (it expired): attach first.
        8 => NoSession,
        /// An island holds, if it is quiet: it decides no change until the cut or the end of a moment, and
        /// nothing is half-way. If not, it does not hold.
        20 => Held { /// It holds.
            quiet: bool, /// Its incarnation.
            incarnation: u32, /// The earliest incarnation of each other island for which something is
            /// kept here that it may have lost.
            keeps: Vec<(IslandId, u32)> },
        /// Whether the island was holding for this listing all the time, so that the cut is made.
        21 => CutMade { /// It is.
            made: bool },
        /// Names as of a cut.
        22 => ListedAt { /// Attributes of the directory; none if it is not owned here.
            attr: Option<Attr>, /// Its names.
            names: Vec<ListedName>, /// More come after this cookie.
            next: Option<u64> },
        /// Files as of a cut, in the order in which they were asked for; the first of them, if all would be too long.
        23 => FilesAt { /// Those that are there.
            files: Vec<Option<FileAt>> },
        /// The listing cannot go on here.
        24 => CutLost { /// Why.
            why: CutLost },
        /// Renamed directories, in the order of their ids.
        30 => Hints { /// They.
            hints: Vec<Hint>, /// More come after this id.
            next: Option<Ino> },
    }
}

wire_enum! {
    /// What an island tells a client unasked.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Notice {
        /// Drop everything that was kept, then send `ClientOp::Dropped`.
        1 => Recall,
        /// This file or directory has lost its last name; release it when it is closed.
        2 => Orphan { /// The file or directory.
            ino: Ino },
        /// This file has moved; say so when that is known.
        3 => Moved { /// The file.
            ino: Ino, /// Its home.
            to: IslandId, /// How often it had moved then.
            moves: u32 },
        /// These have changed, and no client has done it: another site has. What is kept of them is void. At most
        /// [`atoll_posix::CHANGED_MAX`] together; of more it is a recall.
        4 => Changed { /// Files and directories of which attributes or bytes differ, and directories in which names do.
            inos: Vec<Ino>, /// Names that lead elsewhere, to something, or to nothing now.
            names: Vec<EntryRef> },
        /// Drop what was kept of these, then send `ClientOp::DroppedOf`. The lease goes on.
        5 => RecallOf { /// Its number: a later one has a higher one.
            recall: u64, /// Files, and directories with their names.
            inos: Vec<Ino> },
    }
}

wire_struct! {
    /// One island to another.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PeerMessage {
        /// Sender.
        pub from: IslandId,
        /// The sender's incarnation.
        pub incarnation: u32,
        /// What the sender has seen of the islands' journals, as far as it is news on this link.
        pub vector: Vec<(IslandId, Stamp)>,
        /// What.
        pub op: PeerOp,
    }
}

wire_struct! {
    /// A directory as an ancestor: what a skeleton needs of it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Ancestor {
        /// Its id.
        pub ino: Ino,
        /// Placement key.
        pub key: Key,
        /// Bytes of the path of which that is the hash; 0 if it is none's.
        pub birth_bytes: u16,
        /// Where it is.
        pub place: DirPlace,
        /// Static attributes.
        pub fixed: StaticAttrs,
        /// ACLs. Its other extended attributes are its owner's alone: versions up to 0.1 sent them too, and they
        /// are ignored.
        pub xattrs: Xattrs,
        /// Its sender does not own it, and may have missed some of its changes: whoever learns of it here may have, too.
        pub suspected: bool,
    }
}

wire_enum! {
    /// What a transaction's participant is asked to do.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ParticipantWork {
        /// mkdir: own a new directory.
        1 => Adopt { /// The directory.
            dir: Ancestor, /// When it was made.
            time: Time, /// Its ancestors, from the root down.
            chain: Vec<Ancestor> },
        /// rmdir: take no new names, and go if the transaction commits.
        2 => Seal { /// The directory.
            ino: Ino, /// The one above.
            parent: Ino, /// Its name there.
            name: Name },
        /// A rename into a directory that the participant owns: keep the name for it.
        3 => BorrowName { /// What moves where.
            renaming: Box<RenameSpec>, /// Who asks.
            caller: Caller, /// What the caller means by the new name.
            new_meant: Option<Ino>, /// The coordinator's own objection, which comes behind those of the names.
            denied: Option<Errno>, /// The coordinator's ancestors, if a file that the participant may
            /// be the home of goes there.
            chain: Option<Chain>, /// The coordinator is a home and does not know the directory.
            wants_chain: bool, /// Who asks sees this directory only, and what is below it.
            scope: Option<Ino> },
        /// link: a file that is homed at the participant gets a name elsewhere.
        4 => AddName { /// The file.
            ino: Ino, /// The name.
            at: EntryRef, /// When.
            time: Time, /// Where that is.
            chain: Chain, /// Who asks sees one directory only: the file must be in it.
            within: Option<Within> },
        /// unlink, or a rename over it: it loses a name elsewhere.
        5 => RemoveName { /// The file.
            ino: Ino, /// The name.
            at: EntryRef, /// Whoever is to own it, because the directory is sticky.
            by: Option<u32>, /// The home knew the name when it prepared.
            had: bool, /// When.
            time: Time },
        /// rename: one of its names elsewhere becomes another.
        6 => MoveName { /// The file.
            ino: Ino, /// The old name.
            from: EntryRef, /// The new one.
            to: EntryRef, /// As in `RemoveName`.
            by: Option<u32>, /// As in `RemoveName`.
            had: bool, /// When.
            time: Time, /// Where the new name is.
            chain: Chain },
        /// rename to another parent: the directory's static attributes stay until it is done.
        7 => FreezeDir { /// The directory.
            ino: Ino, /// Who asks: whoever may not write it may not move it.
            caller: Caller, /// Where it will be.
            to: DirPlace, /// The placement key of that directory.
            key: Key },
        /// The same, at the root's owner: leave, as long as nothing else is under way that could put a
        /// directory below itself.
        8 => PermitMove { /// Directories that move.
            moved: Vec<Ino>, /// Those above the places to which they go.
            above: Vec<Ino>, /// The islands that own those: who may have moved them.
            owners: Vec<IslandId>, /// What was seen when it was looked up which those are.
            seen: Vec<Chain>, /// Two names are exchanged: the coordinator need not own the directory that one leaves.
            exchange: bool },
        /// A file comes from the coordinator, which was its home, to the owner of its only name.
        9 => ReceiveFile { /// The name.
            at: EntryRef, /// The file.
            file: Box<Inode>, /// Its extended attributes, if it has some.
            xattrs: Option<Xattrs>, /// Mounts that may have it open.
            mounts: Vec<SessionId> },
    }
}

impl ParticipantWork {
    /// The name elsewhere that a file gets by it.
    pub const fn brings(&self) -> Option<&EntryRef> {
        match self {
            Self::AddName { at, .. } | Self::MoveName { to: at, .. } => Some(at),
            _ => None,
        }
    }
}

wire_struct! {
    /// A name in a directory.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub struct EntryRef {
        /// The directory.
        pub dir: Ino,
        /// The name.
        pub name: Name,
    }
}

wire_struct! {
    /// The ancestors of a directory, from the root down to itself, and what their sender had seen of the
    /// islands' journals.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Chain {
        /// How far each journal had been applied.
        pub vector: Vec<(IslandId, Stamp)>,
        /// They.
        pub dirs: Vec<Ancestor>,
    }
}

wire_struct! {
    /// A rename of a file between two directories.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RenameSpec {
        /// The old name.
        pub from: EntryRef,
        /// The new one.
        pub to: EntryRef,
        /// What it names.
        pub file: Entry,
        /// What the new name was before, once its owner has told.
        pub there: Option<Entry>,
        /// What happens to that.
        pub mode: RenameMode,
        /// Whoever is to own the file, because its old directory is sticky.
        pub by: Option<u32>,
        /// When.
        pub time: Time,
    }
}

impl RenameSpec {
    /// The two names swap what they name.
    pub fn swaps(&self) -> bool {
        self.mode == RenameMode::Exchange
    }
}

wire_struct! {
    /// The request that a transaction serves, so that a repetition gets its result.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RequestId {
        /// Whose.
        pub session: SessionId,
        /// Its number.
        pub seq: u64,
    }
}

wire_struct! {
    /// A transaction as whoever lost its part needs it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TxnPart {
        /// The request that it serves.
        pub request: RequestId,
        /// What the participant does.
        pub work: ParticipantWork,
    }
}

wire_struct! {
    /// When the two sides of a transaction wrote their parts, each by its own clock: whether a side has
    /// lost its part in a power cut, only that side can tell, and by this.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct TxnStamps {
        /// The participant's prepare.
        pub prepared: Stamp,
        /// The coordinator's commit; 0 before.
        pub committed: Stamp,
    }
}

wire_enum! {
    /// What a participant tells of what it has prepared.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum VoteInfo {
        /// Nothing.
        1 => Nothing,
        /// Of a name that is lent.
        2 => Name { /// What it is.
            there: Option<Entry>, /// Whoever is to own that, because the directory is sticky.
            by: Option<u32>, /// Where it is, if that was asked.
            chain: Option<Chain> },
        /// Of a file that gets a name.
        3 => File { /// It, as it will be.
            attr: Attr },
        /// Of a directory that moves.
        4 => Dir { /// Its static attributes.
            fixed: StaticAttrs },
    }
}

wire_enum! {
    /// A participant's answer to a prepare.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Vote {
        /// Prepared: the outcome will be carried out.
        1 => Yes { /// By the participant's clock: when.
            prepared: Stamp, /// What the coordinator has to know.
            seen: VoteInfo },
        /// Not possible.
        2 => No { /// Why.
            errno: Errno },
        /// Another transaction holds what this one needs: try again after a pause.
        3 => Busy,
        /// The participant has seen more than the chain of ancestors was made from: try again.
        4 => Behind,
        /// A supplementary group of the caller could allow it.
        5 => NeedGroups,
        /// Both names are of one file: it is so already.
        6 => Same,
        /// The file has another home since: who asks has heard of it by now, or will.
        7 => Moved,
    }
}

wire_enum! {
    /// A change to a directory that every island with it applies, in its coordinator's order.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum JournalEntry {
        /// It has moved.
        1 => Place { /// The directory.
            ino: Ino, /// Where it is.
            place: DirPlace, /// Its name before.
            from: EntryRef, /// The empty directory whose name it took.
            replaced: Option<Ino>, /// What its coordinator had seen, which comes before this; and the
            /// ancestors of the place, if that is in another directory than before.
            chain: Chain, /// When it moved, which is its owner's to show.
            time: Time },
        /// Its static attributes have changed.
        2 => StaticAttrs { /// The directory.
            ino: Ino, /// Where it is, as its owner knows: the stub there follows.
            place: DirPlace, /// Attributes.
            fixed: StaticAttrs, /// ACLs, as in `Ancestor`.
            xattrs: Xattrs },
        /// Nothing, but the clock goes on: past what a power cut has taken, which somebody may have seen.
        3 => ClockBump,
    }
}

/// Drops all extended attributes of a directory but its ACLs: what an older version has written for others.
fn shed(xattrs: &mut Xattrs) {
    if !xattrs.has_only_acls() {
        *xattrs = xattrs.acls();
    }
}

impl Chain {
    /// Drops what an older version told of directories, and nobody needs.
    pub fn shed(&mut self) {
        self.dirs.iter_mut().for_each(|dir| shed(&mut dir.xattrs));
    }
}

impl ParticipantWork {
    /// As [`Chain::shed`].
    pub fn shed(&mut self) {
        match self {
            Self::Adopt { dir, chain, .. } => {
                chain.iter_mut().chain([dir]).for_each(|dir| shed(&mut dir.xattrs));
            }
            Self::BorrowName { chain: Some(chain), .. }
            | Self::AddName { chain, .. }
            | Self::MoveName { chain, .. } => chain.shed(),
            _ => {}
        }
    }
}

impl JournalEntry {
    /// As [`Chain::shed`].
    pub fn shed(&mut self) {
        match self {
            Self::Place { chain, .. } => chain.shed(),
            Self::StaticAttrs { xattrs, .. } => shed(xattrs),
            Self::ClockBump => {}
        }
    }

    /// The directory that it is about, and where that is.
    pub const fn about(&self) -> Option<(Ino, &DirPlace)> {
        match self {
            Self::Place { ino, place, .. } | Self::StaticAttrs { ino, place, .. } => Some((*ino, place)),
            Self::ClockBump => None,
        }
    }
}

wire_struct! {
    /// A directory of the sender's skeleton, or of which it has the stub, as the sender knows it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirQuestion {
        /// It.
        pub ino: Ino,
        /// Asked of the owner of this directory, which judges its names; none: asked of its own owner.
        pub parent: Option<Ino>,
        /// Its name there.
        pub name: Option<Name>,
        /// If it has another name: looked for only behind this cookie.
        pub after: u64,
        /// The version of its place.
        pub place: PlaceVersion,
        /// The version of its static attributes.
        pub fixed: Stamp,
        /// The directories above its place are wanted.
        pub wants_chain: bool,
    }
}

wire_enum! {
    /// What an island knows of a directory that it was asked for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum DirReport {
        /// The same.
        1 => Same,
        /// Something else.
        2 => Differs { /// It.
            dir: Ancestor, /// The directories above, from the root down, if they are wanted.
            chain: Vec<Ancestor> },
        /// It is not there.
        3 => Gone,
        /// It is not among the names up to this cookie.
        4 => NotUpTo { /// Cookie.
            after: u64 },
        /// A move of it has happened that waits for its coordinator's journal.
        5 => Moves { /// Where to.
            place: DirPlace, /// The owner of the directory above.
            owner: IslandId },
    }
}

wire_struct! {
    /// An answer to an `Ask`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirAnswer {
        /// The directory.
        pub ino: Ino,
        /// Where it was looked for.
        pub parent: Option<Ino>,
        /// What is known of it.
        pub known: DirReport,
    }
}

wire_enum! {
    /// What islands tell each other.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum PeerOp {
        /// The sender has started, and asks for what the receiver has for it.
        1 => Hello,
        /// The answer: everything that the receiver had for the sender was sent before this.
        2 => HelloDone { /// The incarnation of who is told, as far as the sender has heard: nothing counts that was told to an earlier one.
            to: u32 },
        /// Coordinator to participant.
        3 => Prepare { /// The transaction.
            txn: TxnId, /// The request that it serves.
            origin: RequestId, /// What to do.
            work: ParticipantWork },
        /// Participant to coordinator.
        4 => Voted { /// The transaction.
            txn: TxnId, /// Its answer.
            vote: Vote },
        /// Coordinator to participant, repeated until `Stable`.
        5 => Decided { /// The transaction.
            txn: TxnId, /// It happens, and when; none if it does not.
            stamps: Option<TxnStamps>, /// All of it, if the participant may have lost its prepare.
            part: Option<Box<TxnPart>> },
        /// Either way: what became of these is synced here.
        6 => Stable { /// The transactions, and when they were committed.
            txns: Vec<(TxnId, Stamp)> },
        /// Participant to coordinator: what became of it?
        7 => AskOutcome { /// The transaction.
            txn: TxnId },
        /// The coordinator's journal, in order and without a gap from what was applied.
        8 => Journal { /// Stamp that the receiver must have applied before these.
            after: Stamp, /// The entries.
            entries: Vec<(Stamp, JournalEntry)>, /// They are about directories of which only the sender and at
            /// most one other island have anything: their stamps count in no vector.
            private: bool },
        /// Applied, up to this stamp of the receiver's journal.
        9 => Applied { /// Stamp.
            upto: Stamp, /// This survives a power cut there: the sender may forget the entries.
            synced: bool },
        /// The receiver's journal is wanted from behind this stamp on.
        10 => Resend { /// Stamp.
            after: Stamp },
        /// Participant to coordinator, which may have lost it: this was carried out.
        11 => CarriedOut { /// The transaction.
            txn: TxnId, /// When.
            stamps: TxnStamps, /// All of it.
            part: Box<TxnPart> },
        /// What was applied of the receiver's journal, and the receiver may have lost.
        12 => ReturnedJournal { /// The entries, in order.
            entries: Vec<(Stamp, JournalEntry)> },
        /// The sender's journal up to this stamp survives a power cut at the sender.
        13 => JournalDurable { /// Stamp.
            upto: Stamp },
        /// The ancestors of a directory of the receiver's are wanted. Whether what it tells is new enough, the
        /// sender judges: the vector comes with it.
        14 => WantChain { /// The directory.
            dir: Ino },
        /// They; none if the receiver does not own the directory.
        15 => ChainOf { /// The directory.
            dir: Ino, /// Its ancestors, and itself.
            chain: Option<Chain> },
        /// Coordinator to participant: it happens, unless this is lost in a power cut. `Decided` follows when
        /// it cannot be any more.
        16 => ProvisionalCommit { /// The transaction.
            txn: TxnId },
        /// Of the file that comes, bytes are wanted from here on.
        17 => Pull { /// The transaction.
            txn: TxnId, /// First byte.
            offset: u64 },
        /// They; none if up to this offset there is a hole.
        18 => Chunk { /// The transaction.
            txn: TxnId, /// Of the first byte.
            offset: u64, /// They.
            bytes: bytes::Bytes },
        /// How far has the receiver's journal come? Requests wait for more of it than the sender has.
        19 => WantJournalEnd { /// Counts these questions of the sender.
            ask: u64 },
        /// The sender's journal goes up to here, and no entry of it is later that anybody had seen when this was asked.
        20 => JournalEnd { /// As asked.
            ask: u64, /// Its last entry.
            upto: Stamp },
        /// The sender's symbolic links to directories have changed, or may not all be known to the receiver.
        30 => Links { /// Digest of them before.
            before: u64, /// Set, or gone.
            links: Vec<(Ino, Option<CarriedLink>)>, /// Digest of them now.
            after: u64 },
        /// Those of the receiver's that the sender has.
        31 => LinksHeld { /// Their digest.
            digest: u64 },
        /// All of the receiver's are wanted, with ids above this.
        32 => WantLinks { /// Id.
            after: Ino },
        /// The sender's with these ids, and no others.
        33 => AllLinks { /// Above this.
            after: Ino, /// And up to this.
            upto: Ino, /// They.
            links: Vec<(Ino, CarriedLink)> },
        /// Does this path lead to a directory?
        34 => Leads { /// A symbolic link of the sender's, whose target it is.
            link: Ino, /// The path.
            path: VolumePath },
        /// Where it leads.
        35 => LeadsTo { /// The receiver's symbolic link.
            link: Ino, /// As far as the sender knows.
            led: LinkTarget },
        /// A symbolic link of the receiver's was looked up, of which the sender knows no more.
        36 => LinkUsed { /// The link.
            link: Ino, /// Its name.
            at: EntryRef },
        /// The sender's journal up to this stamp is not kept for the receiver any more: it has to compare what
        /// it has with what others know.
        40 => JournalSkipped { /// Stamp.
            upto: Stamp },
        /// Is this still so? Asked by who has missed a part of journals.
        41 => Compare { /// Counts the comparisons of the sender.
            round: u64, /// The coordinators of those journals.
            missed: Vec<IslandId>, /// What the sender has.
            asks: Vec<DirQuestion> },
        /// What differs, and what does not. What is about to be decided is left out.
        42 => Compared { /// As asked.
            round: u64, /// Answers.
            told: Vec<DirAnswer> },
    }
}

wire_enum! {
    /// Where a path leads.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum LinkTarget {
        /// To a directory.
        1 => Directory,
        /// Not to one.
        2 => Nothing,
        /// The owner of this key knows more.
        3 => Elsewhere { /// Of the last directory on the way.
            key: Key, /// The path, without links that it led through.
            path: VolumePath },
    }
}
