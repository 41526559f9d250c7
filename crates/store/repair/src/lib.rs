//! Repair of a stopped volume: damage is mended if that can be decided without loss, and is left otherwise.
//! Never deletes a byte of a file, and never touches rows of a transaction under way.
//!
//! [`plan`] is a pure function over rows, as [`atoll_check`] is. It returns the repairs ([`Fix`]). They are
//! carried out as ordinary log records, so a recovery needs to know nothing of repairs ([`perform`]).
//! `docs/design/004-repair.md` says who decides, and in which order:
//!
//! - The owner of a directory decides about its attributes, the owner of the one above about its name and
//!   place, the home of a file about the file, the table about owners. Everything else is derived.
//! - If two islands disagree about a name, the name stays.
//! - Removing something needs all islands of the volume, because another one may know better.

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
use atoll_proto::RowChange;

pub use native::{Lying, Native, Stray, plain_again, read_rows, strays};
pub use perform::perform;

/// Most rounds of a plan. Each mends damage that the one before has uncovered.
const ROUNDS_MAX: usize = 16;

/// The directory in the root that takes in files that have lost their names.
pub const LOST_AND_FOUND: &str = "lost+found";

/// Options of a repair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The time that changed directories get.
    pub now: Time,
    /// Also remove names of files that are nowhere any more.
    pub forget: bool,
}

/// One repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The rule that was broken.
    pub rule: &'static str,
    /// The island that it is about.
    pub island: IslandId,
    /// The file or directory that it is about, if it is about one.
    pub ino: Option<Ino>,
    /// A text for people.
    pub what: String,
    /// Rows that it sets.
    pub changes: Vec<(IslandId, RowChange)>,
    /// Everything before it must survive a power cut first.
    pub after_all: bool,
}

/// The repairs of a volume.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// In this order.
    pub fixes: Vec<Fix>,
    /// The rows as they will be then, of the islands that were given.
    pub rows: Vec<Rows>,
    /// A site of a wide volume: nothing of it is mended. Other sites would take what a repair changes for what its users have done, or never
    /// hear of it, because a repair knows nothing of what sites know of each other.
    pub refused: Option<IslandId>,
}

/// Finds the repairs. `islands` are the islands that are there; `native` tells of the native files beside
/// their rows; `strays` are bodies that belong to no file.
pub fn plan(
    volume: &Volume,
    islands: Vec<Rows>,
    native: &dyn Native,
    strays: Vec<Stray>,
    options: &Options,
) -> Plan {
    if let Some(site) = islands.iter().find(|rows| rows.has_beside) {
        return Plan { fixes: Vec::new(), refused: Some(site.island), rows: islands };
    }
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
