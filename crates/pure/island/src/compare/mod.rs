//! Anti-entropy: what was missed of journals is made up for by comparing directories with those who own them.

pub(crate) mod answer;
pub(crate) mod round;

use atoll_core::{IslandId, Stamp};
use round::Comparing;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct AntiEntropy {
    /// What was missed of journals is made up for.
    pub(crate) round: Option<Box<Comparing>>,
    /// Counts rounds.
    pub(crate) rounds: u64,
    /// Coordinators whose journals were missed, and that have not told yet what else this island has lost: names
    /// that it has lent are compared when it has them again.
    pub(crate) skipped: BTreeMap<IslandId, Stamp>,
}
