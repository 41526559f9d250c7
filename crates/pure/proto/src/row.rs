//! The rows of which an island's state is made (`DESIGN` 4).

use atoll_core::{
    Decode, Encode, Ino, IslandId, Key, Malformed, Name, Reader, SessionId, Stamp, Time, TxnId, wire_enum,
    wire_struct,
};
use atoll_posix::{Attr, Kind, acl};
use bytes::Bytes;

use crate::message::{EntryRef, TxnPart, TxnStamps};

wire_struct! {
    /// A file at its home, or a directory that was removed, at its owner.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Inode {
        /// What `stat` shows.
        pub attr: Attr,
        /// Target of a symbolic link.
        pub target: Option<Bytes>,
        /// It has an `Xattrs` row.
        pub has_xattrs: bool,
        /// That row holds an access ACL, which permission checks must read.
        pub has_acl: bool,
        /// How often it has moved to another home.
        pub moves: u32,
        /// The mounts that may still have it open although it has no name. Empty while it has one.
        /// Never empty for a removed directory.
        pub orphan_of: Vec<SessionId>,
        /// What a machine beside the island keeps of the file. Islands carry it along and never read it.
        pub beside: Option<Bytes>,
        /// Its bytes are not here yet: `size` is what it will have, and who wants to read or change bytes waits.
        pub is_absent: bool,
    }
}

wire_struct! {
    /// The static attributes of a directory, which a walk through it needs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StaticAttrs {
        /// Version, given by the directory owner; a lower one is ignored.
        pub version: Stamp,
        /// Permission bits.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
    }
}

wire_struct! {
    /// A version of a directory's place. A lower one is older: the directory's moves to another parent are
    /// counted, and between two moves one island gives it all its names, by its own clock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub struct PlaceVersion {
        /// How often it has moved to another parent.
        pub moves: u32,
        /// The stamp of its last name by its parent's owner; 0 for the name that it came with.
        pub stamp: Stamp,
    }
}

wire_struct! {
    /// The place of a directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirPlace {
        /// Version, given by the parent owner; a lower one is ignored.
        pub version: PlaceVersion,
        /// The directory above; its own id for the root.
        pub parent: Ino,
        /// Its name there; none for the root.
        pub name: Option<Name>,
    }
}

/// Most names in a path. A longer path would be a circle.
const DEPTH_MAX: usize = 4096;

/// The names from the root down to a directory, from the place of each directory on the way; none if one has
/// no place.
pub fn names_of<E>(
    dir: Ino,
    mut place_of: impl FnMut(Ino) -> Result<Option<DirPlace>, E>,
) -> Result<Option<Vec<Name>>, E> {
    let (mut names, mut at) = (Vec::new(), dir);
    while at != Ino::ROOT {
        let Some(DirPlace { parent, name: Some(name), .. }) = place_of(at)? else { return Ok(None) };
        names.push(name);
        at = parent;
        if names.len() > DEPTH_MAX {
            return Ok(None);
        }
    }
    names.reverse();
    Ok(Some(names))
}

wire_struct! {
    /// Facts that only the directory owner has: dynamic attributes, and marks of transactions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OwnedDir {
        /// Names in it.
        pub entries: u64,
        /// Directories in it.
        pub subdirs: u32,
        /// Last access.
        pub atime: Time,
        /// Last change of its names.
        pub mtime: Time,
        /// Last change of anything.
        pub ctime: Time,
        /// When it was made.
        pub btime: Time,
        /// The transaction that will remove it if it commits: no new names until then.
        pub sealed: Option<TxnId>,
        /// The transaction that made it, until its outcome is known.
        pub adopted: Option<TxnId>,
        /// What other islands may know of its names.
        pub others: KnownToOthers,
    }
}

/// How far an island has applied a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalClock {
    /// The last entry that it has applied.
    pub applied: Stamp,
    /// The last of them that others may need.
    pub public: Stamp,
}

impl Encode for JournalClock {
    fn encode(&self, out: &mut Vec<u8>) {
        self.applied.encode(out);
        if self.public < self.applied {
            self.public.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        self.applied.encoded_len() + if self.public < self.applied { self.public.encoded_len() } else { 0 }
    }
}

impl Decode for JournalClock {
    /// A whole row: nothing is behind it.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let applied = Stamp::decode(r)?;
        let public = if r.remaining() == 0 { applied } else { Stamp::decode(r)? };
        Ok(Self { applied, public })
    }
}

/// What other islands may know of the names of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownToOthers {
    /// Names in it were lent to other islands: after an unclean end those know whether a name is missing.
    pub ever_borrowed: bool,
    /// It has had names of files that other islands are home of: these may know the directory.
    pub has_pointers: bool,
}

impl KnownToOthers {
    const BORROWED: u8 = 1;
    /// Rows without this bit are of a version that did not look.
    const NO_POINTERS: u8 = 2;
}

impl Encode for KnownToOthers {
    fn encode(&self, out: &mut Vec<u8>) {
        let borrowed = if self.ever_borrowed { Self::BORROWED } else { 0 };
        let no_pointers = if self.has_pointers { 0 } else { Self::NO_POINTERS };
        out.push(borrowed | no_pointers);
    }

    fn encoded_len(&self) -> usize {
        1
    }
}

impl Decode for KnownToOthers {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let marks = u8::decode(r)?;
        if marks > Self::BORROWED | Self::NO_POINTERS {
            return Err(Malformed::new("marks of a directory"));
        }
        Ok(Self { ever_borrowed: marks & Self::BORROWED != 0, has_pointers: marks & Self::NO_POINTERS == 0 })
    }
}

wire_struct! {
    /// A directory of this island's skeleton, owned here or not.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Dir {
        /// Placement key.
        pub key: Key,
        /// Length of the path whose hash the key is; 0 if it is no path's.
        pub birth_bytes: u16,
        /// Its place.
        pub place: DirPlace,
        /// Static attributes.
        pub fixed: StaticAttrs,
        /// It has an `Xattrs` row (static attributes too).
        pub has_xattrs: bool,
        /// That row holds an access or default ACL.
        pub has_acl: bool,
        /// Number of directories of this island's skeleton directly below. If this and `homes` are 0, and the
        /// directory is not owned here, it is pruned.
        pub children: u32,
        /// Number of names in it of files that are homed here, while another island owns it: names that are
        /// there, or promised.
        pub foreign_names: u32,
        /// Present at its owner.
        pub owned: Option<OwnedDir>,
        /// As that of a file.
        pub beside: Option<Bytes>,
    }
}

wire_struct! {
    /// The parent owner's copy of a child directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Stub {
        /// Placement key: who owns it.
        pub key: Key,
        /// Version of its place.
        pub place: PlaceVersion,
        /// Static attributes.
        pub fixed: StaticAttrs,
        /// When it was made, and the best known time of its last change.
        pub time: Time,
    }
}

wire_struct! {
    /// A name in a directory. The directory's owner has all names. Another island has those of directories of
    /// its skeleton and of files that are homed there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Entry {
        /// The id that it leads to.
        pub ino: Ino,
        /// The type of that file.
        pub kind: Kind,
        /// The home of a file.
        pub home: IslandId,
        /// For a directory.
        pub stub: Option<Box<Stub>>,
    }
}

wire_struct! {
    /// A file was homed here and has moved. A client that asks for it is told its new home.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Forward {
        /// Its home after that.
        pub to: IslandId,
        /// The number of that move.
        pub moves: u32,
        /// Clients of that time that have not confirmed the move.
        pub sessions: Vec<SessionId>,
    }
}

wire_struct! {
    /// A symbolic link to a directory, as every island keeps it. So paths lead through the link while its
    /// home, or the owner of its directory, is away. Only its home knows the present truth.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CarriedLink {
        /// Its home, which tells of it.
        pub home: IslandId,
        /// What `stat` shows.
        pub attr: Attr,
        /// Its target.
        pub target: Bytes,
        /// Its names, or the first of very many.
        pub names: Vec<EntryRef>,
    }
}

/// Extended attributes of a file or directory, ACLs among them, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Xattrs(pub Vec<(Bytes, Bytes)>);

impl Xattrs {
    /// The value of `name`.
    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Sets or replaces.
    pub fn set(&mut self, name: Bytes, value: Bytes) {
        match self.0.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(i) => self.0[i].1 = value,
            Err(i) => self.0.insert(i, (name, value)),
        }
    }

    /// The ACLs among them. Islands need nothing else of the directories above their own.
    #[must_use]
    pub fn acls(&self) -> Self {
        Self(self.0.iter().filter(|(name, _)| is_acl(name)).cloned().collect())
    }

    /// There is an ACL among them.
    pub fn has_acls(&self) -> bool {
        self.0.iter().any(|(name, _)| is_acl(name))
    }

    /// There is nothing but ACLs among them.
    pub fn has_only_acls(&self) -> bool {
        self.0.iter().all(|(name, _)| is_acl(name))
    }

    /// These, with the ACLs of `other` instead of their own.
    #[must_use]
    pub fn with_acls_of(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.0.retain(|(name, _)| !is_acl(name));
        for (name, value) in other.acls().0 {
            all.set(name, value);
        }
        all
    }

    /// Removes; true if it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|(n, _)| n != name);
        self.0.len() != before
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS_XATTR || name == acl::DEFAULT_XATTR
}

impl Encode for Xattrs {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Xattrs {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(Vec::decode(r)?))
    }
}

wire_enum! {
    /// The first result of a request, kept until the client says it has it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum RequestResult {
        /// Only that it is done.
        1 => Done,
        /// It made or found this id.
        2 => Ino { /// The id.
            ino: Ino },
        /// It wrote.
        3 => Wrote { /// Bytes.
            len: u64, /// Where.
            offset: u64 },
        /// It changed the attributes of this id.
        5 => Attr { /// The id.
            ino: Ino },
        /// A name was removed, and perhaps left an orphan.
        4 => Removed { /// The file without a name.
            orphan: Option<Ino> },
    }
}

wire_struct! {
    /// A life of a daemon: one process on a data directory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct DaemonLife {
        /// The daemon.
        pub daemon: u64,
        /// Counts up with every start of it.
        pub incarnation: u32,
    }
}

impl DaemonLife {
    /// Whether another life proves that this one is over: a later one of the same daemon does.
    pub const fn is_over_in(self, other: Self) -> bool {
        self.daemon == other.daemon && self.incarnation < other.incarnation
    }
}

wire_struct! {
    /// A client, as long as it is attached.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Session {
        /// It is a mount: it may hold files open without saying so, and takes part in caching.
        pub mount: bool,
        /// It is in the process that served the island when it attached, and ends with that.
        pub local: Option<DaemonLife>,
        /// Its end has begun: nothing is kept for it any more, and `held` is let go of.
        pub ending: bool,
        /// Results of the requests above `acked`, in ascending order.
        pub results: Vec<(u64, RequestResult)>,
        /// The client has the results of all requests below this.
        pub acked: u64,
        /// Files that it holds locks on or keeps alive, in ascending order.
        pub held: Vec<Ino>,
        /// It sees this directory only, and what is below it.
        pub scope: Option<Ino>,
        /// It is a mount that may keep what it was told: others change nothing before it has dropped that, or can use it no
        /// more.
        pub keeps: bool,
    }
}

wire_enum! {
    /// The state of a transaction. Participant: Prepared -> Committed. Coordinator: Committed. A transaction
    /// that is aborted, or only begun, has no row (presumed abort). The row is removed when the other side
    /// has reported that its part survives a power cut.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TxnState {
        /// The participant has said yes.
        1 => Prepared,
        /// It is decided and happens.
        2 => Committed,
    }
}

wire_struct! {
    /// A transaction between two islands, at either of them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Txn {
        /// Its state.
        pub state: TxnState,
        /// The other side.
        pub partner: IslandId,
        /// Its times.
        pub stamps: TxnStamps,
        /// Its content.
        pub part: TxnPart,
    }
}

impl OwnedDir {
    /// The row of an empty directory that was made at `time`.
    pub const fn empty(time: Time) -> Self {
        Self {
            entries: 0,
            subdirs: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            sealed: None,
            adopted: None,
            others: KnownToOthers { ever_borrowed: false, has_pointers: false },
        }
    }
}

impl Txn {
    /// The same without data about directories that an older version sent and nobody needs.
    #[must_use]
    pub fn shed(mut self) -> Self {
        self.part.work.shed();
        self
    }
}
