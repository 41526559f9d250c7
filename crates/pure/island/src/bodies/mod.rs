//! Bodies of files: which operations may be inside, their native work, and checkpoints. Never reads a body
//! itself.

pub(crate) mod checkpoint;
pub(crate) mod data;
mod done;
pub(crate) mod locks;
mod op;
pub(crate) mod shape;
pub(crate) mod space;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_core::map::{IdMap, IdSet};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, TxnId};

use crate::ctx::Ctx;
use crate::ctx::request::PendingRequest;
use crate::event::{BodyOp, BodyOpId, Effect, LinkId};
use checkpoint::Checkpointing;
use locks::{BodyAccess, BodyLocks};
use op::BodyOpState;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    locks: BodyLocks<PendingRequest>,
    in_body: BTreeMap<BodyOpId, BodyOpState>,
    next_ticket: u64,
    /// Body operations that wait until a record is synced.
    after_sync: VecDeque<(u64, BodyOpId, BodyOp)>,
    /// Bodies that go when nobody is inside any more.
    going: Vec<(Ino, BodyOpId)>,
    /// Files made since the last checkpoint began, of which no sync has begun: their bytes may be lost.
    fresh: IdSet<Ino>,
    /// Files whose bodies changed since the last checkpoint began, with the first record that says so.
    touched: IdMap<Ino, u64>,
    /// The record with which the last checkpoint announced the writes that were under way.
    announced: u64,
    /// Files with bytes in place that no body sync has covered.
    unsynced_bodies: IdSet<Ino>,
    /// Those that the checkpoint under way will sync.
    syncing_bodies: IdSet<Ino>,
    /// Files with changes that are done, or done again by a recovery, as their records say, and that
    /// no body sync has covered.
    carried: IdSet<Ino>,
    /// Those of them that the checkpoint under way covers.
    syncing_carried: IdSet<Ino>,
    checkpoint: Option<Checkpointing>,
    checkpoint_ms: u64,
}

impl Bodies {
    /// For an island that starts: no operation is inside of a body.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            locks: BodyLocks::default(),
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

    /// Bodies that a recovery has looked at: no sync has covered what it did there.
    pub(crate) fn recovered(&mut self, bodies: &[Ino]) {
        self.touched.extend(bodies.iter().map(|ino| (*ino, 0)));
        self.carried.extend(bodies);
        if !planted(Bug::RecoveredUnsynced) {
            self.unsynced_bodies.extend(bodies);
        }
    }

    /// A file was made: its bytes may be lost until a sync of them begins.
    pub(crate) fn file_made(&mut self, ino: Ino) {
        self.fresh.insert(ino);
    }

    /// Bytes of a file that comes from another island are put in place, as the record at `seq` says.
    pub(crate) fn put_in_place(&mut self, ctx: &mut Ctx, ino: Ino, txn: TxnId, seq: u64, op: BodyOp) {
        self.touch(ino, seq);
        self.carried.insert(ino);
        self.locks.enter(ino, BodyAccess::Pinned, false);
        let ticket = self.ticket(BodyOpState::Arriving { ino, txn });
        ctx.durability.after_commit(seq, Effect::Body(ticket, op));
    }

    /// They are in place.
    fn has_arrived(&mut self, ino: Ino) {
        self.locks.leave(ino, BodyAccess::Pinned);
    }

    /// Work begins when the record at `seq` is synced. That may be an earlier one than others wait for already.
    fn wait_for_sync(&mut self, seq: u64, ticket: BodyOpId, op: BodyOp) {
        let at = self.after_sync.partition_point(|(of, ..)| *of <= seq);
        self.after_sync.insert(at, (seq, ticket, op));
    }

    /// Carries out everything that waited for records that are synced now.
    pub(crate) fn synced(&mut self, ctx: &mut Ctx) {
        while self.after_sync.front().is_some_and(|(seq, ..)| ctx.durability.is_synced(*seq)) {
            let (_, ticket, op) = self.after_sync.pop_front().expect("looked at");
            match op {
                BodyOp::Drop { ino } if self.locks.is_inside(ino) && !planted(Bug::BodyGoesEarly) => {
                    self.going.push((ino, ticket))
                }
                _ => ctx.durability.emit(Effect::Body(ticket, op)),
            }
        }
    }

    /// The request that goes on when this is done.
    pub(crate) fn keep(&mut self, ticket: BodyOpId, call: PendingRequest) {
        self.in_body.get_mut(&ticket).expect("just begun").keep(call);
    }

    /// A link is gone: reads that came over it do not wait any more.
    pub(crate) fn link_closed(&mut self, link: LinkId) {
        self.locks.retain(|call| call.request.seq != 0 || call.link != link);
    }

    /// An operation inside changes the body.
    pub(crate) fn is_changing(&self, ino: Ino) -> bool {
        self.locks.is_exclusive(ino)
    }

    /// An operation is inside.
    pub(crate) fn is_inside(&self, ino: Ino) -> bool {
        self.locks.is_inside(ino)
    }

    /// An operation is inside, or waits.
    pub(crate) fn is_used(&self, ino: Ino) -> bool {
        self.locks.is_used(ino)
    }

    /// The body of a file goes.
    pub(crate) fn is_removing(&self, ino: Ino) -> bool {
        self.in_body.values().any(|body| matches!(body, BodyOpState::Dropping { ino: of } if *of == ino))
    }

    /// The length of a file changes.
    pub(crate) fn is_cutting(&self, ino: Ino) -> bool {
        self.in_body.values().any(|body| body.cuts() == Some(ino))
    }

    /// Bytes are put in place of a file that this transaction brings.
    pub(crate) fn is_arriving(&self, txn: TxnId) -> bool {
        self.in_body.values().any(|body| matches!(body, BodyOpState::Arriving { txn: of, .. } if *of == txn))
    }

    /// A request goes on after something that may change a row.
    pub(crate) fn may_decide(&self) -> bool {
        self.in_body.values().any(BodyOpState::decides)
    }

    /// Files that are being changed by requests that go on later.
    pub(crate) fn undecided(&self) -> BTreeSet<Ino> {
        self.in_body.values().filter_map(BodyOpState::changes).collect()
    }

    /// The request that goes on after this, if that may change a row.
    pub(crate) fn undecided_call(&self, ticket: BodyOpId) -> Option<&PendingRequest> {
        self.in_body.get(&ticket).filter(|body| body.decides())?.call()
    }

    /// A checkpoint is being made, or waits for work on bodies.
    pub(crate) const fn is_making_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// When the last checkpoint began, in milliseconds.
    pub(crate) const fn last_checkpoint_ms(&self) -> u64 {
        self.checkpoint_ms
    }

    /// Nothing is done in any body.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_body.is_empty() && self.checkpoint.is_none()
    }

    /// The requests that wait for bodies, or go on when something is done there.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        self.locks.all_waiting().chain(self.in_body.values().filter_map(BodyOpState::call))
    }

    /// Panics unless the operations inside of a body are exactly those under way there.
    pub(crate) fn check(&self, ctx: &Ctx) {
        let mut inside: BTreeMap<Ino, (u32, u32, u32)> = BTreeMap::new();
        for body in self.in_body.values() {
            for (ino, how) in body.inside() {
                let of = inside.entry(ino).or_default();
                match how {
                    BodyAccess::Shared => of.0 += 1,
                    BodyAccess::Exclusive => of.1 += 1,
                    BodyAccess::Pinned => of.2 += 1,
                }
            }
        }
        self.locks.check(&inside);
        if self.checkpoint.is_none() {
            assert!(self.syncing_bodies.is_empty(), "bodies are left of a checkpoint that is over");
            assert!(self.syncing_carried.is_empty(), "carried bytes are left of a checkpoint that is over");
        }
        for (seq, ticket, _) in &self.after_sync {
            assert!(!ctx.durability.is_synced(*seq), "{ticket:?} waits for {seq}, which is synced");
            assert!(self.in_body.contains_key(ticket), "{ticket:?} is not under way");
        }
    }
}
