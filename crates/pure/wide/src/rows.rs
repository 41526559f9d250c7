//! What a site keeps of objects: the bytes beside the rows of files and directories, and side rows. Owns their form and their keys.
//! Never decides what is in them.
//!
//! All are read strictly: bytes that this code would not write are refused. Each has a tag in front, so that another form gets another
//! one.

use atoll_causal::{
    AttrState, DirBirth, DirHead, DirState, Dot, FileId, FileState, FileVersion, HybridStamp, Writer,
};
use atoll_core::{Decode, Encode, Ino, Malformed, Name, Time, siphash24, wire_enum, wire_struct};
use atoll_proto::{Dir, RowChange};
use atoll_spine::{SpineMove, SpinePlace};
use bytes::Bytes;

use crate::watch::ByteRanges;

/// The key of the hashes in [`near_key`].
const NEAR_KEY: u64 = 0x6e65_6172;

/// Side table of files, by their ids: [`FileRow`].
pub const FILES: u8 = b'f';
/// Side table of directories but the root, by their ids: [`DirRow`].
pub const DIRS: u8 = b'd';
/// Side table of what is near a name and no entry leads to, by [`near_key`]: [`NearRow`].
pub const NEAR: u8 = b'e';
/// Side table of the feed, by [`FeedPlace::key`]: the object whose last change that was, or the move ([`FeedRow`]).
pub const FEED: u8 = b'n';
/// Side table of writers, by their numbers: [`WriterRow`].
pub const WRITERS: u8 = b'w';
/// Side table of the lives of writers, by [`life_key`]: [`LifeRow`].
pub const LIVES: u8 = b'l';
/// Side table of the moves of the spine, by [`stamp_key`]: [`MoveRow`].
pub const MOVES: u8 = b's';
/// Side table of the other sites, by their numbers: [`PeerRow`].
pub const PEERS: u8 = b'p';
/// Side table of the files with bytes that no version has, by their numbers here: [`UncutRow`].
pub const UNCUT: u8 = b'c';
/// Side table of the files whose latest version has bytes that are not here, by their ids: [`BehindRow`].
pub const BEHIND: u8 = b'b';
/// Side table of the sites of the volume, by their numbers: [`MemberRow`](crate::members::MemberRow).
pub const MEMBERS: u8 = b'm';
/// Side table of the hashes of files' pieces, by [`pieces_key`]: [`PiecesRow`]. Files of one piece have none.
pub const PIECES: u8 = b'h';

/// Side table of what rests in the trash, by [`trash_key`]: [`TrashRow`].
pub const TRASH: u8 = b't';
/// Side table of the copies of files that conflicts have made, by the ids of those files: [`CopiesRow`].
pub const COPIES: u8 = b'x';

/// Side table of conflicts that were settled without a file beside a name, by [`settled_key`]: [`SettledRow`].
pub const SETTLED: u8 = b'g';

/// The writer of the first change of the root, which all sites begin with. No site has it.
pub(crate) const ROOT_WRITER: Writer = Writer(0);

/// The number of a site in its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u64);

wire_struct! {
    /// Which change it was at this site: a place in its feed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct FeedPlace {
        /// Position of the record.
        pub position: u64,
        /// How many objects the record had changed before. Moves of the spine come behind all objects.
        pub number: u64,
    }
}

impl FeedPlace {
    /// Its key in [`FEED`].
    pub const fn key(self) -> u128 {
        (self.position as u128) << 64 | self.number as u128
    }
}

wire_struct! {
    /// What is beside the row of a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileBeside {
        /// Which file.
        pub id: FileId,
        /// All that is known of it but its bytes.
        pub state: FileState,
        /// Its last change at this site.
        pub at: FeedPlace,
        /// What is in its body.
        pub bytes: FileBytes,
    }
}

wire_struct! {
    /// What is in the body of a file.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct FileBytes {
        /// The version whose bytes they are, but for what users have changed since; none if it is that of no version.
        pub has: Option<BodyVersion>,
        /// Users have changed bytes, or the length, since then. The file is in [`UNCUT`].
        pub is_uncut: bool,
        /// The bytes below the file's length that may differ from that version.
        pub written: ByteRanges,
        /// How that version differs from the one that it was made from, if it was made here.
        pub since: Option<VersionDelta>,
    }
}

wire_struct! {
    /// A version, as far as its bytes are concerned.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct BodyVersion {
        /// The change that made it.
        pub dot: Dot,
        /// Bytes.
        pub size: u64,
        /// Hash over them.
        pub root: u128,
    }
}

wire_struct! {
    /// How a version differs from another one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct VersionDelta {
        /// The hash over the bytes of the other one.
        pub base: u128,
        /// The bytes that may differ. Its length may, too.
        pub ranges: ByteRanges,
    }
}

wire_struct! {
    /// What is beside the row of a directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirBeside {
        /// Which directory.
        pub id: FileId,
        /// All that is known of it.
        pub head: DirHead,
        /// Its last change at this site.
        pub at: FeedPlace,
    }
}

wire_enum! {
    /// What is beside a row.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum BesideRow {
        /// That of a file.
        1 => File { /// It.
            file: Box<FileBeside> },
        /// That of a directory.
        2 => Dir { /// It.
            dir: Box<DirBeside> },
        /// That of a body without a name: of a file that is not shown, or whose latest version is on its way, or that rests in the trash.
        3 => Nameless { /// Of which file.
            of: FileId },
    }
}

wire_enum! {
    /// Where the state of a file is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum FileRow {
        /// Beside its row: it is shown.
        1 => Shown { /// Its number at this site.
            ino: Ino },
        /// Here: nothing shows it. It has lost its last name, is shown as one with another file, or is in a directory that is not
        /// shown.
        2 => Hidden {
            /// All that is known of it.
            state: Box<FileState>,
            /// Its last change at this site.
            at: FeedPlace,
            /// Its body; none of a file that is dead, or whose bytes another file has.
            kept: Option<KeptBody>,
        },
    }
}

wire_struct! {
    /// The body of a file that is not shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KeptBody {
        /// Its number at this site. It has no name.
        pub ino: Ino,
        /// What is in it.
        pub bytes: FileBytes,
    }
}

wire_enum! {
    /// A file is uncut.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum UncutRow {
        /// It is.
        1 => Uncut {},
    }
}

wire_enum! {
    /// The bytes of a file's latest version are not here.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum BehindRow {
        /// They are not.
        1 => Behind { /// The body in which they are gathered, if they may not be put in place one by one.
            staged: Option<Ino>, /// Bytes of that version, as far as it was known when this was written.
            bytes: u64 },
    }
}

wire_enum! {
    /// Copies that conflicts have made of a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum CopiesRow {
        /// They.
        1 => Copies { /// Their ids, sorted. Some may have been used or removed since.
            ids: Vec<FileId> },
    }
}

wire_enum! {
    /// What another site's change has taken away here.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum TrashRow {
        /// It rests.
        1 => Rests { /// It.
            rested: Box<Rested> },
    }
}

wire_struct! {
    /// A body that rests. Its number is in the key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Rested {
        /// The file whose body it was.
        pub file: FileId,
        /// The version whose bytes it had, but for what somebody has changed since who had it open.
        pub version: Option<BodyVersion>,
        /// A path at which the file was. If it does not begin with a slash, directories above are left out: at most
        /// [`Self::PATH_BYTES_MAX`] bytes.
        pub path: Bytes,
        /// Who has taken it away.
        pub by: Writer,
        /// How.
        pub why: TrashCause,
        /// The length of the file.
        pub size: u64,
        /// Bytes that it takes on the disk.
        pub takes: u64,
    }
}

impl Rested {
    /// Bytes of a path.
    pub const PATH_BYTES_MAX: usize = 1_024;
}

wire_enum! {
    /// How a body was taken away.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TrashCause {
        /// The file was removed.
        1 => Removed {},
        /// A later version of the file has replaced it.
        2 => Replaced {},
    }
}

wire_enum! {
    /// A conflict that was settled.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum SettledRow {
        /// It was.
        1 => Settled { /// How.
            settled: Box<Settled> },
    }
}

wire_struct! {
    /// What has become of two changes that did not know of each other, if no file is shown beside a name for it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Settled {
        /// The file or directory.
        pub object: FileId,
        /// A path at which it is shown. As of what rests ([`Rested::path`]).
        pub path: Bytes,
        /// What has become of them.
        pub how: SettledHow,
        /// Who has made the change that counts,
        pub kept: Option<Writer>,
        /// and who the other one; none where no state says so.
        pub other: Option<Writer>,
    }
}

wire_enum! {
    /// What has become of two changes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SettledHow {
        /// A file that one has removed is there with what the other one has written.
        1 => Kept {},
        /// A directory that one has removed is there with what the other one has put into it.
        2 => Revived {},
        /// Both have given a file another name, and it has that of the later change.
        3 => Renamed {},
        /// Both have moved directories. One move has no effect: the directory would be below itself.
        4 => NotMoved {},
    }
}

wire_enum! {
    /// Hashes of pieces of a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum PiecesRow {
        /// They, in order.
        1 => Pieces { /// At most [`crate::contents::pieces::ROW_PIECES`].
            hashes: Vec<u128> },
    }
}

wire_enum! {
    /// Where the state of a directory is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum DirRow {
        /// Beside its row: it is shown, and the first of those with which it is shown as one.
        1 => Shown {
            /// Its number at this site.
            ino: Ino,
            /// Its base in the spine.
            base: SpinePlace,
        },
        /// Here: it is shown as one with another, or not at all. Moves of other directories may name it also when it was removed.
        2 => Hidden {
            /// All that is known of it.
            head: Box<DirHead>,
            /// Its base in the spine.
            base: SpinePlace,
            /// Its last change at this site.
            at: FeedPlace,
            /// The number of the directory as which it is shown; none if it is not.
            within: Option<Ino>,
        },
    }
}

wire_enum! {
    /// Objects that are near a name of a directory and that no entry of that name leads to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum NearRow {
        /// Some.
        1 => Near { /// Their ids.
            ids: Vec<FileId> },
    }
}

wire_enum! {
    /// What has a last change at a site: an object, or a move of the spine, which changes never again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum FeedRow {
        /// A file.
        1 => File { /// Which.
            id: FileId },
        /// A directory.
        2 => Dir { /// Which.
            id: FileId },
        /// A move of directories.
        3 => Move { /// Its stamp.
            stamp: HybridStamp },
    }
}

wire_enum! {
    /// What a writer has given out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WriterRow {
        /// The writer of this site.
        1 => Own {
            /// The number of its last dot.
            n: u64,
            /// The time of its clock, in microseconds.
            latest_us: u64,
            /// The position of its last record that changed objects.
            position: u64,
        },
        /// Another one.
        2 => Seen { /// The highest number of a dot of it that was taken here.
            n: u64 },
    }
}

wire_enum! {
    /// A life of a writer has begun.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LifeRow {
        /// Of the writer of this site.
        1 => Own {
            /// The number of the dot that it gives first.
            n: u64,
            /// It.
            life: u64,
        },
        /// Of another one.
        2 => Seen { /// It.
            life: u64 },
    }
}

wire_enum! {
    /// How far this site and another one have each other's feed. One with the tag 1 has no lives: a site that has some is not opened.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PeerRow {
        /// They do.
        2 => Upto {
            /// This site has all of the other one's feed up to this position.
            taken: u64,
            /// The life of the other one that has made this position.
            life: Option<u64>,
            /// The other one has said that it has this site's, synced, up to this position. It may have said more since.
            acked: u64,
        },
    }
}

wire_enum! {
    /// A move of directories.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum MoveRow {
        /// Of the spine's log.
        1 => Logged { /// It.
            record: SpineMove },
    }
}

/// The key of a life: of one of this site's writer by the position of its first record, of others by the number of the dot that it has
/// given first.
pub const fn life_key(writer: Writer, number: u64) -> u128 {
    (writer.0 as u128) << 64 | number as u128
}

/// The key of a stamp: keys are in the order of stamps.
pub const fn stamp_key(stamp: HybridStamp) -> u128 {
    (stamp.time_us as u128) << 64 | stamp.writer.0 as u128
}

/// The key in [`NEAR`] of a name in a directory. Those of one directory follow each other. Two names may share a key: the states of
/// the objects say which is meant.
pub fn near_key(dir: FileId, name: &Name) -> u128 {
    near_keys(dir).0 | u128::from(siphash24(NEAR_KEY, 2, name.as_bytes()))
}

/// The first key in [`NEAR`] of the directory that has this key.
pub const fn first_near_key(key: u128) -> u128 {
    key & !(u64::MAX as u128)
}

/// The first and the last key in [`NEAR`] of a directory.
pub fn near_keys(dir: FileId) -> (u128, u128) {
    let first = u128::from(siphash24(NEAR_KEY, 1, &dir.0.to_le_bytes())) << 64;
    (first, first | u128::from(u64::MAX))
}

/// The key of a body that rests since this time, in microseconds: the oldest are first.
pub const fn trash_key(since_us: u64, ino: Ino) -> u128 {
    (since_us as u128) << 64 | ino.0 as u128
}

/// Since when the body with this key rests, in microseconds, and its number.
pub const fn trash_of(key: u128) -> (u64, Ino) {
    ((key >> 64) as u64, Ino(key as u64))
}

/// The key of a conflict that the record at this position has settled at this time, in microseconds.
pub const fn settled_key(time_us: u64, position: u64, nth: u8) -> u128 {
    (time_us as u128) << 64 | (position << 8 | nth as u64) as u128
}

/// When the conflict with this key was settled, in microseconds.
pub const fn settled_us(key: u128) -> u64 {
    (key >> 64) as u64
}

/// The key of the `nth` row of hashes of a file.
pub const fn pieces_key(ino: Ino, nth: u64) -> u128 {
    (ino.0 as u128) << 64 | nth as u128
}

/// A side row that is set.
pub fn set(table: u8, id: u128, row: &impl Encode) -> RowChange {
    RowChange::Side { table, id, row: Some(row.to_vec().into()) }
}

/// A side row that goes.
pub const fn remove(table: u8, id: u128) -> RowChange {
    RowChange::Side { table, id, row: None }
}

impl FileBeside {
    /// Reads what is beside the row of a file.
    pub fn read(bytes: &Bytes) -> Result<Self, Malformed> {
        match BesideRow::from_slice(bytes)? {
            BesideRow::File { file } => Ok(*file),
            BesideRow::Dir { .. } | BesideRow::Nameless { .. } => {
                Err(Malformed::new("what is beside a file"))
            }
        }
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Bytes {
        BesideRow::File { file: Box::new(self) }.to_vec().into()
    }
}

impl BodyVersion {
    /// That of a version of a state.
    pub const fn of(dot: Dot, version: &FileVersion) -> Self {
        Self { dot, size: version.size, root: version.root }
    }

    /// Whether it has the bytes of a version.
    pub fn is_equal(&self, version: &FileVersion) -> bool {
        (self.size, self.root) == (version.size, version.root)
    }
}

impl DirBeside {
    /// Reads what is beside the row of a directory.
    pub fn read(bytes: &Bytes) -> Result<Self, Malformed> {
        match BesideRow::from_slice(bytes)? {
            BesideRow::Dir { dir } => Ok(*dir),
            BesideRow::File { .. } | BesideRow::Nameless { .. } => {
                Err(Malformed::new("what is beside a directory"))
            }
        }
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Bytes {
        BesideRow::Dir { dir: Box::new(self) }.to_vec().into()
    }
}

/// The rows of the feed when an object has another last change.
pub fn fed(before: Option<FeedPlace>, at: FeedPlace, object: FeedRow) -> impl Iterator<Item = RowChange> {
    let before = before.map(|before| remove(FEED, before.key()));
    before.into_iter().chain([set(FEED, at.key(), &object)])
}

/// What is known of a directory that has a row.
#[derive(Debug)]
pub(crate) struct SiteDir {
    pub(crate) id: FileId,
    pub(crate) head: DirHead,
    /// Its last change at this site; none of a root that nobody has changed.
    pub(crate) at: Option<FeedPlace>,
}

impl SiteDir {
    /// By its row.
    pub(crate) fn of(ino: Ino, row: &Dir) -> Self {
        if let Some(beside) = &row.beside {
            let DirBeside { id, head, at } = DirBeside::read(beside).expect("this site has written it");
            return Self { id, head, at: Some(at) };
        }
        assert_eq!(ino, Ino::ROOT, "nothing is known of a directory that has a row");
        let head = root_head(row.fixed.mode, row.fixed.uid, row.fixed.gid);
        Self { id: FileId::ROOT, head, at: None }
    }
}

/// The root of a volume before anybody has changed it: the same at all sites, which make theirs with the same attributes.
pub fn root_head(mode: u32, uid: u32, gid: u32) -> DirHead {
    let birth = DirBirth { stamp: HybridStamp::ZERO, parent: FileId::ROOT };
    let attrs = AttrState::new(HybridStamp::ZERO, mode, uid, gid, Time::default());
    // Nobody sees the name of the root.
    let name = Name::new(b"root").expect("it is a name");
    DirState::new(birth, Dot { writer: ROOT_WRITER, n: 1 }, attrs, name).head
}
