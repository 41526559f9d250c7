//! Repair of a stopped volume: what is decidable without loss is mended, everything else is left as it is.
//! Never deletes a byte of a file, and never touches what a transaction under way is about.
//!
//! [`plan`] is a pure function over rows, as [`atoll_check`] is: it tells what would be done ([`Fix`]), and
//! what is done is ordinary log records, so that a recovery needs to know nothing of it ([`perform`]).
//! What decides, and in which order, is in `docs/design/004-repair.md`:
//!
//! - The owner of a directory decides about its attributes, the owner of the one above about its name and
//!   place, the home of a file about the file, the table about who owns what; all else is derived.
//! - Where two islands disagree about a name, it stays.
//! - What is taken away needs all islands of the volume to be there: nobody else may know better.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod counts;
mod dirs;
mod files;
mod links;
mod marks;
mod names;
mod native;
mod perform;
mod places;
mod skeleton;
mod work;

use atoll_check::{Rows, Volume};
use atoll_core::{Ino, IslandId, Time};
use atoll_proto::Change;

pub use native::{Lying, Native, Stray, plain_again, read_rows, strays};
pub use perform::perform;

/// Rounds after which a plan is as good as it gets: each mends what the one before has uncovered.
const ROUNDS_MAX: usize = 16;

/// The directory in the root that takes in files that have lost their names.
pub const LOST_AND_FOUND: &str = "lost+found";

/// How a volume is repaired.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The time that changed directories get.
    pub now: Time,
    /// Names of files that are nowhere any more are taken away too.
    pub forget: bool,
}

/// One thing that is mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The rule that was broken.
    pub rule: &'static str,
    /// The island that it is about.
    pub island: IslandId,
    /// The file or directory that it is about, if it is about one.
    pub ino: Option<Ino>,
    /// What is done, for people.
    pub what: String,
    /// Rows that it sets.
    pub changes: Vec<(IslandId, Change)>,
    /// Everything before it must survive a power cut first.
    pub after_all: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// In this order.
    pub fixes: Vec<Fix>,
    /// The rows as they will be then, of the islands that were given.
    pub rows: Vec<Rows>,
}

/// Finds out what can be mended. `islands` are those that are there; `native` tells what lies beside their
/// rows, `strays` are bodies that no file has.
pub fn plan(
    volume: &Volume,
    islands: Vec<Rows>,
    native: &dyn Native,
    strays: Vec<Stray>,
    options: &Options,
) -> Plan {
    let mut work = work::Work::new(volume, islands, native, strays, options);
    for _ in 0..ROUNDS_MAX {
        let before = work.fixes.len();
        work.ids();
        work.marks();
        work.remake_files();
        work.kinds();
        work.directories();
        work.names();
        work.skeletons();
        work.files();
        work.counts();
        work.flags();
        work.links();
        if work.fixes.len() == before {
            break;
        }
    }
    work.into_plan()
}
