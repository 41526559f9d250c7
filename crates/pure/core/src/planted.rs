//! Bugs that are planted on purpose, one at a time, to see that the tests find each (`docs/TESTING.md`).
//!
//! Without the feature `planted` no bug can be planted, and [`planted`] is the constant `false`.

use std::fmt;

/// Whether bugs can be planted in this build. No build that serves users can.
pub const CAN_PLANT: bool = cfg!(feature = "planted");

macro_rules! bugs {
    ($($name:ident: $what:literal,)*) => {
        /// A bug that can be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $what] $name,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What the bug does wrong.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }
        }
    };
}

bugs! {
    AnswerBeforeLog: "a change is answered before its record is written",
    SendBeforeLog: "a message leaves before the record that it tells of is written",
    VoteBeforeLog: "a vote does, and no other message",
    FsyncBeforeSync: "fsync is answered before the log is synced",
    LossForgotten: "a mount forgets that an island has lost its power since a change",
    FsyncWithoutBody: "fsync syncs the log and not the body",
    ResultForgotten: "the first result of a request is not remembered",
    RepeatedWhileUnderWay: "a request that comes again while it is under way is begun once more",
    AskedAsNew: "a client asks again for what may have arrived as if it were new",
    StampTwice: "a stamp of the clock is given twice",
    IncarnationKept: "an island that lost power goes on with the clock of its last life",
    OrderlyEndKeepsIncarnation: "an island that was stopped in order goes on with the stamps that its checkpoint knows",
    NameNotHeld: "a name is not held while others are asked",
    LentNameNotHeld: "a name that is lent can be changed meanwhile",
    UndecidedLookup: "a lookup does not wait for what was prepared before it came",
    UndecidedListing: "a listing does not wait for what was prepared before it came",
    CountNotClaimed: "two changes of one file's link count are prepared together",
    FullDirectoryGoes: "an rmdir does not look whether the directory is empty",
    NotSealed: "a directory that is about to go still takes names",
    BeforeIsAfter: "the attributes before a change are those after it",
    HeldNameIgnored: "a directory goes while a name in it is lent",
    OpenBeforeCommit: "a directory takes names before its mkdir is known to have happened",
    OutcomeBeforeSync: "an outcome is told before it survives a power cut",
    StableBeforeSync: "a partner is told that an outcome is safe before it is",
    VoteOfNobody: "a vote counts, whatever transaction it is about",
    LostCommitStaysLost: "a commit that was lost, and others have carried out, is not done again",
    LostPartStaysLost: "a part of another's transaction that was lost is not done again",
    StubOfThen: "a directory is moved with attributes that it had before",
    ToldEarlierLife: "an island takes what was said to an earlier life of it for all that others know of what it has lost",
    PermittedUntold: "after a power cut a move is permitted below directories that an island which is away may have moved",
    NoTicket: "directories move without asking whether another move crosses theirs",
    JournalGap: "a journal is applied although a part of it is missing",
    AnsweredUnapplied: "a change that all islands must know is answered before they do",
    NotLeaf: "a directory with directories in it counts as known by nobody else",
    DroppedUnsynced: "a journal's entry is dropped when it is applied, and not synced, everywhere",
    KeptBeforeSync: "an island says that its journal is safe before it is",
    StubStays: "the name of a directory does not follow its attributes",
    PlaceBeforeSync: "a directory's new place leaves before it survives a power cut",
    NoDirty: "synced bytes are overwritten without a record that says so",
    NoDirtyCarried: "synced bytes are overwritten by carried ones without a record that says so",
    TwoWriters: "two writers are in one body at once",
    BodyGoesEarly: "the body of a removed file goes while somebody is inside",
    BodyGoesUnsynced: "the body of a removed file goes before the record that says so is safe",
    RecoveredUnsynced: "what a dead process had put in place is taken for synced",
    NotWrittenAgain: "what a failed sync may have lost is not written again",
    CheckpointWithoutBodies: "a checkpoint does not sync the bodies that it speaks of",
    OrphanDropped: "a file that is open somewhere goes with its last name",
    LockNotWoken: "whoever waits for a lock is not told when it is free",
    LockForgotten: "a lock is granted without a row",
    NotRecalled: "a mount changes something while another one still uses what it keeps",
    KeptDuringChange: "a mount may keep what it is told while another one changes something",
    PartNotCleared: "an island does its part of another one's change while a mount keeps what it changes",
    ForgottenWithRecall: "a mount that has dropped what a recall names counts as if it kept nothing else",
    ToldUnnoted: "an island does not note what it has told a mount that may keep it",
    KeptOvertaken: "a mount keeps an answer that it has asked for before it was allowed to keep any",
    KeepsNotLogged: "an island that starts does not know which mounts may keep something",
    KeepsNotSynced: "a mount is told that it may keep something before that survives a power cut",
    LeaseCutShort: "a lease ends a second after a link was reset at the island, which its mount may not know",
    LapseUnseen: "a mount goes on using what it kept when its lease has run out unseen",
    ShippedAsItWas: "a file goes to its new home as it was when that began",
    LockedFileMoves: "a file moves while it is locked",
    ServesAtOnce: "a starting island serves before it has heard from the others",
    AbsentIsEmpty: "a directory that may have lost names is listed as whole",
    NoRelay: "a node that cannot be reached directly is not reached through another one",
    OneWayCounts: "a node counts as reachable to which one can send, although it cannot answer",
    ReturnsWithoutComparing: "an island that missed more than was kept for it does not compare",
    UncheckedIsTrusted: "a caller for whom nobody has walked is taken for one whom a kernel has let through",
    AclNotAsked: "what a caller may do for whom nobody has walked is judged without the ACL",
    EndForgetsRest: "the end of a session lets go of the first files that it held, and forgets the rest",
    ListingSkips: "a listing that goes on leaves out the name at which it was cut",
    DroppedTooSoon: "a mount says that it keeps nothing any more when it begins to drop it",
    FreshTooLong: "the first fsync of a file promises its bytes only when it is done",
    IdsGivenAgain: "an island that starts again gives ids that its last life may have given",
    LinksCutShort: "whoever tells of its links forgets those that do not fit one message",
    LateSignOfLife: "what waited for an island to start counts as a sign of life of a client whose link has ended",
    LostRemovalIgnored: "a directory whose removal may be lost gets names",
    NothingSynced: "what has no body is to be synced after a death",
    AttributesWhileNamed: "a directory changes its attributes while a name in it is being made",
    CopyWaitsBehind: "a copy whose turn it is waits behind others at its source",
    GrowsUnrecorded: "a body grows before the record that says so is safe",
    HalfAWrite: "a write over a hole looks for its space when half of it is there",
    CarriedForgotten: "bytes that are acknowledged and find no space are forgotten",
    DoneIsGone: "a change that was done is told as failed because its file has gone since",
    LostIsGone: "a directory that another may bring back is said to be gone",
    AwayIsEmpty: "a member of a union that is away counts as one that has nothing of that name",
    UnlinkAll: "an unlink in a union removes files of that name that were not shown",
    TickTrusted: "a directory that changed in the tick in which it was read counts as unchanged",
    OverflowIgnored: "a member's word that it has not told of all changes is ignored",
    InoReused: "a file is taken for the one that had its inode number before",
    OldAnswerCounts: "a member's answer counts although the name has changed since it was asked for",
    ShownFirst: "of several files that go by one unlink in a union, the one that is shown goes first",
    ChainBlind: "a union makes a directory in one more member without a look at whether it is still there",
    ChainUnsynced: "an fsync in a union leaves out the directories that were made for the file in its member",
    IntentLate: "a rename in several members of a union begins before its intent is written down",
    ReplacedUnsynced: "a rename in a union removes the file that it replaces in another member before it is safe itself",
    ViewStaysBroken: "a plain tree that found no room does not follow any more",
    HasBeforeWrite: "a copy says that it has a record that is not written there",
    CommitByMost: "a record is committed when two of three copies have it",
    OldEpochCommits: "a new primary commits what it found in its log without a record of its own",
    DropUnasked: "a primary goes on without a silent copy before the control store has dropped it",
    UnknownIsDone: "a swap without an answer counts as done",
    UnknownIsNotDone: "a swap without an answer counts as not done",
    RecordNamesMe: "a copy leads because a record names it, and not because its claim has made it so",
    LeaseFromAnswer: "a lease counts from the arrival of the promise",
    PromiseForgotten: "a process that has just started leads although its last life has promised",
    PromiseBesideClaim: "a copy promises while it claims",
    ProofByAnyLife: "a later life on another machine proves the end of a primary",
    OldPromiseFree: "the end of a primary that has never led frees a copy from promises to the one before",
    LedEpochForgotten: "a copy that lost its power forgets the epoch that it led, and promises to an earlier primary",
    SeatAfterPower: "a copy that may have lost something keeps its seat",
    CutKeepsSeat: "a copy that has cut off changes of bodies keeps its seat",
    CutMayLead: "a copy whose bodies have bytes of cut records leads a cold start before one whose bodies have not",
    ColdForgotten: "a cold start whose process dies before its first record is not told as one",
    NotedBeforeTenure: "a copy that has lost something notes that it is whole before its higher tenure is written down",
    OldRecordBelieved: "a record of an earlier epoch, from a control store that was put back, is believed",
    LessIsCounted: "a copy that comes back with less than was counted for it keeps its seat",
    SilenceIsVoid: "a copy of which nothing is heard counts as one that has lost something",
    AdmittedUnsynced: "a copy gets its seat before all have synced what there was when it was first counted",
    WipedKeepsSeat: "a copy that was made empty after its disk was wiped has the seat of the one before",
    LackingLeads: "a copy whose bytes are yet to be fetched may lead when all seats are void",
    MissingForgotten: "a copy that took rows from another one forgets that bytes are missing",
    RowsOfTwoCommits: "the rows that a copy is filled with are of several snapshots",
    RemovedAtOnce: "a copy that is to go elsewhere is removed before the one in its place is in sync",
    WantedAtOnce: "an island with one copy decides nothing until a second one of three is in",
    DrainedGoesFirst: "a copy that is to go elsewhere loses its seat before the new one has its own",
    FilledUnsynced: "bytes that were fetched count as whole before they are synced",
    AnswerOverNewer: "bytes that were fetched are put over changes that came while they were asked for",
    BytesOfUnsynced: "a primary sends bytes that records tell of which the next primary need not have",
    FilledOverPromised: "a copy is filled from one that has less than was promised",
    OwesForEver: "a copy that promises and acknowledges nothing is not dropped",
    SyncedToldOnce: "what was synced before it was committed is not told when it is",
    FsyncOfOne: "what the primary has synced counts as synced by all copies",
    HasBeforePlaced: "a copy says that it has a record whose bytes are not in place there",
    UnknownIsSkipped: "a copy passes over bytes of a file that has none there yet",
    CutForgetsExtents: "a copy that is opened asks nobody for the blocks that differ in its bodies",
    OwnCheckpoints: "a copy that follows makes checkpoints when it likes",
    SnapshotAhead: "a copy makes a checkpoint of what is not synced at all copies",
    DropsUnsyncedAtOthers: "a copy that follows removes the body of a removed file before the record that says so is safe",
    ReadBesideLease: "bytes of a body leave without a look at the lease",
    IncarnationOfLast: "an island whose copy begins to lead goes on with the positions and stamps of the last primary",
    TimeGoesBack: "a life gives times of changes that are earlier than those of the one before",
    LocalEndsAtOnce: "a mount in the process of a primary counts as dead when another copy leads",
    LinkedWithoutScope: "the home of a file that is linked does not look whether its client may see it",
    LentToScope: "the owner of a new name does not look whether the client that renames may see it",
    FoundAnywhere: "a file is shown to a client that sees a part of the tree, whatever name it was found by",
    OrphanOfAll: "a client that sees a part of the tree hears of every file that loses its last name",
    AwayInFailOver: "an island counts as out of reach as soon as its primary does",
    NoCycleCheck: "a directory of a wide volume is moved below itself",
    FoldsByAge: "a site forgets moves of directories that another one may not have seen",
    ChainOnly: "a move tells of the directories that are above it, and not of those that were",
    BaseNotKept: "the place of a moved directory is forgotten with the move",
    ToldUnsynced: "a site tells others of changes that a power cut may take",
    CutUnsynced: "a version of a file says of bytes what a power cut may take",
    VersionSeesAll: "a version of a file counts as having seen those whose bytes were not here",
    LeftIsLost: "what is written to a body that another site has replaced or removed goes when it is closed",
    GoneBackUnseen: "a site whose disk is replaced by a backup is greeted by those who know more of it",
    LifeIsNotCompared: "a site has gone back unnoticed if it has made as many changes again as it had lost",
    PlacedWithoutRoom: "a piece of a file for which there is no room counts as written",
    ReplacedGoes: "bytes that another site's later version replaces are gone at once",
    WrittenRestsOn: "what rests and becomes a file again, since somebody writes to it, rests on",
    RestoredUncut: "of what gets a name again out of the trash no version is cut",
    MovedIntoRemoved: "a directory that is made in or moved into a removed one does not bring that back",
    AbsentIsRemoved: "a join takes what the other state has not for removed, whatever its context says",
    RemovalSeesAll: "a removal counts as having seen all that was done",
    RevivedByAnyChild: "a removed directory is shown for a child that its removal had seen",
    CopyIsNew: "the copy that a conflict makes is another object at each site",
    OldStaysDead: "a child is not entered anew whose entry the removal of its directory has seen, although it lives",
    TwinGoesEarly: "a file that is shown as one with another is unlinked before all sites know of both",
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        // A run of the simulator has one thread, so several threads may look for a bug each.
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether this thread runs with that bug.
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Makes this thread run with a bug from here on, or with none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}

#[cfg(feature = "planted")]
pub use switch::{plant, planted};

/// Whether this thread runs with that bug.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}
