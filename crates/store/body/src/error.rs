//! Why a body cannot be read or changed.

use std::io;

use atoll_core::Ino;

/// Why a body cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// A block is not what was written: take it from another copy, or tell the reader.
    #[error("block {block} of file {ino} is damaged")]
    Damaged {
        /// The file.
        ino: Ino,
        /// The block, counted from 0.
        block: u64,
    },
    /// The disk refused or failed: the errno says which.
    #[error("body of file {ino}: {source}")]
    Io {
        /// The file.
        ino: Ino,
        /// The native error.
        source: io::Error,
    },
    /// Bytes were overwritten in part: the file has neither its old nor its new bytes. The island stops on
    /// this node, and its recovery takes the file as it is.
    #[error("a write into file {ino} failed half way: {source}")]
    Torn {
        /// The file.
        ino: Ino,
        /// The native error.
        source: io::Error,
    },
    /// An earlier sync failed, so nothing unsynced may be trusted: the island stops on this node.
    #[error("an earlier sync of a body failed")]
    SyncFailed,
}

impl BodyError {
    pub(crate) const fn io(ino: Ino, source: io::Error) -> Self {
        Self::Io { ino, source }
    }

    /// The file, if it is one file's error.
    pub const fn ino(&self) -> Option<Ino> {
        match self {
            Self::Damaged { ino, .. } | Self::Io { ino, .. } | Self::Torn { ino, .. } => Some(*ino),
            Self::SyncFailed => None,
        }
    }

    /// The disk, or somebody's part of it, is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if atoll_disk::is_no_space(source))
    }

    /// The errno of a native error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Damaged { .. } | Self::Torn { .. } | Self::SyncFailed => None,
        }
    }
}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Io { source, .. } => source,
            other => Self::other(other),
        }
    }
}
