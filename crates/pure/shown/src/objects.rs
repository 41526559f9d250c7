//! The objects that a site holds, as this crate asks for them. Owns no state.

use std::borrow::Cow;

use atoll_causal::{Context, DirHead, DotFun, EntryKey, EntryWord, FileId, FileState, Writer};
use atoll_core::Name;

use crate::life::{Life, life};

/// The objects that a site holds.
pub trait Objects {
    /// The state of a file; none if it is not held, or is no file.
    fn file(&self, id: FileId) -> Option<Cow<'_, FileState>>;

    /// The state of a directory but for its entries; none if it is not held, or is no directory.
    fn dir(&self, id: FileId) -> Option<Cow<'_, DirHead>>;

    /// The parent and the name of a directory, whether it is shown or not; none for the root and for what is not held.
    /// Parents make no cycle.
    fn place(&self, dir: FileId) -> Option<(FileId, Name)>;

    /// What a directory has of one entry.
    fn entry(&self, dir: FileId, key: &EntryKey) -> Option<Cow<'_, DotFun<EntryWord>>>;

    /// Whether every object is held, as at a site that has the whole tree. Then each says of itself where it is, directories have no
    /// entries, and nothing says of a directory which removals have seen it where it is.
    fn are_all_held(&self) -> bool {
        false
    }

    /// What was known of `child` by those who changed its entries in `dir`.
    fn based(&self, dir: FileId, child: FileId) -> Option<Cow<'_, Context>>;

    /// What may be shown in a directory, or what may have the name `name` there: each object that an entry of the directory, a link or
    /// the grave of a file, or the place of a directory puts there. Sorted, each once. Others may be among them.
    fn near(&self, dir: FileId, name: Option<&Name>) -> Vec<EntryKey>;

    /// The name of the site that a writer belongs to.
    fn site(&self, writer: Writer) -> Cow<'_, str>;

    /// Whether a directory is shown where it is. A site that remembers this for each removed directory answers from memory.
    fn life(&self, dir: FileId) -> Life
    where
        Self: Sized,
    {
        life(self, dir)
    }
}
