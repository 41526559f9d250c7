//! Bodies of files: who may be inside, what is done there, and checkpoints. Never reads a body itself.

pub(crate) mod checkpoint;
pub(crate) mod data;
pub(crate) mod gate;
pub(crate) mod shape;
pub(crate) mod space;

use std::collections::{BTreeMap, VecDeque};

use atoll_core::Ino;
use atoll_core::map::{IdMap, IdSet};

use crate::ctx::request::Call;
use crate::event::{BodyOp, Ticket};
use checkpoint::Checkpointing;
use data::InBody;
use gate::Gates;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    pub(crate) gates: Gates<Call>,
    pub(crate) in_body: BTreeMap<Ticket, InBody>,
    pub(crate) next_ticket: u64,
    /// Body operations that wait until a record is synced.
    pub(crate) after_sync: VecDeque<(u64, Ticket, BodyOp)>,
    /// Bodies that go when nobody is inside any more.
    pub(crate) going: Vec<(Ino, Ticket)>,
    /// Files made since the last checkpoint began, of which no sync has begun: their bytes may be lost.
    pub(crate) fresh: IdSet<Ino>,
    /// Files whose bodies changed since the last checkpoint began, with the first record that says so.
    pub(crate) touched: IdMap<Ino, u64>,
    /// The record with which the last checkpoint announced what was being put in place then.
    pub(crate) announced: u64,
    /// Files with bytes in place that no body sync has covered.
    pub(crate) unsynced_bodies: IdSet<Ino>,
    /// Those that the checkpoint under way will sync.
    pub(crate) syncing_bodies: IdSet<Ino>,
    /// Files with changes that are done, or done again by a recovery, as their records say, and that
    /// no body sync has covered.
    pub(crate) carried: IdSet<Ino>,
    /// Those of them that the checkpoint under way covers.
    pub(crate) syncing_carried: IdSet<Ino>,
    pub(crate) checkpoint: Option<Checkpointing>,
    pub(crate) checkpoint_ms: u64,
}

impl Bodies {
    /// Of an island that starts: nobody is inside of a body.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            gates: Gates::default(),
            in_body: BTreeMap::new(),
            next_ticket: 1,
            after_sync: VecDeque::new(),
            going: Vec::new(),
            fresh: IdSet::default(),
            touched: IdMap::default(),
            announced: 0,
            unsynced_bodies: IdSet::default(),
            syncing_bodies: IdSet::default(),
            carried: IdSet::default(),
            syncing_carried: IdSet::default(),
            checkpoint: None,
            checkpoint_ms: now_ms,
        }
    }
}
