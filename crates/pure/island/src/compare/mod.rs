//! Anti-entropy: catches up with missed journals by comparing directories with their owners.

pub(crate) mod answer;
mod asking;
pub(crate) mod round;
mod taking;

use std::collections::BTreeMap;

use atoll_core::{IslandId, Stamp};

use round::Round;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct AntiEntropy {
    /// The comparison under way, which catches up with missed journals.
    round: Option<Box<Round>>,
    /// Counts rounds.
    rounds: u64,
    /// Coordinators whose journals were missed, and that have not told yet what else this island has lost: names
    /// that it has lent are compared when it has them again.
    skipped: BTreeMap<IslandId, Stamp>,
}

impl AntiEntropy {
    /// Nothing is compared.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.round.is_none()
    }

    /// An island is away that has told of a gap: it tells again when it returns.
    pub(crate) fn forget_skipped(&mut self, island: IslandId) {
        self.skipped.remove(&island);
    }
}
