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
        let mut first = Vec::new();
        let mut last = None;
        for load in loads {
            if !self.loading.contains_key(&load) {
                self.loading.insert(load.clone(), Vec::new());
                first.push(load.clone());
            }
            last = Some(load);
        }
        // It goes on with what is asked for last: the others are in memory by then, or asked for again.
        let last = first.last().cloned().or(last).and_then(|load| self.loading.get_mut(&load));
        if let Some(waiting) = last {
            waiting.push(parked);
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

#[cfg(test)]
mod tests {
    use atoll_core::Ino;
    use atoll_state::RowKey;

    use super::*;

    #[test]
    fn what_needs_several_rows_goes_on_once_with_the_one_that_is_asked_for_last() {
        let mut loads = Loads::default();
        let [a, b, c, d] = [1, 2, 3, 4].map(|ino| RowLoad::Row(RowKey::Inode(Ino(ino))));
        let all = vec![a.clone(), b.clone(), c.clone()];
        assert_eq!(loads.wait(all.clone(), Next::Beside), all);
        // What another one asks for too is read once.
        assert_eq!(loads.wait(vec![d.clone(), a.clone()], Next::Beside), std::slice::from_ref(&d));
        assert!(loads.wait(vec![a.clone()], Next::Beside).is_empty());
        let goes_on = |load| loads.take(load).len();
        assert_eq!([&a, &b, &c, &d].map(goes_on), [1, 0, 1, 1]);
        assert!(loads.is_empty());
    }
}
