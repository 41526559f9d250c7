//! What is looked at next, and when. Knows nothing of what it is.

use std::collections::{BTreeMap, BTreeSet};

/// See the module. To find what is due costs nothing for what is not.
#[derive(Debug, Clone)]
pub(super) struct DueQueue<K> {
    when: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
}

impl<K> Default for DueQueue<K> {
    fn default() -> Self {
        Self { when: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> DueQueue<K> {
    /// This one is due at that time, in milliseconds, and not when it was before.
    pub(super) fn set(&mut self, key: K, ms: u64) {
        self.remove(key);
        self.when.insert(key, ms);
        self.order.insert((ms, key));
    }

    /// This one is not due any more.
    pub(super) fn remove(&mut self, key: K) {
        if let Some(ms) = self.when.remove(&key) {
            self.order.remove(&(ms, key));
        }
    }

    /// When this one is due, if it is at all.
    pub(super) fn when(&self, key: K) -> Option<u64> {
        self.when.get(&key).copied()
    }

    /// When the first one of all is due, if there are some.
    pub(super) fn first_ms(&self) -> Option<u64> {
        self.order.first().map(|(ms, _)| *ms)
    }

    /// What is due now, the longest time first.
    pub(super) fn due(&self, now_ms: u64) -> impl Iterator<Item = K> {
        self.order.iter().take_while(move |(ms, _)| *ms <= now_ms).map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_of_its_times_and_each_once() {
        let mut queue = DueQueue::default();
        [(1, 30), (2, 10), (3, 20), (1, 5), (3, 40)].into_iter().for_each(|(key, ms)| queue.set(key, ms));
        let due = |queue: &DueQueue<u32>, now| queue.due(now).collect::<Vec<_>>();
        assert_eq!((due(&queue, 4), due(&queue, 10), due(&queue, 40)), (vec![], vec![1, 2], vec![1, 2, 3]));
        queue.remove(1);
        queue.remove(7);
        assert_eq!(due(&queue, 40), [2, 3]);
        assert_eq!((queue.when(1), queue.when(3), queue.first_ms()), (None, Some(40), Some(10)));
    }
}
