//! The rows that an island's state is made of (`DESIGN` 4).

use atoll_core::{
    Decode, Encode, Ino, IslandId, Key, Malformed, Name, Reader, SessionId, Stamp, Time, TxnId, wire_enum,
    wire_struct,
};
use atoll_posix::{Attr, Kind, acl};
use bytes::Bytes;

use crate::message::{Moments, Part, Spot};

wire_struct! {
    /// A file (anything but a directory), at its home.
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
        /// How often it has got another home.
        pub moves: u32,
        /// The mounts that may still have it open although it has no name. Empty while it has one.
        pub orphan_of: Vec<SessionId>,
    }
}

wire_struct! {
    /// The static attributes of a directory: what walking through it needs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Static {
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
    /// A version of a directory's place. What is lower is older: the directory's moves to another parent
    /// are counted, and between two of them one island gives it all its names, by its own clock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub struct PlaceVersion {
        /// How often it has got another parent.
        pub moves: u32,
        /// When its parent's owner has named it since; 0 for the name that it came with.
        pub stamp: Stamp,
    }
}

wire_struct! {
    /// Where a directory is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Place {
        /// Version, given by the parent owner; a lower one is ignored.
        pub version: PlaceVersion,
        /// The directory above; its own id for the root.
        pub parent: Ino,
        /// Its name there; none for the root.
        pub name: Option<Name>,
    }
}

/// Names in a path at most; more go in a circle.
const DEPTH_MAX: usize = 4096;

/// The names of a directory from the root down, by the place of each on the way; none if one has no place.
pub fn names_of<E>(
    dir: Ino,
    mut place_of: impl FnMut(Ino) -> Result<Option<Place>, E>,
) -> Result<Option<Vec<Name>>, E> {
    let (mut names, mut at) = (Vec::new(), dir);
    while at != Ino::ROOT {
        let Some(Place { parent, name: Some(name), .. }) = place_of(at)? else { return Ok(None) };
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
    /// What only the directory owner has: dynamic attributes, and what keeps it together.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Owned {
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
        /// Names in it were lent to others: after an unclean end those know whether one is missing.
        pub lent: bool,
    }
}

wire_struct! {
    /// A directory of this island's skeleton, owned here or not.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Dir {
        /// Placement key.
        pub key: Key,
        /// Bytes of the path of which that is the hash; 0 if it is none's.
        pub birth_bytes: u16,
        /// Where it is.
        pub place: Place,
        /// Static attributes.
        pub fixed: Static,
        /// It has an `Xattrs` row (static attributes too).
        pub has_xattrs: bool,
        /// That row holds an access or default ACL.
        pub has_acl: bool,
        /// Directories of this island's skeleton directly below. At 0 like `homes`, and not owned, it is
        /// pruned.
        pub below: u32,
        /// Names in it of files that are homed here, while another island owns it: there, or promised.
        pub homes: u32,
        /// Present at its owner.
        pub owned: Option<Owned>,
    }
}

wire_struct! {
    /// What the parent owner keeps of a child directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Stub {
        /// Placement key: who owns it.
        pub key: Key,
        /// Version of its place.
        pub place: PlaceVersion,
        /// Static attributes.
        pub fixed: Static,
        /// When it was made, and the best known time of its last change.
        pub time: Time,
    }
}

wire_struct! {
    /// A name in a directory: all of them where it is owned; elsewhere those of directories of the skeleton
    /// and of files that are homed there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Entry {
        /// What it names.
        pub ino: Ino,
        /// Type of that.
        pub kind: Kind,
        /// Where a file's inode and body are.
        pub home: IslandId,
        /// For a directory.
        pub stub: Option<Box<Stub>>,
    }
}

wire_struct! {
    /// A file was homed here, and has moved: who asks for it is told where it is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Forward {
        /// Its home since.
        pub to: IslandId,
        /// How often it had moved then.
        pub moves: u32,
        /// Clients of that time that have not said that they know.
        pub sessions: Vec<SessionId>,
    }
}

wire_struct! {
    /// A symbolic link that leads to a directory, as every island keeps it: so that paths lead through it
    /// while its home, or the owner of its directory, is away. What is true of it only its home knows.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Link {
        /// Who tells of it.
        pub home: IslandId,
        /// What `stat` shows.
        pub attr: Attr,
        /// Where it leads.
        pub target: Bytes,
        /// Its names, or the first of very many.
        pub names: Vec<Spot>,
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

    /// The ACLs among them: all that islands need of the directories above their own.
    #[must_use]
    pub fn acls(&self) -> Self {
        Self(self.0.iter().filter(|(name, _)| is_acl(name)).cloned().collect())
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
    pub enum Remembered {
        /// Nothing but that it is done.
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
        /// A name went, and perhaps left an orphan.
        4 => Removed { /// The file without a name.
            orphan: Option<Ino> },
    }
}

wire_struct! {
    /// A client, as long as it is attached.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Session {
        /// It is a mount: it may hold files open without saying so, and takes part in caching.
        pub mount: bool,
        /// It is in the island's own process, and ends with it.
        pub local: bool,
        /// Results of the requests above `acked`, in ascending order.
        pub results: Vec<(u64, Remembered)>,
        /// The client has the results of all requests below this.
        pub acked: u64,
        /// Files that it holds locks on or keeps alive, in ascending order.
        pub held: Vec<Ino>,
    }
}

wire_enum! {
    /// How far a transaction is. Participant: Prepared -> Committed. Coordinator: Committed. What
    /// is aborted, or only begun, has no row (presumed abort). The row goes when the other side
    /// has reported that its part survives a power cut.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TxnState {
        /// The participant has said yes.
        1 => Prepared,
        /// Decided: it happens.
        2 => Committed,
    }
}

wire_struct! {
    /// A transaction between two islands, at either of them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Txn {
        /// How far it is.
        pub state: TxnState,
        /// The other side.
        pub partner: IslandId,
        /// When.
        pub moments: Moments,
        /// What it is.
        pub part: Part,
    }
}

impl Owned {
    /// Of an empty directory that was made at `time`.
    pub const fn empty(time: Time) -> Self {
        let (entries, subdirs, sealed, adopted, lent) = (0, 0, None, None, false);
        let (atime, mtime, ctime, btime) = (time, time, time, time);
        Self { entries, subdirs, atime, mtime, ctime, btime, sealed, adopted, lent }
    }
}

impl Txn {
    /// Without what an older version told of directories, and nobody needs.
    #[must_use]
    pub fn shed(mut self) -> Self {
        self.part.work.shed();
        self
    }
}
