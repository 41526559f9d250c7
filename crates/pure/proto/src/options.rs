//! Options of a request of a client. A request with options has a tag of its own, so that the
//! bytes of other requests stay as they were.

use atoll_posix::{Op, RequestOptions};

use crate::message::ClientOp;

impl ClientOp {
    /// Its operation of a file system, if it is one.
    pub const fn operation(&self) -> Option<&Op> {
        match self {
            Self::Fs { op }
            | Self::Rename { op, .. }
            | Self::Link { op, .. }
            | Self::WithOptions { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The same with options. A request that is no operation of a file system gets none.
    #[must_use]
    pub fn with_options(self, options: RequestOptions) -> Self {
        match self {
            Self::Fs { op } => Self::WithOptions { options, op, key: None, home: None },
            Self::Rename { op, key } => Self::WithOptions { options, op, key: Some(key), home: None },
            Self::Link { op, home } => Self::WithOptions { options, op, key: None, home: Some(home) },
            other => other,
        }
    }

    /// The same without its options, and the options.
    #[must_use]
    pub fn without_options(self) -> (Self, RequestOptions) {
        match self {
            Self::WithOptions { options, op, key: Some(key), .. } => (Self::Rename { op, key }, options),
            Self::WithOptions { options, op, home: Some(home), .. } => (Self::Link { op, home }, options),
            Self::WithOptions { options, op, .. } => (Self::Fs { op }, options),
            other => (other, RequestOptions::default()),
        }
    }
}
