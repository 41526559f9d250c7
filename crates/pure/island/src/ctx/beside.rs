//! The machine beside an island, as that of a wide volume's site (`docs/design/023-wide.md`): when the island asks it, and what it may
//! add to a record. Knows nothing of what such a machine does.

use std::any::Any;
use std::fmt::Debug;

use atoll_core::Ino;
use atoll_proto::{EntryRef, Record};
use atoll_state::{NotInMemory, State};

use super::Ctx;
use crate::event::Now;

/// A machine that sees each record of an island before its rows are set.
///
/// It refuses no record. What it could not take it refuses before, by [`Beside::allows_moves`].
pub trait Beside: Any + Debug + Send + Sync {
    /// The island decides the record at position `seq`, at the time `now`. `state` has the rows of before.
    ///
    /// To the record may be added: `beside` of rows of files and directories that it sets; the row of a file as it is but for `beside`,
    /// if the record changes its bytes and not its row; side rows. The island looks at a row before it changes it, so that row is in memory,
    /// but for those of what is made. Side rows may not be in memory.
    fn witness(&mut self, state: &State, now: Now, seq: u64, record: &mut Record);

    /// Whether these directories may get other parents together, by a record that is decided next: of each its id and its new name.
    /// If not, the rename fails with `EBUSY`. A row that is needed and not in memory is the error.
    fn allows_moves(&self, state: &State, now: Now, moves: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory>;

    /// A copy of it.
    fn boxed(&self) -> Box<dyn Beside>;
}

impl Clone for Box<dyn Beside> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl Ctx {
    /// Has the machine beside the island, if there is one, add to the record that is decided now.
    pub(super) fn witness(&mut self, seq: u64, record: &mut Record) {
        if let Some(beside) = &mut self.beside {
            beside.witness(&self.state, self.now, seq, record);
        }
    }
}
