//! The journal (`DESIGN` 5; Archipelago 8): changes to places and static attributes of directories.

pub(crate) mod others;
pub(crate) mod outbox;
