//! Conflicts that were settled at this site without a file beside a name, by time: which of them are remembered. Owns the bounds of that log.
//! Settles nothing.
//!
//! The rows are the truth. What is here follows from them, so it is the same behind a restart.

use std::collections::BTreeSet;

use atoll_core::wire_struct;
use atoll_proto::{Record, RowChange};
use bytes::Bytes;

use crate::rows::{SETTLED, Settled, remove, settled_us};

/// Conflicts that are remembered at most.
const COUNT_MAX: usize = 10_000;
/// Microseconds for which one is remembered: 90 days.
const AGE_US: u64 = 90 * 24 * 3_600 * 1_000_000;
/// Conflicts that are forgotten with one record, at most: more than one record settles.
const FORGOTTEN_AT_ONCE: usize = 512;
/// Conflicts in one answer.
const LISTED_MAX: usize = 1_000;

wire_struct! {
    /// A conflict that was settled.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SettledEntry {
        /// Its key, which has the time.
        pub key: u128,
        /// What has become of it.
        pub settled: Settled,
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettledLog {
    keys: BTreeSet<u128>,
}

impl SettledLog {
    /// The log that goes on with these rows, all of [`SETTLED`] and others.
    pub(crate) fn open<'a>(rows: impl IntoIterator<Item = &'a (u8, u128, Bytes)>) -> Self {
        let own = rows.into_iter().filter(|(table, ..)| *table == SETTLED);
        Self { keys: own.map(|(_, key, _)| *key).collect() }
    }

    /// A record is decided. If it settles some, those go with it that are too old or too many.
    pub(crate) fn noted(&mut self, record: &mut Record) {
        let keys = record.changes.iter().filter_map(|change| match change {
            RowChange::Side { table: SETTLED, id, row: Some(_) } => Some(*id),
            _ => None,
        });
        let before = self.keys.len();
        self.keys.extend(keys);
        if self.keys.len() == before {
            return;
        }
        let last_us = self.keys.last().map_or(0, |key| settled_us(*key));
        for _ in 0..FORGOTTEN_AT_ONCE {
            let too_many = self.keys.len() > COUNT_MAX;
            let is_old = |key: &u128| settled_us(*key).saturating_add(AGE_US) < last_us;
            let Some(oldest) = self.keys.first().copied().filter(|key| too_many || is_old(key)) else {
                return;
            };
            self.keys.remove(&oldest);
            record.changes.push(remove(SETTLED, oldest));
        }
    }

    /// The keys from this one on, as many as fit into an answer, and the next one.
    pub(crate) fn page(&self, from: u128) -> (Vec<u128>, Option<u128>) {
        let mut keys = self.keys.range(from..).copied();
        (keys.by_ref().take(LISTED_MAX).collect(), keys.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::settled_key;

    /// A record that settles one.
    fn settles(time_us: u64) -> Record {
        let row = Some(Bytes::new());
        let change = RowChange::Side { table: SETTLED, id: settled_key(time_us, 7, 0), row };
        Record { changes: vec![change], bodies: Vec::new() }
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut log = SettledLog::default();
        for time_us in 0..COUNT_MAX as u64 {
            log.noted(&mut settles(time_us));
        }
        let mut record = settles(COUNT_MAX as u64);
        log.noted(&mut record);
        assert_eq!(record.changes[1], remove(SETTLED, settled_key(0, 7, 0)));
        assert_eq!((record.changes.len(), log.keys.len()), (2, COUNT_MAX));
    }

    #[test]
    fn what_is_older_than_ninety_days_is_forgotten_when_another_one_comes() {
        let mut log = SettledLog::default();
        log.noted(&mut settles(1));
        log.noted(&mut settles(AGE_US));
        log.noted(&mut Record::default());
        assert_eq!(log.page(0).0.len(), 2);
        log.noted(&mut settles(AGE_US + 2));
        assert_eq!(log.page(0).0.len(), 2);
    }

    #[test]
    fn what_is_listed_in_one_answer_is_bounded() {
        let mut log = SettledLog::default();
        (0..1_500).for_each(|time_us| log.noted(&mut settles(time_us)));
        let (first, next) = log.page(0);
        assert_eq!((first.len(), next), (LISTED_MAX, Some(settled_key(1_000, 7, 0))));
        assert_eq!(log.page(next.unwrap()).0.len(), 500);
    }
}
