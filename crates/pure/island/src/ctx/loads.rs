//! Rows that are being read from the snapshot, and the requests that go on when they are in memory.

use atoll_core::map::{IdMap, IdSet};
use atoll_state::RowLoad;

use super::request::{Next, PendingRequest};

/// Rows that are known as damaged. If there are more the first of them are read again.
const DAMAGED_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loads {
    loading: IdMap<RowLoad, Vec<Next>>,
    /// Counts checkpoints: a row that was read before one may be older than a row that memory has dropped
    /// since.
    generation: u64,
    /// Rows that the snapshot has and that cannot be read. They are not read again before the next
    /// checkpoint, which may replace them.
    damaged: IdSet<RowLoad>,
}

impl Loads {
    /// Has something go on when these are in memory; those that nobody has asked for yet, in the order in which to ask.
    pub(crate) fn wait(&mut self, loads: Vec<RowLoad>, parked: Next) -> Vec<RowLoad> {
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
    pub(crate) fn take(&mut self, load: &RowLoad) -> Vec<Next> {
        self.loading.remove(load).unwrap_or_default()
    }

    /// The number of the reads that are made now.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// A checkpoint is made: reads that were begun before are made again.
    pub(crate) fn begin_generation(&mut self) {
        self.generation += 1;
        self.damaged.clear();
    }

    /// The snapshot has something that cannot be read.
    pub(crate) fn note_damaged(&mut self, load: RowLoad) {
        if self.damaged.len() >= DAMAGED_MAX {
            self.damaged.clear();
        }
        self.damaged.insert(load);
    }

    /// Whether one of these cannot be read.
    pub(crate) fn are_damaged(&self, loads: &[RowLoad]) -> bool {
        loads.iter().any(|load| self.damaged.contains(load))
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
