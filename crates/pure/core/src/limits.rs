//! The greatest lengths of encoded values, in bytes. If a user or another island can make a value longer, it
//! is cut into pieces, or refused before anything is decided (`docs/design/010-bounds.md` lists all of them).

/// Longest message: the meta part of a frame.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Longest payload of a log record.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
