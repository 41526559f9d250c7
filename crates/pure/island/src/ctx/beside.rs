//! The machine beside an island, as that of a wide volume's site (`docs/design/023-wide.md`): when the island asks it, what it may add to
//! a record, and how records of its own are decided. Knows nothing of what such a machine does.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;

use atoll_core::Ino;
use atoll_posix::{Op, perm};
use atoll_proto::{EntryRef, Record, RowChange};
use atoll_state::{NotInMemory, RowLoad, State};
use bytes::Bytes;

use super::Ctx;
use super::changed::UntoldChanges;
use crate::event::{BesideEvent, BesideSays, Effect, Now};

/// The island, as the machine beside it sees it between two records.
#[derive(Debug, Clone, Copy)]
pub struct BesideView<'a> {
    /// Its rows.
    pub state: &'a State,
    /// The time, later than that of each record before.
    pub now: Now,
    /// Records up to this survive a power cut.
    pub synced: u64,
    /// A record may be decided now.
    pub may_decide: bool,
    /// A record that only removes files without a name, and side rows, may be decided now: also on a full disk.
    pub may_free: bool,
    /// Bytes that may still be used up before the disk counts as full; none before the first look at it. Each tick is a look at it.
    pub room: Option<u64>,
    /// Files that are being changed by operations that are not decided yet: their bytes may be other ones already.
    pub busy: &'a BTreeSet<Ino>,
}

impl BesideView<'_> {
    /// The position of the record that is decided next.
    pub const fn position(&self) -> u64 {
        self.state.seq() + 1
    }
}

/// One step of the machine beside an island.
#[derive(Debug)]
pub enum BesideStep {
    /// It has nothing to do before the next event.
    Rest,
    /// It needs these rows in memory, and does the step then.
    Load(Vec<RowLoad>),
    /// It needs ids, and there are none for now.
    Ids,
    /// It says this to another one.
    Say(BesideSays),
    /// This is decided.
    Decide(BesideRecord),
    /// The island does this operation as the superuser and without a session, and tells how it has ended ([`BesideEvent::Did`]). It is an
    /// operation on the bytes or attributes of one file or of two; others fail with `EOPNOTSUPP`. While changes of clients may not be
    /// decided, it waits as those do. The machine bounds how many it has under way.
    ///
    /// It may change bytes of absent files and of files without a name; of others that fails with `ESTALE`, also if the file has become
    /// one meanwhile, as an absent one does that a user cuts off. What it changes in an absent file leaves times and mode.
    Do {
        /// Its number.
        id: u64,
        /// What.
        op: Op,
        /// Bytes of a write.
        data: Bytes,
    },
    /// What comes before an operation cannot be decided: the operation fails with `EBUSY`.
    Refuse,
}

/// Rows that the machine beside an island sets by itself.
#[derive(Debug, Clone, Default)]
pub struct BesideRecord {
    /// The rows. The row of a file that has lost all its names is removed, and that of a directory that goes: the island removes what
    /// else belongs to them, or keeps it for mounts that may have them open. What was beside the row of a file stays beside it then. The
    /// machine may give such a file a name again, if its row and its locks are in memory: mounts go on in it, and keep it no more.
    ///
    /// A file without a name, with bytes in `beside` and nobody in `orphan_of`, is the machine's own. It stays until the machine gives it
    /// a name or removes its row. If it is absent, nobody else knows it; else mounts may have it open since it had a name.
    /// A file that has a name and bytes never becomes absent; one without bytes may. The length of a file that has bytes is set by an
    /// operation ([`BesideStep::Do`]). The bytes of a file are synced before a record says that they are here.
    pub record: Record,
    /// Files that it makes. They have no bytes yet.
    pub made: Vec<Ino>,
}

/// A machine that sees each record of an island before its rows are set, and may decide records of its own.
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

    /// Bytes of the largest file. What would make one larger fails with `EFBIG`.
    fn file_bytes_max(&self) -> u64 {
        perm::FILE_BYTES_MAX
    }

    /// What is to be decided before a client's operation that may change something, so that [`Beside::witness`] can tell of it. It is
    /// asked until it rests. If an operation is decided later than it began, it is asked once more then. Who asks for the operation may
    /// have no right to it, so users see no difference by this.
    fn prepare(
        &mut self,
        _view: BesideView<'_>,
        _op: &Op,
        _mint: &mut dyn FnMut() -> Option<Ino>,
    ) -> BesideStep {
        BesideStep::Rest
    }

    /// What goes with a record that is decided now, at the view's position: it is set before the rows of the record, and is in the same
    /// record. [`Beside::witness`] is called behind it. Side rows, and rows of files that differ by `beside` and by the ctime alone. If
    /// that needs rows that are not in memory, [`Beside::prepare`] has asked for them.
    fn first(&mut self, _view: BesideView<'_>, _record: &Record) -> Vec<RowChange> {
        Vec::new()
    }

    /// Something has come for it. It takes note.
    fn hear(&mut self, _event: BesideEvent) {}

    /// Its next step. A record is decided at once, at the view's position, and [`Beside::witness`] is not called for it. `mint` gives
    /// ids that nothing has had; none for now.
    fn step(&mut self, _view: BesideView<'_>, _mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        BesideStep::Rest
    }

    /// A copy of it.
    fn boxed(&self) -> Box<dyn Beside>;
}

impl Clone for Box<dyn Beside> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl Ctx {
    /// The machine beside the island says something.
    pub(crate) fn beside_says(&mut self, says: BesideSays) {
        self.durability.emit(Effect::Beside(self.beside_said, says));
        self.beside_said += 1;
    }

    /// Has the machine beside the island, if there is one, add to the record that is decided now. How many of the record's first rows
    /// are set by that, of which `changed` notes what users see.
    pub(super) fn witness(&mut self, seq: u64, record: &mut Record, changed: &mut UntoldChanges) -> usize {
        let now = self.now_of_beside();
        let Self { beside: Some(beside), state, durability, room, .. } = self else { return 0 };
        let (synced, room, busy) = (durability.synced(), room.left(), BTreeSet::new());
        let view = BesideView { state, now, synced, may_decide: true, may_free: true, room, busy: &busy };
        let first = beside.first(view, record);
        self.note_changed(&first, changed);
        let Self { beside: Some(beside), state, .. } = self else { return 0 };
        for change in &first {
            match change {
                RowChange::Side { .. } => {}
                // The record's own row of the file was made without knowing of this one.
                RowChange::Inode { ino, row: Some(row) } => bring_along(record, *ino, row.beside.as_ref()),
                other => panic!("the machine beside the island sets {other:?} with a record"),
            }
            state.apply(seq, change);
        }
        beside.witness(state, self.now, seq, record);
        let count = first.len();
        record.changes.splice(0..0, first);
        count
    }

    /// The time for the machine beside the island: later than that of each record before.
    pub(crate) fn now_of_beside(&self) -> Now {
        Now { wall: self.issuer.next_time(self.now.wall, self.state.meta().time), ..self.now }
    }
}

/// The rows of a file in a record get these bytes beside them.
fn bring_along(record: &mut Record, of: Ino, beside: Option<&Bytes>) {
    for change in &mut record.changes {
        if let RowChange::Inode { ino, row: Some(row) } = change
            && *ino == of
            && row.beside.is_some()
        {
            row.beside = beside.cloned();
        }
    }
}
