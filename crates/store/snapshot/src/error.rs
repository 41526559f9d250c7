//! Why a snapshot cannot be read or written. The variants are told apart by the remedy.

use std::io;
use std::sync::Arc;

/// Why a snapshot cannot be read or written. After the first one of an open snapshot, all calls
/// give it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotError {
    /// Written by a newer Atoll: use that one.
    #[error("snapshot has format version {found}; this program knows {known}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The newest that this program reads.
        known: u32,
    },
    /// The bytes are damaged: copy the island from a replica, or rebuild it.
    #[error("snapshot is damaged: {0}")]
    Damaged(String),
    /// The disk failed, and the commit under way may be there or not. Open again.
    #[error("snapshot cannot be read or written: {0}")]
    Io(Arc<io::Error>),
}

impl SnapshotError {
    /// There was no space or quota left.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io(error) if atoll_disk::is_no_space(error))
    }

    pub(crate) fn damaged(what: impl ToString) -> Self {
        Self::Damaged(what.to_string())
    }
}

impl From<SnapshotError> for io::Error {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Io(inner) => Self::new(inner.kind(), SnapshotError::Io(inner)),
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        // `redb` says so of a file that does not begin as it should.
        if error.kind() == io::ErrorKind::InvalidData {
            return Self::damaged(error);
        }
        Self::Io(Arc::new(error))
    }
}

impl From<redb::StorageError> for SnapshotError {
    fn from(error: redb::StorageError) -> Self {
        match error {
            redb::StorageError::Io(error) => error.into(),
            redb::StorageError::Corrupted(what) => Self::Damaged(what),
            other => Self::Io(Arc::new(io::Error::other(other.to_string()))),
        }
    }
}

impl From<redb::DatabaseError> for SnapshotError {
    fn from(error: redb::DatabaseError) -> Self {
        match error {
            redb::DatabaseError::Storage(error) => error.into(),
            other => Self::damaged(other),
        }
    }
}

impl From<redb::TableError> for SnapshotError {
    fn from(error: redb::TableError) -> Self {
        match error {
            redb::TableError::Storage(error) => error.into(),
            other => Self::damaged(other),
        }
    }
}

impl From<redb::TransactionError> for SnapshotError {
    fn from(error: redb::TransactionError) -> Self {
        match error {
            redb::TransactionError::Storage(error) => error.into(),
            other => Self::Io(Arc::new(io::Error::other(other.to_string()))),
        }
    }
}

impl From<redb::CommitError> for SnapshotError {
    fn from(error: redb::CommitError) -> Self {
        match error {
            redb::CommitError::Storage(error) => error.into(),
            other => Self::Io(Arc::new(io::Error::other(other.to_string()))),
        }
    }
}
