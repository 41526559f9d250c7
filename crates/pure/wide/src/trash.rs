//! What rests at a site, by age: which of it goes, and when. Owns the bounds of the trash. Never puts anything into it, and reads no body.
//!
//! The rows are the truth. What is here follows from them, so it is the same behind a restart.

use std::collections::BTreeMap;

use atoll_core::{Decode, Ino, Malformed, wire_struct};
use atoll_posix::Kind;
use atoll_proto::{Record, RowChange};
use bytes::Bytes;

use crate::rows::{Rested, TRASH, TrashRow, trash_of};

/// Microseconds that a body rests at most: 30 days.
const REST_US: u64 = 30 * 24 * 3_600 * 1_000_000;
/// Bodies that rest at most.
const BODIES_MAX: usize = 100_000;
/// Bodies that go with one record.
const GO_AT_ONCE: usize = 64;
/// Milliseconds until the disk shows the room that a body has left.
const SHOWS_MS: u64 = 1_000;
/// Bodies in one answer.
const LISTED_MAX: usize = 1_000;

wire_struct! {
    /// A body that rests.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TrashEntry {
        /// Its key.
        pub key: u128,
        /// A regular file, or a symbolic link.
        pub kind: Kind,
        /// What is known of it.
        pub rested: Rested,
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Trash {
    bytes_max: u64,
    /// Bytes that bodies take, by their keys.
    bodies: BTreeMap<u128, u64>,
    bytes: u64,
    /// Bodies have gone that take so many bytes, and the disk does not show that before this time.
    gave: Option<(u64, u64)>,
}

impl Trash {
    /// A trash with at most so many bytes that goes on with these rows, all of [`TRASH`] and others.
    pub(crate) fn open<'a>(
        bytes_max: u64,
        rows: impl IntoIterator<Item = &'a (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let mut trash = Self { bytes_max, ..Self::default() };
        for (_, key, row) in rows.into_iter().filter(|(table, ..)| *table == TRASH) {
            let TrashRow::Rests { rested } = TrashRow::from_slice(row)?;
            trash.add(*key, rested.takes);
        }
        Ok(trash)
    }

    /// How many bodies rest.
    pub fn bodies(&self) -> usize {
        self.bodies.len()
    }

    /// Bytes that they take on the disk.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The keys of what rests, the oldest first.
    pub fn keys(&self) -> impl Iterator<Item = u128> {
        self.bodies.keys().copied()
    }

    /// Bytes of what may rest.
    pub(crate) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether this body rests.
    pub(crate) fn has(&self, key: u128) -> bool {
        self.bodies.contains_key(&key)
    }

    /// The key of this body, if it rests. Looks at all of them.
    pub(crate) fn key_of(&self, ino: Ino) -> Option<u128> {
        self.keys().find(|key| trash_of(*key).1 == ino)
    }

    fn add(&mut self, key: u128, takes: u64) {
        let old = self.bodies.insert(key, takes).unwrap_or(0);
        self.bytes = self.bytes - old + takes;
    }

    /// A record is decided.
    pub(crate) fn noted(&mut self, record: &Record) {
        for change in &record.changes {
            let RowChange::Side { table: TRASH, id, row } = change else { continue };
            match row {
                Some(row) => {
                    let TrashRow::Rests { rested } =
                        TrashRow::from_slice(row).expect("this site has written it");
                    self.add(*id, rested.takes);
                }
                None => self.bytes -= self.bodies.remove(id).unwrap_or(0),
            }
        }
    }

    /// The keys from this one on, as many as fit into an answer, and the next one.
    pub(crate) fn page(&self, from: u128) -> (Vec<u128>, Option<u128>) {
        let mut keys = self.bodies.range(from..).map(|(key, _)| *key);
        (keys.by_ref().take(LISTED_MAX).collect(), keys.next())
    }

    /// Bytes that may be used up by what is fetched, of so many that are left: what rests gives way, and some stays free for users.
    pub(crate) fn room(&self, left: u64) -> u64 {
        left.saturating_add(self.bytes).saturating_sub(self.bytes_max / 2)
    }

    /// The bodies that go next: those up to a key, those that are too old, and the oldest of those that are too many, take too much, or
    /// for which the disk has no room.
    pub(crate) fn going(
        &mut self,
        upto: Option<u128>,
        now_us: u64,
        (room, ms): (Option<u64>, u64),
    ) -> Vec<u128> {
        if self.gave.is_some_and(|(until_ms, _)| ms >= until_ms) {
            self.gave = None;
        }
        let gave = self.gave.map_or(0, |(_, bytes)| bytes);
        // Half as much as may rest stays free for users.
        let room = room.map_or(u64::MAX, |room| room.saturating_add(gave));
        let mut lacks = (self.bytes_max / 2).saturating_sub(room);
        let (mut left, mut bytes) = (self.bodies.len(), self.bytes);
        let mut going = Vec::new();
        for (key, takes) in &self.bodies {
            let is_asked = upto.is_some_and(|upto| *key <= upto);
            let is_old = trash_of(*key).0.saturating_add(REST_US) <= now_us;
            let is_too_much = left > BODIES_MAX || bytes > self.bytes_max;
            if !(is_asked || is_old || is_too_much || lacks > 0) || going.len() == GO_AT_ONCE {
                break;
            }
            going.push(*key);
            (left, bytes, lacks) = (left - 1, bytes - takes, lacks.saturating_sub(*takes));
        }
        going
    }

    /// These bodies go. How many bytes they take.
    pub(crate) fn gone(&mut self, keys: &[u128], ms: u64) -> u64 {
        let bytes = keys.iter().filter_map(|key| self.bodies.get(key)).sum();
        let (until_ms, before) = self.gave.unwrap_or((ms + SHOWS_MS, 0));
        self.gave = Some((until_ms, before + bytes));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::trash_key;

    /// So many bodies of a kilobyte each, a microsecond apart.
    fn with(bodies: u64) -> Trash {
        let mut trash = Trash { bytes_max: u64::MAX, ..Trash::default() };
        (0..bodies).for_each(|nth| trash.add(trash_key(nth, Ino(nth + 16)), 1_024));
        trash
    }

    #[test]
    fn of_too_many_bodies_the_oldest_go() {
        let mut trash = with(BODIES_MAX as u64 + 2);
        let room = (None, 0);
        let keys = [trash_key(0, Ino(16)), trash_key(1, Ino(17))];
        assert_eq!(trash.going(None, 10, room), keys);
        keys.iter().for_each(|key| trash.bytes -= trash.bodies.remove(key).unwrap());
        assert!(trash.going(None, 10, room).is_empty());
        assert_eq!((trash.bodies(), trash.bytes()), (BODIES_MAX, 1_024 * BODIES_MAX as u64));
    }

    #[test]
    fn what_goes_with_one_record_and_what_is_listed_in_one_answer_is_bounded() {
        let mut trash = with(2_500);
        assert_eq!(trash.going(Some(u128::MAX), 0, (None, 0)).len(), GO_AT_ONCE);
        let (mut from, mut counts) = (Some(0), Vec::new());
        while let Some(at) = from {
            let (keys, next) = trash.page(at);
            counts.push(keys.len());
            from = next;
        }
        assert_eq!(counts, [LISTED_MAX, LISTED_MAX, 500]);
    }

    #[test]
    fn a_disk_that_nobody_has_looked_at_takes_nothing_away() {
        let mut trash = Trash { bytes_max: 1 << 20, ..with(2) };
        assert!(trash.going(None, 0, (None, 0)).is_empty());
        assert_eq!(trash.going(None, 0, (Some(0), 0)).len(), 2);
    }
}
