//! The spine of a wide volume (`docs/design/023-wide.md`, Spine): in which directory each directory is, and under
//! which name its last move has put it there, at a site that holds only a part of the tree.
//!
//! Moves of directories between parents are the only changes of a wide volume that every site must know, since two of
//! them can make a circle that neither of their sites can see. Sites get them in any order and with long delays. The
//! rule is that of Kleppmann et al. 2021: in the order of stamps, moves by which a directory would come below itself
//! have no effect. So sites that know the same moves have the same tree.
//!
//! How it is used. [`Spine`] lies beside the rows of a site, and is told of directories that are made
//! ([`Spine::born`]), held ([`Spine::hold`]) and no longer held ([`Spine::release`]). A local move is judged by
//! [`Spine::decide`], which gives the record for all sites; this record, and those of others, go to
//! [`Spine::receive`], or to [`Spine::receive_all`] if many have gathered. What a site sends with a directory that
//! another one fetches is [`Spine::evidence`], and the other one takes it in by [`Spine::learn`]. [`Spine::fold`]
//! forgets moves that all sites know. Nothing leaves a site before it is synced there: records, evidence, and what a
//! site reports for a cut.
//!
//! Knows nothing of files, of renames in place, of messages and of rounds; never sends, writes or asks the time.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod check;
mod evidence;
mod fold;
mod lost;
mod receive;
mod record;
mod spine;
mod tree;

pub use evidence::Evidence;
pub use fold::SpineCut;
pub use lost::LostMove;
pub use receive::NotTaken;
pub use record::{MovedDir, SpineMove};
pub use spine::{MoveRefused, Spine};
pub use tree::SpinePlace;
