//! POSIX's words, used from the frontends down to the log: operations, answers, attributes, error numbers,
//! and the rules (permissions, ACLs, set-id bits) as pure functions.
//!
//! Never touches a file, a socket or a clock, and knows nothing of islands.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod acl;
pub mod atime;
pub mod attr;
pub mod beside;
pub mod errno;
mod ids;
pub mod locks;
pub mod op;
pub mod perm;
pub mod xattr;

pub use atime::{AtimeRule, Readings};
pub use attr::{Attr, Caller, Kind, SetAttr, SetTime, mode};
pub use beside::{AnswerExtras, AttrsAround, CHANGED_MAX, Caching, RequestOptions};
pub use errno::Errno;
pub use op::{
    Allocation, Answer, DirEntry, LockKind, LockRange, NamedObject, Op, RenameMode, Whence, XattrMode,
};
