//! What goes beside an operation, and what comes beside its answer.

use atoll_core::wire_struct;

wire_struct! {
    /// What a frontend asks for beside an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Wish {
        /// Nobody has walked to the object or opened it for the caller: what that would have checked of the object
        /// itself is checked too (`perm::needs`).
        pub unchecked: bool,
    }
}

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
pub struct Beside<'a> {
    /// The bytes of `Answer::Data`, otherwise none.
    pub bytes: &'a [u8],
    /// For how long the outcome may be kept, a name that is absent too.
    pub caching: Caching,
}

impl<'a> Beside<'a> {
    /// Nothing that may be kept, with these bytes.
    pub const fn bytes(bytes: &'a [u8]) -> Self {
        Self { bytes, caching: Caching::Never }
    }
}
