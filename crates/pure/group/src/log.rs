//! The own copy's log, as numbers. Never appends.
//!
//! Invariant: synced <= written <= last.

use crate::epochs::Epochs;
use crate::event::OpenedLog;
use atoll_core::Position;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnLog {
    pub(crate) epochs: Epochs,
    pub(crate) written: u64,
    pub(crate) synced: u64,
    /// So far a sync has told that it got. Another thread may tell later that these records are written.
    sync_told: u64,
    pub(crate) checkpoint: u64,
    pub(crate) first: u64,
    last_body: u64,
    pub(crate) room: u64,
    pub(crate) stuck: bool,
    pub(crate) differs: u32,
}

impl OwnLog {
    pub(crate) fn new(opened: OpenedLog) -> Self {
        let last = opened.epochs.last().seq;
        assert!(opened.first <= last + 1, "the log begins at {}, and ends at {last}", opened.first);
        // A log is synced when it is opened.
        Self {
            epochs: opened.epochs,
            written: last,
            synced: last,
            sync_told: last,
            checkpoint: opened.checkpoint,
            first: opened.first,
            last_body: opened.last_body,
            room: u64::MAX,
            stuck: false,
            differs: opened.differs,
        }
    }

    pub(crate) fn last(&self) -> Position {
        self.epochs.last()
    }

    pub(crate) fn wrote(&mut self, seq: u64, last_body: u64) {
        assert!(seq <= self.last().seq, "record {seq} is written behind the last one");
        self.written = self.written.max(seq);
        self.last_body = self.last_body.max(last_body);
        self.synced(self.sync_told);
    }

    pub(crate) fn synced(&mut self, seq: u64) {
        self.sync_told = self.sync_told.max(seq);
        self.synced = self.synced.max(self.sync_told.min(self.written));
    }

    /// Whether a cut down to there takes off changes of bodies. What is under way may be one.
    pub(crate) fn has_bodies_behind(&self, seq: u64) -> bool {
        self.last_body > seq || self.written < self.last().seq
    }
}
