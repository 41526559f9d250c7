//! The snapshot of an island as a map, for tests that have no disk.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

use atoll_core::Ino;
use atoll_state::{CheckpointRows, LoadedRows, RowKey, RowLoad, State};

/// The rows of all checkpoints so far.
#[derive(Debug, Default)]
pub(crate) struct Snapshot(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

impl Snapshot {
    /// A checkpoint is written.
    pub(crate) fn commit(&mut self, frozen: CheckpointRows) {
        for (key, row) in frozen.rows {
            match row {
                Some(row) => drop(self.0.insert(key, row)),
                None => drop(self.0.remove(&key)),
            }
        }
    }

    /// One row.
    pub(crate) fn row(&self, key: &RowKey) -> LoadedRows {
        LoadedRows::Row(self.0.get(&key.to_bytes()).cloned())
    }

    /// What is asked for, if that is one row; of lists nothing.
    pub(crate) fn load(&self, load: &RowLoad) -> LoadedRows {
        match load {
            RowLoad::Row(key) => self.row(key),
            other => other.nothing(),
        }
    }

    /// All names in a directory.
    pub(crate) fn names(&self, dir: Ino) -> LoadedRows {
        let rows = self.0.range(RowKey::entries_from(dir, 0)..RowKey::entries_from(Ino(dir.0 + 1), 0));
        let names = rows.map(|(key, row)| match RowKey::from_bytes(key) {
            Some(RowKey::Entry(_, cookie, name)) => (cookie, name, row.clone()),
            other => panic!("{other:?} among the names"),
        });
        LoadedRows::Names { names: names.collect(), to: u64::MAX }
    }

    /// The state with which an island starts.
    pub(crate) fn state(&self) -> State {
        let mut state = State::new(1);
        for (key, row) in &self.0 {
            let key = RowKey::from_bytes(key).expect("it was written by this code");
            state.open_row(&key, row).expect("it was written by this code");
        }
        state
    }
}
