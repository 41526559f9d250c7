//! Operations of clients.

pub(crate) mod attrs;
pub(crate) mod between;
pub(crate) mod dirs;
pub(crate) mod names;
pub(crate) mod unchecked;
