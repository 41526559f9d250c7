//! Locks: transactions lock names, files and directories, and clients lock files.

pub(crate) mod files;
pub(crate) mod names;
