//! Rows that are being read from the snapshot, and what goes on when they are in memory.

use atoll_core::map::IdMap;
use atoll_state::Load;

use super::request::{Next, PendingRequest};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loads {
    loading: IdMap<Load, Vec<Next>>,
    /// Counts checkpoints: what was read before one may be older than what memory has let go of since.
    generation: u64,
}

impl Loads {
    /// Has something go on when these are in memory; those that nobody has asked for yet, in the order in which to ask.
    pub(crate) fn wait(&mut self, loads: Vec<Load>, parked: Next) -> Vec<Load> {
        let mut parked = Some(parked);
        let mut first = Vec::new();
        for load in loads.into_iter().rev() {
            let is_first = !self.loading.contains_key(&load);
            let waiting = self.loading.entry(load.clone()).or_default();
            // It goes on with the last one: the others are in memory by then, or asked for again.
            waiting.extend(parked.take());
            if is_first {
                first.push(load);
            }
        }
        first
    }

    /// What waits for this; nobody waits for it any more.
    pub(crate) fn take(&mut self, load: &Load) -> Vec<Next> {
        self.loading.remove(load).unwrap_or_default()
    }

    /// The number of the reads that are made now.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// A checkpoint is made: reads that were begun before are made again.
    pub(crate) const fn begin_generation(&mut self) {
        self.generation += 1;
    }

    /// Nothing is being read.
    pub(crate) fn is_empty(&self) -> bool {
        self.loading.is_empty()
    }

    /// The requests that wait for rows.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        self.loading.values().flatten().filter_map(|parked| match parked {
            Next::Start(call) => Some(call),
            _ => None,
        })
    }
}
