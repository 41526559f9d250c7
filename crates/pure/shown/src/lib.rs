//! What users of a site of a wide volume see: a function of the states of the objects that the site holds, so that sites with
//! the same states show the same (`docs/design/023-wide.md`). Never changes a state, sends, or asks the time.
//!
//! Everything is answered for one name or one directory, so that a site computes anew only what a change can affect:
//!
//! - A change of a **file** affects the names that it had before and has after: those of its links, or that of its grave. So do
//!   all versions, attributes and links of it, because of files that are equal.
//! - A change of a **directory** affects the name that it had and has, and the names of its entries that changed.
//! - A name affects itself. If it is a [name beside another](names::unmarked), it affects that other one too, whose loser may have to
//!   avoid it.
//! - Whether a removed directory is shown depends on its children. If a child of it is affected, the directory is, and its
//!   parent if that is removed, and so on upwards. If it is shown now and was not, or the reverse, its name is affected.
//! - If a directory is affected and another one has the same name, the names in both are: they may be one directory now, or two.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod explicit;
mod group;
mod life;
mod listing;
pub mod names;
mod objects;
mod patch;
mod versions;

pub use explicit::{ExplicitStep, explicit, keep, twins_to_unlink};
pub use group::DirGroup;
pub use life::{FilePlace, Life, life, places};
pub use listing::{ShownEntry, ShownObject, listing, named};
pub use objects::Objects;
pub use patch::{DuePatch, patch};
pub use versions::{COPIES_MAX, NewCopy, Settlement, copy_id, is_in_conflict, live_versions, settle};
