//! What islands answer.

use atoll_core::{IslandId, Stamp, wire_struct};

use crate::lease::MayKeep;
use crate::message::Outcome;

wire_struct! {
    /// What an island answers. Bytes of a read travel beside it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Reply {
        /// What the island has seen of the islands' journals, as far as it is news on this link.
        pub vector: Vec<(IslandId, Stamp)>,
        /// Whether a mount may keep it.
        pub may_keep: MayKeep,
        /// The outcome.
        pub outcome: Outcome,
    }
}

impl Reply {
    /// One that tells nothing of journals, and that no mount keeps.
    pub const fn bare(outcome: Outcome) -> Self {
        Self { vector: Vec::new(), may_keep: MayKeep::No, outcome }
    }
}
