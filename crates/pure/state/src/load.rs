//! Requests to read rows from a snapshot, and their results. Reads nothing itself.

use atoll_core::{Ino, Name};

use crate::key::RowKey;

/// What to read from the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RowLoad {
    /// One row.
    Row(RowKey),
    /// Up to [`NAMES_PER_PAGE`] names of a directory from this cookie on.
    ///
    /// [`NAMES_PER_PAGE`]: crate::state::NAMES_PER_PAGE
    Names {
        /// The directory.
        dir: Ino,
        /// Smallest cookie.
        from: u64,
    },
    /// Up to [`NAMES_PER_PAGE`] directories of the skeleton, from this id on: to look through them, not to
    /// keep them.
    ///
    /// [`NAMES_PER_PAGE`]: crate::state::NAMES_PER_PAGE
    Dirs {
        /// Smallest id.
        from: Ino,
    },
    /// Up to [`NAMES_PER_PAGE`] rows of a table of a machine beside the island, from this id on.
    ///
    /// [`NAMES_PER_PAGE`]: crate::state::NAMES_PER_PAGE
    Sides {
        /// The table.
        table: u8,
        /// Smallest id.
        from: u128,
    },
}

/// What the snapshot has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadedRows {
    /// The row's bytes, if it exists.
    Row(Option<Vec<u8>>),
    /// Names with cookies and rows' bytes; all there are below `to` (`u64::MAX`: to the end).
    Names {
        /// They.
        names: Vec<(u64, Name, Vec<u8>)>,
        /// First cookie that is not covered.
        to: u64,
    },
    /// Directories, as the last checkpoint left them.
    Dirs {
        /// They, by their ids.
        dirs: Vec<(Ino, Vec<u8>)>,
        /// There are more.
        more: bool,
    },
    /// Ids and rows' bytes.
    Sides {
        /// They.
        rows: Vec<(u128, Vec<u8>)>,
        /// The last id that is covered.
        to: u128,
    },
}

impl RowLoad {
    /// What a snapshot without rows has.
    pub const fn nothing(&self) -> LoadedRows {
        match self {
            Self::Row(_) => LoadedRows::Row(None),
            Self::Names { .. } => LoadedRows::Names { names: Vec::new(), to: u64::MAX },
            Self::Dirs { .. } => LoadedRows::Dirs { dirs: Vec::new(), more: false },
            Self::Sides { .. } => LoadedRows::Sides { rows: Vec::new(), to: u128::MAX },
        }
    }
}
