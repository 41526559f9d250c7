//! The invariants of islands' rows: the one list that `atoll check` and the simulator hold a state against.
//!
//! Pure functions over rows, wherever they come from. Never reads a file, never repairs anything:
//! what is wrong is named ([`Finding`]), with the rule that it breaks.
//!
//! Each rule is one function in [`within`] (one island's rows) or [`across`] (several islands of one
//! volume). [`check_at_rest`] adds what is true only when all islands are there and nothing is under way. A rule that needs an island that is not there is skipped for it: what is not known is
//! not wrong.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod across;
mod at_rest;
mod doubt;
mod finding;
mod links;
mod paths;
mod rows;
pub mod within;

pub use at_rest::check_at_rest;
pub use finding::{Finding, Rule};
pub use paths::paths;
pub use rows::{BadRow, Journals, Rows};

use atoll_core::{IslandId, Key, Table};

/// What every rule needs to know of the volume.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Who owns what.
    pub table: Table,
    /// Seed of its directory cookies.
    pub seed: u64,
}

impl Volume {
    /// The island that owns a directory with this placement key.
    pub fn owner(&self, key: Key) -> IslandId {
        self.table.owner(key)
    }
}

/// Everything that is wrong with these islands, each by itself and together.
pub fn check(volume: &Volume, islands: &[Rows]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rows in islands {
        within::check(volume, rows, &mut findings);
    }
    across::check(volume, islands, &mut findings);
    findings
}
