//! Causality between the sites of a wide volume (`docs/design/023-wide.md`): who made a change, what was known when it was
//! made, and how the states of two sites are joined.
//!
//! Values and functions over them. Never sends, writes or asks the time, and knows no site's file tree.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod attrs;
mod change;
mod context;
mod dir;
mod dots;
mod file;
mod id;
mod stamp;

pub use attrs::{AttrPart, AttrState, XattrName, XattrValue};
pub use change::{ObjectChange, Taken};
pub use context::Context;
pub use dir::{DirBirth, DirChange, DirHead, DirPart, DirState, EntryKey, EntryWord};
pub use dots::{DotFun, DotMap, DotSet, Lww, NoValue};
pub use file::{FileBirth, FileChange, FileGrave, FilePart, FileState, FileVersion, LinkPlace};
pub use id::{Dot, FileId, Writer};
pub use stamp::{HybridClock, HybridStamp};
