//! Transactions between two islands, both sides (`DESIGN` 5): presumed abort, one commit record at
//! the coordinator, and each side keeps its record until the other's part survives a power cut.
//!
//! Coordinator: begun (memory only) -> committed (record) -> gone. Participant: prepared (record)
//! -> committed (record) or aborted (record) -> gone. The coordinator's commit record is the moment.

use atoll_core::map::IdMap;
use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, Stamp, TxnId};
use atoll_posix::Errno;
use atoll_proto::{Moments, Origin, Outcome, Part, Peer, PeerMessage, Txn, TxnState, Vote, Work};

use crate::decision::Decision;
use crate::lost::Lost;
use crate::machine::{Call, Island, Later, PATIENCE_MS, Parked, Step, Stop};

/// Milliseconds until an outcome that was not confirmed is told again.
const RETELL_MS: u64 = 1_000;
/// Transactions in one message.
const TXNS_PER_MESSAGE: usize = 1024;

/// Transactions under way, as far as memory is enough.
#[derive(Debug, Default)]
pub(crate) struct Txns {
    begun: BTreeMap<TxnId, Begun>,
    names: IdMap<(Ino, Name), TxnId>,
    /// Outcomes recorded here, with the record's position and the commit's moment, of which the partner
    /// was not told that they are synced.
    unconfirmed: Vec<(u64, IslandId, TxnId, Stamp)>,
    retell_ms: u64,
    /// Up to which stamp of each coordinator transactions were there when they were told last.
    told_before: BTreeMap<IslandId, Stamp>,
}

/// A transaction that this island coordinates and has not decided.
#[derive(Debug)]
struct Begun {
    partner: IslandId,
    dir: Ino,
    names: Vec<Name>,
    part: Part,
    call: Option<Call>,
}

impl Txns {
    /// The transaction that holds a name.
    pub(crate) fn holder(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        if self.names.is_empty() {
            return None;
        }
        self.names.get(&(dir, name.clone())).copied()
    }

    /// A transaction that holds a name in a directory.
    pub(crate) fn in_dir(&self, dir: Ino) -> Option<TxnId> {
        self.names.iter().find(|((d, _), _)| *d == dir).map(|(_, txn)| *txn)
    }

    /// Whether this island coordinates it and has not decided.
    pub(crate) fn is_begun(&self, txn: TxnId) -> bool {
        self.begun.contains_key(&txn)
    }

    /// Keeps the request that waits for a transaction.
    pub(crate) fn keep(&mut self, txn: TxnId, call: Call) {
        self.begun.get_mut(&txn).expect("just begun").call = Some(call);
    }
}

impl Island {
    // -------------------------------------------------------------- coordinator

    pub(crate) fn begin_txn(
        &mut self,
        call: &Call,
        txn: TxnId,
        partner: IslandId,
        dir: Ino,
        names: Vec<Name>,
        work: Work,
    ) -> Result<Step, Stop> {
        if !self.is_reachable(partner) {
            return Err(Stop::NotNow);
        }
        for name in &names {
            self.txns.names.insert((dir, name.clone()), txn);
        }
        // What the chain of ancestors shows must be committed before another island builds on it.
        let origin = Origin { session: call.session(), seq: call.request.seq };
        let part = Part { origin, work };
        self.send(self.state.seen(), partner, Peer::Prepare { txn, origin, work: part.work.clone() });
        self.txns.begun.insert(txn, Begun { partner, dir, names, part, call: None });
        Ok(Step::Later(Later::Txn(txn)))
    }

    pub(crate) fn on_voted(&mut self, txn: TxnId, vote: Vote) {
        match vote {
            Vote::Yes { prepared } => self.commit(txn, prepared),
            Vote::No { errno } => self.abort(txn, Some(Outcome::Failed { errno })),
            Vote::Busy | Vote::Behind => self.abort(txn, None),
        }
    }

    fn commit(&mut self, txn: TxnId, prepared: Stamp) {
        let Some(begun) = self.txns.begun.remove(&txn) else {
            // Decided to abort meanwhile, or in an earlier life: the participant asks, and is told.
            return;
        };
        let call = begun.call.as_ref().expect("kept when it was begun");
        let mut decision = Decision::new();
        let moments = self.committed_txn(&mut decision, txn, begun.partner, prepared, &begun.part);
        self.state.look_away();
        match self.commit_work(call, decision, &begun.part.work) {
            Ok(step) => {
                let seq = self.state.seq();
                self.txns.unconfirmed.push((seq, begun.partner, txn, moments.committed));
                self.release_names(txn, begun.dir, &begun.names);
                let call = begun.call.expect("kept when it was begun");
                match step {
                    Step::Looked(outcome) | Step::Decided(outcome) => self.answer(&call, seq, outcome),
                    Step::Later(Later::Applied(stamp, outcome)) => self.await_applied(call, stamp, outcome),
                    Step::Later(_) | Step::Answered => unreachable!("a commit waits for the journal only"),
                }
                // The client first: it need not wait for the participant's record.
                self.send(seq, begun.partner, Peer::Decided { txn, moments: Some(moments), part: None });
                self.let_waiters_in(txn);
            }
            Err(Stop::Load(loads)) => {
                // Come back with the vote when the rows are there.
                let message = PeerMessage {
                    from: begun.partner,
                    incarnation: 0,
                    vector: Vec::new(),
                    peer: Peer::Voted { txn, vote: Vote::Yes { prepared } },
                };
                self.txns.begun.insert(txn, begun);
                self.load(loads, Parked::Peer(message));
            }
            Err(_) => {
                self.txns.begun.insert(txn, begun);
                self.abort(txn, Some(Outcome::Failed { errno: Errno::EIO }));
            }
        }
    }

    /// The coordinator's row of what is committed now.
    pub(crate) fn committed_txn(
        &mut self,
        decision: &mut Decision,
        txn: TxnId,
        partner: IslandId,
        prepared: Stamp,
        part: &Part,
    ) -> Moments {
        let moments = Moments { prepared, committed: self.stamp() };
        decision.stamp(moments.committed);
        decision.txn(txn, Some(Txn { state: TxnState::Committed, partner, moments, part: part.clone() }));
        self.forget_adoption(decision, &part.work);
        moments
    }

    /// A directory that goes was adopted, so its mkdir need not be told again.
    fn forget_adoption(&self, decision: &mut Decision, work: &Work) {
        let Work::Seal { ino, .. } = work else { return };
        let old = self.state.txn_ids().find(|id| {
            id.coordinator == self.config.id
                && self
                    .state
                    .txn(*id)
                    .is_some_and(|row| matches!(&row.part.work, Work::Adopt { dir, .. } if dir.ino == *ino))
        });
        if let Some(old) = old {
            decision.txn(old, None);
        }
    }

    /// Gives a transaction up. Without an outcome its request is begun again after a pause.
    pub(crate) fn abort(&mut self, txn: TxnId, outcome: Option<Outcome>) {
        let Some(begun) = self.txns.begun.remove(&txn) else { return };
        self.send(0, begun.partner, Peer::Decided { txn, moments: None, part: None });
        self.release_names(txn, begun.dir, &begun.names);
        if let Some(mut call) = begun.call {
            match outcome {
                Some(outcome) => self.answer(&call, self.state.seq(), outcome),
                None if call.since_ms + PATIENCE_MS < self.now.ms => {
                    self.answer(&call, 0, Outcome::NotNow);
                }
                None => {
                    // A pause that differs from call to call, so that two do not meet for ever.
                    call.attempts += 1;
                    let spread = txn.stamp.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
                    let pause = 1 + (spread % u64::from(2 + call.attempts.min(20)));
                    self.retry_at.push((self.now.ms + pause, call));
                }
            }
        }
        self.let_waiters_in(txn);
    }

    fn release_names(&mut self, txn: TxnId, dir: Ino, names: &[Name]) {
        for name in names {
            let held = self.txns.names.remove(&(dir, name.clone()));
            assert_eq!(held, Some(txn), "a name was held by another transaction");
        }
    }

    pub(crate) fn let_waiters_in(&mut self, txn: TxnId) {
        for call in self.txn_waiting.remove(&txn).unwrap_or_default() {
            self.start(call, false);
        }
    }

    /// A partner is gone: what was begun with it ends without effect, and its clients ask again.
    pub(crate) fn abort_with(&mut self, partner: IslandId) {
        let gone: Vec<TxnId> =
            self.txns.begun.iter().filter(|(_, b)| b.partner == partner).map(|(txn, _)| *txn).collect();
        for txn in gone {
            self.abort(txn, Some(Outcome::NotNow));
        }
    }

    // -------------------------------------------------------------- participant

    pub(crate) fn on_prepare(
        &mut self,
        message: &PeerMessage,
        txn: TxnId,
        origin: Origin,
        work: &Work,
    ) -> Result<(), Stop> {
        let from = message.from;
        if txn.coordinator != from {
            return Ok(());
        }
        if let Some(row) = self.state.txn(txn) {
            // A repetition.
            let prepared = row.moments.prepared;
            self.send(0, from, Peer::Voted { txn, vote: Vote::Yes { prepared } });
            return Ok(());
        }
        if matches!(work, Work::Adopt { .. }) {
            let clocks = self.state.clocks();
            let theirs = |island| message.vector.iter().find(|(i, _)| *i == island).map(|(_, s)| *s);
            let missing: Vec<IslandId> = message
                .vector
                .iter()
                .filter(|(i, s)| *i != self.config.id && clocks.get(*i) < *s)
                .map(|(i, _)| *i)
                .collect();
            if !missing.is_empty() {
                self.fall_behind(&missing, Parked::Peer(message.clone()));
                return Ok(());
            }
            // Changes that this island has seen and the chain has not were not kept here, where
            // the directory was not known: the chain would bring the old state back. So would one
            // that this island's own journal has not reached.
            let ahead = clocks.iter().any(|(i, s)| theirs(i).unwrap_or_default() < s);
            if ahead {
                self.send(0, from, Peer::Voted { txn, vote: Vote::Behind });
                return Ok(());
            }
        }
        let mut decision = Decision::new();
        match self.prepare_work(&mut decision, txn, work)? {
            Ok(()) => {
                let prepared = self.stamp();
                decision.stamp(prepared);
                let moments = Moments { prepared, ..Moments::default() };
                let part = Part { origin, work: work.clone() };
                decision.txn(txn, Some(Txn { state: TxnState::Prepared, partner: from, moments, part }));
                self.decide(decision);
                // Before it is written: if this island dies now, the coordinator, which has logged what
                // the work is, tells it again before this island serves.
                self.send(0, from, Peer::Voted { txn, vote: Vote::Yes { prepared } });
            }
            Err(vote) => self.send(0, from, Peer::Voted { txn, vote }),
        }
        Ok(())
    }

    pub(crate) fn on_decided(
        &mut self,
        from: IslandId,
        txn: TxnId,
        moments: Option<Moments>,
        part: Option<&Part>,
    ) -> Result<(), Stop> {
        if txn.coordinator != from {
            return Ok(());
        }
        match (self.state.txn(txn).cloned(), moments) {
            (Some(row), Some(moments)) if row.state == TxnState::Committed => {
                if row.moments.committed < moments.committed {
                    // The coordinator had lost its commit, and has made it again.
                    let mut decision = Decision::new();
                    decision.txn(txn, Some(Txn { moments, ..row }));
                    self.decide(decision);
                }
                self.confirm(from, txn, moments.committed);
            }
            (Some(row), moments) => {
                assert!(row.state == TxnState::Prepared, "{txn:?} was committed and aborted");
                let mut decision = Decision::new();
                self.finish_work(&mut decision, &row.part.work, moments.is_some())?;
                let next = moments.map(|moments| Txn { state: TxnState::Committed, moments, ..row });
                decision.txn(txn, next);
                self.decide(decision);
                if let Some(moments) = moments {
                    self.confirm(from, txn, moments.committed);
                }
                self.let_waiters_in(txn);
            }
            // Its prepare was lost here: the coordinator has to say what it was.
            (None, Some(moments)) if self.state.lost(moments.prepared) => match part {
                Some(part) => {
                    let part = part.clone();
                    self.bring_back(moments.prepared, Lost::Part { from, txn, moments, part });
                }
                None => self.send(0, from, Peer::Ask { txn }),
            },
            // Long done.
            (None, Some(moments)) => self.confirm(from, txn, moments.committed),
            (None, None) => {}
        }
        Ok(())
    }

    /// Tells a partner of an outcome that is recorded here when it is synced.
    pub(crate) fn confirm(&mut self, partner: IslandId, txn: TxnId, committed: Stamp) {
        let seq = self.state.seq();
        self.txns.unconfirmed.push((seq, partner, txn, committed));
        if seq <= self.synced {
            self.stable();
        }
    }

    // ------------------------------------------------------------------- either

    pub(crate) fn on_ask(&mut self, from: IslandId, txn: TxnId) {
        if txn.coordinator != self.config.id || self.txns.begun.contains_key(&txn) {
            return;
        }
        // No row and not under way: it was never committed (presumed abort), or is long done.
        let row = self.state.txn(txn);
        let (moments, part) = (row.map(|row| row.moments), row.map(|row| Box::new(row.part.clone())));
        self.send(self.state.seq(), from, Peer::Decided { txn, moments, part });
    }

    pub(crate) fn on_stable(&mut self, from: IslandId, txns: &[(TxnId, Stamp)]) {
        let mut decision = Decision::new();
        let mut done = Vec::new();
        for (txn, committed) in txns {
            let mine = txn.coordinator == self.config.id;
            match self.state.txn(*txn).cloned() {
                Some(row) if row.state == TxnState::Prepared => {}
                // It knows of a commit that was lost here, and has been made again since.
                Some(Txn { moments, .. }) if mine && moments.committed != *committed => {
                    let moments = Some(moments);
                    self.send(self.state.seq(), from, Peer::Decided { txn: *txn, moments, part: None });
                }
                Some(_) => decision.txn(*txn, None),
                // What was lost here is told with all that it is: `on_carried`.
                None if mine && !self.state.lost(*committed) => done.push((*txn, *committed)),
                None => {}
            }
        }
        if !decision.record.changes.is_empty() {
            self.decide(decision);
        }
        // Long forgotten here; the partner may forget too once that is synced.
        for (txn, committed) in done {
            self.confirm(from, txn, committed);
        }
    }

    /// A participant has carried out what this island decided, and may have lost.
    pub(crate) fn on_carried(&mut self, from: IslandId, txn: TxnId, moments: Moments, part: &Part) {
        if txn.coordinator != self.config.id {
            return;
        }
        match self.state.txn(txn) {
            Some(row) if row.moments.committed != moments.committed => {
                let moments = Some(row.moments);
                self.send(self.state.seq(), from, Peer::Decided { txn, moments, part: None });
            }
            None if self.state.lost(moments.committed) => {
                let (prepared, part) = (moments.prepared, part.clone());
                self.bring_back(moments.committed, Lost::Commit { from, txn, prepared, part });
            }
            _ => self.confirm(from, txn, moments.committed),
        }
    }

    /// Tells partners of what is synced now.
    pub(crate) fn stable(&mut self) {
        let synced = self.synced;
        let (ready, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.txns.unconfirmed).into_iter().partition(|(seq, ..)| *seq <= synced);
        self.txns.unconfirmed = wait;
        let mut by_partner: BTreeMap<IslandId, Vec<(TxnId, Stamp)>> = BTreeMap::new();
        for (_, partner, txn, committed) in ready {
            by_partner.entry(partner).or_default().push((txn, committed));
        }
        for (partner, txns) in by_partner {
            for part in txns.chunks(TXNS_PER_MESSAGE) {
                self.send(0, partner, Peer::Stable { txns: part.to_vec() });
            }
        }
        self.confirm_applied();
        self.tell_kept();
    }

    /// Tells a partner what it may have missed or lost, of the transactions of which `which` says so.
    pub(crate) fn retell(&mut self, to: IslandId, which: impl Fn(TxnId) -> bool) {
        let rows: Vec<(TxnId, Txn)> = self
            .state
            .txn_ids()
            .filter_map(|txn| self.state.txn(txn).map(|row| (txn, row.clone())))
            .filter(|(txn, row)| row.partner == to && which(*txn))
            .collect();
        let seq = self.state.seq();
        for (txn, Txn { state, moments, part, .. }) in rows {
            let part = Box::new(self.as_it_is(part));
            let peer = match state {
                TxnState::Prepared => Peer::Ask { txn },
                TxnState::Committed if txn.coordinator == self.config.id => {
                    Peer::Decided { txn, moments: Some(moments), part: Some(part) }
                }
                TxnState::Committed => {
                    self.confirm(to, txn, moments.committed);
                    Peer::Carried { txn, moments, part }
                }
            };
            self.send(seq, to, peer);
        }
    }

    /// A directory that was adopted may have other attributes by now: whoever names it again gets those.
    fn as_it_is(&self, mut part: Part) -> Part {
        if let Work::Adopt { dir, .. } = &mut part.work
            && let Some(row) = self.in_memory(dir.ino).filter(|row| row.owned.is_some())
        {
            dir.fixed = row.fixed;
        }
        part
    }

    pub(crate) fn tick_txns(&mut self) {
        let late: Vec<TxnId> = self
            .txns
            .begun
            .iter()
            .filter(|(_, b)| b.call.as_ref().is_some_and(|c| c.since_ms + PATIENCE_MS < self.now.ms))
            .map(|(txn, _)| *txn)
            .collect();
        for txn in late {
            self.abort(txn, Some(Outcome::NotNow));
        }
        let late = self.now.ms.saturating_sub(PATIENCE_MS);
        for calls in self.txn_waiting.values_mut() {
            let (gone, stay) = std::mem::take(calls).into_iter().partition(|c| c.since_ms < late);
            *calls = stay;
            self.retry_at.extend(Vec::into_iter(gone).map(|call| (u64::MAX, call)));
        }
        let gone: Vec<(u64, Call)> = self.retry_at.extract_if(.., |(at, _)| *at == u64::MAX).collect();
        for (_, call) in gone {
            self.answer(&call, 0, Outcome::Failed { errno: Errno::EIO });
        }
        if self.now.ms >= self.txns.retell_ms + RETELL_MS {
            self.txns.retell_ms = self.now.ms;
            // What was there at the last time already.
            let old = std::mem::take(&mut self.txns.told_before);
            for txn in self.state.txn_ids() {
                let last = self.txns.told_before.entry(txn.coordinator).or_default();
                *last = txn.stamp.max(*last);
            }
            let is_old = |txn: TxnId| old.get(&txn.coordinator).is_some_and(|last| txn.stamp <= *last);
            for island in self.others().filter(|i| self.is_reachable(*i)).collect::<Vec<_>>() {
                self.retell(island, is_old);
            }
            self.stable();
        }
    }
}
