//! What comes with a request of a client besides its operation. A request with more has a tag of its own, so that the
//! bytes of other requests stay as they were.

use atoll_core::{Ino, wire_struct};
use atoll_posix::{Op, RequestOptions};

use crate::message::{ClientOp, EntryRef};

wire_struct! {
    /// Names of the files that an operation names by their ids. A file has no list of its names, so its home looks at this one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FoundBy {
        /// Of the file that it is about.
        pub file: EntryRef,
        /// Of the file that it copies from.
        pub from: Option<EntryRef>,
    }
}

wire_struct! {
    /// A file of a session that sees one directory, and what is below it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Within {
        /// The directory.
        pub scope: Ino,
        /// The name by which the session has found the file.
        pub by: Option<EntryRef>,
    }
}

/// What comes with an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extras {
    /// What is asked for besides.
    pub options: RequestOptions,
    /// How its files were found, if that counts.
    pub by: Option<Box<FoundBy>>,
}

impl ClientOp {
    /// Its operation of a file system, if it is one.
    pub const fn operation(&self) -> Option<&Op> {
        match self {
            Self::Fs { op }
            | Self::Rename { op, .. }
            | Self::Link { op, .. }
            | Self::WithOptions { op, .. }
            | Self::Found { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The same with options, which take the place of others. A request that is no operation of a file system gets none.
    #[must_use]
    pub fn with_options(self, options: RequestOptions) -> Self {
        let (op, extras) = self.without_extras();
        op.with_extras(Extras { options, ..extras })
    }

    /// The same with more. A request that is no operation of a file system, or has more already, stays as it is.
    #[must_use]
    pub fn with_extras(self, extras: Extras) -> Self {
        let Extras { options, by } = extras;
        let (op, key, home) = match self {
            Self::Fs { op } => (op, None, None),
            Self::Rename { op, key } => (op, Some(key), None),
            Self::Link { op, home } => (op, None, Some(home)),
            other => return other,
        };
        match by {
            Some(by) => Self::Found { by: *by, options, op, key, home },
            None => Self::WithOptions { options, op, key, home },
        }
    }

    /// The operation alone, and what came with it.
    #[must_use]
    pub fn without_extras(self) -> (Self, Extras) {
        let (extras, op, key, home) = match self {
            Self::WithOptions { options, op, key, home } => (Extras { options, by: None }, op, key, home),
            Self::Found { by, options, op, key, home } => {
                (Extras { options, by: Some(Box::new(by)) }, op, key, home)
            }
            other => return (other, Extras::default()),
        };
        let op = match (key, home) {
            (Some(key), _) => Self::Rename { op, key },
            (None, Some(home)) => Self::Link { op, home },
            (None, None) => Self::Fs { op },
        };
        (op, extras)
    }
}
