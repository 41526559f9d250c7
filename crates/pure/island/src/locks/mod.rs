//! What is locked: names, files and directories by transactions, and files by clients.

pub(crate) mod files;
pub(crate) mod names;
