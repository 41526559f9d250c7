//! Requests and messages that wait because their sender has seen a journal entry that this island has not
//! applied yet.

use atoll_core::Ino;
use atoll_core::{ClockVector, IslandId, Stamp};
use atoll_proto::{Chain, ClientOp, Outcome, PeerMessage, PeerOp, Vote};

use crate::ctx::Ctx;
use crate::ctx::request::{Next, PendingRequest};
use crate::journal::Journal;

impl Journal {
    /// Lets a request through if this island has seen everything that the client has seen (`seen`); otherwise
    /// the request waits. `knows_paths`: this island's knowledge of paths is not older than an absence.
    pub(crate) fn catch_up(
        &mut self,
        ctx: &mut Ctx,
        seen: Option<&ClockVector>,
        knows_paths: bool,
        mut call: PendingRequest,
    ) -> Option<PendingRequest> {
        let clocks = ctx.state.clocks();
        let has_all = |i: IslandId| call.asked.is_some_and(|ask| self.ends.has_all(i, ask, clocks.get(i)));
        let unseen =
            |(i, s): (IslandId, Stamp)| (i != ctx.config.id && clocks.get(i) < s && !has_all(i)).then_some(i);
        let by_path = matches!(
            call.request.op,
            ClientOp::Resolve { .. }
                | ClientOp::Skeleton { .. }
                | ClientOp::SkeletonAttr { .. }
                | ClientOp::SkeletonTarget { .. }
        );
        if by_path && !knows_paths {
            // What it knows of paths may be as old as its absence.
            self.wait_to_catch_up(ctx, &[], Next::Start(call));
            return None;
        }
        let missing: Vec<IslandId> =
            seen.into_iter().flat_map(atoll_core::ClockVector::iter).filter_map(unseen).collect();
        if missing.is_empty() {
            return Some(call);
        }
        let is_new = call.asked.is_none();
        let ask = *call.asked.get_or_insert_with(|| self.ends.next_ask());
        for island in &missing {
            self.ends.want(ctx, *island, is_new.then_some(ask));
        }
        self.wait_to_catch_up(ctx, &missing, Next::Start(call));
        None
    }

    /// The number of the last question how far a journal goes.
    pub(crate) const fn last_ask(&self) -> u64 {
        self.ends.last_ask()
    }

    /// Whether a stamp that was heard before the question behind `since` was a lie: its island had not given it.
    pub(crate) fn is_lie(&self, island: IslandId, since: u64, stamp: Stamp) -> bool {
        self.ends.is_beyond(island, since, stamp)
    }

    /// A coordinator says how far its journal goes.
    pub(crate) fn on_end(&mut self, ctx: &mut Ctx, from: IslandId, ask: u64, upto: Stamp) {
        if self.ends.told(from, ask, upto) {
            ctx.next(Next::CaughtUp);
        }
    }

    pub(crate) fn wait_to_catch_up(&mut self, ctx: &mut Ctx, missing: &[IslandId], parked: Next) {
        for island in missing {
            let after = ctx.state.clocks().get(*island);
            ctx.send(0, *island, PeerOp::Resend { after });
        }
        match self.behind.push(parked) {
            Err(Next::Start(call)) => ctx.answer(&call, 0, Outcome::NotNow),
            Err(Next::Peer(message)) => self.turn_away(ctx, &message),
            Ok(()) | Err(_) => {}
        }
    }

    /// There is no room for a message to wait: its sender begins again, or says it again by itself.
    pub(crate) fn turn_away(&mut self, ctx: &mut Ctx, message: &PeerMessage) {
        let from = message.from;
        match &message.op {
            PeerOp::Prepare { txn, .. } => ctx.send(0, from, PeerOp::Voted { txn: *txn, vote: Vote::Busy }),
            // Its request begins again after a pause; all who have prepared are told.
            PeerOp::Voted { txn, .. } => ctx.next(Next::Abort(*txn, None)),
            // It is asked for again, from the first that is missing.
            PeerOp::Journal { .. } => {
                self.stalled.insert(from);
            }
            // An outcome is told each second until it is known to be carried out, a comparison five times a second until
            // it is answered.
            PeerOp::Decided { .. } | PeerOp::Compare { .. } => {}
            other => unreachable!("{other:?} does not wait"),
        }
    }

    pub(crate) fn caught_up(&mut self, ctx: &mut Ctx) {
        for next in self.behind.take() {
            ctx.next(match next {
                Next::Start(call) => Next::CatchUp(call),
                next => next,
            });
        }
    }

    pub(crate) fn on_chain_of(&mut self, ctx: &mut Ctx, dir: Ino, chain: Option<&Chain>) {
        ctx.skeleton.tell_chain(dir, chain.cloned());
        self.ask_stalled(ctx);
    }
}
