//! The newest name of each file that is homed here and was given one lately, as long as a session is attached that says by which
//! name it has found a file. Others may have renamed that file since.
//!
//! Only a hint: whoever uses a name looks whether the file has it. Lost with the life of the island.

use std::collections::VecDeque;

use atoll_core::{IdMap, Ino, IslandId};
use atoll_proto::{EntryRef, Record, RowChange};

/// Names that are remembered.
const LATEST_NAMES_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatestNames {
    is_on: bool,
    /// By file: its newest name, and the number under which that was noted.
    names: IdMap<Ino, (u64, EntryRef)>,
    /// In the order in which they were noted.
    noted: VecDeque<(u64, Ino)>,
    next: u64,
}

impl LatestNames {
    /// Names are remembered from now on.
    pub(crate) fn begin(&mut self) {
        self.is_on = true;
    }

    /// The newest name that is remembered of a file.
    pub(crate) fn of(&self, ino: Ino) -> Option<&EntryRef> {
        self.names.get(&ino).map(|(_, at)| at)
    }

    /// A record was decided by the island `me`.
    pub(crate) fn record_decided(&mut self, me: IslandId, record: &Record) {
        if !self.is_on {
            return;
        }
        for change in &record.changes {
            if let RowChange::Entry { dir, name, row: Some(entry) } = change
                && entry.stub.is_none()
                && entry.home == me
            {
                self.note(entry.ino, EntryRef { dir: *dir, name: name.clone() });
            }
        }
    }

    fn note(&mut self, ino: Ino, at: EntryRef) {
        self.names.insert(ino, (self.next, at));
        self.noted.push_back((self.next, ino));
        self.next += 1;
        if self.noted.len() > LATEST_NAMES_MAX
            && let Some((number, oldest)) = self.noted.pop_front()
            && self.names.get(&oldest).is_some_and(|(noted, _)| *noted == number)
        {
            self.names.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_core::Name;

    use super::*;

    #[test]
    fn the_newest_names_are_remembered_and_no_more_than_their_bound() {
        let mut latest = LatestNames::default();
        let at = |n: u64| EntryRef { dir: Ino(n), name: Name::new(b"n").unwrap() };
        latest.note(Ino(1), at(1));
        latest.note(Ino(2), at(2));
        latest.note(Ino(1), at(3));
        for n in 0..LATEST_NAMES_MAX as u64 - 1 {
            latest.note(Ino(10 + n % 7), at(n));
        }
        assert_eq!(latest.of(Ino(2)), None, "the oldest goes");
        assert_eq!(latest.of(Ino(1)), Some(&at(3)), "what was noted again is newer");
        assert_eq!((latest.noted.len(), latest.names.len()), (LATEST_NAMES_MAX, 8));
    }
}
