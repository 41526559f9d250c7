//! A start: what others know of this island's lost records, and doing those again.

pub(crate) mod redo;
pub(crate) mod start;
