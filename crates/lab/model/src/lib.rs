//! The reference model of a POSIX tree: plain, slow, one thread, one map per idea. Islands,
//! frontends and simulations are judged by it, so it shares with them only POSIX's words and rules
//! (`atoll-posix`), none of their state code.
//!
//! - `Model` applies operations; `Outcome` says what came of one.
//! - `ModelFiles` is a volume made of a model, for frontends to mount.
//! - `Dump` is what a whole tree looks like, taken from any volume; two of them are compared.
//! - `Workload` draws random operations that mostly hit something.
//! - `Moves` says where the directories of a wide volume are, by all moves that its sites ever made.
//! - `life` is the oracle of what is left in a wide volume.
//!
//! Never used by the product.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod answer;
pub mod content;
pub mod dump;
mod file;
pub mod life;
pub mod mounted;
pub mod moves;
mod names;
mod node;
pub mod rng;
mod tree;
pub mod workload;

pub use content::{Content, ContentHash};
pub use dump::{Dump, Item, Strictness};
pub use mounted::ModelFiles;
pub use rng::Rng;
pub use tree::{AtimeRule, Model, Outcome};
pub use workload::{Step, Weights, Workload};
