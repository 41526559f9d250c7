//! The invariants of islands' rows: the one list by which `atoll check` and the simulator judge a state.
//!
//! These are pure functions over rows, wherever the rows come from. They never read a file and never repair
//! anything. A violation is a [`Finding`], which names the rule.
//!
//! Each rule is one function in [`within`] (one island's rows) or [`across`] (several islands of one volume).
//! [`copies`] compares the copies of one island.
//! [`check_at_rest`] adds the rules that hold only when all islands are there and nothing is under way. If a
//! rule needs an island that is not there, it is skipped for it: an unknown row is not a wrong one.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod across;
mod at_rest;
pub mod copies;
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

/// The facts about the volume that rules need.
#[derive(Debug, Clone)]
pub struct Volume {
    /// The table of owners.
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
