//! A finding: what is wrong, and the rule that it breaks.

use std::fmt;

use atoll_core::{Ino, IslandId};

macro_rules! rules {
    ($($(#[$meta:meta])* $variant:ident $name:literal $text:literal),* $(,)?) => {
        /// A rule that a state at rest keeps.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[$meta])* $variant),*
        }
        impl Rule {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Its name, for programs and tests.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            /// The rule as a sentence.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

rules! {
    /// A row cannot be read.
    RowReadable "row-readable" "every row can be read",
    /// The root is there.
    RootThere "root-there" "every island has the root in its skeleton",
    /// A directory hangs together with the root.
    SkeletonWhole "skeleton-whole" "every skeleton directory's parent is in the skeleton, up to the root",
    /// A skeleton directory is needed.
    SkeletonNeeded "skeleton-needed" "a skeleton directory is owned, has names of files that are homed here, or has one of these below it",
    /// The count of skeleton directories below is right.
    BelowCounted "below-counted" "a skeleton directory counts the skeleton directories in it",
    /// The count of names of files that are homed here is right.
    HomesCounted "homes-counted" "a directory that another island owns counts the names in it of files that are homed here",
    /// The owner is the table's.
    OwnerByTable "owner-by-table" "a directory is owned where the table says, and nowhere else",
    /// Names stand in directories that are owned here, or are of files that are homed here.
    NamesOwned "names-owned" "a file's name stands where its directory is owned, where the file is homed, and nowhere else",
    /// A name's cookie is its own.
    CookieOfName "cookie-of-name" "a name's place in listings is the one that the volume's seed gives",
    /// Names are counted.
    NamesCounted "names-counted" "a directory counts its names and its directories",
    /// A directory's name has a stub.
    StubThere "stub-there" "the name of a directory has a stub, and no other name has one",
    /// The stub agrees with its directory.
    StubAgrees "stub-agrees" "a stub has the key and the static attributes of its directory",
    /// A directory has one name, at its parent.
    DirNamedOnce "dir-named-once" "a directory stands under one name, in the directory that it says, and only there",
    /// A directory has its name at its parent.
    DirNamed "dir-named" "a directory has a name in the directory that it says, at that one's owner",
    /// A named directory is there.
    DirThere "dir-there" "a directory that has a name is there, owned by the island of its key",
    /// A named file is there.
    FileThere "file-there" "a file that has a name has an inode at its home",
    /// A name elsewhere is known at the file's home.
    NameAtHome "name-at-home" "a file's home has all its names in directories of other islands",
    /// A name elsewhere is known where its directory is owned.
    NameAtOwner "name-at-owner" "a name that a file's home has in a directory of another island stands there",
    /// Names of files are counted.
    LinksCounted "links-counted" "an inode counts the names of its file",
    /// A file without a name is kept by a client.
    OrphanHeld "orphan-held" "a file without a name is kept by a client that is known, or its bytes are being brought",
    /// A name has the type of its file.
    KindAgrees "kind-agrees" "a name has the type of what it names",
    /// A file has its checksums, and no more.
    SumsFit "sums-fit" "checksums cover no block beyond the end of their file",
    /// Attributes that are rows of their own are announced, and the other way round.
    XattrsAnnounced "xattrs-announced" "a file or directory says whether it has extended attributes",
    /// Locks belong to clients that are known, on files that are there.
    LocksHeld "locks-held" "a lock is on a file that is there, by a client that is known",
    /// Ids were minted.
    IdMinted "id-minted" "an id is below the limit of the island that minted it",
    /// A copy is as new as the journal that its island has applied.
    CopyCurrent "copy-current" "a copy of a directory's place or attributes is as new as what its island has applied of the journal",
    /// A transaction has two sides, and marked rows have their transaction.
    TxnCaused "txn-caused" "a transaction is between its coordinator and another island, and what is marked as part of one has one",
    /// A link to a directory is as its home has told the others.
    LinkThere "link-there" "a symbolic link that a home has told of is there, with its target and its names",
    /// Links to directories are known to all.
    LinksAgree "links-agree" "an island that has said that it has another's links to directories has them as that",
    /// Nothing is under way.
    TxnEnded "txn-ended" "at rest no transaction is under way, and no directory is marked as part of one",
    /// Journals have arrived.
    JournalDelivered "journal-delivered" "at rest all islands have applied all journals, and none is kept",
    /// A file that has moved away is known to have moved.
    ForwardKnown "forward-known" "a file that has gone to another island is not here, and clients that may look for it here are known",
    /// Skeleton directories have the names of the files and directories below them.
    SkeletonNamed "skeleton-named" "at rest a directory that another island owns has the names of what is below it here, and no others",
    /// Clients hold only files that they have a cause for.
    HeldForCause "held-for-cause" "at rest a client holds a file for a lock, or because the file has no name",
    /// Copies of an island are the same.
    CopiesAgree "copies-agree" "copies of an island that stand at the same record have the same rows",
    /// The skeletons agree.
    SkeletonsAgree "skeletons-agree" "two islands that have a directory at the same version have it alike",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule that it breaks.
    pub rule: Rule,
    /// The island that it was found at.
    pub island: IslandId,
    /// The file or directory that it is about, if it is about one.
    pub ino: Option<Ino>,
    /// A text for people.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "island {}: ", self.island)?;
        if let Some(ino) = self.ino {
            write!(f, "id {ino}: ")?;
        }
        write!(f, "{} [{}]", self.what, self.rule)
    }
}
