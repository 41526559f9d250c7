//! Requests that wait for an event of no other machine: the start of the island, the end of a transaction, a
//! pause, a sync.

use std::collections::BTreeMap;

use atoll_core::TxnId;
use atoll_core::planted::{Bug, planted};
use atoll_posix::{Answer, Errno};
use atoll_proto::{ClientOp, Outcome};

use crate::ctx::Bounded;
use crate::ctx::request::{Next, PendingRequest};
use crate::ctx::{Ctx, PATIENCE_MS};
use crate::event::LinkId;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    /// Requests that wait for the island to start, or until it may decide.
    outside: Bounded<PendingRequest>,
    /// Requests that change something wait outside.
    waits_to_decide: bool,
    txn_waiting: BTreeMap<TxnId, Vec<PendingRequest>>,
    /// Requests that wait until there are ids to be given.
    awaiting_ids: Bounded<PendingRequest>,
    /// Requests that begin again, and when, in milliseconds.
    retry_at: Vec<(u64, PendingRequest)>,
    /// Requests that wait for the record at a position to be synced.
    sync_waiting: Vec<(u64, PendingRequest)>,
    /// Records find no space: requests that would change something are refused before they are decided.
    log_stuck: bool,
}

impl Requests {
    /// A request waits before it has begun, unless too many do: then its client asks again.
    pub(crate) fn wait_outside(&mut self, ctx: &mut Ctx, call: PendingRequest) {
        if let Err(call) = self.outside.push(call) {
            ctx.answer(&call, 0, Outcome::NotNow);
        }
    }

    /// Takes the requests that have waited outside.
    pub(crate) fn let_in(&mut self) -> Vec<PendingRequest> {
        self.outside.take()
    }

    /// From now on changes may be decided, or not.
    pub(crate) const fn set_decides(&mut self, decides: bool) {
        self.waits_to_decide = !decides;
    }

    /// Whether changes may be decided.
    pub(crate) const fn decides(&self) -> bool {
        !self.waits_to_decide
    }

    /// Whether a request may begin: it changes nothing, or changes may be decided.
    pub(crate) const fn may_begin(&self, call: &PendingRequest) -> bool {
        !self.waits_to_decide || call.request.seq == 0
    }

    /// A link has ended. Whoever waits outside will ask again on a new one: what came on this one says no
    /// more that its client lives. Only a goodbye still counts.
    pub(crate) fn link_closed(&mut self, link: LinkId) {
        let is_void = |call: &PendingRequest| call.link == link && call.request.op != ClientOp::Detach;
        if !planted(Bug::LateSignOfLife) {
            self.outside.take_if(is_void);
        }
    }

    /// A request waits for the end of a transaction.
    pub(crate) fn await_txn(&mut self, txn: TxnId, call: PendingRequest) {
        self.txn_waiting.entry(txn).or_default().push(call);
    }

    /// A request waits until there are ids to be given, unless too many do: then its client asks again.
    pub(crate) fn await_ids(&mut self, ctx: &mut Ctx, call: PendingRequest) {
        if let Err(call) = self.awaiting_ids.push(call) {
            ctx.answer(&call, 0, Outcome::NotNow);
        }
    }

    /// A request begins again at this time, in milliseconds.
    pub(crate) fn pause(&mut self, at_ms: u64, call: PendingRequest) {
        self.retry_at.push((at_ms, call));
    }

    /// Has those begin again whose pause is over.
    pub(crate) fn begin_again(&mut self, ctx: &mut Ctx) {
        let now = ctx.now.ms;
        for (_, call) in self.retry_at.extract_if(.., |(at, _)| *at <= now) {
            ctx.next(Next::Start(call));
        }
    }

    /// Fails requests that have waited for a transaction, or for ids, too long.
    pub(crate) fn end_late(&mut self, ctx: &mut Ctx) {
        let before_ms = ctx.now.ms.saturating_sub(PATIENCE_MS);
        let is_late = |call: &PendingRequest| call.since_ms < before_ms;
        let mut late = self.awaiting_ids.take_if(is_late);
        for calls in self.txn_waiting.values_mut() {
            late.extend(calls.extract_if(.., |call| is_late(call)));
        }
        for call in late {
            ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EIO });
        }
    }

    /// The log is synced far enough for some.
    pub(crate) fn synced(&mut self, ctx: &mut Ctx) {
        let durability = &ctx.durability;
        let ready: Vec<_> = self.sync_waiting.extract_if(.., |(seq, _)| durability.is_synced(*seq)).collect();
        for (_, call) in ready {
            ctx.finish_sync(&call);
        }
        if ctx.issuer.has_ids() {
            for call in self.awaiting_ids.take() {
                ctx.next(Next::Start(call));
            }
        }
    }

    /// Whether records find no space.
    pub(crate) const fn is_log_stuck(&self) -> bool {
        self.log_stuck
    }

    /// Records find no space, or find some again. What waits for ids has decided nothing, and is refused like what comes.
    pub(crate) fn set_log_stuck(&mut self, ctx: &mut Ctx, stuck: bool) {
        self.log_stuck = stuck;
        if stuck {
            for call in self.awaiting_ids.take() {
                ctx.answer(&call, 0, Outcome::Failed { errno: Errno::ENOSPC });
            }
        }
    }

    /// When the next request begins again, in milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.retry_at.iter().map(|(at, _)| *at).min()
    }

    /// Those that begin again, and when. To be shown.
    pub(crate) fn paused(&self) -> &[(u64, PendingRequest)] {
        &self.retry_at
    }

    /// Those that wait for ids. To be shown.
    pub(crate) const fn awaiting_ids(&self) -> &Bounded<PendingRequest> {
        &self.awaiting_ids
    }

    /// Those that wait for transactions. To be shown.
    pub(crate) const fn awaiting_txns(&self) -> &BTreeMap<TxnId, Vec<PendingRequest>> {
        &self.txn_waiting
    }

    /// Nothing waits for a transaction, ids or a pause.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.retry_at.is_empty() && self.txn_waiting.is_empty() && self.awaiting_ids.is_empty()
    }

    /// All that wait, but for the start.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        let later = self.retry_at.iter().chain(&self.sync_waiting).map(|(_, call)| call);
        later.chain(self.txn_waiting.values().flatten()).chain(self.awaiting_ids.iter())
    }

    pub(crate) fn await_synced(&mut self, ctx: &mut Ctx, seq: u64, call: PendingRequest) {
        if ctx.durability.is_synced(seq) || planted(Bug::FsyncBeforeSync) {
            return ctx.finish_sync(&call);
        }
        self.sync_waiting.push((seq, call));
        ctx.durability.want_sync(seq);
    }

    pub(crate) fn let_waiters_in(&mut self, ctx: &mut Ctx, txn: TxnId) {
        for call in self.txn_waiting.remove(&txn).unwrap_or_default() {
            ctx.next(Next::Start(call));
        }
    }
}

impl Ctx {
    fn finish_sync(&mut self, call: &PendingRequest) {
        self.answer(call, 0, Outcome::Ok { answer: Answer::Done, keys: Vec::new() });
    }
}
