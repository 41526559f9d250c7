//! Transactions among islands (`DESIGN` 5), at their coordinator: presumed abort, and one commit record. Each
//! side keeps its record until the other side's part survives a power cut.
//!
//! Coordinator: begun (memory only) -> committed (record) -> gone. Participant: prepared (record) ->
//! committed (record) or aborted (record) -> gone. The transaction happens with the coordinator's commit
//! record.
//!
//! An operation with several participants is one transaction with each of them; one record commits all.
//! Invariant: an outcome about files leaves its coordinator only when the commit record is synced. So the
//! coordinator never loses an outcome that others know, and a transaction that it does not know was aborted.

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, Stamp, Time, TxnId};
use atoll_posix::{Answer, Attr, Errno};
use atoll_proto::{
    Chain, EntryRef, Outcome, ParticipantWork, PeerMessage, PeerOp, RenameSpec, RequestId, Vote, VoteInfo,
};

use crate::ctx::Ctx;
use crate::ctx::PATIENCE_MS;
use crate::ctx::request::{Blocked, Next, PendingRequest, Step, WaitFor};
use crate::look::{Look, Missing};
use crate::rows::chains::VectorOrder;
use crate::rows::moves::moving;
use crate::rows::path::ok;
use crate::txn::Txns;

/// Milliseconds until an outcome that was not confirmed is told again.
pub(super) const RETELL_MS: u64 = 1_000;
/// Transactions in one message.
pub(super) const TXNS_PER_MESSAGE: usize = 1024;

/// A transaction that this island coordinates and has not decided.
#[derive(Debug, Clone)]
pub(crate) struct Coordinated {
    pub(crate) parties: Vec<Participant>,
    pub(crate) names: Vec<EntryRef>,
    pub(crate) plan: OwnPart,
    pub(crate) origin: RequestId,
    pub(crate) call: Option<PendingRequest>,
}

/// A participant of one.
#[derive(Debug, Clone)]
pub(crate) struct Participant {
    pub(crate) txn: TxnId,
    pub(crate) island: IslandId,
    pub(crate) work: ParticipantWork,
    pub(crate) prepared: Option<Stamp>,
}

/// The coordinator's own part when all have voted.
#[derive(Debug, Clone)]
pub(crate) enum OwnPart {
    /// What the operation and the participant's work say: mkdir, rmdir.
    Dirs,
    /// A name of a file that is homed elsewhere, whose attributes the vote tells.
    Link { at: EntryRef, home: IslandId, time: Time, attr: Option<Attr> },
    /// A file goes to the island that owns its name. Nobody has asked for it.
    Ship,
    /// A name of a file that is homed elsewhere goes.
    Unlink { at: EntryRef, time: Time },
    /// A file or directory gets another name. `lent`: what the new name was is known, and where it is, if asked.
    Rename { renaming: Box<RenameSpec>, lent: Option<Chain> },
}

/// The end of a request that cannot go on. None if all of it is tried again, because something that it needs
/// is locked or has changed.
pub(crate) fn ended_by(stop: &Blocked) -> Option<Outcome> {
    match stop {
        Blocked::Fail(errno) => Some(Outcome::Failed { errno: *errno }),
        Blocked::NeedGroups => Some(Outcome::NeedGroups),
        Blocked::Txn(_) | Blocked::NotNow | Blocked::Unheard => None,
        _ => Some(Outcome::Failed { errno: Errno::EIO }),
    }
}

/// mkdir and rmdir: each side brings back what the other has lost.
pub(super) const fn is_of_dirs(work: &ParticipantWork) -> bool {
    matches!(work, ParticipantWork::Adopt { .. } | ParticipantWork::Seal { .. })
}

impl OwnPart {
    /// Whether all is known that the votes have to tell.
    const fn is_ready(&self) -> bool {
        !matches!(self, Self::Link { attr: None, .. } | Self::Rename { lent: None, .. })
    }
}

impl Coordinated {
    /// What was lent is known by now, and part of what its lender is told again if it loses it.
    fn lent_by(&mut self, txn: TxnId, now: Box<RenameSpec>, chain: Chain) {
        for party in self.parties.iter_mut().filter(|party| party.txn == txn) {
            if let ParticipantWork::BorrowName { renaming, .. } = &mut party.work {
                renaming.clone_from(&now);
            }
        }
        self.plan = OwnPart::Rename { renaming: now, lent: Some(chain) };
    }
}

impl Txns {
    /// Nothing is undecided, and nobody has to be told of an outcome.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.locks.is_empty() && self.begun.is_empty() && self.first.is_empty() && self.unconfirmed.is_empty()
    }

    /// The requests that wait for transactions that are begun.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        self.begun.values().filter_map(|begun| begun.call.as_ref())
    }

    /// Panics unless each begun transaction is undecided, and has a request or is a file on its way.
    pub(crate) fn check(&self, has_row: impl Fn(TxnId) -> bool) {
        for (first, begun) in &self.begun {
            assert!(!begun.parties.is_empty(), "{first:?} asks nobody");
            assert_eq!(begun.parties[0].txn, *first, "a transaction goes by another one's id");
            let is_shipment = matches!(begun.plan, OwnPart::Ship);
            assert_eq!(
                begun.call.is_none(),
                is_shipment,
                "{first:?} has a request, or none: {:?}",
                begun.plan
            );
            for party in &begun.parties {
                assert!(!has_row(party.txn), "{:?} is undecided and has a row", party.txn);
                assert_eq!(self.first_of(party.txn), *first, "{:?} belongs to another one", party.txn);
            }
        }
        for (txn, first) in &self.first {
            let begun = self.begun.get(first);
            let is_part = begun.is_some_and(|begun| begun.parties.iter().any(|party| party.txn == *txn));
            assert!(is_part, "{txn:?} is said to belong to {first:?}");
        }
    }

    /// Whether this island coordinates it and has not decided.
    pub(crate) fn is_begun(&self, txn: TxnId) -> bool {
        self.begun.contains_key(&self.first_of(txn))
    }

    pub(crate) fn first_of(&self, txn: TxnId) -> TxnId {
        self.first.get(&txn).copied().unwrap_or(txn)
    }

    /// Whether this island coordinates something that is not decided.
    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Keeps the request that waits for a transaction.
    pub(crate) fn keep(&mut self, txn: TxnId, call: PendingRequest) {
        self.begun.get_mut(&txn).expect("just begun").call = Some(call);
    }

    pub(crate) fn take_begun(&mut self, first: TxnId) -> Option<Coordinated> {
        let begun = self.begun.remove(&first)?;
        for party in &begun.parties {
            self.first.remove(&party.txn);
        }
        Some(begun)
    }

    pub(crate) fn put_begun(&mut self, first: TxnId, begun: Coordinated) {
        for party in begun.parties.iter().filter(|party| party.txn != first) {
            self.first.insert(party.txn, first);
        }
        self.begun.insert(first, begun);
    }

    /// The record at `seq` has decided `begun`: its locks are freed. `told`: partners that are told the
    /// outcome at once.
    pub(crate) fn committed(
        &mut self,
        first: TxnId,
        begun: &Coordinated,
        seq: u64,
        told: impl Iterator<Item = (TxnId, IslandId, Stamp)>,
    ) {
        self.unconfirmed.extend(told.map(|(txn, island, committed)| (seq, island, txn, committed)));
        self.locks.unlock_names(first, &begun.names);
        self.locks.unlock_dirs(first);
    }

    /// Asks further participants to prepare.
    fn ask_parties(&mut self, ctx: &mut Ctx, first: TxnId, works: Vec<(IslandId, ParticipantWork)>) {
        for (island, work) in works {
            let begun = &self.begun[&first];
            let origin = begun.origin;
            let txn = if begun.parties.is_empty() {
                first
            } else {
                let txn = TxnId { coordinator: ctx.config.id, stamp: ctx.stamp() };
                self.first.insert(txn, first);
                txn
            };
            // What the chain of ancestors shows must be committed before another island builds on it.
            ctx.send(ctx.state.seen(), island, PeerOp::Prepare { txn, origin, work: work.clone() });
            let party = Participant { txn, island, work, prepared: None };
            self.begun.get_mut(&first).expect("looked at").parties.push(party);
        }
    }

    // -------------------------------------------------------------- coordinator

    /// Begins an operation that others take part in, holding `names`, which are owned here. `stamp`: of the
    /// first transaction, if it was given already.
    pub(crate) fn begin_txn(
        &mut self,
        ctx: &mut Ctx,
        call: &PendingRequest,
        stamp: Option<Stamp>,
        names: Vec<EntryRef>,
        plan: OwnPart,
        works: Vec<(IslandId, ParticipantWork)>,
    ) -> Result<Step, Blocked> {
        if !works.iter().all(|(island, _)| ctx.peers.is_reachable(*island)) {
            return Err(Blocked::NotNow);
        }
        let origin = RequestId { session: call.session(), seq: call.request.seq };
        Ok(Step::Wait(WaitFor::Txn(self.begin_of(ctx, origin, stamp, names, plan, works))))
    }

    /// As [`Txns::begin_txn`], of participants that can be reached.
    pub(crate) fn begin_of(
        &mut self,
        ctx: &mut Ctx,
        origin: RequestId,
        stamp: Option<Stamp>,
        names: Vec<EntryRef>,
        plan: OwnPart,
        works: Vec<(IslandId, ParticipantWork)>,
    ) -> TxnId {
        let stamp = stamp.unwrap_or_else(|| ctx.stamp());
        let first = TxnId { coordinator: ctx.config.id, stamp };
        self.locks.lock_names(first, &names);
        if let OwnPart::Rename { renaming, lent: Some(_) } = &plan {
            self.locks.lock_moves(first, renaming);
        }
        let begun = Coordinated { parties: Vec::new(), names, plan, origin, call: None };
        self.begun.insert(first, begun);
        self.ask_parties(ctx, first, works);
        first
    }

    pub(crate) fn on_voted(
        &mut self,
        ctx: &mut Ctx,
        missing: &dyn Missing,
        message: &PeerMessage,
        txn: TxnId,
        vote: &Vote,
    ) -> Result<(), Blocked> {
        let first = self.first_of(txn);
        let from = message.from;
        let asked = |begun: &&mut Coordinated| begun.parties.iter().any(|p| p.txn == txn && p.island == from);
        let Some(begun) = self.begun.get_mut(&first).filter(asked) else {
            if matches!(vote, Vote::Yes { .. }) {
                // Decided to abort meanwhile, or in an earlier life.
                self.on_ask(ctx, from, txn);
            }
            return Ok(());
        };
        let outcome = match vote {
            Vote::Yes { prepared, seen } => {
                let party = begun.parties.iter_mut().find(|p| p.txn == txn).expect("just seen");
                party.prepared = Some(*prepared);
                return self.voted_yes(ctx, missing, message, first, txn, seen);
            }
            Vote::No { errno } => Some(Outcome::Failed { errno: *errno }),
            Vote::Busy | Vote::Behind => None,
            // Its client asks again, of who it is by now.
            Vote::Moved => Some(Outcome::NotNow),
            Vote::NeedGroups => Some(Outcome::NeedGroups),
            Vote::Same => Some(ok(Answer::Removed { orphan: None }, None)),
        };
        self.abort(ctx, first, outcome);
        Ok(())
    }

    fn voted_yes(
        &mut self,
        ctx: &mut Ctx,
        missing: &dyn Missing,
        message: &PeerMessage,
        first: TxnId,
        txn: TxnId,
        seen: &VoteInfo,
    ) -> Result<(), Blocked> {
        let begun = self.begun.get_mut(&first).expect("looked at by the caller");
        match (seen, &mut begun.plan) {
            (VoteInfo::File { attr: told }, OwnPart::Link { attr, .. }) => *attr = Some(*told),
            (VoteInfo::Dir { fixed }, OwnPart::Rename { renaming, .. }) => {
                let party = begun.parties.iter().find(|party| party.txn == txn);
                let ino = party.and_then(|party| match &party.work {
                    ParticipantWork::FreezeDir { ino, .. } => Some(*ino),
                    _ => None,
                });
                if !Ctx::stub_is_current(renaming, ino, fixed.version) {
                    // A change of its attributes is on its way here.
                    self.abort(ctx, first, None);
                    return Ok(());
                }
            }
            (VoteInfo::Name { there, by, chain }, OwnPart::Rename { renaming, lent: None }) => {
                let mut renaming = renaming.clone();
                renaming.there.clone_from(there);
                let chain = chain.clone().unwrap_or_default();
                let caller = begun.call.as_ref().map(|call| call.caller().clone());
                let caller = caller.expect("kept when it was begun");
                if let Some(there) = &mut renaming.there {
                    // Its lender may not have heard yet what this island has told of its own directory.
                    ctx.freshen_stub(there)?;
                }
                match ctx.order_of_chain(&chain)? {
                    VectorOrder::Same => {}
                    VectorOrder::Newer { missing: unseen } => {
                        ctx.next(Next::FallBehind(unseen, message.clone()));
                        return Ok(());
                    }
                    VectorOrder::Older => {
                        self.abort(ctx, first, None);
                        return Ok(());
                    }
                }
                let at = &renaming.from;
                if renaming.file.stub.is_some() && ctx.state.entry(at.dir, &at.name)? != Some(&renaming.file)
                {
                    // Its attributes have changed since, and the lender has the old ones.
                    self.abort(ctx, first, None);
                    return Ok(());
                }
                let works = match (Look { ctx, locks: &self.locks, missing }).lent(
                    message.from,
                    &caller,
                    &renaming,
                    *by,
                    &chain,
                ) {
                    Ok(works) => works,
                    Err(Blocked::Load(loads)) => return Err(Blocked::Load(loads)),
                    Err(stop) => {
                        self.abort(ctx, first, ended_by(&stop));
                        return Ok(());
                    }
                };
                if !works.iter().all(|(island, _)| ctx.peers.is_reachable(*island)) {
                    self.abort(ctx, first, Some(Outcome::NotNow));
                    return Ok(());
                }
                let begun = self.begun.get_mut(&first).expect("looked at");
                begun.lent_by(txn, renaming.clone(), chain);
                self.locks.lock_moves(first, &renaming);
                self.ask_parties(ctx, first, works);
            }
            _ => {}
        }
        let begun = &self.begun[&first];
        let votes = |party: &Participant| party.prepared.is_some() || planted(Bug::VoteOfNobody);
        if begun.parties.iter().all(votes) {
            if begun.plan.is_ready() {
                ctx.next(Next::Commit(first));
            } else {
                self.abort(ctx, first, None);
            }
        }
        Ok(())
    }

    /// Gives a transaction up. Without an outcome its request is begun again after a pause.
    pub(crate) fn abort(&mut self, ctx: &mut Ctx, txn: TxnId, outcome: Option<Outcome>) {
        let txn = self.first_of(txn);
        let Some(begun) = self.take_begun(txn) else { return };
        for party in &begun.parties {
            ctx.send(0, party.island, PeerOp::Decided { txn: party.txn, stamps: None, part: None });
        }
        self.locks.unlock_names(txn, &begun.names);
        self.locks.unlock_dirs(txn);
        if matches!(begun.plan, OwnPart::Ship) {
            ctx.next(Next::NotShipped(txn));
        }
        if let Some(mut call) = begun.call {
            match outcome {
                Some(outcome) => ctx.answer(&call, ctx.state.seq(), outcome),
                None if call.since_ms + PATIENCE_MS < ctx.now.ms => {
                    ctx.answer(&call, 0, Outcome::NotNow);
                }
                None => {
                    // A pause that differs from call to call, so that two do not meet for ever.
                    call.attempts += 1;
                    let of = txn.stamp.0 ^ u64::from(txn.coordinator.0) << 48;
                    let spread = of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
                    let pause = 1 + (spread % u64::from(2 + call.attempts.min(20)));
                    ctx.next(Next::Pause(ctx.now.ms + pause, call));
                }
            }
        }
        ctx.next(Next::TxnEnded(txn));
    }

    /// A partner is away: transactions that were begun with it end without effect, and their clients ask
    /// again.
    pub(crate) fn abort_with(&mut self, ctx: &mut Ctx, partner: IslandId) {
        let with = |begun: &Coordinated| begun.parties.iter().any(|party| party.island == partner);
        let gone: Vec<TxnId> = self.begun.iter().filter(|(_, b)| with(b)).map(|(txn, _)| *txn).collect();
        for txn in gone {
            self.abort(ctx, txn, Some(Outcome::NotNow));
        }
    }
}

impl Ctx {
    /// Stamps of all places that a rename posts but the last. They come before the commit's own. So an island
    /// that has seen more of this island's journal than a commit has applied the whole of it, also of an
    /// exchange.
    pub(crate) fn stamps_before_commit(&mut self, plan: &OwnPart) -> Vec<Stamp> {
        let OwnPart::Rename { renaming, .. } = plan else { return Vec::new() };
        (1..moving(renaming).len()).map(|_| self.stamp()).collect()
    }
}
