//! What a copy remembers of its group over its own end: the file `seat`. Never written here.

use atoll_proto::{GroupRecord, Host};

/// See the module. The engine keeps it beside the island's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeatFile {
    /// Number of the copy's data: higher whenever it may have lost something.
    pub tenure: u32,
    /// Where it was written.
    pub host: Option<Host>,
    /// The highest epoch that was seen.
    pub seen: u32,
    /// Epochs come from the control store. Else the copy is alone and counts them itself.
    pub grouped: bool,
    /// It was alone, and has not yet read a record: it makes the first one.
    pub makes_first: bool,
    /// Bytes of records that were cut off are in its bodies, over what was there before. That ends when the copy has a seat again.
    pub cut: bool,
    /// The group's record as it was last read, with its revision.
    pub record: Option<(u64, GroupRecord)>,
}

impl SeatFile {
    /// Of a copy that is made empty as a member of a group.
    pub const fn of_a_new_member() -> Self {
        Self { tenure: 1, host: None, seen: 0, grouped: true, makes_first: false, cut: false, record: None }
    }

    /// Of an island that is alone.
    pub const fn of_one() -> Self {
        Self { tenure: 1, host: None, seen: 0, grouped: false, makes_first: false, cut: false, record: None }
    }

    /// Whether the data directory in which the file lies is another one than when it was written: a copy of it.
    pub(crate) fn was_moved(&self, to: Host) -> bool {
        self.host.is_some_and(|was| was.inode != to.inode)
    }
}
