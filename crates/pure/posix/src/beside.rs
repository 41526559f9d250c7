//! Data beside an operation and beside its answer.

use crate::attr::Attr;
use atoll_core::{Time, wire_struct};

wire_struct! {
    /// What a frontend asks for beside an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RequestOptions {
        /// Nobody has walked to the object or opened it for the caller: what that would have checked of the object
        /// itself is checked too (`perm::needs`).
        pub unchecked: bool,
        /// The attributes of what it is about are wanted, as they were just before it and just after it.
        pub attributes: bool,
    }
}

wire_struct! {
    /// What tells whether a file or directory has changed since it was seen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttrsBefore {
        /// Bytes.
        pub size: u64,
        /// Last change of content.
        pub mtime: Time,
        /// Last change of anything.
        pub ctime: Time,
    }
}

wire_struct! {
    /// A file or directory around an operation: both are of the decision that made it, with nothing in between.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttrsAround {
        /// Just before it. None if it only looked.
        pub before: Option<AttrsBefore>,
        /// Just after it.
        pub after: Attr,
    }
}

impl AttrsAround {
    /// Of an object with these attributes before, if it was changed, and after.
    pub fn new(before: Option<&Attr>, after: Attr) -> Self {
        let before = before.map(|a| AttrsBefore { size: a.size, mtime: a.mtime, ctime: a.ctime });
        Self { before, after }
    }
}

/// Most ids and names together that a frontend is told one by one to have changed. If more have, it drops everything.
pub const CHANGED_MAX: usize = 4096;

/// For how long an answer may be kept by whoever is told it before its completion returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// Not at all: ask again every time.
    #[default]
    Never,
    /// For so many milliseconds. What changes meanwhile is told afterwards, if at all.
    ForMs(u32),
    /// Until it is recalled.
    UntilRecalled,
}

/// What comes beside the outcome of an operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerExtras<'a> {
    /// The bytes of `Answer::Data`, otherwise none.
    pub bytes: &'a [u8],
    /// For how long the outcome may be kept, a name that is absent too.
    pub caching: Caching,
    /// What it is about, if that was asked for: as much of it as the island that decided has. None for what failed, or was
    /// answered from memory.
    pub around: &'a [AttrsAround],
}

impl<'a> AnswerExtras<'a> {
    /// Nothing that may be kept, with these bytes.
    pub const fn bytes(bytes: &'a [u8]) -> Self {
        Self { bytes, caching: Caching::Never, around: &[] }
    }
}
