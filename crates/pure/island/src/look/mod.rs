//! The data that an operation reads: rows, locks of transactions, and rows that may be missing here. A look
//! changes nothing.

mod changes;
pub(crate) mod guards;
mod homes;
mod moves;
mod path;
mod scope;

use std::fmt::Debug;

use atoll_core::{Ino, IslandId, Name};
use atoll_proto::{Dir, EntryRef};

use crate::ctx::Ctx;
use crate::ctx::request::Blocked;
use crate::locks::names::NameLocks;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) locks: &'a NameLocks,
    pub(crate) missing: &'a dyn Missing,
}

/// Facts about records that an unclean end has taken, and that others may tell again.
pub(crate) trait Missing: Debug {
    /// Not all of them are redone: no operation may rely on a missing row.
    fn is_incomplete(&self) -> bool;

    /// That island may know of one that is missing here.
    fn may_have_lost(&self, by: IslandId) -> bool;

    /// That island may have moved a directory to another parent, and that this was permitted here may be lost.
    fn may_have_moved(&self, by: IslandId) -> bool;

    /// Islands that have not told all that they know.
    fn witnesses(&self) -> Vec<IslandId>;

    /// A name of a directory, or this one, to which one that is told and not done again brings something.
    fn comes_to(&self, dir: Ino, name: Option<&Name>) -> Option<&EntryRef>;

    /// An empty directory of an earlier life may have been removed, which was lost here: it gets no name that would go
    /// with it when that is told. Or a directory may have been made in it: it does not go.
    fn is_not_removed(&self, ctx: &Ctx, ino: Ino, dir: &Dir) -> Result<(), Blocked>;
}
