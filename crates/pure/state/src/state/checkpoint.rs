//! Checkpoints: the rows that have changed since the last one, as the snapshot keeps them. Never writes them.

use atoll_core::{Decode, Encode};
use atoll_proto::JournalClock;

use super::State;
use crate::key::RowKey;

/// A checkpoint's rows.
#[derive(Debug, Clone)]
pub struct CheckpointRows {
    /// Log position that they stand for.
    pub seq: u64,
    /// Rows to set or remove, as bytes.
    pub rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A row as the snapshot keeps it. In simulation and tests it is read again: what is written can be read.
pub(crate) fn row_bytes<V: Encode + Decode + PartialEq>(key: &RowKey, row: &V) -> Vec<u8> {
    let bytes = row.to_vec();
    debug_assert!(V::from_slice(&bytes).as_ref() == Ok(row), "{key:?} would be read as another row");
    bytes
}

impl State {
    /// The next checkpoint, if nothing changes before it, is the last one before the island stops in order.
    pub fn stop_clean(&mut self) {
        self.meta.clean = true;
    }

    /// Takes out every row that changed since the last checkpoint, as of now.
    pub fn freeze(&mut self) -> CheckpointRows {
        let mut rows = Vec::new();
        fn put<V>(rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>, key: &RowKey, row: Option<&V>)
        where
            V: Encode + Decode + PartialEq,
        {
            rows.push((key.to_bytes(), row.map(|row| row_bytes(key, row))));
        }
        self.inodes.freeze(|k, v| put(&mut rows, &RowKey::Inode(k), v));
        self.dirs.freeze(|k, v| put(&mut rows, &RowKey::Dir(k), v));
        self.xattrs.freeze(|k, v| put(&mut rows, &RowKey::Xattrs(k), v));
        self.locks.freeze(|k, v| put(&mut rows, &RowKey::Locks(k), v));
        self.sums.freeze(|(ino, chunk), v| put(&mut rows, &RowKey::Sums(ino, chunk), v));
        self.txns.freeze(|k, v| put(&mut rows, &RowKey::Txn(k), v));
        self.sessions.freeze(|k, v| put(&mut rows, &RowKey::Session(k), v));
        self.names_frozen = std::mem::take(&mut self.names_dirty);
        for dir in &self.names_frozen {
            let names = self.names.get_mut(dir).expect("a dirty directory is in memory");
            names.freeze(|cookie, name, v| put(&mut rows, &RowKey::Entry(*dir, cookie, name.clone()), v));
        }
        self.outbox.freeze(|stamp, entry| put(&mut rows, &RowKey::Outbox(stamp), entry));
        for island in std::mem::take(&mut self.delivered_dirty) {
            put(&mut rows, &RowKey::Delivered(island), self.delivered.get(&island));
        }
        for island in std::mem::take(&mut self.skipped_dirty) {
            put(&mut rows, &RowKey::Skipped(island), self.skipped.get(&island));
        }
        for island in std::mem::take(&mut self.clocks_dirty) {
            let (applied, public) = (self.clocks.get(island), self.public_clocks.get(island));
            put(&mut rows, &RowKey::Clock(island), Some(&JournalClock { applied, public }));
        }
        for (island, journal) in &mut self.inboxes {
            journal.freeze(|stamp, entry| put(&mut rows, &RowKey::Inbox(*island, stamp), entry));
        }
        for island in std::mem::take(&mut self.moved_dirty) {
            put(&mut rows, &RowKey::Moved(island), Some(&self.moved.get(island)));
        }
        for ino in std::mem::take(&mut self.forwards_dirty) {
            put(&mut rows, &RowKey::Forward(ino), self.forwards.get(&ino));
        }
        for incarnation in std::mem::take(&mut self.survived_dirty) {
            put(&mut rows, &RowKey::Survived(incarnation), self.survived.get(&incarnation));
        }
        self.sides.freeze(|(table, id), row| {
            // As they are: not as bytes are encoded, which would put their length in front.
            rows.push((RowKey::Side(table, id).to_bytes(), row.map(|row| row[..].to_vec())));
        });
        self.renamed.freeze(&mut rows);
        self.links.freeze(&mut rows);
        self.view.freeze(|key, freeze| put(&mut rows, &key, freeze.as_ref()));
        self.meta.seq = self.seq;
        put(&mut rows, &RowKey::Meta, Some(&self.meta));
        CheckpointRows { seq: self.seq, rows }
    }

    /// The checkpoint is in the snapshot.
    pub fn thaw(&mut self) {
        self.inodes.thaw();
        self.dirs.thaw();
        self.xattrs.thaw();
        self.locks.thaw();
        self.sums.thaw();
        self.txns.thaw();
        self.sessions.thaw();
        self.sides.thaw();
        self.view.thaw();
        for dir in std::mem::take(&mut self.names_frozen) {
            if let Some(names) = self.names.get_mut(&dir) {
                names.thaw();
            }
        }
    }
}
