//! A member of a union: performs the calls of the union's machine in a directory of this machine. Never decides what is called,
//! and never resolves a path from the name of the mount point again.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod identity;
mod real;
pub mod sim;
mod who;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use atoll_posix::Errno;
use atoll_union::{Changes, NativeCall, NativeReply, NativeStat, Who};

pub use identity::MemberIdentity;
pub use real::{
    DIR_DESCRIPTORS_MAX, FILE_DESCRIPTORS_MAX, NativeTree, READ_BYTES_MAX, STUCK_CALLS_MAX, STUCK_MS,
};
pub use sim::SimTree;
pub use who::{KeptIdentity, keep_identity};

/// A directory tree that is a member of a union.
pub trait Tree: Send + Sync {
    /// Performs one call. `bytes` are those of a write. Errors are the native ones; `ESTALE` if an identity that the call
    /// names is not what is there, `EIO` from a member that is away, `ETIMEDOUT` from one that is stuck.
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno>;

    /// The root's attributes when the member was opened.
    fn root(&self) -> NativeStat;

    /// What has changed since this was asked last, in watched directories.
    fn changes(&self) -> Changes;

    /// The native file behind an open, for passthrough. None in trees that are not real, and for a number that is not open.
    fn backing(&self, open: u64) -> Option<Arc<OwnedFd>>;

    /// Whether the member answers.
    fn state(&self) -> TreeState;

    /// Opens a member that is away again. True if it is the same member and serves.
    fn reopen(&self) -> Result<bool, Errno>;
}

/// Whether a member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeState {
    /// It does.
    Serving,
    /// A call has not returned for [`STUCK_MS`].
    Stuck,
    /// Its disk is gone, or has failed: every call is `EIO`.
    Away,
}
