//! A wish of a client, as a part of its request. A request with a wish has a tag of its own, so that the
//! bytes of other requests stay as they were.

use atoll_posix::{Op, Wish};

use crate::message::ClientOp;

impl ClientOp {
    /// Its operation of a file system, if it is one.
    pub const fn operation(&self) -> Option<&Op> {
        match self {
            Self::Fs { op } | Self::Rename { op, .. } | Self::Link { op, .. } | Self::Wished { op, .. } => {
                Some(op)
            }
            _ => None,
        }
    }

    /// The same with a wish. A request that is no operation of a file system gets none.
    #[must_use]
    pub fn wishing(self, wish: Wish) -> Self {
        match self {
            Self::Fs { op } => Self::Wished { wish, op, key: None, home: None },
            Self::Rename { op, key } => Self::Wished { wish, op, key: Some(key), home: None },
            Self::Link { op, home } => Self::Wished { wish, op, key: None, home: Some(home) },
            other => other,
        }
    }

    /// The same without its wish, and the wish.
    #[must_use]
    pub fn without_wish(self) -> (Self, Wish) {
        match self {
            Self::Wished { wish, op, key: Some(key), .. } => (Self::Rename { op, key }, wish),
            Self::Wished { wish, op, home: Some(home), .. } => (Self::Link { op, home }, wish),
            Self::Wished { wish, op, .. } => (Self::Fs { op }, wish),
            other => (other, Wish::default()),
        }
    }
}
