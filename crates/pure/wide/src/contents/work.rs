//! What is asked of the island's bodies and is under way. Never knows what an answer means.

use std::collections::BTreeMap;

use atoll_causal::FileId;
use atoll_core::Ino;
use atoll_posix::Op;
use bytes::Bytes;

use super::serving::ServeId;

/// Operations under way.
const WORK_MAX: usize = 64;

/// For what something is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkFor {
    /// A version of this file is cut.
    Cut(Ino),
    /// The bytes of this one are fetched, by the fetch with this number.
    Fetch(FileId, u64),
    /// Another site has asked for bytes.
    Serve(ServeId),
}

/// An operation of the island that is to be done.
#[derive(Debug)]
pub(crate) struct WorkOp {
    /// Its number.
    pub(crate) id: u64,
    /// What.
    pub(crate) op: Op,
    /// Bytes of a write.
    pub(crate) data: Bytes,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work {
    under_way: BTreeMap<u64, WorkFor>,
    last: u64,
}

impl Work {
    /// Whether more may be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.under_way.len() < WORK_MAX
    }

    /// Begins something.
    pub(crate) fn begin(&mut self, what: WorkFor, op: Op, data: Bytes) -> WorkOp {
        self.last += 1;
        self.under_way.insert(self.last, what);
        WorkOp { id: self.last, op, data }
    }

    /// For what this was asked, which is done.
    pub(crate) fn ended(&mut self, id: u64) -> Option<WorkFor> {
        self.under_way.remove(&id)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way.is_empty()
    }
}
