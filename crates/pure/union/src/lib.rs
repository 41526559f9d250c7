//! The federal machine of a union: it shows the directory trees of several members as one tree (FedFS).
//!
//! Decides; never touches a file, a clock or a thread. What it wants to be done in a member is a [`NativeCall`], a plain
//! value: today it becomes native calls of this process, and nothing here would change if another machine performed it.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod dirs;
mod explain;
mod find;
mod frontend;
mod graves;
mod holds;
mod intent;
mod learn;
mod members;
pub mod native;
mod ops;
mod place;
mod questions;
mod task;
mod union;
mod view;

pub use dirs::{DIR_NAMES_BYTES_MAX, Known, NAMES_BYTES_MAX, NamesMax, Tick, ino_of, tag_of};
pub use explain::{HomeRole, SeenHome};
pub use frontend::{FRONTENDS_MAX, FrontendId, Told};
pub use graves::{GRAVES_MAX, Grave};
pub use intent::{Direction, Intent, IntentStep, Reach};
pub use native::{
    At, Changed, Changes, Copied, NativeCall, NativeEntry, NativeId, NativeReply, NativeStat, Space, Tag, Who,
};
pub use task::{Finished, IntentOver, LONG_MS, Planned, SOFT_MS, UnionRequest};
pub use union::{Moment, PASSED_MAX, Union, UnionEffect};
pub use view::{AwayRule, LockRule, Member, MemberState, Members, PlaceRule, SameRule, Settings, UnlinkRule};
